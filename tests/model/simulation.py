"""One run: documents, faults and the order of all steps are drawn from a seed."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.model.daemon import IDLE, Daemon
from tests.model.documents import Operation, Texts
from tests.model.index import NEVER, NO_TOKEN, Clock, Index
from tests.model.kafka import Kafka
from tests.model.rules import ALL, Rules
from tests.model.store import Network
from tests.model.truth import Truth, Verdict

#: After so many steps nothing fails any more, so that a run comes to its end.
_FAULTS_END = 600
#: A run that takes longer is stuck.
_LONGEST = 20_000
#: Faults, with the probability that they have in a step of a run in which they occur.
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
#: Faults that the seed draws by themselves, so that they leave all else as it is.
_DRAWN_APART = ("recreate",)


@dataclass(frozen=True, slots=True)
class Climate:
    """What kind of run a seed stands for; few things at a time go wrong in many ways.

    Attributes:
        partitions_count: Input partitions.
        daemons_count: Daemons.
        docs_count: Documents.
        parts_count: Different texts.
        kinds: What producers do besides upserting each document once.
        faults: Which faults occur.
        doubt: Share of the store's calls whose outcome stays unknown.
        window: Greatest difference of record times of a pair; None for no limit and no expiry.
        slack: How late records may be committed, with a window.
        backlog: Whether all records are there at the beginning and nothing expires by itself; with a window.
        late: Whether all documents are listed as of a backlog while a partition without records holds everything back;
            with a window.
        ahead: Whether daemons poll a batch while the one before it is at work.
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
    backlog: bool = False
    late: bool = False
    ahead: bool = False


def draw_climate(rng: random.Random) -> Climate:
    """Choose what kind of run this is."""
    window = rng.choice((150, 300)) if rng.random() < 0.2 else None
    faults = _some(rng, tuple(name for name in _FAULTS if name not in _DRAWN_APART))
    if window is not None:
        faults -= {"flush", "go_back"}  # what is built anew lives longer than it should; shown without expiry
    return Climate(
        partitions_count=rng.randint(1, 3),
        daemons_count=rng.randint(1, 3),
        docs_count=rng.randint(3, 7),
        parts_count=rng.randint(2, 6),
        kinds=_some(rng, ("update", "delete", "append", "redeliver", "cross")),
        faults=faults,
        doubt=rng.choice((0, 0, 0.02, 0.1)),
        window=window,
    )


def _some(rng: random.Random, names: Sequence[str]) -> frozenset[str]:
    return frozenset(name for name in names if rng.random() < 0.5)


def draw_input(rng: random.Random, climate: Climate) -> list[tuple[int, int, Operation]]:
    """Return (time, partition, operation) of every record, in order of time.

    All records of one id go to one partition, where their order decides; only a document that never changes may be
    delivered again to another one.
    """
    sent: list[tuple[int, int, Operation]] = []
    spread, most = rng.choice((1, 60, 200)), 4
    if climate.window is not None:
        # Over one lifetime or several: documents are continued, changed and come back before and after they expire.
        lifetime = climate.window + (0 if climate.backlog else climate.slack)
        spread, most = rng.choice(((4 * climate.window, 4), (4 * lifetime, 12)))
    if climate.late:
        spread, most = 4 * (climate.window + climate.slack), 4
    for doc in range(climate.docs_count):
        partition = rng.randrange(climate.partitions_count)
        crossing = "cross" in climate.kinds and rng.random() < 0.3 and not climate.backlog
        times = sorted(rng.randrange(spread) for _ in range(1 if crossing else rng.randint(1, most)))
        used: list[int] = []
        for number, time in enumerate(times):
            operation = _draw_operation(rng, climate, doc, time, used, first=number == 0, only=crossing)
            if operation is None:
                continue
            sent.append((time, partition, operation))
            if operation.part is not None and ("redeliver" in climate.kinds or crossing) and rng.random() < 0.3:
                again = rng.randrange(climate.partitions_count) if crossing else partition
                later = time if operation.kind == "append" else time + rng.randrange(20)
                later = min(later, times[number + 1]) if number + 1 < len(times) else later
                sent.append((later, again, operation._replace(time=later)))
            if "move" in climate.kinds and not climate.backlog:
                partition = rng.randrange(climate.partitions_count)
    # Sorting keeps the order of what is sent at one time.
    sent.sort(key=lambda entry: entry[0])
    return [(0, *entry[1:]) for entry in sent] if climate.backlog else sent


def _draw_operation(
    rng: random.Random, climate: Climate, doc: int, time: int, used: list[int], *, first: bool, only: bool
) -> Operation | None:
    part = rng.randrange(climate.parts_count)
    kinds = sorted(climate.kinds & {"update", "delete", "append"})
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


class Simulation:
    """The world of one run.

    Args:
        seed: Decides everything.
        rules: The rules.
        fixed: What of the climate is not left to the seed.
    """

    def __init__(self, seed: int, rules: Rules = ALL, **fixed: Any) -> None:
        self._rng = rng = random.Random(seed)
        self._rules = rules
        climate = replace(draw_climate(rng), backlog=random.Random(f"backlog {seed}").random() < 0.5)
        climate = replace(climate, late=not climate.backlog and random.Random(f"late {seed}").random() < 0.5)
        if climate.window is None and random.Random(f"recreate {seed}").random() < 0.3:
            # What is built anew lacks the documents of the deleted topic.
            climate = replace(climate, faults=(climate.faults - {"flush", "go_back"}) | {"recreate"})
        climate = replace(climate, ahead=random.Random(f"ahead {seed}").random() < 0.5)
        climate = replace(climate, **fixed)
        has_window = climate.window is not None
        climate = replace(climate, backlog=climate.backlog and has_window, late=climate.late and has_window)
        self.climate = climate
        self._ahead_rng = random.Random(f"batches ahead {seed}") if climate.ahead else None
        self._texts = Texts(rng, climate.parts_count)
        self._input = draw_input(rng, climate)[::-1]
        self._clock = Clock()
        self.kafka = Kafka(climate.partitions_count + climate.late)
        lifetime = None
        if climate.window is not None and not climate.backlog:
            lifetime = climate.window + (climate.slack if rules.lifetime_covers_outages else 0)
        self.index = Index(self._clock, lifetime, rules)
        self._network = Network(rng, climate.doubt)
        self._running: list[Daemon] = [self._daemon() for _ in range(climate.daemons_count)]
        self._zombies: list[Daemon] = []
        #: Which of the running had nothing to do, since anything has happened.
        self._idle: set[int] = set()
        self._snapshot = self.index.snapshot()
        self._rates = {name: _FAULTS[name] for name in sorted(climate.faults)}
        self._faulty = sum(self._rates.values())
        self.kafka.rebalance(self._running)

    def _daemon(self, network: Network | None = None) -> Daemon:
        window = self.climate.window
        return Daemon(
            self.kafka,
            self.index,
            network or self._network,
            self._texts,
            window,
            self._rules,
            self._rng,
            backlog=self.climate.backlog or self.climate.late,
            ahead=self._ahead_rng,
        )

    def run(self) -> Verdict:
        """Run to the end and judge."""
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
            raise AssertionError("the run does not come to its end")
        while self._network.late:
            self._network.arrive_late()
        slack = NEVER if self.climate.backlog else self.climate.slack
        return Truth(self.kafka, self._texts, self.climate.window, slack).judge(self.index)

    def _step(self, step: int) -> None:
        """Let one thing happen: a fault, a step of a process taken for dead, a late call, a daemon's step."""
        if step < _FAULTS_END and self._rng.random() < self._faulty:
            fault = self._rng.choices(tuple(self._rates), tuple(self._rates.values()))[0]
            getattr(self, f"_{fault}")()
            self._idle.clear()
        elif self._zombies and self._rng.random() < 0.2:
            self._step_zombie(step)
        elif self._network.late and self._rng.random() < 0.1:
            self.index.note("a call that was stuck arrives")
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
        """Kill a process; another one takes its place."""
        self.index.note("kill")
        self._running[self._rng.randrange(len(self._running))] = self._daemon()
        self.kafka.rebalance(self._running)

    def _freeze(self) -> None:
        """Stop a process beyond the session time-out; others take over, and later it goes on where it was."""
        self.index.note("freeze")
        at = self._rng.randrange(len(self._running))
        self._zombies.append(self._running[at])
        self._running[at] = self._daemon()
        self.kafka.rebalance(self._running)

    def _restart(self) -> None:
        """Start another process of the same static member: the generation stays, and the old process still runs."""
        self.index.note("restart")
        at = self._rng.randrange(len(self._running))
        old, new = self._running[at], self._daemon()
        self._zombies.append(old)
        self._running[at] = new
        self.kafka.replace_member(old, new)

    def _rebalance(self) -> None:
        self.index.note("rebalance")
        self._rng.shuffle(self._running)
        self.kafka.rebalance(self._running)

    def _set_back(self) -> None:
        """Set offsets back; Kafka lets that happen only to a group that has stopped."""
        if self._zombies or not self._is_at_rest():
            return
        self.index.note("set back")
        partition = self._rng.randrange(len(self.kafka.log))
        self.kafka.set_back(partition, self._rng.randint(0, self.kafka.committed[partition]))
        self._running = [self._daemon() for _ in self._running]
        self.kafka.rebalance(self._running)
        # An index from before would look like that of a group that has never been further: nothing could notice.
        self._snapshot = self.index.snapshot()

    def _recreate(self) -> None:
        """Delete the topic when nothing in it is uncommitted, create it again, send new documents and some old ones."""
        if self.climate.backlog or not (any(self.kafka.log) and self.kafka.all_done()):
            return
        self.index.note("recreate")
        sent = [
            (partition, operation)
            for partition, log in enumerate(self.kafka.log)
            for operation in log
            if operation.kind == "upsert" and operation.time < self._clock.now
        ]
        self.kafka.recreate()
        for partition, operation in self._rng.sample(sent, min(self._rng.randrange(4), len(sent))):
            self.kafka.log[partition].append(operation._replace(time=self._clock.now))
        first = self.climate.docs_count + 2 * self.kafka.topic
        for doc in range(first, first + 2):
            part = self._rng.randrange(self.climate.parts_count)
            operation = Operation("upsert", doc, part, self._clock.now)
            self._rng.choice(self.kafka.log).append(operation)

    def _is_at_rest(self) -> bool:
        """Tell whether everything that is committed is noted in the index."""
        slots, kafka = self.index.slots, self.kafka
        return self.index.exists and all(
            slots[partition % len(slots)].marks.get(partition, 0) == committed
            and all(slot.announced.get(partition, NO_TOKEN) >= (kafka.tokens[partition] or NO_TOKEN) for slot in slots)
            for partition, committed in enumerate(kafka.committed)
        )

    def _flush(self) -> None:
        """Lose the index, but not while offsets are set back: nothing tells a rebuild how far they had been."""
        if not self.kafka.is_set_back():
            self.index.note("flush")
            self.index.flush()

    def _go_back(self) -> None:
        """Save the index, or come back with what was saved last."""
        if self._rng.random() < 0.6:
            self.index.note("save")
            self._snapshot = self.index.snapshot()
        elif not self.kafka.is_set_back():
            self.index.note("go back")
            self.index.restore(self._snapshot)
            self._network.late.clear()  # a call cannot outlive its connection
