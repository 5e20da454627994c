"""A world for tests that step a daemon of the simulation turn by turn.

The plan of a ``World`` decides the event of each moment before an effect, such as a failure or the end of the process.
"""

import itertools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamdedup.daemon.batch import Pipeline
from streamdedup.daemon.metrics import Metrics
from streamdedup.daemon.rebuild_run import RebuildTarget
from streamdedup.detection.detector import Detector
from streamdedup.errors import BatchRefused, BrokerUnavailable, StoreUnavailable
from streamdedup.index.values import marker_lifetime
from streamdedup.kafka.protocols import Batch
from streamdedup.position import Partition, Position
from streamdedup.wire import Decoder, decode_alert
from streamdedup.wire.dead_letters import read_headers
from tests.simulation.server import CALLS, NUMBERED, Connection, ServedIndex, Server
from tests.simulation.transport import MemoryTransport
from tests.simulation.world import (
    DEAD_LETTERS,
    DUPLICATES,
    FINGERPRINT,
    GROUP,
    INPUT,
    KAFKA_CALLS,
    OPTIONS,
    WORDS,
    Daemon,
    Killed,
    Sent,
    WatchedBroker,
    a_text,
)
from tests.support.clock import ManualClock

__all__ = [
    "CLOCK", "DEAD_LETTERS", "DUPLICATES", "FINGERPRINT", "GROUP", "INPUT", "OPTIONS", "WORDS",
    "Act", "Daemon", "Killed", "Moment", "Sent", "World",
    "a_pipeline", "a_text", "batch_refused", "broker_fails", "killed", "once", "raising", "rebalanced", "store_fails",
]  # fmt: skip

#: Steps after which a run is stuck.
PATIENCE_STEPS = 3_000
#: The monotonic clock of all loops.
CLOCK = ManualClock()


@dataclass(frozen=True)
class Moment:
    """Just before an effect."""

    daemon: "Daemon"
    effect: str


Act = Callable[["World", Moment], None]


def a_pipeline(name: str, make_detector: Callable[..., Detector], index: Any) -> Pipeline:
    return Pipeline(name, Decoder(), make_detector(OPTIONS, index), index, FINGERPRINT, OPTIONS.threshold, 100)


@dataclass
class World:
    """A broker, an index and daemons for tests of single turns; a ``Simulation`` plays whole histories.

    Attributes:
        kept_ms: How far back a rebuild reads; None for everything.
        now_ms: The present, as a rebuild sees it.
        plan: Returns the event of each moment.
        joined: Whether the daemons have joined the group before the first record arrives.
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
    dead_letter_limit: int | None = 500
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
        return self.server.index(self.prefix)

    # What a daemon is made of

    make_metrics = Metrics
    clock = CLOCK

    def pipeline(self, name: str, index: Any) -> Pipeline:
        return a_pipeline(name, self.make_detector, index)

    def connect(self, daemon: "Daemon", *, in_staging: bool = False) -> Connection:
        def called(effect: str) -> str:
            self.moment(effect, daemon)
            return ""

        writer = f"{daemon.name}.{next(self._writers)}"
        return Connection(self.server, self.prefix, writer, called, daemon.link, in_staging=in_staging)

    def transport(self, daemon: "Daemon") -> MemoryTransport:
        transactional_id = daemon.name if self.exactly_once else None
        return MemoryTransport(
            self.broker, GROUP, self.topics, transactional_id=transactional_id, max_poll_records=self.batch_size
        )

    def open_target(self, daemon: "Daemon", name: str) -> RebuildTarget:
        store = self.connect(daemon, in_staging=True)
        staging, pipeline = store.staging(), self.pipeline(name, store)
        return RebuildTarget(
            staging, pipeline, self.topics, self.kept_ms, self.kept_ms and marker_lifetime(self.kept_ms)
        )

    # Records

    def send(self, *records: Sent) -> "World":
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

    def on_commit(self, batch: Batch) -> None:
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

    def turn_until(self, daemon: Daemon, is_done: Callable[[], bool]) -> None:
        for _ in range(PATIENCE_STEPS):
            if is_done():
                return
            self.turn(daemon)
        raise AssertionError("the daemon makes no progress")

    def start(self, name: str) -> Daemon:
        daemon = Daemon(self, name)
        self.daemons.append(daemon)
        self.everyone.append(daemon)
        return daemon

    def restart(self, daemon: Daemon) -> Daemon:
        place = self.daemons.index(daemon)
        self.daemons.remove(daemon)
        fresh = self.start(daemon.name)
        self.daemons.insert(place, self.daemons.pop())
        return fresh

    @property
    def done(self) -> bool:
        return self.broker.has_committed(GROUP, self.ends)

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
        return sum(daemon.metric(metric) for daemon in self.everyone)


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
