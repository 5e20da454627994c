"""Tables that expire in memory, and slices of time: of the lists for backlog expiry and of the counts of documents.

A document that is inserted late is listed under its log and the present slice of wall-clock time. Entries are appended
to the newest slice and removed from the head of the oldest. A slice expires one lifetime after the last append; by then
the named index entries have expired by their own times to live. So a list names at most the documents of one lifetime
and one slice, even if nothing is ever evicted.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Generic, TypeVar

from streamdedup.position import Log

K = TypeVar("K")
V = TypeVar("V")

#: Slices of a lifetime.
SLICES_PER_LIFETIME = 8
_NEVER = float("inf")


def slice_at(now_ms: float, lifetime_ms: int | None) -> int:
    """Return the number of the slice of a point in time; 0 where entries never expire.

    Args:
        now_ms: Milliseconds since the epoch.
        lifetime_ms: Time to live of index entries; None for ever.
    """
    return 0 if lifetime_ms is None else int(now_ms * SLICES_PER_LIFETIME / lifetime_ms)


def readable_slices(now_ms: float, lifetime_ms: int | None) -> range:
    """Return the slices that may have entries, oldest first.

    The range has one slice more than a lifetime on either side, because the clocks of two daemons may differ by a
    slice. Entries beyond the range are read once the clock has reached their slice.

    Args:
        now_ms: Milliseconds since the epoch.
        lifetime_ms: Time to live of index entries; None for ever.
    """
    if lifetime_ms is None:
        return range(1)
    newest = slice_at(now_ms, lifetime_ms)
    return range(newest - SLICES_PER_LIFETIME - 1, newest + 2)


class ExpiringDict(Generic[K, V]):
    """A dictionary whose entries expire a fixed time after they were set.

    Args:
        lifetime_ms: Time to live of an entry; None for ever.
        now_ms: Clock, in milliseconds.
    """

    def __init__(self, lifetime_ms: int | None, now_ms: Callable[[], float]) -> None:
        self._lifetime_ms = lifetime_ms
        self._now_ms = now_ms
        self._entries: dict[K, tuple[V, float]] = {}

    def get(self, key: K) -> V | None:
        """Return a value; None without a value, or after its expiry."""
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, expiry = entry
        if expiry != _NEVER and expiry <= self._now_ms():
            del self._entries[key]
            return None
        return value

    def set(self, key: K, value: V, lifetime_ms: int | None = None) -> None:
        """Set a value; ``lifetime_ms`` is its time to live where other values never expire."""
        lifetime_ms = lifetime_ms if self._lifetime_ms is None else self._lifetime_ms
        self._entries[key] = (value, _NEVER if lifetime_ms is None else self._now_ms() + lifetime_ms)

    def amend(self, key: K, value: V) -> None:
        """Change a value and keep its time to live."""
        self._entries[key] = (value, self._entries[key][1])

    def all_keys(self) -> list[K]:
        """Return the keys, those of expired values included."""
        return list(self._entries)

    def drop(self, key: K) -> None:
        """Delete a value, if there is one."""
        self._entries.pop(key, None)

    def __len__(self) -> int:
        now = self._now_ms()
        return sum(expiry > now for _, expiry in self._entries.values())


class MemoryExpiryLists(Generic[V]):
    """The expiry lists of all logs in memory, for one kind of entry.

    Args:
        lifetime_ms: Time to live of a slice after the last entry was appended to it; None for ever.
        now_ms: The clock, in milliseconds.
    """

    def __init__(self, lifetime_ms: int | None, now_ms: Callable[[], float]) -> None:
        self._lifetime_ms = lifetime_ms
        self._now_ms = now_ms
        self._slices: ExpiringDict[tuple[int, Log], deque[V]] = ExpiringDict(lifetime_ms, now_ms)

    def append(self, log: Log, entries: Sequence[V]) -> None:
        """Append entries to the present slice; a repeated call with the same last entries appends nothing."""
        key = (slice_at(self._now_ms(), self._lifetime_ms), log)
        stored = self._slices.get(key) or deque()
        if list(islice(reversed(stored), len(entries))) != list(reversed(entries)):
            stored.extend(entries)
        self._slices.set(key, stored)

    def first(self, log: Log, count: int) -> list[V]:
        """Return the first entries of a log's oldest slice, at most ``count``."""
        return list(islice(self._oldest(log), count))

    def remove_first(self, log: Log, entries: Sequence[V]) -> None:
        """Remove entries from the head of a log's list, oldest slice first, up to the first that is not there."""
        for entry in entries:
            oldest = self._oldest(log)
            if not oldest or oldest[0] != entry:
                return
            oldest.popleft()

    def __len__(self) -> int:
        """Return how many entries are listed."""
        return sum(len(self._slices.get(key) or ()) for key in self._slices.all_keys())

    def _oldest(self, log: Log) -> deque[V]:
        """Return the entries of a log's oldest slice; empty where nothing is listed."""
        slices = ((at, log) for at in readable_slices(self._now_ms(), self._lifetime_ms))
        return next(filter(None, map(self._slices.get, slices)), deque())
