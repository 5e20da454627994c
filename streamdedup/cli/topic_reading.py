"""Helps commands to read and write topics without a consumer group: options, profiles, decoders, texts."""

from contextlib import ExitStack
from dataclasses import replace

from streamdedup.cli.assembly import kafka_options, topic_decoder
from streamdedup.cli.rendering.pairs import Fetch, Side
from streamdedup.errors import SettingsError
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.reader import RecordFetcher
from streamdedup.kafka.texts import TextMissingError, fetch_text
from streamdedup.position import Position
from streamdedup.settings import Profile, Settings
from streamdedup.wire import Decoder


def reading_options(settings: Settings, topic: str) -> KafkaOptions:
    return replace(kafka_options(settings), topics=(topic,))


def topic_profile(settings: Settings, topic: str) -> Profile:
    for profile in settings.profiles.values():
        if topic in profile.topics:
            return profile
    existing = ", ".join(name for profile in settings.profiles.values() for name in profile.topics)
    raise SettingsError(f"--topic {topic}: no profile has this topic; the settings name {existing}")


def decoders_of(settings: Settings) -> dict[str, Decoder]:
    decoders: dict[str, Decoder] = {}
    for profile in settings.profiles.values():
        decoders |= dict.fromkeys(profile.topics, topic_decoder(settings, profile))
    return decoders


def text_fetcher(stack: ExitStack, options: KafkaOptions, settings: Settings) -> Fetch:
    """Return a function that fetches a document with its text, or with the reason why no record has the text."""
    fetcher, decoders = stack.enter_context(RecordFetcher(options)), decoders_of(settings)

    def fetch(document_id: str, digest: str, position: Position) -> Side:
        decoder = decoders.get(position.topic) or Decoder()  # the settings may no longer have the topic
        try:
            return Side(document_id, position, fetch_text(fetcher, decoder, document_id, digest, position))
        except TextMissingError as error:
            return Side(document_id, position, None, str(error))

    return fetch
