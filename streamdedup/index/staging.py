"""An index while it is built anew: the contract of what takes its place only when it is whole."""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from streamdedup.index.contract import Index
from streamdedup.index.values import Fence, Fingerprint
from streamdedup.position import Partition


class StagingIndex(Protocol):
    """An index of a profile that is being built, and takes its place only when it is whole.

    As long as it is not, there is no index: ``open`` says that somebody builds one, and ``fence`` refuses.

    Attributes:
        store: The index that is being built; only for whoever builds it, and never opened.
    """

    @property
    def store(self) -> Index:
        """See the attributes."""

    def begin(self, is_lost: Callable[[], bool], tick: Callable[[], None] = lambda: None) -> bool:
        """Delete what is there of the index, and begin the new one.

        Args:
            is_lost: Asked once nobody else can begin, whether it is still needed: somebody may have been done just
                before.
            tick: Called at every step. When it or anything else raises, the draft is given up.

        Returns:
            Whether it is needed and was begun.

        Raises:
            StoreUnavailable: Somebody else builds it, or did so a minute ago and was cut short.
        """

    def take_over(self, partition: Partition, generation: int, committed: int) -> Fence:
        """Fence a partition in the draft, and announce the draft in the place of any batch, below any of them.

        Args:
            partition: The partition.
            generation: Our generation.
            committed: Offset that the group has committed; the mark is raised to it.

        Raises:
            BatchRefused: A later generation has fenced it already.
            IndexLost: The draft is gone.
        """

    def settle(self, notes: Mapping[Partition, str], fences: Sequence[Fence]) -> None:
        """Put the announcement that is committed for each partition in the place of the draft's.

        Args:
            notes: Announcement by partition; empty where none is committed.
            fences: Rights to write, for all of these partitions.

        Raises:
            IndexLost: The draft's announcement is not there: the store has gone back to an earlier time, and is not to
                look as if it had not.
        """

    def keep(self) -> None:
        """Show that the work goes on; to be called at least once a minute.

        Raises:
            BatchRefused: Somebody else has taken it over.
        """

    def complete(self, fingerprint: Fingerprint) -> None:
        """Make it the index.

        Args:
            fingerprint: What it was built with.

        Raises:
            BatchRefused: Somebody else has taken the work over.
        """

    def abandon(self) -> None:
        """Let somebody else begin again; never raises."""
