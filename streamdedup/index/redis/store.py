"""The index in Redis (7.0 or newer) or Valkey, on one server or on a cluster.

Each writing operation is one script call per *slot* for a whole batch. A slot is the project's own partition of the
keys of an index, named in the hash tag (``redis.keys``), so that all keys of a call are on one server of a cluster; it
is not one of the 16,384 hash slots of Redis Cluster. ``RedisIndex`` joins the parts, one for each
Protocol of the contract: ``redis.partitions``, ``redis.entries``, ``redis.pairs``, ``redis.expiry`` and the two kinds
of buckets of ``redis.buckets``. Keys: ``redis.keys``. Scripts: ``redis.scripts`` and ``redis/lua``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamdedup.errors import IndexMismatch, StoreUnavailable
from streamdedup.index.documents import IndexEntry
from streamdedup.index.fingerprints import compare_fingerprints, decode_fingerprint, in_redis
from streamdedup.index.redis.buckets import LAYOUTS, BucketLayout, RedisBuckets, RedisCopies
from streamdedup.index.redis.entries import RedisEntries
from streamdedup.index.redis.expiry import RedisBacklog
from streamdedup.index.redis.keys import Keys, by_slot
from streamdedup.index.redis.pairs import RedisPairs
from streamdedup.index.redis.partitions import RedisPartitions
from streamdedup.index.redis.scripts import Call, ScriptRunner
from streamdedup.index.redis.servers import Command, Servers, refuse_eviction
from streamdedup.index.values import (
    Fence,
    Fingerprint,
    FoundNearCapacity,
    Hits,
    Opening,
    StoreStats,
    wall_clock_ms,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisIndexOptions:
    """Place and limits of an index in Redis, the same for all processes that use it.

    Attributes:
        namespace: Prefix and profile, joined by a colon; distinguishes this index from others on the servers.
        bands: Number of bands, at least 1.
        shards: Slots for each band; 1 except on a cluster.
        lifetime_ms: Time to live of index entries, members and pending matches after the last write, in milliseconds;
            None for ever. Claims live twice as long, at least.
        bucket_cap: Largest number of members of a bucket; None for no limit.
        bucket_layout: Layout of the buckets.
    """

    namespace: str
    bands: int
    shards: int = 1
    lifetime_ms: int | None = None
    bucket_cap: int | None = None
    bucket_layout: BucketLayout = LAYOUTS["sets"]

    def in_redis(self, fingerprint: Fingerprint) -> dict[str, object]:
        """Return the fingerprint that is stored: that of the settings, and the parameters that decide on the keys."""
        return in_redis(
            fingerprint, shards=self.shards, bucket_layout=self.bucket_layout.name, lifetime_ms=self.lifetime_ms
        )


class RedisIndex(RedisPartitions, RedisEntries, RedisPairs, RedisBacklog):
    """An ``Index`` in Redis. The parts share servers, keys and scripts.

    Each part implements one Protocol of the contract. The other parts make calls under fences by ``RedisPartitions``.

    Args:
        servers: Servers of the index.
        options: Place and limits of the index.
        in_staging: Whether this is the index of a ``StagingIndex``, into which a rebuild writes.
        now_ms: Clock, in milliseconds since the epoch.

    Attributes:
        options: As given.
    """

    def __init__(
        self,
        servers: Servers,
        options: RedisIndexOptions,
        *,
        in_staging: bool = False,
        now_ms: Callable[[], float] = wall_clock_ms,
    ) -> None:
        keys = Keys(options.namespace, options.bands, options.shards, in_staging=in_staging)
        runner, lifetime_ms = ScriptRunner(servers, keys.fingerprint), options.lifetime_ms
        RedisPartitions.__init__(self, servers, keys, runner)
        RedisEntries.__init__(self, servers, keys, runner, self, lifetime_ms)
        RedisPairs.__init__(self, servers, keys, runner, self, lifetime_ms)
        RedisBacklog.__init__(self, servers, keys, self, runner, self, lifetime_ms, now_ms)
        self.options = options
        self._buckets = RedisBuckets(
            options.bucket_layout,
            keys=keys,
            runner=runner,
            partitions=self,
            lifetime_ms=lifetime_ms,
            bucket_cap=options.bucket_cap,
        )
        self._copies = RedisCopies(servers, keys, runner, self, lifetime_ms)
        self._documents = DocumentCount(keys, lifetime_ms, now_ms)

    # Opening, numbers for metrics

    def open(self, fingerprint: Fingerprint, *, create: bool = True) -> Opening | None:
        """See ``StoreHealth.open``."""
        self._runner.load()
        key = self._keys.fingerprint
        # In one command, because a rebuild may end at any moment. The mark exists while an index is being deleted: by
        # `index drop`, which has no lease, or by a rebuild, which takes the lease before the deletion and holds it long
        # after. So a mark without a lease is that of an `index drop`, in progress or interrupted.
        lease, dropping = self._servers.ask(key, "MGET", self._keys.staging, self._keys.dropping)
        if lease is not None:
            raise StoreUnavailable(f"the index of {self.options.namespace} is being rebuilt")
        if dropping is not None and create:
            raise IndexMismatch(
                f"the deletion of {self.options.namespace} did not end; call again: streamdedup index drop, or "
                "Index.delete for the index of a program"
            )
        own = msgspec.json.encode(self.stored_fingerprint(fingerprint))
        created = self._servers.ask(key, "SET", key, own, "NX") if create else None
        if created:
            return Opening(created=True)
        stored = self._servers.ask(key, "GET", key)
        if stored is None:
            return None
        return compare_fingerprints(decode_fingerprint(key, stored), msgspec.json.decode(own))

    def stored_fingerprint(self, fingerprint: Fingerprint) -> dict[str, object]:
        """See ``RedisIndexOptions.in_redis``."""
        return self.options.in_redis(fingerprint)

    def connections_count(self) -> int:
        """See ``StoreHealth.connections_count``."""
        return self._servers.connections.count

    def ping(self) -> None:
        """See ``StoreHealth.ping``."""
        self._servers.on_masters("PING")

    def stats(self) -> StoreStats:
        """See ``StoreHealth.stats``."""
        masters = self._servers.on_masters("INFO", "memory")
        for name, info in masters.items():
            refuse_eviction(f"the store {name}", info)
        return _fullest(masters.values())

    def count_documents(self) -> int:
        """See ``StoreHealth.count_documents``."""
        return int(self._servers.ask_all([self._documents.count_command()])[0])

    def close(self) -> None:
        """See ``StoreHealth.close``."""
        self._servers.close()

    # Entries

    def replace_entries(self, entries: Sequence[IndexEntry], fences: Sequence[Fence]) -> None:
        """See ``EntryStore.replace_entries``."""
        # First a call without documents to the buckets of each slot; calls are numbered (rule 10 of `index.contract`).
        # A server that then goes back to an earlier state, without the removals from buckets in other slots, has lost
        # this call too, so the script refuses the entries.
        self._buckets.check_slots(by_slot(self._keys.entry_slot(entry.number) for entry in entries), fences)
        super().replace_entries(entries, fences)

    # Buckets

    def insert_and_look_up(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> Hits:
        """See ``BucketStore.insert_and_look_up``."""
        return self._buckets.insert(numbers, band_keys, fences, [self._documents.add_call(numbers)])

    def remove_from_buckets(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> None:
        """See ``BucketStore.remove_from_buckets``."""
        self._buckets.remove(numbers, band_keys, fences)

    def insert_copies(
        self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence], found: FoundNearCapacity | None = None
    ) -> list[list[int]]:
        """See ``BucketStore.insert_copies``."""
        return self._copies.insert(documents, fences, found)

    def remove_copies(self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence]) -> None:
        """See ``BucketStore.remove_copies``."""
        self._copies.remove(documents, fences)

    def copy_removals(self) -> dict[int, int]:
        """See ``BucketStore.copy_removals``."""
        return self._copies.count_removals()


#: Slices of a lifetime, each with its own count of 12 kB. Documents expire one by one but are counted until their slice
#: expires, at most an eighth of a lifetime later.
_SLICES_COUNT = 8


class DocumentCount:
    """Counts documents with HyperLogLogs of the server: standard error 0.81 %, one small command for a batch.

    Elements cannot be removed from a HyperLogLog, so each slice of time has its own, which expires after the last index
    entry of the slice.

    Args:
        keys: Keys of the index.
        lifetime_ms: Time to live of index entries after the last write, in milliseconds; None for ever.
        now_ms: Clock, in milliseconds since the epoch.
    """

    def __init__(self, keys: Keys, lifetime_ms: int | None, now_ms: Callable[[], float]) -> None:
        self._keys = keys
        self._slice_ms = max(1, lifetime_ms // _SLICES_COUNT) if lifetime_ms else 0
        self._now_ms = now_ms

    def add_call(self, numbers: Sequence[int]) -> Call:
        """Return the call that adds documents to the present slice."""
        lifetime_ms = (_SLICES_COUNT + 1) * self._slice_ms
        elements = np.array(numbers, ">i8").tobytes()
        return Call("count_documents", [self._keys.documents(self._slice())], [lifetime_ms, elements], len(numbers))

    def count_command(self) -> Command:
        """Return the command for the number of documents in all slices that have not expired."""
        now = self._slice()
        keys = [self._keys.documents(at) for at in range(now - (_SLICES_COUNT if self._slice_ms else 0), now + 1)]
        return Command(keys[0], ("PFCOUNT", *keys))

    def _slice(self) -> int:
        """Number of the present slice; 0 where entries never expire."""
        return int(self._now_ms() // self._slice_ms) if self._slice_ms else 0


def _fullest(masters: Iterable[Mapping[str, Any]]) -> StoreStats:
    """Return the memory of the fullest master: one full master holds up every batch.

    Args:
        masters: Reply to ``INFO memory`` of each master.
    """
    stats = [
        StoreStats(used_bytes=info.get("used_memory"), limit_bytes=info.get("maxmemory") or None) for info in masters
    ]
    return max(stats, key=lambda of: (_fullness(of), of.used_bytes or 0))


def _fullness(stats: StoreStats) -> float:
    return (stats.used_bytes or 0) / stats.limit_bytes if stats.limit_bytes else 0.0
