"""The set of a cluster in memory, the specification for ``redis/lua/_cluster_sets.lua``."""

from bisect import insort
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple, Self

from streamdedup.index.documents import IndexEntry
from streamdedup.index.values import CLUSTER_SIZE_CAP, ClusterCounts

#: A record time is kept in 6 bytes, signed; a greater one, such as one in microseconds, is the nearest.
_LEAST_TIME_MS, _GREATEST_TIME_MS = -(2**47), 2**47 - 1


class _Record(NamedTuple):
    """A document in a set; records are in the order of the first three fields."""

    time_ms: int
    partition: int
    offset: int
    number: int
    source: bytes | None


class ClusterSet:
    """The documents of a cluster, whose first document has the number ``first``."""

    def __init__(self, first: int, records: Iterable[_Record] = ()) -> None:
        self._first = first
        self._records = list(records)
        self._numbers = {record.number for record in self._records}
        self._sources: Counter[bytes | None] = Counter(record.source for record in self._records if record.source)

    def with_first(self, entry: IndexEntry | None) -> Self:
        """Return the set with the first document, if that one is in the index."""
        if entry is None or entry.deleted or entry.number in self._numbers:
            return self
        extended = type(self)(self._first, self._records)
        extended._insert(entry)  # noqa: SLF001  an object of the same class
        return extended

    def add(self, entry: IndexEntry) -> None:
        """Add a document, unless it is in the set or the set is full."""
        if entry.number not in self._numbers and not self._is_full:
            self._insert(entry)

    def _insert(self, entry: IndexEntry) -> None:
        position = entry.position
        time_ms = min(max(entry.time_ms, _LEAST_TIME_MS), _GREATEST_TIME_MS)
        record = _Record(time_ms, position.partition, position.offset, entry.number, entry.content.source)
        insort(self._records, record, key=lambda other: other[:3])
        self._numbers.add(entry.number)
        if record.source:
            self._sources[record.source] += 1

    def remove(self, number: int) -> None:
        """Remove a document; from a full set, which may lack further documents, only its source."""
        at = next((at for at, record in enumerate(self._records) if record.number == number), None)
        if at is None:
            return
        self._sources -= Counter([self._records[at].source])  # also drops a source that no document has
        if self._is_full:
            self._records[at] = self._records[at]._replace(source=None)
        else:
            del self._records[at]
            self._numbers.discard(number)

    @property
    def _is_full(self) -> bool:
        return self._size >= CLUSTER_SIZE_CAP

    @property
    def _size(self) -> int:
        return len(self._numbers) + (self._first not in self._numbers)

    @property
    def numbers(self) -> list[int]:
        """The documents in the set."""
        return [record.number for record in self._records]

    @property
    def counts(self) -> ClusterCounts:
        """The counts of the cluster."""
        if not self._records:
            return ClusterCounts(self._size)
        earliest, latest = self._records[0], self._records[-1]
        return ClusterCounts(self._size, len(self._sources), earliest.number, earliest.time_ms, latest.time_ms)
