"""Partition ownership: the partitions that are assigned to this daemon, with their fences.

Carries out the rules 6, 7 and 11 of ``index.contract``: high-water mark, fence and announce.

For each batch ``loop`` calls ``take_over`` before the writes, then ``announce``, ``remember_commit`` and ``finish``;
after failures it calls ``forget_fences``. ``recovery`` finds and accepts losses. A change here also touches "The life
of a partition" in ``docs/architecture.md``.
"""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache

from streamdedup import clock
from streamdedup.daemon.attempts import AttemptIds, attempt_id_of
from streamdedup.daemon.batch import Pipeline
from streamdedup.daemon.loop_log import log
from streamdedup.daemon.losses import Loss, is_lost_as_a_whole, losses_between
from streamdedup.detection.model import DetectionResult
from streamdedup.errors import BatchRefused, IndexLost, StoreUnavailable
from streamdedup.index.values import BrokerState, Fence, PartitionState
from streamdedup.kafka.protocols import Batch, CommittedOffset, Source
from streamdedup.position import Partition

#: Interval at which a daemon checks for losses, in seconds. An index that has gone back refuses a daemon whose calls it
#: has forgotten (rule 10). A daemon that has announced no batch for this time may have made no such call, so it also
#: checks before it publishes.
_CHECK_S = 10.0

_AllOffsets = Callable[[], Mapping[Partition, CommittedOffset]]


class PartitionOwnership:
    """Fences partitions before their first batch, announces batches, and detects a lost index.

    ``pipelines`` are by topic. ``asking_kafka`` is the context of each request to Kafka: readiness then shows a request
    that is not answered in time. ``on_recreated`` gets each fence whose topic was deleted and created again.
    """

    def __init__(
        self,
        pipelines: Mapping[str, Pipeline],
        asking_kafka: Callable[[], AbstractContextManager[None]] = nullcontext,
        on_recreated: Callable[[Fence], None] = lambda _fence: None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._pipelines = pipelines
        self._asking_kafka = asking_kafka
        self._on_recreated = on_recreated
        self._monotonic = monotonic
        self._fences: dict[Partition, Fence] = {}
        #: Offset that this process last committed, by partition.
        self._next_offsets: dict[Partition, int] = {}
        #: Partitions that were assigned at the last check for losses, and its time; -inf where a check is due at once.
        self._checked: frozenset[Partition] = frozenset()
        self._checked_s = monotonic()
        #: Time of the last announcement, by profile; absent after a failure, so that the next one makes a check due.
        self._announced_s: dict[str, float] = {}
        self._attempt_ids = AttemptIds()

    def forget_fences(self) -> None:
        """Forget all fences: fence every partition again before its next batch, and check for losses again."""
        self._fences.clear()
        self._checked = frozenset()
        self._announced_s.clear()

    # Fences

    def take_over(self, batch: Batch, source: Source) -> dict[Partition, Fence]:
        """Fence each partition of a batch that has no fence in its generation; return the fences of all.

        Raises ``IndexLost`` if the index does not know a committed attempt, and as ``require_index``.
        """
        starts = batch.starts
        unfenced = [
            partition
            for partition, start in starts.items()
            # A start below the last commit of this process needs a new fence: the topic was created again.
            if not self._is_held(partition, batch.generation) or start < self._next_offsets.get(partition, 0)
        ]
        all_offsets = cache(lambda: source.committed_offsets(stable=False))  # one request for all partitions
        for partition in unfenced:
            start, topic_id = starts[partition], batch.topic_ids.get(partition.topic, "")
            self._fences[partition] = self._fence(partition, batch.generation, start, source, topic_id, all_offsets)
        for pipeline, _ in self._by_pipeline(unfenced):
            require_index(pipeline)
        return {partition: self._fences[partition] for partition in starts}

    def held_fences(self, partitions: Iterable[Partition], generation: int) -> dict[Partition, Fence]:
        """Return the fences of a generation that this process holds for some of the partitions."""
        return {partition: self._fences[partition] for partition in partitions if self._is_held(partition, generation)}

    def _is_held(self, partition: Partition, generation: int) -> bool:
        fence = self._fences.get(partition)
        return fence is not None and fence.generation == generation

    def _fence(
        self, partition: Partition, generation: int, start: int, source: Source, topic_id: str, all_offsets: _AllOffsets
    ) -> Fence:
        in_group, in_kafka = self._state_in_kafka(partition, source, topic_id, all_offsets)
        committed_offset = _of_present_topic(in_group, in_kafka)
        index = self._pipelines[partition.topic].index
        in_index = index.partition_states([partition])[partition]
        self._attempt_ids.observe(in_index.latest_announced)
        # Not of `committed_offset`: the index must still know the attempt of an earlier incarnation of the topic.
        committed_id = attempt_id_of(in_group)
        # `fence` raises the high-water mark to the start: the committed offset, or the first record after it; without a
        # commit, the beginning of the group. It compares attempt ids, atomically with the fencing. `check_for_losses`
        # has found, after the assignment, a partition that the index has never seen and whose committed offset has no
        # id. Then `fence` calls `_confirm_membership`, which raises if this process has lost its membership, and with
        # it the partition. A call before the fencing would prove nothing: the process may be frozen in between.
        fence = index.fence(
            partition, generation, start, committed_id, in_kafka, lambda: self._confirm_membership(source)
        )
        if fence.is_recreated:
            self._on_recreated(fence)
        return replace(fence, has_commit=committed_offset is not None)

    def _state_in_kafka(
        self, partition: Partition, source: Source, topic_id: str, all_offsets: _AllOffsets
    ) -> tuple[CommittedOffset | None, BrokerState]:
        """Return the committed offset of a partition, None without one, and the state of the partition in Kafka."""
        with self._asking_kafka():
            committed_offset = source.committed_offset(partition)
            # For a partition without a commit, a new index continues the incarnations of the topic's other partitions.
            others = all_offsets() if committed_offset is None else {}
        incarnations = (offset.incarnation for other, offset in others.items() if other.topic == partition.topic)
        return committed_offset, BrokerState(topic_id, source.end(partition), max(incarnations, default=0))

    def _confirm_membership(self, source: Source) -> None:
        with self._asking_kafka():
            source.confirm()

    # Attempts at batches

    def announce(self, fences: Mapping[Partition, Fence], starts: Mapping[Partition, int]) -> str:
        """Announce to the indexes that the batch from ``starts`` on is completely written; return its attempt id."""
        attempt_id = self._attempt_ids.next()
        now_s = self._monotonic()
        for pipeline, partitions in self._by_pipeline(fences):
            if now_s - self._announced_s.get(pipeline.name, -math.inf) >= _CHECK_S:
                self._checked_s = -math.inf  # after a pause: check before this batch is published
            self._announced_s[pipeline.name] = now_s
            pipeline.index.announce(attempt_id, [fences[partition] for partition in partitions], starts)
        return attempt_id

    def remember_commit(self, ends: Mapping[Partition, int], attempt_id: str) -> None:
        """Remember committed offsets, and their attempt id in the fences, from which the next ``announce`` takes it."""
        for partition, end in ends.items():
            self._fences[partition] = replace(self._fences[partition], committed_id=attempt_id)
            self._next_offsets[partition] = end

    def finish(
        self, ends: Mapping[Partition, int], fences: Mapping[Partition, Fence], detected: Mapping[str, DetectionResult]
    ) -> None:
        """Raise the high-water marks to the committed offsets, and remove the pending matches.

        The batch is committed, so a failure undoes nothing: the next check raises the marks, or finds the loss.
        """
        for pipeline, partitions in self._by_pipeline(ends):
            positions = detected[pipeline.name].pending_positions if pipeline.name in detected else ()
            try:
                marks = {partition: ends[partition] for partition in partitions}
                pipeline.index.finish(marks, positions, [fences[partition] for partition in partitions])
            except (StoreUnavailable, BatchRefused, IndexLost) as error:
                log.info("mark_missed", reason=str(error))
                self._checked_s = -math.inf  # the failure may be the only sign of a loss
                self._announced_s.pop(pipeline.name, None)

    def _by_pipeline(self, partitions: Iterable[Partition]) -> Iterator[tuple[Pipeline, list[Partition]]]:
        groups: dict[str, tuple[Pipeline, list[Partition]]] = {}
        for partition in partitions:
            pipeline = self._pipelines[partition.topic]
            groups.setdefault(pipeline.name, (pipeline, []))[1].append(partition)
        yield from groups.values()

    # Losses

    def is_check_due(self, source: Source) -> bool:
        """Tell whether to check: after ``forget_fences``, for further partitions, after a pause, at intervals."""
        assigned = source.assigned()
        self._checked &= assigned  # a revoked partition is checked when it returns
        return self._checked < assigned or self._monotonic() - self._checked_s >= _CHECK_S

    def check_for_losses(self, source: Source) -> list[Loss]:
        """Return the committed offsets that the index does not know, also in partitions of other daemons.

        A document of any partition may have to be compared with a lost document. Without losses, high-water marks that
        a failed ``finish`` has missed are raised.
        """
        assigned = source.assigned()
        # Kafka first: attempts are announced before their commit. Only the first check awaits open transactions.
        with self._asking_kafka():
            committed_offsets = source.committed_offsets(stable=not assigned <= self._checked)
        losses: list[Loss] = []
        behind: list[tuple[Partition, CommittedOffset]] = []
        for pipeline, partitions in self._by_pipeline(committed_offsets):
            states = pipeline.index.partition_states(sorted(partitions))
            for state in states.values():
                self._attempt_ids.observe(state.latest_announced)
            losses += losses_between({partition: committed_offsets[partition] for partition in partitions}, states)
            behind += [
                (partition, committed_offsets[partition])
                for partition in assigned & states.keys()
                if _is_behind(states[partition], committed_offsets[partition])
            ]
        generation = source.generation()
        if not losses and generation is not None:
            self._raise_marks(behind, generation, source)
            self._checked, self._checked_s = assigned, self._monotonic()
        return losses

    def _raise_marks(
        self, behind: Sequence[tuple[Partition, CommittedOffset]], generation: int, source: Source
    ) -> None:
        """Raise high-water marks now: an operator may set the committed offset back before the next batch."""
        for partition, committed_offset in behind:
            offset, end = committed_offset.offset, source.end(partition)
            if end is None or end >= offset:  # a mark beyond the end would silence new records
                self._fence(partition, generation, offset, source, committed_offset.topic_id, all_offsets=dict)

    def accept_losses(self, losses: Sequence[Loss], generation: int) -> None:
        """Fence the partitions and make the committed attempts known, as if the index had the lost documents."""
        for loss in losses:
            self._attempt_ids.observe(attempt_id_of(loss.committed_offset))
        if is_lost_as_a_whole(losses):
            self._attempt_ids.begin_lineage(clock.now_ms())  # another index may go on in the present one
        for loss in losses:
            partition, committed_offset = loss.partition, loss.committed_offset
            index = self._pipelines[partition.topic].index
            # `fence` gets no attempt id, because it raises IndexLost for an unknown one; `announce` makes the id known.
            in_kafka = BrokerState(committed_offset.topic_id, incarnation=committed_offset.incarnation)
            fence = index.fence(partition, generation, committed_offset.offset, state=in_kafka)
            committed_id = attempt_id_of(committed_offset)
            attempt_id = self._attempt_ids.renewed(committed_id)
            index.announce(attempt_id, [fence], {partition: committed_offset.offset}, committed_id=committed_id)


def require_index(pipeline: Pipeline) -> None:
    """Raise ``IndexLost`` or ``IndexMismatch`` if another process has deleted or rebuilt the index meanwhile."""
    if pipeline.index.open(pipeline.fingerprint, create=False) is None:
        raise IndexLost("the index is gone")


def _of_present_topic(committed_offset: CommittedOffset | None, in_kafka: BrokerState) -> CommittedOffset | None:
    """Return a committed offset; None if it is beyond the end, and so of an earlier incarnation of the topic.

    With topic ids, ``Source.committed_offset`` leaves such an offset out.
    """
    is_beyond = committed_offset is not None and in_kafka.end is not None and committed_offset.offset > in_kafka.end
    return None if is_beyond and not in_kafka.topic_id else committed_offset


def _is_behind(state: PartitionState, committed_offset: CommittedOffset) -> bool:
    """Tell whether the high-water mark is below the committed offset of the same topic: ``finish`` has not run."""
    is_same_topic = state.topic_id == committed_offset.topic_id != ""
    return is_same_topic and (state.high_water_mark or 0) < committed_offset.offset
