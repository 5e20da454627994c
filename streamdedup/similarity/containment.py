"""Containment: the part of the smaller set that lies in the larger one, and the rule that alerts pairs by containment.

`sketch` makes `Overlaps`; `settings.profile` makes the rule, `detection.model` applies it.

Source: A. Broder, "On the resemblance and containment of documents" (1997).

    C(A, B) = |A and B| / min(|A|, |B|)

A text that another one quotes as a whole has C = 1, however long the other one is, where the Jaccard similarity is
|A| / |B|. C is symmetric and at least 2 J / (1 + J), so it is never below J. Bag elements are numbered
occurrences, so the formula also holds for bags: sum of minima over the smaller bag size. Worked example:
{1, 2, 3, 4} lies in {1, 2, 3, 4, 5}, C = 1, J = 0.8.

A signature does not tell the size of its set, but two signatures with K values estimate C without the sizes. Each hash
function draws one random element of the union: the one with the smallest value in either signature. The element lies

    in both sets    where the values are equal        e times
    in A only       where the value of A is smaller   a times
    in B only       where the value of B is smaller   b times

so e + a random elements of A were drawn, of which e lie in B. With A the set of fewer drawn elements (a <= b), which
counts as the smaller one,

    C = e / (e + a),    standard error sqrt(C (1 - C) / (e + a))

a binomial share; the delta method for the ratio yields the same. For two sets of nearly equal size this overestimates
C, by less than a standard error. Where the sizes are known, J yields a second, worse estimate of C.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Fewest distinct shingles in the smaller text of a pair that the rule alerts: a shared greeting makes no pair.
MIN_SHINGLES: Final = 20
#: The side of a pair with the smaller set, to whose size the containment refers; both for equal sizes.
SmallerSide = Literal["left", "right", "both"]
#: The smaller side by the sign of the left size minus the right size.
_SMALLER: Final[Mapping[int, SmallerSide]] = {-1: "left", 0: "both", 1: "right"}


class Overlaps(NamedTuple):
    """Intersections and set sizes by pair, each int64 (n,).

    For an estimated pair only the K drawn elements are counted (``drawn_overlaps``).
    """

    common: NDArray[np.int64]
    left: NDArray[np.int64]
    right: NDArray[np.int64]

    def containments(self) -> NDArray[np.float64]:
        """Return the containment by pair, float64 (n,); 0 where a set is empty or none of its elements is drawn."""
        smaller = np.minimum(self.left, self.right)
        shares: NDArray[np.float64] = np.divide(self.common, smaller, out=np.zeros(len(smaller)), where=smaller > 0)
        return shares

    def standard_errors(self) -> NDArray[np.float64]:
        """Return the standard error sqrt(C (1 - C) / (e + a)) by estimated pair, float64 (n,)."""
        shares, smaller = self.containments(), np.minimum(self.left, self.right)
        return np.sqrt(shares * (1.0 - shares) / np.maximum(smaller, 1))  # 1 avoids 0 / 0; the share is 0 there

    def smaller_sides(self) -> list[SmallerSide]:
        return [_SMALLER[sign] for sign in np.sign(self.left - self.right).tolist()]

    def of(self, pairs: Sequence[int]) -> "Overlaps":
        return Overlaps(self.common[pairs], self.left[pairs], self.right[pairs])


def drawn_overlaps(left: NDArray[np.uint32], right: NDArray[np.uint32]) -> Overlaps:
    """Return the drawn elements by pair (module docstring), from signatures of one family, each uint32 (n, K)."""
    common = np.count_nonzero(left == right, axis=1)
    left_only = np.count_nonzero(left < right, axis=1)
    # All drawn elements but the left-only ones are in the right set.
    return Overlaps(common, common + left_only, np.full_like(common, left.shape[1]) - left_only)


@dataclass(frozen=True, slots=True)
class ContainmentRule:
    """Rule by which pairs below the threshold of similarity are alerted.

    ``min_shingles`` is for the smaller set. Profiles use ``MIN_SHINGLES``, or ``exact_limit`` + 1 where that is less.
    """

    threshold: float
    min_shingles: int = 1

    def holds(self, containments: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return the pairs for which the rule holds, bool (n,); ``sizes`` are shingle counts of the smaller sets."""
        held: NDArray[np.bool_] = (containments >= self.threshold) & (sizes >= self.min_shingles)
        return held
