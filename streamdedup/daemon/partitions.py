"""The partitions that are ours: the right to write for each, and whether the index knows them."""

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import NamedTuple

from streamdedup.daemon.batch_limits import BatchLimits
from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable, IndexLost
from streamdedup.index.contract import BucketStore, Fence, LogState, PartitionState
from streamdedup.kafka.protocols import Batch, Bookmark, Source
from streamdedup.position import Partition

#: What we commit along with offsets; whatever else stands there is somebody else's.
_NOTE = re.compile(r"[0-9]{10}\.[0-9]{17}")


class Loss(NamedTuple):
    """A partition of which more is committed than the index knows.

    Attributes:
        partition: Which.
        committed: What is committed.
        reason: How it shows, for the operator.
    """

    partition: Partition
    committed: Bookmark
    reason: str


class AttemptIds:
    """Names each attempt at a batch: by generation, then by time; later ones have greater names."""

    def __init__(self) -> None:
        self._last = 0

    def name(self, generation: int) -> str:
        """Return the name of the next attempt, 28 characters."""
        # Never twice the same in a process, and rarely in two that follow each other under one generation.
        self._last = max(self._last + 1, time.time_ns() // 1000)
        return f"{generation:010d}.{self._last:017d}"


def announced_attempt(committed: Bookmark | None) -> str:
    """Return the name of the attempt that committed an offset; empty when somebody else did."""
    return committed.note if committed is not None and _NOTE.fullmatch(committed.note) else ""


class PartitionOwnership:
    """Takes partitions over before their first batch, and notices an index that is gone or has gone back in time.

    Args:
        stores: The index of each topic.
        group: Name of the consumer group, for messages.
        limits: Sets the batch size by where earlier processes began to read.
        asking_kafka: Held while Kafka is asked.
        on_recreated: Called with the fence of each partition whose topic was deleted and created again.
    """

    def __init__(
        self,
        stores: Mapping[str, BucketStore],
        group: str,
        limits: BatchLimits,
        asking_kafka: Callable[[], AbstractContextManager[None]] = nullcontext,
        on_recreated: Callable[[Fence], None] = lambda _fence: None,
    ) -> None:
        self._stores = stores
        self._group = group
        self._limits = limits
        self._asking_kafka = asking_kafka
        self._on_recreated = on_recreated
        self._fences: dict[Partition, Fence] = {}
        self._looked_at: frozenset[Partition] = frozenset()
        self._read_behind: dict[Partition, int] = {}
        #: What was committed under each fence.
        self._ends: dict[Partition, int] = {}

    def begin_anew(self) -> None:
        """Forget what belonged to the clients before."""
        self._fences.clear()
        self._looked_at = frozenset()

    def forget_fences(self) -> None:
        """Fence every partition again before its next batch."""
        self._fences.clear()

    def take_over(self, batch: Batch, source: Source) -> dict[Partition, Fence]:
        """Fence the partitions of a batch under its generation; see rules 6, 7 and 11 of ``index.contract``.

        Args:
            batch: What was polled.
            source: Where from; knows what is committed.

        Returns:
            The right to write for each partition of the batch.

        Raises:
            BatchRefused: A later generation owns one of them.
            IndexLost: Something of one of them is committed, but the index does not know it.
            BrokerUnavailable: One was read from a place behind what is committed by now: open new clients.
            BrokerMisconfigured: New clients did not help.
        """
        starts = batch.starts()
        new = [
            partition
            for partition, start in starts.items()
            # Reading that goes back behind a commit begins at the oldest record of a topic that was created again.
            if not self._is_held(partition, batch.generation) or start < self._ends.get(partition, 0)
        ]
        for partition in new:
            state = LogState(batch.topic_ids.get(partition.topic, ""), source.end(partition))
            self._fences[partition] = self._fence(partition, batch.generation, starts[partition], source, state)
        if new:
            # After the fences, never before: of two processes with one place in the group, one may sleep in between.
            with self._asking_kafka():
                source.confirm()
        return {partition: self._fences[partition] for partition in batch.starts()}

    def held(self, partitions: Iterable[Partition], generation: int) -> dict[Partition, Fence]:
        """Return the right to write for those of the partitions that were fenced under a generation."""
        return {partition: self._fences[partition] for partition in partitions if self._is_held(partition, generation)}

    def _is_held(self, partition: Partition, generation: int) -> bool:
        held = self._fences.get(partition)
        return held is not None and held.generation == generation

    def committed(self, ends: Mapping[Partition, int], note: str) -> None:
        """Take note that an attempt at a batch is committed.

        Args:
            ends: Offset that is committed of each partition.
            note: Names the attempt.
        """
        for partition, end in ends.items():
            if partition in self._fences:
                self._fences[partition] = replace(self._fences[partition], note=note)
                self._ends[partition] = end

    def _fence(self, partition: Partition, generation: int, start: int, source: Source, state: LogState) -> Fence:
        with self._asking_kafka():
            committed = source.committed(partition)
        if committed is not None and not state.topic_id and state.end is not None and state.end < committed.offset:
            committed = None  # of an earlier incarnation of the topic
        if committed is not None and start < committed.offset:
            self._behind(partition, start, committed.offset)
        self._read_behind.pop(partition, None)
        self._ends.pop(partition, None)
        store = self._stores[partition.topic]
        noted = store.noted([partition])[partition]
        reason = None if committed is None else _reason(partition, committed, noted)
        if reason is not None:
            raise IndexLost(reason)
        # This is what decides: nothing can change between the fence and what it finds announced.
        fence = store.fence(partition, generation, start, announced_attempt(committed), state)
        if fence.recreated:
            self._on_recreated(fence)
        store.save_read_start(self._limits.begin(partition, start, noted.read_start), fence)
        return replace(fence, is_set_back=committed is not None)

    def _behind(self, partition: Partition, start: int, committed: int) -> None:
        """Open new clients, which begin at the committed offset; if they have done so already, that offset is gone."""
        if self._read_behind.get(partition) == committed:
            raise BrokerMisconfigured(
                f"offset {committed} of {partition} is committed, but reading can only begin at {start}: the topic has "
                f"lost its end. Set the offset of the group {self._group} anew"
            )
        self._read_behind[partition] = committed
        # The partition was somebody else's for a while, and a batch put back since has moved our place behind his.
        raise BrokerUnavailable(f"{partition} was read from offset {start}, but {committed} is committed by now")

    def look_for_losses(self, source: Source) -> list[Loss]:
        """Look, whenever partitions have become ours, whether the index knows all that is committed.

        All partitions of the topics are looked at, also those of others and those of which nothing comes: what one of
        them lacks, documents of all others may have to be compared with.
        """
        assigned = source.assigned()
        if assigned <= self._looked_at:
            self._looked_at = assigned
            return []
        with self._asking_kafka():
            committed = source.all_committed()
        losses: list[Loss] = []
        for topic, partitions in _by_topic(committed).items():
            noted = self._stores[topic].noted(partitions)
            for partition in partitions:
                reason = _reason(partition, committed[partition], noted[partition])
                if reason is not None:
                    losses.append(Loss(partition, committed[partition], reason))
        if not losses:
            self._looked_at = assigned
        return losses

    def give_up(self, losses: Sequence[Loss], generation: int) -> None:
        """Make the index know what is committed of partitions without having it.

        Raises:
            BatchRefused: A later generation owns one of them.
            IndexLost: The index is gone again.
        """
        for partition, committed, _ in losses:
            store = self._stores[partition.topic]
            fence = store.fence(partition, generation, committed.offset)
            note = announced_attempt(committed)
            if note:
                store.announce(note, [fence])


def _by_topic(partitions: Mapping[Partition, Bookmark]) -> dict[str, list[Partition]]:
    by_topic: dict[str, list[Partition]] = {}
    for partition in sorted(partitions):
        by_topic.setdefault(partition.topic, []).append(partition)
    return by_topic


def _reason(partition: Partition, committed: Bookmark, noted: PartitionState) -> str | None:
    """Say by what the index shows that it lacks what is committed; None when nothing does."""
    if not committed.offset:
        return None  # set by hand, before anything was read
    where = f"offset {committed.offset} of {partition} is committed, but the index"
    if noted.mark is None:
        return f"{where} has never seen this partition: it was lost, or it is another one"
    if noted.announced < announced_attempt(committed):
        return f"{where} does not know of it: it has gone back to an earlier time"
    return None
