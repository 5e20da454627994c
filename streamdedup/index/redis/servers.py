"""Redis servers: one server, a master that Sentinel names, or the masters in a cluster.

All modules of ``index.redis`` send their commands through ``Servers``, and may ask its ``mode`` and
``connections.count``. Besides this module, only ``redis.connection``, ``redis.credentials`` and ``redis.errors`` use
more of redis-py than its exceptions. The daemon's loop repeats a batch whose call fails. A new ``redis.mode`` touches
also ``redis.connection``, ``indexes`` and ``settings.redis``.

A call waits for a bounded time. A single server, or the master that Sentinels name, takes one time-out for each try
(``redis.connection.RETRIES``). A cluster that is silent as a whole takes one for each node; ``Settings.watchdog_s``
allows 12. A cluster that is silent in part takes up to three for each silent node, because redis-py asks for the map of
the hash slots again.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal, NamedTuple, Self

import redis
from redis import exceptions
from redis.cluster import ClusterNode, PipelineCommand, RedisCluster
from redis.sentinel import SentinelConnectionPool

from streamdedup.errors import StoreMisconfigured
from streamdedup.index.redis.errors import check_replies, translated

#: The eviction policy that keeps every key, and the advice to set it.
NO_EVICTION = "noeviction"
POLICY_ADVICE = "set it to noeviction (CONFIG SET maxmemory-policy noeviction)"
#: Replies after which a command is sent to a cluster once more, with a new map of the hash slots. AskError is not among
#: them: while a hash slot moves, the map stays the same.
_STALE_MAP = (exceptions.MovedError, exceptions.ClusterDownError, exceptions.ConnectionError)


class Command(NamedTuple):
    """A command for the server that holds ``key``; all keys of the command share its hash slot."""

    key: bytes
    parts: Sequence[Any]


class ConnectionHistory:
    """Counts the connections opened, and decides whether a refused login is final.

    ``redis.connection`` passes ``set_up_and_count`` or ``count_connection`` to the client as ``redis_connect_func``,
    which the client calls for each new connection.

    Args:
        login_source: Key of the setting from which each connection reads its login; None for a fixed login.

    Attributes:
        count: Connections opened so far.
    """

    def __init__(self, login_source: str | None = None) -> None:
        self.count = 0
        self._login_source = login_source

    def new_login_setting(self) -> str | None:
        """Return the setting that will bring a new login after a refusal; None if the refusal is final.

        A refusal is final for a fixed login, and before the first connection: the login was wrong from the beginning.
        After other refusals the daemon waits for a new login (``errors.translated``).
        """
        return self._login_source if self.count else None

    def set_up_and_count(self, connection: Any) -> None:
        """Set up a new connection of a client for one server, as the client would, and count the connection."""
        # Without a health check, which would open a connection before this one is set up, and so on without end.
        connection.on_connect_check_health(check_health=False)
        self.count += 1

    def count_connection(self, _connection: Any) -> None:
        """Count a connection that a cluster client has set up itself."""
        self.count += 1


class Servers(ABC):
    """Sends commands to the servers; a context manager that closes the connections.

    Connects at the first use, and at the first use after ``close``. A command may reach a server twice, so each command
    must be repeatable.

    Methods raise ``StoreUnavailable`` when a server does not answer (some commands may have taken effect) and
    ``StoreMisconfigured`` when a server refuses the client for good.

    ``mode`` is the setting ``redis.mode``.
    """

    connections: ConnectionHistory
    mode: Literal["single", "sentinel", "cluster"]

    @abstractmethod
    def send_raw(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip and return their replies; commands in one hash slot are executed in order.

        An error reply of a server is returned in its place. A failure of a connection is raised, or, in a cluster,
        returned in place of each reply that is lost.
        """

    @abstractmethod
    def ask_masters(self, *parts: Any) -> dict[str, Any]:
        """Send a command to the one server, or each master of a cluster with hash slots; return replies by address."""

    @abstractmethod
    def ask_master(self, address: str, *parts: Any) -> Any:
        """Send one command to the master at an address from ``ask_masters``."""

    @abstractmethod
    def close(self) -> None:
        """Close all connections; never raises."""

    def ask(self, key: bytes, *parts: Any) -> Any:
        return self.ask_many([Command(key, parts)])[0]

    def ask_many(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip and return their replies; raise for the first error among them."""
        replies = self.send_raw(commands)
        check_replies(replies, [command.key for command in commands])
        return replies

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class OneServer(Servers):
    """A single server, or the master that Sentinels name, or a replica of that master.

    ``client`` must not decode replies; ``connections`` counts the connections that the client opens.
    """

    def __init__(self, client: redis.Redis, connections: ConnectionHistory | None = None) -> None:
        self.client = client
        self.connections = connections or ConnectionHistory()
        self.mode = "sentinel" if isinstance(client.connection_pool, SentinelConnectionPool) else "single"

    def send_raw(self, commands: Sequence[Command]) -> list[Any]:
        pipeline: Any = self.client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command.parts)
        with self._requesting():
            replies: list[Any] = pipeline.execute(raise_on_error=False)
        if any(isinstance(reply, exceptions.ReadOnlyError) for reply in replies):
            # The master has become a replica, which keeps its connections: the next call looks up the address again.
            self.client.connection_pool.disconnect()
        return replies

    def ask_masters(self, *parts: Any) -> dict[str, Any]:
        with self._requesting():
            reply = self.client.execute_command(*parts)
        return {self._address(): reply}

    def ask_master(self, address: str, *parts: Any) -> Any:  # noqa: ARG002  there is only one
        with self._requesting():
            return self.client.execute_command(*parts)

    @contextmanager
    def _requesting(self) -> Iterator[None]:
        """Translate errors; close the connection when a signal handler interrupts the request, as by Ctrl-C."""
        with translated(self._address, self.connections.new_login_setting):
            try:
                yield
            except exceptions.RedisError:
                raise
            except BaseException:
                # With Sentinels redis-py 8.1 keeps the connection, and each later call would get an earlier reply.
                self.client.connection_pool.disconnect()
                raise

    def close(self) -> None:
        self.client.close()

    def _address(self) -> str:
        """Return the server address; a Sentinel client has no address before its first connection."""
        pool = self.client.connection_pool
        if isinstance(pool, SentinelConnectionPool):
            if pool.master_address is None:
                return f"the master of {pool.service_name}"
            return "{}:{}".format(*pool.master_address)
        options = pool.connection_kwargs
        return str(options["path"]) if "path" in options else f"{options.get('host')}:{options.get('port', 6379)}"


#: A node of a cluster, and name and arguments of a command for the node.
_Addressed = tuple[ClusterNode, Sequence[Any]]


class ClusterServers(Servers):
    """The masters in a Redis Cluster; each command goes to the master that has its key.

    This class finds the nodes itself. The client would follow a moving hash slot to unknown nodes, and would ask the
    server which arguments of each script are keys, so that every batch would be sent twice.

    Args:
        open_client: Makes a client, which connects at once.
        from_replicas: Whether ``send_raw`` uses a replica if there is any; commands must only read.
    """

    mode = "cluster"

    def __init__(
        self,
        open_client: Callable[[], RedisCluster],
        connections: ConnectionHistory | None = None,
        *,
        from_replicas: bool = False,
    ) -> None:
        self._open_client = open_client
        self._from_replicas = from_replicas
        self.connections = connections or ConnectionHistory()
        self._client: RedisCluster | None = None
        #: Whether the last call ended with a time-out: a replica may have taken the place of the silent master.
        self._has_timed_out = False

    def send_raw(self, commands: Sequence[Command]) -> list[Any]:
        if not commands:
            return []
        replies = self._exchange(
            lambda client: [(self._node_of(client, command.key), command.parts) for command in commands]
        )
        return [reply for _, reply in replies]

    def _node_of(self, client: RedisCluster, key: bytes) -> ClusterNode:
        replica: ClusterNode | None = client.get_node_from_key(key, replica=True) if self._from_replicas else None
        if replica is not None:
            return replica
        master: ClusterNode = client.get_node_from_key(key)
        return master

    def ask_masters(self, *parts: Any) -> dict[str, Any]:
        replies = self._exchange(lambda client: [(master, parts) for master in client.get_primaries()])
        check_replies([reply for _, reply in replies])
        return {master.name: reply for master, reply in replies}

    def ask_master(self, address: str, *parts: Any) -> Any:

        def choose_nodes(client: RedisCluster) -> list[_Addressed]:
            for master in client.get_primaries():
                if master.name == address:
                    return [(master, parts)]
            # Translated to `StoreUnavailable`: a failover is under way.
            raise exceptions.MasterDownError(f"{address} is no master of the cluster any more")

        ((_, reply),) = self._exchange(choose_nodes)
        check_replies([reply])
        return reply

    def close(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def _exchange(self, choose_nodes: Callable[[RedisCluster], list[_Addressed]]) -> list[tuple[ClusterNode, Any]]:
        """Return node and reply for each command, errors among the replies.

        All commands are sent once more when a hash slot has moved or a node is gone, not after a time-out.
        ``choose_nodes`` returns the commands, each with its node in the client's present map of the hash slots.
        """
        with translated(new_login_setting=self.connections.new_login_setting):
            try:
                client = self._client_with_map()
                replies = _try_once(client, choose_nodes)
                if replies is None:
                    client.nodes_manager.initialize()
                    replies = _round_trip(client, choose_nodes(client))
            except exceptions.TimeoutError:
                # A new map takes up to one time-out for each node. The next call asks for it, after a step of the loop.
                self._has_timed_out = True
                raise
            except exceptions.RedisClusterException:
                # No node gives the map of the hash slots. The next call begins with the nodes of the settings.
                self.close()
                raise
            except IndexError as error:
                # redis-py 8.1 takes the first master of a map without any.
                self.close()
                raise exceptions.RedisClusterException(
                    "no node that answers knows a hash slot; create the cluster (redis-cli --cluster create)"
                ) from error
            return replies

    def _client_with_map(self) -> RedisCluster:
        """Return the client, after a time-out with a new map of the hash slots."""
        if self._client is None:
            self._client = self._open_client()
        elif self._has_timed_out:
            self._client.nodes_manager.initialize()
        self._has_timed_out = False
        return self._client


def _try_once(
    client: RedisCluster, choose_nodes: Callable[[RedisCluster], list[_Addressed]]
) -> list[tuple[ClusterNode, Any]] | None:
    """Return node and reply for each command; None if the commands may succeed with a new map of the hash slots."""
    try:
        replies = _round_trip(client, choose_nodes(client))
    except exceptions.AuthenticationError:  # also a ConnectionError, but a new map does not help
        raise
    except (exceptions.ConnectionError, exceptions.SlotNotCoveredError):
        return None
    return None if any(isinstance(reply, _STALE_MAP) for _, reply in replies) else replies


def _round_trip(client: RedisCluster, addressed: Sequence[_Addressed]) -> list[tuple[ClusterNode, Any]]:
    """Write to all nodes, then read from all; return nodes and replies in order, errors among them.

    Raises ``exceptions.TimeoutError``, with the name of a silent node, where a reply is missing.
    """
    stack = [
        PipelineCommand(parts, {"target_nodes": node}, command_number)
        for command_number, (node, parts) in enumerate(addressed)
    ]
    nodes = [node for node, _ in addressed]
    pipeline: Any = client.pipeline()
    try:
        replies: list[Any] = pipeline.send_cluster_commands(stack, raise_on_error=False, allow_redirections=False)
    except exceptions.TimeoutError as error:
        # The error does not say to which of the nodes the client was connecting.
        raise _with_node_names(error, nodes) from error
    for node, reply in zip(nodes, replies, strict=True):
        if isinstance(reply, exceptions.TimeoutError):
            raise _with_node_names(reply, [node])
    return list(zip(nodes, replies, strict=True))


def _with_node_names(error: exceptions.TimeoutError, nodes: Iterable[ClusterNode]) -> exceptions.TimeoutError:
    """Return the error of a time-out, whose text has no address (redis-py 8.1), with the names of the nodes."""
    return exceptions.TimeoutError(f"{error} ({' or '.join(sorted({node.name for node in nodes}))})")


def refuse_eviction(store: str, info: Mapping[str, Any]) -> None:
    """Raise if ``info``, the reply to ``INFO memory``, says that the server ``store`` drops keys when it is full."""
    policy = info.get("maxmemory_policy", NO_EVICTION)
    if policy != NO_EVICTION and info.get("maxmemory"):
        raise StoreMisconfigured(
            f"{store} would drop keys when full and pairs would be missed; its maxmemory-policy is {policy}: "
            f"{POLICY_ADVICE}"
        )
