"""The start of a partition without a committed offset, with ``auto_offset_reset = "window"``.

``loop`` asks for the offsets before it fences the partitions of a batch, and seeks to them. Such a partition begins at
its first record that is younger than the window: ``retention`` plus ``retention_slack`` of its profile, by the clock of
the daemon that takes the partition over. Earlier records are never read and form no pairs; the fence makes the first
offset the high-water mark. Until the first commit each takeover counts the window anew: after a crash the partition
begins later by the time that has passed.

A topic that was created again is read from its oldest record: producers may send old records to it once more.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext

import structlog

from streamdedup.daemon import batch as batches
from streamdedup.daemon.batch import Pipeline
from streamdedup.index.values import BrokerState, Fence, is_recreated
from streamdedup.kafka.protocols import Batch, Source
from streamdedup.position import Partition

log = structlog.get_logger("streamdedup.loop")  # one name for all modules of the loop, shown in each log line


class WindowStart:
    """Finds the offsets at which partitions begin instead of their oldest records.

    Args:
        pipelines: Pipeline of each topic.
        held: Returns the fences held for partitions under a generation, as ``PartitionOwnership.held``.
        asking_kafka: Context of each request to Kafka.
    """

    def __init__(
        self,
        pipelines: Mapping[str, Pipeline],
        held: Callable[[Iterable[Partition], int], Mapping[Partition, Fence]],
        asking_kafka: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._pipelines = pipelines
        self._held = held
        self._asking_kafka = asking_kafka

    def offsets(self, batch: Batch, source: Source) -> dict[Partition, int]:
        """Return the offset to begin at for each partition whose first record in the batch is older than the window.

        Empty for most batches, and without a request: a partition is looked up if it has no fence yet and its first
        record in the batch is too old. A record without a time counts as young.

        Raises:
            BrokerUnavailable: Kafka did not answer in time.
            StoreUnavailable: The index did not answer.
        """
        fenced = self._held(batch.starts, batch.generation)
        too_early = self._windows_after_start(batch, batch.starts.keys() - fenced.keys())
        if not too_early:
            return {}
        with self._asking_kafka():
            uncommitted = [partition for partition in too_early if source.committed(partition) is None]
        topics = {partition.topic for partition in uncommitted}
        recreated = {topic for topic in topics if self._is_recreated(topic, batch, source)}
        since_ms = {partition: too_early[partition] for partition in uncommitted if partition.topic not in recreated}
        if not since_ms:
            return {}
        with self._asking_kafka():
            window_starts = source.first_since(since_ms)
        later = {partition: offset for partition, offset in window_starts.items() if offset > batch.starts[partition]}
        for partition, offset in sorted(later.items()):
            log.info("window_start", partition=str(partition), offset=offset, skipped=offset - batch.starts[partition])
        return later

    def _windows_after_start(self, batch: Batch, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the time at which the window begins, where a partition's first record is older, or unreadable."""
        now_ms = batches.now_ms()
        since_ms = {
            partition: now_ms - age_ms + 1  # a record of exactly the age is skipped
            for partition in partitions
            if (age_ms := self._pipelines[partition.topic].max_start_age_ms) is not None
        }
        if not since_ms:
            return {}
        for record in batch.records:
            partition = record.position.topic_partition
            is_first = partition in since_ms and record.position.offset == batch.starts[partition]
            is_old = 0 <= record.timestamp_ms < since_ms.get(partition, 0)  # negative: without a time
            if is_first and not is_old:
                del since_ms[partition]
        return since_ms

    def _is_recreated(self, topic: str, batch: Batch, source: Source) -> bool:
        """Tell whether a topic was deleted and created again since the index has seen one of its partitions."""
        partitions = [partition for partition in source.partitions() if partition.topic == topic]
        states = self._pipelines[topic].index.partition_states(partitions)
        return any(
            state.high_water_mark is not None
            and (
                state.incarnation > 0
                or is_recreated(
                    state.high_water_mark,
                    state.topic_id,
                    BrokerState(batch.topic_ids.get(topic, ""), source.end(partition)),
                )
            )
            for partition, state in states.items()
        )
