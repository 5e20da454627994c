"""Keeps a sender to a number of records a second."""

import time
from collections.abc import Callable
from typing import Annotated

import typer

#: Seconds ahead of its schedule from which on a paced sender waits; a shorter sleep costs more than it orders.
_AHEAD_S = 0.005
#: Seconds behind its schedule that a sender makes up for. After a longer hold-up the rest is let go: a burst would be
#: the opposite of what was asked for.
_BEHIND_S = 1.0


#: Option of the commands that send: records a second.
RateOption = Annotated[
    float,
    typer.Option("--rate", min=0, help="Records a second, 0 for no limit: as fast as it goes.", show_default=False),
]


class Pace:
    """A schedule that begins with the first record.

    No rounding adds up: the n-th record is due n / ``rate`` seconds after the first, however long each took.

    Args:
        rate: Records a second; 0 for no limit.
        clock: Seconds that never go back.
        sleep: Waits so many seconds.
    """

    def __init__(
        self,
        rate: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._clock = clock
        self._sleep = sleep
        self._start: float | None = None
        self._sent_count = 0

    def wait(self) -> None:
        """Wait until the next record is due."""
        if not self._rate:
            return
        now = self._clock()
        if self._start is None:
            self._start = now
        ahead_s = self._start + self._sent_count / self._rate - now
        if ahead_s > _AHEAD_S:
            self._sleep(ahead_s)
        elif ahead_s < -_BEHIND_S:
            self._start -= ahead_s + _BEHIND_S
        self._sent_count += 1
