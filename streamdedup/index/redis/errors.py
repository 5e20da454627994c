"""What an error of the Redis client means for the service: come back later, or ask an operator."""

import re
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
    exceptions.ClusterError,
    # Of a cluster: a slot on the move or a map of the slots that is out of date, none of whose nodes may answer.
    exceptions.AskError,
    exceptions.TryAgainError,
    exceptions.RedisClusterException,
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
#: How newer and older servers say that a script may not call a command, or touch a key.
_SCRIPT_REFUSALS = ("ACL failure in script", "The user executing the script can't")
#: How servers say that it is the key, not the command, that is not allowed.
_KEYS_REFUSED = re.compile(r"\baccess (a|the|one of the|at least one of the) (\S+ )?keys?\b")

#: How a server answers somebody who has not logged in; the client's first command is HELLO.
_NO_LOGIN = ("HELLO must be called with the client already authenticated", "Authentication required")


def _refusal(error: BaseException) -> StoreMisconfigured | None:
    """Return the error of ours for a refused login or a missing right, with the settings that decide on it."""
    text = str(error)
    if any(said in text for said in _NO_LOGIN):
        return StoreMisconfigured(
            "the store wants a login: set redis.password, and redis.username unless it is that of the default user"
        )
    if isinstance(error, exceptions.AuthenticationError):
        return StoreMisconfigured(
            "the store refuses the login: check redis.username and redis.password, or user and password in redis.url "
            f"(redis.url_file): {text}"
        )
    if isinstance(error, _REFUSALS) or any(said in text for said in _SCRIPT_REFUSALS):
        if _KEYS_REFUSED.search(text):
            return StoreMisconfigured(
                "the store refuses us: the user (redis.username) lacks rights on the keys of the index; grant "
                f"~{{PREFIX:* with redis.key_prefix as PREFIX: {text}"
            )
        return StoreMisconfigured(f"the store refuses us: the user (redis.username) lacks rights: {text}")
    return None


def wrong_type(key: str) -> StoreMisconfigured:
    """Return the error for a key that holds a value of another type than the index writes there.

    Args:
        key: The key, or as much of its beginning as is known.
    """
    # Neither a profile's name nor a slot has a colon.
    prefix = key.removeprefix("{").partition("}")[0].rsplit(":", 2)[0]
    return StoreMisconfigured(
        f"the key {key} holds a value of another type than the index writes there, so something else writes to keys "
        f"that begin with {{{prefix}: (redis.key_prefix is {prefix}). Give redis.key_prefix another value, or keep the "
        "other program from these keys; then streamdedup index rebuild"
    )


@contextmanager
def damage_translated() -> Iterator[None]:
    """Turn the errors of the codec into errors for the operator.

    Raises:
        StoreMisconfigured: Stored bytes are damaged.
    """
    try:
        yield
    except ValueError as error:
        raise StoreMisconfigured(f"{error}; another program writes to the keys of this index") from error


def _translate(error: BaseException, key: bytes | None = None) -> Exception:
    if key is not None and str(error).startswith("WRONGTYPE"):
        return wrong_type(shown_key(key))
    for cause in _causes(error):
        refusal = _refusal(cause)
        if refusal is not None:
            return refusal
        if "CERTIFICATE_VERIFY_FAILED" in str(cause):
            return StoreMisconfigured(
                "the store's certificate is not trusted; check redis.ssl_ca_file, and whether the servers are named as "
                f"in their certificates: {cause}"
            )
        if "cluster support disabled" in str(cause):
            return StoreMisconfigured('redis.mode is "cluster", but the server runs by itself; set it to "single"')
    if isinstance(error, _PASSING) or str(error).startswith(_PASSING_REPLIES):
        return StoreUnavailable(f"the store does not serve us now: {str(error) or type(error).__name__}")
    return StoreMisconfigured(f"the store answered with an error: {error}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and, where the client of a cluster could not read the map of the slots, what kept it from it."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        inner = cause.__cause__ or cause.__context__
        cause = inner if isinstance(cause, exceptions.RedisClusterException) else None


@contextmanager
def translated() -> Iterator[None]:
    """Turn errors of the client into errors of ours.

    Raises:
        StoreUnavailable: The server is away, full, loading or failing over.
        StoreMisconfigured: It refuses us, or its answer makes no sense for this store.
    """
    try:
        yield
    except (exceptions.RedisError, exceptions.RedisClusterException) as error:
        raise _translate(error) from error


def shown_key(key: bytes) -> str:
    """Return a key for people, what is no printable ASCII as escapes."""
    return "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in key)


def check_reply(reply: object, key: bytes | None = None) -> None:
    """Raise for a reply of a pipeline that is an error; see ``translated``.

    Args:
        reply: The reply.
        key: The only key of the command; None when it has several, or none.
    """
    if isinstance(reply, exceptions.RedisError | exceptions.RedisClusterException):
        raise _translate(reply, key) from reply
