"""The server of the indexes: one copy of the data for several processes, each with a connection of its own.

``ServedIndex`` adds to the index in memory what a server knows and one process alone does not need: the writer of each
fence (rule 7) and the last call of each writer (rule 10), as ``redis/lua/_fence.lua`` has them. A ``Connection`` is the
index of one process; the world decides the fate of each of its calls.
"""

import copy
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from streamdedup.errors import BatchRefused, IndexBusy, IndexLost, StoreUnavailable, StreamdedupError
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.values import UNKNOWN_BROKER_STATE, BrokerState, Fence, Fingerprint

#: Length of the lease on a rebuild, in milliseconds, as in Redis.
LEASE_MS = 60_000
#: How long the server knows the last call of a writer, and for how long a writer relies on that, in milliseconds.
CALL_MS, REMEMBERED_MS = 3_600_000, 3_000_000
#: Parts of the data that a deletion removes in one step; in the first, the fingerprint and the fences.
PARTS = (
    ("_fences", "writers"),
    ("_entries", "_pending_matches"),
    ("_buckets", "_copies", "_cluster_sets", "_last_removals"),
    ("_claims", "_high_water_marks", "_incarnations", "_earlier_topic_ids", "_announced", "calls"),
)
#: Methods of an index that are calls of the server, and those of them that carry a number.
CALLS = (
    "open", "partition_states", "fence", "insert_entries", "remove_from_buckets", "remove_copies", "leave_clusters",
    "replace_entries", "insert_and_look_up", "copy_removals", "insert_copies", "get_entries", "read_entries",
    "save_pending_matches", "claim_pairs", "set_clusters", "announce", "finish", "unfence", "ping",
)  # fmt: skip
_UNNUMBERED = {"open", "partition_states", "copy_removals", "get_entries", "read_entries", "unfence", "ping"}
NUMBERED = frozenset(CALLS) - _UNNUMBERED
#: Methods that call scripts: after a failure of such a call the client expects no number of the server.
SCRIPTS = NUMBERED | {"read_entries"}


class Caller(NamedTuple):
    """Who calls: the writer, the number of the call, and the number of the last acknowledged call (0: unknown)."""

    writer: str
    number: int
    acknowledged: int


class ServedIndex(MemoryIndex):
    """The data of one index.

    Attributes:
        writers: Writer of each fence.
        calls: Number and time of the last call, by writer.
        caller: Caller of the present call.
        lease: Name of the process that rebuilds the index, and the end of its lease.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.writers: dict[Any, str] = {}
        self.calls: dict[str, tuple[int, float]] = {}
        self.caller = Caller("", 0, 0)
        self.lease: tuple[str, float] = "", 0

    def open(self, fingerprint: Fingerprint, *, create: bool = True) -> Any:
        if self.held_by() is not None:
            raise IndexBusy("the index is being rebuilt")
        return super().open(fingerprint, create=create)

    def held_by(self) -> str | None:
        name, end_ms = self.lease
        return name if end_ms > self._now_ms() else None

    def fence(
        self,
        partition: Any,
        generation: int,
        start: int,
        committed_id: str = "",
        state: BrokerState = UNKNOWN_BROKER_STATE,
        confirm: Callable[[], None] = lambda: None,
    ) -> Fence:
        caller = self.caller
        if self._fingerprint is not None and self._fences.get(partition, generation) <= generation:
            self.writers[partition] = caller.writer

        def confirmed() -> None:
            confirm()
            self.caller = caller  # meanwhile other processes have called

        fence = super().fence(partition, generation, start, committed_id, state, confirmed)
        self._count_call()
        return fence

    def _check_fences(self, fences: Sequence[Fence]) -> None:
        for fence in fences:
            stored = self._fences.get(fence.partition), self.writers.get(fence.partition)
            if stored[0] is None and self._fingerprint is None:
                raise IndexLost("the index is gone")
            if stored != (fence.generation, self.caller.writer):
                raise BatchRefused(
                    f"{fence.partition} is fenced by {stored}, not {fence.generation, self.caller.writer}"
                )
        self._count_call()

    def _count_call(self) -> None:
        now_ms = self._now_ms()
        last, called_ms = self.calls.get(self.caller.writer, (0, 0))
        if now_ms - called_ms > CALL_MS:
            last = 0
        if last > self.caller.number:
            raise BatchRefused("a later call has overtaken this one")
        if last < self.caller.acknowledged:
            raise StoreUnavailable("the store has forgotten a write that it had acknowledged")
        self.calls[self.caller.writer] = self.caller.number, now_ms

    def snapshot(self) -> dict[str, Any]:
        kept = {name: value for name, value in self.__dict__.items() if name not in {"_now_ms", "caller"}}
        return copy.deepcopy(kept, {id(self._now_ms): self._now_ms})


class Server:
    """The server: an index for each key prefix.

    Attributes:
        epoch: Number of restarts; a client opens a new connection after each.
        late: Calls that are still on their way although their callers have given up.
    """

    def __init__(self, make_index: Callable[[], ServedIndex]) -> None:
        self._make_index = make_index
        self.indexes: dict[str, ServedIndex] = {}
        self.copies: dict[str, dict[str, dict[str, Any]]] = {}
        self.epoch = 0
        self.late: list[Callable[[], Any]] = []
        self.away = False

    def index(self, prefix: str) -> ServedIndex:
        return self.indexes.setdefault(prefix, self._make_index())

    def save(self, name: str) -> None:
        self.copies[name] = {prefix: index.snapshot() for prefix, index in self.indexes.items()}

    def go_back(self, name: str | None, *, restarts: bool = True) -> None:
        """Replace all data by an earlier copy, or by nothing; unless it restarts, the connections stay."""
        copied = {} if name is None else self.copies[name]
        for prefix, index in self.indexes.items():
            index.__dict__.update(self._make_index().__dict__ | copy.deepcopy(copied.get(prefix, {})))
        self.epoch += restarts

    def arrive(self, number: int) -> None:
        with suppress(StreamdedupError):  # the answer reaches nobody
            self.late.pop(number % len(self.late))()


@dataclass
class Link:
    """The network connection of a process, which its indexes share."""

    epoch: int = -1  # the restart of the server since which it is open; -1 while it is closed
    count: int = 0  # of connections that were opened


class Connection:
    """The index of one process.

    Args:
        moment: Called before each call with its name; returns the fate of the call: nothing, ``request lost``,
            ``reply lost``, ``late`` (the call takes effect long after the client gave up) or ``twice`` (it takes effect
            again, long after).
        in_staging: Whether a rebuild writes over this connection.
    """

    def __init__(
        self,
        server: Server,
        prefix: str,
        writer: str,
        moment: Callable[[str], str],
        link: Link,
        *,
        in_staging: bool = False,
    ) -> None:
        self._server = server
        self._link = link
        self._data: Any = server.index(prefix)
        self._writer = writer
        self._moment = moment
        self._in_staging = in_staging
        self._number = 0
        self._acknowledged = 0
        self._called_ms = 0.0

    def __getattr__(self, name: str) -> Any:
        if name not in CALLS:
            return getattr(self._data, name)
        call = partial(self._call, name)
        setattr(self, name, call)
        return call

    def count_connections(self) -> int:
        return self._link.count

    def staging(self) -> Any:
        return Staging(self)

    def inspector(self) -> Any:
        """Return the part of an ``IndexInspector`` that ``streamdedup index`` asks."""
        return self

    def fingerprint(self) -> Fingerprint | None:
        return self._data._fingerprint  # type: ignore[no-any-return]

    def configured(self, fingerprint: Fingerprint) -> Fingerprint:
        return fingerprint

    def _call(self, name: str, *arguments: Any, **named: Any) -> Any:
        self._number += 1
        now_ms = self._data._now_ms()
        is_certain = now_ms - self._called_ms < REMEMBERED_MS
        caller = Caller(self._writer, self._number, self._acknowledged if is_certain else 0)
        result = self.ask(name, partial(self._execute, caller, name, arguments, named))
        if name in NUMBERED:
            self._acknowledged, self._called_ms = caller.number, now_ms
        if name == "partition_states" and result and not self._has_index():
            self._acknowledged = 0  # no index, so the numbers of the calls are gone too
        return result

    def ask(self, name: str, request: Callable[[], Any], late: Callable[[], Any] | None = None) -> Any:
        """Let the server answer a request, unless its fate is another one; ``late`` is the request that comes late."""
        fate = self._moment(name)
        if fate in {"late", "twice"} and name in NUMBERED:
            self._server.late.append(late or request)
        if self._server.away or fate in {"request lost", "late"}:
            self._fail(name)
        if self._link.epoch != self._server.epoch:
            self._link.epoch = self._server.epoch
            self._link.count += 1
        try:
            result = request()
        except (BatchRefused, StoreUnavailable):
            self._failed(name)
            raise
        except IndexLost:
            if name != "fence":  # a fence finds the loss between its calls of scripts
                self._failed(name)
            raise
        if fate == "reply lost":
            self._fail(name)
        return result

    def _failed(self, name: str) -> None:
        if name in SCRIPTS:
            self._acknowledged = 0

    def _fail(self, name: str) -> None:
        self._failed(name)
        self._link.epoch = -1  # the client closes a connection without an answer
        raise StoreUnavailable("made to fail")

    def _execute(self, caller: Caller, name: str, arguments: Sequence[Any], named: Mapping[str, Any]) -> Any:
        data = self._data
        data.caller = caller
        call = partial(getattr(data, name), *arguments, **named)
        if not self._in_staging:
            return call()
        fingerprint, data._fingerprint = data._fingerprint, {} if self._has_index() else None
        try:
            return call()
        finally:
            data._fingerprint = fingerprint

    def _has_index(self) -> bool:
        """Tell whether there is an index; in a rebuild the lease is in the place of the fingerprint."""
        present = self._data.held_by() if self._in_staging else self._data._fingerprint
        return present is not None


class Staging:
    """A ``StagingIndex`` at the place of the index, over the connection of the process that rebuilds."""

    def __init__(self, connection: Connection) -> None:
        self.store = connection
        self._data = connection._data
        self._name = connection._writer

    def take_lease(self, *, only_to_delete: bool = False) -> None:
        self.store.ask("take_lease", self._take_lease)

    def _take_lease(self) -> None:
        if self._data.held_by() not in {None, self._name}:
            raise IndexBusy("the index is being rebuilt by another process")
        self._data.lease = self._name, self._data._now_ms() + LEASE_MS

    def clear(self, tick: Callable[[], None] = lambda: None) -> int:
        for number, parts in enumerate(PARTS):
            self.store.ask("clear", partial(self._clear, number, parts))
            tick()
        self.store._acknowledged = 0  # the numbers of the calls are deleted
        return 0

    def _clear(self, number: int, parts: Sequence[str]) -> None:
        self.extend_lease()
        if number == 0:
            self._data._fingerprint = None
        empty = ServedIndex(lifetime_ms=self._data._lifetime_ms, now_ms=self._data._now_ms)
        self._data.__dict__.update({part: empty.__dict__[part] for part in parts})

    def extend_lease(self) -> None:
        if self._data.held_by() != self._name:
            raise BatchRefused("the rebuilding of the index was taken over by another process")
        self._take_lease()

    def complete(self, fingerprint: Fingerprint) -> None:
        self.store.ask("complete", partial(self._complete, dict(fingerprint)))

    def _complete(self, fingerprint: Fingerprint) -> None:
        self.extend_lease()
        self._data._fingerprint = fingerprint
        self._abandon()

    def abandon(self) -> None:
        self.store._moment("abandon")  # the lease of a killed process stays
        self._abandon()

    def _abandon(self) -> None:
        if self._data.held_by() == self._name:
            self._data.lease = "", 0
