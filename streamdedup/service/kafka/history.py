"""Reading topics from a time on, up to the ends of a moment or to given offsets."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafka.structs import TopicPartition

from streamdedup.position import Partition
from streamdedup.service.kafka.failures import CLIENT_ERRORS
from streamdedup.service.kafka.options import KafkaOptions
from streamdedup.service.kafka.span import SpanReader


class KafkaSpan(SpanReader):
    """What stands in topics; see ``service.transport.Span``.

    Args:
        options: Where Kafka is; ``topics`` are those to read.
        since_ms: Record time to begin at, in milliseconds since the epoch; None for the oldest record.
        ends: Where to stop; None for all that is there now.

    Raises:
        BrokerUnavailable: Nothing answers.
        FatalError: The broker refuses us for good, or a topic does not exist.
    """

    def __init__(self, options: KafkaOptions, since_ms: int | None, ends: Mapping[Partition, int] | None) -> None:
        super().__init__(options)
        try:
            starts = self._starts(since_ms)
        except BaseException:
            self.close()
            raise
        if ends is not None:
            self.ends = {each: min(end, ends.get(each, 0)) for each, end in self.ends.items()}
        self._starts_of = starts
        self.start_at(starts)
        self.total_count = self._between(self.ends)

    def _starts(self, since_ms: int | None) -> dict[Partition, int]:
        """Return for each partition the first offset at or behind the time; its end when there is none."""
        if since_ms is None:
            return dict(self.beginnings)
        wanted = {TopicPartition(*partition): since_ms for partition in self.beginnings}
        try:
            found = self._consumer.offsets_for_times(wanted, timeout_ms=round(self._options.fetch_timeout_s * 1000))
        except CLIENT_ERRORS as error:
            raise self._failure(error, "find a time in the topics") from error
        places = {Partition(*partition): place for partition, place in found.items() if place is not None}
        return {each: places[each].offset if each in places else self.ends[each] for each in self.beginnings}

    def _between(self, offsets: Mapping[Partition, int]) -> int:
        return sum(max(0, offset - self._starts_of[each]) for each, offset in offsets.items())

    def done_count(self) -> int:
        """Return how many offsets are read."""
        positions = self._positions()
        return self._between({each: min(at, self.ends[each]) for each, at in positions.items()})


class KafkaHistory:
    """Reads topics; see ``service.transport.History``.

    Args:
        options: Where Kafka is; topics, group, delivery and transactional id are not used.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options

    def open(self, topics: Sequence[str], since_ms: int | None, ends: Mapping[Partition, int] | None) -> KafkaSpan:
        """Read topics; see ``service.transport.History.open``."""
        return KafkaSpan(replace(self._options, topics=tuple(topics)), since_ms, ends)
