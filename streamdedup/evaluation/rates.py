"""A share of a count, and within which bounds the truth lies behind it."""

import math
from dataclasses import dataclass
from typing import Final

#: Quantile of the normal distribution for bounds that hold with 95 %.
_Z: Final = 1.959963984540054


@dataclass(frozen=True, slots=True)
class Rate:
    """So many of so many.

    Attributes:
        hits: How many.
        total: Of how many.
    """

    hits: int
    total: int

    @property
    def share(self) -> float | None:
        """The share, 0 .. 1; None of nothing."""
        return self.hits / self.total if self.total else None

    def bounds(self) -> tuple[float, float] | None:
        """Return within which bounds the probability lies, with 95 %; None for nothing.

        Wilson's score interval (1927), which does not claim certainty where all or none were hit:

            (p + z^2 / 2n -+ z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n)

        For 99 of 100 it is 0.946 .. 0.998; for 100 of 100 0.963 .. 1.
        """
        if not self.total:
            return None
        p, n, zz = self.hits / self.total, self.total, _Z * _Z
        middle = p + zz / (2 * n)
        half = _Z * math.sqrt(p * (1 - p) / n + zz / (4 * n * n))
        scale = 1 + zz / n
        return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)

    def __add__(self, other: "Rate") -> "Rate":
        """Pool with another."""
        return Rate(self.hits + other.hits, self.total + other.total)
