"""The Kafka clients of the loop: opens, replaces and closes them. Called by ``loop`` only.

Source and sink are replaced together: after a failed transaction, a new sink resolves the transaction, and a new source
reads from the offsets that are committed then.
"""

from collections.abc import Callable

from streamdedup.daemon.loop_log import log
from streamdedup.errors import BrokerUnavailable, ProducerFenced
from streamdedup.kafka.protocols import Batch, Sink, Source, Transport

#: Two fencings of the producer within this time, in seconds, mean that two daemons share its transactional id.
_FENCED_TWICE_S = 60.0


class KafkaClients:
    """The source and the sink of the loop; after ``close``, ``open`` connects new ones."""

    def __init__(self, transport: Transport, clock: Callable[[], float]) -> None:
        self.source: Source | None = None
        self._missing_topics: frozenset[str] = frozenset()
        self._sink: Sink | None = None
        self._transport = transport
        self._clock = clock
        #: Time of the last fencing. A single fencing is no conflict: the broker also fences after a timeout.
        self._fenced_at_s: float | None = None

    def open(self) -> tuple[Source, Sink]:
        if self.source is None or self._sink is None:
            self.source, self._sink = self._transport.open()
            log.info("connected")
        return self.source, self._sink

    def missing_topics(self) -> frozenset[str]:
        """Return the missing input topics as the open source, or else the last one, knows them; from any thread."""
        source = self.source
        return self._missing_topics if source is None else source.missing_topics()

    def rewind(self, batches: list[Batch]) -> None:
        """Rewind the source to these batches, which no sink has begun to publish; the last rewind decides."""
        if self.source is not None:
            for batch in batches:
                self.source.rewind(batch)

    def confirm_membership(self) -> None:
        """Raise if another process holds the static membership: new clients here would evict that process.

        Without an answer from Kafka nothing is raised, because the loop has to open new clients in any case.
        """
        if self.source is not None:
            try:
                self.source.confirm()
            except BrokerUnavailable as error:
                log.info("place_unconfirmed", reason=str(error))

    def count_fencing(self, error: ProducerFenced) -> None:
        """Raise ``error`` if it is the second takeover of the transactional id in ``_FENCED_TWICE_S``."""
        now_s = self._clock()
        if self._fenced_at_s is not None and now_s - self._fenced_at_s < _FENCED_TWICE_S:
            raise error
        self._fenced_at_s = now_s

    def close(self) -> None:
        source, sink = self.source, self._sink
        if source is not None:
            self._missing_topics = source.missing_topics()
        self.source = self._sink = None
        if sink is not None:
            sink.close()  # first: an open transaction must end before the membership
        if source is not None:
            source.close()
