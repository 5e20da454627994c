"""A dictionary whose entries expire; called by ``index.memory`` and ``index.memory_partitions``."""

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_NEVER = float("inf")
#: Least entry count at which expired entries are deleted.
_LEAST_SWEPT = 100


class ExpiringDict(Generic[K, V]):
    """A dictionary whose entries expire after ``lifetime_ms``, None for never; ``set`` may name another.

    ``len`` counts only unexpired entries. ``set`` deletes the expired ones whenever the entries have doubled, so memory
    stays bounded and the cost of a call constant on average.
    """

    def __init__(self, lifetime_ms: int | None, now_ms: Callable[[], float]) -> None:
        self._lifetime_ms = lifetime_ms
        self._now_ms = now_ms
        self._entries: dict[K, tuple[V, float]] = {}
        self._sweep_count = _LEAST_SWEPT

    def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is None:
            return None
        value, expiry = entry
        if expiry != _NEVER and expiry <= self._now_ms():  # the first comparison saves most calls of the clock
            del self._entries[key]
            return None
        return value

    def set(self, key: K, value: V, lifetime_ms: int | None = None) -> None:
        """Set a value; ``lifetime_ms`` is its time to live where it differs from that of the dictionary."""
        lifetime_ms = self._lifetime_ms if lifetime_ms is None else lifetime_ms
        self._entries[key] = (value, _NEVER if lifetime_ms is None else self._now_ms() + lifetime_ms)
        if lifetime_ms is not None and len(self._entries) >= self._sweep_count:
            now_ms = self._now_ms()
            self._entries = {kept: entry for kept, entry in self._entries.items() if entry[1] > now_ms}
            self._sweep_count = max(2 * len(self._entries), _LEAST_SWEPT)

    def amend(self, key: K, value: V) -> None:
        """Change a value that ``get`` has returned, and keep its time to live."""
        self._entries[key] = (value, self._entries[key][1])

    def all_keys(self) -> list[K]:
        """Return the keys, those of expired values included."""
        return list(self._entries)

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)

    def __len__(self) -> int:
        now_ms = self._now_ms()
        return sum(expiry > now_ms for _, expiry in self._entries.values())
