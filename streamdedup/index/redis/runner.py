"""Calls scripts on the server: many in one round trip, loaded anew when they are gone, refusals told apart."""

import re
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from redis.exceptions import NoScriptError, ResponseError

from streamdedup.errors import BatchRefused, IndexLost, StoreUnavailable
from streamdedup.index.redis.errors import check_reply, shown_key, wrong_type
from streamdedup.index.redis.scripts import load_naming, load_scripts
from streamdedup.index.redis.servers import Command, Servers

#: Arguments of one round trip: 20 bands of 1,000 documents, some tens of milliseconds of the server's time.
_ROUND_TRIP_ARGUMENTS = 20_000
#: Pairs of one call that saves or claims them; a storm of copies may find hundreds of thousands in a batch.
_CALL_PAIRS = 2_000

#: Beginning of the server's reply to a command for a key that holds another type of value.
_WRONG_TYPE = "WRONGTYPE"
#: The same, as a script says it that names the key.
_NAMED_KEY = re.compile(r'WRONGTYPE key "(.*)"')


class Call(NamedTuple):
    """A call of a script.

    Attributes:
        name: Name of the script.
        keys: Its keys; the first one decides on the server.
        arguments: Its arguments.
        documents_count: Documents of the call, where one argument holds several.
    """

    name: str
    keys: list[bytes]
    arguments: list[Any]
    documents_count: int = 0


class ScriptRunner:
    """Runs the scripts of one index.

    Args:
        servers: Where the index is.
        fingerprint_key: The key that tells whether the index is there.
    """

    def __init__(self, servers: Servers, fingerprint_key: bytes) -> None:
        self._servers = servers
        self._fingerprint_key = fingerprint_key
        self._scripts = load_scripts()
        self._number = 1
        #: How many runs have failed, in whole or in part.
        self.failures_count = 0

    @property
    def number(self) -> int:
        """Number of the next run, which all of its calls carry."""
        return self._number

    def run(self, calls: Sequence[Call]) -> list[Any]:
        """Call scripts, many of them in one round trip, but never so many that the server is long in answering.

        Args:
            calls: Name, keys and arguments of each; those of one slot run in this order.

        Returns:
            The reply to each.

        Raises:
            StoreUnavailable: The server did not serve us; some of the calls may have taken effect.
            StoreMisconfigured: It refuses us for good.
            BatchRefused: A later generation owns a partition, or one is not fenced.
            IndexLost: The index is gone.
        """
        self._number += 1
        try:
            return self._run(calls)
        except BaseException:
            self.failures_count += 1
            raise

    def _run(self, calls: Sequence[Call]) -> list[Any]:
        replies: list[Any] = []
        round_trip: list[Call] = []
        size = 0
        for call in calls:
            round_trip.append(call)
            size += len(call.arguments) + call.documents_count
            if size >= _ROUND_TRIP_ARGUMENTS:
                replies += self._at_once(round_trip)
                round_trip, size = [], 0
        return replies + self._at_once(round_trip)

    def _at_once(self, calls: Sequence[Call]) -> list[Any]:
        """Call scripts in one round trip; load them first when a server has forgotten them, or never knew them."""
        commands = [
            Command(keys[0], ("EVALSHA", self._scripts[name].sha, len(keys), *keys, *arguments))
            for name, keys, arguments, _ in calls
        ]
        replies = self._servers.send(commands)
        if any(isinstance(reply, NoScriptError) for reply in replies):
            self.load()
            replies = self._servers.send(commands)
        for call, reply in zip(calls, replies, strict=True):
            self._check_fences(reply)
            self._check_types(call, reply)
        for command, reply in zip(commands, replies, strict=True):
            check_reply(reply, command.key)
        return replies

    def load(self) -> None:
        """Load all scripts into every server."""
        for script in self._scripts.values():
            self._servers.on_masters("SCRIPT LOAD", script.source)

    def _check_types(self, call: Call, reply: object) -> None:
        """Raise with the name of the key when a script met a value of another type; the server does not name it."""
        if not (isinstance(reply, ResponseError) and str(reply).startswith(_WRONG_TYPE)):
            return
        name, keys, arguments, _ = call
        script = load_naming(self._scripts[name])
        self._servers.on_masters("SCRIPT LOAD", script.source)
        again = self._servers.send([Command(keys[0], ("EVALSHA", script.sha, len(keys), *keys, *arguments))])
        named = _NAMED_KEY.match(str(again[0]))
        raise wrong_type(named[1] if named else shown_key(keys[0].partition(b"}")[0]) + "}...") from reply

    def _check_fences(self, reply: object) -> None:
        if not isinstance(reply, ResponseError):
            return
        text = str(reply)
        if text.startswith("FENCED"):
            stored, ours = (fence.partition(":")[0] for fence in text.split()[1:3])
            if stored == ours:
                raise BatchRefused("a partition of the batch is fenced by another process with our place in the group")
            raise BatchRefused(f"a partition of the batch is fenced by generation {stored}, ours is {ours}")
        if text.startswith("RECREATED"):
            raise BatchRefused("a partition of the batch was polled before its topic was deleted and created again")
        if text.startswith("LATE"):
            raise BatchRefused("a later call of this daemon has overtaken one of the batch's")
        if text.startswith("FORGOTTEN"):
            raise StoreUnavailable("the store has forgotten a write that it had acknowledged; the batch is done again")
        if text.startswith("BACK"):
            raise IndexLost("the index has gone back to an earlier time while the daemon was at work")
        if text.startswith("UNFENCED"):
            if self._servers.ask(self._fingerprint_key, "EXISTS", self._fingerprint_key):
                raise BatchRefused("a partition of the batch is not fenced")
            raise IndexLost("the index is gone from the server")


def portions(members: Sequence[int], pairs_counts: Sequence[int]) -> Iterable[list[int]]:
    """Cut a list where the pairs of its members add up to those of one call.

    Args:
        members: What to cut.
        pairs_counts: How many pairs each member stands for.
    """
    portion: list[int] = []
    total = 0
    for member, count in zip(members, pairs_counts, strict=True):
        portion.append(member)
        total += count
        if total >= _CALL_PAIRS:
            yield portion
            portion, total = [], 0
    if portion:
        yield portion


def pairs_of(entries: Any) -> dict[bytes, bytes]:
    """Read a reply for a hash: a flat list under one version of the protocol, a mapping under the next."""
    if isinstance(entries, dict):
        return entries
    return dict(zip(entries[::2], entries[1::2], strict=True))
