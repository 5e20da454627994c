"""Similarity measures: exact for two sets, estimated from two signatures.

An exact measure is a function of three numbers, the set sizes |A| and |B| and the intersection size c:

    Jaccard    c / (|A| + |B| - c)

Called by `sketch` and `evaluation`; settings and commands take the names from here. The division of integers is
correctly rounded: sets that share 4 of 5 elements reach a threshold of 0.8. Two sets without elements have the
similarity 0. Measures are symmetric.

docs/architecture.md ("Add a similarity measure") names the files that a new one touches. The bands in `lsh` find pairs
by their Jaccard similarity, also for another measure: bands are chosen, and recall is computed, for
`Measure.least_jaccard`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.similarity import minhash

#: Values of the setting `similarity`: names of measures.
MeasureName = Literal["set", "bag"]


class OverlapBounds(NamedTuple):
    """Lower bounds for two sets x and y, |y| <= |x|, that reach a similarity; shares in 0 .. 1.

    Attributes:
        size: |y| as a share of |x|.
        of_larger: The intersection size as a share of |x|.
        of_smaller: The intersection size as a share of |y|.
    """

    size: float
    of_larger: float
    of_smaller: float


@dataclass(frozen=True, slots=True)
class Measure:
    """A similarity between two shingle sets, in 0 .. 1.

    Attributes:
        bag: Whether a shingle that occurs n times is n elements, not one; decides how texts are shingled.
        exact: Computes similarities from intersection sizes, left set sizes and right set sizes; each int64 (n,).
        estimate: Estimates similarities from left and right signatures, each uint32 (n, K).
        standard_error: Standard error from the similarity and the signature length K.
        bounds: Bounds for pairs that reach a similarity in (0, 1]; the join (`evaluation.join`) skips other pairs.
        least_jaccard: Least Jaccard similarity for a pair that reaches a similarity in (0, 1].
    """

    bag: bool
    exact: Callable[[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]], NDArray[np.float64]]
    estimate: Callable[[NDArray[np.uint32], NDArray[np.uint32]], NDArray[np.float64]]
    standard_error: Callable[[float, int], float]
    bounds: Callable[[float], OverlapBounds]
    least_jaccard: Callable[[float], float]


def intersection_size(left: NDArray[np.uint32], right: NDArray[np.uint32]) -> int:
    """Count the common values of two sets: equal neighbours after sorting, the fastest way (table in `sketch`)."""
    both = np.concatenate((left, right))
    both.sort()
    return int(np.count_nonzero(both[1:] == both[:-1]))


def jaccard(common: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return c / (|A| + |B| - c), and 0 where both sets are empty."""
    unions = left + right - common
    similarities: NDArray[np.float64] = np.divide(common, unions, out=np.zeros(len(unions)), where=unions > 0)
    return similarities


def _jaccard_bounds(similarity: float) -> OverlapBounds:
    """Return the bounds of Xiao, Wang, Lin, Yu, "Efficient similarity joins for near duplicate detection" (2008)."""
    return OverlapBounds(size=similarity, of_larger=similarity, of_smaller=2 * similarity / (1 + similarity))


_JACCARD: Final = Measure(
    bag=False,
    exact=jaccard,
    estimate=minhash.estimate,
    standard_error=minhash.standard_error,
    bounds=_jaccard_bounds,
    least_jaccard=lambda similarity: similarity,
)

#: All measures by name. In a bag each occurrence is an element of its own, so the functions are those for sets.
MEASURES: Final[Mapping[MeasureName, Measure]] = {"set": _JACCARD, "bag": replace(_JACCARD, bag=True)}
