"""The index in memory: the specification that the Redis store is tested against, and the store of ``scan``.

Every method does in plain Python what the contract in ``index.contract`` says.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from random import Random
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from streamdedup.errors import BatchRefused, IndexLost, StoreUnavailable
from streamdedup.index.documents import (
    MARKER_LIFETIME_MS,
    RETURNING_STATES,
    IndexEntry,
    InsertResult,
    InsertState,
    PendingMatches,
    decide_version,
)
from streamdedup.index.expiry_lists import MemoryExpiryLists
from streamdedup.index.fingerprints import compare_fingerprints
from streamdedup.index.reading import hits_of_members
from streamdedup.index.values import (
    COPIES_CAP,
    SHOWN_OF_FULL,
    UNKNOWN_LOG,
    Fence,
    Fingerprint,
    FoundNearCapacity,
    Hits,
    Listed,
    ListedClaim,
    ListedDocument,
    LogState,
    Opening,
    PartitionState,
    StoreStats,
    by_log,
    claim_lifetime,
    is_late,
    is_recreated,
    wall_clock_ms,
)
from streamdedup.position import Log, Partition, Position

K = TypeVar("K")
V = TypeVar("V")

_NEVER = float("inf")


class _Expiring(Generic[K, V]):
    """A dictionary whose entries vanish a fixed time after they were set or kept alive."""

    def __init__(self, lifetime_ms: int | None, now_ms: Callable[[], float]) -> None:
        self._lifetime_ms = lifetime_ms
        self._now_ms = now_ms
        self._entries: dict[K, tuple[V, float]] = {}

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, expiry = entry
        if expiry != _NEVER and expiry <= self._now_ms():
            del self._entries[key]
            return None
        return value

    def set(self, key: K, value: V, lifetime_ms: int | None = None) -> None:
        """Set an entry; ``lifetime_ms`` is for one that must not live for ever where the others do."""
        lifetime_ms = lifetime_ms if self._lifetime_ms is None else self._lifetime_ms
        self._entries[key] = (value, _NEVER if lifetime_ms is None else self._now_ms() + lifetime_ms)

    def amend(self, key: K, value: V) -> None:
        """Change a value without prolonging its life."""
        self._entries[key] = (value, self._entries[key][1])

    def all_keys(self) -> list[K]:
        return list(self._entries)

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)

    def __len__(self) -> int:
        now = self._now_ms()
        return sum(expiry > now for _, expiry in self._entries.values())


class _Claim(NamedTuple):
    """A claim: the position that owns it, and the last one that has asked for it."""

    owner: Position
    last: Position


class MemoryIndex:
    """A ``Index`` in this process's memory.

    Args:
        lifetime_ms: How long index entries and pending matches live after they were last written; None for ever. Claims
            live twice as long.
        bucket_cap: Most members of a bucket; None for no limit.
        now_ms: The clock, in milliseconds.

    Attributes:
        builder: The draft that is to take this index's place, while there is one.
        connections: Raised by tests in which the index goes back in time.
    """

    def __init__(
        self,
        *,
        lifetime_ms: int | None = None,
        bucket_cap: int | None = None,
        now_ms: Callable[[], float] = wall_clock_ms,
    ) -> None:
        self._made_with: dict[str, Any] = {"lifetime_ms": lifetime_ms, "bucket_cap": bucket_cap, "now_ms": now_ms}
        self._bucket_cap = bucket_cap
        self._lifetime_ms = lifetime_ms
        self._now_ms = now_ms
        # Chooses the members of a full bucket that a look-up shows; no secret depends on it.
        self._random = Random()  # noqa: S311
        self.builder: object | None = None
        self.connections = 0
        self._fingerprint: Fingerprint | None = None
        self._fences: dict[Partition, int] = {}
        self._marks: dict[Partition, int] = {}
        #: Incarnation and id of the topic that a mark belongs to.
        self._incarnations: dict[Partition, tuple[int, str]] = {}
        self._earlier_topic_ids: dict[Partition, set[str]] = {}
        self._announced: dict[Partition, str] = {}
        self._read_starts: dict[Partition, str] = {}
        self._records: _Expiring[int, IndexEntry] = _Expiring(lifetime_ms, now_ms)
        self._buckets: _Expiring[tuple[int, int], dict[int, None]] = _Expiring(lifetime_ms, now_ms)
        self._copies: _Expiring[bytes, dict[int, None]] = _Expiring(lifetime_ms, now_ms)
        self._departures_count = 0
        self._last_departures: dict[bytes, int] = {}
        self._claims: _Expiring[bytes, _Claim] = _Expiring(claim_lifetime(lifetime_ms), now_ms)
        self._pending_matches: _Expiring[Position, PendingMatches] = _Expiring(lifetime_ms, now_ms)
        self._documents_listed: MemoryExpiryLists[ListedDocument] = MemoryExpiryLists(lifetime_ms, now_ms)
        self._claims_listed: MemoryExpiryLists[ListedClaim] = MemoryExpiryLists(lifetime_ms, now_ms)
        self._watermarks: _Expiring[None, dict[Partition, int]] = _Expiring(lifetime_ms, now_ms)

    def emptied(self) -> "MemoryIndex":
        """Return a store that was made as this one was."""
        return MemoryIndex(**self._made_with)

    def become(self, other: "MemoryIndex") -> None:
        """Take over all that another store has."""
        self.__dict__.update({**other.__dict__, "connections": self.connections})

    def drop_fingerprint(self) -> None:
        """Be an index of which nobody knows any more what it was built with."""
        self._fingerprint = None

    def open(self, fingerprint: Fingerprint, *, create: bool = True) -> Opening | None:
        """See ``StoreHealth.open``."""
        if self.builder is not None:
            raise StoreUnavailable("the index is being rebuilt")
        if self._fingerprint is None:
            if not create:
                return None
            self._fingerprint = dict(fingerprint)
            return Opening(created=True)
        return compare_fingerprints(self._fingerprint, fingerprint)

    def fence(
        self, partition: Partition, generation: int, committed: int, attempt_id: str = "", state: LogState = UNKNOWN_LOG
    ) -> Fence:
        """See ``PartitionStore.fence``."""
        if self._fingerprint is None:
            raise IndexLost("the index is gone")
        stored = self._fences.get(partition)
        if stored is not None and stored > generation:
            raise BatchRefused(f"{partition} is fenced by generation {stored}, ours is {generation}")
        self._fences[partition] = generation
        if not attempt_id:
            if stored is None:
                self._announced.pop(partition, None)
        elif self._announced.get(partition, "") < attempt_id:
            raise IndexLost(f"the index has gone back to an earlier time: it lacks what is committed of {partition}")
        if state.topic_id in self._earlier_topic_ids.get(partition, ()):
            raise BatchRefused(f"{partition} was polled before its topic was deleted and created again")
        recreated = self._note_incarnation(partition, state)
        self._marks[partition] = max(self._marks.get(partition, 0), committed)
        incarnation, _ = self._incarnations[partition]
        for position in self._pending_matches.all_keys():
            if position.of == partition and (position.incarnation != incarnation or position.offset < committed):
                self._pending_matches.drop(position)
        return Fence(partition, generation, self._marks[partition], attempt_id, incarnation, recreated)

    def _note_incarnation(self, partition: Partition, state: LogState) -> bool:
        """Count an incarnation where the topic was created again; return whether it was."""
        incarnation, topic_id = self._incarnations.get(partition, (0, ""))
        mark = self._marks.get(partition)
        recreated = mark is not None and is_recreated(mark, topic_id, state)
        if recreated:
            incarnation += 1
            if topic_id and state.topic_id not in {"", topic_id}:
                self._earlier_topic_ids.setdefault(partition, set()).add(topic_id)
            del self._marks[partition]
            (self._watermarks.get(None) or {}).pop(partition, None)
        self._incarnations[partition] = incarnation, state.topic_id or topic_id
        return recreated

    def partition_states(self, partitions: Sequence[Partition]) -> dict[Partition, PartitionState]:
        """See ``PartitionStore.partition_states``."""
        if self._fingerprint is None:
            return dict.fromkeys(partitions, PartitionState(None))
        return {
            each: PartitionState(self._marks.get(each), self._announced.get(each, ""), self._read_starts.get(each, ""))
            for each in partitions
        }

    def save_read_start(self, read_start: str, fence: Fence) -> None:
        """See ``PartitionStore.save_read_start``."""
        self._check([fence])
        self._read_starts[fence.partition] = read_start

    def announce(self, attempt_id: str, fences: Sequence[Fence]) -> None:
        """See ``PartitionStore.announce``."""
        self._check(fences)
        for fence in fences:
            announced = self._announced.get(fence.partition, "")
            if announced < fence.attempt_id:
                raise IndexLost("the index has gone back to an earlier time")
            self._announced[fence.partition] = max(announced, attempt_id)

    def unfence(self, partition: Partition) -> None:
        """See ``PartitionStore.unfence``."""
        self._fences.pop(partition, None)

    def _check(self, fences: Sequence[Fence]) -> None:
        for fence in fences:
            stored = self._fences.get(fence.partition)
            if self._fingerprint is None:
                raise IndexLost("the index is gone")
            if stored is None:
                raise BatchRefused(f"{fence.partition} is not fenced")
            if stored > fence.generation:
                raise BatchRefused(f"{fence.partition} is fenced by generation {stored}, ours is {fence.generation}")

    def insert_entries(self, records: Sequence[IndexEntry], fences: Sequence[Fence]) -> list[InsertResult]:
        """See ``EntryStore.insert_entries``."""
        self._check(fences)
        return [self._put(record) for record in records]

    def _put(self, record: IndexEntry) -> InsertResult:
        stored = self._records.get(record.number)
        state = decide_version(stored, record)
        if state is InsertState.CREATED:
            self._records.set(record.number, record)
        return InsertResult(state, stored if state in RETURNING_STATES else None)

    def replace_entries(self, records: Sequence[IndexEntry], fences: Sequence[Fence]) -> None:
        """See ``EntryStore.replace_entries``."""
        self._check(fences)
        for record in records:
            if decide_version(self._records.get(record.number), record) in (InsertState.CREATED, InsertState.REPLACED):
                self._records.set(record.number, record, MARKER_LIFETIME_MS if record.deleted else None)

    def insert_and_look_up(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> Hits:
        """See ``Index.insert_and_look_up``."""
        self._check(fences)
        candidates: list[dict[int, int]] = [{} for _ in numbers]
        full: Counter[int] = Counter()
        near_capacity = set()
        for place, (number, keys, hits) in enumerate(zip(numbers, band_keys.tolist(), candidates, strict=True)):
            for bucket_key in enumerate(keys):
                members = self._buckets.get(bucket_key) or {}
                others = [member for member in members if member != number]
                if self._bucket_cap is not None and 2 * len(others) >= self._bucket_cap:
                    near_capacity.add(place)
                if number not in members and self._bucket_cap is not None and len(others) >= self._bucket_cap:
                    full[place] += 1
                    others = others[:SHOWN_OF_FULL]
                else:
                    members[number] = None
                    self._buckets.set(bucket_key, members)
                for member in others:
                    hits[member] = hits.get(member, 0) + 1
        return Hits(candidates, full.total(), frozenset(full), frozenset(near_capacity))

    def remove_from_buckets(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> None:
        """See ``Index.remove_from_buckets``."""
        self._check(fences)
        for number, keys in zip(numbers, band_keys.tolist(), strict=True):
            for bucket_key in enumerate(keys):
                (self._buckets.get(bucket_key) or {}).pop(number, None)

    def remove_copies(self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence]) -> None:
        """See ``Index.remove_copies``."""
        self._check(fences)
        for number, digest in documents:
            (self._copies.get(digest) or {}).pop(number, None)
            self._departures_count += 1
            self._last_departures[digest] = self._departures_count

    def copy_removals(self) -> dict[int, int]:
        """See ``Index.copy_removals``."""
        return {0: self._departures_count}

    def insert_copies(
        self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence], found: FoundNearCapacity | None = None
    ) -> list[list[int]]:
        """See ``Index.insert_copies``."""
        self._check(fences)
        if found is not None:
            for number, digest in found.documents:
                if self._last_departures.get(digest, 0) <= found.removals[0]:
                    self._enter_copy(number, digest)
        return [self._enter_copy(number, digest) for number, digest in documents]

    def _enter_copy(self, number: int, digest: bytes) -> list[int]:
        others = [member for member in self._copies.get(digest) or {} if member != number]
        self._copies.set(digest, dict.fromkeys([*others[: COPIES_CAP - 1], number]))
        return others

    def check(self, fingerprint: Fingerprint) -> Opening | None:
        """See ``IndexReader.check``."""
        return self.open(fingerprint, create=False)

    def look_up(self, numbers: Sequence[int], band_keys: NDArray[np.uint32]) -> Hits:
        """See ``IndexReader.look_up``."""
        buckets = [[[*(self._buckets.get(key) or ())] for key in enumerate(keys)] for keys in band_keys.tolist()]
        return hits_of_members(numbers, buckets, self._bucket_cap, self._random)

    def look_up_copies(self, documents: Sequence[tuple[int, bytes]]) -> list[list[int]]:
        """See ``IndexReader.look_up_copies``."""
        return [
            [member for member in self._copies.get(digest) or () if member != number] for number, digest in documents
        ]

    def get_entries(self, numbers: Sequence[int]) -> dict[int, IndexEntry]:
        """See ``EntryStore.get_entries``."""
        found = ((number, self._records.get(number)) for number in numbers)
        return {number: record for number, record in found if record is not None}

    def read_entries(self, numbers: Sequence[int], limit_bytes: int) -> dict[int, IndexEntry | None]:
        """See ``EntryStore.read_entries``."""
        read: dict[int, IndexEntry | None] = {}
        weight_bytes = 0
        for number in numbers:
            read[number] = entry = self._records.get(number)
            weight_bytes += 0 if entry is None else entry.content.size_bytes
            if weight_bytes >= limit_bytes:
                break
        return read

    def save_pending_matches(
        self, pending: Sequence[tuple[Position, PendingMatches]], fences: Sequence[Fence]
    ) -> list[PendingMatches]:
        """See ``PairStore.save_pending_matches``."""
        self._check(fences)
        saved = []
        for position, new in pending:
            known = self._pending_matches.get(position) or PendingMatches()
            if new:
                known = PendingMatches(
                    {**new.matches, **known.matches},
                    known.digest or new.digest,
                    known.document_missing or new.document_missing,
                )
                self._pending_matches.set(position, known)
            saved.append(known)
        return saved

    def claim_pairs(
        self,
        claims: Sequence[tuple[bytes, Position]],
        fences: Sequence[Fence],
        extended: Sequence[tuple[bytes, Position]] = (),
    ) -> list[bool]:
        """See ``PairStore.claim_pairs``."""
        self._check(fences)
        owned = []
        for pair_key, position in claims:
            claim = self._claims.get(pair_key)
            owner = position if claim is None else claim.owner
            self._claims.set(pair_key, _Claim(owner, position))
            owned.append(owner == position)
        for pair_key, position in extended:
            claim = self._claims.get(pair_key)
            if claim is not None:
                self._claims.set(pair_key, claim._replace(last=position))
        return owned

    def count_claims(self) -> int:
        """See ``StoreHealth.count_claims``."""
        return len(self._claims)

    def set_clusters(self, clusters: Sequence[tuple[int, Position, int]], fences: Sequence[Fence]) -> None:
        """See ``EntryStore.set_clusters``."""
        self._check(fences)
        for number, position, cluster in clusters:
            record = self._records.get(number)
            if record is not None and record.position == position:
                self._records.amend(number, replace(record, cluster=cluster))

    def finish(
        self, committed: Mapping[Partition, int], positions: Sequence[Position], fences: Sequence[Fence]
    ) -> None:
        """See ``PartitionStore.finish``."""
        self._check(fences)
        for partition, offset in committed.items():
            self._marks[partition] = max(self._marks.get(partition, 0), offset)
        for position in positions:
            self._pending_matches.drop(position)

    def is_late(self, time_ms: int) -> bool:
        """See ``BacklogStore.is_late``."""
        return is_late(time_ms, self._lifetime_ms, self._now_ms())

    def list_expiring(self, listed: Listed, fences: Sequence[Fence]) -> None:
        """See ``BacklogStore.list_expiring``."""
        self._check(fences)
        for log, documents in by_log(listed.documents).items():
            self._documents_listed.append(log, documents)
        for log, claims in by_log(listed.claims).items():
            self._claims_listed.append(log, claims)

    def watermarks(self) -> dict[Partition, int]:
        """See ``BacklogStore.watermarks``."""
        return dict(self._watermarks.get(None) or {})

    def set_watermarks(
        self, watermarks: Mapping[Partition, int], fences: Sequence[Fence], *, extend: bool
    ) -> dict[Partition, int]:
        """See ``BacklogStore.set_watermarks``."""
        self._check(fences)
        before = self.watermarks()
        if not before and not extend:
            return {}
        merged = {**before, **watermarks}
        if extend:
            self._watermarks.set(None, merged)
        else:
            self._watermarks.amend(None, merged)
        return dict(merged)

    def expired(self, logs: Sequence[Log], watermark_ms: int, count: int) -> list[Listed]:
        """See ``BacklogStore.expired``."""
        limit_ms = watermark_ms - (self._lifetime_ms or 0)
        limit_of_claims_ms = limit_ms - (self._lifetime_ms or 0)
        return [
            Listed(
                list(takewhile(lambda each: each.time_ms < limit_ms, documents)),
                list(takewhile(lambda each: each.time_ms < limit_of_claims_ms, claims)),
            )
            for documents, claims in (
                (self._documents_listed.first(log, count), self._claims_listed.first(log, count)) for log in logs
            )
        ]

    def evict(self, listed: Listed, fence: Fence) -> None:
        """See ``BacklogStore.evict``."""
        self._check([fence])
        for number, position, time_ms in listed.documents:
            record = self._records.get(number)
            if record is not None and (record.position, record.time_ms) == (position, time_ms):
                self._records.drop(number)
        for pair_key, position, _ in listed.claims:
            claim = self._claims.get(pair_key)
            if claim is not None and claim.last == position:
                self._claims.drop(pair_key)
        self._documents_listed.remove_first(fence.log, listed.documents)
        self._claims_listed.remove_first(fence.log, listed.claims)

    def connections_count(self) -> int:
        """See ``StoreHealth.connections_count``."""
        return self.connections

    def ping(self) -> None:
        """See ``StoreHealth.ping``."""

    def stats(self) -> StoreStats:
        """See ``StoreHealth.stats``."""
        return StoreStats(used_bytes=None, limit_bytes=None)

    def count_documents(self) -> int:
        """See ``StoreHealth.count_documents``."""
        return len(self._records)

    def close(self) -> None:
        """See ``StoreHealth.close``."""
