"""Errors of the Redis client, sorted by the reaction of the daemon: try again later, or ask an operator.

A new reply of a server is added to ``_TEMPORARY_REPLIES``, ``_refusal`` or ``_wrong_server``.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import repeat

from redis import exceptions

from streamdedup.errors import StoreMisconfigured, StoreUnavailable
from streamdedup.index.fingerprints import PROGRAMS_PREFIX

#: Errors after which the same request may succeed later.
_TEMPORARY = (
    exceptions.ConnectionError,
    exceptions.TimeoutError,
    exceptions.OutOfMemoryError,
    exceptions.ReadOnlyError,
    exceptions.ClusterError,
    exceptions.AskError,  # a hash slot of a cluster moves
    exceptions.TryAgainError,
    exceptions.RedisClusterException,  # no node of an outdated map of the hash slots answers
    exceptions.NoScriptError,  # a failover since the script was loaded
)
#: Beginnings of error replies, likewise.
_TEMPORARY_REPLIES = (
    "MISCONF",
    "NOREPLICAS",
    "LOADING",
    "BUSY",
    "OOM",
    "READONLY",
    "CLUSTERDOWN",
    "MASTERDOWN",
    "TRYAGAIN",
    "max number of clients",  # of a cluster node; that of a single server is a ``ConnectionError`` in redis-py 8.1
)
#: Texts of newer and older servers for a script that may not call a command or use a key.
_SCRIPT_REFUSALS = ("ACL failure in script", "The user executing the script can't")
#: Text for a user who may call the command, but not use the key.
_KEYS_REFUSED = re.compile(r"\baccess (a|the|one of the|at least one of the) (\S+ )?keys?\b")
#: Additions of a server to an error within a script.
_SCRIPT_NOISE = re.compile(r"ACL failure in script: |\.? script: .*?on @user_script:[0-9]+\.?$")
#: A client in redis-py's error about Sentinels of which none names the master; the groups are host and port.
_CLIENT = re.compile(r"<redis\.client\.Redis\(.*?\bhost=([^,]*),port=(\d+),.*?\)>\)>\)>")
#: Advice for a user without the rights that docs/redis.md lists.
GRANT = "grant what docs/redis.md lists under User and rights"
#: Texts, for a command and for a script, of a server that cannot write its append-only file; the group is the reason.
_NO_APPEND_ONLY_FILE = re.compile(
    r"MISCONF (?:Errors writing to the AOF file|.* persist data to AOF.* AOF error): (.*)"
)
#: Text of a server that cannot write its snapshots.
_NO_SNAPSHOTS = re.compile(r"MISCONF .* configured to save RDB snapshots")
#: Texts of servers for a client without a login; the client's first command is HELLO.
_NO_LOGIN = ("HELLO must be called with the client already authenticated", "Authentication required")


@contextmanager
def translated(
    address: Callable[[], str | None] = lambda: None, new_login_setting: Callable[[], str | None] = lambda: None
) -> Iterator[None]:
    """Raise ``StoreUnavailable`` or ``StoreMisconfigured`` in place of the errors of the client.

    ``address`` returns the address of the server, which time-outs lack; None for several servers.
    ``new_login_setting`` is that of ``servers.Connections``.
    """
    try:
        yield
    except (exceptions.RedisError, exceptions.RedisClusterException) as error:
        raise _translate(error, address=address(), new_login_setting=new_login_setting()) from error


def check_replies(replies: Sequence[object], keys: Sequence[bytes] = ()) -> None:
    """Raise for the first reply that is an error; ``keys`` has for each command the key that errors name."""
    for reply, key in zip(replies, keys or repeat(None), strict=False):
        if isinstance(reply, exceptions.RedisError | exceptions.RedisClusterException):
            raise _translate(reply, key) from reply


@contextmanager
def damage_translated() -> Iterator[None]:
    """Raise ``StoreMisconfigured`` in place of the codec's errors about stored data."""
    try:
        yield
    except ValueError as error:
        raise StoreMisconfigured(f"{error}; another program writes to the keys of this index") from error


def wrong_type(key: str) -> StoreMisconfigured:
    """Return the error for a key, or the beginning of a key, with a value of another type than the index writes."""
    prefix = key.removeprefix("{").partition(":")[0]
    setting, new_keys = f" (redis.key_prefix is {prefix})", "redis.key_prefix another value"
    new_index = "streamdedup index rebuild"
    if prefix == PROGRAMS_PREFIX:
        setting, new_keys, new_index = "", "the index another name=...", "Index.delete(url, name=...)"
    return StoreMisconfigured(
        f"the key {key} holds a value of another type than the index writes there, so something else writes to keys "
        f"that begin with {{{prefix}:{setting}. Give {new_keys}, or keep the other program from these keys; then "
        f"{new_index}"
    )


def beginning_of(key: bytes) -> bytes:
    """Return the hash tag of a key, which all keys of a script call share, and dots."""
    return key.partition(b"}")[0] + b"}..."


def shown_key(key: bytes) -> str:
    return "".join(chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in key)


def _translate(
    error: BaseException, key: bytes | None = None, address: str | None = None, new_login_setting: str | None = None
) -> Exception:
    # An error may name the address already.
    store = "the store" if address is None or address in str(error) else f"the store at {address}"
    if key is not None and str(error).startswith("WRONGTYPE"):
        return wrong_type(shown_key(key))
    # Before the temporary errors: ``AuthenticationError`` is also a ``ConnectionError``.
    for cause in _causes(error):
        if new_login_setting is not None and isinstance(cause, exceptions.AuthenticationError):
            return StoreUnavailable(f"{store} refuses the login; waiting for a new one in {new_login_setting}: {cause}")
        misconfigured = _refusal(cause) or _wrong_server(cause, store)
        if misconfigured is not None:
            return misconfigured
    if isinstance(error, _TEMPORARY) or str(error).startswith(_TEMPORARY_REPLIES):
        return StoreUnavailable(f"{store} does not serve us now: {_condition(error)}")
    return StoreMisconfigured(f"{store} answered with an error: {error}")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, and the errors behind one of the cluster client, which hides them."""
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        if not isinstance(cause, exceptions.RedisClusterException):
            return
        cause = cause.__cause__ or cause.__context__


def _refusal(error: BaseException) -> StoreMisconfigured | None:
    """Return the error for a refused login or a missing right, with the settings to check; else None."""
    text = str(error)
    if any(part in text for part in _NO_LOGIN):
        return StoreMisconfigured(
            "the store wants a login: set redis.password, and redis.username unless it is that of the default user"
        )
    if isinstance(error, exceptions.AuthenticationError):
        return StoreMisconfigured(
            "the store refuses the login: check redis.username and redis.password, or user and password in redis.url "
            f"(redis.url_file), or redis.credential_provider: {text}"
        )
    if isinstance(error, exceptions.NoPermissionError) or any(part in text for part in _SCRIPT_REFUSALS):
        is_of_keys = _KEYS_REFUSED.search(text) is not None
        lacking = "rights on the keys of the index, which begin with redis.key_prefix" if is_of_keys else "rights"
        return StoreMisconfigured(
            f"the store refuses us: the user (redis.username) lacks {lacking}: {_text_without_script(error)}; {GRANT}"
        )
    return None


def _wrong_server(error: BaseException, store: str) -> StoreMisconfigured | None:
    """Return the error for a server of another kind than the settings say, or an untrusted one; else None."""
    if isinstance(error, exceptions.InvalidResponse):
        return StoreMisconfigured(f"{store} does not answer as Redis does; check redis.url or redis.nodes: {error}")
    if is_untrusted(error):
        return StoreMisconfigured(
            "the store's certificate is not trusted; check redis.ssl_ca_file, and whether the servers are named as in "
            f"their certificates: {error}"
        )
    if "cluster support disabled" in str(error):
        return StoreMisconfigured('redis.mode is "cluster", but the server runs by itself; set it to "single"')
    return None


def is_untrusted(error: BaseException) -> bool:
    return "CERTIFICATE_VERIFY_FAILED" in str(error)


def _condition(error: BaseException) -> str:
    """Return why a server refuses requests for a while, with the cure if there is any."""
    text = _text_without_script(error)
    if isinstance(error, exceptions.OutOfMemoryError) or text.startswith("OOM"):
        return "its memory is full; raise its limit (maxmemory), or drop unused indexes"
    if append_only := _NO_APPEND_ONLY_FILE.fullmatch(text):
        reason = append_only[1]
        return f"its append-only file cannot be written (MISCONF: {reason}); make room on the disk that holds the file"
    if _NO_SNAPSHOTS.match(text):
        return "its snapshots cannot be written (MISCONF); its log names the reason, often a full disk"
    return _CLIENT.sub(r"\1:\2", text) or type(error).__name__


def _text_without_script(error: BaseException) -> str:
    return _SCRIPT_NOISE.sub("", str(error))
