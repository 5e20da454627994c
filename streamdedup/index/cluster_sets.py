"""The cluster set in memory: the documents of one cluster, with time, position and source, and their counts for alerts.

A cluster is named by its *first document*, which the others resemble (``detection.clusters``). This module is the
specification for ``redis/lua/_cluster_sets.lua`` and, for full sets, ``change_cluster_sets.lua``: a change touches all
of them. The Lua also shortens partition, offset and source.
"""

from bisect import insort
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, Self, TypeGuard

from streamdedup.index.documents import IndexEntry
from streamdedup.index.values import CLUSTER_SIZE_CAP, ClusterCounts

#: Redis keeps record times in 6 bytes, signed; a time beyond them, such as one in microseconds, becomes the nearest.
_LEAST_TIME_MS, _GREATEST_TIME_MS = -(2**47), 2**47 - 1


class _ClusterMember(NamedTuple):
    """A document in a set; members are in the order of the first three fields."""

    time_ms: int
    partition: int
    offset: int
    number: int
    source: bytes | None


class ClusterSet:
    """The documents of a cluster, whose first document has the number ``first``."""

    def __init__(self, first: int, members: Iterable[_ClusterMember] = ()) -> None:
        self._first = first
        self._members = list(members)
        self._numbers = {member.number for member in self._members}
        self._sources = Counter(member.source for member in self._members if member.source)

    def with_first(self, entry: IndexEntry | None) -> Self:
        """Return the set as readers see it: with the first document, whose index entry is ``entry``.

        Returns the set itself if there is nothing to add, else a copy; to be read only. A read must not store the first
        document: it is stored when a document joins (``add_first``).
        """
        if not self._lacks(entry):
            return self
        extended = type(self)(self._first, self._members)
        extended.add_first(entry)
        return extended

    def add_first(self, entry: IndexEntry | None) -> None:
        """Add the first document, also to a full set, whose size counts it already; nothing if it is deleted."""
        if self._lacks(entry):
            self._insert(entry)

    def _lacks(self, entry: IndexEntry | None) -> TypeGuard[IndexEntry]:
        return entry is not None and not entry.deleted and entry.number not in self._numbers

    def add(self, entry: IndexEntry) -> None:
        """Add a document, unless it is in the set or the set is full."""
        if entry.number not in self._numbers and not self._is_full:
            self._insert(entry)

    def _insert(self, entry: IndexEntry) -> None:
        position = entry.position
        time_ms = min(max(entry.time_ms, _LEAST_TIME_MS), _GREATEST_TIME_MS)
        member = _ClusterMember(time_ms, position.partition, position.offset, entry.number, entry.content.source)
        insort(self._members, member, key=lambda member: member[:3])
        self._numbers.add(entry.number)
        if member.source:
            self._sources[member.source] += 1

    def remove(self, number: int) -> None:
        """Remove a document; from a full set, which may lack documents and stays full, only its source."""
        row = next((row for row, member in enumerate(self._members) if member.number == number), None)
        if row is None:
            return
        if source := self._members[row].source:
            self._sources -= Counter([source])  # drops a source that no document has any more
        if self._is_full:
            self._members[row] = self._members[row]._replace(source=None)
        else:
            del self._members[row]
            self._numbers.discard(number)

    @property
    def _is_full(self) -> bool:
        return self._size >= CLUSTER_SIZE_CAP

    @property
    def _size(self) -> int:
        """Documents of the cluster; the first one counts also if it is no member."""
        return len(self._numbers) + (self._first not in self._numbers)

    @property
    def numbers(self) -> list[int]:
        return [member.number for member in self._members]

    @property
    def counts(self) -> ClusterCounts:
        if not self._members:
            return ClusterCounts(self._size)
        earliest, latest = self._members[0], self._members[-1]
        return ClusterCounts(self._size, len(self._sources), earliest.number, earliest.time_ms, latest.time_ms)
