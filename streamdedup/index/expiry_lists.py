"""Lists for backlog expiry, cut into slices of time that expire as wholes.

A document placed late is listed under its log and the slice of wall-clock time in which it is listed. Entries are
appended to the newest slice and removed from the head of the oldest. A slice expires one lifetime after the last entry
was appended to it, when the index entries that it names have expired by their own time to live. So a list never names
more than the documents of a lifetime and one slice, also where nothing is ever evicted.
"""

from collections import deque
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Generic, TypeVar

from streamdedup.position import Log

V = TypeVar("V")

#: Slices of a lifetime.
SLICES_PER_LIFETIME = 8


def slice_at(now_ms: float, lifetime_ms: int | None) -> int:
    """Return the number of the slice of a point in time; 0 for lists that never expire.

    Args:
        now_ms: Milliseconds since the epoch.
        lifetime_ms: Time to live of index entries; None for ever.
    """
    return 0 if lifetime_ms is None else int(now_ms * SLICES_PER_LIFETIME / lifetime_ms)


def readable_slices(now_ms: float, lifetime_ms: int | None) -> range:
    """Return the slices in which something may be listed, oldest first.

    One more than a lifetime covers on either side: the clocks of two daemons may differ by a slice. Entries beyond that
    are not lost, but read when the clock has reached them.

    Args:
        now_ms: Milliseconds since the epoch.
        lifetime_ms: Time to live of index entries; None for ever.
    """
    if lifetime_ms is None:
        return range(1)
    newest = slice_at(now_ms, lifetime_ms)
    return range(newest - SLICES_PER_LIFETIME - 1, newest + 2)


class MemoryExpiryLists(Generic[V]):
    """The lists of all logs in this process's memory, for one kind of entry.

    Args:
        lifetime_ms: Time to live of a slice after the last entry was appended to it; None for ever.
        now_ms: The clock, in milliseconds.
    """

    def __init__(self, lifetime_ms: int | None, now_ms: Callable[[], float]) -> None:
        self._lifetime_ms = lifetime_ms
        self._now_ms = now_ms
        self._slices: dict[tuple[int, Log], deque[V]] = {}
        #: When each slice expires, in milliseconds.
        self._expiry: dict[tuple[int, Log], float] = {}

    def append(self, log: Log, entries: Sequence[V]) -> None:
        """Append entries to the present slice, unless it ends with just these: then the call is a repetition."""
        self._drop_expired()
        now = self._now_ms()
        key = (slice_at(now, self._lifetime_ms), log)
        stored = self._slices.setdefault(key, deque())
        if list(islice(reversed(stored), len(entries))) != list(reversed(entries)):
            stored.extend(entries)
        if self._lifetime_ms is not None:
            self._expiry[key] = now + self._lifetime_ms

    def first(self, log: Log, count: int) -> list[V]:
        """Return the first entries of a log's oldest slice, at most ``count``."""
        keys = self._keys_of(log)
        return list(islice(self._slices[keys[0]], count)) if keys else []

    def remove_first(self, log: Log, entries: Sequence[V]) -> None:
        """Remove entries from the head of a log's list, oldest slice first, up to the first that is not there."""
        for entry in entries:
            keys = self._keys_of(log)
            if not keys or self._slices[keys[0]][0] != entry:
                return
            self._slices[keys[0]].popleft()
            if not self._slices[keys[0]]:
                self._drop(keys[0])

    def __len__(self) -> int:
        """Return how many entries are listed."""
        self._drop_expired()
        return sum(map(len, self._slices.values()))

    def _keys_of(self, log: Log) -> list[tuple[int, Log]]:
        self._drop_expired()
        readable = readable_slices(self._now_ms(), self._lifetime_ms)
        return sorted(key for key in self._slices if key[1] == log and key[0] in readable)

    def _drop_expired(self) -> None:
        now = self._now_ms()
        for key in [key for key, expiry in self._expiry.items() if expiry <= now]:
            self._drop(key)

    def _drop(self, key: tuple[int, Log]) -> None:
        del self._slices[key]
        self._expiry.pop(key, None)
