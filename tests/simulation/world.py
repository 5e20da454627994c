"""The daemon of the simulation: every effect of a daemon on the index or on Kafka has a moment before it."""

import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from streamdedup.daemon.loop import Loop
from streamdedup.daemon.options import LoopOptions
from streamdedup.daemon.rebuild import Rebuilder
from streamdedup.kafka.protocols import Batch
from streamdedup.similarity.lsh import Banding
from streamdedup.wire.dead_letters import DaemonInfo
from tests import streams
from tests.simulation.broker import MemoryBroker, Transaction
from tests.simulation.server import Link
from tests.simulation.transport import MemoryHistory, MemorySource

INPUT, DUPLICATES, DEAD_LETTERS = "articles", "duplicates", "duplicates.dlq"
GROUP = "dedup"
OPTIONS = replace(streams.OPTIONS, banding=Banding(6, 2), permutations=16)

FINGERPRINT = {"bands": 6}
WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "lagoon"]
#: Calls of a source, and of a transport, that can fail.
SOURCE_CALLS = {"poll", "poll_ahead", "committed_offset", "committed_offsets", "confirm"}
KAFKA_CALLS = {"open_clients", "publish", "commit"} | SOURCE_CALLS


class Killed(BaseException):
    """The process has ended; nothing in it may notice."""


@dataclass
class Stop:
    """A ``StopSignals`` whose waits take no time."""

    world: Any
    stopping: bool = False

    def wait(self, timeout_s: float) -> bool:
        self.world.time_passes(timeout_s)
        return self.stopping


def source_of(text: str | None) -> str:
    """Return the source of a text: one of three, because versions of a document may differ in it."""
    return f"desk {len(text or '') % 3}"


def scope_of(document: str, replacing_text: str) -> str:
    """Return the scope of a version: one of two, such that copies and versions of a document may differ in it."""
    return f"tenant {(ord(document[-1]) + len(replacing_text.split())) % 2}"


@dataclass(frozen=True)
class Sent:
    """One record to produce; ``code``: the dead letter that it becomes."""

    id: str
    text: str | None
    partition: int = 0
    code: str | None = None
    op: str = "upsert"
    time_ms: int = 0


class Watched:
    """Delegates to an object, and reports every call of the named methods to the world."""

    def __init__(self, inner: Any, daemon: "Daemon", methods: Iterable[str]) -> None:
        self.inner = inner
        self._daemon = daemon
        self._methods = frozenset(methods)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name not in self._methods:
            return method

        def call(*arguments: Any, **named: Any) -> Any:
            return self._report(name, method, *arguments, **named)

        return call

    def _report(self, effect: str, method: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        self._daemon.world.moment(effect, self._daemon)
        return method(*arguments, **named)


class WatchedBroker(MemoryBroker):
    """A broker with a moment between sending and commit, whose members learn of a rebalance at once.

    A real client hears of it on a thread of its own, in the middle of a batch: a partition that comes back after it
    went has lost its position, and is read from the committed offset.
    """

    world: Any

    def rebalance(self, group: str) -> None:
        super().rebalance(group)
        state = self.groups[group]
        for source in [daemon.source for daemon in self.world.everyone if daemon.source is not None]:
            if source._member in state.members:
                ours = [partition for partition, member in state.owners.items() if member == source._member]
                source._positions = {p: source._positions.get(p, self.start(group, p)) for p in ours}

    def commit_batch(self, group: str, batch: Batch, transaction: Transaction | None = None) -> None:
        self.world.moment("commit")
        super().commit_batch(group, batch, transaction)
        self.world.on_commit(batch)


def a_rebuilder(world: Any, owner: Any) -> Rebuilder:
    """Return the rebuilder of a daemon or a command, which have a name and a link."""
    history = MemoryHistory(world.broker, 3)
    return Rebuilder(lambda name: world.open_target(owner, name), history, DUPLICATES, lambda: world.now_ms)


class Daemon:
    """A loop with its metrics, stepped by a ``Simulation`` or by a ``World`` of ``tests.turns``."""

    def __init__(self, world: Any, name: str) -> None:
        self.world = world
        self.name = name
        self.metrics = world.make_metrics()
        self.link = Link()
        self.stop = Stop(world)
        self._transport = world.transport(self)
        self.source: MemorySource | None = None
        pipeline = replace(world.pipeline("articles", world.connect(self)), silent_until_ms=world.silent_until_ms)
        self.rebuilder = a_rebuilder(world, self)
        self.loop = Loop(
            transport=self,
            pipelines=dict.fromkeys(world.topics, pipeline),
            options=LoopOptions(
                DUPLICATES,
                DEAD_LETTERS,
                1_000_000,
                DaemonInfo(GROUP, name, "1"),
                on_index_lost=world.on_index_lost,
                dead_letter_limit=world.dead_letter_limit,
                batch_records=world.batch_size,
                copy_headers=("traceparent",),
            ),
            metrics=self.metrics,
            stop=self.stop,
            rebuilder=self.rebuilder,
            clock=world.clock,
        )
        while world.grown and not self.loop._slow_start.may_read_ahead:
            self.loop._slow_start.grow(0)

    def open(self) -> tuple[Watched, Watched]:
        self.world.moment("open_clients", self)
        self.source, sink = self._transport.open()
        return Watched(self.source, self, SOURCE_CALLS), Watched(sink, self, ["publish"])

    def leave_group(self) -> None:
        if self.source is not None:
            self.source.leave()

    def metric(self, name: str, **labels: str) -> float:
        samples = (sample for family in self.metrics.registry.collect() for sample in family.samples)
        return sum(s.value for s in samples if s.name == f"streamdedup_{name}" and labels.items() <= s.labels.items())


def a_text(rng: random.Random, length: int = 10) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(length))


def edited(rng: random.Random, text: str) -> str:
    words = text.split()
    words[rng.randrange(len(words))] = rng.choice(WORDS)
    return " ".join(words)
