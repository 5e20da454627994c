"""All pairs of documents from a similarity on, by comparing everybody with everybody: no signature, no band.

For each document the shared shingles with every earlier one are counted along the shingles' lists of documents, so that
pairs without a common shingle cost next to nothing. Besides its lists it needs one number for each document.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.hashing import ranges


class Pairs(NamedTuple):
    """Pairs with their similarity, sorted by the second document, then by the first.

    Attributes:
        first: int64 (n,); the earlier document.
        second: int64 (n,); the later one.
        common: int64 (n,); shingles that both have.
        similarity: float64 (n,).
    """

    first: NDArray[np.int64]
    second: NDArray[np.int64]
    common: NDArray[np.int64]
    similarity: NDArray[np.float64]

    def at_least(self, threshold: float) -> "Pairs":
        """Return those from a similarity on."""
        return self.only(self.similarity >= threshold)

    def only(self, chosen: NDArray[np.bool_]) -> "Pairs":
        """Return those that are chosen."""
        return Pairs(self.first[chosen], self.second[chosen], self.common[chosen], self.similarity[chosen])

    def as_set(self) -> set[tuple[int, int]]:
        """Return the pairs as such."""
        return set(zip(self.first.tolist(), self.second.tolist(), strict=True))


def all_pairs(hashes: NDArray[np.generic], offsets: NDArray[np.int64], least: float) -> Pairs:
    """Return every pair of sets with at least some Jaccard similarity.

    Args:
        hashes: Members of all sets, one set behind the other, distinct within each.
        offsets: int64 (n + 1,); set i has hashes[offsets[i] : offsets[i + 1]].
        least: Least similarity, above 0.
    """
    _, members, counts = np.unique(hashes, return_inverse=True, return_counts=True)
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(counts)[:-1]))
    filled = np.zeros(len(counts), np.int64)
    lists = np.empty(len(hashes), np.int64)
    sizes = np.diff(offsets)
    nobody = np.empty(0, np.int64)
    parts = [Pairs(nobody, nobody, nobody, np.empty(0))]
    for document, (start, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        own = members[start:end]
        met = lists[ranges(starts[own], filled[own])]
        lists[starts[own] + filled[own]] = document
        filled[own] += 1
        common = np.bincount(met)
        # A pair of this similarity shares at least so much of each of its sets.
        others = np.flatnonzero(common >= max(1.0, least * len(own) - 1e-9))
        shared = common[others]
        similarity = shared / (len(own) + sizes[others] - shared)
        parts.append(Pairs(others, np.full(len(others), document), shared, similarity).at_least(least))
    return Pairs(
        np.concatenate([part.first for part in parts]),
        np.concatenate([part.second for part in parts]),
        np.concatenate([part.common for part in parts]),
        np.concatenate([part.similarity for part in parts]),
    )
