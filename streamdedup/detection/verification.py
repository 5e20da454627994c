"""Verification: from the candidates of a document to its near-duplicates.

The index entries of candidates are read in chunks, and their sketches are compared.

Storms: many copies of one text fill the buckets of the text. For a document with a full bucket the index returns only
some of the members. Such a document is compared with at most ``STORM_CANDIDATES``, exact copies from the bucket of its
content first, so that the cost is the same for any number of earlier copies.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from streamdedup.detection.comparison import Comparer, matches_by_row, rows_by_candidate
from streamdedup.detection.entry_chunks import BUDGET_BYTES, read_chunks, weight_bytes
from streamdedup.detection.model import DetectionResult, DetectorOptions, InsertedBatch, pair_key, pair_side
from streamdedup.detection.suppression import SuppressionRule
from streamdedup.index.contract import DocumentStore
from streamdedup.index.documents import IndexEntry, InsertState
from streamdedup.index.values import Fence, FoundNearCapacity, Hits
from streamdedup.similarity.sketch import Sketcher
from streamdedup.wire import Match

#: Candidates of a document with a full bucket, exact copies included. With so few a document in a storm costs about
#: three times an ordinary one, alert included (`python -m benchmarks storm`).
STORM_CANDIDATES = 3
#: Exact copies among them, at most.
STORM_COPIES = 2


#: States of documents that may have had an index entry before, and so claims.
_KNOWN_STATES = frozenset({InsertState.REPLACED, InsertState.REPLAYED})


class BucketHits(NamedTuple):
    """Candidates of one document.

    Attributes:
        candidates: Number of shared bands, by number of the other document.
        near_capacity: Whether a bucket was at least half full.
        full: Whether a bucket was full, so that only some members of the bucket are candidates.
    """

    candidates: Mapping[int, int]
    near_capacity: bool = False
    full: bool = False


def hits_by_row(rows: Sequence[int], found: Hits) -> dict[int, BucketHits]:
    """Return the candidates of the documents that have any, by row.

    Args:
        rows: Row of each document that was looked up.
        found: Result of the look-up.
    """
    return {
        row: BucketHits(candidates, near_capacity=at in found.near_capacity, full=at in found.full)
        for at, (row, candidates) in enumerate(zip(rows, found.candidates, strict=True))
        if candidates
    }


class Verification(NamedTuple):
    """Result of verifying the candidates of a batch.

    Attributes:
        matches: Near-duplicates by pair key, by row, without suppressed ones.
        other_pairs: Pair keys without a match, by row: those of a document that had an index entry before, with each
            compared candidate.
        suppressed: Number of suppressed near-duplicates by rule, by row.
        counts: Numbers of candidates, verified, rejected and suppressed pairs; documents with too many candidates.
    """

    matches: Mapping[int, Mapping[bytes, Match]]
    other_pairs: Mapping[int, AbstractSet[bytes]]
    suppressed: Mapping[int, Counter[SuppressionRule]]
    counts: DetectionResult


class Verifier:
    """Finds the near-duplicates among the candidates of a batch.

    Args:
        options: Options of the detector.
        store: The index.
        sketcher: Compares sketches.
        budget_bytes: Weight of the index entries of candidates that are held at once, in bytes.
    """

    def __init__(
        self, options: DetectorOptions, store: DocumentStore, sketcher: Sketcher, budget_bytes: int = BUDGET_BYTES
    ) -> None:
        self._options = options
        self._store = store
        self._comparer = Comparer(options, sketcher)
        self._budget_bytes = budget_bytes

    def verify(
        self,
        batch: InsertedBatch,
        hits: Mapping[int, BucketHits],
        emitting: Sequence[int],
        fences: Sequence[Fence],
    ) -> Verification:
        """Compare documents with their candidates.

        Args:
            batch: The inserted batch.
            hits: Candidates by row.
            emitting: Rows that may emit pairs; only these are compared.
            fences: Fences of the partitions of the batch.
        """
        looked_up = {row: hits[row] for row in emitting if row in hits}
        promising = {row: promising_candidates(hit, self._options.max_candidates) for row, hit in looked_up.items()}
        copies, kept = self._exact_copies(batch, hits, fences)
        chosen = {row: copies_first(copies.get(row, ()), numbers) for row, numbers in promising.items()}
        rows_of = rows_by_candidate(chosen)
        found: dict[tuple[int, int], tuple[bytes, Match]] = {}
        rules: dict[tuple[int, int], SuppressionRule] = {}
        others: dict[int, set[bytes]] = {row: set() for row in chosen if batch.states[row] in _KNOWN_STATES}
        for entries in read_chunks(self._store, rows_of, self._budget_bytes, kept):
            near = self._comparer.near_duplicates(batch, rows_of, entries)
            if self._options.suppression is not None:
                rules |= self._options.suppression.rules(near, batch.entries, entries)
            found |= near
            for row, key in _pair_keys(batch, rows_of, entries, others.keys()):
                others[row].add(key)
        alerted = {pair: match for pair, match in found.items() if pair not in rules} if rules else found
        matches = matches_by_row(chosen, alerted)
        dropped = {row: len(hit.candidates) - len(promising[row]) for row, hit in looked_up.items()}
        return Verification(
            matches=matches,
            other_pairs={row: keys for row, seen in others.items() if (keys := seen - matches.get(row, {}).keys())},
            suppressed=_counted_by_row(rules),
            counts=DetectionResult(
                candidates_count=sum(len(hit.candidates) for hit in looked_up.values()),
                dropped_candidates_count=sum(dropped.values()),
                verified_count=len(found),
                suppressed=Counter(rules.values()),
                rejected_count=sum(map(len, chosen.values())) - len(found),
                over_candidates_positions=tuple(
                    batch.entries[row].position for row, count in dropped.items() if count and not looked_up[row].full
                ),
            ),
        )

    # Exact copies

    def _exact_copies(
        self, batch: InsertedBatch, hits: Mapping[int, BucketHits], fences: Sequence[Fence]
    ) -> tuple[dict[int, list[int]], dict[int, IndexEntry]]:
        """Look up exact copies of documents with full buckets.

        Once a bucket of a document is half full, the document and all members of the bucket are inserted in the buckets
        of their contents. So exact copies are found there later, when the full bucket returns few of its members.

        Returns:
            Candidates with the same content by row with a full bucket; and the entries that were read, as many as the
            budget allows to keep.
        """
        rows = [row for row, hit in hits.items() if hit.near_capacity]
        if not rows:
            return {}, {}
        members, kept = self._members(batch, hits, [row for row in rows if not hits[row].full], fences)
        own = [(batch.entries[row].number, batch.entries[row].digest) for row in rows]
        copies = self._store.insert_copies(own, fences, members)
        return {row: numbers for row, numbers in zip(rows, copies, strict=True) if hits[row].full}, kept

    def _members(
        self, batch: InsertedBatch, hits: Mapping[int, BucketHits], rows: Sequence[int], fences: Sequence[Fence]
    ) -> tuple[FoundNearCapacity | None, dict[int, IndexEntry]]:
        """Read the members of buckets near capacity.

        The buckets are looked up a second time after ``copy_removals``, and the entries are read after that: a document
        that was deleted before the count is not found, and a document that is deleted after the count is not inserted
        (``index.contract.BucketStore.insert_copies``).

        Returns:
            The members with their digests, None without any; and the entries that were read, as many as the budget
            allows to keep.
        """
        if not rows:
            return None, {}
        removals = self._store.copy_removals()
        numbers = [batch.entries[row].number for row in rows]
        still_there = set().union(*self._store.insert_and_look_up(numbers, batch.band_keys[rows], fences).candidates)
        # Without later arrivals: a pair with one of them belongs in the alert of the later document.
        members = sorted(still_there & {number for row in rows for number in hits[row].candidates})
        documents: list[tuple[int, bytes]] = []
        kept: dict[int, IndexEntry] = {}
        for entries in read_chunks(self._store, members, self._budget_bytes):
            documents += [(entry.number, entry.digest) for entry in entries.values() if not entry.deleted]
            if weight_bytes(entries.values()) + weight_bytes(kept.values()) <= self._budget_bytes:
                kept |= entries
        return FoundNearCapacity(sorted(documents), removals), kept


def _counted_by_row(rules: Mapping[tuple[int, int], SuppressionRule]) -> dict[int, Counter[SuppressionRule]]:
    counts: dict[int, Counter[SuppressionRule]] = {}
    for (row, _), rule in rules.items():
        counts.setdefault(row, Counter())[rule] += 1
    return counts


def promising_candidates(hit: BucketHits, limit: int | None) -> list[int]:
    """Return the candidates to verify: most shared bands first, then by number, the same in every attempt.

    Args:
        hit: Candidates of a document.
        limit: Most candidates of a document; None for no limit.
    """
    candidates = hit.candidates
    if hit.full:
        limit = STORM_CANDIDATES if limit is None else min(limit, STORM_CANDIDATES)
    if limit is None or len(candidates) <= limit:
        return list(candidates)
    return sorted(candidates, key=lambda number: (-candidates[number], number))[:limit]


def copies_first(copies: Sequence[int], numbers: list[int]) -> list[int]:
    """Return candidates with up to ``STORM_COPIES`` exact copies first; unchanged without copies."""
    return list(dict.fromkeys([*copies[:STORM_COPIES], *numbers]))[:STORM_CANDIDATES] if copies else numbers


def _pair_keys(
    batch: InsertedBatch,
    rows_of: Mapping[int, Sequence[int]],
    entries: Mapping[int, IndexEntry],
    rows: AbstractSet[int],
) -> Iterator[tuple[int, bytes]]:
    """Yield the pair keys of some rows with their candidates of a chunk, as row and key."""
    if rows:
        for number, entry in entries.items():
            for row in rows_of[number]:
                if row in rows and not entry.deleted:
                    yield row, pair_key(pair_side(batch.entries[row]), pair_side(entry))
