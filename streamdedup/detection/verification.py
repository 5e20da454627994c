"""Verification: from the candidates of documents to their near-duplicates.

Called by ``detector`` and ``lookup``. Reads the index entries of candidates in chunks (``entry_chunks``), compares them
(``comparison``) and applies the suppression rules. A new count is a field of ``model.DetectionResult``.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.candidates import BucketHits, Copies, promising_candidates, with_copies
from streamdedup.detection.comparison import Comparer, rows_by_candidate
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
        suppressed: Suppressed near-duplicates, each with the rule.
        complete: Whether all candidates were compared; false also where a full bucket hides candidates.
        unmatched: For ``known_rows`` only: the keys of pairs with candidates that are not in ``matches``. Earlier
            versions may have claims on these pairs, which the detector extends.
    """

    matches: Mapping[bytes, Match] = {}
    suppressed: Sequence[tuple[SuppressionRule, Match]] = ()
    complete: bool = True
    unmatched: AbstractSet[bytes] = frozenset()


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
        copies: Copies,
        *,
        known_rows: Collection[int] = (),
        threshold: float | None = None,
    ) -> tuple[dict[int, RowMatches], DetectionResult]:
        """Compare documents with their candidates; return the matches of each row in ``hits``, and the counts.

        Args:
            entries: Entries by row.
            band_keys: Band keys by row, (n, bands).
            hits: Candidates by row, for the rows to compare.
            known_rows: Rows whose documents may have had an index entry, and so claims, before this attempt.
            threshold: A lower similarity from which pairs are matches, too; None for the profile's rules alone.
        """
        limit = self._options.max_candidates
        candidates = {
            row: with_copies(promising_candidates(hit, limit), copies.by_row.get(row, ()), hit)
            for row, hit in hits.items()
        }
        comparer = Comparer(self._options, self._sketcher, entries, band_keys, threshold)
        known_keys: dict[int, set[bytes]] = {row: set() for row in candidates if row in known_rows}
        near, rules = self._compare(comparer, entries, rows_by_candidate(candidates), copies.entries, known_keys)
        verified: dict[int, RowMatches] = {}
        dropped_count = 0
        for row, hit in hits.items():
            # In the order of the candidates, not of the chunks.
            pairs = [(row, number) for number in candidates[row] if (row, number) in near]
            matches = dict(near[pair] for pair in pairs if pair not in rules)
            suppressed = [(rules[pair], near[pair][1]) for pair in pairs if pair in rules] if rules else ()
            # Exact copies are compared too, whether they are among the candidates or take the place of some.
            dropped = len(hit.candidates) - sum(number in hit.candidates for number in candidates[row])
            dropped_count += dropped
            is_complete = not (dropped or hit.full_count)
            verified[row] = RowMatches(matches, suppressed, is_complete, known_keys.get(row, set()) - matches.keys())
        compared_count = sum(map(len, candidates.values()))
        return verified, DetectionResult(
            candidates_count=compared_count + dropped_count,
            dropped_candidates_count=dropped_count,
            accepted_count=len(near),
            suppressed=Counter(rules.values()),
            rejected_count=compared_count - len(near),
        )

    def _compare(
        self,
        comparer: Comparer,
        entries: Sequence[IndexEntry],
        rows_of: Mapping[int, Sequence[int]],
        read_before: Mapping[int, IndexEntry],
        known_keys: Mapping[int, set[bytes]],
    ) -> tuple[dict[tuple[int, int], tuple[bytes, Match]], dict[tuple[int, int], SuppressionRule]]:
        """Read and compare the candidates in chunks; fill the sets in ``known_keys``.

        Each set, of a known row, gets the keys of the row's pairs with candidates that exist. Returns pair key and
        match of each near-duplicate, and the rule of each suppressed one, both by row and candidate number.
        """
        near: dict[tuple[int, int], tuple[bytes, Match]] = {}
        rules: dict[tuple[int, int], SuppressionRule] = {}
        for chunk in read_chunks(self._store, rows_of, read_before):
            near_in_chunk = comparer.near_duplicates(rows_of, chunk)
            if self._options.suppression is not None:
                rules |= self._options.suppression.suppressed_pairs(near_in_chunk, entries, chunk)
            near |= near_in_chunk
            for row, key in _pair_keys(entries, rows_of, chunk, known_keys.keys()):
                known_keys[row].add(key)
        return near, rules


def _pair_keys(
    entries: Sequence[IndexEntry],
    rows_of: Mapping[int, Sequence[int]],
    candidates: Mapping[int, IndexEntry],
    rows: AbstractSet[int],
) -> Iterator[tuple[int, bytes]]:
    """Yield row and pair key for each candidate in a chunk and each of its rows that is among ``rows``."""
    if not rows:
        return
    for number, candidate in candidates.items():
        for row in rows_of[number]:
            if row in rows:
                yield row, pair_key(pair_side(entries[row]), pair_side(candidate))
