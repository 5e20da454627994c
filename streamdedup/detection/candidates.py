"""Candidates: the members of a document's buckets, and the choice of those that are compared.

Called by ``detector`` and ``lookup``, which get candidates from the index, and by ``verification``, which chooses among
them. ``tuning.capped`` computes the effect of the limits: a change here touches it.

Storms: many copies of one text fill the buckets of the text. For a document with a full bucket the index returns only
some members. Such a document is compared with at most ``STORM_CANDIDATES`` candidates, first with the latest members of
its bucket of exact copies. So the cost is the same for any number of earlier copies. A document whose buckets are
nearly full is compared with its exact copies too, because they may have come since and found the buckets full.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamdedup.detection.entry_chunks import BUDGET_BYTES, read_chunks, weight_bytes
from streamdedup.detection.model import InsertedBatch
from streamdedup.index.contract import DocumentStore
from streamdedup.index.documents import IndexEntry
from streamdedup.index.values import Fence, FoundNearCapacity, Hits

#: Candidates of a document with a full bucket, exact copies included. With so few a document in a storm costs about
#: three times an ordinary one, alert included (`python -m benchmarks storm`).
STORM_CANDIDATES = 3
#: Largest number of exact copies among these candidates.
STORM_COPIES = 2


class BucketHits(NamedTuple):
    """Candidates for one document.

    Attributes:
        candidates: Shared band count by document number.
        is_near_capacity: Whether other documents filled a bucket at least by half, and it is not full.
        full_count: Number of full buckets, of which only some members are candidates.
    """

    candidates: Mapping[int, int]
    is_near_capacity: bool = False
    full_count: int = 0

    @property
    def needs_copies(self) -> bool:
        """Whether a bucket, full or near capacity, may hide exact copies or have refused them."""
        return self.is_near_capacity or self.full_count > 0


class Copies(NamedTuple):
    """Members of the buckets of exact copies.

    Attributes:
        numbers: By batch row, for rows that need copies: the numbers of documents with the same content.
        entries: Index entries that ``CopyBuckets`` has read, by number; verification does not read them again.
    """

    numbers: Mapping[int, Sequence[int]]
    entries: Mapping[int, IndexEntry] = {}


def hits_by_row(rows: Sequence[int], hits: Hits) -> dict[int, BucketHits]:
    """Return the candidates by batch row, for documents that have any; ``hits`` is the look-up of ``rows``."""
    return {
        row: BucketHits(candidates, hit_row in hits.near_capacity, hits.full.get(hit_row, 0))
        for hit_row, (row, candidates) in enumerate(zip(rows, hits.candidates, strict=True))
        if candidates
    }


def promising_candidates(hit: BucketHits, limit: int | None) -> list[int]:
    """Return at most ``limit`` candidates to verify; equal hits have equal results.

    Those with the most shared bands are chosen; among equal counts, those with the smaller numbers. A document
    with a full bucket has the limit ``STORM_CANDIDATES``, also where ``limit`` is None (no limit).
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


class CopyBuckets:
    """The buckets of exact copies, in which a document finds the copies that full ordinary buckets hide or refused.

    The entries that are read at once weigh at most ``BUDGET_BYTES``, and so do the returned ones.
    """

    def __init__(self, store: DocumentStore) -> None:
        self._store = store

    def insert_and_look_up(
        self, batch: InsertedBatch, hits: Mapping[int, BucketHits], fences: Sequence[Fence]
    ) -> Copies:
        """Insert each document that has a bucket near capacity, or full, into its bucket of exact copies; return these.

        The present members of a bucket near capacity are inserted in their buckets of exact copies, too: the bucket
        still returns all of them; once full, it returns only some, and copies could no longer be found through it.
        """
        rows = [row for row, hit in hits.items() if hit.needs_copies]
        if not rows:
            return Copies({})
        near_capacity = [row for row in rows if hits[row].is_near_capacity]
        members, entries = self._members(batch, hits, near_capacity, fences)
        documents = [(batch.entries[row].number, batch.entries[row].digest) for row in rows]
        copies = self._store.insert_copies(documents, fences, members)
        return Copies(dict(zip(rows, copies, strict=True)), entries)

    def _members(
        self, batch: InsertedBatch, hits: Mapping[int, BucketHits], rows: Sequence[int], fences: Sequence[Fence]
    ) -> tuple[FoundNearCapacity | None, dict[int, IndexEntry]]:
        """Read the members of buckets near capacity.

        The order matters: first the count of removals (``copy_removals``), then the buckets once more, because ``hits``
        are older than the count, then the entries. A document that was deleted before the count is in no bucket any
        more. A deletion after the count changes the count, so ``insert_copies`` leaves the document out (rule 9).

        Returns the members with their digests, None for no ``rows``; and the read entries that the budget allows.
        """
        if not rows:
            return None, {}
        removals = self._store.copy_removals()
        numbers = [batch.entries[row].number for row in rows]
        # Only to read the members: the documents are already in all buckets that are not full.
        present = set().union(*self._store.insert_and_look_up(numbers, batch.band_keys[rows], fences).candidates)
        # Only members in ``hits``, too: the look-up of a document that came since has found the bucket near capacity
        # itself, so the call for that document inserts it in its bucket of exact copies.
        members = sorted(present & {number for row in rows for number in hits[row].candidates})
        # Left out: ``insert_copies`` inserts these rows itself, in their order, so that a row finds only earlier rows.
        own_numbers = {batch.entries[row].number for row, hit in hits.items() if hit.needs_copies}
        documents: list[tuple[int, int, bytes]] = []
        within_budget: dict[int, IndexEntry] = {}
        for entries in read_chunks(self._store, members):
            documents += [
                (entry.time_ms, entry.number, entry.digest)
                for entry in entries.values()
                if not entry.deleted and entry.number not in own_numbers
            ]
            if weight_bytes(entries.values()) + weight_bytes(within_budget.values()) <= BUDGET_BYTES:
                within_budget |= entries
        latest_last = [(number, digest) for _, number, digest in sorted(documents)]
        return FoundNearCapacity(latest_last, removals), within_budget
