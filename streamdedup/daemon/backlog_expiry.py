"""Evicts expired documents during catch-up, when a time to live counted from the insertion would be too late.

A key lives for a while after it was written. That bounds an index as long as records are processed when they are new; a
backlog of many windows, read at full speed, would be in it all at once. Where a profile promises that its records are
in the order of their times, documents that are inserted late are listed (rule 12 of ``index.contract``). They are
evicted when no partition has records left that they could be compared with. Every daemon publishes the event-time
watermarks of its partitions, and compares with the least of all. A partition that has never had a record, or gets none
any more, holds all back, and so does for a lifetime one whose times go back; then the times to live bound the index,
and the lists with it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import structlog

from streamdedup.daemon.batch_result import BatchResult
from streamdedup.daemon.event_time import EventTime
from streamdedup.daemon.partitions import PartitionOwnership
from streamdedup.daemon.publisher import Profile
from streamdedup.daemon.statistics import Statistics
from streamdedup.index.contract import Fence
from streamdedup.kafka.protocols import Source
from streamdedup.position import Partition
from streamdedup.wire import Document

#: How often watermarks are compared, and how long to evict before the next batch, in seconds.
_INTERVAL_S, _LONGEST_S = 1.0, 1.0
#: How many documents of a partition are evicted at once.
_CHUNK = 500

log = structlog.get_logger("streamdedup.loop")


class BacklogExpiry:
    """Keeps the event-time watermarks of the assigned partitions, and evicts documents that are behind all watermarks.

    Args:
        profiles: The profile of each topic.
        holdings: Fences of the assigned partitions.
        figures: Counts evictions.
        tick: Called at every step, for the watchdog.
    """

    def __init__(
        self,
        profiles: Mapping[str, Profile],
        holdings: PartitionOwnership,
        figures: Statistics,
        tick: Callable[[], None],
    ) -> None:
        self._by_topic = profiles
        self._in_order = {profile.name: profile for profile in profiles.values() if profile.in_order}
        self._ownership = holdings
        self._figures = figures
        self._tick = tick
        self._event_times: dict[Partition, EventTime] = {}
        #: Incarnation of the topic that an event time belongs to.
        self._incarnations: dict[Partition, int] = {}
        #: Profiles that have listed documents since watermarks were compared last.
        self._listed: set[str] = set()
        self._next_run = 0.0
        for name in self._in_order:
            figures.evicted(name, 0)  # a counter that does not exist yet has no rate

    def list_late(self, work: BatchResult, fences: Mapping[Partition, Fence]) -> None:
        """List the documents of a batch that belong to a backlog.

        Raises:
            StoreUnavailable: Try the batch again.
            BatchRefused: A partition belongs to another daemon; drop the batch.
            IndexLost: The index is gone.
        """
        self._drop_earlier_incarnations(fences)
        for name in self._in_order.keys() & work.documents.keys():
            profile = self._in_order[name]
            detector = profile.detector
            timed = _timed(work, name)
            self._check_order(profile, timed)
            late = [
                document
                for partition, documents in timed.items()
                if self._event_times[partition].in_order
                for document in documents
                if document.op != "delete" and detector.store.is_late(document.time_ms)
            ]
            if late:
                listed = detector.listed(late, work.outcomes[name].asked)
                detector.store.list_expiring(
                    listed, [fences[of] for of in dict.fromkeys(document.position.of for document in late)]
                )
                self._listed.add(name)

    def _drop_earlier_incarnations(self, fences: Mapping[Partition, Fence]) -> None:
        """Drop the event time of a topic that was deleted and created again: its records may have any times."""
        for partition, fence in fences.items():
            if self._incarnations.get(partition, fence.incarnation) != fence.incarnation:
                self._event_times.pop(partition, None)
            self._incarnations[partition] = fence.incarnation

    def _check_order(self, profile: Profile, timed: Mapping[Partition, Sequence[Document]]) -> None:
        """Notice partitions that break the promise of order: the watermark is set back, and nothing is listed."""
        new = timed.keys() - self._event_times.keys()
        # A partition that another daemon has read until now continues from the watermark that this daemon has set.
        stored = profile.detector.store.watermarks() if new else {}
        for partition, documents in timed.items():
            times = [document.time_ms for document in documents]
            if partition in new:
                watermark_ms = stored.get(partition, times[0])
                self._event_times[partition] = EventTime(watermark_ms, profile.slack_ms, profile.lifetime_ms)
            event_time = self._event_times[partition]
            was_in_order = event_time.in_order
            back_ms = event_time.check(times, time.monotonic())
            if back_ms and was_in_order:
                log.warning("out_of_order", partition=str(partition), milliseconds=back_ms)

    def committed(self, work: BatchResult) -> None:
        """Advance the watermarks to a batch that is committed."""
        for name in self._in_order.keys() & work.documents.keys():
            for partition, documents in _timed(work, name).items():
                event_time = self._event_times[partition]
                if event_time.advance([document.time_ms for document in documents], time.monotonic()):
                    log.info("order_restored", partition=str(partition))

    def run(self, source: Source) -> None:
        """Evict expired documents, at most once a second, while no batch is being indexed.

        Raises:
            StoreUnavailable: Try again.
            BatchRefused: A partition belongs to another daemon.
            IndexLost: The index is gone.
        """
        generation, now = source.generation(), time.monotonic()
        # In a backlog after each batch: a second of reading may be a window of record time.
        if generation is None or (now < self._next_run and not self._listed):
            return
        self._next_run = now + _INTERVAL_S
        assigned = source.assigned()
        self._event_times = {each: event_time for each, event_time in self._event_times.items() if each in assigned}
        for profile in self._in_order.values():
            own = [partition for partition in sorted(self._event_times) if self._by_topic[partition.topic] is profile]
            fences = self._ownership.held(own, generation)
            if fences and self._evict_from(profile, fences, source):
                self._next_run = now  # there is more: after the next batch

    def _evict_from(self, profile: Profile, fences: Mapping[Partition, Fence], source: Source) -> bool:
        """Publish watermarks, evict some documents of a profile; tell whether there may be more."""
        store, is_backlog = profile.detector.store, profile.name in self._listed
        if not is_backlog and not store.watermarks():
            return False
        own = {partition: self._event_times[partition].watermark_ms for partition in fences}
        watermarks = store.set_watermarks(own, list(fences.values()), extend=is_backlog)
        self._listed.discard(profile.name)
        partitions = self._partitions(profile, source)
        if not watermarks.keys() >= partitions:
            return False
        least_ms = min(watermarks[partition] for partition in partitions)
        return self._evict(profile, fences, least_ms, time.monotonic() + _LONGEST_S)

    def _partitions(self, profile: Profile, source: Source) -> AbstractSet[Partition]:
        """All partitions of a profile's topics; of a topic without metadata a partition that has no watermark."""
        topics = {topic for topic, of in self._by_topic.items() if of is profile}
        known = {partition for partition in source.partitions() if partition.topic in topics}
        return known | {Partition(topic, -1) for topic in topics - {partition.topic for partition in known}}

    def _evict(self, profile: Profile, fences: Mapping[Partition, Fence], watermark_ms: int, deadline: float) -> bool:
        """Evict expired documents of each partition; tell whether the deadline came before the end."""
        rights = list(fences.values())
        while rights:
            chunks = profile.detector.store.expired([fence.log for fence in rights], watermark_ms, _CHUNK)
            due = [(fence, listed) for fence, listed in zip(rights, chunks, strict=True) if listed]
            for fence, listed in due:
                self._tick()
                self._figures.evicted(profile.name, profile.detector.evict(listed, fence))
            rights = [fence for fence, _ in due]
            if rights and time.monotonic() > deadline:
                return True
        return False


def _timed(work: BatchResult, name: str) -> dict[Partition, list[Document]]:
    """Return the documents of a profile that have a record time, in order of offsets, by partition."""
    timed: dict[Partition, list[Document]] = {}
    for document in work.documents[name]:
        if document.position not in work.without_time:
            timed.setdefault(document.position.of, []).append(document)
    return timed
