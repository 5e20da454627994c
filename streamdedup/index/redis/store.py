"""The index in Redis (7.0 or newer) or Valkey, on one server or on a cluster.

Each step of a writing operation on a chunk is one script call (``redis.scripts``) for each slot of ``redis.keys``,
which is on one node of a cluster; not for each of the 16,384 hash slots of Redis Cluster. From 2,000 pairs or fields of
pending matches in a slot on, ``redis.pairs`` makes several calls.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from streamdedup.errors import IndexBusy, IndexMismatch
from streamdedup.index.redis.buckets import RedisBuckets
from streamdedup.index.redis.checks import policy_warnings
from streamdedup.index.redis.entries import RedisEntries
from streamdedup.index.redis.pairs import RedisPairs
from streamdedup.index.redis.partitions import RedisPartitions
from streamdedup.index.redis.servers import Command
from streamdedup.index.values import Fingerprint, Opening, StoreStats


class RedisIndex(RedisPartitions, RedisEntries, RedisBuckets, RedisPairs):
    """An ``Index`` in Redis: the parts, and ``StoreHealth``."""

    def open(self, fingerprint: Fingerprint, *, create: bool = True) -> Opening | None:
        key = self._keys.fingerprint
        # In one command: ``dropping`` without a lease is an interrupted deletion, whose remains a new index would take.
        lease, dropping = self._servers.ask(key, "MGET", self._keys.staging, self._keys.dropping)
        if lease is not None:
            raise IndexBusy(f"the index of {self.options.namespace} is being rebuilt or deleted")
        if dropping is not None and create:
            raise IndexMismatch(
                f"the deletion of {self.options.namespace} did not end; call again: streamdedup index drop, or "
                "Index.delete for the index of a program"
            )
        # Without ``create`` an interrupted deletion counts as no index: it began with the fingerprint.
        value = msgspec.json.encode(self.options.stored_fingerprint(fingerprint))
        if create and self._servers.ask(key, "SET", key, value, "NX"):
            return Opening(is_created=True)
        stored = self._servers.ask(key, "GET", key)
        return None if stored is None else self._compare_fingerprint(stored, fingerprint)

    def count_connections(self) -> int:
        return self._servers.connections.count

    def ping(self) -> None:
        self._servers.ask_masters("PING")
        # A replica answers PING too, but refuses to delete keys, also those that do not exist.
        guards = [self._keys.guard(slot) for slot in self._slots]
        self._servers.ask_many([Command(guard, ("UNLINK", guard)) for guard in guards])

    def stats(self) -> StoreStats:
        masters = self._servers.ask_masters("INFO", "memory")
        for name, info in masters.items():
            # Raises for a wrong policy, at every reading of the metrics: an operator may change it at any time.
            policy_warnings(f"the store {name}", info)
        return _fullest(masters.values())


def _fullest(masters: Iterable[Mapping[str, Any]]) -> StoreStats:
    """Return the fullest master's memory, from replies to ``INFO memory``: one full master holds up every batch."""
    stats = [StoreStats(info.get("used_memory"), info.get("maxmemory") or None) for info in masters]
    return max(stats, key=lambda master: (master.used_share, master.used_bytes or 0))
