"""The staging index in Redis: it has the keys of the index, and a lease instead of the fingerprint.

``RedisBackend.staging`` makes it for ``daemon.rebuild``. Scripts: ``set_in_full_memory``, ``extend_staging_lease``,
``delete_in_staging``. Read ``index.staging`` first, its contract.
"""

import logging
import secrets
from collections.abc import Callable, Sequence

import msgspec

from streamdedup.errors import BatchRefused, IndexBusy, StoreMisconfigured, TransientError
from streamdedup.index.redis.admin import RedisUpkeep
from streamdedup.index.redis.keys import Keys
from streamdedup.index.redis.scripts import Call, ScriptRunner
from streamdedup.index.redis.servers import Servers
from streamdedup.index.redis.store import RedisIndex
from streamdedup.index.values import Fingerprint

#: Length of the lease on a staging index, in milliseconds.
LEASE_MS = 60_000
_TAKEN_OVER = "the lease has ended, or the index was taken over by another process, which rebuilds or deletes it"

logger = logging.getLogger(__name__)


class RedisStagingIndex:
    """A ``StagingIndex`` in Redis.

    ``store`` must be made with ``in_staging=True``; ``on_keys`` gets the number of keys deleted since its last call.
    """

    def __init__(
        self, servers: Servers, store: RedisIndex, on_keys: Callable[[int], None] = lambda _count: None
    ) -> None:
        self.store = store
        self._servers = servers
        self._namespace = store.options.namespace
        self._keys = Keys(self._namespace, 1)  # one band is enough: all keys of a lease are in slot 0
        self._on_keys = on_keys
        self._name = secrets.token_hex(8).encode()
        self._runner = ScriptRunner(servers, self._keys.staging)
        self._upkeep = RedisUpkeep(servers, self._namespace)

    def take_lease(self, *, only_to_delete: bool = False) -> None:
        key, arguments = self._keys.staging, [self._name, "NX", "PX", LEASE_MS]
        if only_to_delete:
            (is_taken,) = self._runner.run([Call("set_in_full_memory", [self._keys.guard(0), key], arguments)])
        else:
            is_taken = self._servers.ask(key, "SET", key, *arguments)
        # An existing key may be the lease of this process, which is then extended.
        if not (is_taken or self._extend_or_complete()):
            raise IndexBusy(f"the index of {self._namespace} is being rebuilt or deleted by another process")

    def clear(self, tick: Callable[[], None] = lambda: None) -> int:

        def deleted(count: int) -> None:
            self.extend_lease()  # the deletion may take longer than the lease
            self._on_keys(count)
            tick()

        count = self._upkeep.drop(deleted, self._delete, lease_key=self._keys.staging)
        self.store.forget_calls()
        return count

    def _delete(self, keys: Sequence[bytes], is_last: bool) -> int:
        """Delete keys as ``RedisUpkeep.delete``, in one atomic step with the check of the lease.

        On a cluster the two are separate steps, because the keys are in other slots than the lease. A process that is
        frozen in between for longer than the lease deletes up to 1,000 keys of an index that another process has built.
        """
        if self._servers.mode == "cluster":
            self.extend_lease()
            return self._upkeep.delete(keys, is_last)
        declared = [self._keys.guard(0), self._keys.staging, self._keys.dropping, *keys]
        (deleted,) = self._runner.run([Call("delete_in_staging", declared, [self._name, int(is_last)])])
        if deleted < 0:
            raise BatchRefused(_TAKEN_OVER)
        return int(deleted)

    def _extend_or_complete(self, fingerprint: bytes = b"") -> bool:
        """Extend the lease, or complete the index if there is a fingerprint; return whether this process has the lease.

        A repeated completion returns True, although the lease is given up.
        """
        keys = [self._keys.guard(0), self._keys.staging, self._keys.fingerprint]
        (has_lease,) = self._runner.run([Call("extend_staging_lease", keys, [self._name, LEASE_MS, fingerprint])])
        return bool(has_lease)

    def extend_lease(self) -> None:
        if not self._extend_or_complete():
            raise BatchRefused(_TAKEN_OVER)

    def complete(self, fingerprint: Fingerprint) -> None:
        # Encoded as by ``RedisIndex.open``.
        if not self._extend_or_complete(msgspec.json.encode(self.store.options.stored_fingerprint(fingerprint))):
            raise BatchRefused(_TAKEN_OVER)

    def abandon(self) -> None:
        try:
            if self._extend_or_complete():
                self._servers.ask(self._keys.staging, "UNLINK", self._keys.staging)
        except (TransientError, StoreMisconfigured) as error:
            # Without the deletion the lease ends after a minute.
            logger.info("The lease on a staging index was left", extra={"event": "staging_left", "error": repr(error)})
