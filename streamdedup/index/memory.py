"""The index in memory: the specification for the index in Redis, and the index of ``scan`` and ``Index.in_memory``.

Commands on files (``cli.collection``) and ``library`` construct it; the server of the simulation extends it, and uses
its private attributes (tests/simulation/server.py). ``index.contract`` explains the conditions.

Hits are not specified here: ``values.HitsBuilder`` counts them for both indexes, and tests/contract names their values.
"""

import math
from collections.abc import Callable, Sequence
from itertools import islice

from msgspec.structs import replace

from streamdedup import clock
from streamdedup.index.cluster_sets import ClusterSet
from streamdedup.index.documents import (
    RETURNING_STATES,
    IndexEntry,
    InsertResult,
    InsertState,
    PendingMatches,
    decide_version,
)
from streamdedup.index.expiring import ExpiringDict
from streamdedup.index.fingerprints import compare_fingerprints
from streamdedup.index.memory_partitions import MemoryPartitions
from streamdedup.index.values import (
    COPIES_CAP,
    PUBLISHED,
    SHOWN_OF_FULL,
    BandKeys,
    ClusterCounts,
    Fences,
    Fingerprint,
    FoundNearCapacity,
    Hits,
    HitsBuilder,
    NamedCluster,
    NumberAndDigest,
    Opening,
    StoreStats,
    claim_lifetime,
    hits_of_members,
    marker_lifetime,
)
from streamdedup.position import Position


class MemoryIndex(MemoryPartitions):
    """An ``Index`` and ``IndexReader`` in memory.

    A ``lifetime_ms`` of None is for ever, a ``bucket_cap`` of None no limit.
    """

    def __init__(
        self,
        *,
        lifetime_ms: int | None = None,
        bucket_cap: int | None = None,
        now_ms: Callable[[], float] = clock.now_ms,
    ) -> None:
        super().__init__(lifetime_ms, now_ms)
        self._bucket_cap = bucket_cap
        self._entries: ExpiringDict[int, IndexEntry] = ExpiringDict(lifetime_ms, now_ms)
        #: By band and band key: the members, each with the time at which it expires.
        self._buckets: ExpiringDict[tuple[int, int], dict[int, float]] = ExpiringDict(lifetime_ms, now_ms)
        #: By content digest: the members, the latest first.
        self._copies: ExpiringDict[bytes, dict[int, None]] = ExpiringDict(lifetime_ms, now_ms)
        #: By the number of the first document.
        self._cluster_sets: ExpiringDict[int, ClusterSet] = ExpiringDict(lifetime_ms, now_ms)
        #: Removals of copies so far.
        self._removals_count = 0
        #: By ``_cell`` of contents: the number of removals at the last one in the cell.
        self._last_removals: dict[int, int] = {}
        self._claims: ExpiringDict[bytes, Position] = ExpiringDict(lifetime_ms and claim_lifetime(lifetime_ms), now_ms)

    def get_entries(self, numbers: Sequence[int]) -> dict[int, IndexEntry]:
        entries = ((number, self._entries.get(number)) for number in numbers)
        return {number: entry for number, entry in entries if entry is not None}

    def read_entries(self, numbers: Sequence[int], limit_bytes: int) -> dict[int, IndexEntry | None]:
        read: dict[int, IndexEntry | None] = {}
        size_bytes = 0
        for number in numbers:
            read[number] = entry = self._entries.get(number)
            size_bytes += 0 if entry is None else entry.content.size_bytes
            if size_bytes >= limit_bytes:
                break
        return read

    def encode_entries(self, entries: Sequence[IndexEntry]) -> None:
        """Return None: entries need no encoding."""

    def insert_entries(
        self,
        entries: Sequence[IndexEntry],
        fences: Fences,
        encoded: Sequence[bytes] | None = None,  # noqa: ARG002  an argument of the contract
    ) -> list[InsertResult]:
        self._check_fences(fences)
        return [self._insert(entry) for entry in entries]

    def _insert(self, entry: IndexEntry) -> InsertResult:
        stored = self._entries.get(entry.number)
        state = decide_version(stored, entry)
        # Not if REPLACED: ``replace_entries`` stores it, after the old version was removed from its buckets (rule 9).
        if state is InsertState.CREATED:
            self._entries.set(entry.number, entry)
        return InsertResult(state, stored if state in RETURNING_STATES else None)

    def replace_entries(self, entries: Sequence[IndexEntry], fences: Fences) -> None:
        self._check_fences(fences)
        for entry in entries:
            if decide_version(self._entries.get(entry.number), entry) in (InsertState.CREATED, InsertState.REPLACED):
                lifetime_ms = self._lifetime_ms and marker_lifetime(self._lifetime_ms)
                self._entries.set(entry.number, entry, lifetime_ms if entry.deleted else None)

    def set_clusters(self, clusters: Sequence[NamedCluster], fences: Fences) -> list[ClusterCounts]:
        self._check_fences(fences)
        for number, position, cluster in clusters:
            entry = self._entries.get(number)
            if cluster != number and entry is not None and not entry.deleted and entry.position == position:
                if entry.cluster != cluster:
                    # The set of the new cluster may have an earlier version of a document that expired and came again.
                    self._leave_cluster(number, cluster if entry.cluster == number else entry.cluster)
                self._entries.amend(number, replace(entry, cluster=cluster))
                members = self._cluster_sets.get(cluster) or ClusterSet(cluster)
                members.add_first(self._entries.get(cluster))
                members.add(entry)
                self._cluster_sets.set(cluster, members)
        return [self._cluster_set(cluster).counts for _, _, cluster in clusters]

    def leave_clusters(self, members: Sequence[tuple[int, int]], fences: Fences) -> None:
        self._check_fences(fences)
        for number, cluster in members:
            self._leave_cluster(number, cluster)

    def _leave_cluster(self, number: int, cluster: int) -> None:
        if (members := self._cluster_sets.get(cluster)) is not None:
            members.remove(number)

    def _cluster_set(self, cluster: int) -> ClusterSet:
        """Return the set of a cluster, to be read only."""
        members = self._cluster_sets.get(cluster) or ClusterSet(cluster)
        return members.with_first(self._entries.get(cluster))

    def insert_and_look_up(self, numbers: Sequence[int], band_keys: BandKeys, fences: Fences) -> Hits:
        self._check_fences(fences)
        builder = HitsBuilder(numbers, self._bucket_cap)
        expiry = math.inf if self._lifetime_ms is None else self._now_ms() + self._lifetime_ms
        for row, (number, keys) in enumerate(zip(numbers, band_keys.tolist(), strict=True)):
            for band_and_key in enumerate(keys):
                members = self._live_members(band_and_key)
                if builder.refuses(row, members):
                    builder.add(row, islice(members, SHOWN_OF_FULL), is_full=True)
                else:
                    builder.add(row, members, is_full=False)
                    members[number] = expiry
                    self._buckets.set(band_and_key, members)
        return builder.hits()

    def remove_from_buckets(self, numbers: Sequence[int], band_keys: BandKeys, fences: Fences) -> None:
        self._check_fences(fences)
        for number, keys in zip(numbers, band_keys.tolist(), strict=True):
            for band_and_key in enumerate(keys):
                members = self._live_members(band_and_key)
                members.pop(number, None)
                if not members:
                    self._buckets.drop(band_and_key)

    def _live_members(self, band_and_key: tuple[int, int]) -> dict[int, float]:
        """Drop the expired members of a bucket; return the others, to be changed in place, or a new dictionary."""
        members = self._buckets.get(band_and_key) or {}
        if self._lifetime_ms is not None:
            now_ms = self._now_ms()
            for number in [number for number, expiry in members.items() if expiry <= now_ms]:
                del members[number]
        return members

    def insert_copies(
        self, documents: Sequence[NumberAndDigest], fences: Fences, near_capacity: FoundNearCapacity | None = None
    ) -> list[list[int]]:
        self._check_fences(fences)
        if near_capacity is not None:
            for number, digest in near_capacity.documents:
                # Unless a copy was removed since the document was read (rule 9).
                if self._last_removals.get(_cell(digest), 0) <= near_capacity.removals[0]:
                    self._insert_copy(number, digest)
        return [self._insert_copy(number, digest) for number, digest in documents]

    def _insert_copy(self, number: int, digest: bytes) -> list[int]:
        copies = [member for member in self._copies.get(digest) or {} if member != number]
        # A full bucket loses its oldest member: its entry expires first, and members are hints.
        self._copies.set(digest, dict.fromkeys([number, *copies[: COPIES_CAP - 1]]))
        return copies

    def remove_copies(self, documents: Sequence[NumberAndDigest], fences: Fences) -> None:
        self._check_fences(fences)
        for number, digest in documents:
            copies = self._copies.get(digest) or {}
            copies.pop(number, None)
            if not copies:
                self._copies.drop(digest)
            self._removals_count += 1
            self._last_removals[_cell(digest)] = self._removals_count

    def copy_removals(self) -> dict[int, int]:
        return {0: self._removals_count}  # there is one slot

    def save_pending_matches(
        self, pending: Sequence[tuple[Position, PendingMatches]], fences: Fences
    ) -> list[PendingMatches]:
        self._check_fences(fences)
        saved = []
        for position, new in pending:
            merged = self._pending_matches.get(position) or PendingMatches()
            if new:
                merged = PendingMatches(  # the first saved value is kept
                    {**new.matches, **merged.matches},
                    merged.digest or new.digest,
                    merged.document_missing or new.document_missing,
                )
                self._pending_matches.set(position, merged)
            saved.append(merged)
        return saved

    def claim_pairs(
        self, claims: Sequence[tuple[bytes, Position]], fences: Fences, extended_keys: Sequence[bytes] = ()
    ) -> list[bool]:
        self._check_fences(fences)
        owned = []
        for pair_key, position in claims:
            # ``PUBLISHED`` takes the pair from any owner (rule 8).
            owner = position if position == PUBLISHED else self._claims.get(pair_key) or position
            self._claims.set(pair_key, owner)
            owned.append(owner == position)
        for pair_key in extended_keys:
            if (owner_to_extend := self._claims.get(pair_key)) is not None:
                self._claims.set(pair_key, owner_to_extend)
        return owned

    def open(self, fingerprint: Fingerprint, *, create: bool = True) -> Opening | None:
        if self._fingerprint is None:
            if not create:
                return None
            self._fingerprint = dict(fingerprint)
            return Opening(is_created=True)
        return compare_fingerprints(self._fingerprint, fingerprint)

    def count_connections(self) -> int:
        return 0

    def ping(self) -> None: ...

    def stats(self) -> StoreStats:
        return StoreStats(used_bytes=None, limit_bytes=None)

    def count_documents(self) -> int:
        return len(self._entries)

    def count_claims(self) -> int:
        return len(self._claims)

    def close(self) -> None: ...

    # IndexReader

    def check(self, fingerprint: Fingerprint) -> Opening | None:
        return self.open(fingerprint, create=False)

    def look_up(self, numbers: Sequence[int], band_keys: BandKeys) -> Hits:
        buckets = [
            [list(self._live_members(band_and_key)) for band_and_key in enumerate(keys)] for keys in band_keys.tolist()
        ]
        return hits_of_members(numbers, buckets, self._bucket_cap)

    def look_up_copies(self, documents: Sequence[NumberAndDigest]) -> list[list[int]]:
        return [
            [member for member in self._copies.get(digest) or () if member != number] for number, digest in documents
        ]

    def read_cluster(self, cluster: int) -> tuple[ClusterCounts, list[int]]:
        members = self._cluster_set(cluster)
        return members.counts, members.numbers


def _cell(digest: bytes) -> int:
    """Return the cell of a content, whose removals are counted together (``redis/lua/remove_copies.lua``)."""
    return digest[4]
