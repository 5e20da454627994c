"""How far back a rebuild reads each topic: one window before the record that the group reads next.

A record that is still to be read matches documents at most one window older than itself. Counted from the present, a
rebuild during a backlog of many windows would read nothing that the backlog is compared with.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from streamdedup.kafka.protocols import ReadProgress
from streamdedup.position import Partition


@dataclass(frozen=True, slots=True)
class RebuildWindow:
    """Record times from which topics are read, in milliseconds since the epoch; None is the oldest record.

    Attributes:
        inputs: By partition; a partition that is not named is read from its oldest record.
        alerts: Of the duplicates topic.
    """

    inputs: Mapping[Partition, int | None]
    alerts: int | None


def rebuild_window(progress: Mapping[Partition, ReadProgress], kept_ms: int, now_ms: int) -> RebuildWindow:
    """Return the window of a rebuild.

    The start of a topic is ``kept_ms`` before the earliest of

    - the present;
    - the time of the record that the group reads next, of that partition of the profile which is furthest behind: it is
      compared with documents of all topics;
    - where all of the topic's partitions are read to their ends, the time of their latest record: a topic whose records
      are always late goes on being late. A partition or a topic of which nothing has come for long does not lengthen
      the window of the others.

    A partition without any record time is read whole: times say nothing about what it holds.

    An alert is published after all of its documents were written, so no alert about documents of the window is older
    than the window. The duplicates topic is read from the earliest start of all partitions.

    Args:
        progress: Of each input partition that holds records.
        kept_ms: Retention plus slack, in milliseconds.
        now_ms: The present, in milliseconds since the epoch.
    """
    behind = _earliest((each.time_ms for each in progress.values() if not each.is_read), now_ms)
    starts: dict[Partition, int | None] = {}
    for partition, each in progress.items():
        if each.time_ms is None:
            starts[partition] = None
            continue
        reference = min(behind, _latest_read(progress, partition.topic, now_ms))
        starts[partition] = max(0, reference - kept_ms)
    times = list(starts.values())
    alerts = None if None in times else _earliest(times, max(0, now_ms - kept_ms))
    return RebuildWindow(starts, alerts)


def _earliest(times: Iterable[int | None], otherwise: int) -> int:
    return min([time for time in times if time is not None] + [otherwise])


def _latest_read(progress: Mapping[Partition, ReadProgress], topic: str, now_ms: int) -> int:
    """Time of the latest record of a topic that is read to its ends; ``now_ms`` for a topic with records to come."""
    of_topic = [each for partition, each in progress.items() if partition.topic == topic]
    times = [each.time_ms for each in of_topic if each.time_ms is not None]
    return max(times) if times and all(each.is_read for each in of_topic) else now_ms
