"""Opens both ends of a Kafka transport."""

from collections.abc import Callable
from typing import Any

from streamdedup.kafka.consumer import KafkaSource
from streamdedup.kafka.errors import cap_client_logging
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.producer import PlainSink, TransactionalSink


class KafkaTransport:
    """Sources and sinks over Kafka; see ``kafka.protocols``.

    Args:
        options: How to connect.
        wrap_source: Put around each source, for those who want to see what is asked of it.
        wrap_producer: The same for each producer of the Kafka client.
    """

    def __init__(
        self,
        options: KafkaOptions,
        wrap_source: Callable[[Any], Any] = lambda source: source,
        wrap_producer: Callable[[Any], Any] = lambda producer: producer,
    ) -> None:
        cap_client_logging()
        self._options = options
        self._wrap_source = wrap_source
        self._wrap_producer = wrap_producer

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
        sink = TransactionalSink.open(self._options, self._wrap_producer)
        try:
            return self._wrap_source(KafkaSource.open(self._options)), sink
        except BaseException:
            sink.close()
            raise

    def _open_plain(self) -> tuple[KafkaSource, PlainSink]:
        """A source, and a sink that commits through it."""
        source = self._wrap_source(KafkaSource.open(self._options))
        try:
            return source, PlainSink.open(self._options, source, self._wrap_producer)
        except BaseException:
            source.close()
            raise
