"""What an error of the Redis client means for the service: come back later, or ask an operator."""

from collections.abc import Iterator
from contextlib import contextmanager

from redis import exceptions

from streamdedup.errors import StoreMisconfigured, StoreUnavailable

#: Errors after which the same request may succeed later.
_PASSING = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
    exceptions.MasterDownError,
    # Loaded a moment ago and gone again: a failover in between.
    exceptions.NoScriptError,
)
#: Beginnings of error replies after which the same request may succeed later.
_PASSING_REPLIES = (
    "MISCONF",
    "NOREPLICAS",
    "LOADING",
    "BUSY",
    "OOM",
    "READONLY",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "TRYAGAIN",
)
#: Errors that no waiting cures.
_REFUSALS = (exceptions.AuthenticationError, exceptions.NoPermissionError)


def _translate(error: Exception) -> Exception:
    if isinstance(error, _REFUSALS):
        return StoreMisconfigured(f"the store refuses us; check redis.username, password and rights: {error}")
    if isinstance(error, _PASSING) or str(error).startswith(_PASSING_REPLIES):
        return StoreUnavailable(f"the store does not serve us now: {error}")
    return StoreMisconfigured(f"the store answered with an error: {error}")


@contextmanager
def translated() -> Iterator[None]:
    """Turn errors of the client into errors of ours.

    Raises:
        StoreUnavailable: The server is away, full, loading or failing over.
        StoreMisconfigured: It refuses us, or its answer makes no sense for this store.
    """
    try:
        yield
    except exceptions.RedisError as error:
        raise _translate(error) from error


def check_reply(reply: object) -> None:
    """Raise for a reply of a pipeline that is an error; see ``translated``."""
    if isinstance(reply, exceptions.RedisError):
        raise _translate(reply) from reply
