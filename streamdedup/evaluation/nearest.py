"""The documents nearest to one document, by exact similarity; every document is compared."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.truth import ShingleSets
from streamdedup.similarity.measures import Measure


class Neighbour(NamedTuple):
    """A document and its similarity."""

    id: str
    similarity: float


class NearestDocuments:
    """Keeps the nearest documents of a stream.

    Args:
        target: Shingles of the document, ascending.
        most: Documents to keep, at least 1.
        threshold: Least similarity; a neighbour shares at least one shingle in any case.
        measure: Measure of similarity.

    Attributes:
        target: The same.
        nearest: The nearest documents so far, the most similar first, equally similar ones by id.
        near_count: Documents so far that reach the threshold.
        compared_count: Documents so far.
    """

    def __init__(self, target: NDArray[np.uint32], most: int, threshold: float, measure: Measure) -> None:
        self.target = target
        self._most = most
        self._threshold = threshold
        self._measure = measure
        self.nearest: list[Neighbour] = []
        self.near_count = 0
        self.compared_count = 0

    def compare(self, ids: Sequence[str], sets: ShingleSets) -> None:
        """Compare with a batch of other documents."""
        shared = np.append(0, np.cumsum(np.isin(sets.hashes, self.target)))[sets.offsets]
        common = np.diff(shared)
        similarities = self._measure.exact(common, np.full_like(sets.sizes, len(self.target)), sets.sizes)
        near = np.flatnonzero((similarities >= self._threshold) & (common > 0))
        self.near_count += len(near)
        self.compared_count += len(ids)
        found = [Neighbour(ids[at], float(similarities[at])) for at in near.tolist()]
        self.nearest = sorted([*self.nearest, *found], key=lambda one: (-one.similarity, one.id))[: self._most]
