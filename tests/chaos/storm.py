"""Random faults while documents are processed, the verdict, and the proof that the faults had effects.

A run without effective faults proves nothing. Each kind of fault must have had an effect in every stage of a batch;
otherwise the run fails, even if no pair is lost or doubled.
"""

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests import servers
from tests.chaos import losses
from tests.chaos.evidence import keep_evidence
from tests.chaos.faults import KINDS, POINTS, Strike, effects_of
from tests.chaos.losses import LOSSES
from tests.chaos.report import Options, Report, Struck
from tests.chaos.stream import endless
from tests.chaos.verdict import SUPPRESSING, judge_topics
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
#: A short run: kills in every stage, and two faults that take a second.
SHORT = Options(seed=4, kills=6, kinds=("redis-scripts-forgotten", "redis-cut"))


@dataclass(frozen=True, slots=True)
class Planned:
    """A planned fault, and the stage and the point at which the victim is held.

    If ``running``, the victim is released before the fault, which then begins some milliseconds later, usually in the
    middle of a step.
    """

    kind: str
    stage: str
    point: str
    running: bool = False


def plan(options: Options) -> list[Planned]:
    """Return the faults of a seed, kills and all other kinds, in random order."""
    rng = random.Random(f"plan {options.seed}")
    stages = list(POINTS)
    strikes = len(stages) if options.every_stage else 1
    kinds = ["kill"] * options.kills + [kind for kind in options.kinds for _ in range(strikes)]
    turn: Counter[str] = Counter()
    planned = []
    for number, kind in enumerate(kinds):
        stage = stages[(turn[kind] if options.every_stage else number) % len(stages)]
        turn[kind] += 1
        # The first faults of a kind cover all stages; of further kills every second one hits a running daemon.
        running = turn[kind] > len(stages) and turn[kind] % 2 == 0
        planned.append(Planned(kind, stage, rng.choice(POINTS[stage]), running))
    planned += [a_loss(rng, number) for number in range(options.losses)]
    rng.shuffle(planned)
    return planned


def a_loss(rng: random.Random, number: int) -> Planned:
    """Return a loss of the index at a random moment; the kinds take turns."""
    stage = rng.choice(list(POINTS))
    return Planned(list(LOSSES)[number % len(LOSSES)], stage, rng.choice(POINTS[stage]), rng.random() < 0.5)


class Storm:
    """One run; ``say`` is called with each line of progress."""

    def __init__(self, world: World, options: Options, say: Callable[[str], None] = print) -> None:
        self._world = world
        self._options = options
        self._say = say
        self._rng = random.Random(f"storm {options.seed}")
        given = {"batch_records": BATCH_RECORDS, "bucket_layout": options.layout}
        self._installation: Installation = world.install(PARTITIONS, **given)
        self._settings = (SUPPRESSING if options.suppressing else {}) | (losses.SETTINGS if options.losses else {})
        self._copies = losses.Copies(world, self._rng)
        self._daemons = [WatchedDaemon(self._installation, name, self._settings, options.broken) for name in "abc"]
        self._spares: list[WatchedDaemon] = []
        self._committed_at_loss = 0
        self._producing: Producing | None = None
        self._report = Report(options, [])
        self._began = time.monotonic()

    def run(self) -> Report:
        """Run all planned faults, wait until all records are committed, and judge."""
        kafka, topic = self._installation.kafka, self._installation.topic
        try:
            for daemon in self._daemons:
                daemon.start()
            options = self._options
            records = endless(options.seed, options.changes, options.ends, lasting=options.losses > 0)
            with Producing(kafka, topic, records, options.per_second) as producing:
                for daemon in self._daemons:
                    daemon.wait_passed("after_poll", timeout_s=120)
                self._producing = producing
                for planned in plan(options):
                    self._strike(planned)
                self._repeat()
            self._drain()
        except (AssertionError, TimeoutError, OSError, subprocess.SubprocessError) as error:
            self._report.trouble.append(f"{type(error).__name__}: {error}")
        finally:
            for daemon in [*self._daemons, *self._spares]:
                daemon.__exit__(None, None, None)
        self._report.rebuilds = losses.rebuilds(self._installation.folder)
        self._report.verdict = judge_topics(
            kafka,
            topic,
            self._installation.duplicates,
            self._options.window_ms,
            suppressing=self._options.suppressing,
        )
        if not self._report.good and self._options.keep is not None:
            keep_evidence(self._installation, self._options.keep)
        self._report.seconds = time.monotonic() - self._began
        return self._report

    def _repeat(self) -> None:
        """Repeat faults without effects: on a busy machine a daemon may reach its point too late."""
        for number in range(REPEATS):
            for kind, stage in self._report.missing():
                self._strike(Planned(kind, stage, self._rng.choice(POINTS[stage])))
            for _ in range(self._report.missing_losses()):
                self._strike(a_loss(self._rng, number))

    def _strike(self, planned: Planned) -> None:
        if self._options.losses:
            self._copies.take()
        if planned.kind in LOSSES:
            self._await_work()
        victim = self._reach(planned)
        if planned.running:
            victim.release()
            time.sleep(self._rng.uniform(0, RUN_S))
        struck_ns = time.monotonic_ns()
        trace, place = victim.trace, last_point(victim.trace)
        at_s = round(time.monotonic() - self._began, 2)
        struck = Struck(planned.kind, stage_of(place), at_s, victim.name, place, has_read_ahead(trace))
        self._lag_s()
        strike = Strike(self._world, victim, self._spare, self._rng)
        self._report.struck.append(struck)
        self._say(f"{at_s:8.1f} s  {struck.kind:24} {victim.name} at {place} ({struck.stage})")
        before = losses.rebuilds(self._installation.folder)
        try:
            if planned.kind in LOSSES:
                LOSSES[planned.kind](strike, self._copies)
            else:
                KINDS[planned.kind](strike)
        finally:
            victim.release()
        struck.effects += strike.effects
        struck.stops_s += strike.stops_s
        if planned.kind in LOSSES:
            self._await_rebuild(struck, before)
        else:
            self._await_effects(struck, victim, trace, struck_ns)
        self._restart_ended()

    def _await_work(self) -> None:
        """Wait until some records were committed since the last loss, and the daemons lag behind by little.

        One loss after the other would be one loss, and documents expire before daemons that lag behind for too long
        compare them.
        """
        wanted = self._committed_at_loss + losses.BETWEEN

        def worked() -> bool:
            self._restart_ended()
            return self._installation.committed_count() >= wanted and self._lag_s() <= losses.CAUGHT_UP_S

        servers.wait_until(worked, losses.WORK_S, "the daemons to catch up")
        self._committed_at_loss = self._installation.committed_count()

    def _lag_s(self) -> float:
        """Return how long the daemons lag behind, in seconds, and keep the longest lag."""
        assert self._producing is not None
        behind = self._producing.count - self._installation.committed_count()
        lag_s = behind / self._options.per_second
        self._report.lag_s = max(self._report.lag_s, lag_s)
        return lag_s

    def _await_rebuild(self, struck: Struck, before: list[losses.Rebuild]) -> None:
        """Wait until a rebuild has begun, and mostly until one is completed: the others are hit by the next fault."""
        known = {rebuild.place for rebuild in before}

        def fresh() -> list[losses.Rebuild]:
            self._restart_ended()
            return [one for one in losses.rebuilds(self._installation.folder) if one.place not in known]

        waits = [(losses.NOTICE_S, fresh)]
        if self._rng.random() < 0.7:
            waits.append((losses.REBUILD_S, lambda: [one for one in fresh() if one.records is not None]))
        try:
            for limit_s, condition in waits:
                found = servers.wait_until(condition, limit_s, "a rebuild")
                struck.effects = ["gap" if one.is_gap else "whole" for one in found]
        except TimeoutError:
            self._say(f"{'':10}  {struck.effects or 'not noticed'}")

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
                struck.place = last_point(trace)
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
