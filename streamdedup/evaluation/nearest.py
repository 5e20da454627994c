"""The documents nearest to one document, by exact similarity; every document is compared."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from streamdedup.evaluation.pairs import ShingleSets
from streamdedup.similarity.containment import Contained, Overlaps
from streamdedup.similarity.measures import Measure

#: The smaller one of a document and its neighbour; both where their sizes are equal.
Smaller = Literal["document", "neighbour", "both"]
_SMALLER: Final[Mapping[Contained, Smaller]] = {"left": "document", "right": "neighbour", "both": "both"}


class Neighbour(NamedTuple):
    """A document, its similarity, the share of the smaller document in the other one, and the smaller document."""

    id: str
    similarity: float
    containment: float
    contained: Smaller


class NearestDocuments:
    """Keeps a stream's nearest documents.

    Args:
        target: The document's shingles; documents of its scope are compared.
        max_neighbours: Documents to keep, at least 1.
        threshold: Least similarity; a neighbour shares at least one shingle in any case.
        measure: Similarity measure.

    Attributes:
        target: The same.
        nearest: The nearest documents so far, the most similar first, equally similar ones by id.
        near_count: Documents so far that reach the threshold.
        compared_count: Documents so far.
    """

    def __init__(self, target: ShingleSets, max_neighbours: int, threshold: float, measure: Measure) -> None:
        self.target = target
        self._most = max_neighbours
        self._threshold = threshold
        self._measure = measure
        self.nearest: list[Neighbour] = []
        self.near_count = 0
        self.compared_count = 0

    def compare(self, ids: Sequence[str], sets: ShingleSets) -> None:
        """Compare with further documents."""
        shared = np.append(0, np.cumsum(np.isin(sets.hashes, self.target.hashes)))[sets.offsets]
        common = np.diff(shared)
        overlaps = Overlaps(common, np.full_like(sets.sizes, len(self.target.hashes)), sets.sizes)
        similarities = self._measure.exact(*overlaps)
        is_compared = sets.scopes == self.target.scopes
        near = np.flatnonzero(is_compared & (similarities >= self._threshold) & (common > 0))
        self.near_count += len(near)
        self.compared_count += int(is_compared.sum())
        of_near = overlaps.of(near.tolist())
        shares = zip(similarities[near].tolist(), of_near.containments().tolist(), of_near.contained(), strict=True)
        neighbours = [
            Neighbour(ids[number], similarity, containment, _SMALLER[contained])
            for number, (similarity, containment, contained) in zip(near.tolist(), shares, strict=True)
        ]
        self.nearest = sorted(
            [*self.nearest, *neighbours], key=lambda neighbour: (-neighbour.similarity, neighbour.id)
        )[: self._most]
