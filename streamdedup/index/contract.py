"""The index contract: the Protocols that stores implement, for daemons, for readers, and for a rebuild.

A profile's index has these data (docs/architecture.md defines the terms):

    key                          data
    document number              index entry, the authority on which version of the document exists
    band key, content digest     bucket of document numbers, which are hints and may be out of date
    pair                         claim
    number of a first document   cluster set
    partition                    fence, high-water mark, announced attempt
    position                     pending matches

A store divides its keys among slots. Each slot is on one server; a server may lose writes that other servers keep.

``detection`` uses the ``DocumentStore`` and the ``IndexReader``, ``daemon`` the ``PartitionStore``, ``StoreHealth`` and
``StagingIndex``. ``index.memory`` and ``index.redis`` implement all of them, and tests/contract tests both: a change
touches all of these. A new method also touches tests/crash_points.py and tests/simulation/server.py.

The index is not a part of the Kafka transaction that publishes alerts. Eleven rules keep pairs from being lost or
published twice; docs/delivery.md states them with their reasons, and code refers to them by number:

1. entry first, 2. add before read, 3. position order, 4. pending matches saved, 5. claim, 6. high-water mark, 7. fence,
8. claims seeded, 9. remove before change, 10. no late or forgotten writes, 11. announce.

Every write may be repeated immediately, also where the call took effect before a time-out: the detector gets the same
pairs from the second call. A crash between two calls leaves an entry that is in no bucket, or pending matches without a
commit; the replay uses both, or both expire.

Methods that ask a server raise ``StoreUnavailable`` when it does not answer, is full, loading or failing over. The call
may have taken no, partial or full effect, so the batch is repeated. They raise ``StoreMisconfigured`` when the server
refuses the client for good. Methods with ``fences`` get those of all partitions that the passed documents come from,
``announce`` and ``finish`` those of all partitions of the batch in this index. They raise ``BatchRefused`` when a later
generation owns a partition or when a fence is missing, and ``IndexLost`` when the whole index is gone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamdedup.index.documents import IndexEntry, InsertResult, PendingMatches
from streamdedup.index.values import (
    UNKNOWN_BROKER_STATE,
    BrokerState,
    ClusterCounts,
    Fence,
    Fingerprint,
    FoundNearCapacity,
    Hits,
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
        """Read entries until their stored size reaches ``limit_bytes``, which is 1 or more.

        A store divides the limit among its slots, and may exceed it by one entry for each slot. The result has None
        where the index has no entry. A number that is missing in the result was not read; the first number always is.
        """


class DocumentStore(EntryReading, Protocol):
    """Everything that detection writes and reads for a batch: entries, clusters, buckets, and pairs."""

    def encode_entries(self, entries: Sequence[IndexEntry]) -> Sequence[bytes] | None:
        """Encode entries for ``insert_entries``, in any thread; return None where the store needs no encoding."""

    def insert_entries(
        self, entries: Sequence[IndexEntry], fences: Sequence[Fence], encoded: Sequence[bytes] | None = None
    ) -> list[InsertResult]:
        """Store entries for documents that the index does not have; return one result for each entry, in order.

        A later version than the stored one is not stored: ``replace_entries`` stores it, after the old version was
        removed from its buckets.
        """

    def replace_entries(self, entries: Sequence[IndexEntry], fences: Sequence[Fence]) -> None:
        """Store entries and deletion markers in order, each where no entry or an earlier position is stored."""

    def set_clusters(
        self, clusters: Sequence[tuple[int, Position, int]], fences: Sequence[Fence]
    ) -> list[ClusterCounts]:
        """Name a cluster in each document's entry, in order; an entry with another position is left alone.

        Each of ``clusters`` is a document number, the position of the document's entry, and the number of the document
        that names the cluster. For a document that joins no cluster the last is its own number, and its entry does not
        change. Returns the counts of each cluster after the call.

        A document that joins a cluster becomes a member of its set, with the source and record time of the entry, and
        leaves the set of the cluster that the entry named. A version of the document in the set, whose entry expired,
        is replaced. To join again only renews the time to live. The first document becomes a member too, if it has an
        entry. A set lives as long as an entry, counted from the last call for it.
        """

    def leave_clusters(self, members: Sequence[tuple[int, int]], fences: Sequence[Fence]) -> None:
        """Remove documents from the sets of their clusters, before their entries change (rule 9).

        Each of ``members`` is a document number and the number that names its cluster. A set that has reached
        ``CLUSTER_SIZE_CAP`` is perhaps incomplete, so its count must not fall: the member stays, only its source goes.
        """

    def insert_and_look_up(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> Hits:
        """Insert each document in its bucket in each band and read the other members, atomically for each bucket.

        Documents are inserted in order, so a later one finds an earlier one in the same call. A bucket at its cap takes
        no further member, keeps its time to live, and returns at most ``SHOWN_OF_FULL`` of its members; a document that
        is a member gets all others. ``band_keys`` have the shape (n, bands) for n ``numbers`` of documents.
        """

    def remove_from_buckets(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> None:
        """Remove each document from its bucket in each band; arguments as for ``insert_and_look_up``."""

    def insert_copies(
        self,
        documents: Sequence[tuple[int, bytes]],
        fences: Sequence[Fence],
        near_capacity: FoundNearCapacity | None = None,
    ) -> list[list[int]]:
        """Insert each document in the bucket of its content digest; return its other members, the latest first.

        Each of ``documents`` is a document number and the content digest. Atomic for each bucket. A bucket has at
        most ``COPIES_CAP`` members; in a full one a new member replaces the oldest. Called only for documents in band
        buckets near capacity, because a full band bucket could hide an exact copy.

        ``near_capacity`` has documents outside the batch, which are inserted first. One is left out if a document with
        its content was removed since ``near_capacity.removals`` was read: it may be the removed one, and nothing would
        remove it again. A store may count removals by groups of contents, and then leaves out some more.
        """

    def remove_copies(self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence]) -> None:
        """Remove each document from its bucket of exact copies and count the removal.

        Only for documents that were removed from all other buckets (rule 9).
        """

    def copy_removals(self) -> Mapping[int, int]:
        """Return for each slot a number that every ``remove_copies`` in the slot increases."""

    def save_pending_matches(
        self, pending: Sequence[tuple[Position, PendingMatches]], fences: Sequence[Fence]
    ) -> list[PendingMatches]:
        """Save matches by position; return everything that is saved for each position.

        Of several matches for a pair, and of several digests, the first saved is kept.
        """

    def claim_pairs(
        self, claims: Sequence[tuple[bytes, Position]], fences: Sequence[Fence], extended_keys: Sequence[bytes] = ()
    ) -> list[bool]:
        """Claim pairs for positions; return for each of ``claims`` whether the position owns the pair now.

        The position ``values.PUBLISHED`` (rule 8) overwrites claims of other positions: where the store has gone back
        to an earlier time, a batch in progress may have claimed a pair whose alert is committed. ``extended_keys`` are
        of pairs that do not match now (rule 5); claims on them are only extended.
        """


class PartitionStore(Protocol):
    """Fences, high-water marks and announced attempts by partition."""

    def partition_states(self, partitions: Sequence[Partition]) -> dict[Partition, PartitionState]:
        """Return what the index knows of each partition; without an index, or with a staging index only, nothing.

        A partition with a committed offset and no high-water mark shows that the index was lost, because the fence,
        which sets the high-water mark, precedes the commit.
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

        Pending matches for positions below the committed offset are deleted, because a daemon may have died between the
        commit and ``finish``.

        Args:
            start: The group's committed offset, or the offset where the group starts; the high-water mark is
                raised to this offset.
            committed_id: Id of the attempt that was committed with the offset; empty for none.
            state: Partition state in Kafka. For a topic that was created again (``is_recreated``) the high-water
                mark becomes ``start``, and the pending matches in the earlier incarnation are deleted.
            confirm: Called when the fence is set, before the high-water mark changes; raises if the caller lost the
                partition earlier, since ``state`` would then be out of date.

        Raises:
            BatchRefused: A later generation owns the partition, or the topic has another id by now.
            IndexLost: The whole index is gone, or a slot lacks the committed attempt (rule 11).
        """

    def unfence(self, partition: Partition) -> None:
        """Delete a partition's fence, for an operator who has deleted the consumer group."""

    def announce(
        self,
        attempt_id: str,
        fences: Sequence[Fence],
        starts: Mapping[Partition, int],
        *,
        committed_id: str | None = None,
    ) -> None:
        """Store in every slot that an attempt at a batch is completely written, before it is published.

        Args:
            attempt_id: Ids are compared as text; this one is greater than all earlier ones.
            starts: First offsets of the batch. If the index goes back in time, a gap is replayed from here.
            committed_id: Stored beside the id; a rebuild passes it. By default that of each fence.

        Raises:
            BatchRefused: A later generation owns a partition, or a slot has announced a later attempt.
            IndexLost: The whole index is gone, or a slot has not announced this attempt and lacks the committed one of
                a fence (rule 11).
        """

    def finish(self, ends: Mapping[Partition, int], positions: Sequence[Position], fences: Sequence[Fence]) -> None:
        """After a commit, raise the high-water marks to these offsets and delete pending matches for ``positions``."""


class StoreHealth(Protocol):
    """Opening, health and size of an index."""

    def open(self, fingerprint: Fingerprint, *, create: bool = True) -> Opening | None:
        """Open the index, or create it if there is none and ``create`` is true.

        May be repeated: the daemon compares the parameters in every generation.

        Returns None when there is no index and ``create`` is false. Raises ``IndexMismatch`` for an index that was
        built with other parameters, each named in the text, and for the remains of an interrupted deletion. Raises
        ``IndexBusy`` while another process rebuilds or deletes the index.
        """

    def count_connections(self) -> int:
        """Return how many connections to servers were opened so far.

        As long as the number is the same, no server has forgotten an acknowledged write by a restart or a failover.
        """

    def ping(self) -> None:
        """Raise ``StoreUnavailable`` unless every server answers and accepts writes of the index."""

    def stats(self) -> StoreStats:
        """Return the memory of the fullest server."""

    def count_documents(self) -> int:
        """Return the approximate document count; cheap enough for every few seconds.

        A store counts index entries, or documents inserted in buckets. It may estimate with a standard error up to 1 %,
        and may count a document too long, for an eighth of its time to live.
        """

    def count_claims(self) -> int:
        """Return the approximate claim count, claims that expired in the last lifetime included."""

    def close(self) -> None:
        """Close the connection; never raises."""


class Index(DocumentStore, PartitionStore, StoreHealth, Protocol):
    """A profile's index. Called from one thread; one process may have several.

    Call order: ``open``; ``partition_states`` when partitions are assigned; ``fence`` before the first write for a
    partition and after every generation change; for each batch the calls of ``DocumentStore`` (docs/architecture.md,
    The path of a record), then ``announce``, and after the commit ``finish``.
    """


class IndexReader(EntryReading, Protocol):
    """A profile's index for a process that owns no partition. Called from one thread.

    No method writes, so the server may be a replica. A daemon may insert and remove documents between two calls.
    """

    def check(self, fingerprint: Fingerprint) -> Opening | None:
        """Do as ``StoreHealth.open`` with ``create=False``, cheaply enough for every request.

        Raises ``StoreUnavailable`` while another process rebuilds the index.
        """

    def look_up(self, numbers: Sequence[int], band_keys: NDArray[np.uint32]) -> Hits:
        """Return the hits that ``insert_and_look_up`` would return for each document alone, without an insertion.

        Of a full bucket ``SHOWN_OF_FULL`` members are chosen at random, because an insertion may return any of them; a
        document that is a member itself gets all others. ``band_keys`` have the shape (n, bands) for n ``numbers``.
        """

    def look_up_copies(self, documents: Sequence[tuple[int, bytes]]) -> list[list[int]]:
        """Return the other members of each document's bucket of exact copies, as ``insert_copies`` does."""

    def read_cluster(self, cluster: int) -> tuple[ClusterCounts, list[int]]:
        """Return a cluster's counts, as ``set_clusters`` would, and the document numbers in its cluster set.

        The numbers are hints: the entries tell which documents still belong to the cluster. The first document, whose
        number names the cluster, may be missing among them.
        """

    def count_documents(self) -> int: ...

    def close(self) -> None: ...


class StagingIndex(Protocol):
    """A profile's index in a rebuild, written by the process that has the lease: the right to rebuild, for a minute.

    A lost index is cleared first. Until the staging index is complete there is no index: ``Index.open`` says that the
    index is being rebuilt, and ``Index.fence`` refuses. An index that has gone back to an earlier time is not cleared:
    its gap makes ``Index.fence`` refuse until the rebuild announces an attempt. Methods raise ``BatchRefused`` when
    another process has the lease.
    """

    @property
    def store(self) -> Index:
        """The index that is built; only for the process that has the lease, and never opened."""

    def take_lease(self, *, only_to_delete: bool = False) -> None:
        """Take or extend the lease; raise ``IndexBusy`` if another process had it during the last minute.

        With ``only_to_delete`` also while the memory is full; a rebuild, which needs memory, gets ``StoreUnavailable``.
        """

    def clear(self, tick: Callable[[], None] = lambda: None) -> int:
        """Delete the index, fences first; ``tick`` is called at every step. Return the number of deleted keys.

        ``store`` may then be written from the beginning.
        """

    def extend_lease(self) -> None:
        """To be called at least once a minute."""

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
