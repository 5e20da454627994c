"""The window that a rebuild replays: the record times at which it begins, and the records in it.

Called by ``rebuild_run`` only, for a lost index in the order of this module; ``with_credible_times`` also for gaps.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from msgspec import structs

from streamdedup.errors import FatalError, TransientError
from streamdedup.kafka.protocols import Batch, ReadProgress, Record
from streamdedup.position import Partition
from streamdedup.wire import Decoder


def not_before(
    progress: Mapping[Partition, ReadProgress], committed_partitions: Collection[Partition], earliest_ms: int
) -> dict[Partition, ReadProgress]:
    """Return the progress with times not before ``earliest_ms`` in partitions without a committed offset.

    With ``auto_offset_reset = "window"`` the daemon skips earlier records there (``window_start``): no window is to
    begin for them.
    """
    result = dict(progress)
    for partition, reached in progress.items():
        if partition not in committed_partitions and reached.time_ms is not None:
            result[partition] = replace(reached, time_ms=max(reached.time_ms, earliest_ms))
    return result


def rebuild_window(
    progress: Mapping[Partition, ReadProgress], lifetime_ms: int, now_ms: int
) -> dict[Partition, int | None]:
    """Return the record time by partition at which the window begins, milliseconds since the epoch; None for no limit.

    ``progress`` has, for each partition with records, the time of the next record to read, or of the last one if all
    are read. A partition is read from ``lifetime_ms`` before the earliest of these times:

    - the present;
    - the times of the next records to read, in all topics, because such a record forms pairs with older documents of
      all topics: with a lifetime of 31 days and a backlog of 10 days, all topics are read from 41 days ago;
    - the time of the topic's latest record, if no record with a time is left to read in the topic: where records always
      arrive late, the next ones will be about as old as the last one. This moves the windows of this topic only.

    A partition without any record time is read from its oldest record.
    """
    times_ms = (reached.time_ms for reached in progress.values() if not reached.is_read)
    earliest_ms = min([now_ms, *(time_ms for time_ms in times_ms if time_ms is not None)])
    starts: dict[Partition, int | None] = {}
    for partition, reached in progress.items():
        if reached.time_ms is None:
            starts[partition] = None
            continue
        # Where the topic has a next record, its latest time is at least `earliest_ms`, and `min` ignores it.
        reference_ms = min(earliest_ms, _latest_ms(progress, partition.topic))
        starts[partition] = max(0, reference_ms - lifetime_ms)  # Kafka looks up no negative time
    return starts


def _latest_ms(progress: Mapping[Partition, ReadProgress], topic: str) -> int:
    times_ms = (reached.time_ms for partition, reached in progress.items() if partition.topic == topic)
    return max(time_ms for time_ms in times_ms if time_ms is not None)


class WindowFilter:
    """Keeps the records of a window and, of the older ones, deletions only.

    ``window`` is that of ``rebuild_window``: from the first record with its time or a later one on, all records of the
    partition are in it. ``tick`` is called for each record, which may take a request to the schema registry.
    """

    def __init__(self, window: Mapping[Partition, int | None], decoder: Decoder, tick: Callable[[], None]) -> None:
        self._decoder = decoder
        self._tick = tick
        #: Beginning of the window, for each partition of which no record in the window was read yet.
        self._awaited_starts = {partition: start_ms for partition, start_ms in window.items() if start_ms is not None}

    def filtered(self, batch: Batch) -> Batch:
        """Return the batch without records from before the window, except deletions.

        Unreadable records, which ``rebuild_run`` only counts in a log line, are dropped until all windows have begun.
        """
        if not self._awaited_starts:
            return batch
        with self._decoder.batch():
            return replace(batch, records=tuple(filter(self._take, batch.records)), unreadable=())

    def _take(self, record: Record) -> bool:
        self._tick()
        partition = record.position.topic_partition
        start_ms = self._awaited_starts.get(partition)
        if start_ms is None or record.timestamp_ms >= start_ms:
            self._awaited_starts.pop(partition, None)
            return True
        return self._is_deletion(record)

    def _is_deletion(self, record: Record) -> bool:
        try:
            document = self._decoder.decode(
                record.position, record.timestamp_ms, record.key, record.value, record.headers
            )
        except (TransientError, FatalError):
            raise  # the record is not to blame
        except Exception:  # noqa: BLE001  the record has a dead letter, also after a defect or a `MemoryError`
            return False
        return document.op == "delete"


def with_credible_times(batches: Iterable[Batch], commit_ms: Mapping[Partition, int]) -> Iterator[Batch]:
    """Replace record times that a daemon replaced by the time of reading: missing ones, and those of the future.

    A time after the partition's last commit (``commit_ms``) was in the future; whether an earlier time was too, nothing
    shows any more. The closest known time of reading is the latest time of the earlier records or, without one, that of
    the last commit. Follows ``WindowFilter``, which needs Kafka's times.
    """
    latest_ms: dict[Partition, int] = {}
    for batch in batches:
        records = []
        for record in batch.records:
            partition, time_ms = record.position.topic_partition, record.timestamp_ms
            if 0 <= time_ms <= commit_ms[partition]:
                latest_ms[partition] = max(latest_ms.get(partition, 0), time_ms)
                records.append(record)
            else:
                time_ms = latest_ms.get(partition, commit_ms[partition])
                records.append(structs.replace(record, timestamp_ms=time_ms))
        yield replace(batch, records=tuple(records))
