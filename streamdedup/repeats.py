"""A limit on log lines that are written once per record, so that a thousand bad records do not fill the log.

Called by ``daemon.statistics``, ``kafka.consumer`` and ``kafka.fresh_poll``; counts replace the lines left out.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

#: Lines per level, event and code that are written in each period.
FIRST_LINES: Final = 5
#: Length of a period, in seconds, from a line on. The first call after the end of the period writes the count.
PERIOD_S: Final = 60.0
#: Event that counts the lines that were not written.
REPEATS_EVENT: Final = "repeats_left_out"

#: Level, event and code that share a period.
_Key = tuple[str, str, str]


@dataclass(slots=True)
class _Period:
    """Lines for one key since ``began_at_s``; ``last_fields`` are those of the last line that was not written."""

    began_at_s: float
    lines_count: int = 0
    left_out_count: int = 0
    last_fields: dict[str, object] = field(default_factory=dict)


class RepeatLimit:
    """Writes the first ``FIRST_LINES`` lines (one for warnings) per level, event and code in a period, then a count.

    The line with the count has the level of the lines that were not written, their event as ``of``, their number as
    ``count``, and the other fields of the last one. Not thread-safe.

    ``logger`` is one of structlog; ``clock`` returns monotonic seconds.
    """

    def __init__(self, logger: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._logger = logger
        self._clock = clock
        self._periods: dict[_Key, _Period] = {}

    def info(self, event: str, code: str = "", **fields: object) -> None:
        """Write a line with level info, or count it. A ``code`` is limited separately, and is a field of the line."""
        self._log("info", event, code, fields)

    def error(self, event: str, code: str = "", **fields: object) -> None:
        self._log("error", event, code, fields)

    def warning(self, event: str, **fields: object) -> None:
        """Write a line with level warning, the first in each period only, or count it."""
        self._log("warning", event, "", fields, first_lines=1)

    def _log(
        self, level: str, event: str, code: str, fields: dict[str, object], first_lines: int = FIRST_LINES
    ) -> None:
        self.write_counts()
        period = self._periods.setdefault((level, event, code), _Period(self._clock()))
        line_fields = {"code": code} | fields if code else fields
        if period.lines_count < first_lines:
            period.lines_count += 1
            getattr(self._logger, level)(event, **line_fields)
        else:
            period.left_out_count += 1
            period.last_fields = line_fields

    def write_counts(self) -> None:
        """Write the counts of the periods that have ended, as each log call does; for callers that log nothing."""
        now_s = self._clock()
        for key, period in list(self._periods.items()):
            if now_s - period.began_at_s >= PERIOD_S:
                self._end(key)

    def close(self) -> None:
        """Write all counts, also for periods that have not ended."""
        for key in list(self._periods):
            self._end(key)

    def _end(self, key: _Key) -> None:
        level, event, _ = key
        period = self._periods.pop(key)
        if period.left_out_count:
            getattr(self._logger, level)(REPEATS_EVENT, of=event, count=period.left_out_count, **period.last_fields)
