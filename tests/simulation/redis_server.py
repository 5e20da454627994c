"""A real Redis in the place of the server in memory: the classes of ``index.redis`` and their Lua scripts.

The scheduler, the broker and the fates of calls are those of every history. Three things that a real server does not
do by the time of the history are done here: the lease on a rebuild ends by that time, a late call is the call of a
twin of its index, made before the call, and an earlier copy of the data consists of DUMPs.
"""

from collections.abc import Callable, Sequence
from copy import copy
from functools import partial
from typing import Any

import redis

from streamdedup.index.backend import IndexParameters
from streamdedup.index.redis.backend import RedisBackend, RedisOptions
from streamdedup.index.redis.servers import OneServer
from streamdedup.index.redis.staging import LEASE_MS, RedisStagingIndex
from streamdedup.index.values import Fingerprint
from tests.simulation.server import NUMBERED, SCRIPTS, Connection, ServedIndex, Server, Staging
from tests.simulation.simulation import Simulation
from tests.simulation.story import Setup
from tests.simulation.world import OPTIONS

#: The profile of all indexes.
PROFILE = "articles"


class RedisServer(Server):
    """A server whose data is in a database of Redis, which is emptied.

    Args:
        client: Client of the database.
        layout: Name of the bucket layout.
        now_ms: The time of the history.
    """

    def __init__(self, client: redis.Redis, layout: str, now_ms: Callable[[], int]) -> None:
        super().__init__(ServedIndex)
        self._client = client
        self._layout = layout
        self._now_ms = now_ms
        self._leases: dict[bytes, int] = {}  # end of the lease by key
        client.flushdb()

    def backend(self, prefix: str) -> RedisBackend:
        options = RedisOptions(prefix=prefix, address="redis", bucket_layout=self._layout)
        # Nothing expires: the server has its own time, not that of the history.
        parameters = IndexParameters(fingerprint={}, bands=OPTIONS.banding.bands, lifetime_ms=10**12, bucket_cap=None)
        return RedisBackend(OneServer(self._client), options, {PROFILE: parameters})

    def save(self, name: str) -> None:
        values = {key: (max(0, self._client.pttl(key)), self._client.dump(key)) for key in self._client.scan_iter()}
        self.copies[name] = {"values": values, "leases": dict(self._leases)}

    def go_back(self, name: str | None, *, restarts: bool = True) -> None:
        copied = {"values": {}, "leases": {}} if name is None else self.copies[name]
        self._client.flushdb()
        for key, value in copied["values"].items():
            self._client.restore(key, *value)
        self._leases = dict(copied["leases"])
        self.epoch += restarts

    def lease(self, key: bytes) -> None:
        """Let a lease, which has been taken or extended, end a minute from now by the time of the history."""
        self._leases[key] = self._now_ms() + LEASE_MS

    def answer(self, request: Callable[[], Any]) -> Any:
        """Answer a request; the leases whose time is over have ended before."""
        for key in [key for key, end_ms in self._leases.items() if end_ms <= self._now_ms()]:
            self._client.unlink(key)
            del self._leases[key]
        return request()


class RedisConnection(Connection):
    """The index of one process in Redis; the arguments are those of ``Connection``."""

    def __init__(self, server: RedisServer, prefix: str, *arguments: Any, in_staging: bool = False) -> None:
        super().__init__(server, prefix, *arguments, in_staging=in_staging)
        self._redis, self._backend = server, server.backend(prefix)
        self._staging = self._backend.staging(PROFILE) if in_staging else None
        self._data = self._backend.index(PROFILE) if self._staging is None else self._staging.store

    def staging(self) -> Any:
        assert self._staging is not None
        return RedisStaging(self._redis, self, self._staging)

    def inspector(self) -> Any:
        return self._backend.inspector(PROFILE)

    def configured(self, fingerprint: Fingerprint) -> Fingerprint:
        return self._data.options.stored_fingerprint(fingerprint)  # type: ignore[no-any-return]

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        twin = self._data
        if name in NUMBERED:
            twin = copy(self._data)
            twin._last_calls = dict(twin._last_calls)
        requests = [partial(getattr(index, name), *arguments, **named) for index in (self._data, twin)]
        return self.ask(name, *requests)

    def ask(self, name: str, request: Callable[[], Any], late: Callable[[], Any] | None = None) -> Any:
        return super().ask(name, *(call and partial(self._redis.answer, call) for call in (request, late)))

    def _fail(self, name: str) -> None:
        if name in SCRIPTS:
            self._data.forget_calls()
        super()._fail(name)


class RedisStaging(Staging):
    """A ``StagingIndex`` in Redis, with the effects of ``Staging``."""

    def __init__(self, server: RedisServer, store: RedisConnection, staging: RedisStagingIndex) -> None:
        super().__init__(store)
        self._server = server
        self._staging = staging

    def _take_lease(self) -> None:
        self._leased(self._staging.take_lease)

    def _clear(self, number: int, _parts: Sequence[str]) -> None:
        self._leased(self._staging.extend_lease if number else self._staging.clear)

    def extend_lease(self) -> None:
        self._server.answer(partial(self._leased, self._staging.extend_lease))

    def _complete(self, fingerprint: Fingerprint) -> None:
        self._staging.complete(fingerprint)

    def _abandon(self) -> None:
        self._server.answer(self._staging.abandon)

    def _leased(self, step: Callable[[], None]) -> None:
        step()
        self._server.lease(self._staging._keys.staging)


class RedisSimulation(Simulation):
    """A history whose indexes are in Redis."""

    make_connection = RedisConnection

    def __init__(self, setup: Setup, client: redis.Redis, layout: str) -> None:
        super().__init__(setup)
        self.server: RedisServer = RedisServer(client, layout, lambda: self.now_ms)
