"""Pairs of sets by an exact join, which uses no band."""

from typing import Any

from numpy.typing import NDArray

from streamdedup.evaluation.join import join
from streamdedup.evaluation.pairs import Pairs

#: Numbers of two documents, the smaller one first.
Pair = tuple[int, int]


def all_pairs(hashes: NDArray[Any], offsets: NDArray[Any], threshold: float) -> Pairs:
    """Return every pair of sets with a Jaccard similarity of at least the threshold, which is above 0."""
    return Pairs.concatenated(join(hashes, offsets, threshold))


def as_set(pairs: Pairs) -> set[Pair]:
    return set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
