"""Partitions in memory, the base class of ``MemoryIndex``: fences, high-water marks and announced attempts.

The specification for ``redis.partitions``, which a change touches too, by rules 6, 7 and 11 of ``index.contract``.
"""

from collections.abc import Callable, Mapping, Sequence

from streamdedup.errors import BatchRefused, IndexLost
from streamdedup.index.documents import PendingMatches
from streamdedup.index.expiring import ExpiringDict
from streamdedup.index.values import (
    UNKNOWN_BROKER_STATE,
    AnnouncedAttempt,
    BrokerState,
    Fence,
    Fences,
    Fingerprint,
    PartitionState,
    is_recreated,
)
from streamdedup.position import Partition, Position


class MemoryPartitions:
    """A ``PartitionStore`` in memory; ``lifetime_ms`` is that of pending matches, None for ever."""

    def __init__(self, lifetime_ms: int | None, now_ms: Callable[[], float]) -> None:
        self._lifetime_ms = lifetime_ms
        self._now_ms = now_ms
        #: None while there is no index; ``MemoryIndex.open`` sets the fingerprint.
        self._fingerprint: Fingerprint | None = None
        #: The generation of each fence. There is one writer, this object.
        self._fences: dict[Partition, int] = {}
        self._high_water_marks: dict[Partition, int] = {}
        #: Topic incarnation and topic id for each high-water mark.
        self._incarnations: dict[Partition, tuple[int, str]] = {}
        #: Topic ids before the present one, by partition: those of deleted topics.
        self._earlier_topic_ids: dict[Partition, set[str]] = {}
        self._announced: dict[Partition, AnnouncedAttempt] = {}
        self._pending_matches: ExpiringDict[Position, PendingMatches] = ExpiringDict(lifetime_ms, now_ms)

    def fence(
        self,
        partition: Partition,
        generation: int,
        start: int,
        committed_id: str = "",
        state: BrokerState = UNKNOWN_BROKER_STATE,
        confirm: Callable[[], None] = lambda: None,
    ) -> Fence:
        if self._fingerprint is None:
            raise IndexLost("the index is gone")
        self._refuse_later(partition, generation)
        # Before the checks that may raise, as in Redis: from now on the previous owner's writes are refused.
        self._fences[partition] = generation
        if not self._attempt(partition).knows(committed_id):
            raise IndexLost(f"the index has gone back, or another was used: it lacks committed batches of {partition}")
        confirm()
        self._check_fences([Fence(partition, generation, start)])  # again: ``confirm`` may have taken long
        if state.topic_id in self._earlier_topic_ids.get(partition, ()):
            raise BatchRefused(f"{partition} was polled before its topic was deleted and created again")
        recreated = self._update_incarnation(partition, state)
        incarnation, _ = self._incarnations[partition]
        high_water_mark = max(self._high_water_marks.get(partition, 0), start)
        self._high_water_marks[partition] = high_water_mark
        for position in self._pending_matches.all_keys():
            is_left = position.incarnation != incarnation or position.offset < start  # of a deleted topic, or committed
            if position.topic_partition == partition and is_left:
                self._pending_matches.drop(position)
        return Fence(partition, generation, high_water_mark, committed_id, incarnation, recreated)

    def _update_incarnation(self, partition: Partition, state: BrokerState) -> bool:
        """Store the topic id; if the topic was created again, begin the next incarnation and return True."""
        incarnation, topic_id = self._incarnations.get(partition, (state.incarnation, ""))
        high_water_mark = self._high_water_marks.get(partition)
        recreated = high_water_mark is not None and is_recreated(high_water_mark, topic_id, state)
        if recreated:
            incarnation += 1
            if topic_id and state.topic_id not in {"", topic_id}:
                self._earlier_topic_ids.setdefault(partition, set()).add(topic_id)
            del self._high_water_marks[partition]  # so that ``fence`` sets the committed offset, which may be lower
        self._incarnations[partition] = incarnation, state.topic_id or topic_id
        return recreated

    def partition_states(self, partitions: Sequence[Partition]) -> dict[Partition, PartitionState]:
        if self._fingerprint is None:
            return dict.fromkeys(partitions, PartitionState(None))
        return {partition: self._state(partition) for partition in partitions}

    def _state(self, partition: Partition) -> PartitionState:
        incarnation, topic_id = self._incarnations.get(partition, (0, ""))
        high_water_mark = self._high_water_marks.get(partition)
        return PartitionState(high_water_mark, incarnation, topic_id, (self._attempt(partition),))

    def announce(
        self, attempt_id: str, fences: Fences, starts: Mapping[Partition, int], *, committed_id: str | None = None
    ) -> None:
        self._check_fences(fences)
        attempts = {}
        for fence in fences:
            announced = self._attempt(fence.partition)
            is_repeated = announced.attempt_id == attempt_id
            if not (announced.knows(fence.committed_id) or is_repeated):
                raise IndexLost("the index has gone back to an earlier time")
            if announced.attempt_id > attempt_id:
                raise BatchRefused(f"a later attempt at a batch of {fence.partition} is announced")
            known_id = fence.committed_id if committed_id is None else committed_id
            attempts[fence.partition] = AnnouncedAttempt(attempt_id, starts[fence.partition], known_id)
        self._announced |= attempts

    def _attempt(self, partition: Partition) -> AnnouncedAttempt:
        return self._announced.get(partition, AnnouncedAttempt())

    def unfence(self, partition: Partition) -> None:
        self._fences.pop(partition, None)

    def finish(self, ends: Mapping[Partition, int], positions: Sequence[Position], fences: Fences) -> None:
        self._check_fences(fences)
        for partition, offset in ends.items():
            self._high_water_marks[partition] = max(self._high_water_marks.get(partition, 0), offset)
        for position in positions:
            self._pending_matches.drop(position)

    def _check_fences(self, fences: Fences) -> None:
        if fences and self._fingerprint is None:
            raise IndexLost("the index is gone")
        for fence in fences:
            if fence.partition not in self._fences:
                raise BatchRefused(f"{fence.partition} is not fenced")
            self._refuse_later(fence.partition, fence.generation)

    def _refuse_later(self, partition: Partition, generation: int) -> None:
        stored = self._fences.get(partition)
        if stored is not None and stored > generation:
            raise BatchRefused(f"{partition} is fenced by generation {stored}, the batch has {generation}")
