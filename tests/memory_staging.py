"""The staging index in memory: the specification of the staging index in Redis."""

from collections.abc import Callable, Mapping, Sequence

from streamdedup.errors import BatchRefused, StoreUnavailable
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.values import Fence, Fingerprint
from streamdedup.position import Partition


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

    def begin(self, is_lost: Callable[[], bool], tick: Callable[[], None] = lambda: None) -> bool:
        """See ``StagingIndex.begin``."""
        if self._index.builder not in (None, self):
            raise StoreUnavailable("the index is being rebuilt by another process")
        self._index.builder = self
        try:
            needed = is_lost()
            tick()
        except BaseException:
            self.abandon()
            raise
        if not needed:
            self.abandon()
            return False
        become(self._index, emptied(self._index))
        self._index.builder = self
        become(self.store, emptied(self._index))
        self.store.open({})
        return True

    def take_over(self, partition: Partition, generation: int, committed: int) -> Fence:
        """See ``StagingIndex.take_over``."""
        return self.store.fence(partition, generation, committed)

    def restore_attempts(self, attempts: Mapping[Partition, str], fences: Sequence[Fence]) -> None:
        """See ``StagingIndex.restore_attempts``; memory never goes back to an earlier time."""
        for fence in fences:
            if attempts.get(fence.partition):
                self.store.announce(attempts[fence.partition], [fence])

    def extend_lease(self) -> None:
        """See ``StagingIndex.extend_lease``."""
        if self._index.builder is not self:
            raise BatchRefused("the rebuilding of the index was taken over by another process")

    def complete(self, fingerprint: Fingerprint) -> None:
        """See ``StagingIndex.complete``."""
        self.extend_lease()
        become(self._index, self.store)
        self._index._fingerprint = None
        self._index.open(fingerprint)

    def abandon(self) -> None:
        """See ``StagingIndex.abandon``."""
        if self._index.builder is self:
            self._index.builder = None
