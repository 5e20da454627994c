"""Opens connections to a single server, to Sentinels or to a cluster; ``indexes`` makes the arguments from settings.

``security`` and ``sentinel_security`` are the client's arguments for login and TLS. Nothing is sent before the first
request. With ``from_replicas`` requests go to replicas if there are any: only for commands that read.
"""

import importlib
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import redis
from redis import exceptions
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff
from redis.cluster import ClusterNode, LoadBalancingStrategy, RedisCluster
from redis.credentials import CredentialProvider
from redis.retry import Retry
from redis.sentinel import Sentinel, SentinelConnectionPool

from streamdedup.errors import SettingsError
from streamdedup.index.redis.cluster_servers import ClusterServers
from streamdedup.index.redis.servers import Connections, OneServer, Servers

#: Repetitions of a request, and the pauses before them in seconds.
RETRIES = 2
BACKOFF = ExponentialWithJitterBackoff(base=0.02, cap=0.3)
#: Idle time in seconds after which a connection is checked before its next use.
_IDLE_S = 30


def connect(
    url: str, *, security: Mapping[str, Any] | None = None, timeout_s: float = 2.0, connect_timeout_s: float = 1.0
) -> Servers:
    """Connect to a single server by a URL that ``settings.redis.url_mistake`` accepts; ``security`` overrides it."""
    connections = _new_connections(security)
    client = redis.Redis.from_url(url, **_of_one_server(connections, security, timeout_s, connect_timeout_s))
    return OneServer(client, connections)


def _of_one_server(
    connections: Connections, security: Mapping[str, Any] | None, timeout_s: float, connect_timeout_s: float
) -> dict[str, Any]:
    return {
        # Called for each new connection, in place of the client's own set-up.
        "redis_connect_func": connections.set_up_and_count,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": connect_timeout_s,
        "health_check_interval": _IDLE_S,
        "retry": Retry(BACKOFF, RETRIES),
        **(security or {}),
    }


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
    """Connect to the master that Sentinels name, or to a replica; ``checks.read_facts`` takes that for a failover."""
    # Each try of a request asks each Sentinel once, until one answers. ``timeout_s`` is for scripts.
    sentinel_arguments = {
        "socket_timeout": connect_timeout_s,
        "socket_connect_timeout": connect_timeout_s,
        "retry": Retry(NoBackoff(), 0),
        **(sentinel_security or {}),
    }
    connections = _new_connections(security)
    manager: Any = Sentinel(list(sentinels), sentinel_kwargs=sentinel_arguments)
    client: redis.Redis = (manager.slave_for if from_replicas else manager.master_for)(
        service, redis_class=_SentinelClient, **_of_one_server(connections, security, timeout_s, connect_timeout_s)
    )
    return OneServer(client, connections)


def _new_connections(security: Mapping[str, Any] | None) -> Connections:
    provider = (security or {}).get("credential_provider")
    return Connections(login_source=provider.source if isinstance(provider, RenewedLogin) else None)


class _SentinelClient(redis.Redis):
    """A client that also closes the connections to the Sentinels."""

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
    """Connect to a Redis Cluster, of which ``nodes`` are some."""
    connections = _new_connections(security)

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


class RenewedLogin(CredentialProvider):
    """A login that changes while the process runs; ``source`` names its setting.

    The client reads it whenever it connects, also after a server has closed a connection or refused a command.
    """

    def __init__(self, source: str, read: Callable[[], tuple[str, ...]]) -> None:
        self.source = source
        self._read = read

    def get_credentials(self) -> tuple[str] | tuple[str, str]:
        """Return a password, or user and password; without any raise ``ConnectionError``: the daemon tries again.

        The text repeats no error of a provider, which could show a secret.
        """
        try:
            login: Any = tuple(self._read())
        except SettingsError as error:  # the file of ``source`` cannot be read
            raise exceptions.ConnectionError(f"{self.source}: {error}") from None
        except Exception as error:  # noqa: BLE001  a provider may raise anything, such as the error of its server
            raise exceptions.ConnectionError(f"{self.source} gives no login: {type(error).__name__}") from None
        if not 1 <= len(login) <= 2 or not all(isinstance(part, str) for part in login):
            raise exceptions.ConnectionError(f"{self.source} gives no login: neither a password nor user and password")
        result: tuple[str] | tuple[str, str] = login
        return result


def login_of_provider(name: str) -> RenewedLogin:
    """Return the login of a credential provider of the client, named by ``redis.credential_provider``.

    ``package:function`` names a function that returns the provider; it is called at the first login.
    """

    @cache
    def provider() -> Any:
        module, _, function = name.partition(":")
        return getattr(importlib.import_module(module), function)()

    return RenewedLogin("redis.credential_provider", lambda: provider().get_credentials())
