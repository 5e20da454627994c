"""The index in Redis (7.0 or newer) or Valkey, on one server or on a cluster.

Every operation is one script per slot for a whole batch. Names of keys: ``index.redis.keys``. Buckets and their
layouts: ``index.redis.buckets``. Scripts: ``index/redis/lua``.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamdedup.errors import IndexMismatch, StoreUnavailable
from streamdedup.index.documents import MARKER_LIFETIME_MS, IndexEntry, InsertResult, InsertState, PendingMatches
from streamdedup.index.entries import (
    decode_entry,
    decode_pending,
    encode_entry,
    encode_number,
    encode_pending,
    encode_place,
)
from streamdedup.index.fingerprints import compare_fingerprints, decode_fingerprint, in_redis
from streamdedup.index.redis.buckets import LAYOUTS, BucketLayout, RedisBuckets
from streamdedup.index.redis.claims import RedisClaims
from streamdedup.index.redis.copies import RedisCopies
from streamdedup.index.redis.errors import damage_translated
from streamdedup.index.redis.expiry import RedisBacklog
from streamdedup.index.redis.keys import Keys, by_slot
from streamdedup.index.redis.partitions import RedisPartitions
from streamdedup.index.redis.runner import Call, ScriptRunner, pairs_of, portions
from streamdedup.index.redis.servers import Command, Servers, refuse_eviction
from streamdedup.index.redis.statistics import DocumentCount, fullest
from streamdedup.index.values import (
    UNKNOWN_LOG,
    Fence,
    Fingerprint,
    FoundNearCapacity,
    Hits,
    Listed,
    LogState,
    Opening,
    PartitionState,
    StoreStats,
    wall_clock_ms,
)
from streamdedup.position import Log, Partition, Position


class RedisIndex:
    """A ``Index`` on Redis.

    Args:
        servers: Where to keep it.
        namespace: Prefix and profile, joined by a colon: what keeps this index apart from others.
        bands: Bands of the banding, at least 1.
        shards: Slots for each band; 1 but on a cluster.
        lifetime_ms: How long index entries and pending matches live after they were last written; None for ever. Claims
            live twice as long, at least.
        bucket_cap: Most members of a bucket; None for no limit.
        bucket_layout: How buckets are stored.
        draft: Whether this is the store of a ``StagingIndex``.
        now_ms: The clock, in milliseconds.
    """

    def __init__(  # noqa: PLR0913  each decides where an index is, how long it keeps and how much
        self,
        servers: Servers,
        *,
        namespace: str,
        bands: int,
        shards: int = 1,
        lifetime_ms: int | None = None,
        bucket_cap: int | None = None,
        bucket_layout: BucketLayout = LAYOUTS["sets"],
        draft: bool = False,
        now_ms: Callable[[], float] = wall_clock_ms,
    ) -> None:
        self._servers = servers
        self._shards = shards
        self._bucket_layout = bucket_layout
        self._lifetime_ms = lifetime_ms
        self._namespace = namespace
        self._keys = Keys(namespace, bands, shards, in_staging=draft)
        self._documents = DocumentCount(self._keys, lifetime_ms, now_ms)
        self._lifetime = str(lifetime_ms or 0).encode()
        self._runner = ScriptRunner(servers, self._keys.fingerprint)
        self._partitions = RedisPartitions(servers, self._keys, self._runner)
        self._buckets = RedisBuckets(
            bucket_layout,
            keys=self._keys,
            runner=self._runner,
            partitions=self._partitions,
            lifetime_ms=lifetime_ms,
            bucket_cap=bucket_cap,
        )
        self._copies = RedisCopies(servers, self._keys, self._runner, self._partitions, self._lifetime)
        self._claims = RedisClaims(servers, self._keys, self._runner, self._partitions, lifetime_ms)
        self._backlog = RedisBacklog(
            servers, self._keys, self._claims, self._runner, self._partitions, lifetime_ms, now_ms
        )

    def _fenced_call(self, name: str, slot: int, fences: Sequence[Fence], arguments: Iterable[Any]) -> Call:
        return self._partitions.fenced_call(name, slot, fences, arguments)

    # The contract

    def open(self, fingerprint: Fingerprint, *, create: bool = True) -> Opening | None:
        """See ``StoreHealth.open``."""
        self._runner.load()
        key = self._keys.fingerprint
        # In this order: whoever rebuilds an index deletes the old one while the draft stands.
        is_half_dropped = self._servers.ask(key, "EXISTS", self._keys.dropping)
        if self._servers.ask(key, "EXISTS", self._keys.draft):
            raise StoreUnavailable(f"the index of {self._namespace} is being rebuilt")
        if is_half_dropped and create:
            raise IndexMismatch(f"the deletion of {self._namespace} did not end; call again: streamdedup index drop")
        ours = msgspec.json.encode(self.stored_fingerprint(fingerprint))
        created = self._servers.ask(key, "SET", key, ours, "NX") if create else None
        if created:
            return Opening(created=True)
        stored = self._servers.ask(key, "GET", key)
        if stored is None:
            return None
        return compare_fingerprints(decode_fingerprint(key, stored), msgspec.json.decode(ours))

    def stored_fingerprint(self, fingerprint: Fingerprint) -> dict[str, object]:
        """Return the fingerprint that is stored: that of the settings, and the parameters that decide on the keys."""
        return in_redis(
            fingerprint, shards=self._shards, bucket_layout=self._bucket_layout.name, lifetime_ms=self._lifetime_ms
        )

    def fence(
        self, partition: Partition, generation: int, committed: int, attempt_id: str = "", state: LogState = UNKNOWN_LOG
    ) -> Fence:
        """See ``PartitionStore.fence``."""
        return self._partitions.fence(partition, generation, committed, attempt_id, state)

    def partition_states(self, partitions: Sequence[Partition]) -> dict[Partition, PartitionState]:
        """See ``PartitionStore.partition_states``."""
        return self._partitions.partition_states(partitions)

    def save_read_start(self, read_start: str, fence: Fence) -> None:
        """See ``PartitionStore.save_read_start``."""
        self._partitions.save_read_start(read_start, fence)

    def announce(self, attempt_id: str, fences: Sequence[Fence]) -> None:
        """See ``PartitionStore.announce``."""
        self._partitions.announce(attempt_id, fences)

    def settle(self, draft: str, notes: Mapping[Partition, str], fences: Sequence[Fence]) -> None:
        """See ``StagingIndex.settle``; ``draft`` names it."""
        self._partitions.settle(draft, notes, fences)

    def unfence(self, partition: Partition) -> None:
        """See ``PartitionStore.unfence``."""
        self._partitions.unfence(partition)

    def insert_entries(self, records: Sequence[IndexEntry], fences: Sequence[Fence]) -> list[InsertResult]:
        """See ``EntryStore.insert_entries``."""
        results = [InsertResult(InsertState.CREATED)] * len(records)
        groups, replies = self._store_records("insert_entries", [self._lifetime], records, fences)
        for members, (states, *stored) in zip(groups, replies, strict=True):
            if not any(states):
                continue
            previous = dict(zip(stored[::2], stored[1::2], strict=True))
            for at, (index, state) in enumerate(zip(members.tolist(), states, strict=True), start=1):
                if state != InsertState.CREATED:
                    data, number = previous.get(at), records[index].number
                    with damage_translated():
                        stored_entry = None if data is None else decode_entry(number, data)
                    results[index] = InsertResult(InsertState(state), stored_entry)
        return results

    def replace_entries(self, records: Sequence[IndexEntry], fences: Sequence[Fence]) -> None:
        """See ``EntryStore.replace_entries``."""
        marker_lifetime = self._lifetime if self._lifetime != b"0" else b"%d" % MARKER_LIFETIME_MS
        # First a call that changes nothing. A server that goes back in time now, and forgets in other slots that
        # documents have left their buckets, forgets this one too and refuses the records (rule 10).
        slots = by_slot(self._keys.record_slot(record.number) for record in records)
        self._buckets.removing_none(slots, fences)
        self._store_records("replace_entries", [self._lifetime, marker_lifetime], records, fences)

    def _store_records(
        self, script: str, lifetimes: Sequence[bytes], records: Sequence[IndexEntry], fences: Sequence[Fence]
    ) -> tuple[list[NDArray[np.intp]], list[Any]]:
        """Call a script; return which of the records went into each call, and the replies."""
        numbers = np.array([record.number for record in records], np.int64)
        groups = self._keys.by_record_slot(numbers)
        calls = []
        for slot, members in groups:
            entries = [encode_entry(records[index]) for index in members.tolist()]
            lengths = np.array([len(entry) for entry in entries], ">u4")
            packed = (numbers[members].astype(">i8").tobytes(), lengths.tobytes(), b"".join(entries))
            call = self._fenced_call(script, slot, fences, [self._keys.records(slot), *lifetimes, *packed])
            calls.append(call._replace(documents_count=len(entries)))
        return [members for _, members in groups], self._runner.run(calls)

    def insert_and_look_up(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> Hits:
        """See ``Index.insert_and_look_up``."""
        return self._buckets.insert(numbers, band_keys, fences, [self._documents.adding(numbers)])

    def remove_from_buckets(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> None:
        """See ``Index.remove_from_buckets``."""
        self._buckets.remove(numbers, band_keys, fences)

    def remove_copies(self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence]) -> None:
        """See ``Index.remove_copies``."""
        self._copies.leave(documents, fences)

    def copy_removals(self) -> dict[int, int]:
        """See ``Index.copy_removals``."""
        return self._copies.copy_removals()

    def insert_copies(
        self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence], found: FoundNearCapacity | None = None
    ) -> list[list[int]]:
        """See ``Index.insert_copies``."""
        return self._copies.enter(documents, fences, found)

    def get_entries(self, numbers: Sequence[int]) -> dict[int, IndexEntry]:
        """See ``EntryStore.get_entries``."""
        distinct = list(dict.fromkeys(numbers))
        groups = by_slot(self._keys.record_slot(number) for number in distinct)
        keys = [[self._keys.record(distinct[index]) for index in members] for members in groups.values()]
        replies = self._servers.ask_all([Command(of_slot[0], ("MGET", *of_slot)) for of_slot in keys])
        found = {}
        with damage_translated():
            for members, values in zip(groups.values(), replies, strict=True):
                for index, value in zip(members, values, strict=True):
                    if value is not None:
                        found[distinct[index]] = decode_entry(distinct[index], value)
        return found

    def read_entries(self, numbers: Sequence[int], limit_bytes: int) -> dict[int, IndexEntry | None]:
        """See ``EntryStore.read_entries``."""
        groups = by_slot(self._keys.record_slot(number) for number in numbers)
        limit = max(1, limit_bytes // max(1, len(groups)))
        calls: list[Call] = [
            Call("read_entries", [self._keys.record(numbers[index]) for index in members], [limit])
            for members in groups.values()
        ]
        read: dict[int, IndexEntry | None] = {}
        replies = self._runner.run(calls)
        with damage_translated():
            for members, reply in zip(groups.values(), replies, strict=True):
                # The reply ends where the limit was reached.
                for index, value in zip(members, reply, strict=False):
                    read[numbers[index]] = None if value is None else decode_entry(numbers[index], value)
        return read

    def save_pending_matches(
        self, pending: Sequence[tuple[Position, PendingMatches]], fences: Sequence[Fence]
    ) -> list[PendingMatches]:
        """See ``PairStore.save_pending_matches``."""
        encoded = [encode_pending(new) for _, new in pending]
        groups = [
            (slot, part)
            for slot, members in by_slot(self._keys.partner_slot(position) for position, _ in pending).items()
            for part in portions(members, [len(encoded[index]) for index in members])
        ]
        calls = []
        for slot, members in groups:
            arguments: list[Any] = [self._keys.partners(slot), self._lifetime]
            for index in members:
                arguments += (pending[index][0].key, len(encoded[index]), *chain.from_iterable(encoded[index].items()))
            calls.append(self._fenced_call("save_pending_matches", slot, fences, arguments))
        saved = [new for _, new in pending]
        replies = self._runner.run(calls)
        with damage_translated():
            for (_, members), reply in zip(groups, replies, strict=True):
                for index, flat in zip(members, reply, strict=True):
                    fields = pairs_of(flat)
                    # Decoded only where an earlier attempt has saved more.
                    if fields != encoded[index]:
                        saved[index] = decode_pending(fields)
        return saved

    def claim_pairs(
        self,
        claims: Sequence[tuple[bytes, Position]],
        fences: Sequence[Fence],
        extended: Sequence[tuple[bytes, Position]] = (),
    ) -> list[bool]:
        """See ``PairStore.claim_pairs``."""
        return self._claims.claim_pairs(claims, fences, extended)

    def count_claims(self) -> int:
        """See ``StoreHealth.count_claims``."""
        return self._claims.count_claims()

    def set_clusters(self, clusters: Sequence[tuple[int, Position, int]], fences: Sequence[Fence]) -> None:
        """See ``EntryStore.set_clusters``."""
        groups = by_slot(self._keys.record_slot(number) for number, _, _ in clusters)
        calls = []
        for slot, members in groups.items():
            arguments = [self._keys.records(slot)]
            for index in members:
                number, position, cluster = clusters[index]
                arguments += (encode_number(number), encode_place(position), encode_number(cluster))
            calls.append(self._fenced_call("set_clusters", slot, fences, arguments))
        self._runner.run(calls)

    def finish(
        self, committed: Mapping[Partition, int], positions: Sequence[Position], fences: Sequence[Fence]
    ) -> None:
        """See ``PartitionStore.finish``."""
        # Partners first: whoever dies in between leaves a mark from which the next daemon knows where to look.
        self._partitions.drop_pending_matches(positions)
        self._partitions.raise_marks(committed, fences)

    def is_late(self, time_ms: int) -> bool:
        """See ``BacklogStore.is_late``."""
        return self._backlog.is_late(time_ms)

    def list_expiring(self, listed: Listed, fences: Sequence[Fence]) -> None:
        """See ``BacklogStore.list_expiring``."""
        self._backlog.list_expiring(listed, fences)

    def watermarks(self) -> dict[Partition, int]:
        """See ``BacklogStore.watermarks``."""
        return self._backlog.watermarks()

    def set_watermarks(
        self, watermarks: Mapping[Partition, int], fences: Sequence[Fence], *, extend: bool
    ) -> dict[Partition, int]:
        """See ``BacklogStore.set_watermarks``."""
        return self._backlog.set_watermarks(watermarks, fences, extend=extend)

    def expired(self, logs: Sequence[Log], watermark_ms: int, count: int) -> list[Listed]:
        """See ``BacklogStore.expired``."""
        return self._backlog.expired(logs, watermark_ms, count)

    def evict(self, listed: Listed, fence: Fence) -> None:
        """See ``BacklogStore.evict``."""
        self._backlog.evict(listed, fence)

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
        return fullest(masters.values())

    def count_documents(self) -> int:
        """See ``StoreHealth.count_documents``."""
        return int(self._servers.ask_all([self._documents.asking()])[0])

    def close(self) -> None:
        """See ``StoreHealth.close``."""
        self._servers.close()
