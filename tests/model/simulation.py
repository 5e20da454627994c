"""One run of the model: documents, faults and the order of all steps are drawn from a seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.model.daemon import IDLE, Daemon
from tests.model.documents import NOTHING_SUPPRESSED, SOURCES, Operation, Suppression, Texts, draw_suppression
from tests.model.index import NO_ATTEMPT, SLOTS, Announced, Clock, Index
from tests.model.kafka import Kafka
from tests.model.rules import ALL, Rules
from tests.model.store import Network
from tests.model.truth import Truth, Verdict

#: Step after which no fault occurs, so that each run ends.
_FAULTS_END = 600
#: Steps after which a run is stuck.
_LONGEST = 20_000
#: Faults, with their probability per step in a run that has them.
_FAULTS = {
    "kill": 0.02,
    "freeze": 0.02,
    "rebalance": 0.01,
    "restart": 0.02,
    "set_back": 0.03,
    "flush": 0.004,
    "go_back": 0.01,
    "recreate": 0.05,
}
#: Faults with a random source of their own, so that they do not change the other draws.
_DRAWN_APART = ("recreate",)


@dataclass(frozen=True, slots=True)
class Scenario:
    """Parameters of a run. Each run combines few faults in many orders.

    Attributes:
        partitions_count: Number of input partitions.
        daemons_count: Number of daemons.
        docs_count: Number of documents.
        parts_count: Number of different texts.
        kinds: Operations besides one upsert of each document.
        faults: Faults that occur.
        doubt: Share of calls with an unknown outcome.
        window: Greatest difference of record times of a pair; None for no limit and no expiry.
        slack: Longest time from a record to its commit, with a window.
        ahead: Whether daemons read ahead.
        containment: Whether documents are also near-duplicates by containment.
        suppression: Rules about what is alerted.
        loss_rate: Probability of the fault "flush" per step.
        end_marked: Probability per step that the broker marks the end of a transaction.
        retention: How long a rebuild finds records; None for ever.
        servers_apart: Whether each slot is on a server of its own and goes back alone. A batch in progress may then
            lose a pair, whose claim is on another server than its pending matches (docs/guarantees.md).
        calls_expire: Whether the numbers of calls expire while a daemon is idle, as after an hour. Then the first batch
            after a failover may take an append to a document of the gap for one without a document.
    """

    partitions_count: int
    daemons_count: int
    docs_count: int
    parts_count: int
    kinds: frozenset[str]
    faults: frozenset[str]
    doubt: float
    window: int | None
    slack: int = 400
    ahead: bool = False
    containment: bool = False
    suppression: Suppression = NOTHING_SUPPRESSED
    loss_rate: float = _FAULTS["flush"]
    end_marked: float = 0.05
    retention: int | None = None
    servers_apart: bool = False
    calls_expire: bool = False


def draw_scenario(rng: random.Random) -> Scenario:
    """Draw the parameters of a run."""
    window = rng.choice((150, 300)) if rng.random() < 0.2 else None
    faults = _some(rng, tuple(name for name in _FAULTS if name not in _DRAWN_APART))
    kinds = _some(rng, ("update", "delete", "append", "redeliver", "cross"))
    if window is not None and faults & {"flush", "go_back"}:
        kinds -= {"append"}  # a rebuild lacks documents that were only appended to for longer than a window
    return Scenario(
        partitions_count=rng.randint(1, 3),
        daemons_count=rng.randint(1, 3),
        docs_count=rng.randint(3, 7),
        parts_count=rng.randint(2, 6),
        kinds=kinds,
        faults=faults,
        doubt=rng.choice((0, 0, 0.02, 0.1)),
        window=window,
    )


def _some(rng: random.Random, names: Sequence[str]) -> frozenset[str]:
    return frozenset(name for name in names if rng.random() < 0.5)


def draw_input(rng: random.Random, scenario: Scenario) -> list[tuple[int, int, Operation]]:
    """Return (time, partition, operation) of every record, in order of time.

    All records of one id go to one partition, where their order decides; only a document that never changes may be
    delivered again to another one.
    """
    sent: list[tuple[int, int, Operation]] = []
    spread, most = rng.choice((1, 60, 200)), 4
    if scenario.window is not None:
        # Over one lifetime or several: documents are changed and return before and after they expire.
        lifetime = scenario.window + scenario.slack
        spread, most = rng.choice(((4 * scenario.window, 4), (4 * lifetime, 12)))
    for doc in range(scenario.docs_count):
        partition = rng.randrange(scenario.partitions_count)
        crossing = "cross" in scenario.kinds and rng.random() < 0.3
        times = sorted(rng.randrange(spread) for _ in range(1 if crossing else rng.randint(1, most)))
        used: list[int] = []
        for number, time in enumerate(times):
            operation = _draw_operation(rng, scenario, doc, time, used, first=number == 0, only=crossing)
            if operation is None:
                continue
            sent.append((time, partition, operation))
            if operation.part is not None and ("redeliver" in scenario.kinds or crossing) and rng.random() < 0.3:
                again = rng.randrange(scenario.partitions_count) if crossing else partition
                later = time if operation.kind == "append" else time + rng.randrange(20)
                later = min(later, times[number + 1]) if number + 1 < len(times) else later
                sent.append((later, again, operation._replace(time=later)))
            if "move" in scenario.kinds:
                partition = rng.randrange(scenario.partitions_count)
    # The sort is stable: operations of the same time keep their order.
    sent.sort(key=lambda entry: entry[0])
    return sent


def _draw_operation(
    rng: random.Random, scenario: Scenario, doc: int, time: int, used: list[int], *, first: bool, only: bool
) -> Operation | None:
    part = rng.randrange(scenario.parts_count)
    kinds = sorted(scenario.kinds & {"update", "delete", "append"})
    if only or (first and (rng.random() < 0.9 or not kinds)):
        used.append(part)
        return Operation("upsert", doc, part, time)
    if not kinds:
        return None
    kind = rng.choice(kinds)
    if kind == "delete":
        return Operation("delete", doc, None, time)
    if kind == "append":
        return Operation("append", doc, part, time)
    if used and rng.random() < 0.5:
        part = rng.choice(used)  # a return to an older text
    used.append(part)
    return Operation("upsert", doc, part, time)


def with_sources(rng: random.Random, sent: Sequence[tuple[int, int, Operation]]) -> list[tuple[int, int, Operation]]:
    """Return the records with sources; all records of one text of a document have the same."""
    drawn: dict[tuple[str, int, int | None], int | None] = {}
    for _, _, operation in sent:
        drawn.setdefault(operation[:3], rng.choice((None, *range(SOURCES))))
    return [(time, partition, operation._replace(source=drawn[operation[:3]])) for time, partition, operation in sent]


class Simulation:
    """The world of one run.

    Args:
        seed: Decides everything.
        rules: The rules.
        fixed: Parameters that the seed does not decide.
    """

    def __init__(self, seed: int, rules: Rules = ALL, **fixed: Any) -> None:
        self._rng = rng = random.Random(seed)
        self._rules = rules
        scenario = draw_scenario(rng)
        if scenario.window is None and random.Random(f"recreate {seed}").random() < 0.3:
            # A rebuilt index lacks the documents of the deleted topic.
            scenario = replace(scenario, faults=(scenario.faults - {"flush", "go_back"}) | {"recreate"})
        scenario = replace(scenario, ahead=random.Random(f"ahead {seed}").random() < 0.5)
        scenario = replace(scenario, containment=random.Random(f"containment {seed}").random() < 0.3)
        apart = random.Random(f"suppression {seed}")
        if apart.random() < 0.3:
            scenario = replace(scenario, suppression=draw_suppression(apart))
        scenario = replace(scenario, **fixed)
        self.scenario = scenario
        self._broker_rng = random.Random(f"broker {seed}")
        self._ahead_rng = random.Random(f"batches ahead {seed}") if scenario.ahead else None
        self._texts = Texts(rng, scenario.parts_count, by_containment=scenario.containment)
        self._input = with_sources(apart, draw_input(rng, scenario))[::-1]
        self._clock = Clock()
        self.kafka = Kafka(scenario.partitions_count, scenario.retention)
        lifetime = None
        if scenario.window is not None:
            lifetime = scenario.window + (scenario.slack if rules.lifetime_covers_outages else 0)
        self.index = Index(self._clock, lifetime, rules, servers_apart=scenario.servers_apart)
        self._network = Network(rng, scenario.doubt)
        self._running: list[Daemon] = [self._daemon() for _ in range(scenario.daemons_count)]
        self._zombies: list[Daemon] = []
        #: Daemons that had no work since the last event.
        self._idle: set[int] = set()
        self._snapshot = self.index.snapshot()
        rates = _FAULTS | {"flush": scenario.loss_rate}
        self._rates = {name: rates[name] for name in sorted(scenario.faults)}
        self._faulty = sum(self._rates.values())
        self.kafka.rebalance(self._running)

    def _daemon(self, network: Network | None = None) -> Daemon:
        window = self.scenario.window
        return Daemon(
            self.kafka,
            self.index,
            network or self._network,
            self._texts,
            window,
            self._rules,
            self._rng,
            suppression=self.scenario.suppression,
            calls_expire=self.scenario.calls_expire,
            ahead=self._ahead_rng,
        )

    def run(self) -> Verdict:
        """Run to the end, and compare with the truth."""
        for step in range(_LONGEST):
            self._produce()
            if len(self._idle) == len(self._running):
                if self._input:
                    self._clock.now = max(self._clock.now, self._input[-1][0])
                    self._idle.clear()
                    continue
                if self._is_over():
                    break
            self._clock.now += 1
            self._step(step)
        else:
            return Verdict(unfinished=(_LONGEST,))
        while self._network.late:
            self._network.arrive_late()
        scenario = self.scenario
        return Truth(self.kafka, self._texts, scenario.window, scenario.slack, scenario.suppression).judge(self.index)

    def _step(self, step: int) -> None:
        """Take one step: a fault, a step of a replaced process, a delayed call, or a step of a daemon."""
        if step < _FAULTS_END and self._rng.random() < self._faulty:
            fault = self._rng.choices(tuple(self._rates), tuple(self._rates.values()))[0]
            getattr(self, f"_{fault}")()
            self._idle.clear()
        elif self._zombies and self._rng.random() < 0.2:
            self._step_zombie(step)
        elif (unmarked := self.kafka.unmarked()) and self._broker_rng.random() < self.scenario.end_marked:
            self.index.trace_event("the end of a transaction is marked")
            # A transaction that is not committed is aborted: its producer has died, or its time-out has passed.
            self._broker_rng.choice(unmarked).ended = True
        elif self._network.late and self._rng.random() < 0.1:
            self.index.trace_event("a call that was stuck arrives")
            self._network.arrive_late()
        else:
            self._step_daemon()

    def _step_daemon(self) -> None:
        at = self._rng.randrange(len(self._running))
        if next(self._running[at].steps) is IDLE:
            self._idle.add(at)
        else:
            self._idle.clear()

    def _produce(self) -> None:
        while self._input and self._input[-1][0] <= self._clock.now:
            _, partition, operation = self._input.pop()
            self.kafka.log[partition].append(operation)

    def _is_over(self) -> bool:
        return self.kafka.all_done() and not self._zombies

    def _step_zombie(self, step: int) -> None:
        zombie = self._rng.choice(self._zombies)
        if next(zombie.steps) is IDLE or (step > _FAULTS_END and self._rng.random() < 0.05):
            self._zombies.remove(zombie)

    # Faults

    def _kill(self) -> None:
        """Kill a process; a new process replaces it."""
        self.index.trace_event("kill")
        self._running[self._rng.randrange(len(self._running))] = self._daemon()
        self.kafka.rebalance(self._running)

    def _freeze(self) -> None:
        """Freeze a process beyond the session timeout; others take over, and later it continues."""
        self.index.trace_event("freeze")
        at = self._rng.randrange(len(self._running))
        self._zombies.append(self._running[at])
        self._running[at] = self._daemon()
        self.kafka.rebalance(self._running)

    def _restart(self) -> None:
        """Start another process of the same static member; the generation stays, and the old process continues."""
        self.index.trace_event("restart")
        at = self._rng.randrange(len(self._running))
        old, new = self._running[at], self._daemon()
        self._zombies.append(old)
        self._running[at] = new
        self.kafka.replace_member(old, new)

    def _rebalance(self) -> None:
        self.index.trace_event("rebalance")
        self._rng.shuffle(self._running)
        self.kafka.rebalance(self._running)

    def _set_back(self) -> None:
        """Set offsets back; Kafka allows it only for a stopped group."""
        if self._zombies or not self._is_at_rest():
            return
        self.index.trace_event("set back")
        partition = self._rng.randrange(len(self.kafka.log))
        self.kafka.set_back(partition, self._rng.randint(0, self.kafka.committed[partition]))
        self._running = [self._daemon() for _ in self._running]
        self.kafka.rebalance(self._running)
        # An earlier snapshot would look like that of a group that was never further; nothing could detect it.
        self._snapshot = self.index.snapshot()

    def _recreate(self) -> None:
        """Delete a completely committed topic, create it again, and send new documents and some old ones."""
        if not (any(self.kafka.log) and self.kafka.all_done()):
            return
        self.index.trace_event("recreate")
        sent = [
            (partition, operation)
            for partition, log in enumerate(self.kafka.log)
            for operation in log
            if operation.kind == "upsert" and operation.time < self._clock.now
        ]
        self.kafka.recreate()
        for partition, operation in self._rng.sample(sent, min(self._rng.randrange(4), len(sent))):
            self.kafka.log[partition].append(operation._replace(time=self._clock.now))
        first = self.scenario.docs_count + 2 * self.kafka.topic
        for doc in range(first, first + 2):
            part = self._rng.randrange(self.scenario.parts_count)
            operation = Operation("upsert", doc, part, self._clock.now)
            self._rng.choice(self.kafka.log).append(operation)

    def _is_at_rest(self) -> bool:
        """Tell whether the index knows all committed offsets."""
        slots, kafka = self.index.slots, self.kafka
        return self.index.exists and all(
            slots[partition % len(slots)].marks.get(partition, 0) == committed
            and all(
                slot.announced.get(partition, Announced()).attempt_id >= (kafka.attempt_ids[partition] or NO_ATTEMPT)
                for slot in slots
            )
            for partition, committed in enumerate(kafka.committed)
        )

    def _flush(self) -> None:
        """Lose the index, unless offsets are set back: a rebuild cannot know how far they had been."""
        if not self.kafka.is_set_back():
            self.index.trace_event("flush")
            self.index.flush()

    def _go_back(self) -> None:
        """Save the index, or return to the saved state."""
        if self._rng.random() < 0.6:
            self.index.trace_event("save")
            self._snapshot = self.index.snapshot()
        elif not self.kafka.is_set_back():
            slots = self._broker_rng.sample(range(SLOTS), 1) if self.scenario.servers_apart else range(SLOTS)
            self.index.trace_event("go back", slots)
            self.index.restore(self._snapshot, slots)
            self._network.late.clear()  # a call cannot outlive its connection
