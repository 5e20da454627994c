"""The report of a run: its options, its faults with their effects, the rebuilds, and the verdict."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.chaos import losses
from tests.chaos.faults import KINDS, POINTS
from tests.chaos.losses import LOSSES
from tests.chaos.verdict import Verdict

#: Records produced per second, without losses.
PER_SECOND = 30.0


@dataclass(frozen=True, slots=True)
class Options:
    """Options of a run.

    Attributes:
        seed: Decides records, faults, victims and points.
        kinds: Kinds of faults besides kills.
        every_stage: Whether each of these kinds occurs in every stage; otherwise in one, by turns.
        per_second: Records produced per second.
        changes: Share of records that change a document.
        ends: Share of records that append to a document, delete it, or insert it again.
        broken: Broken loop of the daemons; None is the correct loop.
        suppressing: Whether rules of the profile suppress pairs.
        losses: Number of losses of the index; with any, documents expire, and some live as long as the run.
        keep: Folder for the topics and logs of a bad run; None for none.
    """

    seed: int
    kills: int
    kinds: tuple[str, ...] = tuple(kind for kind in KINDS if kind != "kill")
    every_stage: bool = True
    per_second: float = PER_SECOND
    changes: float = 0.0
    ends: float = 0.0
    broken: str | None = None
    suppressing: bool = False
    layout: str = "sets"
    losses: int = 0
    keep: Path | None = None

    @property
    def window_ms(self) -> int | None:
        """Retention of the index, in milliseconds; None for one that is longer than the run."""
        return losses.RETENTION_S * 1000 if self.losses else None


@dataclass
class Struck:
    """A fault that has occurred, at a point of a stage of its victim, and its effects on victim and servers.

    ``at_s``: seconds since the start of the run. ``ahead``: whether the victim had read a batch ahead. ``stops_s``:
    time that each requested stop took, in seconds.
    """

    kind: str
    stage: str
    at_s: float = 0.0
    victim: str = ""
    place: str | None = None
    ahead: bool = False
    effects: list[str] = field(default_factory=list)
    stops_s: list[float] = field(default_factory=list)


@dataclass
class Report:
    """Report of a run.

    Attributes:
        produced: Number of records in the input topic.
        unplanned: Daemons that ended unexpectedly.
        trouble: Failures of the run itself.
        lag_s: Longest time that the daemons were found to lag behind, in seconds.
    """

    options: Options
    struck: list[Struck]
    verdict: Verdict | None = None
    produced: int = 0
    seconds: float = 0.0
    unplanned: list[str] = field(default_factory=list)
    trouble: list[str] = field(default_factory=list)
    rebuilds: list[losses.Rebuild] = field(default_factory=list)
    lag_s: float = 0.0

    def missing(self) -> list[tuple[str, str]]:
        """Return the kinds of faults, each with a stage in which it had no effect."""
        strikes = {(one.kind, one.stage) for one in self.struck if one.effects}
        felt = {kind for kind, _ in strikes}
        kinds = dict.fromkeys(one.kind for one in self.struck if one.kind not in LOSSES)
        if not self.options.every_stage:
            return [(kind, next(iter(POINTS))) for kind in kinds if kind not in felt]
        return [(kind, stage) for kind in kinds for stage in POINTS if (kind, stage) not in strikes]

    def missing_losses(self) -> int:
        return self.options.losses - sum(bool(one.effects) for one in self.struck if one.kind in LOSSES)

    def unproven(self) -> list[str]:
        missing = [f"{kind} in {stage}" for kind, stage in self.missing()]
        missing += [f"{count} losses" for count in [self.missing_losses()] if count > 0]
        missing += ["expiry, with such a lag"] * (self.options.losses > 0 and self.lag_s > losses.SLACK_S)
        return missing if self.struck else ["everything: there was no fault"]

    @property
    def good(self) -> bool:
        """Whether no pair was lost or doubled, and the run proves it."""
        right = self.verdict is not None and self.verdict.good
        return right and not (self.unproven() or self.unplanned or self.trouble)

    def lines(self) -> Iterable[str]:
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
        yield from losses.rebuild_lines(self.rebuilds) if self.options.losses else ()
        yield f"longest lag {self.lag_s:.0f} s"
        yield f"{len(self.struck)} faults, {self.produced} records, {self.seconds:.0f} s"
        yield from (f"a daemon ended unexpectedly: {text}" for text in self.unplanned)
        yield from (f"trouble: {text}" for text in self.trouble)
        if self.unproven():
            yield f"PROVES NOTHING about: {', '.join(self.unproven())}"
        yield str(self.verdict)

    def write(self, path: Path) -> None:
        """Write the report as JSON."""
        verdict = self.verdict
        content = asdict(self) | {
            "lost": None if verdict is None else verdict.lost_count,
            "doubled": None if verdict is None else verdict.doubled_count,
            "invented": None if verdict is None else verdict.invented_count,
            "unproven": self.unproven(),
            "good": self.good,
        }
        path.write_text(json.dumps(content, indent=2, default=str) + "\n", encoding="utf-8")
