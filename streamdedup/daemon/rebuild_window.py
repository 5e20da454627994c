"""The record times from which a rebuild reads the topics."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

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
    """Return the window of a rebuild.

    An unread record matches documents that are at most one window older than the record. With a window counted from the
    present, a rebuild during a backlog of many windows would read no document with which the backlog is compared. The
    start of a topic is therefore ``kept_ms`` before the earliest of

    - the present;
    - the time of the next record of the slowest partition of the profile: the record is compared with documents of all
      topics;
    - if all partitions of the topic are read to their ends, the time of the topic's latest record: a topic whose
      records are always late stays late. A partition or a topic without recent records does not lengthen the window of
      the others.

    A partition without any record time is read from its oldest record.

    An alert is published after all of its documents were written, so no alert about documents of the window is older
    than the window. The duplicates topic is read from the earliest start of all partitions.

    Args:
        progress: Progress of each input partition that holds records.
        kept_ms: Retention plus slack, in milliseconds.
        now_ms: The present, in milliseconds since the epoch.
    """
    slowest = _earliest((each.time_ms for each in progress.values() if not each.is_read), now_ms)
    starts: dict[Partition, int | None] = {}
    for partition, each in progress.items():
        if each.time_ms is None:
            starts[partition] = None
            continue
        reference = min(slowest, _latest_read(progress, partition.topic, now_ms))
        starts[partition] = max(0, reference - kept_ms)
    times = list(starts.values())
    alerts = None if None in times else _earliest(times, max(0, now_ms - kept_ms))
    return RebuildWindow(starts, alerts)


def _earliest(times: Iterable[int | None], default: int) -> int:
    return min([time for time in times if time is not None] + [default])


def _latest_read(progress: Mapping[Partition, ReadProgress], topic: str, now_ms: int) -> int:
    """Return the latest record time of a topic that is read to its ends; ``now_ms`` for a topic with unread records."""
    of_topic = [each for partition, each in progress.items() if partition.topic == topic]
    times = [each.time_ms for each in of_topic if each.time_ms is not None]
    return max(times) if times and all(each.is_read for each in of_topic) else now_ms
