"""The Lua scripts of an index: one file for each operation in ``lua/``. ``Scripts`` calls many at a time.

To add a script, write ``lua/NAME.lua``. A line ``-- include: _fence _pages`` in it names the files to put in front of
the script. A script that writes for a partition includes ``_fence``: ``RedisPart._fenced_call`` makes its calls, and
its own arguments follow those of the fence, from ``ARGV[used+1]`` on. Other scripts, as those of ``redis.staging``, are
called by a plain ``Call``. A command that no script has called so far is added to ``checks.PROBES`` and docs/redis.md,
a new error to ``_REFUSALS``.
"""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha1
from importlib import resources
from typing import Any, Final, NamedTuple

from redis.exceptions import NoScriptError, ResponseError

from streamdedup.errors import BatchRefused, IndexLost, StoreUnavailable, StreamdedupError
from streamdedup.index.redis.errors import beginning_of, check_replies, shown_key, wrong_type
from streamdedup.index.redis.servers import Command, Servers

#: A round trip is sent once its calls have so many arguments: 20 bands of 1,000 documents, some tens of ms of a server.
_ROUND_TRIP_ARGUMENTS = 20_000

_FOLDER = resources.files("streamdedup.index.redis").joinpath("lua")
_INCLUDE = re.compile(rb"^-- include: (.*)$", re.MULTILINE)

#: Error of ``lua/_key_in_error.lua``, with the key that has a value of another type.
_NAMED_KEY = re.compile(r'WRONGTYPE key "(.*)"')
#: Errors of scripts by their first words; ``Scripts._raise_for_error`` words FENCED, UNFENCED and WRONGTYPE.
_REFUSALS: Final[Mapping[str, tuple[type[StreamdedupError], str]]] = {
    "RECREATED": (BatchRefused, "a partition of the batch was polled before its topic was deleted and created again"),
    "LATE": (BatchRefused, "a later call of this daemon has overtaken one of the batch's"),
    "SURPASSED": (BatchRefused, "a later attempt at a batch of the same partition is announced"),
    "FORGOTTEN": (
        StoreUnavailable,
        "the store has forgotten a write that it had acknowledged; the batch is done again",
    ),
    "BACK": (IndexLost, "the index has gone back to an earlier time while the daemon was at work"),
}


class Script(NamedTuple):
    """Script text with the included files, and its SHA-1, by which the server knows it."""

    source: bytes
    sha: str


def read_scripts() -> dict[str, Script]:
    scripts = {}
    for path in _FOLDER.iterdir():
        name = path.name.removesuffix(".lua")
        if name.startswith("_"):  # included in scripts
            continue
        source = _read(name)
        included = _INCLUDE.search(source)
        names = included[1].decode().split() if included else []
        scripts[name] = _script(b"".join([*map(_read, names), source]))
    return scripts


def _read(name: str) -> bytes:
    return _FOLDER.joinpath(f"{name}.lua").read_bytes()


def _script(source: bytes) -> Script:
    return Script(source, sha1(source, usedforsecurity=False).hexdigest())


class Call(NamedTuple):
    """A script call, whose first key decides on the server.

    ``documents_count``, which only limits the size of a round trip: the documents that are joined in few arguments.
    """

    name: str
    keys: list[bytes]
    arguments: list[Any]
    documents_count: int = 0

    def command(self, verb: str, script: bytes | str) -> Command:
        """Return the command that calls a script, with ``EVALSHA`` by its digest, with ``EVAL`` by its text."""
        return Command(self.keys[0], (verb, script, len(self.keys), *self.keys, *self.arguments))


class Scripts:
    """Calls scripts; ``existence_key`` exists as long as the index, and tells a missing fence from a lost index."""

    def __init__(self, servers: Servers, existence_key: bytes) -> None:
        self._servers = servers
        self._existence_key = existence_key
        self._scripts = read_scripts()

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Call scripts and return their replies, in few round trips, none of which keeps a server busy for long.

        Calls in one slot are executed in order.
        """
        replies: list[Any] = []
        round_trip: list[Call] = []
        size = 0
        for call in calls:
            round_trip.append(call)
            size += len(call.arguments) + call.documents_count
            if size >= _ROUND_TRIP_ARGUMENTS:
                replies += self._send(round_trip)
                round_trip, size = [], 0
        return replies + self._send(round_trip)

    def _send(self, calls: Sequence[Call]) -> list[Any]:
        """Call scripts in one round trip; if a server lacks a script, load all scripts and send all calls again.

        Every script is repeatable under the same run number.
        """
        commands = [call.command("EVALSHA", self._scripts[call.name].sha) for call in calls]
        replies = self._servers.send_raw(commands)
        if NoScriptError in map(type, replies):
            self._load()
            replies = self._servers.send_raw(commands)
        for call, reply in zip(calls, replies, strict=True):
            if isinstance(reply, ResponseError):
                self._raise_for_error(call, reply)
                # Only the first error counts: further calls of the run find no number of the run (``lua/_fence.lua``),
                # and reply FORGOTTEN. A lost fence of another slot shows at the next try.
                break
        check_replies(replies, [command.key for command in commands])
        return replies

    def _load(self) -> None:
        for script in self._scripts.values():
            self._servers.ask_masters("SCRIPT LOAD", script.source)

    def _raise_for_error(self, call: Call, reply: ResponseError) -> None:
        """Raise for an error that a script words, and for a key of another type; other errors pass."""
        refusal, _, details = str(reply).partition(" ")
        if refusal in _REFUSALS:
            error_class, text = _REFUSALS[refusal]
            raise error_class(text)
        if refusal == "FENCED":
            # The error has the stored and the expected fence, each "<generation>:<writer>".
            stored, expected = (fence.partition(":")[0] for fence in details.split()[:2])
            if stored == expected:
                raise BatchRefused("a partition of the batch is fenced by another process with our place in the group")
            raise BatchRefused(f"a partition of the batch is fenced by generation {stored}, the batch has {expected}")
        if refusal == "UNFENCED":
            if self._servers.ask(self._existence_key, "EXISTS", self._existence_key):
                raise BatchRefused("a partition of the batch is not fenced")
            raise IndexLost("the index is gone from the server")
        if refusal == "WRONGTYPE":
            raise wrong_type(self._mistyped_key(call)) from reply

    def _mistyped_key(self, call: Call) -> str:
        """Return the key with a value of another type than a script expects; its hash tag where the key is not found.

        The server does not name the key, so the script is called again behind ``_key_in_error.lua``.
        """
        source = self._scripts[call.name].source.replace(b"#!", b"--", 1)  # flags are allowed in the first line only
        script = _script(_read("_key_in_error") + source)
        self._servers.ask_masters("SCRIPT LOAD", script.source)
        (reply,) = self._servers.send_raw([call.command("EVALSHA", script.sha)])
        named_key = _NAMED_KEY.match(str(reply))
        return named_key[1] if named_key else shown_key(beginning_of(call.keys[0]))
