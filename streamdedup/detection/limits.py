"""Documents that reached the limits for storms, ``bucket_cap`` and ``max_candidates``, and the cure.

Added up by ``daemon.statistics`` and ``evaluation.trial``. A new field also touches the log event ``limits_reached`` in
docs/metrics.md.
"""

from dataclasses import astuple, dataclass
from operator import add
from typing import Final

from streamdedup.detection.model import DetectionResult

#: Settings that lift the limits, and the alternative.
CURE: Final = (
    'raise bucket_cap and max_candidates of the profile ("none" lifts a limit), or leave boilerplate out with a file '
    "of streamdedup stop-shingles"
)


@dataclass(frozen=True, slots=True)
class ReachedLimits:
    """Counts for documents that reached a limit, so that some of their pairs may be missed.

    Documents below the high-water mark are not compared, and count in ``in_full_buckets`` and ``full_buckets`` only.

    Attributes:
        over_candidates: Documents with more candidates than ``max_candidates`` and no full bucket.
        full_buckets: Refused insertions into full buckets.
        dropped_candidates: Candidates that were found and not compared; members that a full bucket hides do not count.
    """

    in_full_buckets: int = 0
    over_candidates: int = 0
    full_buckets: int = 0
    dropped_candidates: int = 0

    @classmethod
    def of(cls, result: DetectionResult) -> "ReachedLimits":
        return cls(
            in_full_buckets=len(result.full_bucket_positions),
            over_candidates=len(result.over_candidates_positions),
            full_buckets=result.full_buckets_count,
            dropped_candidates=result.dropped_candidates_count,
        )

    def __add__(self, added: "ReachedLimits") -> "ReachedLimits":
        return ReachedLimits(*map(add, astuple(self), astuple(added)))

    @property
    def documents(self) -> int:
        """Documents that reached a limit, each counted once."""
        return self.in_full_buckets + self.over_candidates

    def sentence(self) -> str:
        """Return the numbers and the cure in words; empty if no limit was reached."""
        if not self.documents:
            return ""
        return (
            f"pairs may be missed: {self.in_full_buckets:,} documents with full buckets ({self.full_buckets:,} times), "
            f"{self.over_candidates:,} with too many candidates; {self.dropped_candidates:,} candidates were not "
            f"compared. To compare all: {CURE}"
        )
