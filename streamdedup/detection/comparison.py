"""Comparison of documents with candidates: scope, window, similarity, shared bands.

Called by ``verification`` for each chunk of candidates. A new field of ``Match`` also touches ``wire`` and
docs/messages.md.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.captions import read_caption
from streamdedup.detection.model import DetectorOptions, pair_key, pair_side
from streamdedup.detection.scope import band_keys_of
from streamdedup.index.documents import IndexEntry
from streamdedup.similarity import containment
from streamdedup.similarity.lsh import shared_bands
from streamdedup.similarity.sketch import Sketcher
from streamdedup.wire import Contained, Match

#: Row of a document in a batch, and number of its candidate.
Pair = tuple[int, int]
#: Value of ``Match.contained`` by the side of a comparison: left is the document, right the candidate.
_CONTAINED: Mapping[containment.SmallerSide, Contained] = {"left": "document", "right": "match", "both": "both"}

#: Band keys of each side that are compared at once (4 MiB), so that memory does not grow with the pairs.
_BLOCK_KEYS: Final = 2**20


class _Comparison(NamedTuple):
    """The comparison of a document with a near-duplicate; the same for all pairs with these two contents.

    ``containment_error`` has no meaning for an exact comparison. ``by_containment``: the similarity is below the
    profile's threshold, and the containment rule holds.
    """

    similarity: float
    is_exact: bool
    shared_bands: int
    containment: float
    containment_error: float
    contained: containment.SmallerSide
    by_containment: bool

    def match(self, candidate: IndexEntry, options: DetectorOptions) -> Match:
        """Return the match without its pair key, which belongs to the document and the candidate."""
        topic, partition, offset, _ = candidate.position
        label, source, published_at = read_caption(candidate.content.caption, options.label_bytes)
        error = 0.0 if self.is_exact else options.measure.standard_error(self.similarity, options.permutations)
        return Match(
            id=candidate.id,
            digest=candidate.digest.hex(),
            topic=topic,
            partition=partition,
            offset=offset,
            similarity=self.similarity,
            method="exact" if self.is_exact else "estimated",
            standard_error=error,
            shared_bands=self.shared_bands,
            containment=self.containment,
            containment_error=None if self.is_exact else self.containment_error,
            contained=_CONTAINED[self.contained],
            reason="containment" if self.by_containment else "similarity",
            label=label,
            source=source or None,
            published_at=published_at or None,
            incarnation=(candidate.content.incarnation or b"").hex(),
        )


class Comparer:
    """Compares the documents of a batch with candidates, without reading the index.

    ``entries`` and ``band_keys``, (n, bands), are those of the batch, by row; ``threshold`` is as in
    ``Verifier.verify``.
    """

    def __init__(
        self,
        options: DetectorOptions,
        sketcher: Sketcher,
        entries: Sequence[IndexEntry],
        band_keys: NDArray[np.uint32],
        threshold: float | None = None,
    ) -> None:
        self._options = options
        self._sketcher = sketcher
        self._entries = entries
        self._band_keys = band_keys
        self._threshold = options.threshold if threshold is None else min(threshold, options.threshold)

    def near_duplicates(
        self, rows_of: Mapping[int, Sequence[int]], candidates: Mapping[int, IndexEntry]
    ) -> dict[Pair, tuple[bytes, Match]]:
        """Compare a chunk of candidates, each with its rows (``rows_of``); equal contents are compared once.

        Returns pair key and match for each near-duplicate, by row and candidate number.
        """
        pairs = [
            (row, candidate)
            for number, candidate in candidates.items()
            if not candidate.deleted
            for row in rows_of[number]
            if self._entries[row].content.scope == candidate.content.scope
            and self._options.times_allow_pair(self._entries[row].time_ms, candidate.time_ms)
        ]
        if not pairs:
            return {}
        digests = [(self._entries[row].digest, candidate.digest) for row, candidate in pairs]
        first_pairs: dict[tuple[bytes, bytes], tuple[int, IndexEntry]] = {}
        for pair, pair_digests in zip(pairs, digests, strict=True):
            first_pairs.setdefault(pair_digests, pair)
        compared = dict(zip(first_pairs, self._compare(list(first_pairs.values())), strict=True))
        sides = {row: pair_side(self._entries[row]) for row in {row for row, _ in pairs}}
        candidate_sides = {number: pair_side(candidate) for number, candidate in _candidates_of(pairs).items()}
        matches: dict[tuple[int, bytes], Match] = {}
        near: dict[Pair, tuple[bytes, Match]] = {}
        for (row, candidate), (row_digest, candidate_digest) in zip(pairs, digests, strict=True):
            comparison = compared[row_digest, candidate_digest]
            if comparison is None:
                continue
            # A match describes candidate and comparison, so all documents of the batch with the same content share it.
            match = matches.get((candidate.number, row_digest))
            if match is None:
                match = matches[candidate.number, row_digest] = comparison.match(candidate, self._options)
            near[row, candidate.number] = pair_key(sides[row], candidate_sides[candidate.number]), match
        return near

    def _compare(self, pairs: Sequence[tuple[int, IndexEntry]]) -> list[_Comparison | None]:
        """Return the comparison for each pair; None for a pair that is no near-duplicate or shares too few bands."""
        options = self._options
        # Left the sketch of each row, right that of each candidate; a pair is a place in both.
        left_of = {row: left for left, row in enumerate(dict.fromkeys(row for row, _ in pairs))}
        candidates = _candidates_of(pairs)
        right_of = {number: right for right, number in enumerate(candidates)}
        similarities = self._sketcher.similarities(
            [self._entries[row].content.sketch for row in left_of],
            [candidate.content.sketch for candidate in candidates.values()],
            [(left_of[row], right_of[candidate.number]) for row, candidate in pairs],
        )
        compared: list[_Comparison | None] = [None] * len(pairs)
        # As ``options.near``, with the lower threshold.
        by_containment = options.containment_holds(similarities) & (similarities.values < options.threshold)
        near = np.flatnonzero((similarities.values >= self._threshold) | by_containment).tolist()
        if not near:
            return compared
        overlaps = similarities.overlaps.of(near)
        columns = zip(  # after ``near`` in the order of the fields of ``_Comparison``
            near,
            similarities.values[near].tolist(),
            similarities.exact[near].tolist(),
            self._shared_bands([pairs[pair_row] for pair_row in near]),
            overlaps.containments().tolist(),
            overlaps.standard_errors().tolist(),
            overlaps.smaller_sides(),
            by_containment[near].tolist(),
            strict=True,
        )
        for pair_row, *fields in columns:
            comparison = _Comparison(*fields)
            if comparison.shared_bands >= options.min_shared_bands:
                compared[pair_row] = comparison
        return compared

    def _shared_bands(self, pairs: Sequence[tuple[int, IndexEntry]]) -> list[int]:
        """Return the number of shared band keys for each pair.

        The batch has the band keys of its contents; band keys of other contents are computed from their sketches. The
        counts of the look-up (``Hits.candidates``) may be wrong: buckets may still have an earlier version, or not yet
        all bands of a concurrent insertion.
        """
        banding = self._options.banding
        row_of = {entry.digest: row for row, entry in enumerate(self._entries)}
        further = {entry.digest: entry.content for _, entry in pairs if entry.digest not in row_of}
        row_of |= {digest: row for row, digest in enumerate(further, len(self._entries))}
        keys = self._band_keys
        if further:  # behind those of the batch
            keys = np.concatenate([keys, band_keys_of(list(further.values()), self._sketcher, banding)])
        rows, candidate_rows = [row for row, _ in pairs], [row_of[candidate.digest] for _, candidate in pairs]
        shared: list[int] = []
        step = max(1, _BLOCK_KEYS // banding.bands)
        for first in range(0, len(pairs), step):
            block = slice(first, first + step)
            shared += shared_bands(keys[candidate_rows[block]], self._band_keys[rows[block]]).tolist()
        return shared


def _candidates_of(pairs: Iterable[tuple[int, IndexEntry]]) -> dict[int, IndexEntry]:
    return {candidate.number: candidate for _, candidate in pairs}
