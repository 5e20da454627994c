"""The section ``[service]``."""

from typing import Literal

from pydantic import Field

from streamdedup.settings.base import Section
from streamdedup.settings.hosts import Host
from streamdedup.settings.kinds import Limit, Whole


class Service(Section):
    """Metrics and logs of the daemon, and its reactions to dead letters and a lost index."""

    metrics_host: Host = "127.0.0.1"
    """Address of `/metrics`, `/livez` and `/readyz`; `0.0.0.0` for all addresses of this machine."""
    metrics_port: Whole = Field(default=9464, ge=0, le=65535)
    """Port of `metrics_host`; with 0 the system chooses one."""
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Lowest level to log; of the clients of Kafka and Redis, whose logs contain passwords, never below `warning`."""
    dead_letter_limit: Limit = Field(default=500, ge=1, lt=1000)
    """The daemon [halts](operating.md#the-dead-letter-breaker-has-opened) when more than this many of the last 1,000
    records of a topic would become dead letters."""
    on_index_lost: Literal["fail", "continue", "rebuild"] = "rebuild"
    """Reaction to an index that [lacks committed documents](operating.md#the-index-is-lost): `rebuild` rebuilds it from
    the topics, `fail` stops with advice, `continue` keeps the rest and misses pairs with lost documents."""
