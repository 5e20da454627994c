"""Buckets of exact copies, which have the copies that full ordinary buckets hide or refused (``candidates``).

Called by ``detector``.
"""

from collections.abc import Mapping, Sequence

from streamdedup.detection.candidates import BucketHits
from streamdedup.detection.entry_chunks import BUDGET_BYTES, read_chunks, weight_bytes
from streamdedup.detection.model import InsertedBatch
from streamdedup.index.contract import DocumentStore
from streamdedup.index.documents import IndexEntry
from streamdedup.index.values import Fence, FoundNearCapacity


def insert_and_look_up_copies(
    store: DocumentStore, batch: InsertedBatch, hits: Mapping[int, BucketHits], fences: Sequence[Fence]
) -> tuple[dict[int, list[int]], dict[int, IndexEntry]]:
    """Insert each document with a bucket that is full or near capacity in its bucket of exact copies.

    The present members of a bucket near capacity are inserted in their buckets of exact copies, too: the bucket still
    returns all of them; once it is full, it returns only some.

    Returns the numbers of the copies found, by row, and by number the entries that were read, at most ``BUDGET_BYTES``.
    """
    rows = [row for row, hit in hits.items() if hit.may_miss_copies]
    if not rows:
        return {}, {}
    near_capacity = [row for row in rows if hits[row].is_near_capacity]
    members, entries = _members(store, batch, hits, near_capacity, fences)
    documents = [(batch.entries[row].number, batch.entries[row].digest) for row in rows]
    copies = store.insert_copies(documents, fences, members)
    return dict(zip(rows, copies, strict=True)), entries


def _members(
    store: DocumentStore,
    batch: InsertedBatch,
    hits: Mapping[int, BucketHits],
    rows: Sequence[int],
    fences: Sequence[Fence],
) -> tuple[FoundNearCapacity | None, dict[int, IndexEntry]]:
    """Return the members of the buckets near capacity, None for no ``rows``, and the read entries within the budget.

    The order matters: first the count of removals (``copy_removals``), then the buckets once more, because ``hits`` are
    older than the count, then the entries. A document that was deleted before the count is in no bucket any more. A
    deletion after the count changes the count, so ``insert_copies`` leaves the document out (rule 9).
    """
    if not rows:
        return None, {}
    removals = store.copy_removals()
    numbers = [batch.entries[row].number for row in rows]
    # Only to read the members: the documents are already in all buckets that are not full.
    present = set().union(*store.insert_and_look_up(numbers, batch.band_keys[rows], fences).candidates)
    # Only members in ``hits``, too: the look-up of a document that came since has found the bucket near capacity
    # itself, so the call for that document inserts it in its bucket of exact copies.
    members = sorted(present & {number for row in rows for number in hits[row].candidates})
    # Left out: ``insert_copies`` inserts these rows itself, in their order, so that a row finds only earlier rows.
    own_numbers = {batch.entries[row].number for row, hit in hits.items() if hit.may_miss_copies}
    documents: list[tuple[int, int, bytes]] = []
    within_budget: dict[int, IndexEntry] = {}
    for entries in read_chunks(store, members):
        documents += [
            (entry.time_ms, entry.number, entry.digest)
            for entry in entries.values()
            if not entry.deleted and entry.number not in own_numbers
        ]
        if weight_bytes(entries.values()) + weight_bytes(within_budget.values()) <= BUDGET_BYTES:
            within_budget |= entries
    latest_last = [(number, digest) for _, number, digest in sorted(documents)]
    return FoundNearCapacity(latest_last, removals), within_budget
