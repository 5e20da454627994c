"""Reading of topics by ``tail``, ``dlq``, ``demo`` and ``stop-shingles``: Kafka options, texts and documents."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path

from streamdedup.cli.assembly import decoder_of, kafka_options
from streamdedup.cli.output import say, steps
from streamdedup.cli.rendering.pairs import Side
from streamdedup.cli.settings_options import load_settings
from streamdedup.errors import MessageError
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Record
from streamdedup.kafka.reader import KafkaSpan, RecordFetcher
from streamdedup.position import Position
from streamdedup.settings import Profile, Settings
from streamdedup.settings.units import counted
from streamdedup.wire import Decoder, Document, content_digest


def load_reading_settings(config: Path | None, assignments: list[str] | None, servers: str | None) -> Settings | None:
    """Load the settings of a command that also works with ``--bootstrap-servers`` alone; None in that case.

    Raises:
        SettingsError: Settings are wrong, or neither settings nor servers are given.
    """
    return load_settings(config, assignments) if servers is None or config is not None or assignments else None


def reading_options(settings: Settings | None, servers: str | None, topic: str) -> KafkaOptions:
    """Return the Kafka options for reading one topic; ``servers`` overrides the brokers of the settings."""
    if settings is None:
        return KafkaOptions(bootstrap_servers=servers or "", group_id="", topics=(topic,), delivery="at-least-once")
    options = replace(kafka_options(settings), topics=(topic,))
    return replace(options, bootstrap_servers=servers) if servers else options


def decoders_of(settings: Settings) -> dict[str, Decoder]:
    """Return the decoder of each input topic."""
    return {
        topic: decoder
        for profile in settings.profiles.values()
        for decoder in [decoder_of(profile)]
        for topic in profile.topics
    }


def window_documents(settings: Settings, profile: Profile, since_s: float, most_count: int) -> Iterator[Document]:
    """Yield the newest documents of the input topics of a profile, with a progress bar on standard error.

    Reads without a consumer group, up to the present ends. Appended texts, deletions and records that are no documents
    are passed over; their number goes to standard error.

    Args:
        settings: Brokers and security.
        profile: Topics and field names.
        since_s: Time of the first records, in seconds since the epoch.
        most_count: Most records.

    Raises:
        BrokerUnavailable: No broker answers.
        FatalError: The broker refuses the client permanently, or a topic does not exist.
    """
    options, decoder = replace(kafka_options(settings), topics=tuple(profile.topics)), decoder_of(profile)
    passed_over = 0
    with KafkaSpan(options, round(since_s * 1000), None, most_count) as span, ExitStack() as stack:
        step, done = stack.enter_context(steps(", ".join(profile.topics), span.total_count)), 0
        for batch in span.batches():
            passed_over += len(batch.unreadable)
            for record in batch.records:
                document = _upserted(decoder, record)
                if document is None:
                    passed_over += 1
                else:
                    yield document
            step(span.done_count() - done)
            done = span.done_count()
    if passed_over:
        say(f"passed over: {counted(passed_over, 'record')} that are no whole documents")


def _upserted(decoder: Decoder, record: Record) -> Document | None:
    try:
        document = decoder.decode(record.position, record.timestamp_ms, record.key, record.value)
    except MessageError:
        return None  # the daemon made a dead letter of it
    return document if document.op == "upsert" else None


@dataclass(frozen=True, slots=True)
class KafkaTexts:
    """Fetches the texts behind alerts.

    Attributes:
        fetcher: Fetches the records.
        decoders: Decoder of each topic.
        default: Decoder of the other topics, with the default field names.
    """

    fetcher: RecordFetcher
    decoders: Mapping[str, Decoder]
    default: Decoder = field(default_factory=Decoder)

    def side(self, document_id: str, digest: str, position: Position) -> Side:
        """Return a document with its text, or without if Kafka no longer has the text of that digest."""
        text = self._text(position)
        # A topic that was deleted and created again has other records at the same offsets.
        if text is not None and content_digest(text).hex() != digest:
            text = None
        return Side(document_id, position, text)

    def _text(self, position: Position) -> str | None:
        decoder = self.decoders.get(position.topic, self.default)
        try:
            record = self.fetcher.fetch(position)
            if record is None:
                return None
            return decoder.decode(record.position, record.timestamp_ms, record.key, record.value).text
        except MessageError:
            return None  # unreadable for the client or the decoder; the daemon made a dead letter of it
