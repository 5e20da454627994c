"""The arguments and results of the index contract (``index.contract``) besides index entries, and the times to live.

A change of ``is_recreated`` touches ``redis/lua/raise_high_water_mark.lua``, a change of a time to live docs/redis.md.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.position import Partition, Position

#: Number of members that a full bucket returns for a document that it refuses.
SHOWN_OF_FULL = 2
#: Largest number of members of a bucket of exact copies.
COPIES_CAP = 8
#: Largest cluster size that is counted; a larger cluster has this size.
CLUSTER_SIZE_CAP = 1000

#: Owner of the claims on pairs with a committed alert, set by a rebuild (rule 8); no record has this position.
PUBLISHED = Position("", 0, -1)

#: Parameters that an index was built with, by name; ``index.fingerprints`` compares them with the settings.
Fingerprint = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Opening:
    """The opening of an index; ``advisories`` are texts about fingerprint differences that affect few pairs."""

    is_created: bool
    advisories: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Fence:
    """The right to write for one partition, bound to a consumer-group generation; a store adds its writer (rule 7).

    Attributes:
        committed_id: Id of the latest known committed attempt at a batch; empty when there is none.
        incarnation: Topic incarnation, counted for this partition.
        is_recreated: Whether the call that returned this fence began the incarnation.
        has_commit: Whether the group has a committed offset for the partition; set by ``daemon``, not by stores. With a
            committed offset, records below the high-water mark mean that an operator has set the offset back; without
            one, nothing explains such records.
    """

    partition: Partition
    generation: int
    high_water_mark: int
    committed_id: str = ""
    incarnation: int = 0
    is_recreated: bool = False
    has_commit: bool = True

    def position_at(self, offset: int) -> Position:
        return Position(*self.partition, offset, self.incarnation)


Fences = Sequence[Fence]


class BrokerState(NamedTuple):
    """Partition state in Kafka at the fence.

    Attributes:
        topic_id: Empty when unknown.
        end: Offset after the last record; None when unknown.
        incarnation: Topic incarnation committed with the offset, for an index that has never seen the partition.
    """

    topic_id: str = ""
    end: int | None = None
    incarnation: int = 0


UNKNOWN_BROKER_STATE = BrokerState()


def is_recreated(high_water_mark: int, topic_id: str, state: BrokerState) -> bool:
    """Tell whether a topic was created again since a high-water mark was stored, with ``topic_id`` (rule 6).

    ``redis/lua/raise_high_water_mark.lua`` has the same rule.
    """
    has_other_id = bool(topic_id and state.topic_id) and topic_id != state.topic_id
    return has_other_id or (state.end is not None and state.end < high_water_mark)


class AnnouncedAttempt(NamedTuple):
    """The attempt at a batch that was announced last in a slot.

    Attributes:
        start: Offset at which its batch begins; all earlier records are in the slot. None without an attempt.
        committed_id: Last committed attempt that was known when this attempt was announced; empty for none.
    """

    attempt_id: str = ""
    start: int | None = None
    committed_id: str = ""

    def knows(self, committed_id: str) -> bool:
        """Tell whether the slot knows a committed attempt (rule 11); so does ``redis/lua/announce_attempt.lua``."""
        return committed_id == self.attempt_id or committed_id <= self.committed_id


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Partition state in the index; without a high-water mark the index has never seen the partition.

    ``attempts`` are the different announced attempts of the slots, the default for a slot without one.
    """

    high_water_mark: int | None
    incarnation: int = 0
    topic_id: str = ""
    attempts: tuple[AnnouncedAttempt, ...] = (AnnouncedAttempt(),)

    @property
    def least_announced(self) -> str:
        """Least id announced in any slot; empty when a slot has none."""
        return min(attempt.attempt_id for attempt in self.attempts)

    @property
    def latest_announced(self) -> str:
        """Greatest id announced in any slot."""
        return max(attempt.attempt_id for attempt in self.attempts)

    @property
    def committed_id(self) -> str:
        """Least committed id stored beside an announcement: all slots know this commit. Empty for none."""
        return min(attempt.committed_id for attempt in self.attempts)

    @property
    def known_id(self) -> str:
        """An id that all slots know: of the announced attempt if it is the same in all, else ``committed_id``."""
        return self.least_announced if self.least_announced == self.latest_announced else self.committed_id

    def knows(self, committed_id: str) -> bool:
        """Tell whether all slots know a committed attempt."""
        return all(attempt.knows(committed_id) for attempt in self.attempts)

    def gap_start(self, committed_id: str) -> int:
        """Return the offset from which a slot may lack records; some slot does not know the committed attempt."""
        return min(attempt.start or 0 for attempt in self.attempts if not attempt.knows(committed_id))


#: Band keys of n documents: uint32 (n, bands).
BandKeys = NDArray[np.uint32]
#: A document number and the content digest of the document.
NumberAndDigest = tuple[int, bytes]


@dataclass(frozen=True, slots=True)
class Hits:
    """The other members of the buckets of some documents, which are named by their rows in the call.

    Attributes:
        candidates: By row; ``{17: 3}`` for a document that shares the buckets of three bands with document number 17.
        full: Number of full buckets by row, for documents with at least one.
        near_capacity: Rows with a bucket that other members fill at least by half, and that accepts the document.
    """

    candidates: list[dict[int, int]]
    full: Mapping[int, int] = field(default_factory=dict)
    near_capacity: frozenset[int] = frozenset()


class HitsBuilder:
    """Builds the hits of documents from the members of their buckets; a ``bucket_cap`` of None is no limit."""

    def __init__(self, numbers: Sequence[int], bucket_cap: int | None) -> None:
        self._numbers = numbers
        self._bucket_cap = bucket_cap or math.inf
        self._candidates: list[dict[int, int]] = [{} for _ in numbers]
        self._full: Counter[int] = Counter()
        self._near_capacity: set[int] = set()

    def refuses(self, row: int, members: Collection[int]) -> bool:
        """Tell whether a bucket refuses a document: it is full, and the document is no member."""
        return len(members) >= self._bucket_cap and self._numbers[row] not in members

    def add(self, row: int, members: Iterable[int], *, is_full: bool) -> None:
        """Count the other members of a bucket, or those that it shows if it ``is_full`` and refuses the document."""
        band_counts, number = self._candidates[row], self._numbers[row]
        co_members = [member for member in members if member != number]
        for member in co_members:
            band_counts[member] = band_counts.get(member, 0) + 1
        if is_full:
            self._full[row] += 1
        elif 2 * len(co_members) >= self._bucket_cap:
            self._near_capacity.add(row)

    def hits(self) -> Hits:
        return Hits(self._candidates, self._full, frozenset(self._near_capacity))


#: Chooses the shown members of full buckets, without a change to the random numbers of a program that uses the library.
_random = Random()  # noqa: S311  no secret


def hits_of_members(numbers: Sequence[int], buckets: Sequence[Sequence[Sequence[int]]], bucket_cap: int | None) -> Hits:
    """Return the hits of ``IndexReader.look_up``; ``buckets[row]`` has the members of each bucket of a document."""
    builder = HitsBuilder(numbers, bucket_cap)
    for row, document_buckets in enumerate(buckets):
        for members in document_buckets:
            is_full = builder.refuses(row, members)
            shown = _random.sample(members, min(SHOWN_OF_FULL, len(members))) if is_full else members
            builder.add(row, shown, is_full=is_full)
    return builder.hits()


@dataclass(frozen=True, slots=True)
class FoundNearCapacity:
    """Members of buckets near capacity, to be inserted in the buckets of exact copies, the latest last.

    ``removals`` is the result of ``DocumentStore.copy_removals`` before the members were read.
    """

    documents: Sequence[NumberAndDigest]
    removals: Mapping[int, int]


#: A document number, the position of the document's entry, and the number of a first document, or its own.
NamedCluster = tuple[int, Position, int]


class ClusterCounts(NamedTuple):
    """Counts and times of a cluster; those of its first ``CLUSTER_SIZE_CAP`` documents in a larger one.

    All but ``size`` are 0 for an empty cluster set.

    Attributes:
        sources: Distinct sources; documents without a source do not count.
        earliest: Number of the document with the smallest record time, ``since_ms``; among equal times, with the
            smallest partition and offset.
        until_ms: Greatest record time.
    """

    size: int
    sources: int = 0
    earliest: int = 0
    since_ms: int = 0
    until_ms: int = 0


#: Share of the memory limit beyond which the daemon and its checks warn; the same as in the Prometheus alert rule.
NEARLY_FULL = 0.85


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Memory of the fullest server: bytes in use (None when unknown), and the limit (None for none)."""

    used_bytes: int | None
    limit_bytes: int | None

    @property
    def used_share(self) -> float:
        return (self.used_bytes or 0) / self.limit_bytes if self.limit_bytes else 0.0


def claim_lifetime(lifetime_ms: int) -> int:
    """Return the least time to live of a claim after the last request for it: two lifetimes of index entries.

    The entries of both documents expire within the first lifetime. The second covers replays, up to a lifetime later.
    """
    return 2 * lifetime_ms


def marker_lifetime(lifetime_ms: int) -> int:
    """Return the time to live of a deletion marker: four lifetimes, longer than any claim.

    A document that is inserted again takes its incarnation from the marker. Without it the pairs would have the keys of
    the claims from before the deletion, and would not be alerted. A store may keep a claim for three lifetimes, and a
    replay of the other document may request the claim until ``retention_slack`` after the deletion.
    """
    return 4 * lifetime_ms
