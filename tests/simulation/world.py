"""The daemon of the simulation, and a small world for tests that step a daemon turn by turn.

Every effect of a daemon on the index or on Kafka has a moment before it. The plan of a ``World`` decides the event of
each moment, such as a failure or the end of the process.
"""

import itertools
import json
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamdedup.daemon.batch import Pipeline
from streamdedup.daemon.breaker import BreakerOptions
from streamdedup.daemon.crash_points import POLL_AHEAD
from streamdedup.daemon.loop import Loop
from streamdedup.daemon.metrics import Metrics
from streamdedup.daemon.publisher import LoopOptions
from streamdedup.daemon.read_ahead import AHEAD_POLL_S
from streamdedup.daemon.rebuild import Rebuilder
from streamdedup.daemon.rebuild_run import RebuildTarget
from streamdedup.detection.detector import Detector
from streamdedup.errors import BatchRefused, BrokerUnavailable, StoreUnavailable
from streamdedup.index.values import marker_lifetime
from streamdedup.kafka.protocols import Batch
from streamdedup.position import Partition, Position
from streamdedup.similarity.lsh import Banding
from streamdedup.wire import Decoder, decode_alert
from streamdedup.wire.dead_letters import DaemonInfo, read_headers
from tests import streams
from tests.simulation.broker import Transaction
from tests.simulation.server import CALLS, NUMBERED, Connection, Link, ServedIndex, Server
from tests.simulation.transport import MemoryBroker, MemoryHistory, MemorySource, MemoryTransport
from tests.support.clock import ManualClock

INPUT, DUPLICATES, DEAD_LETTERS = "articles", "duplicates", "duplicates.dlq"
GROUP = "dedup"
OPTIONS = replace(streams.OPTIONS, banding=Banding(6, 2), permutations=16)

FINGERPRINT = {"bands": 6}
WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "lagoon"]
#: Calls of a transport that can fail.
KAFKA_CALLS = {"open_clients", "poll", POLL_AHEAD, "committed", "all_committed", "confirm", "publish", "commit"}
#: Steps after which a run is stuck.
PATIENCE_STEPS = 3_000
#: The monotonic clock of all loops.
CLOCK = ManualClock()


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


@dataclass(frozen=True)
class Sent:
    """One record to produce; ``code``: the dead letter that it becomes."""

    id: str
    text: str | None
    partition: int = 0
    code: str | None = None
    op: str = "upsert"
    time_ms: int = 0


@dataclass(frozen=True)
class Moment:
    """Just before an effect."""

    daemon: "Daemon"
    effect: str


Act = Callable[["World", Moment], None]


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


class WatchedSource(Watched):
    """A source; a poll of the batch ahead is an effect of its own."""

    def __init__(self, inner: MemorySource, daemon: "Daemon") -> None:
        super().__init__(inner, daemon, ["committed", "all_committed", "confirm"])

    def poll(self, timeout_s: float, max_records: int) -> Batch:
        effect = POLL_AHEAD if timeout_s == AHEAD_POLL_S else "poll"
        return self._report(effect, self.inner.poll, timeout_s, max_records)


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
        self.world.committed(batch)


def a_pipeline(name: str, make_detector: Callable[..., Detector], index: Any) -> Pipeline:
    return Pipeline(name, Decoder(), make_detector(OPTIONS, index), index, FINGERPRINT, OPTIONS.threshold, 100)


def a_rebuilder(world: Any, owner: Any) -> Rebuilder:
    """Return the rebuilder of a daemon or a command, which have a name and a link."""
    history = MemoryHistory(world.broker, 3)
    return Rebuilder(lambda name: world.open_target(owner, name), history, DUPLICATES, lambda: world.now_ms)


class Daemon:
    """A loop with its metrics, stepped by a ``Simulation`` or a ``World``."""

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
                breaker=world.breaker,
                batch_records=world.batch_size,
                copy_headers=("traceparent",),
            ),
            metrics=self.metrics,
            stop=self.stop,
            rebuilder=self.rebuilder,
            clock=world.clock,
        )
        while world.grown and not self.loop._slow_start.may_read_ahead():
            self.loop._slow_start.committed(0)

    def open(self) -> tuple[Watched, Watched]:
        """Open clients, as the loop's transport."""
        self.world.moment("open_clients", self)
        self.source, sink = self._transport.open()
        return WatchedSource(self.source, self), Watched(sink, self, ["publish"])

    def leave_group(self) -> None:
        """Be silent for longer than the session may last."""
        if self.source is not None:
            self.source.leave()

    def metric(self, name: str, **labels: str) -> float:
        """Sum the samples of a metric that have these labels."""
        samples = (sample for family in self.metrics.registry.collect() for sample in family.samples)
        return sum(s.value for s in samples if s.name == f"streamdedup_{name}" and labels.items() <= s.labels.items())


@dataclass
class World:
    """A broker, an index and daemons for tests of single turns; a ``Simulation`` plays whole histories.

    Attributes:
        records: Records to produce, in this order.
        partitions: Number of partitions of the input topic.
        names: Daemons at the start.
        batch_size: Most records in a batch.
        exactly_once: Whether daemons publish in transactions.
        on_index_lost: As the loop's option.
        silent_until_ms: As of the profile.
        kept_ms: How far back a rebuild reads; None for everything.
        now_ms: The present, as a rebuild sees it.
        index_options: Options of the index that all daemons share.
        make_detector: Makes a daemon's detector.
        plan: Returns the event of each moment.
        joined: Whether the daemons have joined the group before the first record arrives.
        breaker: When daemons halt because of dead letters.
        grown: Whether daemons begin with full batches, as after many commits; else by the slow start.
        other_topics: Further input topics, of one partition.
    """

    records: Sequence[Sent] = ()
    partitions: int = 2
    names: Sequence[str] = ("a",)
    batch_size: int = 4
    exactly_once: bool = True
    on_index_lost: str = "fail"
    silent_until_ms: int | None = None
    kept_ms: int | None = None
    now_ms: int = 0
    index_options: Mapping[str, Any] = field(default_factory=dict)
    make_detector: Callable[..., Detector] = Detector
    plan: Callable[[int], Act | None] = lambda _number: None
    joined: bool = True
    breaker: BreakerOptions = field(default_factory=BreakerOptions)
    grown: bool = True
    other_topics: Sequence[str] = ()

    def __post_init__(self) -> None:
        self.topics = [INPUT, *self.other_topics]
        counts = {INPUT: self.partitions, DUPLICATES: 1, DEAD_LETTERS: 1} | dict.fromkeys(self.other_topics, 1)
        self.broker = WatchedBroker(counts, self.time_passes)
        self.broker.world = self
        self.server = Server(lambda: ServedIndex(**self.index_options))
        self.prefix = ""
        self._writers = itertools.count()
        self.trace: list[Moment] = []
        self.active: list[Daemon] = []
        self.everyone: list[Daemon] = []
        self.outages: list[Callable[[], None]] = []
        self.daemons: list[Daemon] = []
        for name in self.names:
            self.start(name)
        if self.joined:
            plan, self.plan = self.plan, lambda _number: None
            for daemon in self.daemons:
                self.turn(daemon)
            self.plan = plan
            self.trace.clear()
        self.ends: dict[Partition, int] = {}
        self.send(*self.records)

    @property
    def index(self) -> ServedIndex:
        """The data of the index of daemons that start now."""
        return self.server.index(self.prefix)

    # What a daemon is made of

    make_metrics = Metrics
    clock = CLOCK

    def pipeline(self, name: str, index: Any) -> Pipeline:
        return a_pipeline(name, self.make_detector, index)

    def connect(self, daemon: "Daemon", *, in_staging: bool = False) -> Connection:
        """Return the index of a daemon."""

        def called(effect: str) -> str:
            self.moment(effect, daemon)
            return ""

        writer = f"{daemon.name}.{next(self._writers)}"
        return Connection(self.server, self.prefix, writer, called, daemon.link, in_staging=in_staging)

    def transport(self, daemon: "Daemon") -> MemoryTransport:
        """Return the transport of a daemon."""
        transactional_id = daemon.name if self.exactly_once else None
        return MemoryTransport(
            self.broker, GROUP, self.topics, transactional_id=transactional_id, max_poll_records=self.batch_size
        )

    def open_target(self, daemon: "Daemon", name: str) -> RebuildTarget:
        """Return the target of a rebuild by a daemon."""
        store = self.connect(daemon, in_staging=True)
        staging, pipeline = store.staging(), self.pipeline(name, store)
        return RebuildTarget(staging, pipeline, self.topics, self.kept_ms, marker_lifetime(self.kept_ms))

    # Records

    def send(self, *records: Sent) -> "World":
        """Let records come to the input topic."""
        positions = [self.produce(sent) for sent in records]
        self.ends |= {position.topic_partition: position.offset + 1 for position in positions}
        return self

    def recreate(self, *records: Sent, partitions: int | None = None, **how: Any) -> None:
        """Delete the input topic, create it again, and let records come; see ``MemoryBroker.recreate``."""
        self.partitions = partitions or self.partitions
        self.broker.recreate(INPUT, partitions, **how)
        self.ends.clear()
        self.send(*records)

    def produce(self, sent: Sent) -> Position:
        """Let a record come."""
        value = None if sent.text is None else json.dumps({"id": sent.id, "text": sent.text, "op": sent.op}).encode()
        if sent.code == "not_json":
            value = b"{"
        partition, readable = sent.partition % self.partitions, sent.code != "unreadable"
        position = Position(INPUT, partition, self.broker.end_of(Partition(INPUT, partition)))
        headers = (("private", b"p"), ("traceparent", str(position).encode()))
        return self.broker.produce(
            INPUT, value, partition=partition, timestamp_ms=sent.time_ms, readable=readable, headers=headers
        )

    # Events

    def moment(self, effect: str, daemon: Daemon | None = None) -> None:
        """Run the event that the plan has for this moment."""
        number, moment = len(self.trace), Moment(daemon or self.active[-1], effect)
        self.trace.append(moment)
        act = self.plan(number)
        if act is not None:
            act(self, moment)

    def committed(self, batch: Batch) -> None:
        """Nothing depends on the moment of a commit here."""

    def time_passes(self, timeout_s: float) -> None:
        """Advance the clock where a daemon would wait; an outage may end."""
        CLOCK.now_s += timeout_s
        if self.outages:
            self.outages.pop(0)()

    def turn(self, daemon: Daemon) -> None:
        """Step a daemon once; one that is killed is replaced by its supervisor."""
        self.active.append(daemon)
        try:
            daemon.loop._turn()
        except Killed:
            daemon.leave_group()
            self.restart(daemon)
        finally:
            self.active.pop()

    def start(self, name: str) -> Daemon:
        """Start a daemon."""
        daemon = Daemon(self, name)
        self.daemons.append(daemon)
        self.everyone.append(daemon)
        return daemon

    def restart(self, daemon: Daemon) -> Daemon:
        """Replace a daemon by a new one of the same name."""
        place = self.daemons.index(daemon)
        self.daemons.remove(daemon)
        fresh = self.start(daemon.name)
        self.daemons.insert(place, self.daemons.pop())
        return fresh

    @property
    def done(self) -> bool:
        offsets = {partition: self.broker.committed_offset(GROUP, partition) for partition in self.ends}
        # A committed offset beyond the end belongs to a deleted topic.
        return all(
            (mark := offsets[partition]) is not None and end <= mark.offset <= self.broker.end_of(partition)
            for partition, end in self.ends.items()
        )

    def run(self) -> "World":
        """Step the daemons in turn until everything is committed."""
        for step in range(PATIENCE_STEPS):
            if self.done:
                break
            self.turn(self.daemons[step % len(self.daemons)])
        assert self.done, "the daemons make no progress"
        for daemon in list(self.daemons):  # settle open transactions, and notice commits
            if daemon in self.daemons:
                self.turn(daemon)
        # An open transaction of a daemon that never returned hides later records until it times out.
        self.broker.time_out_transactions()
        return self

    def stop_all(self) -> None:
        """Stop all daemons in good order."""
        for daemon in self.daemons:
            daemon.stop.stopping = True
            daemon.loop.run()
        self.daemons.clear()

    def start_later(self, **changes: Any) -> Daemon:
        """Stop all daemons, change attributes of the world, and start another daemon."""
        self.stop_all()
        self.__dict__.update(changes)
        return self.start("later")

    # Output

    def pairs(self) -> list[tuple[str, str]]:
        """Pairs of ids that a reader of the duplicates topic sees; sorted."""
        alerts = [decode_alert(record.value) for record in self.broker.records(DUPLICATES)]
        found = [sorted([alert.document.id, match.id]) for alert in alerts for match in alert.matches]
        return sorted((a, b) for a, b in found)

    def dead_letters(self) -> list[tuple[str, int, str]]:
        """Partition and offset of each dead letter, and its code; sorted."""
        headers = [read_headers(record.headers) for record in self.broker.records(DEAD_LETTERS)]
        return sorted((h["partition"], int(h["offset"]), h["error.code"]) for h in headers)

    def total(self, metric: str) -> float:
        """Return the sum of a metric over all daemons."""
        return sum(daemon.metric(metric) for daemon in self.everyone)


# Texts


def a_text(rng: random.Random, length: int = 10) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(length))


def edited(rng: random.Random, text: str) -> str:
    words = text.split()
    words[rng.randrange(len(words))] = rng.choice(WORDS)
    return " ".join(words)


# Acts


def store_fails(_world: World, moment: Moment) -> None:
    if moment.effect in CALLS:
        raise StoreUnavailable("made to fail")


def batch_refused(_world: World, moment: Moment) -> None:
    if moment.effect in NUMBERED:
        raise BatchRefused("made to fail")


def broker_fails(_world: World, moment: Moment) -> None:
    if moment.effect in KAFKA_CALLS:
        raise BrokerUnavailable("made to fail")


def killed(_world: World, _moment: Moment) -> None:
    raise Killed


def rebalanced(world: World, _moment: Moment) -> None:
    world.broker.rebalance(GROUP)


def raising(error: BaseException) -> Act:
    def act(_world: World, _moment: Moment) -> None:
        raise error

    return act


def once(effect: str, act: Act) -> Callable[[int], Act]:
    """Return a plan that acts at the first moment of an effect."""
    acted: list[Moment] = []

    def at(world: World, moment: Moment) -> None:
        if not acted and moment.effect == effect:
            acted.append(moment)
            act(world, moment)

    return lambda _number: at
