"""The contract of the index: what the detector needs of a store, and what it may rely on.

The store keeps four kinds of facts about the documents of one profile:

* the *record* of a document, found by its number: the authority on which version of it exists, and where it came from;
* the *buckets*, sets of document numbers, one for each band and band key: hints only, a member may be out of date;
* the *claims*, for each alerted pair the position that owns it;
* per partition the *fence* (the generation of the consumer group that may write), the *mark* (the offset known to be
  committed) and the *announcement* (the last attempt at a batch that is completely written), and per position the
  *partners* found for it and not yet committed.

Twelve rules keep a pair from being lost or doubled although the store lies outside the transaction that publishes it.
Each has its place:

1. *entry first*: ``insert_entries`` returns before ``insert_and_look_up`` is called.
2. *add before read*: ``insert_and_look_up`` adds and reads a bucket in one atomic step, so that of two documents that
   race through two daemons at least one sees the other in every band they share.
3. *position order*: a record is replaced only by a later position (``index.documents.decide_version``), be it a new
   version or the marker of a deletion.
4. *pending matches saved*: ``save_pending_matches`` stores the verified matches of a position and returns them with all
   that were stored for it before.
5. *claim*: ``claim_pairs`` gives a pair to the position that asks first. Each time a pair is asked for, by whichever
   position, its claim lives for two lifetimes from then on: as long as the index entries of both documents may live,
   and a lifetime more for the longest replay. A renewed document also extends its claims with the other
   documents that it meets without a match, outside the window for example.
6. *high-water mark*: ``fence`` returns the offset below which records are indexed but emit nothing; ``finish`` moves
   it. It belongs to one incarnation of a topic: when Kafka has another id for the topic than the index, or the
   partition ends below the mark, the topic was deleted and created again. ``fence`` then counts the next incarnation,
   whose mark begins at the first offset read. The incarnation is part of every position that the index stores, so that
   the next incarnation is another partition to all other rules.
7. *fence*: every write names the generation under which it happens, and the store that it comes from; it is refused
   when another generation or, under the same one, another store has taken the partition over.
8. *claims seeded*: after the index was lost, claims are restored with ``claim_pairs`` before the daemon goes on.
9. *remove before change*: the old version of a document leaves its buckets while its record, from which they are known,
   still stands; only then is the record replaced. Nobody takes out another's document: a member is a hint, checked
   against the record of whoever it names. Another's document is inserted in one place only, the bucket of its content
   (``insert_copies``), and not when it may have left since its record was read.
10. *no late writes*: the calls of a store are numbered, and a slot refuses one that comes after a later one. So a write
   that was given up for lost and repeated does no harm when it arrives after all: it could take a document out of a
   bucket that it has entered again since.
11. *announce*: before a batch is published ``announce`` notes its attempt in every part of the store, and the same note
   is committed with the offsets. A committed note beyond what is announced tells that the store has gone back to an
   earlier time; ``fence`` looks at both. A mark below the committed offset tells nothing: a crash right after a commit
   leaves it.

12. *backlog expiry*: times to live count from the insertion, which is too late for a backlog. Where records are in the
   order of their times, a document that is inserted long after its record time is listed with ``list_expiring`` before
   its batch is published, with the claims that it asks for. ``evict`` removes it when no partition has records left
   that it could be compared with: when the event-time watermark of every partition is past its window. A claim is
   evicted one lifetime later, because the other side of the pair may be so much later. Rule 9 holds here too:
   buckets first, then the entry, then the list. The lists are slices of time that expire as wholes
   (``index.expiry_lists``), one lifetime after the last entry was appended, so they are bounded where a watermark holds
   everything back. An id is presumed to keep to its partition.

Every write may be repeated at once, also after a time-out that in truth had succeeded: the outcome of the second call
leads the detector to the same result. A crash between two calls leaves hints without a document or partners without a
commit, both of which the replay of the batch uses or time removes.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamdedup.index.documents import IndexEntry, InsertResult, PendingMatches
from streamdedup.position import Log, Partition, Position

#: Members of a full bucket that are shown to a document which could not enter it.
SHOWN_OF_FULL = 2
#: Most members of a bucket of exact copies.
COPIES_CAP = 8

#: What makes two indexes comparable: name of a parameter and its value.
Fingerprint = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to write for one partition.

    Attributes:
        partition: Which.
        generation: Generation of the consumer group under which the partition is ours.
        mark: Offset known to be committed; records below it emit nothing.
        note: The last announcement known to be committed; empty when none is.
        incarnation: Incarnation of the topic, counted for this partition.
        recreated: Whether the call that returned this fence began that incarnation.
        is_set_back: Whether something is committed for the partition: if it lies below the mark, somebody has set the
            offset back.
    """

    partition: Partition
    generation: int
    mark: int
    note: str = ""
    incarnation: int = 0
    recreated: bool = False
    is_set_back: bool = True

    @property
    def log(self) -> Log:
        """The identity of the partition in the index."""
        return Log(*self.partition, self.incarnation)


class LogState(NamedTuple):
    """What Kafka says of a partition that is fenced.

    Attributes:
        topic_id: Id that Kafka gave the topic when it was created; empty when the broker tells none.
        end: Offset behind the last record, or None when it is not known.
    """

    topic_id: str = ""
    end: int | None = None


#: The state of a partition of which Kafka says nothing.
UNKNOWN_LOG = LogState()


def is_recreated(mark: int, topic_id: str, state: LogState) -> bool:
    """Tell whether a topic was deleted and created again since the index noted a mark (rule 6).

    Args:
        mark: The mark of one of its partitions.
        topic_id: The id noted along with it; empty when none is.
        state: What Kafka says of the partition now.
    """
    is_other = bool(topic_id and state.topic_id) and topic_id != state.topic_id
    return is_other or (state.end is not None and state.end < mark)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What the index knows of a partition.

    Attributes:
        mark: The offset known to be committed; None when the index has never seen the partition.
        announced: The last attempt at a batch that every part of the index knows of; empty when there was none.
        read_start: Text that ``save_read_start`` stored last; empty when there is none.
    """

    mark: int | None
    announced: str = ""
    read_start: str = ""


class ListedDocument(NamedTuple):
    """A document in the list of its partition, for backlog expiry.

    Attributes:
        number: Document number.
        position: Position of the record that the index entry was made from.
        time_ms: Record time, milliseconds since the epoch.
    """

    number: int
    position: Position
    time_ms: int


class ListedClaim(NamedTuple):
    """A claim in the list of the partition whose record asked for it, for backlog expiry.

    Attributes:
        pair_key: The pair, 16 bytes.
        position: The position that asked for the claim or extended it.
        time_ms: Record time of the document of that position, milliseconds since the epoch.
    """

    pair_key: bytes
    position: Position
    time_ms: int


#: Either of the two.
Placed = TypeVar("Placed", ListedDocument, ListedClaim)


@dataclass(frozen=True, slots=True)
class Listed:
    """Entries of the lists for backlog expiry.

    Attributes:
        documents: Documents.
        claims: Claims that they asked for.
    """

    documents: list[ListedDocument] = field(default_factory=list)
    claims: list[ListedClaim] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Tell whether there is any entry."""
        return bool(self.documents or self.claims)


@dataclass(frozen=True, slots=True)
class Hits:
    """What the buckets showed.

    Attributes:
        candidates: For each document the numbers of others in its buckets, and in how many of its bands each was met.
        full_buckets_count: How often a bucket was full, so that a document did not enter it.
        full: Which documents met a full bucket, by their places in the call.
        near_capacity: Which documents met a bucket with at least half as many others as it can hold; all of ``full``
            did.
    """

    candidates: list[dict[int, int]]
    full_buckets_count: int = 0
    full: frozenset[int] = frozenset()
    near_capacity: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class FoundNearCapacity:
    """Documents that were met in crowded buckets, to be inserted in the buckets of their contents by another one.

    Attributes:
        documents: Number and content digest of each.
        departures: Result of ``BucketStore.departures`` from before the documents were met.
    """

    documents: Sequence[tuple[int, bytes]]
    departures: Mapping[int, int]


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Memory of a store; of several servers, that of the one that is fullest.

    Attributes:
        used_bytes: Memory in use by the server, or None when unknown.
        limit_bytes: Its limit, or None when there is none.
    """

    used_bytes: int | None
    limit_bytes: int | None


@dataclass(frozen=True, slots=True)
class Opening:
    """How an index was found.

    Attributes:
        created: Whether there was none before.
        advisories: Differences that make hardly any difference, for the operator; one text each.
    """

    created: bool
    advisories: tuple[str, ...] = ()


class BucketStore(Protocol):
    """The index of one profile. Called from one thread; one process may hold several.

    Order: ``open`` once per connection; ``noted`` when partitions are assigned; ``fence`` before the first write
    for one and after every change of generation; then for each batch ``insert_entries``; where documents change or
    are deleted ``get_entries``, ``remove_from_buckets``, ``remove_copies``, ``replace_entries``; then
    ``insert_and_look_up``; where it is crowded ``departures``, ``insert_and_look_up`` again, ``read_entries`` and
    ``insert_copies``; then ``read_entries``, ``save_pending_matches``, ``claim_pairs``, ``get_entries``,
    ``set_clusters``, ``announce``, and after the commit ``finish``.

    All methods raise ``StoreUnavailable`` when the server does not answer, is full, loading or failing over (nothing or
    part of the call took effect; repeat the batch), and ``StoreMisconfigured`` when it refuses us for good. Those that
    take ``fences`` raise ``BatchRefused`` when a later generation owns one of them or when one is not set (any more),
    and ``IndexLost`` when the whole index is gone.
    """

    def open(self, fingerprint: Fingerprint, *, create: bool = True) -> Opening | None:
        """Make sure that the index was built with these parameters.

        Args:
            fingerprint: The parameters.
            create: Whether to create it when there is none.

        Returns:
            How it was found; None when there is none and none was to be created.

        Raises:
            IndexMismatch: It was built with others; the text names each that differs. Or none is there, but what a
                deletion that was cut short has left, and one was to be created.
            StoreUnavailable: Somebody builds it anew, besides what all methods raise it for.
        """

    def fence(
        self, partition: Partition, generation: int, committed: int, note: str = "", state: LogState = UNKNOWN_LOG
    ) -> Fence:
        """Take over a partition: from now on writes of lower generations are refused.

        Args:
            partition: The partition.
            generation: Our generation.
            committed: Offset that the group has committed, or where it starts; the mark is raised to it.
            note: The announcement that was committed with it. Where there is none, nor a fence, the group was made
                anew, and what was announced before counts no more.
            state: What Kafka says of the partition. Of an earlier incarnation of its topic (``is_recreated``) the mark,
                its watermark and saved partners are forgotten.

        Partners saved for positions below the committed offset are forgotten: a daemon may have died before it did so.

        Returns:
            The right to write, with the mark as it stands now.

        Raises:
            BatchRefused: A later generation has fenced it already, or the topic has another id by now.
            IndexLost: The whole index is gone, or a part of it has never heard of that announcement.
        """

    def noted(self, partitions: Sequence[Partition]) -> dict[Partition, PartitionState]:
        """Return what the index knows of partitions; of none anything when there is no index, or only a draft.

        A partition of which something is committed has a mark, because it was fenced before; if not, the index is lost.
        """

    def save_read_start(self, read_start: str, fence: Fence) -> None:
        """Store where a process begins to read a partition; ``noted`` returns the text.

        The text never expires, because a process may keep a partition for months.

        Args:
            read_start: Text that the index does not interpret.
            fence: Fence of the partition.

        Raises:
            BatchRefused: A later generation owns the partition.
            StoreUnavailable: The index did not answer.
        """

    def announce(self, note: str, fences: Sequence[Fence]) -> None:
        """Note in every part of the index that an attempt at a batch is completely written, before it is published.

        Args:
            note: Names the attempt; in the order of texts greater than that of every attempt before.
            fences: Rights to write, for every partition of the batch.

        Raises:
            IndexLost: A part of the index has not heard of what is committed of one of the partitions.
        """

    def unfence(self, partition: Partition) -> None:
        """Forget the fence of a partition; for an operator whose consumer group was deleted and counts anew."""

    def insert_entries(self, records: Sequence[IndexEntry], fences: Sequence[Fence]) -> list[InsertResult]:
        """Store records where none stands yet; one result for each, in order.

        A later version of what stands there is not stored yet: the old one has to leave its buckets first.
        """

    def replace_entries(self, records: Sequence[IndexEntry], fences: Sequence[Fence]) -> None:
        """Store records and deletion markers in the order given, where nothing or an earlier position stands."""

    def insert_and_look_up(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> Hits:
        """Add each document to its bucket of each band, and read who else is there, atomically for each bucket.

        Documents enter in the order given, so a later one meets an earlier one of the same call.
        A bucket at its cap takes no further member, is not kept alive by the attempt, and shows whoever could not enter
        at most ``SHOWN_OF_FULL`` of its members.

        Args:
            numbers: Document numbers, n of them.
            band_keys: (n, bands) band keys.
            fences: Rights to write.
        """

    def remove_from_buckets(
        self, numbers: Sequence[int], band_keys: NDArray[np.uint32], fences: Sequence[Fence]
    ) -> None:
        """Take each document out of its bucket of each band.

        Args:
            numbers: Document numbers, n of them.
            band_keys: (n, bands) band keys.
            fences: Rights to write.
        """

    def remove_copies(self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence]) -> None:
        """Take each document out of the bucket of its content, and count the departure.

        Only for documents that have left all their other buckets (rule 9).
        """

    def departures(self) -> Mapping[int, int]:
        """Return how many departures from buckets of contents were counted so far, for each part of the index."""

    def insert_copies(
        self, documents: Sequence[tuple[int, bytes]], fences: Sequence[Fence], met: FoundNearCapacity | None = None
    ) -> list[list[int]]:
        """Add each document to the bucket of its content and read which others are there, atomically for each.

        Such a bucket holds at most ``COPIES_CAP``; when it is full, a newcomer takes the place of any other member. For
        documents in crowded buckets only, where an exact copy could hide behind a full one.

        Args:
            documents: Number and content digest of each; they enter in the order given.
            fences: Rights to write.
            met: Documents of others, inserted before. One that has left since its entry was read must not come back:
                its deletion would leave number and digest behind. So none is inserted of whose content a document has
                departed since ``met.departures``; an implementation may leave out others too. A document that was met
                in a bucket after these were counted had not departed by then in the version that is read afterwards.

        Returns:
            For each of ``documents`` others of the same content, by its place in the call; hints, like members of any
            bucket.
        """

    def get_entries(self, numbers: Sequence[int]) -> dict[int, IndexEntry]:
        """Return the records that exist among ``numbers``, markers of deletions included."""

    def read_entries(self, numbers: Sequence[int], limit_bytes: int) -> dict[int, IndexEntry | None]:
        """Read index entries until they weigh a limit.

        Args:
            numbers: Distinct numbers of documents.
            limit_bytes: Weight at which reading ends, in bytes of the stored form; at least 1. An implementation that
                reads several parts of the index at once divides the limit among them, and exceeds it by at most one
                entry for each part.

        Returns:
            For each number that was read its entry, a marker of a deletion included, or None where there is none; of
            any numbers at least one is read. Numbers that are missing were not read.
        """

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
        met: Sequence[tuple[bytes, Position]] = (),
    ) -> list[bool]:
        """Claim pairs for positions; each claim lives for two lifetimes, at least, after it was last asked for or met.

        Args:
            claims: Pairs, each with the position that asks for it.
            fences: Rights to write.
            met: Pairs that a renewed document has met without a match, each with the position of that document. Their
                claims are extended where there are any, and none is made.

        Returns:
            For each of ``claims`` whether the pair belongs to that position, now or since earlier.
        """

    def count_claims(self) -> int:
        """Return about how many claims there are, expired ones of the last lifetime included; a cheap look."""

    def set_clusters(self, clusters: Sequence[tuple[int, Position, int]], fences: Sequence[Fence]) -> None:
        """Set the cluster of documents.

        A record whose position is another one by now is left alone.

        Args:
            clusters: Number of the document, position of the version meant, number of the cluster's first document.
            fences: Rights to write.
        """

    def finish(
        self, committed: Mapping[Partition, int], positions: Sequence[Position], fences: Sequence[Fence]
    ) -> None:
        """Note what is committed: raise the marks, forget the partners saved for ``positions``."""

    def is_late(self, time_ms: int) -> bool:
        """Tell whether a record of this time, put now, would live for long after its time is over.

        Where records live for ever none does; see the function of this name.
        """

    def list_expiring(self, listed: Listed, fences: Sequence[Fence]) -> None:
        """List documents that were inserted late and their claims, each under its partition, for ``evict``.

        Listed entries expire one lifetime, and at most an eighth of it more, after the call. A call that is repeated
        lists nothing twice. An entry does no harm when its document has moved to another position or its claim to
        another owner.
        """

    def watermarks(self) -> dict[Partition, int]:
        """Return the event-time watermarks of all partitions; empty while no partition has a backlog.

        Returns:
            Milliseconds since the epoch, for each partition that has one.
        """

    def set_watermarks(
        self, watermarks: Mapping[Partition, int], fences: Sequence[Fence], *, extend: bool
    ) -> dict[Partition, int]:
        """Set event-time watermarks.

        Args:
            watermarks: For each partition a time, in milliseconds since the epoch, below which it has no record left.
            fences: Rights to write for these partitions.
            extend: Whether all watermarks are kept for one lifetime from now. Otherwise their time to live is
                unchanged, and nothing is set where there are none.

        Returns:
            The watermarks of all partitions.
        """

    def expired(self, logs: Sequence[Log], watermark_ms: int, count: int) -> list[Listed]:
        """Return the first listed documents and claims of each partition that no later record can be compared with.

        What an earlier incarnation of a topic has listed is left to its time to live.

        Args:
            logs: Partitions.
            watermark_ms: The least watermark of all partitions.
            count: Most listed documents, and most claims, to read of a partition; fewer are read where a slice ends.
                Documents end at the first that is not older than one lifetime, claims at the first that is not older
                than two.
        """

    def evict(self, listed: Listed, fence: Fence) -> None:
        """Remove entries that are still at these positions, and claims that these asked for last; then unlist both.

        Args:
            listed: The first listed documents and claims of the partition; the documents are in no bucket any more.
            fence: Right to write for the partition.
        """

    def connections_count(self) -> int:
        """Return how many connections to servers were opened so far.

        As long as it stays the same, the servers know all that they have acknowledged.
        """

    def ping(self) -> None:
        """Ask the server for a sign of life."""

    def stats(self) -> StoreStats:
        """Return figures about the server."""

    def count_documents(self) -> int:
        """Return about how many documents are in the index; cheap enough to be asked every few seconds.

        Counted are those that entered their buckets. An implementation may estimate, with a standard error of 1 % at
        most, and may count a document for up to an eighth longer than its time to live, taken out of a backlog or not.
        """

    def close(self) -> None:
        """Free the connection; never raises."""


def claim_lifetime(lifetime_ms: int | None) -> int | None:
    """Return how long a claim lives after it was last asked for.

    An index entry that is written before the question lives for one lifetime at most. The second one covers replays: a
    position may be processed again, or a document may come back, until ``retention_slack`` later, which is less than a
    lifetime.

    Args:
        lifetime_ms: How long index entries live after they were written; None for ever.
    """
    return None if lifetime_ms is None else 2 * lifetime_ms


def is_late(time_ms: float, lifetime_ms: int | None, now_ms: float) -> bool:
    """Tell whether a record that is put now would outlive its time by more than a sixteenth of its life.

    Args:
        time_ms: Record time, milliseconds since the epoch.
        lifetime_ms: How long records live after they were written; None for ever.
        now_ms: The present, in milliseconds since the epoch.
    """
    return lifetime_ms is not None and now_ms - time_ms > lifetime_ms // 16


def by_log(entries: Sequence[Placed]) -> dict[Log, list[Placed]]:
    """Group listed documents or claims by the log of their position, in order."""
    groups: dict[Log, list[Placed]] = {}
    for entry in entries:
        groups.setdefault(entry.position.log, []).append(entry)
    return groups


def wall_clock_ms() -> float:
    """Return the time since the epoch, in milliseconds."""
    return time.time() * 1000
