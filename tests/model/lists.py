"""Lists of documents and claims to evict, in slices of time that expire as a whole; see ``index/expiry.py``."""

from collections.abc import Sequence
from typing import Generic, TypeVar

E = TypeVar("E")

#: Number of slices in a lifetime.
SLICES = 8


class Lists(Generic[E]):
    """Lists of one kind of entry, by partition.

    Args:
        lifetime: How long a slice lives after the last entry came; None for ever.
    """

    def __init__(self, lifetime: int | None) -> None:
        self._lifetime = lifetime
        #: (partition, slice) -> time of listing and entry
        self._slices: dict[tuple[int, int], list[tuple[int, E]]] = {}

    def append(self, partition: int, entry: E, now: int, *, sliced: bool) -> None:
        """Append an entry to the current slice of a partition; there is one slice if not sliced."""
        at = now * SLICES // self._lifetime if sliced and self._lifetime is not None else 0
        self._expire(now)
        self._slices.setdefault((partition, at), []).append((now, entry))

    def first(self, partition: int, count: int, now: int) -> list[E]:
        """Return the first entries of a partition's oldest slice."""
        self._expire(now)
        oldest = min((key for key in self._slices if key[0] == partition), default=None)
        return [] if oldest is None else [entry for _, entry in self._slices[oldest][:count]]

    def remove_first(self, partition: int, entries: Sequence[E], now: int) -> None:
        """Remove the first entries of a partition's oldest slice, if they are these."""
        if entries and self.first(partition, len(entries), now) == list(entries):
            oldest = min(key for key in self._slices if key[0] == partition)
            del self._slices[oldest][: len(entries)]
            if not self._slices[oldest]:
                del self._slices[oldest]

    def heads(self) -> list[E]:
        """Return the first entry of each slice."""
        return [entries[0][1] for entries in self._slices.values()]

    def entries(self) -> list[E]:
        """Return all entries."""
        return [entry for entries in self._slices.values() for _, entry in entries]

    def overdue(self, now: int) -> list[E]:
        """Return the entries that were listed a lifetime and more than a slice ago."""
        self._expire(now)
        if self._lifetime is None:
            return []
        limit = now - self._lifetime - self._lifetime / SLICES
        return [entry for entries in self._slices.values() for at, entry in entries if at < limit]

    def copy(self) -> "Lists[E]":
        other = Lists[E](self._lifetime)
        other._slices = {key: list(entries) for key, entries in self._slices.items()}
        return other

    def _expire(self, now: int) -> None:
        if self._lifetime is not None:
            self._slices = {
                key: entries for key, entries in self._slices.items() if entries[-1][0] + self._lifetime > now
            }
