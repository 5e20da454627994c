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
    Methods raise ``BatchRefused`` when another process has the lease.
    """

    @property
    def store(self) -> Index:
        """The index that is built; only for the process that has the lease, and never opened."""

    def take_lease(self) -> None:
        """Take or extend the lease; raise ``StoreUnavailable`` if another process had it during the last minute."""

    def clear(self, tick: Callable[[], None] = lambda: None) -> None:
        """Delete the index and begin a new one; ``tick`` is called at every step."""

    def extend_lease(self) -> None:
        """Extend the lease; to be called at least once a minute."""

    def complete(self, fingerprint: Fingerprint) -> None:
        """Make the staging index the index, and give up the lease.

        ``fingerprint`` has the index parameters and the duration of the rebuild (``fingerprints.REBUILT_S``).
        """

    def abandon(self) -> None:
        """Give up the lease; never raises."""
