"""All pairs of sets from a similarity on, by the exact join of the product; tests compare it with all comparisons."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.truth import Pairs, gathered, join

__all__ = ["Pairs", "all_pairs", "as_set"]


def all_pairs(hashes: NDArray[Any], offsets: NDArray[np.int64], least: float) -> Pairs:
    """Return every pair of sets with at least this Jaccard similarity.

    Args:
        hashes: Elements of all sets, one set after the other, distinct within each.
        offsets: int64 (n + 1,); set i has hashes[offsets[i] : offsets[i + 1]].
        least: Least similarity, above 0.
    """
    return gathered(join(hashes, offsets, least))


def as_set(pairs: Pairs) -> set[tuple[int, int]]:
    """Return the pairs without their similarities."""
    return set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
