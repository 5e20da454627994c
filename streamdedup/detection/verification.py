"""Verification: from the candidates of documents to their near-duplicates.

Called by ``detector`` and ``lookup``. Reads the index entries of candidates in chunks (``entry_chunks``), compares them
(``comparison``) and applies the suppression rules. A new count is a field of ``model.DetectionResult``.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.candidates import BucketHits, promising_candidates, with_copies
from streamdedup.detection.comparison import Comparer, Pair
from streamdedup.detection.entry_chunks import read_chunks
from streamdedup.detection.model import DetectionResult, DetectorOptions, pair_key, pair_side
from streamdedup.detection.suppression import SuppressionRule
from streamdedup.index.contract import EntryReading
from streamdedup.index.documents import IndexEntry
from streamdedup.similarity.sketch import Sketcher
from streamdedup.wire import Match


class RowMatches(NamedTuple):
    """The near-duplicates of a row, which is a document in a batch or a text to look up.

    Attributes:
        matches: Near-duplicates by pair key, without suppressed ones.
        complete: Whether all candidates were compared; false also where a full bucket hides candidates.
        unmatched: Keys of the row's pairs with candidates that are not in ``matches``, if the row is one of the
            ``known_rows`` of ``verify``. Earlier versions may have claims on these pairs, which the detector extends.
    """

    matches: Mapping[bytes, Match] = {}
    suppressed: Sequence[tuple[SuppressionRule, Match]] = ()
    complete: bool = True
    unmatched: AbstractSet[bytes] = frozenset()


class _NearDuplicates(NamedTuple):
    """The near-duplicates among candidates.

    Attributes:
        matches: Pair key and match by pair.
        suppressed_by: Rule that suppresses a match, by pair.
        known_keys: By known row the keys of the pairs with all candidates that exist.
    """

    matches: dict[Pair, tuple[bytes, Match]]
    suppressed_by: dict[Pair, SuppressionRule]
    known_keys: Mapping[int, set[bytes]]


class Verifier:
    """Finds the near-duplicates among candidates, whose entries are read in chunks."""

    def __init__(self, options: DetectorOptions, store: EntryReading, sketcher: Sketcher) -> None:
        self._options = options
        self._store = store
        self._sketcher = sketcher

    def verify(
        self,
        entries: Sequence[IndexEntry],
        band_keys: NDArray[np.uint32],
        hits: Mapping[int, BucketHits],
        copies: Mapping[int, Sequence[int]],
        *,
        known_rows: Collection[int] = (),
        read_before: Mapping[int, IndexEntry] = {},
        threshold: float | None = None,
    ) -> tuple[dict[int, RowMatches], DetectionResult]:
        """Compare documents with their candidates; return the matches of each row in ``hits``, and the counts.

        Args:
            hits: Candidates by row, for the rows to compare.
            copies: Numbers of exact copies by row, for rows that may miss them.
            known_rows: Rows whose documents may have had an index entry, and so claims, before this attempt.
            read_before: Entries of candidates that are not to be read again, by number.
            threshold: A lower similarity from which pairs match; None, or a higher one, for the profile's threshold.
        """
        promising = {row: promising_candidates(hit, self._options.max_candidates) for row, hit in hits.items()}
        candidates = {row: with_copies(promising[row], copies.get(row, ()), hits[row]) for row in hits}
        comparer = Comparer(self._options, self._sketcher, entries, band_keys, threshold)
        matches, suppressed_by, known_keys = self._near_duplicates(
            comparer, entries, candidates, read_before, known_rows
        )
        verified: dict[int, RowMatches] = {}
        dropped_count = 0
        for row, hit in hits.items():
            # In the order of the candidates, not of the chunks, which begin with the entries that were read before.
            pairs = [(row, number) for number in candidates[row] if (row, number) in matches]
            alerted = dict(matches[pair] for pair in pairs if pair not in suppressed_by)
            suppressed = [(suppressed_by[pair], matches[pair][1]) for pair in pairs if pair in suppressed_by]
            # Candidates that are not compared: beyond a limit, or replaced by exact copies.
            dropped = len(hit.candidates.keys() - candidates[row])
            dropped_count += dropped
            is_complete = not (dropped or hit.full_count)
            unmatched = known_keys.get(row, set()) - alerted.keys()
            verified[row] = RowMatches(alerted, suppressed, is_complete, unmatched)
        compared_count = sum(map(len, candidates.values()))
        return verified, DetectionResult(
            candidates_count=compared_count + dropped_count,
            dropped_candidates_count=dropped_count,
            accepted_count=len(matches),
            suppressed=Counter(suppressed_by.values()),
            rejected_count=compared_count - len(matches),
        )

    def _near_duplicates(
        self,
        comparer: Comparer,
        entries: Sequence[IndexEntry],
        candidates: Mapping[int, Sequence[int]],
        read_before: Mapping[int, IndexEntry],
        known_rows: Collection[int],
    ) -> _NearDuplicates:
        """Read the candidates of all rows in chunks, and compare them."""
        rows_of = _rows_by_candidate(candidates)
        matches: dict[Pair, tuple[bytes, Match]] = {}
        suppressed_by: dict[Pair, SuppressionRule] = {}
        known_keys: dict[int, set[bytes]] = defaultdict(set)
        for chunk in read_chunks(self._store, rows_of, read_before):
            near = comparer.near_duplicates(rows_of, chunk)
            matches |= near
            if self._options.suppression is not None:
                for row, number in near:
                    rule = self._options.suppression.rule(entries[row].content, chunk[number].content)
                    if rule is not None:
                        suppressed_by[row, number] = rule
            if not known_rows:  # as in most batches
                continue
            for number, candidate in chunk.items():
                for row in rows_of[number]:
                    if row in known_rows:
                        known_keys[row].add(pair_key(pair_side(entries[row]), pair_side(candidate)))
        return _NearDuplicates(matches, suppressed_by, known_keys)


def _rows_by_candidate(candidates: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    rows_of: dict[int, list[int]] = defaultdict(list)
    for row, numbers in candidates.items():
        for number in numbers:
            rows_of[number].append(row)
    return rows_of
