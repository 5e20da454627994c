"""The section ``[service]``: the daemon as a process."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from streamdedup.settings.base import Check, Section
from streamdedup.settings.units import Duration, Kind, Limit, Whole


class Service(Section):
    """Metrics, logs and limits on time; durations are in seconds here, and have units in the file."""

    metrics_host: Annotated[str, Field(min_length=1), Kind("a host name or address")] = "127.0.0.1"
    """Address of `/metrics`, `/livez` and `/readyz`; `0.0.0.0` for all addresses of this machine."""
    metrics_port: Whole = Field(default=9464, ge=0, le=65535)
    """Port of `metrics_host`; with 0 the system chooses one."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level to log. The clients of Kafka and Redis are never logged below `warning`, because their logs
    contain passwords."""
    log_format: Literal["auto", "json", "console"] = "auto"
    """`json`: one object per line; `console`: for people; `auto`: `console` on a terminal, `json` elsewhere."""
    watchdog_s: Duration = Field(default=120.0, ge=1.0, le=86400.0)
    """The process ends (exit code 70) when the loop makes no progress for this long."""
    stop_timeout_s: Duration = Field(default=8.0, ge=0.1, le=3600.0)
    """Time to finish the batch after a request to stop. Below the limit of the supervisor."""
    dead_letter_limit: Limit = Field(default=500, ge=1)
    """The daemon halts and keeps its partitions when more of the last `dead_letter_window` records of a topic would
    become dead letters than this; with `"none"` it never halts."""
    dead_letter_window: Whole = Field(default=1000, ge=1, le=1_000_000)
    """Number of recent records of a topic for `dead_letter_limit`."""
    on_index_lost: Literal["fail", "continue", "rebuild"] = "fail"
    """Reaction to an index that lacks committed documents, because it was lost or restored from an older state: `fail`
    stops with advice, `rebuild` first rebuilds it from the topics, `continue` keeps the rest and misses the pairs with
    lost documents."""

    def checks(self) -> tuple[Check, ...]:
        """Return the checks for contradictions within the section."""
        return (*super().checks(), self._breaker)

    def _breaker(self) -> Iterator[tuple[str, str]]:
        if self.dead_letter_limit is not None and self.dead_letter_limit >= self.dead_letter_window:
            yield "dead_letter_limit", "must be below dead_letter_window, or it could never be passed"
