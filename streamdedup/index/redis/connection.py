"""Opens connections to a single server, to Sentinels or to a cluster, and checks the servers.

Called by ``indexes``, which opens connections, and by ``redis.backend`` and ``redis.checks``, which check the servers.
``redis.servers`` sends the commands. An argument for the client comes from a setting: ``settings.redis``, ``indexes``.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import redis
from redis import exceptions
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.cluster import ClusterNode, LoadBalancingStrategy, RedisCluster
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from streamdedup.errors import StoreMisconfigured, StoreUnavailable
from streamdedup.index.redis.credentials import RenewedLogin
from streamdedup.index.redis.errors import is_untrusted, translated
from streamdedup.index.redis.servers import (
    NO_EVICTION,
    POLICY_ADVICE,
    ClusterServers,
    ConnectionHistory,
    OneServer,
    Servers,
    refuse_eviction,
)

#: Oldest server version, the first with NX and GET together in SET.
_OLDEST_VERSION = (7, 0)
#: Repetitions of a request within a call, and the pauses before them in seconds.
RETRIES = 2
BACKOFF = ExponentialWithJitterBackoff(base=0.02, cap=0.3)
#: Idle time in seconds after which a connection is checked before its next use.
_IDLE_S = 30


def connect(
    url: str, *, security: Mapping[str, Any] | None = None, timeout_s: float = 2.0, connect_timeout_s: float = 1.0
) -> Servers:
    """Return the connection to a single server; nothing is sent yet.

    ``url`` is one that ``settings.redis.url_mistake`` accepts. ``security`` are the client's arguments for login and
    TLS, which take precedence over those in the URL.
    """
    connections = _connections(security)
    client = redis.Redis.from_url(
        url,
        # Called for each new connection, in place of the client's own set-up.
        redis_connect_func=connections.set_up_and_count,
        socket_timeout=timeout_s,
        socket_connect_timeout=connect_timeout_s,
        health_check_interval=_IDLE_S,
        retry=Retry(BACKOFF, RETRIES),
        **(security or {}),
    )
    return OneServer(client, connections)


def connect_sentinel(
    sentinels: Sequence[tuple[str, int]],
    service: str,
    *,
    security: Mapping[str, Any] | None = None,
    sentinel_security: Mapping[str, Any] | None = None,
    from_replicas: bool = False,
    timeout_s: float = 2.0,
    connect_timeout_s: float = 1.0,
) -> Servers:
    """Return the connection to the master that Sentinels name, or to a replica of it; nothing is sent yet.

    ``security`` and ``sentinel_security`` are the client's arguments for login and TLS. With ``from_replicas`` the
    connection is to a replica if there is any: for commands that only read, and not for ``read_facts`` and
    ``require_usable``, which take a replica for a failover. ``connect_timeout_s`` also limits the answer of a Sentinel.
    """
    times = {"socket_timeout": timeout_s, "socket_connect_timeout": connect_timeout_s}
    # Each Sentinel is asked once: if it does not answer, the client asks the next. Each try of a request asks all of
    # them, and a longer ``timeout_s`` is for scripts, which Sentinels do not run.
    sentinel_arguments = {
        "socket_timeout": connect_timeout_s,
        "socket_connect_timeout": connect_timeout_s,
        "retry": Retry(NoBackoff(), 0),
        **(sentinel_security or {}),
    }
    connections = _connections(security)
    manager: Any = Sentinel(list(sentinels), sentinel_kwargs=sentinel_arguments)
    client: redis.Redis = (manager.slave_for if from_replicas else manager.master_for)(
        service,
        redis_class=_SentinelClient,
        health_check_interval=_IDLE_S,
        retry=Retry(BACKOFF, RETRIES),
        redis_connect_func=connections.set_up_and_count,
        **times,
        **(security or {}),
    )
    return OneServer(client, connections)


def _connections(security: Mapping[str, Any] | None) -> ConnectionHistory:
    provider = (security or {}).get("credential_provider")
    return ConnectionHistory(login_source=provider.source if isinstance(provider, RenewedLogin) else None)


class _SentinelClient(redis.Redis):
    """A client for the master that Sentinels name, or for replicas; closes the connections to the Sentinels too."""

    def close(self) -> None:
        super().close()
        pool = self.connection_pool
        if isinstance(pool, SentinelConnectionPool):
            pool.sentinel_manager.close()


def connect_cluster(
    nodes: Sequence[tuple[str, int]],
    *,
    security: Mapping[str, Any] | None = None,
    from_replicas: bool = False,
    timeout_s: float = 2.0,
    connect_timeout_s: float = 1.0,
) -> Servers:
    """Return the connection to a Redis Cluster; nothing is sent yet.

    ``nodes`` are host and port of some nodes, from which the client learns the others. Further arguments: see
    ``connect_sentinel``.
    """
    connections = _connections(security)

    def open_client() -> RedisCluster:
        return RedisCluster(
            startup_nodes=[ClusterNode(host, port) for host, port in nodes],
            # ``ClusterServers`` repeats commands itself.
            retry=Retry(NoBackoff(), 0),
            # Hash slots without a master may be outside the index.
            require_full_coverage=False,
            # Makes each connection begin with READONLY; ``ClusterServers`` chooses the nodes itself.
            load_balancing_strategy=LoadBalancingStrategy.RANDOM_REPLICA if from_replicas else None,
            # A cluster client sets up its connections itself, then calls this function.
            redis_connect_func=connections.count_connection,
            socket_timeout=timeout_s,
            socket_connect_timeout=connect_timeout_s,
            **(security or {}),
        )

    return ClusterServers(open_client, connections, from_replicas=from_replicas)


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


def policy_warnings(store: str, info: Mapping[str, Any]) -> list[str]:
    """Raise if the server ``store`` drops keys when it is full; return a warning if only a memory limit is missing."""
    refuse_eviction(store, info)
    policy = info.get("maxmemory_policy", NO_EVICTION)
    if policy == NO_EVICTION:
        return []
    return [f"{store} would drop keys if a memory limit were set; its maxmemory-policy is {policy}: {POLICY_ADVICE}"]


def _check_sentinels(pool: SentinelConnectionPool) -> None:
    """Raise unless the Sentinels know the master; a master that is away at the moment passes."""
    masters: set[str] = set()
    answers_count = 0
    untrusted: exceptions.RedisError | None = None
    for sentinel in pool.sentinel_manager.sentinels:
        try:
            masters |= set(sentinel.sentinel_masters())
            answers_count += 1
        except (exceptions.AuthenticationError, exceptions.NoPermissionError) as error:
            raise StoreMisconfigured(
                f"a Sentinel refuses us; check redis.sentinel_username and password: {error}"
            ) from error
        except exceptions.ResponseError as error:
            # All other error replies say nothing about the master: the next Sentinel is asked.
            if "unknown command" in str(error).lower():
                raise StoreMisconfigured("redis.nodes names a server that is no Sentinel") from error
        except (exceptions.ConnectionError, exceptions.TimeoutError) as error:
            if is_untrusted(error):
                untrusted = error
            continue  # the next Sentinel is asked
    if untrusted is not None and not answers_count:
        with translated():
            raise untrusted
    if answers_count and pool.service_name not in masters:
        names = ", ".join(sorted(masters)) or "none"
        raise StoreMisconfigured(f"redis.sentinel_service: no Sentinel knows {pool.service_name}; they know: {names}")
