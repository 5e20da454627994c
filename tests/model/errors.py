"""Errors that end a batch, with the names of ``streamdedup.errors``."""


class StoreUnavailable(Exception):
    """The outcome of a call is unknown: undo the batch and repeat it."""


class Reconnected(StoreUnavailable):
    """The connection was opened again: the server may have gone back to an earlier time."""


class BatchRefused(Exception):
    """Another process owns the partition."""


class IndexLost(Exception):
    """The index is gone, or has gone back to an earlier time."""
