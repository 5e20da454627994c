"""Open a connection to Redis and look whether the server will do."""

from collections.abc import Mapping
from typing import Any

import redis
from redis.backoff import ExponentialWithJitterBackoff
from redis.retry import Retry

from streamdedup.errors import SettingsError, StoreMisconfigured
from streamdedup.store.redis_errors import translated

#: Oldest server version: SET with NX and GET together came with it.
_OLDEST_VERSION = (7, 0)
#: Retries inside the client; waiting for a server that is away is the loop's business.
_CLIENT_RETRIES = 2


def connect(
    url: str,
    *,
    security: Mapping[str, Any] | None = None,
    timeout_s: float = 2.0,
    connect_timeout_s: float = 1.0,
) -> "redis.Redis":
    """Make a client; nothing is sent yet.

    Args:
        url: ``redis://``, ``rediss://`` or ``unix://``.
        security: The client's own arguments for login and TLS; they take precedence over the URL's.
        timeout_s: How long a reply may take.
        connect_timeout_s: How long connecting may take.

    Raises:
        SettingsError: The URL cannot be used.
    """
    try:
        return redis.Redis.from_url(
            url,
            socket_timeout=timeout_s,
            socket_connect_timeout=connect_timeout_s,
            health_check_interval=30,
            retry=Retry(ExponentialWithJitterBackoff(base=0.02, cap=0.3), _CLIENT_RETRIES),
            **(security or {}),
        )
    except ValueError as error:
        raise SettingsError("redis.url: must begin with redis://, rediss:// or unix:// and name a server") from error


def check_server(client: "redis.Redis") -> list[str]:
    """Look whether the server is recent enough and keeps what it is given.

    Returns:
        Warnings for the operator, possibly none.

    Raises:
        StoreMisconfigured: It is too old, a replica, or evicts keys.
        StoreUnavailable: It does not answer.
    """
    with translated():
        info: dict[str, Any] = client.info()
    version = str(info.get("redis_version", "0"))
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < _OLDEST_VERSION:
        raise StoreMisconfigured(f"the store runs Redis {version}; streamdedup needs 7.0 or newer, or Valkey")
    if info.get("role") == "slave":
        raise StoreMisconfigured("the store is a replica; redis.url must name the master")
    policy = info.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        advice = f"maxmemory-policy is {policy}: set it to noeviction (CONFIG SET maxmemory-policy noeviction)"
        if info.get("maxmemory"):
            raise StoreMisconfigured(f"the store would drop keys when full and pairs would be missed; its {advice}")
        return [f"the store would drop keys if a memory limit were set; its {advice}"]
    return []
