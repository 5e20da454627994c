"""The documents nearest to one document, by exact similarity, as ``streamdedup neighbours`` shows them."""

from collections.abc import Mapping, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from streamdedup.evaluation.pairs import ShingleSets
from streamdedup.similarity.containment import Overlaps, SmallerSide
from streamdedup.similarity.measures import Measure

#: The document that is contained in the other one: the smaller of the two; "both" where their sizes are equal.
ContainedDocument = Literal["document", "neighbour", "both"]
_DOCUMENT_BY_SIDE: Final[Mapping[SmallerSide, ContainedDocument]] = {
    "left": "document",
    "right": "neighbour",
    "both": "both",
}


class Neighbour(NamedTuple):
    id: str
    similarity: float
    containment: float
    contained: ContainedDocument


class NearestDocuments:
    """The documents of a stream that are most similar to a target document, compared chunk by chunk.

    ``target`` holds one document; only documents of its scope are compared. A neighbour shares at least one shingle and
    reaches the threshold, which may be 0. ``nearest``: at most ``max_neighbours``, the most similar first, equally
    similar ones by id. ``neighbours_count``: all neighbours so far. ``compared_count``: documents of the target's scope
    so far.
    """

    def __init__(self, target: ShingleSets, max_neighbours: int, threshold: float, measure: Measure) -> None:
        self.target = target
        self._max_neighbours = max_neighbours
        self._threshold = threshold
        self._measure = measure
        self.nearest: list[Neighbour] = []
        self.neighbours_count = 0
        self.compared_count = 0

    def compare(self, ids: Sequence[str], sets: ShingleSets) -> None:
        # Prefix sums at the borders of documents; their differences count the shingles in common with the target.
        sums = np.append(0, np.cumsum(np.isin(sets.hashes, self.target.hashes)))[sets.offsets]
        common = np.diff(sums)
        overlaps = Overlaps(common, np.full_like(sets.sizes, len(self.target.hashes)), sets.sizes)  # left: the target
        similarities = self._measure.exact(*overlaps)
        is_compared = sets.scopes == self.target.scopes[0]
        near = np.flatnonzero(is_compared & (similarities >= self._threshold) & (common > 0))
        self.neighbours_count += len(near)
        self.compared_count += int(is_compared.sum())
        near_overlaps = overlaps.of(near.tolist())
        neighbours = [
            Neighbour(ids[row], similarity, containment, _DOCUMENT_BY_SIDE[contained])
            for row, similarity, containment, contained in zip(
                near.tolist(),
                similarities[near].tolist(),
                near_overlaps.containments().tolist(),
                near_overlaps.smaller_sides(),
                strict=True,
            )
        ]
        self.nearest = sorted(
            [*self.nearest, *neighbours], key=lambda neighbour: (-neighbour.similarity, neighbour.id)
        )[: self._max_neighbours]
