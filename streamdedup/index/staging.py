"""The staging index: an index during a rebuild, which replaces the index only when it is complete."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from streamdedup.index.contract import Index
from streamdedup.index.values import Fence, Fingerprint
from streamdedup.position import Partition


class StagingIndex(Protocol):
    """A profile's staging index, built by the process that has the lease on it.

    Until the staging index is complete there is no index: ``Index.open`` says that the index is being rebuilt, and
    ``Index.fence`` refuses.
    """

    @property
    def store(self) -> Index:
        """The index that is built; only for the process that has the lease, and never opened."""

    def begin(self, is_lost: Callable[[], bool], tick: Callable[[], None] = lambda: None) -> bool:
        """Take the lease, delete the old index, and begin the new one.

        Args:
            is_lost: Called with the lease; tells whether the rebuild is still needed. Another process may have
                completed one meanwhile.
            tick: Called at every step. Any exception, in a step or in ``tick``, gives up the lease.

        Returns:
            Whether the rebuild is needed and was begun.

        Raises:
            StoreUnavailable: Another process has the lease, or was interrupted with the lease at most a minute ago.
        """

    def take_over(self, partition: Partition, generation: int, committed: int) -> Fence:
        """Fence a partition in the staging index, and announce an attempt that is earlier than any attempt at a batch.

        Args:
            partition: The partition.
            generation: The caller's generation.
            committed: The group's committed offset; the high-water mark is raised to this offset.

        Raises:
            BatchRefused: A later generation has fenced the partition.
            IndexLost: The staging index is gone.
        """

    def restore_attempts(self, attempts: Mapping[Partition, str], fences: Sequence[Fence]) -> None:
        """Hand the partitions over to the daemons: announce the committed attempts, which daemons will ask for.

        The attempt that ``take_over`` announced goes.

        Args:
            attempts: Committed attempt by partition; empty where there is none.
            fences: Fences for these partitions.

        Raises:
            IndexLost: The announced attempt is not that of the staging index: the store has gone back to an earlier
                time, which the committed attempts would hide.
        """

    def extend_lease(self) -> None:
        """Extend the lease; to be called at least once a minute.

        Raises:
            BatchRefused: Another process has the lease.
        """

    def complete(self, fingerprint: Fingerprint) -> None:
        """Make the staging index the index.

        Raises:
            BatchRefused: Another process has the lease.
        """

    def abandon(self) -> None:
        """Give up the lease; never raises."""
