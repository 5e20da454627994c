"""The staging index: an index during a rebuild, which becomes the index only when complete.

Called by ``daemon.rebuild`` and ``daemon.rebuild_run``, and by `index drop` and ``library.Index.delete`` for the
deletion alone.
"""

from collections.abc import Callable
from typing import Protocol

from streamdedup.index.contract import Index
from streamdedup.index.values import Fingerprint


class StagingIndex(Protocol):
    """A profile's index in a rebuild, written by the process that has the lease: the right to rebuild, for a minute.

    A lost index is cleared first. Until the staging index is complete there is no index: ``Index.open`` says that the
    index is being rebuilt, and ``Index.fence`` refuses. An index that has gone back to an earlier time is not cleared:
    its gap makes ``Index.fence`` refuse until the rebuild announces an attempt. Methods raise ``BatchRefused`` when
    another process has the lease.
    """

    @property
    def store(self) -> Index:
        """The index that is built; only for the process that has the lease, and never opened."""

    def take_lease(self, *, only_to_delete: bool = False) -> None:
        """Take or extend the lease; raise ``IndexBusy`` if another process had it during the last minute.

        With ``only_to_delete`` also while the memory is full; a rebuild, which needs memory, gets ``StoreUnavailable``.
        """

    def clear(self, tick: Callable[[], None] = lambda: None) -> int:
        """Delete the index, fences first; ``tick`` is called at every step. Return the number of deleted keys.

        ``store`` may then be written from the beginning.
        """

    def extend_lease(self) -> None:
        """To be called at least once a minute."""

    def complete(self, fingerprint: Fingerprint) -> None:
        """Turn the staging index into the index, and give up the lease; with ``fingerprints.REBUILT_S``."""

    def abandon(self) -> None:
        """Give up the lease; never raises."""


def delete_index(staging: StagingIndex) -> int:
    """Delete an index under the lease, so that its writers wait; return the number of deleted keys."""
    staging.take_lease(only_to_delete=True)
    try:
        return staging.clear()
    finally:
        staging.abandon()
