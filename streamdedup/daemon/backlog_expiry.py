"""Evicts expired documents during catch-up, when a time to live counted from the insertion would be too late.

A key expires one lifetime after the write. This bounds the index while records are processed soon after their times. A
backlog of many windows, read at full speed, would be in the index all at once.

Where a profile promises that records are in the order of their times, documents that are inserted late are listed
(rule 12 of ``index.contract``). A listed document is evicted when no partition has records left that could be compared
with the document: every daemon publishes the event-time watermarks of its partitions, and the least of all watermarks
counts. A partition without records holds all others back, and a partition whose times go back holds all others back for
one lifetime. Meanwhile only the times to live bound the index and the lists.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import structlog

from streamdedup.daemon.batch import BatchResult, DecodedBatch, Pipeline
from streamdedup.daemon.metrics import Metrics
from streamdedup.daemon.partitions import PartitionOwnership
from streamdedup.index.values import Fence
from streamdedup.kafka.protocols import Source
from streamdedup.position import Partition
from streamdedup.wire import Document

#: Interval between two comparisons of watermarks, in seconds.
_INTERVAL_S = 1.0
#: Longest time of evictions before the next batch, in seconds.
_LONGEST_S = 1.0
#: Number of documents of a partition that are evicted at once.
_CHUNK = 500

log = structlog.get_logger("streamdedup.loop")


class EventTime:
    """Event-time watermark of one partition.

    Records are in order while none is older than the latest before it by more than the slack. An older record sets the
    watermark back to the time of this record and holds the watermark there, because later records may be as old. The
    hold ends when the partition was in order for a lifetime: either its record times exceed the latest of all by a
    lifetime, or a lifetime has passed on the clock, by which time everything in the index has expired.

    Args:
        watermark_ms: The watermark, milliseconds since the epoch.
        slack_ms: Allowed out-of-orderness, in milliseconds.
        lifetime_ms: Time to live of index entries, in milliseconds; None for ever.

    Attributes:
        watermark_ms: Time below which no record is left, except for the slack.
    """

    def __init__(self, watermark_ms: int, slack_ms: int, lifetime_ms: int | None) -> None:
        self.watermark_ms = watermark_ms
        self._slack_ms = slack_ms
        self._lifetime_ms = lifetime_ms
        #: Latest record time since times last went back.
        self._latest_ms = watermark_ms
        #: Latest record time of all.
        self._highest_ms = watermark_ms
        #: Record time in milliseconds, and monotonic time in seconds, at which the partition is in order again: the
        #: earlier counts. None for a partition in order.
        self._order_at: tuple[float, float] | None = None

    @property
    def in_order(self) -> bool:
        """Whether the watermark advances."""
        return self._order_at is None

    def check(self, times: Sequence[int], now_s: float) -> int:
        """Check the record times of a batch that is not committed yet; the check of a batch may be repeated.

        Args:
            times: Record times in the order of offsets, milliseconds since the epoch, at least one.
            now_s: Seconds of the monotonic clock.

        Returns:
            How far times went back beyond the slack, in milliseconds; 0 when they are in order.
        """
        latest, back_ms = self._latest_ms, 0
        for time_ms in times:
            if time_ms < latest - self._slack_ms:
                back_ms = max(back_ms, latest - time_ms)
                latest = time_ms
            latest = max(latest, time_ms)
        if back_ms:
            self.watermark_ms = min(self.watermark_ms, *times)
            lifetime_ms = float("inf") if self._lifetime_ms is None else self._lifetime_ms
            self._order_at = max(self._highest_ms, *times) + lifetime_ms, now_s + lifetime_ms / 1000
        return back_ms

    def advance(self, times: Sequence[int], now_s: float) -> bool:
        """Advance to a committed batch.

        The watermark is the earliest time of the batch, and never the present, even when no record is left to read: the
        next record may be as old as the last.

        Args:
            times: Record times as they were checked.
            now_s: Seconds of the monotonic clock.

        Returns:
            Whether the partition was out of order until now, and is in order from now on.
        """
        for time_ms in times:
            self._latest_ms = time_ms if time_ms < self._latest_ms - self._slack_ms else max(self._latest_ms, time_ms)
        self._highest_ms = max(self._highest_ms, *times)
        was_in_order = self.in_order
        if self._order_at is not None and (self._latest_ms >= self._order_at[0] or now_s >= self._order_at[1]):
            self._order_at = None
        if self.in_order:
            self.watermark_ms = max(self.watermark_ms, min(times))
        return self.in_order and not was_in_order


class BacklogExpiry:
    """Keeps the event-time watermarks of the assigned partitions, and evicts documents behind all watermarks.

    Args:
        pipelines: Pipeline of each topic.
        ownership: Fences of the assigned partitions.
        metrics: Metrics to update, with the number of evictions.
        tick: Called at every step, for the watchdog.
    """

    def __init__(
        self,
        pipelines: Mapping[str, Pipeline],
        ownership: PartitionOwnership,
        metrics: Metrics,
        tick: Callable[[], None],
    ) -> None:
        self._by_topic = pipelines
        self._in_order = {pipeline.name: pipeline for pipeline in pipelines.values() if pipeline.in_order}
        self._ownership = ownership
        self._metrics = metrics
        self._tick = tick
        self._event_times: dict[Partition, EventTime] = {}
        #: Incarnation of the topic that an event time belongs to.
        self._incarnations: dict[Partition, int] = {}
        #: Profiles that have listed documents since the last comparison of watermarks.
        self._listed: set[str] = set()
        self._next_run = 0.0

    def list_late(self, result: BatchResult, fences: Mapping[Partition, Fence]) -> None:
        """List the documents of a batch that belong to a backlog.

        Raises:
            StoreUnavailable: Try the batch again.
            BatchRefused: Another daemon owns a partition; drop the batch.
            IndexLost: The index is gone.
        """
        self._drop_earlier_incarnations(fences)
        for name in self._in_order.keys() & result.decoded.documents.keys():
            pipeline = self._in_order[name]
            timed = _with_time(result.decoded, name)
            self._check_order(pipeline, timed)
            late = [
                document
                for partition, documents in timed.items()
                if self._event_times[partition].in_order
                for document in documents
                if document.op != "delete" and pipeline.index.is_late(document.time_ms)
            ]
            if late:
                listed = pipeline.detector.listed(late, result.detected[name].claims)
                partitions = dict.fromkeys(document.position.of for document in late)
                pipeline.index.list_expiring(listed, [fences[partition] for partition in partitions])
                self._listed.add(name)

    def _drop_earlier_incarnations(self, fences: Mapping[Partition, Fence]) -> None:
        """Drop the event time of a topic that was created again, because its records may have any times."""
        for partition, fence in fences.items():
            if self._incarnations.get(partition, fence.incarnation) != fence.incarnation:
                self._event_times.pop(partition, None)
            self._incarnations[partition] = fence.incarnation

    def _check_order(self, pipeline: Pipeline, timed: Mapping[Partition, Sequence[Document]]) -> None:
        """Detect partitions that are out of order: their watermarks are set back, and nothing is listed."""
        new = timed.keys() - self._event_times.keys()
        # A partition that another daemon has read until now continues from the watermark that this daemon has set.
        stored = pipeline.index.watermarks() if new else {}
        for partition, documents in timed.items():
            times = [document.time_ms for document in documents]
            if partition in new:
                watermark_ms = stored.get(partition, times[0])
                self._event_times[partition] = EventTime(watermark_ms, pipeline.slack_ms, pipeline.lifetime_ms)
            event_time = self._event_times[partition]
            was_in_order = event_time.in_order
            back_ms = event_time.check(times, time.monotonic())
            if back_ms and was_in_order:
                log.warning("out_of_order", partition=str(partition), milliseconds=back_ms)

    def committed(self, result: BatchResult) -> None:
        """Advance the watermarks to a committed batch."""
        for name in self._in_order.keys() & result.decoded.documents.keys():
            for partition, documents in _with_time(result.decoded, name).items():
                event_time = self._event_times[partition]
                if event_time.advance([document.time_ms for document in documents], time.monotonic()):
                    log.info("order_restored", partition=str(partition))

    def run(self, source: Source) -> None:
        """Evict expired documents, at most once a second, between two batches.

        Raises:
            StoreUnavailable: Try again.
            BatchRefused: Another daemon owns a partition.
            IndexLost: The index is gone.
        """
        generation, now = source.generation(), time.monotonic()
        # In a backlog after each batch: a second of reading may be a window of record time.
        if generation is None or (now < self._next_run and not self._listed):
            return
        self._next_run = now + _INTERVAL_S
        assigned = source.assigned()
        self._event_times = {each: event_time for each, event_time in self._event_times.items() if each in assigned}
        for pipeline in self._in_order.values():
            own = [partition for partition in sorted(self._event_times) if self._by_topic[partition.topic] is pipeline]
            fences = self._ownership.held(own, generation)
            if fences and self._evict_from(pipeline, fences, source):
                self._next_run = now  # continue after the next batch

    def _evict_from(self, pipeline: Pipeline, fences: Mapping[Partition, Fence], source: Source) -> bool:
        """Publish watermarks, and evict documents of a profile; tell whether there may be more."""
        index, is_backlog = pipeline.index, pipeline.name in self._listed
        if not is_backlog and not index.watermarks():
            return False
        own = {partition: self._event_times[partition].watermark_ms for partition in fences}
        watermarks = index.set_watermarks(own, list(fences.values()), extend=is_backlog)
        self._listed.discard(pipeline.name)
        partitions = self._partitions(pipeline, source)
        if not watermarks.keys() >= partitions:
            return False
        least_ms = min(watermarks[partition] for partition in partitions)
        return self._evict(pipeline, fences, least_ms, time.monotonic() + _LONGEST_S)

    def _partitions(self, pipeline: Pipeline, source: Source) -> AbstractSet[Partition]:
        """All partitions of a profile's topics; for a topic without metadata a partition that has no watermark."""
        topics = {topic for topic, of in self._by_topic.items() if of is pipeline}
        known = {partition for partition in source.partitions() if partition.topic in topics}
        return known | {Partition(topic, -1) for topic in topics - {partition.topic for partition in known}}

    def _evict(self, pipeline: Pipeline, fences: Mapping[Partition, Fence], watermark_ms: int, deadline: float) -> bool:
        """Evict expired documents of each partition; tell whether the deadline came before the end."""
        left = list(fences.values())
        while left:
            chunks = pipeline.index.expired([fence.log for fence in left], watermark_ms, _CHUNK)
            due = [(fence, listed) for fence, listed in zip(left, chunks, strict=True) if listed]
            for fence, listed in due:
                self._tick()
                count = pipeline.detector.evict(listed, fence)
                self._metrics.documents_outdated.labels(pipeline.name).inc(count)
            left = [fence for fence, _ in due]
            if left and time.monotonic() > deadline:
                return True
        return False


def _with_time(decoded: DecodedBatch, name: str) -> dict[Partition, list[Document]]:
    """Return the documents of a profile that have a record time, in order of offsets, by partition."""
    timed: dict[Partition, list[Document]] = {}
    for document in decoded.documents[name]:
        if document.position not in decoded.without_time:
            timed.setdefault(document.position.of, []).append(document)
    return timed
