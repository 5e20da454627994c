"""Candidates: the members of a document's buckets, and the choice of those that are compared.

Storms: many copies of one text fill the buckets of the text. For a document with a full bucket the index returns only
some members. Such a document is compared with at most ``STORM_CANDIDATES`` candidates, first with the latest members of
its bucket of exact copies. So the cost is the same for any number of earlier copies. A document whose buckets are
nearly full is compared with its exact copies too, because they may have come since and found the buckets full.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamdedup.index.values import Hits

#: Candidates of a document with a full bucket, exact copies included. With so few a document in a storm costs about
#: three times an ordinary one, alert included (`python -m benchmarks storm`).
STORM_CANDIDATES = 3
#: Largest number of exact copies among these candidates.
STORM_COPIES = 2


class BucketHits(NamedTuple):
    """Candidates for one document.

    Attributes:
        candidates: Shared band count by document number.
        is_near_capacity: Whether a bucket that is not full has at least half of ``bucket_cap`` other members.
        full_count: Number of full buckets, of which only some members are candidates.
    """

    candidates: Mapping[int, int]
    is_near_capacity: bool = False
    full_count: int = 0

    @property
    def may_miss_copies(self) -> bool:
        """Whether a bucket, full or near capacity, may hide exact copies or have refused them."""
        return self.is_near_capacity or self.full_count > 0


def hits_by_row(rows: Sequence[int], hits: Hits) -> dict[int, BucketHits]:
    """Return the candidates by batch row, for documents that have any; ``hits`` is the look-up of ``rows``."""
    return {
        row: BucketHits(candidates, hit_row in hits.near_capacity, hits.full.get(hit_row, 0))
        for hit_row, (row, candidates) in enumerate(zip(rows, hits.candidates, strict=True))
        if candidates
    }


def promising_candidates(hit: BucketHits, limit: int | None) -> list[int]:
    """Return at most ``limit`` candidates to verify: those with the most shared bands, then with the smaller numbers.

    A document with a full bucket has the limit ``STORM_CANDIDATES``, also where ``limit`` is None (no limit).
    """
    candidates = hit.candidates
    if hit.full_count:
        limit = STORM_CANDIDATES if limit is None else min(limit, STORM_CANDIDATES)
    if limit is None or len(candidates) <= limit:
        return list(candidates)
    return sorted(candidates, key=lambda number: (-candidates[number], number))[:limit]


def with_copies(promising: list[int], copies: Sequence[int], hit: BucketHits) -> list[int]:
    """Add exact copies; with a full bucket return at most ``STORM_CANDIDATES``, first up to ``STORM_COPIES`` copies."""
    if not copies:
        return promising
    if not hit.full_count:
        return list(dict.fromkeys([*promising, *copies]))
    return list(dict.fromkeys([*copies[:STORM_COPIES], *promising]))[:STORM_CANDIDATES]
