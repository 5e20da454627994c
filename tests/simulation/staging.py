"""The staging index in memory: the specification of the staging index in Redis."""

from collections.abc import Callable

from streamdedup.errors import BatchRefused, StoreUnavailable
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.values import Fingerprint


def emptied(index: MemoryIndex) -> MemoryIndex:
    """Return an empty index with the same options."""
    return MemoryIndex(lifetime_ms=index._lifetime_ms, bucket_cap=index._bucket_cap, now_ms=index._now_ms)


def become(index: MemoryIndex, other: MemoryIndex) -> None:
    """Give an index the contents of another one."""
    index.__dict__.update({**other.__dict__, "connections": index.connections})


class MemoryStagingIndex:
    """A ``StagingIndex`` of an index in this process's memory.

    Args:
        index: The index that the staging index replaces.
    """

    def __init__(self, index: MemoryIndex) -> None:
        self._index = index
        self.store = emptied(index)

    def hold(self) -> None:
        """See ``StagingIndex.hold``."""
        if self._index.builder not in (None, self):
            raise StoreUnavailable("the index is being rebuilt by another process")
        self._index.builder = self
        become(self.store, self._index)

    def clear(self, tick: Callable[[], None] = lambda: None) -> None:
        """See ``StagingIndex.clear``."""
        self._check_lease()
        become(self._index, emptied(self._index))
        self._index.builder = self
        become(self.store, emptied(self._index))
        self.store.open({})
        tick()

    def extend_lease(self) -> None:
        """See ``StagingIndex.extend_lease``."""
        self._check_lease()

    def _check_lease(self) -> None:
        if self._index.builder is not self:
            raise BatchRefused("the rebuilding of the index was taken over by another process")

    def complete(self, fingerprint: Fingerprint) -> None:
        """See ``StagingIndex.complete``."""
        self.extend_lease()
        become(self._index, self.store)
        self._index.builder = None
        self._index._fingerprint = None
        self._index.open(fingerprint)

    def abandon(self) -> None:
        """See ``StagingIndex.abandon``."""
        if self._index.builder is self:
            self._index.builder = None
