"""The contract of the index: twelve rules and the Protocols that stores implement.

The index of one profile holds:

* the *index entry* of each document, by document number: the authority on which version of the document exists;
* the *buckets*, sets of document numbers, one for each band and band key. Members are hints and may be out of date;
* the *claims*: the position that owns an alerted pair;
* per partition the *fence* (the right to write, bound to a generation of the consumer group), the *high-water mark* (a
  committed offset) and the *announced attempt* (the latest attempt at a batch that is completely written);
* per position the *pending matches*: found and not yet committed.

The index lies outside the Kafka transaction that publishes alerts. These rules keep pairs from being lost or doubled:

1. *entry first*: ``insert_entries`` returns before ``insert_and_look_up`` is called.
2. *add before read*: ``insert_and_look_up`` adds to a bucket and reads it in one atomic step. Of two documents that two
   daemons insert at the same time, at least one finds the other in every band that they share.
3. *position order*: an entry is replaced only by a version or a deletion marker of a later position
   (``documents.decide_version``).
4. *pending matches saved*: ``save_pending_matches`` stores the verified matches of a position and returns these matches
   with those that earlier attempts stored for the position.
5. *claim*: ``claim_pairs`` gives a pair to the position that asks first. Whichever position asks, the claim then lives
   for two lifetimes (``values.claim_lifetime``). A document that is inserted again also extends its claims with the
   documents that it finds without a match, for example outside the window.
6. *high-water mark*: ``fence`` returns the offset below which records are indexed and emit nothing; ``finish`` raises
   it. A high-water mark belongs to one incarnation of a topic: when Kafka has another id for the topic than the index,
   or the partition ends below the high-water mark, the topic was deleted and created again. ``fence`` then counts the
   next incarnation, whose high-water mark is the first offset that is read. The incarnation is part of every stored
   position, so to all other rules the next incarnation is another partition.
7. *fence*: every write names its generation and its store. The write is refused when another generation, or another
   store of the same generation, has taken the partition over.
8. *claims seeded*: after the index was lost, claims are restored with ``claim_pairs`` before the daemon goes on.
9. *remove before change*: the old version of a document is removed from its buckets while the old entry, which names
   the buckets, still exists; then the entry is replaced. No document removes another one: members are hints, checked
   against the entry of the member. A document inserts other documents only in the buckets of their contents
   (``insert_copies``), and only if no removal can have happened since their entries were read.
10. *no late writes*: the calls of a store are numbered, and a slot refuses a call after a later one. Otherwise a write
    that timed out, was repeated, and then arrives could remove a document from a bucket in which the document was
    inserted meanwhile.
11. *announce*: before a batch is published, ``announce`` stores the id of the attempt in every slot, and the same id is
    committed with the offsets. A committed attempt that is later than the announced one shows that the store has gone
    back to an earlier time; ``fence`` compares both. A high-water mark below the committed offset shows nothing: a
    crash right after a commit has that effect.
12. *backlog expiry*: times to live count from the insertion, which is too late for a backlog. Where record times
    ascend, ``list_expiring`` lists a document that is inserted long after its record time, with the claims for its
    pairs, before the batch is published. ``evict`` removes the document when the event-time watermark of every
    partition is past the window of the document, so that no record is left for a comparison. A claim is evicted one
    lifetime later, because the record of the other document of the pair may be one lifetime later. Rule 9 applies:
    buckets first, then the entry, then the list. Lists are slices of time that expire as wholes (``index.expiry``), one
    lifetime after the last append, so lists are bounded even if one watermark holds everything back. Each id is
    expected in one partition.

Every write may be repeated at once, also after a time-out of a call that took effect: the second call leads the
detector to the same result. A crash between two calls leaves members without an entry or pending matches without a
commit; the replay of the batch uses both, or both expire.

All methods raise ``StoreUnavailable`` when the server does not answer, is full, loading or failing over; none or a part
of the call has taken effect, so the batch is repeated. All methods raise ``StoreMisconfigured`` when the server refuses
the client for good. Methods with ``fences`` raise ``BatchRefused`` when a later generation owns one of the partitions
or when a fence is missing, and ``IndexLost`` when the whole index is gone.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamdedup.index.documents import IndexEntry, InsertResult, PendingMatches
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
)
from streamdedup.position import Log, Partition, Position


class EntryReading(Protocol):
    """Index entries by document number, to be read."""

    def get_entries(self, numbers: Sequence[int]) -> dict[int, IndexEntry]:
        """Return the entries of documents that the index has, deletion markers included."""

    def read_entries(self, numbers: Sequence[int], limit_bytes: int) -> dict[int, IndexEntry | None]:
        """Read entries up to a total size.

        Args:
            numbers: Distinct document numbers.
            limit_bytes: Stored size at which reading ends, at least 1. A store with several slots divides the limit
                among the slots, and may exceed the limit by one entry for each slot.

        Returns:
            For each number that was read the entry or deletion marker, or None where the index has none. At least one
            number is read. Missing numbers were not read.
        """


class EntryStore(EntryReading, Protocol):
    """Index entries by document number."""

    def encode_entries(self, entries: Sequence[IndexEntry]) -> Sequence[bytes] | None:
        """Return what ``insert_entries`` stores, computed ahead; None where nothing is to be computed.

        Sends no request, and may be called in any thread.
        """

    def insert_entries(
        self, entries: Sequence[IndexEntry], fences: Sequence[Fence], encoded: Sequence[bytes] | None = None
    ) -> list[InsertResult]:
        """Store entries of documents that the index does not have; return one result for each entry, in order.

        A later version of a stored entry is not stored yet: the old one must be removed from its buckets first.

        Args:
            entries: Entries.
            fences: Fences of the partitions of the batch.
            encoded: Result of ``encode_entries`` for these entries; None where it was not computed ahead.
        """

    def replace_entries(self, entries: Sequence[IndexEntry], fences: Sequence[Fence]) -> None:
        """Store entries and deletion markers in order, each where no entry or an earlier position is stored."""

    def set_clusters(self, clusters: Sequence[tuple[int, Position, int]], fences: Sequence[Fence]) -> None:
        """Set the clusters of documents; an entry with another position than the given one is left alone.

        Args:
            clusters: Document number, position of the version, document number of the cluster's first document.
            fences: Fences of the partitions.
        """


class BucketStore(Protocol):
    """Buckets of document numbers: one for each band and band key, and one for the copies of each content."""

    def insert_and_look_up(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> Hits:
        """Insert each document in its bucket of each band and read the other members, atomically for each bucket.

        Documents are inserted in order, so a later one finds an earlier one of the same call. A bucket at its cap takes
        no further member, keeps its time to live, and returns at most ``SHOWN_OF_FULL`` of its members.

        Args:
            numbers: n document numbers.
            band_keys: Band keys, (n, bands).
            fences: Fences of the partitions.
        """

    def remove_from_buckets(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> None:
        """Remove each document from its bucket of each band; arguments as for ``insert_and_look_up``."""

    def insert_copies(
        self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence], found: FoundNearCapacity | None = None
    ) -> list[list[int]]:
        """Insert each document in the bucket of its content and read the other members, atomically for each bucket.

        Such a bucket holds at most ``COPIES_CAP`` members; a new member of a full bucket replaces any other one. For
        documents in buckets near capacity only, where a full bucket could hide an exact copy.

        Args:
            documents: Number and content digest of each document, inserted in order.
            fences: Fences of the partitions.
            found: Other documents, which are inserted first. A document that was deleted after its entry was read must
                not be inserted, because its number and digest would stay behind. So no document is inserted if a
                document with the same content was removed since ``found.removals``; a store may leave out further ones.
                A document that was found in a bucket after the count of removals was not removed before the count, in
                the version that is read afterwards.

        Returns:
            For each of ``documents`` the other members; hints, as in any bucket.
        """

    def remove_copies(self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence]) -> None:
        """Remove each document from the bucket of its content and count the removal.

        Only for documents that were removed from all other buckets (rule 9).
        """

    def copy_removals(self) -> Mapping[int, int]:
        """Return the number of removals from buckets of contents so far, for each slot."""


class PairStore(Protocol):
    """Pending matches of positions and claims of pairs."""

    def save_pending_matches(
        self, pending: Sequence[tuple[Position, PendingMatches]], fences: Sequence[Fence]
    ) -> list[PendingMatches]:
        """Save pending matches of positions; return everything that is saved for each of the positions.

        Args:
            pending: Matches by position. The match that was saved first for a pair is kept, and so is the digest.
            fences: Fences of the partitions.
        """

    def claim_pairs(
        self,
        claims: Sequence[tuple[bytes, Position]],
        fences: Sequence[Fence],
        extended: Sequence[tuple[bytes, Position]] = (),
    ) -> list[bool]:
        """Claim pairs for positions.

        Args:
            claims: Pair keys, each with the position that asks.
            fences: Fences of the partitions.
            extended: Pair keys whose claims are only extended, where there are any, each with the position that found
                the pair without a match.

        Returns:
            For each of ``claims`` whether the position owns the pair, by this call or an earlier one.
        """


class DocumentStore(EntryStore, BucketStore, PairStore, Protocol):
    """Everything that detection writes and reads for a batch.

    Order of the calls: ``insert_entries``; where documents change or are deleted ``get_entries``,
    ``remove_from_buckets``, ``remove_copies``, ``replace_entries``; ``insert_and_look_up``; where buckets are near
    capacity ``copy_removals``, ``insert_and_look_up`` again, ``read_entries``, ``insert_copies``; then
    ``read_entries``, ``save_pending_matches``, ``claim_pairs``, ``get_entries``, ``set_clusters``.
    """


class PartitionStore(Protocol):
    """Fences, high-water marks and announced attempts of partitions."""

    def partition_states(self, partitions: Sequence[Partition]) -> dict[Partition, PartitionState]:
        """Return the state of each partition; that of an unseen one where there is no index or a staging index only.

        A partition with a committed offset has a high-water mark, because the fence precedes the commit. Without a
        high-water mark the index was lost.
        """

    def fence(
        self,
        partition: Partition,
        generation: int,
        committed: int,
        attempt_id: str = "",
        state: LogState = UNKNOWN_LOG,
    ) -> Fence:
        """Take over a partition: from now on writes of lower generations are refused.

        Pending matches of positions below the committed offset are deleted, because a daemon may have died between the
        commit and ``finish``.

        Args:
            partition: The partition.
            generation: Generation of the caller.
            committed: Committed offset of the group, or the offset where the group starts; the high-water mark is
                raised to this offset.
            attempt_id: The attempt that was committed with the offset. With an empty text and no fence of the
                partition, the consumer group is new, and the announced attempt of the partition is deleted.
            state: State of the partition in Kafka. For a topic that was created again (``is_recreated``) the high-water
                mark, the watermark and the pending matches of the earlier incarnation are deleted.

        Returns:
            The right to write, with the present high-water mark.

        Raises:
            BatchRefused: A later generation has fenced the partition, or the topic has another id by now.
            IndexLost: The whole index is gone, or a slot lacks the announced attempt.
        """

    def unfence(self, partition: Partition) -> None:
        """Delete the fence of a partition; for an operator who has deleted the consumer group."""

    def save_read_start(self, read_start: str, fence: Fence) -> None:
        """Store where a process begins to read a partition; ``partition_states`` returns the text.

        The text never expires, because a process may own a partition for months.

        Args:
            read_start: Text that the index does not interpret.
            fence: Fence of the partition.
        """

    def announce(self, attempt_id: str, fences: Sequence[Fence]) -> None:
        """Store in every slot that an attempt at a batch is completely written, before it is published.

        Args:
            attempt_id: Name of the attempt; as text greater than the names of all attempts before.
            fences: Fences of all partitions of the batch.

        Raises:
            IndexLost: A slot lacks the committed attempt of one of the partitions.
        """

    def finish(
        self, committed: Mapping[Partition, int], positions: Sequence[Position], fences: Sequence[Fence]
    ) -> None:
        """After a commit: raise the high-water marks, delete the pending matches of ``positions``."""


class BacklogStore(Protocol):
    """Lists of documents and claims for backlog expiry, and the event-time watermarks (rule 12)."""

    def is_late(self, time_ms: int) -> bool:
        """Tell whether an entry of this record time, inserted now, has to be listed (``values.is_late``)."""

    def list_expiring(self, listed: Listed, fences: Sequence[Fence]) -> None:
        """List documents that were inserted late and their claims for ``evict``, each under its partition.

        Listed entries expire one lifetime, and at most an eighth of it more, after the call. A repeated call lists
        nothing twice. A listed document that has moved to another position is not evicted, and neither is a claim that
        another position has asked for since.
        """

    def watermarks(self) -> dict[Partition, int]:
        """Return the event-time watermarks of all partitions, milliseconds; empty while no partition has a backlog."""

    def set_watermarks(
        self, watermarks: Mapping[Partition, int], fences: Sequence[Fence], *, extend: bool
    ) -> dict[Partition, int]:
        """Set event-time watermarks.

        Args:
            watermarks: For each partition the time below which no record is left, milliseconds since the epoch.
            fences: Fences of these partitions.
            extend: Whether the time to live of all watermarks is set to one lifetime. Otherwise the time to live is
                unchanged, and nothing is set where there are no watermarks.

        Returns:
            The watermarks of all partitions.
        """

    def expired(self, logs: Sequence[Log], watermark_ms: int, count: int) -> list[Listed]:
        """Return for each log the first listed documents and claims with which no later record can be compared.

        Entries listed for an earlier incarnation of a topic are not returned, and expire.

        Args:
            logs: Partitions.
            watermark_ms: The least watermark of all partitions.
            count: Largest number of documents, and of claims, to read of a log; fewer are read where a slice ends.
                Documents end before the first that is not older than one lifetime, claims before the first that is not
                older than two.
        """

    def evict(self, listed: Listed, fence: Fence) -> None:
        """Remove entries that are still at the listed positions and claims last asked for by these; then unlist both.

        Args:
            listed: The first listed documents and claims of the partition; the documents are in no bucket any more.
            fence: Fence of the partition.
        """


class StoreHealth(Protocol):
    """Opening, closing and numbers for metrics."""

    def open(self, fingerprint: Fingerprint, *, create: bool = True) -> Opening | None:
        """Open the index, and make sure that it was built with these parameters. Once per connection.

        Args:
            fingerprint: The parameters.
            create: Whether to create the index when there is none.

        Returns:
            How the index was found; None when there is none and ``create`` is false.

        Raises:
            IndexMismatch: The index was built with other parameters; the text names each difference. Or an interrupted
                deletion has left a part of an index, and ``create`` is true.
            StoreUnavailable: Another process rebuilds the index.
        """

    def connections_count(self) -> int:
        """Return how many connections to servers were opened so far.

        As long as the number is the same, no server has forgotten an acknowledged write by a restart or a failover.
        """

    def ping(self) -> None:
        """Wait for an answer of every server."""

    def stats(self) -> StoreStats:
        """Return the memory of the fullest server."""

    def count_documents(self) -> int:
        """Return the approximate number of documents in the index; cheap enough for every few seconds.

        Counts documents that were inserted in buckets. A store may estimate with a standard error of at most 1 %, and
        may count a document for an eighth of its time to live too long, or after its eviction from a backlog.
        """

    def count_claims(self) -> int:
        """Return the approximate number of claims, expired ones of the last lifetime included."""

    def close(self) -> None:
        """Close the connection; never raises."""


class Index(DocumentStore, PartitionStore, BacklogStore, StoreHealth, Protocol):
    """The index of one profile. Called from one thread; one process may have several.

    Order of the calls: ``open`` once per connection; ``partition_states`` when partitions are assigned; ``fence``
    before the first write for a partition and after every change of generation; for each batch the calls of
    ``DocumentStore``, then ``announce``, and after the commit ``finish``.
    """
