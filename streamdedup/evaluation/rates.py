"""A share of hits in a total."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


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
