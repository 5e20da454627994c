"""What the demo's daemon has done so far, as its metrics say, and whether that accounts for every record."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

from streamdedup.settings.units import counted

_PREFIX = "streamdedup_"


@dataclass(slots=True)
class Figures:
    """Counters of the daemon.

    Attributes:
        consumed_count: Records consumed and committed.
        indexed_count: Documents placed in the index.
        skipped: Documents passed over, by reason.
        dead_letters: Dead letters by code.
        alerts_count: Documents that resemble earlier ones.
        pairs_count: Pairs of documents that resemble each other.
    """

    consumed_count: int = 0
    indexed_count: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    dead_letters: Counter[str] = field(default_factory=Counter)
    alerts_count: int = 0
    pairs_count: int = 0

    @classmethod
    def parse(cls, metrics: str) -> Self:
        """Read them from Prometheus' text format."""
        figures = cls()
        for family in text_string_to_metric_families(metrics):
            for sample in family.samples:
                if sample.name.endswith("_total"):
                    figures._add(sample.name.removeprefix(_PREFIX), sample.labels, round(sample.value))
        return figures

    def _add(self, name: str, labels: dict[str, str], count: int) -> None:
        match name:
            case "records_total":
                self.consumed_count += count
            case "documents_indexed_total":
                self.indexed_count += count
            case "skipped_total":
                self.skipped[labels["reason"]] += count
            case "dead_letters_total":
                self.dead_letters[labels["code"]] += count
            case "alerts_total":
                self.alerts_count += count
            case "pairs_total":
                self.pairs_count += count

    @property
    def is_balanced(self) -> bool:
        """Whether every record consumed was indexed, skipped for a reason, or dead-lettered."""
        return self.consumed_count == self.indexed_count + self.skipped.total() + self.dead_letters.total()

    def balance(self) -> str:
        """Return the account as a line."""
        sign = "=" if self.is_balanced else "≠"
        return (
            f"{self.consumed_count:,} consumed {sign} {self.indexed_count:,} indexed + {self.skipped.total():,} skipped"
            f" + {counted(self.dead_letters.total(), 'dead letter')}"
        )


def listed(counts: Counter[str]) -> str:
    """Return counts by name as a line, the most frequent first; those of zero are left out."""
    ordered = sorted((+counts).items(), key=lambda item: (-item[1], item[0]))
    return ", ".join(f"{count:,} {name}" for name, count in ordered) or "none"
