"""Numbers with their nouns, for messages."""

from collections.abc import Mapping


def counted(count: int, noun: str) -> str:
    """Return a number with its noun: ``1 document``, ``1,200 documents``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def listed_counts(counts: Mapping[str, int]) -> str:
    """Return numbers with their names: ``1,200 empty, 3 too_short``; ``none`` without any."""
    return ", ".join(f"{count:,} {name}" for name, count in sorted(counts.items())) or "none"
