"""The record times from which a rebuild reads the topics."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from streamdedup.kafka.protocols import ReadProgress
from streamdedup.position import Partition


@dataclass(frozen=True, slots=True)
class RebuildWindow:
    """Record times from which topics are read, in milliseconds since the epoch; None is the oldest record.

    Attributes:
        inputs: By partition; other partitions are read from their oldest records.
        alerts: Of the duplicates topic.
    """

    inputs: Mapping[Partition, int | None]
    alerts: int | None


def rebuild_window(progress: Mapping[Partition, ReadProgress], kept_ms: int, now_ms: int) -> RebuildWindow:
    """Return the window that a rebuild reads.

    An unread record matches documents that are at most one window older than the record. With a window counted from the
    present, a rebuild during a backlog over many windows would read no document with which the backlog is compared. A
    topic is therefore read from ``kept_ms`` before the earliest among

    - the present;
    - the next record in the profile's slowest partition: the record is compared with documents from all topics;
    - if all partitions in the topic are read to their ends, the topic's latest record: a topic whose
      records are always late stays late. A partition or a topic without recent records does not lengthen the window for
      the others.

    A partition without any record time is read from its oldest record.

    An alert is published after its documents were written, so no alert about documents in the window is older
    than the window. The duplicates topic is read from the earliest start.

    Args:
        progress: Progress by input partition that holds records.
        kept_ms: Retention plus slack, in milliseconds.
        now_ms: The present, in milliseconds since the epoch.
    """
    slowest = _earliest((read.time_ms for read in progress.values() if not read.is_read), now_ms)
    starts: dict[Partition, int | None] = {}
    for partition, read in progress.items():
        if read.time_ms is None:
            starts[partition] = None
            continue
        reference = min(slowest, _latest_read(progress, partition.topic, now_ms))
        starts[partition] = max(0, reference - kept_ms)
    times = list(starts.values())
    alerts = None if None in times else _earliest(times, max(0, now_ms - kept_ms))
    return RebuildWindow(starts, alerts)


def begun_at_window(
    progress: Mapping[Partition, ReadProgress], committed: Collection[Partition], first_ms: int
) -> dict[Partition, ReadProgress]:
    """Return the progress where partitions without a committed offset begin at a time.

    With ``auto_offset_reset = "window"`` the records before that time are skipped (``window_start``).

    Args:
        progress: Progress by input partition that holds records.
        committed: Partitions with a committed offset.
        first_ms: When the window begins, milliseconds since the epoch.
    """
    return {
        partition: read
        if partition in committed or read.time_ms is None
        else replace(read, time_ms=max(read.time_ms, first_ms))
        for partition, read in progress.items()
    }


def _earliest(times: Iterable[int | None], default: int) -> int:
    return min([time for time in times if time is not None] + [default])


def _latest_read(progress: Mapping[Partition, ReadProgress], topic: str, now_ms: int) -> int:
    """Return the latest record time in a topic that is read to its ends; ``now_ms`` with unread records."""
    partitions = [read for partition, read in progress.items() if partition.topic == topic]
    times = [read.time_ms for read in partitions if read.time_ms is not None]
    return max(times) if times and all(read.is_read for read in partitions) else now_ms
