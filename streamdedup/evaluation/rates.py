"""A share of hits in a total, with confidence bounds, which ``tune`` shows."""

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Final

import numpy as np
from numpy.typing import NDArray

#: Quantile of the normal distribution for confidence bounds of 95 %.
_Z: Final = NormalDist().inv_cdf(0.975)


@dataclass(frozen=True, slots=True)
class Rate:
    hits: int
    total: int

    @classmethod
    def of_items(cls, is_hit: NDArray[np.bool_]) -> "Rate":
        return cls(int(np.count_nonzero(is_hit)), len(is_hit))

    @property
    def share(self) -> float | None:
        """The share, 0 .. 1; None for total 0."""
        return self.hits / self.total if self.total else None

    def bounds(self) -> tuple[float, float] | None:
        """Return the 95 % confidence bounds for the probability of a hit, if items are independent; None for total 0.

        Wilson's score interval (1927), which does not claim certainty where all or none of the n items are hits:

            (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

        For 99 of 100 it is 0.946 .. 0.998; for 100 of 100 0.963 .. 1.
        """
        if not self.total:
            return None
        n, p, zz = self.total, self.hits / self.total, _Z * _Z
        middle = p + zz / (2 * n)
        half = _Z * math.sqrt(p * (1 - p) / n + zz / (4 * n * n))
        scale = 1 + zz / n
        return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)
