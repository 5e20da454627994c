"""Value types of the index contract besides index entries (``index.documents``), and the times to live."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

from streamdedup.position import Log, Partition, Position

#: Members of a full bucket that are returned to a document which is not inserted.
SHOWN_OF_FULL = 2
#: Largest number of members of a bucket of exact copies.
COPIES_CAP = 8

#: Parameters that two indexes must share to be comparable: name and value.
Fingerprint = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Opening:
    """Result of opening an index.

    Attributes:
        created: Whether the index was created.
        advisories: Differences of the fingerprints with effect on few pairs, for the operator; one text for each.
    """

    created: bool
    advisories: tuple[str, ...] = ()


# Partitions


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to write for one partition, bound to a generation of the consumer group.

    Attributes:
        partition: The partition.
        generation: Generation of the consumer group in which this process owns the partition.
        high_water_mark: Committed offset below which records emit nothing.
        attempt_id: The latest known committed attempt at a batch; empty when there is none.
        incarnation: Incarnation of the topic, counted for this partition.
        recreated: Whether the call that returned this fence began the incarnation.
        has_commit: Whether the group has a committed offset for the partition. An operator has set back a committed
            offset that is below the high-water mark.
    """

    partition: Partition
    generation: int
    high_water_mark: int
    attempt_id: str = ""
    incarnation: int = 0
    recreated: bool = False
    has_commit: bool = True

    @property
    def log(self) -> Log:
        """The identity of the partition in the index."""
        return Log(*self.partition, self.incarnation)


class LogState(NamedTuple):
    """State of a partition in Kafka when it is fenced.

    Attributes:
        topic_id: Id given to the topic by Kafka at the creation; empty when the broker does not tell.
        end: Offset after the last record, or None when unknown.
    """

    topic_id: str = ""
    end: int | None = None


#: The state of a partition about which Kafka tells nothing.
UNKNOWN_LOG = LogState()


def is_recreated(high_water_mark: int, topic_id: str, state: LogState) -> bool:
    """Tell whether a topic was deleted and created again after a high-water mark was stored (rule 6).

    ``redis/lua/raise_high_water_mark.lua`` has the same rule.

    Args:
        high_water_mark: High-water mark of a partition of the topic.
        topic_id: Id of the topic stored with the high-water mark; empty when unknown.
        state: Present state of the partition.
    """
    is_other = bool(topic_id and state.topic_id) and topic_id != state.topic_id
    return is_other or (state.end is not None and state.end < high_water_mark)


@dataclass(frozen=True, slots=True)
class PartitionState:
    """State of a partition in the index.

    Attributes:
        high_water_mark: Committed offset below which records emit nothing; None when the index has never seen the
            partition.
        announced: The latest attempt at a batch announced in every slot; empty when there is none.
        read_start: The last text of ``save_read_start``; empty when there is none.
    """

    high_water_mark: int | None
    announced: str = ""
    read_start: str = ""


# Buckets


@dataclass(frozen=True, slots=True)
class Hits:
    """Result of looking up documents in their buckets. Documents are named by their indexes in the call.

    Attributes:
        candidates: For each document the other members of its buckets: document number, and number of bands with this
            member.
        full_buckets_count: Number of refused insertions into full buckets.
        full: Documents with at least one full bucket.
        near_capacity: Documents with a bucket at least half full of other members; contains ``full``.
    """

    candidates: list[dict[int, int]]
    full_buckets_count: int = 0
    full: frozenset[int] = frozenset()
    near_capacity: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class FoundNearCapacity:
    """Members of buckets near capacity, to be inserted in the buckets of their contents by a document that found them.

    Attributes:
        documents: Number and content digest of each member.
        removals: Result of ``BucketStore.copy_removals`` from before the members were found.
    """

    documents: Sequence[tuple[int, bytes]]
    removals: Mapping[int, int]


# Backlog expiry


class ListedDocument(NamedTuple):
    """A document in the list of its partition, for backlog expiry.

    Attributes:
        number: Document number.
        position: Position of the record of the index entry.
        time_ms: Record time, milliseconds since the epoch.
    """

    number: int
    position: Position
    time_ms: int


class ListedClaim(NamedTuple):
    """A claim in the list of the partition whose record asked for the claim, for backlog expiry.

    Attributes:
        pair_key: The pair, 16 bytes.
        position: The position that claimed the pair or extended the claim.
        time_ms: Record time of the document at the position, milliseconds since the epoch.
    """

    pair_key: bytes
    position: Position
    time_ms: int


@dataclass(frozen=True, slots=True)
class Listed:
    """Entries of the lists for backlog expiry.

    Attributes:
        documents: Documents.
        claims: Claims that the documents asked for.
    """

    documents: list[ListedDocument] = field(default_factory=list)
    claims: list[ListedClaim] = field(default_factory=list)

    def __bool__(self) -> bool:
        """Tell whether there is any entry."""
        return bool(self.documents or self.claims)


_Entry = TypeVar("_Entry", ListedDocument, ListedClaim)


def by_log(entries: Sequence[_Entry]) -> dict[Log, list[_Entry]]:
    """Group listed documents or claims by the log of their position, in order."""
    groups: dict[Log, list[_Entry]] = {}
    for entry in entries:
        groups.setdefault(entry.position.log, []).append(entry)
    return groups


# Memory and times


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Memory of the server; of several servers, of the fullest one.

    Attributes:
        used_bytes: Memory in use, or None when unknown.
        limit_bytes: Memory limit, or None when there is none.
    """

    used_bytes: int | None
    limit_bytes: int | None


def claim_lifetime(lifetime_ms: int | None) -> int | None:
    """Return the time to live of a claim after the last request for the claim: two lifetimes of index entries.

    The index entries of both documents were written before the request, so both expire within the first lifetime. The
    second lifetime covers replays: a position may be processed again, or a document may be inserted again, until
    ``retention_slack`` later, which is less than a lifetime.

    Args:
        lifetime_ms: Time to live of index entries, from the last write; None for ever.
    """
    return None if lifetime_ms is None else 2 * lifetime_ms


def is_late(time_ms: float, lifetime_ms: int | None, now_ms: float) -> bool:
    """Tell whether an entry inserted now expires over 1/16 lifetime later than its record time demands.

    Args:
        time_ms: Record time, milliseconds since the epoch.
        lifetime_ms: Time to live of index entries, from the last write; None for ever.
        now_ms: The present, in milliseconds since the epoch.
    """
    return lifetime_ms is not None and now_ms - time_ms > lifetime_ms // 16


def wall_clock_ms() -> float:
    """Return the time since the epoch, in milliseconds."""
    return time.time() * 1000
