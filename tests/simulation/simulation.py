"""One history: the real daemons and commands over a broker and a server in memory, stepped line by line.

Every process is a greenlet. It gives up control before each of its effects on Kafka or the index, and whenever it
would wait; a line of the history lets one process go on for some effects, or is a fault. Nothing sleeps and no process
has a clock: the time of all is that of the scheduler. So a history is the same whenever it is run again.
"""

import contextlib
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
import structlog
from greenlet import getcurrent, greenlet

from streamdedup import clock
from streamdedup.cli import index as commands
from streamdedup.cli import index_building
from streamdedup.daemon import (
    attempts,
    read_ahead,
    readiness,
    rebuild,
    rebuild_run,
    rebuild_seeds,
    statistics,
)
from streamdedup.daemon.batch import Pipeline
from streamdedup.daemon.metrics import Awaited
from streamdedup.daemon.rebuild_run import RebuildTarget
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import DetectorOptions
from streamdedup.detection.suppression import Suppression
from streamdedup.errors import BrokerSilent, BrokerUnavailable, RegistryUnavailable
from streamdedup.index.redis import fenced as redis_fenced
from streamdedup.index.values import marker_lifetime
from streamdedup.kafka.protocols import Batch, Message
from streamdedup.position import Partition
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.wire import Decoder
from tests.simulation import broker as brokers
from tests.simulation.operator import PATCHES, VERSIONS, Installation
from tests.simulation.server import Connection, Link, ServedIndex, Server
from tests.simulation.story import Setup
from tests.simulation.transport import MemorySource, MemoryTransport
from tests.simulation.world import (
    DEAD_LETTERS,
    DUPLICATES,
    GROUP,
    INPUT,
    KAFKA_CALLS,
    OPTIONS,
    Daemon,
    Killed,
    Sent,
    WatchedBroker,
    scope_of,
    source_of,
)

#: The time at which every history begins, in milliseconds since the epoch.
BEGIN_MS = 1_700_000_000_000
#: Most bytes of a label.
LABEL_BYTES = 16
#: Modules of the package whose clock is the scheduler's.
_TIMED = (clock, attempts, rebuild, rebuild_run, statistics, index_building, brokers, redis_fenced)
#: Fates of a call of the server, of a call of Kafka, and of a publish.
SERVER_FATES = ("request lost", "reply lost", "late", "twice")
KAFKA_FATES, PUBLISH_FATES = ("refused", "silent"), ("before commit", "after commit")


class Unmeasured:
    """Metrics that count nothing."""

    def __getattr__(self, _name: str) -> "Unmeasured":
        return self

    def __call__(self, *_arguments: Any, **_named: Any) -> "Unmeasured":
        return self


class AtOnce:
    """An executor that computes in the calling thread."""

    def __init__(self, *_arguments: Any) -> None:
        pass

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Any:
        done: Any = read_ahead.Future()
        done.set_result(work(*arguments))
        return done

    def shutdown(self, **_how: Any) -> None:
        pass


class Time:
    """The module ``time`` as the processes see it: the time of the present simulation."""

    now_ms: Callable[[], int] = lambda: BEGIN_MS

    def time_ns(self) -> int:
        return Time.now_ms() * 1_000_000

    def time(self) -> float:
        return Time.now_ms() / 1000

    def monotonic(self) -> float:
        return Time.now_ms() / 1000

    perf_counter = monotonic


#: Lengths of waits. Clients of real servers draw from the common numbers.
_JITTER = random.Random()


@contextlib.contextmanager
def simulated() -> Iterator[None]:
    """Replace clock, threads, logs and the servers of the commands while the context is open."""
    patches = [(module, "time", Time()) for module in _TIMED]
    for name, value in PATCHES.items():
        owners = [module for module in (commands, index_building) if hasattr(module, name)]
        assert owners, f"no command uses {name}"
        patches += [(module, name, value) for module in owners]
    patches += [(read_ahead, "ThreadPoolExecutor", AtOnce), (readiness, "random", _JITTER)]
    # No history has as many records behind a committed offset.
    patches += [(module, "OFFSETS_IN_PROGRESS", 200) for module in (rebuild_run, rebuild_seeds)]
    logging = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(50))
    with pytest.MonkeyPatch.context() as patch:
        for owner, name, value in patches:
            patch.setattr(owner, name, value)
        yield
    structlog.configure(**logging)


class RegisteredDecoder(Decoder):
    """A decoder that asks a schema registry about each record."""

    simulation: "Simulation"

    def decode(self, *arguments: Any, **named: Any) -> Any:
        if self.simulation.registry_away:
            raise RegistryUnavailable("the registry is away")
        return super().decode(*arguments, **named)


@cache  # a decoder takes longer to make than to use in a history
def _decoder(scope_field: str | None) -> RegisteredDecoder:
    return RegisteredDecoder(scope_field=scope_field, default_scope=scope_field and "all")


class Process:
    """A daemon or a command; a dead process, which was killed, has no more effects."""

    def __init__(
        self, name: str, body: Callable[[], object], daemon: Daemon | None, installation: Installation
    ) -> None:
        self.name = name
        self.daemon = daemon
        self.installation = installation
        self.at = ""  # the effect before which it has stopped
        self.fate = ""  # of its next call of the server or of Kafka
        self.error: BaseException | None = None
        self.dead = False
        self.clock_ms = 0
        self.frozen = False
        self.joined: MemorySource | None = None  # by a command
        self.coroutine = greenlet(self._run)
        self._body = body

    def _run(self) -> None:
        try:
            self._body()
        except Killed:
            pass
        except Exception as error:  # noqa: BLE001  the verdict judges it
            self.error = error

    @property
    def alive(self) -> bool:
        return not self.coroutine.dead and not self.dead

    @property
    def source(self) -> MemorySource | None:
        """The source with which it is a member of the group."""
        return self.joined if self.daemon is None else self.daemon.source

    def kill(self) -> None:
        """End at once, without an effect; the session goes on until it expires."""
        self.dead = True
        if self.source is not None:
            self.source._member *= -1  # no member: it cannot leave
        if self.coroutine:
            self.coroutine.throw(Killed)


@dataclass
class Commit:
    """The first commit of a record: its order among all events, its time, and the installation that made it."""

    order: int
    time_ms: int
    installation: Installation


@dataclass
class Produced:
    """A record, with its order among all events and, once committed, its commit."""

    sent: Sent
    partition: Partition
    offset: int
    topic: int
    order: int
    time_ms: int
    commit: Commit | None = None
    removed: int | None = None


class Simulation:
    """The world of one history."""

    exactly_once = True
    on_index_lost = "rebuild"
    silent_until_ms = None
    dead_letter_limit = None
    make_metrics = Unmeasured
    make_connection = Connection
    topics = (INPUT,)

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.batch_size = setup.batch
        self.grown = setup.grown
        self.now_ms = BEGIN_MS
        self.partitions = setup.partitions
        self.broker = WatchedBroker({INPUT: setup.partitions, DUPLICATES: 1, DEAD_LETTERS: 1}, self.time_passes)
        self.broker.world = self
        self.window_ms = None if setup.window_s is None else 1_000 * setup.window_s
        self.kept_ms = self.window_ms and 2 * self.window_ms
        self.server = Server(self._make_index)
        self.everyone: list[Daemon] = []
        self.processes: dict[str, Process] = {}
        self.produced: list[Produced] = []
        self.at_position: dict[tuple[int, Partition, int], Produced] = {}
        self.topic_number = 0
        self.registry_away = False
        self.saved_ms: dict[str, int] = {}  # time of each copy of the server
        self.wrong: list[str] = []  # mistakes that showed while the history ran
        self.excused: Counter[str] = Counter()  # how often each exception of a promise was needed
        self.trace: list[str] = []
        self.settled: list[int] = []  # orders of the times at which nothing was left to do
        self.losses: list[int] = []  # orders of the events after which an index may have to be built from the topics
        self.members: dict[str, set[int]] = {}  # members of the group that may be dead, by name of the process
        self.orders = itertools.count(1)
        self.installation = Installation("one", 1)
        self._writers = itertools.count(1)
        self._running: Process | None = None
        self._main: Any = None
        Time.now_ms = self._present_ms
        _JITTER.seed(0)

    # What a daemon is made of

    def _make_index(self) -> ServedIndex:
        return ServedIndex(lifetime_ms=self.kept_ms, bucket_cap=self.setup.bucket_cap, now_ms=lambda: self.now_ms)

    def clock(self) -> float:
        return self.now_ms / 1000

    def _present_ms(self) -> int:
        return self.now_ms + (self._running.clock_ms if self._running is not None else 0)

    def pipeline(self, name: str, index: Any, installation: Installation | None = None) -> Pipeline:
        """Return the pipeline of an installation, by default that of daemons which start now."""
        installation = installation or self.installation
        options = self.options(installation.version)
        decoder = copy(_decoder(options.scope_field))
        decoder.simulation = self
        return Pipeline(
            name, decoder, Detector(options, index), index, installation.fingerprint(), options.threshold, 100
        )

    def options(self, version: int) -> DetectorOptions:
        return replace(
            OPTIONS,
            window_ms=self.window_ms,
            containment=ContainmentRule(1.0) if self.setup.contained else None,
            suppression=Suppression(self.setup.min_shingles) if self.setup.min_shingles else None,
            label_bytes=LABEL_BYTES,
            **(VERSIONS[version] | (VERSIONS[3] if self.setup.scopes else {})),
        )

    def connection(self, name: str, installation: Installation, link: Link, *, in_staging: bool = False) -> Connection:
        writer = f"{name}.{next(self._writers)}"
        return self.make_connection(
            self.server, installation.prefix, writer, self.server_moment, link, in_staging=in_staging
        )

    def connect(self, daemon: Daemon) -> Connection:
        return self.connection(daemon.name, self.installation, daemon.link)

    def transport(self, daemon: Daemon) -> MemoryTransport:
        return MemoryTransport(
            self.broker,
            GROUP,
            self.topics,
            transactional_id=daemon.name,
            max_poll_records=self.batch_size,
            instance_id=daemon.name if self.setup.static else None,
            index_name=self.installation.prefix,
        )

    def open_target(self, owner: Any, name: str) -> RebuildTarget:
        """Return the target of a rebuild by the running process, which is a daemon or the ``Backend`` of a command."""
        assert self._running is not None
        installation = self._running.installation
        store = self.connection(f"{owner.name} rebuild", installation, owner.link, in_staging=True)
        pipeline = self.pipeline(name, store, installation)
        return RebuildTarget(
            store.staging(), pipeline, self.topics, self.kept_ms, self.kept_ms and marker_lifetime(self.kept_ms)
        )

    # Effects

    def pause(self, effect: str) -> Process | None:
        """Give up control before an effect of the running process; return the process, None outside of any."""
        process = self._running
        if process is None:
            return None
        if process.dead:
            raise Killed
        process.at = effect
        self._main.switch()
        if process.dead:
            raise Killed
        self.now_ms += 1
        self.trace.append(f"    {process.name}: {effect}")
        return process

    def server_moment(self, effect: str, fates: Collection[str] = SERVER_FATES) -> str:
        """Stop before a call of the server; return the fate of the call, if it is to have one of these."""
        process = self.pause(effect)
        if process is None or process.fate not in fates:
            return ""
        fate, process.fate = process.fate, ""
        self.trace.append(f"      {fate}")
        return fate

    def moment(self, effect: str, _daemon: Daemon | None = None) -> None:
        fates = PUBLISH_FATES if effect == "publish" else KAFKA_FATES
        fate = self.server_moment(effect, fates if effect in KAFKA_CALLS else ())
        if effect == "publish" and fate:
            self.broker.publish_failures.append(fate)  # type: ignore[arg-type]
        elif fate == "silent" and effect.startswith("poll"):
            raise BrokerSilent("made to fail")
        elif fate:
            raise BrokerUnavailable("made to fail")

    def time_passes(self, timeout_s: float) -> None:
        self.pause("wait")
        self.now_ms += round(1_000 * timeout_s)

    def on_commit(self, batch: Batch) -> None:
        order, process = next(self.orders), self._running
        assert process is not None
        for position in batch.positions():
            produced = self.at_position.get((self.topic_number, position.topic_partition, position.offset))
            if produced is not None and produced.commit is None:
                produced.commit = Commit(order, self.now_ms, process.installation)

    # Processes

    def start(self, name: str) -> None:
        """Start a daemon; it opens nothing before its first effect."""
        daemon = Daemon(self, name)
        self.everyone.append(daemon)
        self.processes[name] = Process(name, daemon.loop.run, daemon, self.installation)

    def command(self, name: str, body: Callable[[], object], installation: Installation) -> Process:
        """Start a command; the operator has ended an earlier one."""
        if name in self.processes:
            self.remember_member(self.processes[name])
            self.processes[name].kill()
        process = Process(name, body, None, installation)
        self.processes[name] = process
        return process

    def lose(self) -> None:
        """Record that an index may have to be built from the topics from now on."""
        self.losses.append(next(self.orders))

    def remember_member(self, process: Process) -> None:
        """Remember a member of the group whose process may be gone before its session ends."""
        if process.source is not None and process.source._member > 0:
            self.members.setdefault(process.name, set()).add(process.source._member)

    def sources(self) -> list[MemorySource]:
        sources = (process.source for process in self.processes.values() if process.alive)
        return [source for source in sources if source is not None]

    def resume(self, process: Process, count: int, until: str | None = None) -> None:
        """Let a process go on for a number of effects, or until it is about to have an effect or waits once more."""
        waits = 0
        for _ in range(count):
            if not process.alive:
                return
            self._main, self._running = getcurrent(), process
            try:
                process.coroutine.switch()
            finally:
                self._running = None
            if not process.alive:
                self.trace.append(
                    f"    {process.name} has ended{'' if process.error is None else f': {process.error!r}'}"
                )
            waits += process.at == "wait"
            if process.at == until or waits == 2:
                return

    def close(self) -> None:
        for process in list(self.processes.values()):
            process.kill()
        self.everyone.clear()
        Time.now_ms = lambda: BEGIN_MS

    # Records

    def send(self, sent: Sent, transaction: brokers.Transaction | None = None) -> None:
        """Let a record come, at a time of its own."""
        self.now_ms += 1
        fields = {"id": sent.id, "text": sent.text, "op": sent.op, "source": source_of(sent.text)}
        if self.setup.scopes:
            fields["tenant"] = scope_of(sent.id, sent.text or "")
        value = json.dumps(fields).encode()
        partition = Partition(INPUT, sent.partition % self.partitions)
        time_ms = self.now_ms - sent.time_ms
        message = Message(INPUT, None, value, (), time_ms)
        position = self.broker.append(message, transaction or brokers.Transaction("committed"), partition.partition)
        produced = Produced(sent, partition, position.offset, self.topic_number, next(self.orders), time_ms)
        self.produced.append(produced)
        self.at_position[self.topic_number, partition, position.offset] = produced

    @property
    def done(self) -> bool:
        """Whether everything is committed, no command runs, and no daemon rebuilds or waits for a rebuild."""
        for process in self.processes.values():
            awaited = None if process.daemon is None else process.daemon.loop.readiness.awaited
            if process.alive and (process.daemon is None or awaited not in {None, Awaited.GROUP}):
                return False
        ends = {p.partition: p.offset + 1 for p in self.produced if p.topic == self.topic_number and p.removed is None}
        return self.broker.has_committed(GROUP, ends)
