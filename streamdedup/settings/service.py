"""The section ``[service]``: the daemon as a process."""

from collections.abc import Iterator
from typing import Literal

from pydantic import Field

from streamdedup.settings.base import Check, Section
from streamdedup.settings.units import Duration, Limit, Text, Whole


class Service(Section):
    """Metrics, logs and limits on time; durations are in seconds here, with their units in the file."""

    metrics_host: Text = Field(
        default="127.0.0.1",
        min_length=1,
        description="Address that `/metrics`, `/livez` and `/readyz` listen on; `0.0.0.0` for all of this machine's.",
        json_schema_extra={"allowed": "a host name or address"},
    )
    metrics_port: Whole = Field(
        default=9464, ge=0, le=65535, description="Port of the same; 0 lets the system choose one."
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info",
        description="Least level to log. The clients of Kafka and Redis are never logged below `warning`, because they "
        "would log passwords.",
    )
    log_format: Literal["auto", "json", "console"] = Field(
        default="auto",
        description="`json` is one object a line, `console` is for people, `auto` is `console` on a terminal and "
        "`json` elsewhere.",
    )
    watchdog_s: Duration = Field(
        default=120.0,
        alias="watchdog",
        ge=1.0,
        le=86400.0,
        description="The process ends itself (exit code 70) when the loop makes no progress for so long.",
    )
    stop_timeout_s: Duration = Field(
        default=8.0,
        alias="stop_timeout",
        ge=0.1,
        le=3600.0,
        description="How long finishing the batch may take after a request to stop. Below the supervisor's own limit.",
    )
    dead_letter_limit: Limit = Field(
        default=500,
        ge=1,
        description="The daemon halts, with its partitions in hand, when more than so many of the last "
        '`dead_letter_window` records of a topic would become dead letters: `"none"` to let any number pass.',
    )
    dead_letter_window: Whole = Field(
        default=1000, ge=1, le=1_000_000, description="How many records of a topic `dead_letter_limit` looks back at."
    )
    on_index_lost: Literal["fail", "continue", "rebuild"] = Field(
        default="fail",
        description="When more is committed than the index knows, because it is gone or has gone back in time: `fail` "
        "stops with advice, `rebuild` builds it anew from the topics before anything else, `continue` goes on with "
        "what is there and misses the pairs with what was lost.",
    )

    def checks(self) -> tuple[Check, ...]:
        """Return what looks for contradictions within the section."""
        return (*super().checks(), self._breaker)

    def _breaker(self) -> Iterator[tuple[str, str]]:
        if self.dead_letter_limit is not None and self.dead_letter_limit >= self.dead_letter_window:
            yield "dead_letter_limit", "must be below dead_letter_window, or it could never be passed"
