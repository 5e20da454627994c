"""Figures about the index in Redis: how many documents it has, how full its servers are."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from streamdedup.index.redis.keys import Keys
from streamdedup.index.redis.runner import Call
from streamdedup.index.redis.servers import Command
from streamdedup.index.values import StoreStats

#: Slices of time in the lifetime of a record, for which documents are counted: how much longer than it lives a document
#: counts at most. Each takes 12 kB.
SLICES_COUNT = 8


class DocumentCount:
    """Counts documents by the servers' HyperLogLogs: a standard error of 0.81 %, and one small command for a batch.

    A HyperLogLog forgets nothing, so there is one for each eighth of a record's lifetime, which expires when all
    records of its time have.

    Args:
        keys: Where they stand.
        lifetime_ms: How long records live after they were written; None for ever.
        now_ms: The clock, in milliseconds.
    """

    def __init__(self, keys: Keys, lifetime_ms: int | None, now_ms: Callable[[], float]) -> None:
        self._keys = keys
        self._slice_ms = max(1, lifetime_ms // SLICES_COUNT) if lifetime_ms else 0
        self._now_ms = now_ms

    def adding(self, numbers: Sequence[int]) -> Call:
        """Return the call that adds documents, by their numbers, to those of the present slice of time."""
        lifetime_ms = (SLICES_COUNT + 1) * self._slice_ms
        elements = np.array(numbers, ">i8").tobytes()
        return Call("count_documents", [self._keys.documents(self._slice())], [lifetime_ms, elements], len(numbers))

    def asking(self) -> Command:
        """Return what asks for the number of documents of all slices that may have living ones."""
        now = self._slice()
        keys = [self._keys.documents(at) for at in range(now - (SLICES_COUNT if self._slice_ms else 0), now + 1)]
        return Command(keys[0], ("PFCOUNT", *keys))

    def _slice(self) -> int:
        """Number of the present slice of time; all time is one slice where records live for ever."""
        return int(self._now_ms() // self._slice_ms) if self._slice_ms else 0


def fullest(masters: Iterable[Mapping[str, Any]]) -> StoreStats:
    """Return the memory of the fullest master: one that is full holds up every batch, however empty the others are.

    Args:
        masters: What each says of its memory.
    """
    stats = [
        StoreStats(used_bytes=info.get("used_memory"), limit_bytes=info.get("maxmemory") or None) for info in masters
    ]
    return max(stats, key=lambda of: (_fullness(of), of.used_bytes or 0))


def _fullness(stats: StoreStats) -> float:
    return (stats.used_bytes or 0) / stats.limit_bytes if stats.limit_bytes else 0.0
