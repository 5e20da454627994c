"""The start of a partition without a committed offset, with ``auto_offset_reset = "window"``.

Such a partition begins at its first record that is younger than a lifetime (``max_start_age_ms``: ``retention`` plus
``retention_slack``), by the clock of the daemon that takes the partition over. Called by ``loop`` before it fences the
partitions of a batch: ``loop`` then undoes the batch and seeks to the offset of this record, which becomes the
high-water mark. Earlier records are passed over and form no pairs; ``rebuild_run`` leaves them out, too. Until the
first commit each takeover counts the lifetime anew: after a crash the partition begins later by the time that passed.

A topic that was created again is read from its oldest record: producers may send old records to it once more.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager

from streamdedup import clock
from streamdedup.daemon.batch import Pipeline
from streamdedup.daemon.loop_log import log
from streamdedup.index.values import BrokerState, Fence, is_recreated
from streamdedup.kafka.protocols import Batch, Source
from streamdedup.position import Partition


class WindowStart:
    """Finds the offsets at which partitions begin instead of their oldest records."""

    def __init__(
        self,
        pipelines: Mapping[str, Pipeline],
        held_fences: Callable[[Iterable[Partition], int], Mapping[Partition, Fence]],
        asking_kafka: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._pipelines = pipelines
        self._held_fences = held_fences
        self._asking_kafka = asking_kafka
        #: Offsets that ``later_starts`` has returned. A batch that begins there is accepted, although its first record
        #: may be too old by now: else a partition with steady traffic might never begin.
        self._returned: dict[Partition, int] = {}

    def later_starts(self, batch: Batch, source: Source) -> dict[Partition, int]:
        """Return the offset to begin at for each partition that is to begin later than the batch does.

        These are partitions without a fence and without a committed offset, whose first record in the batch is too old,
        or unreadable (not in ``batch.records``). A readable record without a time counts as young. For most batches no
        request is needed.
        """
        fenced = self._held_fences(batch.starts, batch.generation)
        old_since_ms = self._since_where_old(batch, batch.starts.keys() - fenced.keys())
        if not old_since_ms:
            return {}
        with self._asking_kafka():
            uncommitted = [partition for partition in old_since_ms if source.committed_offset(partition) is None]
        topics = {partition.topic for partition in uncommitted}
        recreated = {topic for topic in topics if self._is_recreated(topic, batch, source)}
        since_ms = {partition: old_since_ms[partition] for partition in uncommitted if partition.topic not in recreated}
        if not since_ms:
            return {}
        with self._asking_kafka():
            starts = source.first_since(since_ms)  # the end of a partition in which all records are too old
        later = {partition: offset for partition, offset in starts.items() if offset > batch.starts[partition]}
        self._returned |= later
        for partition, offset in sorted(later.items()):
            log.info("window_start", partition=str(partition), offset=offset, skipped=offset - batch.starts[partition])
        return later

    def _since_where_old(self, batch: Batch, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the earliest record time to read, for partitions whose first record is older, or unreadable."""
        now_ms = clock.now_ms()
        since_ms = {
            partition: max(0, now_ms - age_ms + 1)  # a record of exactly the age is skipped
            for partition in partitions
            if (age_ms := self._pipelines[partition.topic].max_start_age_ms) is not None
            and batch.starts[partition] < self._returned.get(partition, math.inf)  # else it has begun
        }
        if not since_ms:
            return {}
        for record in batch.records:
            partition = record.position.topic_partition
            is_first = partition in since_ms and record.position.offset == batch.starts[partition]
            # A negative time: the record has none.
            if is_first and (record.timestamp_ms < 0 or record.timestamp_ms >= since_ms[partition]):
                del since_ms[partition]
        return since_ms

    def _is_recreated(self, topic: str, batch: Batch, source: Source) -> bool:
        """Tell whether a topic was deleted and created again since the index has seen one of its partitions."""
        partitions = [partition for partition in source.partitions() if partition.topic == topic]
        states = self._pipelines[topic].index.partition_states(partitions)
        for partition, state in states.items():
            if state.high_water_mark is None:
                continue  # the index has never seen the partition
            in_kafka = BrokerState(batch.topic_ids.get(topic, ""), source.end(partition))
            # Above 0: an earlier takeover noticed the new topic and replaced the mark, so ``is_recreated`` is false.
            if state.incarnation > 0 or is_recreated(state.high_water_mark, state.topic_id, in_kafka):
                return True
        return False
