"""Event time of a partition: its watermark, and whether its records come in the order of their times."""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class _Disorder:
    """Until when a partition counts as out of order.

    Attributes:
        until_ms: Record time at which it ends, milliseconds since the epoch.
        until_s: Time at which it ends at the latest, in seconds of the monotonic clock.
    """

    until_ms: float
    until_s: float


class EventTime:
    """Follows the record times of one partition.

    Records are in order while none is older than the latest before it by more than the slack. A record that is, sets
    the watermark back to its own time, and holds it there: what else is to come may be as old. The hold ends when the
    partition has been in order for a lifetime since: either its record times have passed the latest ever seen by a
    lifetime, or a lifetime has passed on the clock, by which time all that was in the index has expired by itself.

    Args:
        watermark_ms: The watermark, milliseconds since the epoch.
        slack_ms: How far record times may go back.
        lifetime_ms: How long index entries live; None for ever.

    Attributes:
        watermark_ms: Time below which no record is left, but for the slack.
    """

    def __init__(self, watermark_ms: int, slack_ms: int, lifetime_ms: int | None) -> None:
        self.watermark_ms = watermark_ms
        self._slack_ms = slack_ms
        self._lifetime_ms = lifetime_ms
        #: The latest record time since the last one that went back; the latest of all.
        self._latest_ms = self._highest_ms = watermark_ms
        self._disorder: _Disorder | None = None

    @property
    def in_order(self) -> bool:
        """Whether the watermark moves."""
        return self._disorder is None

    def check(self, times: Sequence[int], now_s: float) -> int:
        """Look at the record times of a batch that is not committed yet; a batch that is repeated may be checked again.

        Args:
            times: Record times in the order of offsets, milliseconds since the epoch, at least one.
            now_s: Seconds of the monotonic clock.

        Returns:
            How far times went back beyond the slack, in milliseconds; 0 when they are in order.
        """
        latest, back_ms = self._latest_ms, 0
        for time_ms in times:
            if time_ms < latest - self._slack_ms:
                back_ms = max(back_ms, latest - time_ms)
                latest = time_ms
            latest = max(latest, time_ms)
        if back_ms:
            self.watermark_ms = min(self.watermark_ms, *times)
            lifetime_ms = float("inf") if self._lifetime_ms is None else self._lifetime_ms
            self._disorder = _Disorder(max(self._highest_ms, *times) + lifetime_ms, now_s + lifetime_ms / 1000)
        return back_ms

    def advance(self, times: Sequence[int], now_s: float) -> bool:
        """Move on to a batch that is committed.

        The watermark is the earliest time of the batch. Never the present, also when nothing is left to read: the next
        record may be as old as the last.

        Args:
            times: Record times as they were checked.
            now_s: Seconds of the monotonic clock.

        Returns:
            Whether the partition was out of order until now, and is in order from now on.
        """
        for time_ms in times:
            self._latest_ms = time_ms if time_ms < self._latest_ms - self._slack_ms else max(self._latest_ms, time_ms)
        self._highest_ms = max(self._highest_ms, *times)
        ended = self._disorder is not None and (
            self._latest_ms >= self._disorder.until_ms or now_s >= self._disorder.until_s
        )
        if ended:
            self._disorder = None
        if self._disorder is None:
            self.watermark_ms = max(self.watermark_ms, min(times))
        return ended
