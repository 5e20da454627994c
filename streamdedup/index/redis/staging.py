"""The staging index in Redis: the keys of the index, with a lease instead of the fingerprint."""

import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from streamdedup.errors import BatchRefused, IndexBusy, StoreMisconfigured, TransientError
from streamdedup.index.redis.inspection import FENCE_KIND, kind_of, scan_keys
from streamdedup.index.redis.keys import Keys
from streamdedup.index.redis.scripts import Call, Scripts
from streamdedup.index.redis.servers import Command, Servers
from streamdedup.index.redis.store import RedisIndex
from streamdedup.index.values import Fingerprint

#: Length of the lease on a staging index, in milliseconds.
LEASE_MS = 60_000
_TAKEN_OVER = "the lease has ended, or the index was taken over by another process, which rebuilds or deletes it"

logger = logging.getLogger(__name__)


class RedisStagingIndex:
    """A ``StagingIndex``; ``store`` is made with ``in_staging=True``, ``on_keys`` is that of ``Backend.staging``."""

    def __init__(
        self, servers: Servers, store: RedisIndex, on_keys: Callable[[int], None] = lambda _count: None
    ) -> None:
        self.store = store
        self._servers = servers
        self._namespace = store.options.namespace
        self._keys = Keys(self._namespace, 1)  # one band is enough: all keys of a lease are in slot 0
        self._on_keys = on_keys
        self._name = secrets.token_hex(8).encode()
        self._scripts = Scripts(servers, self._keys.staging)

    def _run(self, script: str, keys: Sequence[bytes], arguments: Sequence[Any]) -> Any:
        (reply,) = self._scripts.run([Call(script, [self._keys.guard(0), *keys], list(arguments))])
        return reply

    def take_lease(self, *, only_to_delete: bool = False) -> None:
        key, arguments = self._keys.staging, [self._name, "NX", "PX", LEASE_MS]
        if only_to_delete:
            self._run("set_in_full_memory", [key], arguments)
        else:
            self._servers.ask(key, "SET", key, *arguments)
        if not self._has_lease():
            raise IndexBusy(f"the index of {self._namespace} is being rebuilt or deleted by another process")

    def _has_lease(self) -> bool:
        """Extend the lease; return whether this process has the lease."""
        return bool(self._run("extend_staging_lease", [self._keys.staging], [self._name, LEASE_MS]))

    def extend_lease(self) -> None:
        if not self._has_lease():
            raise BatchRefused(_TAKEN_OVER)

    def clear(self, tick: Callable[[], None] = lambda: None) -> int:
        # 0. A user without the right to scan is refused before the first change.
        self._servers.ask_masters("SCAN", 0, "COUNT", 1)
        # 1. No process opens the index any more. A daemon that has it open finds it lost at the first missing fence.
        deleted_count = self._delete([self._keys.fingerprint])
        # 2. The fences of all slots, so that a batch that misses an entry is refused.
        deleted_count += self._delete_scanned(tick, fences_only=True)
        # 3. All other keys, until a scan finds none: a scan misses keys, without an error, after a failover, a restart
        # or a move of a hash slot, because a cursor is a place in the table of one process.
        while count := self._delete_scanned(tick):
            deleted_count += count
        # 4. The deletion is complete.
        self._delete([], is_last=True)
        self.store.forget_calls()
        return deleted_count

    def _delete_scanned(self, tick: Callable[[], None], *, fences_only: bool = False) -> int:
        count, kept = 0, {self._keys.staging, self._keys.dropping}
        for scanned in scan_keys(self._servers, self._namespace):
            self.extend_lease()  # the deletion may take longer than the lease
            keys = [key for key in scanned if key not in kept and not (fences_only and kind_of(key) != FENCE_KIND)]
            count += self._delete(keys) if keys else 0
            self._on_keys(len(keys))
            tick()
        return count

    def _delete(self, keys: Sequence[bytes], *, is_last: bool = False) -> int:
        """Delete keys, atomically with a check of the lease; return how many keys existed.

        The key ``dropping`` exists from the first call until the last: ``RedisIndex.open`` refuses the remains of an
        interrupted deletion, which could be taken for a part of the next index.

        On a cluster only the fingerprint is deleted atomically: other keys are in other slots than the lease, which
        ``_delete_scanned`` has extended. A process that is frozen in between for longer than the lease
        deletes up to 1,000 keys of the next index.
        """
        lease, dropping = self._keys.staging, self._keys.dropping
        if self._servers.mode == "cluster" and not {self._keys.fingerprint}.issuperset(keys):
            self._run("set_in_full_memory", [dropping], ["1"])
            return sum(self._servers.ask_many([Command(key, ("UNLINK", key)) for key in keys]))
        deleted = self._run("delete_in_staging", [lease, dropping, *keys], [self._name, int(is_last)])
        if deleted < 0:
            raise BatchRefused(_TAKEN_OVER)
        return int(deleted)

    def complete(self, fingerprint: Fingerprint) -> None:
        # Encoded as by ``RedisIndex.open``.
        value = msgspec.json.encode(self.store.options.stored_fingerprint(fingerprint))
        if not self._run("complete_staging", [self._keys.staging, self._keys.fingerprint], [self._name, value]):
            raise BatchRefused(_TAKEN_OVER)

    def abandon(self) -> None:
        try:
            if self._has_lease():
                self._servers.ask(self._keys.staging, "UNLINK", self._keys.staging)
        except (TransientError, StoreMisconfigured) as error:
            # Without the deletion the lease ends after a minute.
            logger.info("The lease on a staging index was left", extra={"event": "staging_left", "error": repr(error)})
