"""A small world for the loop: a broker, an index, and daemons that are stepped one after the other under faults.

Every effect of a daemon on the index or on Kafka has a moment before it and one after it. A plan decides the event of
each moment: a failure, the end of the process, a rebalance, or steps of other daemons while this one is frozen. The
world does not know the loop or the detector; the expected pairs come from ``reference_pairs``.
"""

import itertools
import json
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any

from streamdedup.daemon.batch import Pipeline
from streamdedup.daemon.breaker import BreakerOptions
from streamdedup.daemon.crash_points import POLL_AHEAD
from streamdedup.daemon.loop import Loop
from streamdedup.daemon.metrics import Metrics
from streamdedup.daemon.publisher import LoopOptions
from streamdedup.daemon.read_ahead import AHEAD_POLL_S
from streamdedup.daemon.rebuild import Rebuilder, RebuildTarget
from streamdedup.detection.detector import Detector
from streamdedup.errors import BatchRefused, BrokerUnavailable, StoreUnavailable
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.values import marker_lifetime
from streamdedup.kafka.protocols import Batch
from streamdedup.position import Position
from streamdedup.similarity.lsh import Banding
from streamdedup.wire import Decoder, content_digest, decode_alert
from streamdedup.wire.dead_letters import DaemonInfo, read_headers
from tests import streams
from tests.reference_pairs import expected_by_options
from tests.simulation.broker import Transaction
from tests.simulation.staging import MemoryStagingIndex
from tests.simulation.transport import MemoryBroker, MemoryHistory, MemorySource, MemoryTransport
from tests.support.clock import ManualClock

INPUT, DUPLICATES, DEAD_LETTERS = "articles", "duplicates", "duplicates.dlq"
GROUP = "dedup"
OPTIONS = replace(streams.OPTIONS, banding=Banding(6, 2), permutations=16)

FINGERPRINT = {"bands": 6}
WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty", "knoll", "lagoon"]
#: Methods of a store that the loop or the detector call while they take a batch through.
STORE_METHODS = (
    "open", "partition_states", "fence", "insert_entries", "remove_from_buckets", "remove_copies", "leave_clusters",
    "replace_entries", "insert_and_look_up", "copy_removals", "insert_copies", "get_entries", "read_entries",
    "save_pending_matches", "claim_pairs", "set_clusters", "announce", "finish", "ping",
)  # fmt: skip
#: Those of them that can be refused.
FENCED_METHODS = frozenset(STORE_METHODS).difference(
    ["open", "partition_states", "copy_removals", "get_entries", "read_entries", "ping"]
)
#: Calls of a transport that can fail.
KAFKA_CALLS = {"open_clients", "poll", POLL_AHEAD, "committed", "all_committed", "confirm", "publish", "commit"}
#: Steps after which a run is stuck.
PATIENCE_STEPS = 3_000
#: The monotonic clock of all loops.
CLOCK = ManualClock()

#: A document and its content, as alerts name it.
Version = tuple[str, str]
VersionPair = tuple[Version, Version]


class Killed(BaseException):
    """The process has ended; nothing in it may notice."""


@dataclass
class Stop:
    """A ``StopSignals`` whose waits take no time."""

    world: "World"
    stopping: bool = False

    def wait(self, timeout_s: float) -> bool:
        self.world.time_passes(timeout_s)
        return self.stopping


@dataclass(frozen=True)
class Sent:
    """One record to produce, and its expected dead-letter code."""

    id: str
    text: str | None
    partition: int = 0
    code: str | None = None
    op: str = "upsert"
    time_ms: int = 0


@dataclass(frozen=True)
class Moment:
    """Just before or just after an effect."""

    daemon: "Daemon"
    effect: str
    after: bool

    def __str__(self) -> str:
        return f"{self.daemon.name}: {'after' if self.after else 'before'} {self.effect}"


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
        self._daemon.world.moment(Moment(self._daemon, effect, after=False))
        result = method(*arguments, **named)
        self._daemon.world.moment(Moment(self._daemon, effect, after=True))
        return result


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

    world: "World"

    def rebalance(self, group: str) -> None:
        super().rebalance(group)
        state = self.groups[group]
        for source in [daemon.source for daemon in self.world.everyone if daemon.source is not None]:
            if source._member in state.members:
                ours = [partition for partition, member in state.owners.items() if member == source._member]
                source._positions = {p: source._positions.get(p, self.start(group, p)) for p in ours}

    def commit_batch(self, group: str, batch: Batch, transaction: Transaction | None = None) -> None:
        self.world.moment(Moment(self.world.active[-1], "commit", after=False))
        super().commit_batch(group, batch, transaction)
        self.world.committed(batch)


def a_pipeline(name: str, make_detector: Callable[..., Detector], index: Any) -> Pipeline:
    return Pipeline(name, Decoder(), make_detector(OPTIONS, index), index, FINGERPRINT, OPTIONS.threshold, 100)


class Daemon:
    """One daemon: a loop with its metrics, stepped by the world."""

    def __init__(self, world: "World", name: str) -> None:
        self.world = world
        self.name = name
        self.metrics = world.make_metrics()
        self.stop = Stop(world)
        self._transport = world.transport(self)
        self.source: MemorySource | None = None
        pipeline = replace(world.pipeline("articles", world.connect(self)), silent_until_ms=world.silent_until_ms)
        history = MemoryHistory(world.broker, 3)
        self.rebuilder = Rebuilder(
            lambda profile: world.open_target(self, profile), history, DUPLICATES, lambda: world.now_ms
        )
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
        self.world.moment(Moment(self, "open_clients", after=False))
        self.source, sink = self._transport.open()
        self.world.moment(Moment(self, "open_clients", after=True))
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
    """Everything outside the daemons.

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
        make_index: Makes the one index that all daemons share.
        make_detector: Makes a daemon's detector.
        plan: Returns the event of each moment.
        joined: Whether the daemons have joined the group before the first record arrives.
        breaker: When daemons halt because of dead letters.
        grown: Whether daemons begin with full batches, as after many commits; else by the slow start.
        other_topics: Further input topics, of one partition.
    """

    records: Sequence[Sent]
    partitions: int = 2
    names: Sequence[str] = ("a",)
    batch_size: int = 4
    exactly_once: bool = True
    on_index_lost: str = "fail"
    silent_until_ms: int | None = None
    kept_ms: int | None = None
    now_ms: int = 0
    make_index: Callable[["World"], MemoryIndex] = lambda _world: MemoryIndex()
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
        self.index = self.make_index(self)
        self.traces = (f"trace {number}".encode() for number in itertools.count())
        #: Copied headers by position, which a topic that was created again has a second time.
        self.traces_of: dict[Position, list[tuple[tuple[str, bytes], ...]]] = {}
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
        self.positions = [self.produce(sent) for sent in self.records]
        self.ends = {p.topic_partition: p.offset + 1 for p in self.positions}

    # What a daemon is made of

    make_metrics = Metrics
    clock = CLOCK

    def pipeline(self, name: str, index: Any) -> Pipeline:
        return a_pipeline(name, self.make_detector, index)

    def connect(self, daemon: "Daemon") -> Any:
        """Return the index of a daemon."""
        return Watched(self.index, daemon, STORE_METHODS)

    def transport(self, daemon: "Daemon") -> MemoryTransport:
        """Return the transport of a daemon."""
        transactional_id = daemon.name if self.exactly_once else None
        return MemoryTransport(
            self.broker, GROUP, self.topics, transactional_id=transactional_id, max_poll_records=self.batch_size
        )

    def open_target(self, daemon: "Daemon", name: str) -> RebuildTarget:
        """Return the target of a rebuild by a daemon."""
        inner = MemoryStagingIndex(self.index)
        staging = Watched(inner, daemon, ["clear", "extend_lease", "complete"])
        pipeline = self.pipeline(name, Watched(inner.store, daemon, STORE_METHODS))
        return RebuildTarget(staging, pipeline, self.topics, self.kept_ms, marker_lifetime(self.kept_ms))

    def send(self, *records: Sent) -> "World":
        """Let further records come to the input topic."""
        self.records = [*self.records, *records]
        self.positions = [*self.positions, *map(self.produce, records)]
        self.ends = {position.topic_partition: position.offset + 1 for position in self.positions}
        return self

    def recreate(self, records: Sequence[Sent], partitions: int | None = None, **how: Any) -> None:
        """Delete the input topic, create it again, and let records come; see ``MemoryBroker.recreate``."""
        self.partitions = partitions or self.partitions
        self.broker.recreate(INPUT, partitions, **how)
        self.records = [*self.records, *records]
        new = [self.produce(sent) for sent in records]
        self.positions = [*self.positions, *new]
        self.ends = {p.topic_partition: p.offset + 1 for p in new}

    def produce(self, sent: Sent) -> Position:
        """Let a record come."""
        value = None if sent.text is None else json.dumps({"id": sent.id, "text": sent.text, "op": sent.op}).encode()
        if sent.code == "not_json":
            value = b"{"
        partition, readable = sent.partition % self.partitions, sent.code != "unreadable"
        trace = ("traceparent", next(self.traces))
        headers = (("private", b"p"), trace)
        position = self.broker.produce(
            INPUT, value, None, partition=partition, timestamp_ms=sent.time_ms, readable=readable, headers=headers
        )
        self.traces_of.setdefault(position, []).append((trace,))
        return position

    # Events

    def moment(self, moment: Moment) -> None:
        """Run the event that the plan has for this moment."""
        number = len(self.trace)
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

    def restart(self, daemon: Daemon) -> Daemon:
        """Replace a daemon by a new one of the same name."""
        fresh = Daemon(self, daemon.name)
        self.everyone.append(fresh)
        self.daemons[self.daemons.index(daemon)] = fresh
        return fresh

    def idle_daemons(self) -> list[Daemon]:
        """Daemons that are not in the middle of a turn."""
        return [daemon for daemon in self.daemons if daemon not in self.active]

    def others_work(self, turns: int) -> None:
        """Step all daemons that are not in a turn; without any, start a new one."""
        if not self.idle_daemons():
            self.start(f"extra{len(self.everyone)}")
        for daemon, _ in zip(itertools.cycle(self.idle_daemons()), range(turns), strict=False):
            if daemon in self.idle_daemons():
                self.turn(daemon)

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

    def start(self, name: str) -> Daemon:
        """Start a daemon."""
        daemon = Daemon(self, name)
        self.daemons.append(daemon)
        self.everyone.append(daemon)
        return daemon

    # Output

    def published(self) -> Counter[VersionPair]:
        """Pairs of versions that a reader of the duplicates topic sees."""
        pairs: Counter[VersionPair] = Counter()
        for record in self.broker.records(DUPLICATES):
            alert = decode_alert(record.value)
            for match in alert.matches:
                pairs[_pair((alert.document.id, alert.document.digest), (match.id, match.digest))] += 1
        return pairs

    def dead_letters(self) -> list[tuple[str, int, str]]:
        """Partition and offset of each dead letter, and its code; sorted."""
        headers = [read_headers(record.headers) for record in self.broker.records(DEAD_LETTERS)]
        return sorted((h["partition"], int(h["offset"]), h["error.code"]) for h in headers)

    def wrong(self) -> list[str]:
        """Return the mistakes in the outputs and metrics."""
        must, may = pairs_to_expect(self.records)
        every, _, incarnations = states_of(self.records)
        versions = {(state.id, state.digest): (state.id, state.version) for state in every}
        published: Counter[VersionPair] = Counter()
        complaints = []
        for pair, count in self.published().items():
            if pair not in may:
                complaints.append(f"invented {pair}")
                continue
            published[_pair(*(versions[state] for state in pair))] += count
        complaints += [f"lost {pair}" for pair in sorted(must - published.keys())]
        # A document inserted again after a deletion has a new version.
        allowed = {pair: math.prod(incarnations[document] for document, _ in pair) for pair in published}
        complaints += [f"doubled {pair}" for pair, count in sorted(published.items()) if count > allowed[pair]]
        poison = sorted(
            (str(position.partition), position.offset, sent.code)
            for sent, position in zip(self.records, self.positions, strict=True)
            if sent.code is not None
        )
        if self.dead_letters() != poison:
            complaints.append(f"dead letters {self.dead_letters()}, not {poison}")
        complaints += self._wrong_traces()
        return complaints + [c for daemon in self.everyone for c in unbalanced(daemon)]

    def _wrong_traces(self) -> list[str]:
        """Return the alerts without exactly the copied header of their document's record."""
        alerts = [(decode_alert(r.value).document.position, r.headers) for r in self.broker.records(DUPLICATES)]
        return [f"headers of {p}: {copied}" for p, copied in alerts if copied not in self.traces_of.get(p, [copied])]


def unbalanced(daemon: Daemon) -> list[str]:
    """Check that every record consumed was indexed, skipped or dead-lettered, by a daemon's own metrics."""
    consumed = daemon.metric("records_total")
    names = ("documents_indexed_total", "documents_deleted_total", "skipped_total", "dead_letters_total")
    parts = {name: daemon.metric(name) for name in names}
    return [] if consumed == sum(parts.values()) else [f"{daemon.name} consumed {consumed}, but {parts}"]


def _pair(a: Version, b: Version) -> VersionPair:
    return (a, b) if a <= b else (b, a)


@dataclass(frozen=True)
class State:
    """State of a document after one of its records.

    Attributes:
        id: Id of the document.
        digest: Digest of the content, as in alerts.
        version: Digest of the upserted text, which an append keeps.
        text: The whole text.
    """

    id: str
    digest: str
    version: str
    text: str


def states_of(records: Sequence[Sent]) -> tuple[list[State], dict[str, State | None], Counter[str]]:
    """Return every state of every document, its last state (None: deleted), and its number of incarnations."""
    every: list[State] = []
    last: dict[str, State | None] = {}
    incarnations: Counter[str] = Counter()
    for sent in records:
        if sent.code is not None:
            continue
        before = last.get(sent.id)
        if sent.op == "delete":
            last[sent.id] = None
            continue
        digest = content_digest(sent.text)
        if sent.op == "append":
            assert before is not None
            digest = blake2b(bytes.fromhex(before.digest) + digest, digest_size=16).digest()
            state = State(sent.id, digest.hex(), before.version, f"{before.text}\n{sent.text}")
        else:
            state = State(sent.id, digest.hex(), digest.hex(), sent.text)
            incarnations[sent.id] += before is None
        last[sent.id] = state
        every.append(state)
    return every, last, incarnations


def pairs_to_expect(records: Sequence[Sent]) -> tuple[set[VersionPair], set[VersionPair]]:
    """Return the pairs of versions that must be alerted, and the pairs of states that may be.

    Pairs of last states must be alerted: the later of the two records is compared with the last state of the other.
    """
    every, last, _ = states_of(records)
    states = list(dict.fromkeys(state for state in every if state.text.strip()))
    named = {str(number): state for number, state in enumerate(states)}
    near = expected_by_options([(number, state.text) for number, state in named.items()], OPTIONS)
    found = [(named[a], named[b]) for a, b in near if named[a].id != named[b].id]
    must = {
        _pair(*((state.id, state.version) for state in pair))
        for pair in found
        if all(last[state.id] is not None and last[state.id].digest == state.digest for state in pair)
    }
    return must, {_pair(*((state.id, state.digest) for state in pair)) for pair in found}


# Records


def a_text(rng: random.Random, length: int = 10) -> str:
    return " ".join(rng.choice(WORDS) for _ in range(length))


def edited(rng: random.Random, text: str) -> str:
    words = text.split()
    words[rng.randrange(len(words))] = rng.choice(WORDS)
    return " ".join(words)


def some_records(
    seed: int, count: int, *, partitions: int = 2, changes: float = 0.0, ends: float = 0.0, poison: bool = True
) -> list[Sent]:
    """Return documents, many of them similar, with some redeliveries and invalid records.

    Args:
        seed: Of the choice.
        count: Documents.
        partitions: All records of one id go to one of so many partitions.
        changes: How often a document gets a further version, of which some return to an earlier one.
        ends: Probability of an append or a deletion, perhaps with a new insertion.
        poison: Whether records that cannot be processed are among them.
    """
    rng = random.Random(seed)
    texts = [a_text(rng) for _ in range(1 + count // 8)]
    while len(texts) < count:
        like = rng.choice(texts)
        texts.append(edited(rng, like) if rng.random() < 0.6 else like)
    records = []
    for number, text in enumerate(texts):
        document, partition, versions = f"d{number}", rng.randrange(partitions), [text]
        while rng.random() < changes:
            versions.append(rng.choice([*versions[:-1], rng.choice(texts)]))
        for version in versions:
            records.append(Sent(document, version, partition))
            if rng.random() < ends:
                records.append(Sent(document, a_text(rng, 3), partition, op="append"))
        if rng.random() < ends / 2:
            deleted = Sent(document, "", partition, op="delete")
            inserted = Sent(document, rng.choice([text, rng.choice(texts)]), partition)
            records += [deleted, inserted] if rng.random() < 0.5 else [deleted]
        if rng.random() < 0.15 and records[-1].op != "append":
            records.append(records[-1])  # the producer sends it again
    if poison:
        others = [
            Sent("x", None, 0, "null_without_key"),
            Sent("x", "", 1, "not_json"),
            Sent("x", "", 1, "unreadable"),
            Sent("empty", " ", 1),
        ]
        for other in others:
            records.insert(rng.randrange(len(records) + 1), other)
    return records


# Acts


def store_fails(_world: World, moment: Moment) -> None:
    if moment.effect in STORE_METHODS:
        raise StoreUnavailable("made to fail")


def batch_refused(_world: World, moment: Moment) -> None:
    if moment.effect in FENCED_METHODS:
        raise BatchRefused("made to fail")


def broker_fails(_world: World, moment: Moment) -> None:
    if moment.effect in KAFKA_CALLS:
        raise BrokerUnavailable("made to fail")


def killed(_world: World, _moment: Moment) -> None:
    raise Killed


def rebalanced(world: World, _moment: Moment) -> None:
    world.broker.rebalance(GROUP)


def slow(turns: int) -> Act:
    """This daemon is frozen, but stays a member, while others take ``turns``."""
    return lambda world, _moment: world.others_work(turns)


def frozen(turns: int) -> Act:
    """This daemon is frozen beyond its session; others take over and take ``turns``; then it continues."""

    def act(world: World, moment: Moment) -> None:
        moment.daemon.leave_group()
        world.others_work(turns)

    return act


class Fate:
    """Draws events from a seed.

    Each seed has a few kinds of events of its own and rate: where everything happens at once, faults heal each other.

    Args:
        seed: Of the choice.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        #: Number of events after which a run ends without faults.
        self._left = 20
        self._share = self._rng.choice([0.03, 0.06, 0.12, 0.25])
        of_all: list[Act] = [killed, rebalanced, broker_fails, store_fails, batch_refused, self._interleave]
        self._acts = [*self._rng.sample(of_all, self._rng.randint(0, 3)), self._interleave]
        if self._rng.random() < 0.5:
            self._acts.append(self._freeze)

    def __call__(self, _number: int) -> Act | None:
        if self._left == 0 or self._rng.random() >= self._share:
            return None
        self._left -= 1
        return self._rng.choice(self._acts)

    def _interleave(self, world: World, _moment: Moment) -> None:
        if len(world.active) < 3:
            world.others_work(self._rng.randint(1, 6))

    def _freeze(self, world: World, moment: Moment) -> None:
        moment.daemon.leave_group()
        self._interleave(world, moment)


def a_random_run(seed: int, *, ends: float = 0.0, **options: Any) -> World:
    """Run one random world, with random daemons, records and faults, to its end.

    Args:
        seed: Of all choices.
        ends: Probability of appends and deletions.
        options: Of the world.
    """
    rng = random.Random(seed)
    partitions = rng.randint(1, 3)
    set_back = rng.random() < 0.3
    changes = rng.choice([0.0, 0.4])
    count = rng.randint(4, 12)
    poison = not set_back and rng.random() < 0.4
    records = some_records(seed, count, partitions=partitions, changes=changes, ends=ends, poison=poison)
    world = World(
        records,
        partitions=partitions,
        names=["a", "b", "c"][: rng.randint(1, 3)],
        batch_size=rng.randint(1, 4),
        plan=Fate(seed),
        joined=rng.random() < 0.7,
        grown=seed % 2 == 0,
        **options,
    ).run()
    # As an operator may: after a stop in good order, all of which the index knows to be committed.
    if set_back and world.index._high_water_marks == world.broker.committed(GROUP):
        world.stop_all()
        world.broker.commit(GROUP, {p: rng.randint(0, end) for p, end in world.ends.items()})
        world.start("later")
        world.run()
    return world
