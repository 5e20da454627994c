"""The index contract: the Protocols that stores implement, for daemons, for readers, and for a rebuild.

A profile's index has these data (docs/architecture.md defines the terms):

    key                          data
    document number              index entry, the authority on which version of the document exists
    band key, content digest     bucket of document numbers, which are hints and may be out of date
    pair                         claim
    number of a first document   cluster set (the first document of a cluster names it)
    partition                    fence, high-water mark, announced attempt
    position                     pending matches

A store divides its keys among slots. Each slot is on one server; a server may lose writes that other servers keep.

``detection`` uses the ``DocumentStore`` and the ``IndexReader``, ``daemon`` the ``PartitionStore``, ``StoreHealth`` and
``StagingIndex``. A change touches ``index.memory`` and ``index.redis``, which implement all of them, and
tests/contract; a new method also tests/crash_points.py and tests/simulation/server.py.

The index is not a part of the Kafka transaction that publishes alerts. Eleven rules keep pairs from being lost or
published twice; docs/delivery.md states them with their reasons, and code refers to them by number:

1. entry first, 2. add before read, 3. position order, 4. pending matches saved, 5. claim, 6. high-water mark, 7. fence,
8. claims seeded, 9. remove before change, 10. no late or forgotten writes, 11. announce.

Every write may be repeated immediately, also where the call took effect before a time-out: the detector gets the same
pairs from the second call. After a crash an entry in no bucket, or pending matches without a commit, may be left; the
replay uses both, or both expire.

Methods that ask a server raise ``StoreUnavailable`` when it does not answer, is full, loading or failing over: the call
may have taken no, partial or full effect, so the batch is repeated. They raise ``StoreMisconfigured`` when the server
refuses the client for good. Methods with ``fences`` get those of all partitions that the documents come from,
``announce`` and ``finish`` those of all partitions of the batch. They raise ``BatchRefused`` when a later generation
owns a partition or a fence is missing, ``IndexLost`` when the index is gone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from streamdedup.index.documents import IndexEntry, InsertResult, PendingMatches
from streamdedup.index.values import (
    UNKNOWN_BROKER_STATE,
    BandKeys,
    BrokerState,
    ClusterCounts,
    Fence,
    Fences,
    Fingerprint,
    FoundNearCapacity,
    Hits,
    NamedCluster,
    NumberAndDigest,
    Opening,
    PartitionState,
    StoreStats,
)
from streamdedup.position import Partition, Position


class EntryReading(Protocol):
    """Reads index entries, for daemons and for readers."""

    def get_entries(self, numbers: Sequence[int]) -> dict[int, IndexEntry]:
        """Return the entries that the index has, deletion markers included."""

    def read_entries(self, numbers: Sequence[int], limit_bytes: int) -> dict[int, IndexEntry | None]:
        """Read entries until their stored size reaches ``limit_bytes``, 1 or more; at least that of the first number.

        The result has None where the index has no entry, and lacks the numbers that were not read. A store divides the
        limit among its slots, and may exceed it by one entry for each slot.
        """


class DocumentStore(EntryReading, Protocol):
    """Entries, clusters, buckets and pairs, for the documents of a batch."""

    def encode_entries(self, entries: Sequence[IndexEntry]) -> Sequence[bytes] | None:
        """Encode entries for ``insert_entries``, in any thread; return None where the store needs no encoding."""

    def insert_entries(
        self, entries: Sequence[IndexEntry], fences: Fences, encoded: Sequence[bytes] | None = None
    ) -> list[InsertResult]:
        """Store the entries of documents that the index does not have; return a result for each entry, in order.

        A later version than the stored one is left to ``replace_entries``, after the removals of rule 9.
        """

    def replace_entries(self, entries: Sequence[IndexEntry], fences: Fences) -> None:
        """Store entries and deletion markers in order, each where no entry or an earlier position is stored."""

    def set_clusters(self, clusters: Sequence[NamedCluster], fences: Fences) -> list[ClusterCounts]:
        """Name a cluster in each document's entry, in order; return the counts of each cluster after the call.

        An entry with another position, or of a document with its own number as cluster, is left alone.

        A document that joins a cluster becomes a member of its set, with the source and record time of the entry, and
        leaves the set of the cluster that the entry named. It replaces an earlier version of itself that is still in
        the set, after its entry expired. Joining again only renews the time to live. The first document becomes a
        member too, if it has an entry. A set lives as long as an entry, counted from the last call for it.
        """

    def leave_clusters(self, members: Sequence[tuple[int, int]], fences: Fences) -> None:
        """Remove documents from the sets of their clusters, before their entries change (rule 9).

        Each of ``members`` is a document number and the number that names its cluster. A set with ``CLUSTER_SIZE_CAP``
        documents may lack some, so its count must not fall: the member stays, and loses only its source.
        """

    def insert_and_look_up(self, numbers: Sequence[int], band_keys: BandKeys, fences: Fences) -> Hits:
        """Insert each document in its bucket in each band and read the other members, atomically for each bucket.

        Documents are inserted in order, so a later one finds an earlier one in the same call. A bucket at its cap takes
        no further member, keeps its time to live, and returns at most ``SHOWN_OF_FULL`` of its members; a document that
        is a member already gets all others.
        """

    def remove_from_buckets(self, numbers: Sequence[int], band_keys: BandKeys, fences: Fences) -> None:
        """Remove each document from its bucket in each band."""

    def insert_copies(
        self, documents: Sequence[NumberAndDigest], fences: Fences, near_capacity: FoundNearCapacity | None = None
    ) -> list[list[int]]:
        """Insert each document in the bucket of its content digest; return the other members, the latest first.

        Atomic for each bucket. A bucket has at most ``COPIES_CAP`` members; in a full one a new member replaces the
        oldest. Only for documents with a band bucket that is full or near capacity: a full one may hide a copy.

        ``near_capacity`` has documents outside the batch, which are inserted first. A document that was removed since
        it was found would stay for ever. So one is left out if a document with its content was removed since
        ``near_capacity.removals`` was read. A store may count removals by groups of contents, and leaves out some more.
        """

    def remove_copies(self, documents: Sequence[NumberAndDigest], fences: Fences) -> None:
        """Remove documents from their buckets of exact copies, last of all buckets, and raise ``copy_removals``."""

    def copy_removals(self) -> Mapping[int, int]:
        """Return for each slot a number that every ``remove_copies`` in the slot increases."""

    def save_pending_matches(
        self, pending: Sequence[tuple[Position, PendingMatches]], fences: Fences
    ) -> list[PendingMatches]:
        """Save matches by position; return everything that is saved for each position.

        Of several matches for a pair, and of several digests, the first is kept.
        """

    def claim_pairs(
        self, claims: Sequence[tuple[bytes, Position]], fences: Fences, extended_keys: Sequence[bytes] = ()
    ) -> list[bool]:
        """Claim pairs for positions; return for each of ``claims``, with its pair key, whether the position owns it.

        The position ``values.PUBLISHED`` (rule 8) overwrites claims of other positions: where the store has gone back
        to an earlier time, a batch in progress may have claimed a pair whose alert is committed. Claims on
        ``extended_keys``, of pairs that do not match now, are only extended (rule 5).
        """


class PartitionStore(Protocol):
    """Fences, high-water marks and announced attempts by partition."""

    def partition_states(self, partitions: Sequence[Partition]) -> dict[Partition, PartitionState]:
        """Return what the index knows of each partition; without an index, or with a staging index only, nothing.

        A committed offset without a high-water mark shows a lost index: ``fence``, which sets it, precedes any commit.
        """

    def fence(
        self,
        partition: Partition,
        generation: int,
        start: int,
        committed_id: str = "",
        state: BrokerState = UNKNOWN_BROKER_STATE,
        confirm: Callable[[], None] = lambda: None,
    ) -> Fence:
        """Take over a partition: from now on writes under lower generations are refused.

        Pending matches below ``start`` are deleted: a daemon may have died between commit and ``finish``.

        Args:
            start: Committed offset, or offset where the group starts, to which the high-water mark is raised.
            committed_id: Id of the attempt that was committed with the offset; empty for none.
            state: Partition state in Kafka. For a topic that was created again (``is_recreated``) the high-water
                mark becomes ``start``, and the pending matches in the earlier incarnation are deleted.
            confirm: Called when the fence is set, before the high-water mark changes; raises if the caller lost the
                partition earlier, since ``state`` would then be out of date.

        Raises:
            BatchRefused: A later generation owns the partition, or the topic has another id by now.
            IndexLost: The index is gone, or a slot lacks the committed attempt (rule 11).
        """

    def unfence(self, partition: Partition) -> None:
        """Delete a partition's fence: after the consumer group was deleted, and for ``index prepare``, of no group."""

    def announce(
        self, attempt_id: str, fences: Fences, starts: Mapping[Partition, int], *, committed_id: str | None = None
    ) -> None:
        """Store in every slot that an attempt at a batch is completely written, before it is published.

        Args:
            attempt_id: Ids are compared as text; this one is greater than all earlier ones.
            starts: First offsets of the batch. If the index goes back in time, a gap is replayed from here.
            committed_id: Stored beside the id; a rebuild passes it. By default that of each fence.

        Raises:
            BatchRefused: A later generation owns a partition, or a slot has announced a later attempt.
            IndexLost: The index is gone, or a slot has neither a fence's committed attempt nor this one (rule 11).
        """

    def finish(self, ends: Mapping[Partition, int], positions: Sequence[Position], fences: Fences) -> None:
        """After a commit, raise the high-water marks to these offsets and delete pending matches for ``positions``."""


class StoreHealth(Protocol):
    """Opening, health and size of an index."""

    def open(self, fingerprint: Fingerprint, *, create: bool = True) -> Opening | None:
        """Open the index; without an index create it, or return None if ``create`` is false.

        The daemon opens the index in every generation, to compare the parameters.

        Raises ``IndexMismatch`` for an index that was built with other parameters, each named in the text, and for the
        remains of an interrupted deletion; ``IndexBusy`` while another process rebuilds or deletes the index.
        """

    def count_connections(self) -> int:
        """Return the number of connections opened so far: while it stays, no server has restarted or failed over."""

    def ping(self) -> None:
        """Raise ``StoreUnavailable`` unless every server answers and accepts writes of the index."""

    def stats(self) -> StoreStats:
        """Return the memory of the fullest server."""

    def count_documents(self) -> int:
        """Return the approximate document count; cheap enough for every few seconds.

        The standard error is at most 1 %. An expired document may count for an eighth of its time to live.
        """

    def count_claims(self) -> int:
        """Return the approximate claim count, claims that expired in the last lifetime included."""

    def close(self) -> None:
        """Close the connections; never raises."""


class Index(DocumentStore, PartitionStore, StoreHealth, Protocol):
    """A profile's index, called from one thread.

    Call order: ``open``; ``partition_states`` when partitions are assigned; ``fence`` before the first write for a
    partition in a generation; for each batch the calls of ``DocumentStore`` (docs/architecture.md, The path of a
    record), then ``announce``, and after the commit ``finish``.
    """


class IndexReader(EntryReading, Protocol):
    """A profile's index for a process that owns no partition, called from one thread.

    No method writes, so the server may be a replica. A daemon may insert and remove documents between two calls.
    """

    def check(self, fingerprint: Fingerprint) -> Opening | None:
        """Do as ``StoreHealth.open`` with ``create=False``, cheaply enough for every request.

        But ``StoreUnavailable`` takes the place of ``IndexBusy``, and remains of an interrupted deletion are no index.
        """

    def look_up(self, numbers: Sequence[int], band_keys: BandKeys) -> Hits:
        """Return the hits that ``insert_and_look_up`` would return for each document alone, without an insertion.

        The ``SHOWN_OF_FULL`` members of a full bucket are chosen at random: an insertion may return any of them.
        """

    def look_up_copies(self, documents: Sequence[NumberAndDigest]) -> list[list[int]]:
        """Return the other members of each document's bucket of exact copies, the latest first."""

    def read_cluster(self, cluster: int) -> tuple[ClusterCounts, list[int]]:
        """Return a cluster's counts, as ``set_clusters`` would, and the document numbers in its cluster set.

        The numbers are hints: the entries decide. That of the first document, ``cluster``, may be missing.
        """

    def count_documents(self) -> int: ...

    def close(self) -> None: ...


class StagingIndex(Protocol):
    """A profile's index in a rebuild, written by the process that has the lease: the right to rebuild, for a minute.

    A lost index is cleared first. Until the staging index is complete there is no index: ``Index.open`` raises
    ``IndexBusy``, ``Index.fence`` ``IndexLost``. An index that has gone back to an earlier time is not cleared: its gap
    makes ``Index.fence`` raise until the rebuild announces an attempt. Here ``BatchRefused`` means that another process
    has the lease, not a later generation.
    """

    @property
    def store(self) -> Index:
        """The index that is built; only for the process that has the lease, and never opened."""

    def take_lease(self, *, only_to_delete: bool = False) -> None:
        """Take or extend the lease; raise ``IndexBusy`` if another process has it.

        Without ``only_to_delete`` it raises ``StoreUnavailable`` while the memory is full: a rebuild needs memory.
        """

    def clear(self, tick: Callable[[], None] = lambda: None) -> int:
        """Delete the index, fences first; ``tick`` is called at every step. Return the number of deleted keys."""

    def extend_lease(self) -> None:
        """Extend the lease; called at least once a minute."""

    def complete(self, fingerprint: Fingerprint) -> None:
        """Turn the staging index into the index, and give up the lease; ``fingerprint`` also has ``REBUILT_S``."""

    def abandon(self) -> None:
        """Give up the lease; never raises."""


def delete_index(staging: StagingIndex) -> int:
    """Delete an index under the lease, so that its writers wait; return the number of deleted keys."""
    staging.take_lease(only_to_delete=True)
    try:
        return staging.clear()
    finally:
        staging.abandon()
