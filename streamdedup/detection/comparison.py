"""Comparison of documents with candidates: window, similarity, shared bands."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from streamdedup.detection.model import DetectorOptions, Prepared, pair_key, pair_side
from streamdedup.index.documents import IndexEntry
from streamdedup.similarity import containment
from streamdedup.similarity.sketch import Sketch, Sketcher
from streamdedup.wire import Contained, Match

#: Which document of a match is contained, by the side of the comparison, whose left side is the document.
_CONTAINED: Mapping[containment.Contained, Contained] = {"left": "document", "right": "match", "both": "both"}


class Comparer:
    """Compares documents with candidates; needs no index.

    Args:
        options: Options of the detector.
        sketcher: Compares sketches.
        least: Pairs from this similarity on are returned as well; None for none below the threshold.
    """

    def __init__(self, options: DetectorOptions, sketcher: Sketcher, least: float | None = None) -> None:
        self._options = options
        self._sketcher = sketcher
        self._least = options.threshold if least is None else min(least, options.threshold)

    def _pairs(
        self, batch: Prepared, rows_of: Mapping[int, Sequence[int]], entries: Mapping[int, IndexEntry]
    ) -> list[tuple[int, IndexEntry]]:
        """Return the pairs of a chunk of candidates within the window: row and entry of the other document."""
        return [
            (row, other)
            for number, other in entries.items()
            if not other.deleted
            for row in rows_of[number]
            if self.within_window(batch.entries[row], other)
        ]

    def within_window(self, a: IndexEntry, b: IndexEntry) -> bool:
        """Tell whether the record times of two documents are near enough for a pair."""
        window, silent_until = self._options.window_ms, self._options.silent_until_ms
        if silent_until is not None and max(a.time_ms, b.time_ms) < silent_until:
            return False
        return window is None or abs(a.time_ms - b.time_ms) <= window

    def near_duplicates(
        self,
        batch: Prepared,
        rows_of: Mapping[int, Sequence[int]],
        entries: Mapping[int, IndexEntry],
    ) -> dict[tuple[int, int], tuple[bytes, Match]]:
        """Compare a chunk of candidates; of pairs with equal contents only one, because the others are as similar.

        Args:
            batch: The documents.
            rows_of: Rows to compare with each candidate, by number.
            entries: Index entries of the candidates of the chunk, by number.

        Returns:
            Pair key and match of the near-duplicates, by row and number of the other document.
        """
        pairs = self._pairs(batch, rows_of, entries)
        if not pairs:
            return {}
        contents = [(batch.entries[row].digest, other.digest) for row, other in pairs]
        first: dict[tuple[bytes, bytes], int] = {}
        for at, content in enumerate(contents):
            first.setdefault(content, at)
        compared = dict(zip(first, self._compare(batch, [pairs[at] for at in first.values()]), strict=True))
        sides = {row: pair_side(batch.entries[row]) for row in {row for row, _ in pairs}}
        sides_of_others = {number: pair_side(other) for number, other in _distinct(pairs).items()}
        made: dict[tuple[int, bytes], Match] = {}
        found: dict[tuple[int, int], tuple[bytes, Match]] = {}
        for (row, other), content in zip(pairs, contents, strict=True):
            alike = compared[content]
            if alike is None:
                continue
            match = made.get((other.number, content[0]))
            if match is None:
                match = alike if alike.id == other.id else replace(alike, id=other.id, position=other.position)
                made[other.number, content[0]] = match
            found[row, other.number] = pair_key(sides[row], sides_of_others[other.number]), match
        return found

    def _compare(self, batch: Prepared, pairs: Sequence[tuple[int, IndexEntry]]) -> list[Match | None]:
        """Return the match of each pair; None for a pair that is no near-duplicate."""
        options = self._options
        row_at = {row: at for at, row in enumerate(dict.fromkeys(row for row, _ in pairs))}
        others = _distinct(pairs)
        other_at = {number: at for at, number in enumerate(others)}
        own_sketches = [batch.entries[row].content.sketch for row in row_at]
        sketches = [other.content.sketch for other in others.values()]
        places = [(row_at[row], other_at[other.number]) for row, other in pairs]
        similarities = self._sketcher.similarities(own_sketches, sketches, places)
        compared: list[Match | None] = [None] * len(pairs)
        by_containment = options.contained(similarities) & (similarities.values < options.threshold)
        near = np.flatnonzero((similarities.values >= self._least) | by_containment).tolist()
        if not near:
            return compared
        shared = self._shared_bands(batch, [(pairs[at][0], places[at][1]) for at in near], sketches)
        overlaps = similarities.overlaps.of(near)
        columns = zip(
            near,
            similarities.values[near].tolist(),
            similarities.exact[near].tolist(),
            shared,
            overlaps.containments().tolist(),
            overlaps.standard_errors().tolist(),
            overlaps.contained(),
            by_containment[near].tolist(),
            strict=True,
        )
        for at, similarity, exact, shared_bands, share, share_error, contained, is_by_containment in columns:
            if shared_bands >= options.min_shared_bands:
                other = pairs[at][1]
                compared[at] = Match(
                    id=other.id,
                    digest=other.digest.hex(),
                    position=other.position,
                    similarity=similarity,
                    method="exact" if exact else "estimated",
                    standard_error=0.0 if exact else options.measure.standard_error(similarity, options.permutations),
                    shared_bands=shared_bands,
                    containment=share,
                    containment_error=0.0 if exact else share_error,
                    contained=_CONTAINED[contained],
                    reason="containment" if is_by_containment else "similarity",
                )
        return compared

    def _shared_bands(self, batch: Prepared, pairs: Sequence[tuple[int, int]], sketches: Sequence[Sketch]) -> list[int]:
        """Return the number of shared band keys of each pair of a row and a position in ``sketches``."""
        rows, others = [row for row, _ in pairs], [other for _, other in pairs]
        distinct, place = np.unique(np.array(others, np.int64), return_inverse=True)
        banding = self._options.banding
        signatures = self._sketcher.signatures([sketches[other] for other in distinct.tolist()], banding.permutations)
        keys = banding.band_keys(signatures)
        shared: list[int] = (keys[place] == batch.band_keys[rows]).sum(axis=1).tolist()
        return shared


def rows_by_candidate(chosen: Mapping[int, Sequence[int]]) -> dict[int, list[int]]:
    """Return the rows to compare with each candidate, by number.

    Args:
        chosen: Numbers of the candidates by row.
    """
    rows_of: dict[int, list[int]] = {}
    for row, numbers in chosen.items():
        for number in numbers:
            rows_of.setdefault(number, []).append(row)
    return rows_of


def matches_by_row(
    chosen: Mapping[int, Sequence[int]], found: Mapping[tuple[int, int], tuple[bytes, Match]]
) -> dict[int, dict[bytes, Match]]:
    """Return the near-duplicates of each row by pair key, in the order of the candidates: chunks do not change it."""
    matches = {
        row: dict(found[row, number] for number in numbers if (row, number) in found) for row, numbers in chosen.items()
    }
    return {row: of_row for row, of_row in matches.items() if of_row}


def _distinct(pairs: Iterable[tuple[int, IndexEntry]]) -> dict[int, IndexEntry]:
    """Return the other documents of pairs by number."""
    return {other.number: other for _, other in pairs}
