"""The masters of a Redis Cluster as ``Servers``.

A call to a cluster of which no node answers takes one time-out for each node. If only some nodes are silent, it takes
up to three for each of them, because redis-py asks for the map again. ``Settings.watchdog_s`` leaves 12 time-outs.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from redis import exceptions
from redis.cluster import ClusterNode, PipelineCommand, RedisCluster

from streamdedup.index.redis.errors import check_replies, translated
from streamdedup.index.redis.servers import Command, Connections, Servers

#: Replies that show an outdated map of the hash slots: all commands are sent once more, with a new map. Not `AskError`,
#: the base class of `MovedError`: while a hash slot moves, the map is still right.
_STALE_MAP = (exceptions.MovedError, exceptions.ClusterDownError, exceptions.ConnectionError)

#: A node of a cluster, and name and arguments of a command for the node.
_Addressed = tuple[ClusterNode, Sequence[Any]]


class ClusterServers(Servers):
    """Sends each command to the master that has its key.

    With ``from_replicas`` the commands of ``send_raw`` go to a replica if there is one, and must only read;
    ``ask_masters`` and ``ask_master`` never ask a replica.

    This class finds the nodes itself. The client would follow a moving hash slot to unknown nodes, and would ask the
    server which arguments of each script are keys, so that every batch would be sent twice.

    ``open_client`` makes a client, which connects at once.
    """

    mode = "cluster"

    def __init__(
        self,
        open_client: Callable[[], RedisCluster],
        connections: Connections | None = None,
        *,
        from_replicas: bool = False,
    ) -> None:
        self._open_client = open_client
        self._from_replicas = from_replicas
        self.connections = connections or Connections()
        self._client: RedisCluster | None = None
        #: Whether the last call ended with a time-out: a replica may have taken the place of the silent master.
        self._has_timed_out = False

    def send_raw(self, commands: Sequence[Command]) -> list[Any]:
        if not commands:
            return []
        exchanged = self._exchange(lambda client: [(self._node_of(client, key), parts) for key, parts in commands])
        return [reply for _, reply in exchanged]

    def _node_of(self, client: RedisCluster, key: bytes) -> ClusterNode:
        replica = client.get_node_from_key(key, replica=True) if self._from_replicas else None
        node: ClusterNode = replica or client.get_node_from_key(key)
        return node

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
        """Return node and reply for each command of ``choose_nodes``, errors among the replies.

        All commands are sent once more when a hash slot has moved or a node is gone, not after a time-out.
        """
        with translated(new_login_setting=self.connections.new_login_setting):
            try:
                client = self._client_with_map()
                replies = _round_trip_unless_stale(client, choose_nodes)
                if replies is None:
                    client.nodes_manager.initialize()
                    replies = _round_trip(client, choose_nodes(client))
            except exceptions.TimeoutError:
                # The next call asks for a new map, for up to one time-out for each node (``Settings.watchdog_s``).
                self._has_timed_out = True
                raise
            except exceptions.RedisClusterException:
                # No node gives the map. The next call begins with the nodes of the settings.
                self.close()
                raise
            except IndexError as error:
                # redis-py 8.1, for a map without masters: it takes the first of an empty list.
                self.close()
                raise exceptions.RedisClusterException(
                    "no node that answers knows a hash slot; create the cluster (redis-cli --cluster create)"
                ) from error
            return replies

    def _client_with_map(self) -> RedisCluster:
        """Return the open client; if the last call ended with a time-out, with a new map of the hash slots."""
        if self._client is None:
            self._client = self._open_client()
        elif self._has_timed_out:
            self._client.nodes_manager.initialize()
        self._has_timed_out = False
        return self._client


def _round_trip_unless_stale(
    client: RedisCluster, choose_nodes: Callable[[RedisCluster], list[_Addressed]]
) -> list[tuple[ClusterNode, Any]] | None:
    """Return node and reply for each command; None if the client's map of the hash slots is out of date."""
    try:
        replies = _round_trip(client, choose_nodes(client))
    except exceptions.AuthenticationError:  # also a ConnectionError, but a new map does not help
        raise
    except (exceptions.ConnectionError, exceptions.SlotNotCoveredError):
        return None
    return None if any(isinstance(reply, _STALE_MAP) for _, reply in replies) else replies


def _round_trip(client: RedisCluster, addressed: Sequence[_Addressed]) -> list[tuple[ClusterNode, Any]]:
    """Write to all nodes, then read from all; raise a ``TimeoutError`` with the name of a silent node."""
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
