"""Sketches: the shingle hashes of a short document, the MinHash signature of a long one.

`detection` makes and compares sketches, `tuning` and `evaluation` do so on corpora. Index entries store them: a change
of `Sketch` also touches `index.sketch_codec` and docs/format.md.

Half of the Reuters articles have fewer than 90 shingles, fewer than a signature with 128 values; and an estimate is
worst for short texts. So a document within `exact_limit` shingles keeps all their hashes and is compared exactly,

    J(A, B) = |A and B| / |A or B|,    |A or B| = |A| + |B| - |A and B|

(Broder 1997; Leskovec/Rajaraman/Ullman, chapter 3.1; other measures: `measures`), and a longer one keeps K values and
its similarities are estimated (`minhash`). A set and a signature are compared by the set's signature, computed on
demand. Worked example: {1, 2, 3, 4} and {1, 2, 3, 4, 5} share 4 of 5 elements, similarity 0.8.

Similarity is symmetric and depends only on the two sketches, so any two daemons agree about a pair.

    microseconds (AVX-512)                                      100 hashes   400 hashes   128 values
    compare a pair: merge, sort, count equal neighbours (used)  1.8          2.6          1.3
    the same with Python sets (rejected)                        6            23
    the same, 1,000 pairs in one sort of 64-bit keys (rejected) 2.8          9
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from streamdedup.similarity.containment import Overlaps, drawn_overlaps
from streamdedup.similarity.measures import MEASURES, Measure, intersection_size
from streamdedup.similarity.minhash import HashFamily

#: Signature values of each side that are compared at once (4 MiB), so that memory does not grow with the pairs.
_BLOCK_VALUES: Final = 2**20


class Sketch(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A document's comparable content; either `hashes` or `signature` is set.

    Attributes:
        count: Number of distinct shingles, at most `exact_limit` + 1: beyond it appends cannot keep it up to date.
        hashes: All shingle hashes, strictly ascending, uint32, shape (count,); or None.
        signature: All K signature values, uint32, shape (K,); or None.
    """

    count: int
    hashes: NDArray[np.uint32] | None = None
    signature: NDArray[np.uint32] | None = None

    @property
    def size_bytes(self) -> int:
        values = self.signature if self.hashes is None else self.hashes
        return 0 if values is None else values.nbytes

    def __eq__(self, sketch: object) -> bool:
        if not isinstance(sketch, Sketch):
            return NotImplemented
        is_same_count = self.count == sketch.count
        return is_same_count and _same(self.hashes, sketch.hashes) and _same(self.signature, sketch.signature)

    __hash__ = None  # type: ignore[assignment]  # arrays cannot be in a key


@dataclass(frozen=True, slots=True)
class Similarities:
    """Similarities of n pairs.

    Attributes:
        exact: Whether value and containment are exact, not estimates.
        smaller_counts: Distinct shingles on the smaller side, by ``Sketch.count``.
    """

    values: NDArray[np.float64]
    exact: NDArray[np.bool_]
    overlaps: Overlaps
    smaller_counts: NDArray[np.int64]


def keeps_hashes(counts: NDArray[np.int64], exact_limit: int | None) -> NDArray[np.bool_]:
    """Return whether documents with so many distinct shingles keep all hashes."""
    if exact_limit is None:
        return np.ones(len(counts), np.bool_)
    # With the limit 0 an empty document keeps no hashes either.
    within: NDArray[np.bool_] = (counts <= exact_limit) & (exact_limit > 0)
    return within


class Sketcher:
    """Makes and compares sketches for one profile. Keeps no state: threads may share it.

    Documents up to ``exact_limit`` distinct shingles keep them all; 0: no document, None: every document. The bands use
    the first ``banded_values`` of a signature.
    """

    def __init__(
        self, family: HashFamily, exact_limit: int | None, banded_values: int, measure: Measure = MEASURES["set"]
    ) -> None:
        self.family = family
        self.exact_limit = exact_limit
        self.banded_values = banded_values
        self._measure = measure

    def sketch(self, hashes: NDArray[np.uint32], offsets: NDArray[np.int64]) -> tuple[list[Sketch], NDArray[np.uint32]]:
        """Sketch n documents, whose hashes ascend strictly; document i has hashes[offsets[i] : offsets[i + 1]].

        Returns the sketches, which share no memory with the arguments, and the first `banded_values` signature values
        by document, uint32 (n, banded_values). The other values are computed only where the sketch keeps them.
        """
        banded = self.family.sign(hashes, offsets, permutations=self.banded_values)
        counts = np.diff(offsets)
        beyond_limit = np.flatnonzero(~keeps_hashes(counts, self.exact_limit))
        signatures = self._whole_signatures(banded, hashes, offsets, beyond_limit)
        by_signature = {
            i: self.signature_sketch(int(counts[i]), signature.copy())
            for i, signature in zip(beyond_limit.tolist(), signatures, strict=True)
        }
        sketches = [
            by_signature[i] if i in by_signature else Sketch(last - first, hashes[first:last].copy())
            for i, (first, last) in enumerate(pairwise(offsets.tolist()))
        ]
        return sketches, banded

    def signatures(self, sketches: Sequence[Sketch], permutations: int) -> NDArray[np.uint32]:
        """Return the first `permutations` signature values of n sketches, uint32 (n, permutations).

        A stored signature is cut; for a sketch that holds hashes the values are computed.
        """
        result = np.empty((len(sketches), permutations), dtype=np.uint32)
        unsigned: list[int] = []
        sets: list[NDArray[np.uint32]] = []
        for i, sketch in enumerate(sketches):
            if sketch.signature is None:
                assert sketch.hashes is not None
                unsigned.append(i)
                sets.append(sketch.hashes)
            elif len(sketch.signature) != self.family.permutations:
                raise ValueError(
                    f"a signature of {len(sketch.signature)} values in an index of {self.family.permutations}"
                )
            else:
                result[i] = sketch.signature[:permutations]
        if unsigned:
            offsets = np.cumsum([0, *map(len, sets)])
            result[unsigned] = self.family.sign(np.concatenate(sets), offsets, permutations=permutations)
        return result

    def similarities(
        self, left: Sequence[Sketch], right: Sequence[Sketch], pairs: Sequence[tuple[int, int]]
    ) -> Similarities:
        """Compare pairs of sketches, named by their places: exactly where both have hashes, else by all K values.

        A value does not depend on the order of the sides or on the rest of the batch.
        """
        common = [0] * len(pairs)
        exact = np.ones(len(pairs), dtype=np.bool_)
        estimated_pairs: list[int] = []
        for i, (a, b) in enumerate(pairs):
            left_sketch, right_sketch = left[a], right[b]
            if left_sketch.hashes is not None and right_sketch.hashes is not None:
                common[i] = intersection_size(left_sketch.hashes, right_sketch.hashes)
            else:
                exact[i] = False
                # With an empty document the similarity stays 0; the signatures of two empty documents would agree.
                if left_sketch.count and right_sketch.count:
                    estimated_pairs.append(i)
        left_sizes, right_sizes = [left[a].count for a, _ in pairs], [right[b].count for _, b in pairs]
        overlaps = Overlaps(*(np.array(counts, np.int64) for counts in (common, left_sizes, right_sizes)))
        values = self._measure.exact(*overlaps)  # estimated pairs get theirs below
        smaller_counts = np.minimum(overlaps.left, overlaps.right)
        if estimated_pairs:
            values[estimated_pairs], drawn = self._estimates(left, right, [pairs[i] for i in estimated_pairs])
            for counts, drawn_counts in zip(overlaps, drawn, strict=True):
                counts[estimated_pairs] = drawn_counts
        return Similarities(values, exact, overlaps, smaller_counts)

    def _estimates(
        self, left: Sequence[Sketch], right: Sequence[Sketch], pairs: Sequence[tuple[int, int]]
    ) -> tuple[NDArray[np.float64], Overlaps]:
        """Estimate similarity and overlap from signatures; each sketch is signed once."""
        left_rows, left_of = np.unique([a for a, _ in pairs], return_inverse=True)
        right_rows, right_of = np.unique([b for _, b in pairs], return_inverse=True)
        sketches = [*(left[a] for a in left_rows.tolist()), *(right[b] for b in right_rows.tolist())]
        signatures = self.signatures(sketches, self.family.permutations)
        right_of = right_of + len(left_rows)  # in ``signatures`` the right sketches follow the left ones
        values, overlaps = [], []
        step = max(1, _BLOCK_VALUES // self.family.permutations)
        for first in range(0, len(pairs), step):
            lefts, rights = signatures[left_of[first : first + step]], signatures[right_of[first : first + step]]
            values.append(self._measure.estimate(lefts, rights))
            overlaps.append(drawn_overlaps(lefts, rights))
        return np.concatenate(values), Overlaps(*map(np.concatenate, zip(*overlaps, strict=True)))

    def signature_sketch(self, count: int, signature: NDArray[np.uint32]) -> Sketch:
        """Return the sketch for a document that keeps no hashes, from all its signature values, uint32 (K,).

        `count` is the distinct shingle count, or any larger number: the sketch stores at most `exact_limit` + 1.
        """
        capped = count if self.exact_limit is None else min(count, self.exact_limit + 1)
        return Sketch(capped, signature=signature)

    def _whole_signatures(
        self,
        banded: NDArray[np.uint32],
        hashes: NDArray[np.uint32],
        offsets: NDArray[np.int64],
        documents: NDArray[np.int64],
    ) -> NDArray[np.uint32]:
        """Return all K signature values of `documents`; `banded` has the first values of all rows."""
        if len(documents) == 0 or self.banded_values == self.family.permutations:
            return banded[documents]
        parts = [hashes[offsets[i] : offsets[i + 1]] for i in documents]
        part_offsets = np.cumsum([0, *map(len, parts)])
        suffixes = self.family.sign(np.concatenate(parts), part_offsets, skip=self.banded_values)
        return np.concatenate((banded[documents], suffixes), axis=1)


def _same(left: NDArray[np.uint32] | None, right: NDArray[np.uint32] | None) -> bool:
    if left is None or right is None:
        return left is right
    return np.array_equal(left, right)
