"""What stops a batch; named as in ``streamdedup.errors``."""


class StoreUnavailable(Exception):
    """The outcome of a call is unknown: undo the batch and do it again."""


class Reconnected(StoreUnavailable):
    """The connection had to be opened anew: the server may have gone back in time."""


class BatchRefused(Exception):
    """The partition belongs to somebody else by now."""


class IndexLost(Exception):
    """The index is gone, or has gone back in time."""
