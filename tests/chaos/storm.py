"""Random faults while documents are processed, the verdict, and the proof that the faults had effects.

A run without effective faults proves nothing. Each kind of fault must have had an effect in every stage of a batch;
otherwise the run fails, even if no pair is lost or doubled.
"""

import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests import servers
from tests.chaos.faults import KINDS, POINTS, Strike, effects_of
from tests.chaos.stream import endless
from tests.chaos.verdict import SUPPRESSING, Verdict, judge_topics
from tests.chaos.world import Producing, WatchedDaemon, World, has_read_ahead, last_point, stage_of
from tests.daemons import Installation

#: Partitions of the input topic.
PARTITIONS = 6
#: Largest number of records in a batch: so few that an outage leaves a backlog, in which batches are read ahead.
BATCH_RECORDS = 5
#: Longest wait for a daemon to reach the planned point, in seconds; then the fault begins at another point.
REACH_S = 60.0
#: Time after a fault in which effects are searched, in seconds.
EFFECT_S = 12.0
#: Most repetitions of a fault that missed its stage or had no effect; on a busy machine more do.
REPEATS = 5
#: Longest time that a released victim runs before the fault, in seconds.
RUN_S = 0.012
#: Longest time until all records are committed after the last fault, in seconds.
DRAIN_S = 300.0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run.

    Attributes:
        seed: Decides records, faults, victims and points.
        kills: Number of kills.
        daemons: Number of daemons.
        kinds: Other kinds of faults; each occurs once in every stage.
        per_second: Records produced per second.
        changes: Share of records that change a document.
        ends: Share of records that append to a document, delete it, or insert it again.
        broken: Broken loop of the daemons; None is the correct loop.
        suppressing: Whether rules of the profile suppress pairs.
        layout: Bucket layout of the index.
    """

    seed: int
    kills: int
    daemons: int = 3
    kinds: tuple[str, ...] = tuple(kind for kind in KINDS if kind != "kill")
    per_second: float = 30.0
    changes: float = 0.0
    ends: float = 0.0
    broken: str | None = None
    suppressing: bool = False
    layout: str = "sets"


#: A short run: kills in every stage, and two faults that take a second.
SHORT = Options(seed=4, kills=6, kinds=("redis-scripts-forgotten", "redis-cut"))


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned fault.

    Attributes:
        kind: Kind of the fault.
        stage: Stage of the victim.
        point: Point of that stage at which the victim is held.
        running: Whether the victim is released before the fault, which then begins some milliseconds later, usually in
            the middle of a step.
    """

    kind: str
    stage: str
    point: str
    running: bool = False


@dataclass
class Struck:
    """A fault that has occurred.

    Attributes:
        at_s: Beginning, in seconds since the start of the run.
        kind: Kind of the fault.
        victim: Name of the daemon.
        planned: Planned point.
        place: Last point that the victim had passed.
        stage: Stage of that point.
        lasted_s: Duration in seconds.
        ahead: Whether the victim had read a batch ahead.
        effects: Effects on the victim and the servers.
        stops_s: Time that each requested stop took, in seconds.
    """

    at_s: float
    kind: str
    victim: str
    planned: str
    place: str
    stage: str
    lasted_s: float = 0.0
    ahead: bool = False
    effects: list[str] = field(default_factory=list)
    stops_s: list[float] = field(default_factory=list)


@dataclass
class Report:
    """Report of a run.

    Attributes:
        options: Options of the run.
        struck: Faults.
        verdict: Mistakes in the topics.
        produced: Number of records in the input topic.
        seconds: Duration.
        unplanned: Daemons that ended unexpectedly.
        trouble: Failures of the run itself.
    """

    options: Options
    struck: list[Struck]
    verdict: Verdict | None = None
    produced: int = 0
    seconds: float = 0.0
    unplanned: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)

    def missing(self) -> list[tuple[str, str]]:
        """Return the kinds of faults, each with a stage in which it had no effect."""
        strikes = Counter((one.kind, one.stage) for one in self.struck if one.effects)
        kinds = dict.fromkeys(one.kind for one in self.struck)
        return [(kind, stage) for kind in kinds for stage in POINTS if not strikes[kind, stage]]

    def unproven(self) -> list[str]:
        """Describe what the run does not prove."""
        missing = [f"{kind} in {stage}" for kind, stage in self.missing()]
        return missing if self.struck else ["everything: there was no fault"]

    @property
    def good(self) -> bool:
        """Whether no pair was lost or doubled, and the run proves it."""
        right = self.verdict is not None and self.verdict.good
        return right and not (self.unproven() or self.unplanned or self.trouble)

    def lines(self) -> Iterable[str]:
        """Yield the lines of the report."""
        counts = Counter((one.kind, one.stage) for one in self.struck if one.effects)
        stages = [*POINTS, "between"]
        yield ""
        yield f"{'fault':24}" + "".join(f"{stage:>10}" for stage in stages) + "   effects"
        for kind in dict.fromkeys(one.kind for one in self.struck):
            effects = Counter(effect for one in self.struck if one.kind == kind for effect in one.effects)
            shown = ", ".join(effect for effect, _ in effects.most_common(3))
            yield f"{kind:24}" + "".join(f"{counts[kind, stage]:>10}" for stage in stages) + f"   {shown}"
        stops = [stop for one in self.struck for stop in one.stops_s]
        yield f"stops: {len(stops)}, longest {max(stops, default=0.0):.1f} s"
        yield f"struck with a batch ahead: {sum(one.ahead for one in self.struck)}"
        yield f"seed {self.options.seed}, layout {self.options.layout}"
        yield f"{len(self.struck)} faults, {self.produced} records, {self.seconds:.0f} s"
        yield from (f"a daemon ended unexpectedly: {text}" for text in self.unplanned)
        yield from (f"trouble: {text}" for text in self.trouble)
        if self.unproven():
            yield f"PROVES NOTHING about: {', '.join(self.unproven())}"
        yield str(self.verdict)

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        verdict = self.verdict
        content: dict[str, Any] = {
            **asdict(self),
            "lost": None if verdict is None else verdict.lost_count,
            "doubled": None if verdict is None else verdict.doubled_count,
            "invented": None if verdict is None else verdict.invented_count,
            "unproven": self.unproven(),
            "good": self.good,
        }
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def plan(options: Options) -> list[Planned]:
    """Return the faults of a seed: kills and all other kinds, each in every stage, in random order."""
    rng = random.Random(f"plan {options.seed}")
    stages = list(POINTS)
    kinds = ["kill"] * options.kills + [kind for kind in options.kinds for _ in stages]
    turn: Counter[str] = Counter()
    planned = []
    for kind in kinds:
        stage = stages[turn[kind] % len(stages)]
        turn[kind] += 1
        # The first faults of a kind cover all stages; of further kills every second one hits a running daemon.
        running = turn[kind] > len(stages) and turn[kind] % 2 == 0
        planned.append(Planned(kind, stage, rng.choice(POINTS[stage]), running))
    rng.shuffle(planned)
    return planned


class Storm:
    """One run.

    Args:
        world: The servers.
        options: Options of the run.
        say: Called with each line of progress.
    """

    def __init__(self, world: World, options: Options, say: Callable[[str], None] = print) -> None:
        self._world = world
        self._options = options
        self._say = say
        self._rng = random.Random(f"storm {options.seed}")
        given = {"batch_records": BATCH_RECORDS, "bucket_layout": options.layout}
        self._installation: Installation = world.install(PARTITIONS, **given)
        names = "abcdefgh"[: options.daemons]
        self._settings = SUPPRESSING if options.suppressing else {}
        self._daemons = [WatchedDaemon(self._installation, name, self._settings, options.broken) for name in names]
        self._spares: list[WatchedDaemon] = []
        self._report = Report(options, [])
        self._began = time.monotonic()

    def run(self) -> Report:
        """Run all planned faults, wait until all records are committed, and judge."""
        kafka, topic = self._installation.kafka, self._installation.topic
        try:
            for daemon in self._daemons:
                daemon.start()
            records = endless(self._options.seed, self._options.changes, self._options.ends)
            with Producing(kafka, topic, records, self._options.per_second):
                for daemon in self._daemons:
                    daemon.wait_passed("after_poll", timeout_s=120)
                for planned in plan(self._options):
                    self._strike(planned)
                for _ in range(REPEATS):
                    # On a busy machine a daemon may reach its point too late.
                    for kind, stage in self._report.missing():
                        self._strike(Planned(kind, stage, self._rng.choice(POINTS[stage])))
            self._drain()
        except (AssertionError, TimeoutError, OSError, subprocess.SubprocessError) as error:
            self._report.trouble.append(f"{type(error).__name__}: {error}")
        finally:
            for daemon in [*self._daemons, *self._spares]:
                daemon.__exit__(None, None, None)
        self._report.verdict = judge_topics(
            kafka, topic, self._installation.duplicates, suppressing=self._options.suppressing
        )
        self._report.seconds = time.monotonic() - self._began
        return self._report

    def _strike(self, planned: Planned) -> None:
        victim = self._reach(planned)
        if planned.running:
            victim.release()
            time.sleep(self._rng.uniform(0, RUN_S))
        struck_ns = time.monotonic_ns()
        trace, place = victim.trace, victim.place() or "start"
        struck = Struck(
            round(time.monotonic() - self._began, 2), planned.kind, victim.name, planned.point, place, stage_of(place)
        )
        struck.ahead = has_read_ahead(trace)
        others = [daemon for daemon in self._daemons if daemon is not victim]
        strike = Strike(self._world, victim, others, self._spare, self._rng)
        self._report.struck.append(struck)
        self._say(f"{struck.at_s:8.1f} s  {struck.kind:24} {victim.name} at {place} ({struck.stage})")
        try:
            KINDS[planned.kind](strike)
        finally:
            victim.release()
        struck.lasted_s = round((time.monotonic_ns() - struck_ns) / 1e9, 2)
        struck.effects += strike.effects
        struck.stops_s += strike.stops_s
        self._await_effects(struck, victim, trace, struck_ns)
        self._restart_ended()

    def _reach(self, planned: Planned) -> WatchedDaemon:
        """Hold a daemon at the planned point: the first one that reaches it."""
        running = [daemon for daemon in self._daemons if daemon.running]
        self._rng.shuffle(running)
        for daemon in running:
            daemon.aim(planned.point)
        try:
            servers.wait_until(lambda: any(daemon.held for daemon in running), REACH_S, planned.point)
        except TimeoutError:
            self._say(f"{'':10}  no daemon reached {planned.point} in {REACH_S:g} s")
        held = [daemon for daemon in running if daemon.held]
        victim = (held or running)[0]
        for daemon in running:
            if daemon is not victim:
                daemon.release()
        return victim

    def _await_effects(self, struck: Struck, victim: WatchedDaemon, trace: Path, struck_ns: int) -> None:
        """Wait for an effect on the victim, or for ``EFFECT_S``."""
        if victim.trace != trace:  # it ended, and was started with a new trace
            struck.effects.append("ended")
            if struck.kind == "kill":
                struck.place = last_point(trace) or "start"
                struck.stage = stage_of(struck.place)
            return
        since = max((p.at_ns for p in victim.passages() if p.at_ns <= struck_ns), default=0)

        def effects() -> list[str]:
            found = [
                p for p in victim.passages(since) if " " not in p.point and not p.point.startswith(("held", "rel"))
            ]
            return list(dict.fromkeys(effects_of(found)))

        try:
            struck.effects += servers.wait_until(effects, EFFECT_S if not struck.effects else 1.0, "an effect")
        except TimeoutError:
            if not struck.effects:
                self._say(f"{'':10}  no effect")

    def _spare(self) -> WatchedDaemon:
        daemon = WatchedDaemon(self._installation, f"spare{len(self._spares)}", self._settings, self._options.broken)
        self._spares.append(daemon)
        return daemon

    def _restart_ended(self) -> None:
        """Report and restart daemons that ended unexpectedly, as a supervisor does."""
        for daemon in self._daemons:
            if not daemon.running:
                tail = daemon.log.read_text(encoding="utf-8", errors="replace").splitlines()[-1:]
                self._report.unplanned.append(f"{daemon.name} with {daemon.process.returncode}: {' '.join(tail)}")
                daemon.start()

    def _drain(self) -> None:
        """Wait until all records are committed, and stop the daemons."""
        wanted = len(servers.read_topic(self._installation.kafka, self._installation.topic))
        self._report.produced = wanted

        def done() -> bool:
            self._restart_ended()
            return self._installation.committed_count() >= wanted

        servers.wait_until(done, DRAIN_S, f"{wanted} committed records")
        for daemon in self._daemons:
            if code := daemon.stop():
                self._report.unplanned.append(f"{daemon.name} with {code} at the end")
