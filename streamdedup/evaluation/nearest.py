"""The documents that are nearest to one, by exact similarity; every document is compared."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.sets import ShingleSets


class Neighbour(NamedTuple):
    """A document and how similar it is."""

    id: str
    similarity: float


class NearestDocuments:
    """Keeps the documents nearest to one while all others pass by.

    Args:
        target: Its shingles, ascending.
        most: How many to keep, at least 1.
        threshold: Least similarity; one shingle in common is always needed.
    """

    def __init__(self, target: NDArray[np.uint32], most: int, threshold: float) -> None:
        self._target = target
        self._most = most
        self._threshold = threshold
        self._nearest: list[Neighbour] = []
        self.near_count = 0

    def pass_by(self, ids: Sequence[str], sets: ShingleSets) -> None:
        """Compare with some documents.

        Args:
            ids: n of them; the document itself not among them.
            sets: Their shingles.
        """
        shared = np.append(0, np.cumsum(np.isin(sets.hashes, self._target)))[sets.offsets]
        common = np.diff(shared)
        similarities = common / np.maximum(len(self._target) + sets.sizes - common, 1)
        near = np.flatnonzero((similarities >= self._threshold) & (common > 0))
        self.near_count += len(near)
        found = [Neighbour(ids[at], float(similarities[at])) for at in near.tolist()]
        self._nearest = sorted([*self._nearest, *found], key=lambda one: (-one.similarity, one.id))[: self._most]

    def nearest(self) -> list[Neighbour]:
        """Return the nearest ones so far, the most similar first, equally similar ones by id."""
        return list(self._nearest)
