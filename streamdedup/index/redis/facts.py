"""Facts of the servers from their replies to ``INFO``; refuses servers that are not as in the settings.

Called by ``redis.backend``, ``redis.checks`` and ``redis.store``.
"""

from collections.abc import Mapping
from typing import Any

from redis import exceptions
from redis.sentinel import SentinelConnectionPool

from streamdedup.errors import StoreMisconfigured, StoreUnavailable
from streamdedup.index.redis.errors import is_untrusted, translated
from streamdedup.index.redis.servers import OneServer, Servers

#: Oldest server version, the first with NX and GET together in SET.
_OLDEST_VERSION = (7, 0)
#: The eviction policy that keeps every key, and the advice to set it.
_NO_EVICTION = "noeviction"
_POLICY_ADVICE = "set it to noeviction (CONFIG SET maxmemory-policy noeviction)"


def read_facts(servers: Servers) -> dict[str, dict[str, Any]]:
    """Return each master's reply to ``INFO``, by address, if the servers are as in the settings.

    Raises:
        StoreMisconfigured: A server is too old, a replica, a Sentinel or part of a cluster, against the settings; or no
            Sentinel knows the master.
        StoreUnavailable: A server does not answer, or is a replica after a failover.
    """
    if isinstance(servers, OneServer) and isinstance(servers.client.connection_pool, SentinelConnectionPool):
        _check_sentinels(servers.client.connection_pool)
    facts = servers.ask_masters("INFO")
    for info in facts.values():
        _check_kind(servers, info)
    return facts


def require_usable(servers: Servers) -> list[str]:
    """Raise unless each server is as in the settings, accepts writes and keeps every key; return warnings."""
    warnings: list[str] = []
    for name, info in read_facts(servers).items():
        warnings += policy_warnings(store_name(servers, name), info)
    return warnings


def software(info: Mapping[str, Any]) -> str:
    """Return product and version from a server's reply to ``INFO``."""
    valkey = info.get("valkey_version")
    return f"Valkey {valkey}" if valkey else f"Redis {info.get('redis_version')}"


def store_name(servers: Servers, address: str) -> str:
    """Return the noun phrase for a master; cluster masters are named by their addresses."""
    return f"the store {address}" if servers.mode == "cluster" else "the store"


def _check_kind(servers: Servers, info: Mapping[str, Any]) -> None:
    version = str(info.get("redis_version", "0"))
    if "sentinel_masters" in info:
        raise StoreMisconfigured('redis.url names a Sentinel; name it in redis.nodes, with redis.mode = "sentinel"')
    if tuple(int(part) for part in version.split(".")[:2] if part.isdigit()) < _OLDEST_VERSION:
        raise StoreMisconfigured(f"the store runs Redis {version}; streamdedup needs 7.0 or newer, or Valkey")
    # In the reverse case the client has raised an error already (``errors._wrong_server``).
    if info.get("cluster_enabled") and servers.mode != "cluster":
        raise StoreMisconfigured('the store is part of a cluster; set redis.mode = "cluster" and redis.nodes')
    if info.get("role") == "slave":
        if servers.mode == "single":
            raise StoreMisconfigured("the store is a replica; redis.url must name the master")
        raise StoreUnavailable("the store's master has become a replica: a failover is under way")


def refuse_eviction(store: str, info: Mapping[str, Any]) -> None:
    """Raise if ``info``, the reply to ``INFO memory``, says that the server ``store`` drops keys when it is full."""
    policy = info.get("maxmemory_policy", _NO_EVICTION)
    if policy != _NO_EVICTION and info.get("maxmemory"):
        raise StoreMisconfigured(
            f"{store} would drop keys when full and pairs would be missed; its maxmemory-policy is {policy}: "
            f"{_POLICY_ADVICE}"
        )


def policy_warnings(store: str, info: Mapping[str, Any]) -> list[str]:
    """Raise if the server ``store`` drops keys when it is full; return a warning if only a memory limit is missing."""
    refuse_eviction(store, info)
    policy = info.get("maxmemory_policy", _NO_EVICTION)
    if policy == _NO_EVICTION:
        return []
    return [f"{store} would drop keys if a memory limit were set; its maxmemory-policy is {policy}: {_POLICY_ADVICE}"]


def _check_sentinels(pool: SentinelConnectionPool) -> None:
    """Raise unless the Sentinels know the master; a master that is away at the moment passes."""
    masters: set[str] = set()
    has_answer = False
    untrusted: exceptions.RedisError | None = None
    for sentinel in pool.sentinel_manager.sentinels:
        try:
            masters |= set(sentinel.sentinel_masters())
            has_answer = True
        except (exceptions.AuthenticationError, exceptions.NoPermissionError) as error:
            raise StoreMisconfigured(
                f"a Sentinel refuses us; check redis.sentinel_username and password: {error}"
            ) from error
        except exceptions.ResponseError as error:
            # All other errors say nothing about the master: the next Sentinel is asked.
            if "unknown command" in str(error).lower():
                raise StoreMisconfigured("redis.nodes names a server that is no Sentinel") from error
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            if is_untrusted(error):
                untrusted = error
    if untrusted is not None and not has_answer:
        with translated():
            raise untrusted
    if has_answer and pool.service_name not in masters:
        names = ", ".join(sorted(masters)) or "none"
        raise StoreMisconfigured(f"redis.sentinel_service: no Sentinel knows {pool.service_name}; they know: {names}")
