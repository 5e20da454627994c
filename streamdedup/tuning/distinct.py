"""Distinct shingle sets with the number of documents that have each, so that copies are compared once for all.

How often a document meets others as the index grows is told from the two halves of a collection, in the order of
arrival. A pair across the halves stands for those that any two documents make, however far apart: their number grows
with the index. What is left are pairs of neighbours in time, such as one report sent three times in an hour: a document
has as many of them in any index.

    all pairs = n l + g n^2 / 2,  pairs across = g n^2 / 4    =>    g = 4 across / n^2,  l = (all - 2 across) / n

A new document meets l + g N others in an index of N.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.sets import ShingleSets
from streamdedup.text.hashing import offsets_of, ranges


class Weights(NamedTuple):
    """Pairs of documents.

    Attributes:
        all: How many.
        across: How many of them have one document in each half of the collection.
    """

    all: float
    across: float

    def __add__(self, other: object) -> "Weights":
        """Add up."""
        assert isinstance(other, Weights)
        return Weights(self.all + other.all, self.across + other.across)

    def __sub__(self, other: "Weights") -> "Weights":
        """Take away; never below nothing."""
        return Weights(max(self.all - other.all, 0.0), max(self.across - other.across, 0.0))


class Growth(NamedTuple):
    """How many others a document meets.

    Attributes:
        near: In any index: its neighbours in time.
        per_document: For each document in the index.
    """

    near: float
    per_document: float

    def at(self, documents: float) -> float:
        """Return how many it meets in an index of so many documents."""
        return self.near + self.per_document * documents


def growth(pairs: Weights, documents: int, share: float) -> Growth:
    """Return how many others a document meets (module docstring).

    Args:
        pairs: Pairs of a sample.
        documents: Documents of the sample.
        share: What part of the collection the sample is, above 0, at most 1: so many neighbours in time are left.
    """
    if not documents:
        return Growth(0.0, 0.0)
    near = max(pairs.all - 2 * pairs.across, 0.0) / documents / share
    return Growth(near, 4 * pairs.across / documents**2)


class DistinctSets(NamedTuple):
    """The distinct sets of a collection.

    Attributes:
        hashes: uint32 (n_total,); strictly ascending within a set.
        offsets: int64 (n_sets + 1,).
        halves: int64 (n_sets, 2); documents with this set in the first and in the second half of the collection.
        first: int64 (n_sets,); place of the first document with it.
    """

    hashes: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    halves: NDArray[np.int64]
    first: NDArray[np.int64]

    @property
    def copies(self) -> NDArray[np.int64]:
        """Documents with each set, int64 (n_sets,)."""
        counts: NDArray[np.int64] = self.halves.sum(axis=1)
        return counts

    def weights(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return how many pairs of documents pairs of different sets stand for, and how many of those are across.

        Args:
            left: int64 (n,); places of sets.
            right: int64 (n,); of their partners.

        Returns:
            float64 (n, 2).
        """
        one, other = self.halves[left].astype(np.float64), self.halves[right].astype(np.float64)
        across = one[:, 0] * other[:, 1] + one[:, 1] * other[:, 0]
        return np.stack((one.sum(axis=1) * other.sum(axis=1), across), axis=1)

    def pairs_of_copies(self) -> Weights:
        """Return the pairs of documents with equal sets."""
        counts = self.copies.astype(np.float64)
        return Weights(
            float((counts * (counts - 1) / 2).sum()), float(self.halves.astype(np.float64).prod(axis=1).sum())
        )


def distinct(sets: ShingleSets, min_words: int = 0) -> DistinctSets:
    """Return the distinct sets of all documents that have any shingles, and words enough."""
    middle = len(sets.sizes) // 2
    places: dict[bytes, int] = {}
    first: list[int] = []
    halves: list[list[int]] = []
    counted = (sets.sizes > 0) & (sets.token_counts >= min_words)
    for document in np.flatnonzero(counted).tolist():
        at = places.setdefault(sets.of(document).tobytes(), len(first))
        if at == len(first):
            first.append(document)
            halves.append([0, 0])
        halves[at][document >= middle] += 1
    starts = np.array(first, np.int64)
    sizes = sets.sizes[starts]
    return DistinctSets(
        sets.hashes[ranges(sets.offsets[starts], sizes)],
        offsets_of(sizes),
        np.array(halves, np.int64).reshape(-1, 2),
        starts,
    )
