"""Bounded reads of topics, for a rebuild (``KafkaHistory``) and for commands (``KafkaSpan``)."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from kafka.structs import TopicPartition

from streamdedup.kafka.admin import latest_offsets, may_be_compacted
from streamdedup.kafka.offsets import first_offsets
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch, ReadProgress, Record, Since
from streamdedup.kafka.reader import TopicReader
from streamdedup.position import Partition

#: Offsets at the end of a partition among which its last record is searched; the last ones may have no record.
LOOK_BACK = 100
#: Longest wait for an open transaction, in seconds: default ``transaction.max.timeout.ms``, and a minute to abort it.
OPEN_TRANSACTION_S = 960.0
#: The search for the first record with a time reads at most so many records of a partition.
MAX_SEARCHED = 1_000


class KafkaSpan(TopicReader):
    """The records of topics from start offsets to end offsets; implements ``protocols.Span``.

    Args:
        since_ms, starts, ends: As for ``History.open``, but without ``ends`` the span ends behind the records that are
            committed at construction; ``AwaitingSpan`` also waits for open transactions.
        newest_count: Read only so many offsets, the newest ones, with the same percentage of each partition.
    """

    def __init__(
        self,
        options: KafkaOptions,
        since_ms: Since,
        ends: Mapping[Partition, int] | None,
        newest_count: int | None = None,
        starts: Mapping[Partition, int] | None = None,
    ) -> None:
        super().__init__(options)
        with self._closed_on_error("find a time in the topics"):
            since = since_ms if isinstance(since_ms, Mapping) else dict.fromkeys(self.beginnings, since_ms)
            self._starts = self._starts_by_time(since) if starts is None else self.existing_offsets(starts)
        if ends is not None:
            # A partition that `ends` lacks ends at 0: it is not read.
            self.ends = {partition: min(end, ends.get(partition, 0)) for partition, end in self.ends.items()}
        if newest_count is not None:
            self._starts = self._newest_starts(newest_count)
        self.start_at(self._starts)
        self.total_count = self._count_to(self.ends)

    def _starts_by_time(self, since: Mapping[Partition, int | None]) -> dict[Partition, int]:
        """Return where to start each partition: as ``first_offsets``, without a time at the oldest record."""
        since_all = {partition: since.get(partition) for partition in self.beginnings}
        times_ms = {partition: time_ms for partition, time_ms in since_all.items() if time_ms is not None}
        if not times_ms:
            return self.beginnings
        timeout_ms = round(self._options.fetch_timeout_s * 1000)
        return self.beginnings | first_offsets(self._consumer, times_ms, self.ends, timeout_ms)

    def _newest_starts(self, count: int) -> dict[Partition, int]:
        lengths = {partition: max(0, self.ends[partition] - start) for partition, start in self._starts.items()}
        total = max(count, sum(lengths.values()))  # with fewer offsets than `count`, all are read
        return {partition: self.ends[partition] - length * count // total for partition, length in lengths.items()}

    def _count_to(self, offsets: Mapping[Partition, int]) -> int:
        return sum(max(0, offset - self._starts[partition]) for partition, offset in offsets.items())

    def done_count(self) -> int:
        positions = self.positions()
        return self._count_to({partition: min(positions[partition], end) for partition, end in self.ends.items()})


class AwaitingSpan(KafkaSpan):
    """The records of topics from times to the ends, also those in transactions that are open at construction.

    A reader of committed records stops at an open transaction; the span waits for its end, until Kafka aborts it.
    """

    def __init__(self, options: KafkaOptions, since_ms: Since) -> None:
        super().__init__(options, since_ms, ends=None)
        with self._closed_on_error("find the ends of the topics"):
            # By another client: this reader knows the ends of committed records only.
            self.ends = latest_offsets(options, self.ends)
        self.total_count = self._count_to(self.ends)

    def batches(self) -> Iterator[Batch]:
        reason = f"a transaction has been open for {OPEN_TRANSACTION_S:g} s; `kafka-transactions.sh abort` can end it"
        return self._read(OPEN_TRANSACTION_S, reason, yields_empty_batches=True)


class _ProgressReader(TopicReader):
    """Finds how far a group has read, for ``History.progress``; ``offsets`` are the next offsets to read.

    1. A partition with unread offsets: the time of its first unread record, searched from the next offset on.
    2. Any other partition, and each one in which step 1 has met no record: the time of the last record, searched among
       the last ``LOOK_BACK`` offsets.

    A time in the future is not credible: it counts as now, and step 1 goes on with the next record.
    """

    def __init__(
        self, options: KafkaOptions, offsets: Mapping[Partition, int], now_ms: int, tick: Callable[[], None]
    ) -> None:
        super().__init__(options)
        self._tick = tick
        self._offsets = self.existing_offsets(offsets)
        self._now_ms = now_ms
        self._times_ms: dict[Partition, int] = {}  # absent where no search has found a record with a time
        self._searched: Counter[Partition] = Counter()  # records that step 1 has read

    def poll(self, timeout_s: float) -> Batch:
        self._tick()
        return super().poll(timeout_s)

    def progress(self) -> dict[Partition, ReadProgress]:
        nonempty = {partition for partition, beginning in self.beginnings.items() if beginning < self.ends[partition]}
        at_end = {partition for partition in nonempty if self._offsets[partition] >= self.ends[partition]}
        unread = nonempty - at_end
        # 1.
        self._search_next({partition: self._offsets[partition] for partition in unread})
        # 2. The unread offsets of a partition may all be markers of transactions, or records that were compacted away.
        at_end |= {partition for partition in unread if not self._searched[partition]}
        starts = {partition: max(self.beginnings[partition], self.ends[partition] - LOOK_BACK) for partition in at_end}
        self._search_last(starts)
        return {partition: ReadProgress(partition in at_end, self._times_ms.get(partition)) for partition in nonempty}

    def _search_next(self, starts: Mapping[Partition, int]) -> None:
        """Store the time of each partition's first record from ``starts`` on that has a credible time."""
        for batch in self._batches_from(starts):
            for record in batch.records:
                if not self._has_credible_time(record.position.topic_partition):
                    self._store_time(record)
            self._searched.update(position.topic_partition for position in batch.positions())
            for partition in batch.next_offsets:
                if self._has_credible_time(partition) or self._searched[partition] >= MAX_SEARCHED:
                    self._consumer.seek(TopicPartition(*partition), self.ends[partition])  # ends the search

    def _search_last(self, starts: Mapping[Partition, int]) -> None:
        """Store the time of each partition's last record with a time, from ``starts`` on."""
        for batch in self._batches_from(starts):
            for record in batch.records:
                self._store_time(record)

    def _batches_from(self, starts: Mapping[Partition, int]) -> Iterator[Batch]:
        self.start_at(self.ends | dict(starts))  # other partitions start at their ends: nothing to read
        return self.batches()

    def _store_time(self, record: Record) -> None:
        if record.timestamp_ms >= 0:
            self._times_ms[record.position.topic_partition] = min(record.timestamp_ms, self._now_ms)

    def _has_credible_time(self, partition: Partition) -> bool:
        """Return whether the stored time is before now: a time in the future is stored as now."""
        time_ms = self._times_ms.get(partition)
        return time_ms is not None and time_ms < self._now_ms


class KafkaHistory:
    """Implements ``protocols.History``; its methods name the topics, in place of those in the options."""

    def __init__(self, options: KafkaOptions) -> None:
        self._options = options

    def progress(
        self, topics: Sequence[str], offsets: Mapping[Partition, int], now_ms: int, tick: Callable[[], None]
    ) -> dict[Partition, ReadProgress]:
        with _ProgressReader(replace(self._options, topics=tuple(topics)), offsets, now_ms, tick) as reader:
            return reader.progress()

    def keeps_all(self, starts: Mapping[Partition, int]) -> bool:
        options = replace(self._options, topics=tuple({partition.topic for partition in starts}))
        if may_be_compacted(options):
            return False
        with TopicReader(options) as reader:
            return all(reader.beginnings[partition] <= start for partition, start in starts.items())

    def open(
        self,
        topics: Sequence[str],
        since_ms: Since,
        ends: Mapping[Partition, int] | None,
        starts: Mapping[Partition, int] | None = None,
    ) -> KafkaSpan:
        options = replace(self._options, topics=tuple(topics))
        if ends is None:  # then `starts` is None, too
            return AwaitingSpan(options, since_ms)
        return KafkaSpan(options, since_ms, ends, starts=starts)
