"""Shared parts of commands that use topics without a consumer group: options, profile, decoders, documents, texts."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace

from streamdedup.cli.assembly import kafka_options, topic_decoder
from streamdedup.cli.output import showing_share, tell_prefixed
from streamdedup.cli.rendering.pairs import Fetch, Side
from streamdedup.counts import counted
from streamdedup.errors import MessageError, SettingsError
from streamdedup.kafka.history import KafkaSpan
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Record
from streamdedup.kafka.reader import RecordFetcher
from streamdedup.kafka.texts import TextMissingError, fetch_text
from streamdedup.position import Position
from streamdedup.settings import Profile, Settings
from streamdedup.wire import Decoder, Document


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


def newest_documents(settings: Settings, profile: Profile, since_s: float, newest_count: int) -> Iterator[Document]:
    """Yield the newest documents of a profile's input topics, with a progress bar on standard error.

    Reads at most ``newest_count`` offsets in all, the newest ones, the same share of each partition, none before
    ``since_s`` (seconds since the epoch). The first ``next`` looks up the ends; later records are not read. Skips
    appended texts, deletions, and records that are no documents or that the Kafka client cannot read; their number
    goes to standard error.
    """
    options = replace(kafka_options(settings), topics=tuple(profile.topics))
    decoder = topic_decoder(settings, profile)
    title = ", ".join(profile.topics)
    since_ms = max(0, round(since_s * 1000))  # Kafka looks up no negative time
    passed_over = done_count = 0
    with (
        KafkaSpan(options, since_ms, ends=None, newest_count=newest_count) as span,
        showing_share(title, span.total_count) as step,
        decoder.batch(),  # shares requests to the schema registry
    ):
        for batch in span.batches():
            passed_over += len(batch.unreadable)
            for record in batch.records:
                document = _decode_upsert(decoder, record)
                if document is None:
                    passed_over += 1
                else:
                    yield document
            newly_done_count = span.done_count() - done_count
            step(newly_done_count)
            done_count += newly_done_count
    if passed_over:
        tell_prefixed(f"passed over: {counted(passed_over, 'record')} that are no whole documents")


def _decode_upsert(decoder: Decoder, record: Record) -> Document | None:
    """Return the document of a record; None for other operations and for records that are no documents."""
    try:
        document = decoder.decode(record.position, record.timestamp_ms, record.key, record.value, record.headers)
    except MessageError:
        return None  # the daemon made a dead letter of it
    return document if document.op == "upsert" else None


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
