"""Redis servers: one server, a master that Sentinel names, or the masters in a cluster (``redis.cluster_servers``).

All modules of ``index.redis`` send their commands through ``Servers``, and may ask its ``mode`` and
``connections.count``. A new ``redis.mode`` touches also ``redis.connection``, ``indexes`` and ``settings.redis``.

A call to a silent server takes one time-out for each try (``redis.connection.RETRIES``); see ``Settings.watchdog_s``.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Literal, NamedTuple

import redis
from redis import exceptions
from redis.sentinel import SentinelConnectionPool

from streamdedup.index.redis.errors import check_replies, translated


class Command(NamedTuple):
    """A command for the server that holds ``key``; all keys of the command share its hash slot."""

    key: bytes
    parts: Sequence[Any]


class Connections:
    """Counts the connections opened, and decides whether a refused login is final.

    For each new connection, a client of one server calls ``set_up_and_count`` in place of its own set-up, a cluster
    client ``count_connection`` after its own. ``login_source`` is the key of the setting from which each connection
    reads its login; None for a fixed login.
    """

    def __init__(self, login_source: str | None = None) -> None:
        self.count = 0
        self._login_source = login_source

    def new_login_setting(self) -> str | None:
        """Return the setting that will bring a new login after a refusal; None if the refusal is final.

        It is final for a fixed login, and before the first connection: the login was wrong from the beginning.
        """
        return self._login_source if self.count else None

    def set_up_and_count(self, connection: Any) -> None:
        """Set up a new connection of a client for one server."""
        # The client's own set-up, but without its health check, which would connect again and so call this method.
        connection.on_connect_check_health(check_health=False)
        self.count += 1

    def count_connection(self, _connection: Any) -> None:
        self.count += 1


class Servers(AbstractContextManager["Servers"]):
    """Sends commands to the servers; a context manager that closes the connections.

    Connects at the first use, and at the first use after ``close``. A command may reach a server twice, so each command
    must be repeatable. Methods raise ``StoreUnavailable`` when a server does not answer (some commands may have taken
    effect) and ``StoreMisconfigured`` when a server refuses the client for good.
    """

    connections: Connections
    mode: Literal["single", "sentinel", "cluster"]

    @abstractmethod
    def send_raw(self, commands: Sequence[Command]) -> list[Any]:
        """Send commands in one round trip and return their replies; commands in one hash slot are executed in order.

        Errors of servers are returned in their places, in a cluster also a failed connection to a node. With one server
        a failed connection raises.
        """

    @abstractmethod
    def ask_masters(self, *parts: Any) -> dict[str, Any]:
        """Send a command to the server, or to each master of a cluster with hash slots; return replies by address."""

    @abstractmethod
    def ask_master(self, address: str, *parts: Any) -> Any:
        """Send a command to the master at ``address``, a key of ``ask_masters``; a single server ignores it."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections; never raises."""

    def ask(self, key: bytes, *parts: Any) -> Any:
        return self.ask_many([Command(key, parts)])[0]

    def ask_many(self, commands: Sequence[Command]) -> list[Any]:
        """Do as ``send_raw``, and raise for the first error among the replies."""
        replies = self.send_raw(commands)
        check_replies(replies, [command.key for command in commands])
        return replies

    def __exit__(self, *_error: object) -> None:
        self.close()


class OneServer(Servers):
    """A single server, or the master that Sentinels name, or a replica of the master."""

    def __init__(self, client: redis.Redis, connections: Connections | None = None) -> None:
        self.client = client
        self.connections = connections or Connections()
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
        pool = self.client.connection_pool
        if isinstance(pool, SentinelConnectionPool):
            if pool.master_address is None:
                return f"the master of {pool.service_name}"
            return "{}:{}".format(*pool.master_address)
        options = pool.connection_kwargs
        return str(options["path"]) if "path" in options else f"{options.get('host')}:{options.get('port', 6379)}"
