"""Opens both ends of a Kafka transport."""

from collections.abc import Iterable

from streamdedup.service.kafka.failures import cap_client_logging
from streamdedup.service.kafka.options import KafkaOptions
from streamdedup.service.kafka.sinks import PlainSink, TransactionalSink
from streamdedup.service.kafka.source import KafkaSource
from streamdedup.service.kafka.topics import check_topics


class KafkaTransport:
    """Sources and sinks over Kafka; see ``service.transport``."""

    def __init__(self, options: KafkaOptions) -> None:
        cap_client_logging()
        self._options = options

    def open(self) -> tuple[KafkaSource, TransactionalSink | PlainSink]:
        """Connect both ends.

        Raises:
            BrokerUnavailable: Nothing answers; try again later.
            FatalError: The broker refuses us for good.
        """
        if self._options.delivery == "at-least-once":
            return self._open_plain()
        # The producer first: opening it settles a transaction whose commit had an unknown outcome, and only then are
        # the committed offsets, from which the consumer goes on, the right ones.
        sink = TransactionalSink.open(self._options)
        try:
            return KafkaSource.open(self._options), sink
        except BaseException:
            sink.close()
            raise

    def check(
        self, outputs: Iterable[str], message_bytes: int | None = None, keyless: str | None = None
    ) -> dict[str, int]:
        """Check topics; see ``check_topics``.

        Raises:
            BrokerUnavailable: Nothing answers.
            BrokerMisconfigured: A topic is missing, too small or compacted, or we may not see it.
        """
        return check_topics(self._options, outputs, message_bytes, keyless)

    def _open_plain(self) -> tuple[KafkaSource, PlainSink]:
        """A source, and a sink that commits through it."""
        source = KafkaSource.open(self._options)
        try:
            return source, PlainSink.open(self._options, source)
        except BaseException:
            source.close()
            raise
