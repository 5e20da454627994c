"""Shares with bounds of 95 %, of independent items or of pairs that share documents, for ``scores`` and ``tune``.

Pairs that share a document are not independent: a document with an unlucky signature misses all of its pairs. The
variance of a share p of n pairs then is the cluster-robust one of dyadic data (M. Fafchamps, F. Gubert, "The formation
of risk sharing networks", 2007; P. Aronow, C. Samii, V. Assenova, "Cluster-robust variance estimation for dyadic data",
2015). It sums the products of the residuals of every two pairs with a common document, and e^2 of each pair once:

    V = (sum over documents of S^2 - sum over pairs of e^2) / n^2

    e = 1 - p for a hit and -p for a miss,    S = sum of e over the pairs of a document

n* = p (1 - p) / V independent items have the same variance (L. Kish, "Survey sampling", 1965). n* takes the place of n
in Wilson's interval, as E. Korn and B. Graubard (1998) do with survey data. As misses are few, V may be too small, and
it is 0 without a miss; so n* is at most the document count less the number of connected components, which is the
number of pairs that connect the documents of all components: n for separate pairs, m - 1 for m copies of one text.

Worked example: 100 copies of one text, of which one misses its 99 pairs. Of 4,950 pairs 4,851 are found, 0.98; n* is
51, and the bounds are 0.896 .. 0.996, where independent pairs would have 0.976 .. 0.984.
"""

import math
from dataclasses import dataclass, field
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Quantile of the normal distribution for bounds of 95 %.
_Z: Final = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Rate:
    """A share: hits in a total.

    Attributes:
        hits: Hit count.
        total: Hits and misses together.
        effective: Number of independent items with the same variance, n*; None if all items are independent.
    """

    hits: int
    total: int
    effective: float | None = field(default=None, compare=False)

    @classmethod
    def of_items(cls, hits: NDArray[np.bool_]) -> "Rate":
        """Return the hit share among independent items."""
        return cls(int(np.count_nonzero(hits)), len(hits))

    @classmethod
    def of_pairs(cls, hits: NDArray[np.bool_], left: NDArray[np.int64], right: NDArray[np.int64]) -> "Rate":
        """Return the hit share among pairs that share documents; arguments as for ``effective_pairs``."""
        return cls(int(np.count_nonzero(hits)), len(hits), effective_pairs(hits, left, right))

    @property
    def share(self) -> float | None:
        """The share, 0 .. 1; None for total 0."""
        return self.hits / self.total if self.total else None

    def bounds(self) -> tuple[float, float] | None:
        """Return the 95 % bounds of the probability; None for total 0.

        Wilson's score interval (1927), which does not claim certainty where all or none are hits:

            (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

        For 99 of 100 it is 0.946 .. 0.998; for 100 of 100 0.963 .. 1.
        """
        if not self.total:
            return None
        p, zz = self.hits / self.total, _Z * _Z
        n = self.total if self.effective is None else self.effective
        middle = p + zz / (2 * n)
        half = _Z * math.sqrt(p * (1 - p) / n + zz / (4 * n * n))
        scale = 1 + zz / n
        return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def effective_pairs(hits: NDArray[np.bool_], left: NDArray[np.int64], right: NDArray[np.int64]) -> float:
    """Return n*, the number of independent pairs with the same variance of the hit share (module docstring).

    ``hits``: bool (n,); ``left`` and ``right``: document numbers, int64 (n,). The result is 0 without pairs, else from
    1 to n.
    """
    if not hits.size:
        return 0.0
    # Documents numbered from 0 without gaps, for ``bincount``.
    documents, (left_ends, right_ends) = np.unique(np.stack((left, right)), return_inverse=True)
    max_independent = len(documents) - len(np.unique(components(left_ends, right_ends, len(documents))))
    share = float(hits.mean())
    residuals = hits - share
    sums = np.bincount(left_ends, residuals, len(documents)) + np.bincount(right_ends, residuals, len(documents))
    variance = float(sums @ sums - residuals @ residuals) / len(hits) ** 2
    if variance <= 0.0:  # 0 without a miss, or below 0
        return float(max_independent)
    return min(max(share * (1 - share) / variance, 1.0), float(max_independent))


def components(left: NDArray[np.int64], right: NDArray[np.int64], document_count: int) -> NDArray[np.int64]:
    """Return the smallest document number in the connected component of each document, int64 (document_count,).

    Each document takes over the smaller label of each pair, then the label of its label, until no label changes.
    """
    labels = np.arange(document_count)
    while True:
        previous = labels.copy()
        smaller = np.minimum(labels[left], labels[right])
        np.minimum.at(labels, left, smaller)
        np.minimum.at(labels, right, smaller)
        labels = labels[labels]
        if np.array_equal(labels, previous):
            return labels
