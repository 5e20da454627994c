"""A dictionary whose values expire, for ``index.memory`` and ``index.memory_partitions``."""

from collections.abc import Callable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

_NEVER = float("inf")
#: Least number of values at which expired ones are deleted.
_LEAST_SWEPT = 100


class ExpiringDict(Generic[K, V]):
    """A dictionary whose values expire after ``lifetime_ms``, None for never.

    ``set`` deletes the expired ones whenever all have doubled, so that memory is bounded and a call cheap on average.
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
        """Set a value, with ``lifetime_ms`` instead of the time to live of the dictionary."""
        lifetime_ms = self._lifetime_ms if lifetime_ms is None else lifetime_ms
        self._entries[key] = (value, _NEVER if lifetime_ms is None else self._now_ms() + lifetime_ms)
        if lifetime_ms is not None and len(self._entries) >= self._sweep_count:
            now_ms = self._now_ms()
            self._entries = {kept: entry for kept, entry in self._entries.items() if entry[1] > now_ms}
            self._sweep_count = max(2 * len(self._entries), _LEAST_SWEPT)

    def amend(self, key: K, value: V) -> None:
        """Replace a value that ``get`` has returned, and keep its time to live."""
        self._entries[key] = (value, self._entries[key][1])

    def all_keys(self) -> list[K]:
        """Return the keys, those of expired values included."""
        return list(self._entries)

    def drop(self, key: K) -> None:
        self._entries.pop(key, None)

    def __len__(self) -> int:
        """Return the number of unexpired values."""
        now_ms = self._now_ms()
        return sum(expiry > now_ms for _, expiry in self._entries.values())
