"""Reading topics from times on, up to the ends of a moment or to given offsets, and how far a group has read them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from kafka.structs import TopicPartition

from streamdedup.kafka.errors import CLIENT_ERRORS
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import ReadProgress
from streamdedup.kafka.span import SpanReader
from streamdedup.position import Partition

#: Offsets before the end of a partition among which its last record is looked for; markers of transactions and records
#: that were compacted away take up some.
LOOK_BACK = 100
#: Records at the committed offset of a partition among which one with a time is looked for.
MAX_LOOKED_AT = 1_000


class KafkaSpan(SpanReader):
    """What stands in topics; see ``kafka.protocols.Span``.

    Args:
        options: Where Kafka is; ``topics`` are those to read.
        since_ms: Record time to begin at, in milliseconds since the epoch, for all or by partition; None, or not named,
            for the oldest record.
        ends: Where to stop; None for all that is there now.

    Raises:
        BrokerUnavailable: Nothing answers.
        FatalError: The broker refuses us for good, or a topic does not exist.
    """

    def __init__(
        self,
        options: KafkaOptions,
        since_ms: Mapping[Partition, int | None] | int | None,
        ends: Mapping[Partition, int] | None,
    ) -> None:
        super().__init__(options)
        try:
            since = since_ms if isinstance(since_ms, Mapping) else dict.fromkeys(self.beginnings, since_ms)
            starts = self._starts(since)
        except BaseException:
            self.close()
            raise
        if ends is not None:
            self.ends = {each: min(end, ends.get(each, 0)) for each, end in self.ends.items()}
        self._starts_of = starts
        self.start_at(starts)
        self.total_count = self._between(self.ends)

    def _starts(self, since: Mapping[Partition, int | None]) -> dict[Partition, int]:
        """Return for each partition the first offset at or behind its time; its end when there is none."""
        times = {each: since.get(each) for each in self.beginnings}
        wanted = {TopicPartition(*each): time_ms for each, time_ms in times.items() if time_ms is not None}
        if not wanted:
            return dict(self.beginnings)
        try:
            found = self._consumer.offsets_for_times(wanted, timeout_ms=round(self._options.fetch_timeout_s * 1000))
        except CLIENT_ERRORS as error:
            raise self._failure(error, "find a time in the topics") from error
        places = {Partition(*partition): place for partition, place in found.items() if place is not None}
        return {
            each: beginning if times[each] is None else places[each].offset if each in places else self.ends[each]
            for each, beginning in self.beginnings.items()
        }

    def _between(self, offsets: Mapping[Partition, int]) -> int:
        return sum(max(0, offset - self._starts_of[each]) for each, offset in offsets.items())

    def done_count(self) -> int:
        """Return how many offsets are read."""
        positions = self._positions()
        return self._between({each: min(at, self.ends[each]) for each, at in positions.items()})


class ProgressReader(SpanReader):
    """Finds how far a group has read, by the times of records; see ``kafka.protocols.History.progress``.

    Args:
        options: Where Kafka is; ``topics`` are those to look at.
        offsets: Next offset to read of each partition; of one that is not named that is the oldest record.
        now_ms: The present, in milliseconds since the epoch.

    Raises:
        BrokerUnavailable: Nothing answers.
        FatalError: The broker refuses us for good, or a topic does not exist.
    """

    def __init__(self, options: KafkaOptions, offsets: Mapping[Partition, int], now_ms: int) -> None:
        super().__init__(options)
        self._offsets = {each: max(first, offsets.get(each, first)) for each, first in self.beginnings.items()}
        self._now_ms = now_ms
        self._times: dict[Partition, int] = {}
        self._looked_at: Counter[Partition] = Counter()

    def progress(self) -> dict[Partition, ReadProgress]:
        """Return the progress of each partition that holds records.

        Raises:
            BrokerUnavailable: Kafka did not answer in time.
            FatalError: The broker refuses us for good.
        """
        held = {each for each, beginning in self.beginnings.items() if beginning < self.ends[each]}
        read = {each for each in held if self._offsets[each] >= self.ends[each]}
        self._look({each: self._offsets[each] for each in held - read}, of_next=True)
        # Only markers of transactions, or records compacted away, are left of some.
        read |= {each for each in held - read if not self._looked_at[each]}
        self._look({each: max(self.beginnings[each], self.ends[each] - LOOK_BACK) for each in read}, of_next=False)
        return {each: ReadProgress(each in read, self._times.get(each)) for each in held}

    def _look(self, starts: Mapping[Partition, int], *, of_next: bool) -> None:
        """Note the time of the first record from ``starts`` on, or of the last one.

        Args:
            starts: Where to begin; other partitions are not read.
            of_next: Of each partition the first record with a time counts, else the last one.
        """
        self.start_at(self.ends | dict(starts))
        for batch in self.batches():
            self._looked_at.update(position.of for position in batch.positions())
            for record in batch.records:
                partition, time_ms = record.position.of, record.timestamp_ms
                if time_ms >= 0 and not (of_next and self._is_found(partition)):
                    self._times[partition] = min(time_ms, self._now_ms)
            for partition in {position.of for position in batch.positions()} if of_next else ():
                if self._is_found(partition) or self._looked_at[partition] >= MAX_LOOKED_AT:
                    self._consumer.seek(TopicPartition(*partition), self.ends[partition])

    def _is_found(self, partition: Partition) -> bool:
        """Whether a time is known; behind one in the future, which counts as the present, a credible one may follow."""
        return self._times.get(partition, self._now_ms) < self._now_ms


class KafkaHistory:
    """Reads topics; see ``kafka.protocols.History``.

    Args:
        options: Where Kafka is; topics, group, delivery and transactional id are not used.
    """

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options

    def progress(
        self, topics: Sequence[str], offsets: Mapping[Partition, int], now_ms: int
    ) -> dict[Partition, ReadProgress]:
        """Return how far a group has read; see ``kafka.protocols.History.progress``."""
        with ProgressReader(replace(self._options, topics=tuple(topics)), offsets, now_ms) as reader:
            return reader.progress()

    def open(
        self,
        topics: Sequence[str],
        since_ms: Mapping[Partition, int | None] | int | None,
        ends: Mapping[Partition, int] | None,
    ) -> KafkaSpan:
        """Read topics; see ``kafka.protocols.History.open``."""
        return KafkaSpan(replace(self._options, topics=tuple(topics)), since_ms, ends)
