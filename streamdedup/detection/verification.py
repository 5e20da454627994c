"""Verification: from the candidates of documents to their near-duplicates.

The index entries of candidates are read in chunks, and their sketches are compared. The detector and look-ups verify in
the same way.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

from streamdedup.detection.candidates import BucketHits, Copies, copies_first, promising_candidates
from streamdedup.detection.comparison import Comparer, matches_by_row, rows_by_candidate
from streamdedup.detection.entry_chunks import BUDGET_BYTES, read_chunks
from streamdedup.detection.model import DetectionResult, DetectorOptions, Prepared, pair_key, pair_side
from streamdedup.detection.suppression import SuppressionRule
from streamdedup.index.contract import EntryReading
from streamdedup.index.documents import IndexEntry
from streamdedup.similarity.sketch import Sketcher
from streamdedup.wire import Match


class Verification(NamedTuple):
    """Verification result for a batch.

    Attributes:
        matches: Near-duplicates by pair key, by row, without suppressed ones.
        pairs_without_match: Keys of the pairs with candidates that were read and are in no ``matches``, by row; for
            ``known_rows`` only. The detector extends claims that earlier versions may have on these pairs.
        suppressed: Suppressed near-duplicates by row, each with the rule.
        incomplete: Rows whose candidates were not all compared.
        counts: Counts for candidates, verified, rejected and suppressed pairs; positions with too many candidates.
    """

    matches: Mapping[int, Mapping[bytes, Match]]
    pairs_without_match: Mapping[int, AbstractSet[bytes]]
    suppressed: Mapping[int, Sequence[tuple[SuppressionRule, Match]]]
    incomplete: AbstractSet[int]
    counts: DetectionResult


class Verifier:
    """Finds the near-duplicates among candidates, whose index entries are read within ``budget_bytes`` at once."""

    def __init__(
        self, options: DetectorOptions, store: EntryReading, sketcher: Sketcher, budget_bytes: int = BUDGET_BYTES
    ) -> None:
        self._options = options
        self._store = store
        self._sketcher = sketcher
        self._budget_bytes = budget_bytes

    def verify(
        self,
        batch: Prepared,
        hits: Mapping[int, BucketHits],
        copies: Copies,
        *,
        known_rows: Collection[int] = (),
        threshold: float | None = None,
    ) -> Verification:
        """Compare documents with their candidates.

        Args:
            hits: Candidates by row, for the rows to compare.
            known_rows: Rows whose documents may have had an index entry, and so claims, before this attempt.
            threshold: Pairs from this similarity on are matches too; None for the profile's definition alone.
        """
        promising = {row: promising_candidates(hit, self._options.max_candidates) for row, hit in hits.items()}
        # For a row with a full bucket, exact copies take the place of some promising candidates.
        candidates = {row: copies_first(copies.numbers.get(row, ()), numbers) for row, numbers in promising.items()}
        rows_of = rows_by_candidate(candidates)
        comparer = Comparer(self._options, self._sketcher, threshold)
        # Both by row and candidate number.
        near: dict[tuple[int, int], tuple[bytes, Match]] = {}
        rules: dict[tuple[int, int], SuppressionRule] = {}
        compared_keys: dict[int, set[bytes]] = {row: set() for row in candidates if row in known_rows}
        for entries in read_chunks(self._store, rows_of, self._budget_bytes, copies.entries):
            near_in_chunk = comparer.near_duplicates(batch, rows_of, entries)
            if self._options.suppression is not None:
                rules |= self._options.suppression.suppressed_pairs(near_in_chunk, batch.entries, entries)
            near |= near_in_chunk
            for row, key in _pair_keys(batch, rows_of, entries, compared_keys.keys()):
                compared_keys[row].add(key)
        alerted = {pair: match for pair, match in near.items() if pair not in rules} if rules else near
        matches = matches_by_row(candidates, alerted)
        unmatched = {row: keys - matches.get(row, {}).keys() for row, keys in compared_keys.items()}
        dropped_counts = {row: len(hit.candidates) - len(promising[row]) for row, hit in hits.items()}
        return Verification(
            matches=matches,
            pairs_without_match={row: keys for row, keys in unmatched.items() if keys},
            suppressed=_suppressed_by_row(rules, near),
            # A full bucket hides further candidates.
            incomplete={row for row, count in dropped_counts.items() if count or hits[row].full},
            counts=DetectionResult(
                candidates_count=sum(len(hit.candidates) for hit in hits.values()),
                dropped_candidates_count=sum(dropped_counts.values()),
                verified_count=len(near),
                suppressed=Counter(rules.values()),
                rejected_count=sum(map(len, candidates.values())) - len(near),
                over_candidates_positions=tuple(
                    batch.entries[row].position for row, count in dropped_counts.items() if count and not hits[row].full
                ),
            ),
        )


def _suppressed_by_row(
    rules: Mapping[tuple[int, int], SuppressionRule], near: Mapping[tuple[int, int], tuple[bytes, Match]]
) -> dict[int, list[tuple[SuppressionRule, Match]]]:
    suppressed: dict[int, list[tuple[SuppressionRule, Match]]] = {}
    for (row, number), rule in rules.items():
        _, match = near[row, number]
        suppressed.setdefault(row, []).append((rule, match))
    return suppressed


def _pair_keys(
    batch: Prepared, rows_of: Mapping[int, Sequence[int]], entries: Mapping[int, IndexEntry], rows: AbstractSet[int]
) -> Iterator[tuple[int, bytes]]:
    """Yield the pair keys for some rows and their candidates in a chunk of entries, as row and key."""
    if not rows:
        return
    for number, entry in entries.items():
        for row in rows_of[number]:
            if row in rows:
                yield row, pair_key(pair_side(batch.entries[row]), pair_side(entry))
