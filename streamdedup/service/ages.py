"""Takes documents out of the indexes whose time is over, where times to live come too late: in a backlog.

A key lives for a while after it was written. That bounds an index as long as records are worked on when they are new;
a backlog of many windows, read at full speed, would be in it all at once. Where a profile promises that its records
come in the order of their times, what is placed late is listed (rule 12 of ``store.base``), and goes when no partition
has records left that it could be compared with. Every daemon notes how far in record time its partitions have come, and
looks for the slowest of all. One that has never had a record holds all back, and so does one that nothing comes to any
more, or whose times go back; then the times to live bound the index.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet

import structlog

from streamdedup.messages import Document
from streamdedup.position import Partition
from streamdedup.service.figures import Figures
from streamdedup.service.holdings import Holdings
from streamdedup.service.outbox import Profile
from streamdedup.service.transport import Source
from streamdedup.service.work import Work
from streamdedup.store.base import Fence

#: How often to look, and how long to take documents out before the next batch, in seconds.
_LOOK_S, _LONGEST_S = 1.0, 1.0
#: How many documents of a partition are taken out at once.
_PORTION = 500

log = structlog.get_logger("streamdedup.loop")


class Ages:
    """Knows how far in record time our partitions have come, and takes out what is too old for all of them.

    Args:
        profiles: The profile of each topic.
        holdings: The right to write for partitions.
        figures: Counts what is taken out.
        tick: Called at every step, for the watchdog.
    """

    def __init__(
        self, profiles: Mapping[str, Profile], holdings: Holdings, figures: Figures, tick: Callable[[], None]
    ) -> None:
        self._by_topic = profiles
        self._in_order = {profile.name: profile for profile in profiles.values() if profile.in_order}
        self._holdings = holdings
        self._figures = figures
        self._tick = tick
        self._come_to: dict[Partition, int] = {}
        self._out_of_order: set[Partition] = set()
        #: Profiles of which something was listed since the last look.
        self._listed: set[str] = set()
        self._next_look = 0.0
        for name in self._in_order:
            figures.taken_out(name, 0)  # of a figure that is not there there is no rate

    def enlist(self, work: Work, fences: Mapping[Partition, Fence]) -> None:
        """List the documents of a batch that belong to a backlog.

        Raises:
            StoreUnavailable: Try the batch again.
            BatchRefused: A partition is no longer ours; drop the batch.
            IndexLost: The index is gone.
        """
        for name in self._in_order.keys() & work.documents.keys():
            profile = self._in_order[name]
            detector = profile.detector
            with_time = [one for one in work.documents[name] if one.position not in work.without_time]
            self._learn_times(profile, {document.position.of for document in with_time})
            self._look_at_order(with_time, profile.slack_ms)
            late = [
                document
                for document in with_time
                if document.op != "delete"
                and document.position.of not in self._out_of_order
                and detector.store.is_late(document.time_ms)
            ]
            if late:
                listed = detector.listed(late, work.outcomes[name].detections)
                detector.store.enlist(listed, [fences[of] for of in {document.position.of for document in late}])
                self._listed.add(name)

    def _learn_times(self, profile: Profile, partitions: AbstractSet[Partition]) -> None:
        """Take up what is noted of partitions that were others' until now."""
        if not partitions <= self._come_to.keys():
            self._come_to = profile.detector.store.times() | self._come_to

    def _look_at_order(self, documents: Sequence[Document], slack_ms: int) -> None:
        """Notice partitions that break the promise: nothing of them is listed any more, and their times stand still."""
        latest: dict[Partition, int] = {}
        for document in documents:
            of, time_ms = document.position.of, document.time_ms
            latest_ms = latest.get(of, self._come_to.get(of, time_ms))
            if time_ms < latest_ms - slack_ms and of not in self._out_of_order:
                self._out_of_order.add(of)
                log.warning("out_of_order", partition=str(of), milliseconds=latest_ms - time_ms)
            latest[of] = max(latest_ms, time_ms)

    def committed(self, work: Work) -> None:
        """Take note of the times of a batch that is committed.

        A partition has come to the earliest time of a batch. Never to the present, also if nothing is left to read:
        what comes next may be as old as what came last.
        """
        earliest: dict[Partition, int] = {}
        for name in self._in_order.keys() & work.documents.keys():
            for document in work.documents[name]:
                of, time_ms = document.position.of, document.time_ms
                if document.position not in work.without_time and of not in self._out_of_order:
                    earliest[of] = min(time_ms, earliest.get(of, time_ms))
        for partition, time_ms in earliest.items():
            self._come_to[partition] = max(time_ms, self._come_to.get(partition, time_ms))

    def look(self, source: Source) -> None:
        """Take out what is too old, if it is time to look; only between two batches, when all that was read is settled.

        Raises:
            StoreUnavailable: Try again.
            BatchRefused: A partition is no longer ours.
            IndexLost: The index is gone.
        """
        generation, now = source.generation(), time.monotonic()
        # In a backlog after each batch: a second of reading may be a window of record time.
        if generation is None or (now < self._next_look and not self._listed):
            return
        self._next_look = now + _LOOK_S
        assigned = source.assigned()
        self._come_to = {partition: time_ms for partition, time_ms in self._come_to.items() if partition in assigned}
        for profile in self._in_order.values():
            own = [partition for partition in sorted(self._come_to) if self._by_topic[partition.topic] is profile]
            fences = self._holdings.held(own, generation)
            if fences and self._look_at(profile, fences, source):
                self._next_look = now  # there is more: after the next batch

    def _look_at(self, profile: Profile, fences: Mapping[Partition, Fence], source: Source) -> bool:
        """Take out some of what is too old; tell whether there may be more."""
        store, is_backlog = profile.detector.store, profile.name in self._listed
        if not is_backlog and not store.times():
            return False
        ours = {partition: self._come_to[partition] for partition in fences}
        times = store.note_times(ours, list(fences.values()), extend=is_backlog)
        self._listed.discard(profile.name)
        partitions = self._partitions(profile, source)
        if not times.keys() >= partitions:
            return False
        slowest_ms = min(times[partition] for partition in partitions)
        return self._take_out(profile, fences, slowest_ms, time.monotonic() + _LONGEST_S)

    def _partitions(self, profile: Profile, source: Source) -> AbstractSet[Partition]:
        """All partitions of a profile's topics; of one that is not known at the moment a partition that nobody has."""
        topics = {topic for topic, of in self._by_topic.items() if of is profile}
        known = {partition for partition in source.partitions() if partition.topic in topics}
        return known | {Partition(topic, -1) for topic in topics - {partition.topic for partition in known}}

    def _take_out(self, profile: Profile, fences: Mapping[Partition, Fence], slowest_ms: int, deadline: float) -> bool:
        """Take out what is too old of each partition; tell whether time did not suffice for all of it."""
        rights = list(fences.values())
        while rights:
            portions = profile.detector.store.outdated([fence.partition for fence in rights], slowest_ms, _PORTION)
            due = [(fence, listed) for fence, listed in zip(rights, portions, strict=True) if listed]
            for fence, listed in due:
                self._tick()
                self._figures.taken_out(profile.name, profile.detector.take_out(listed, fence))
            rights = [fence for fence, _ in due]
            if rights and time.monotonic() > deadline:
                return True
        return False
