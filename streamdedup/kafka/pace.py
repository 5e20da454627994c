"""The rate at which ``produce`` and ``demo`` send records."""

import time
from collections.abc import Callable

#: Waits shorter than this are skipped, in seconds: a sleep is not more precise.
_MIN_WAIT_S = 0.005
#: Longest sleep, in seconds: ``time.sleep`` refuses more than some 300 years, which a tiny rate asks for.
_MAX_SLEEP_S = 86_400.0
#: Longest delay that a sender makes up for, in seconds. To make up for a longer delay would be a burst.
_MAX_DELAY_S = 1.0


class Pace:
    """A schedule without accumulated rounding: record n is due n / ``rate`` seconds after the first; 0 is no limit."""

    def __init__(
        self, rate: float, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._start: float | None = None
        self._count = 0

    def wait(self) -> None:
        """Wait until the next record is due, and count it as sent."""
        while (until_due_s := self.until_due_s()) > _MIN_WAIT_S:
            self._sleep(min(until_due_s, _MAX_SLEEP_S))
        self._count += 1

    def until_due_s(self) -> float:
        """Return the time until the next record is due, in seconds; 0 or less if it is due.

        The first call starts the schedule; a call after a delay longer than ``_MAX_DELAY_S`` moves it.
        """
        if not self._rate:
            return 0.0
        time_s = self._clock()
        if self._start is None:
            self._start = time_s
        due_s = self._start + self._count / self._rate
        if time_s - due_s > _MAX_DELAY_S:
            self._start += time_s - due_s - _MAX_DELAY_S  # the next record is late by `_MAX_DELAY_S`
        return due_s - time_s
