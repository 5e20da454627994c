"""The partitions that are ours: the right to write for each, and whether the index knows them."""

from collections.abc import Mapping

import structlog

from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable, IndexLost
from streamdedup.position import Partition
from streamdedup.service.transport import Batch, Source
from streamdedup.store.base import BucketStore, Fence

log = structlog.get_logger("streamdedup.loop")


class Holdings:
    """Takes partitions over before their first batch, and notices an index that is gone.

    Args:
        stores: The index of each topic.
        group: Name of the consumer group, for messages.
        continue_without_index: Go on when the index is gone.
    """

    def __init__(self, stores: Mapping[str, BucketStore], group: str, *, continue_without_index: bool) -> None:
        self._stores = stores
        self._group = group
        self._continue_without_index = continue_without_index
        self._fences: dict[Partition, Fence] = {}
        self._looked_at: frozenset[Partition] = frozenset()
        self._read_behind: dict[Partition, int] = {}

    def begin_anew(self) -> None:
        """Forget what belonged to the clients before."""
        self._fences.clear()
        self._looked_at = frozenset()

    def forget_fences(self) -> None:
        """Fence every partition again before its next batch."""
        self._fences.clear()

    def take_over(self, batch: Batch, source: Source) -> dict[Partition, Fence]:
        """Fence the partitions of a batch under its generation; see rules 6 and 7 of ``store.base``.

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
        new = [partition for partition in starts if not self._is_held(partition, batch.generation)]
        for partition in new:
            self._fences[partition] = self._fence(partition, batch.generation, starts[partition], source)
        if new:
            # After the fences, never before: of two processes with one place in the group, one may sleep in between.
            source.confirm()
        return {partition: self._fences[partition] for partition in batch.starts()}

    def _is_held(self, partition: Partition, generation: int) -> bool:
        held = self._fences.get(partition)
        return held is not None and held.generation == generation

    def _fence(self, partition: Partition, generation: int, start: int, source: Source) -> Fence:
        committed = source.committed(partition)
        if committed is not None and start < committed:
            self._behind(partition, start, committed)
        self._read_behind.pop(partition, None)
        self._look_for_mark(partition, committed)
        return self._stores[partition.topic].fence(partition, generation, start)

    def _behind(self, partition: Partition, start: int, committed: int) -> None:
        """Open new clients, which begin at the committed offset; if they have done so already, that offset is gone."""
        if self._read_behind.get(partition) == committed:
            raise BrokerMisconfigured(
                f"offset {committed} of {partition} is committed, but reading can only begin at {start}: the topic has "
                f"lost its end, or is another one. Set the offset of the group {self._group} anew"
            )
        self._read_behind[partition] = committed
        # The partition was somebody else's for a while, and a batch put back since has moved our place behind his.
        raise BrokerUnavailable(f"{partition} was read from offset {start}, but {committed} is committed by now")

    def look_for_index(self, source: Source) -> None:
        """Notice that the index is gone as soon as a partition is ours, also when nothing comes from it."""
        assigned = source.assigned()
        for partition in sorted(assigned - self._looked_at):
            self._look_for_mark(partition, source.committed(partition))
        self._looked_at = assigned

    def _look_for_mark(self, partition: Partition, committed: int | None) -> None:
        if committed is None or self._stores[partition.topic].mark(partition) is not None:
            return
        where = f"offset {committed} of {partition} is committed, but the index has never seen this partition"
        if not self._continue_without_index:
            raise IndexLost(f"{where}: it was lost, or it is another one")
        log.warning("index_lost", reason=where)
