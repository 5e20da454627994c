"""The staging index: an index during a rebuild (``daemon.rebuild``), which becomes the index only when complete."""

from collections.abc import Callable
from typing import Protocol

from streamdedup.index.contract import Index
from streamdedup.index.values import Fingerprint


class StagingIndex(Protocol):
    """A profile's index in a rebuild, written by the process that has the lease on it.

    A lost index is cleared first. Until the staging index is complete there is no index: ``Index.open`` says that the
    index is being rebuilt, and ``Index.fence`` refuses. An index that has gone back to an earlier time is not cleared.
    Its announced attempts show the gap to other processes: ``Index.fence`` refuses until the rebuild announces again.
    """

    @property
    def store(self) -> Index:
        """The index that is built; only for the process that has the lease, and never opened."""

    def hold(self) -> None:
        """Take the lease, or extend it.

        Raises:
            StoreUnavailable: Another process has the lease, or was interrupted with the lease at most a minute ago.
        """

    def clear(self, tick: Callable[[], None] = lambda: None) -> None:
        """Delete the index and begin a new one; ``tick`` is called at every step.

        Raises:
            BatchRefused: Another process has the lease.
        """

    def extend_lease(self) -> None:
        """Extend the lease; to be called at least once a minute.

        Raises:
            BatchRefused: Another process has the lease.
        """

    def complete(self, fingerprint: Fingerprint) -> None:
        """Make the staging index the index, and give up the lease.

        ``fingerprint`` has the index parameters and the duration of the rebuild (``fingerprints.REBUILT_S``).

        Raises:
            BatchRefused: Another process has the lease.
        """

    def abandon(self) -> None:
        """Give up the lease; never raises."""
