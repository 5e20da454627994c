"""The work of ``streamdedup tune``: study a sample, choose settings, measure them on a server."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from streamdedup.cli.assembly import detector_options
from streamdedup.cli.progress import steps
from streamdedup.cli.tune_server import Trialled, TuneServer
from streamdedup.errors import SettingsError
from streamdedup.evaluation.sets import SetCollector
from streamdedup.index.redis.buckets import LAYOUTS
from streamdedup.index.redis.claims import CLAIM_LIFETIMES
from streamdedup.position import Partition
from streamdedup.settings import Profile
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.advice import Choice, choose
from streamdedup.tuning.measurement import Measurement
from streamdedup.tuning.memory import EntryForm, Lifetimes, MemoryForecast
from streamdedup.tuning.rows import Basis, Demand, Row, rows_of
from streamdedup.tuning.sample import Sample
from streamdedup.tuning.study import Study
from streamdedup.tuning.templates import Template, templates

DAY_S: Final = 86_400.0
#: Templates, buckets and pairs that are shown.
SHOWN: Final = 10
#: Documents from which on the trial's time counts; of fewer, connections and caches take too much of it.
_TIMED_FROM: Final = 2_000
#: Shingles that templates are looked for in.
_TEMPLATE_SHINGLES: Final = ShingleOptions("word", 3)
#: Exact limits whose memory is forecast, beside the profile's own.
_EXACT_LIMITS: Final[tuple[int | None, ...]] = (0, 512, None)


@dataclass(frozen=True, slots=True)
class Question:
    """What ``tune`` is asked.

    Attributes:
        name: Name of the profile.
        profile: Settings that do not vary.
        kinds: Kinds of shingles to try.
        thresholds: Each above 0, at most 1.
        recalls: Each above 0, below 1.
        documents_per_day: Documents that come in a day.
        basis: Where the recall must be reached.
        key_prefix: Prefix of the keys in Redis.
        bucket_layout: Name of the bucket layout in Redis.
    """

    name: str
    profile: Profile
    kinds: tuple[ShingleOptions, ...]
    thresholds: tuple[float, ...]
    recalls: tuple[float, ...]
    documents_per_day: float
    basis: Basis
    key_prefix: str
    bucket_layout: str

    @property
    def documents_kept(self) -> float:
        """Documents in the index in its steady state."""
        return self.documents_per_day * (self.profile.retention_s + self.profile.retention_slack_s) / DAY_S

    @property
    def namespace_bytes(self) -> int:
        """Length of prefix and profile of the keys, joined by a colon."""
        return len(f"{self.key_prefix}:{self.name}".encode())

    @property
    def exact_limits(self) -> list[int | None]:
        """Exact limits whose memory is forecast, ascending; none is last."""
        limits = {*_EXACT_LIMITS, self.profile.exact_limit}
        return sorted(limits, key=lambda limit: math.inf if limit is None else limit)


class Measured(NamedTuple):
    """What a server showed of the recommended settings.

    Attributes:
        server: The server.
        forecast: Forecast of memory.
        trial: Index of the sample.
    """

    server: TuneServer
    forecast: MemoryForecast
    trial: Trialled

    @property
    def is_timed(self) -> bool:
        """Whether the trial was long enough to tell the speed."""
        return self.trial.documents >= _TIMED_FROM


class Result(NamedTuple):
    """What the sample and the server show.

    Attributes:
        demand: Size of the index.
        studies: The sample with each kind of shingles.
        rows: Each row with the study of its kind of shingles.
        choice: The recommendation.
        study: The sample with the recommended shingles.
        measured: None without a server.
        templates: The most frequent ones first.
    """

    demand: Demand
    studies: list[Study]
    rows: list[tuple[Row, Study]]
    choice: Choice
    study: Study
    measured: Measured | None
    templates: list[Template]


def work(question: Question, sample: Sample, server: TuneServer | None) -> Result:
    """Do all of it.

    Args:
        question: What is asked.
        sample: The sample; at least one text.
        server: Where memory and speed are measured; None leaves them out.

    Raises:
        SettingsError: No bands reach any of the recalls.
        StoreUnavailable: The server does not answer.
    """
    profile = question.profile
    demand = Demand(
        documents=question.documents_kept,
        collection=sample.read_count,
        share=sample.share,
        permutations=profile.permutations,
        max_candidates=profile.max_candidates,
        basis=question.basis,
    )
    studies, rows = [], []
    for kind in question.kinds:
        study = _study(question, kind, sample)
        studies.append(study)
        with steps(f"{kind.unit} {kind.size}: bands", len(question.thresholds) * len(question.recalls)) as step:
            rows += [(row, study) for row in rows_of(study, demand, question.thresholds, question.recalls, step)]
    choice, study = _choice(question, studies, rows)
    measured = None if server is None else _measured(question, sample, demand, choice.row, study, server)
    return Result(demand, studies, rows, choice, study, measured, _templates(sample))


def _study(question: Question, kind: ShingleOptions, sample: Sample) -> Study:
    profile = question.profile
    with steps(f"{kind.unit} {kind.size}: pairs", len(sample.texts)) as step:
        return Study(
            kind,
            sample.texts,
            HashFamily(profile.permutations, profile.seed),
            floor=min(question.thresholds),
            min_words=profile.min_words,
            bucket_cap=profile.bucket_cap,
            progress=step,
        )


def _choice(question: Question, studies: Sequence[Study], rows: Sequence[tuple[Row, Study]]) -> tuple[Choice, Study]:
    """Choose among the rows that are nearest to the threshold and recall of the profile.

    Raises:
        SettingsError: There are none.
    """
    own = question.profile
    if not rows:
        raise SettingsError(
            f"no bands within {own.permutations} permutations reach a recall of {min(question.recalls):g} at the "
            f"threshold {max(question.thresholds):g}: lower --min-recall, raise --threshold or allow more permutations"
        )
    asked = {(row.threshold, row.min_recall) for row, _ in rows}
    wanted = min(asked, key=lambda one: (abs(one[0] - own.threshold), abs(one[1] - own.min_recall)))
    nearest = [(row, study) for row, study in rows if (row.threshold, row.min_recall) == wanted]
    choice = choose([row for row, _ in nearest], studies, own.shingle_options())
    return choice, next(study for row, study in nearest if row is choice.row)


def _templates(sample: Sample) -> list[Template]:
    collector = SetCollector(_TEMPLATE_SHINGLES)
    for low in range(0, len(sample.texts), 500):
        collector.add(sample.texts[low : low + 500])
    return templates(collector.sets(), sample.texts, _TEMPLATE_SHINGLES, SHOWN)


def _measured(
    question: Question, sample: Sample, demand: Demand, row: Row, study: Study, server: TuneServer
) -> Measured:
    """Measure the recommended row: what its index consists of, and how long the sample takes."""
    limit = question.profile.exact_limit
    options = replace(
        detector_options(question.name, question.profile),
        shingles=row.options,
        banding=row.banding,
        threshold=row.threshold,
    )
    measurement = Measurement(server, options, sample, Partition(question.profile.topics[0], 0))
    forms = [EntryForm(kind, limit) for kind in question.kinds]
    forms += [EntryForm(row.options, one) for one in question.exact_limits]
    with steps("on a server", len(LAYOUTS) + 2) as step:
        costs = {}
        for layout in LAYOUTS:
            costs[layout] = measurement.costs(study, demand, row, layout)
            step(1)
        differences = measurement.differences(forms)
        step(1)
        lifetimes = Lifetimes({name: layout.lifetimes for name, layout in LAYOUTS.items()}, CLAIM_LIFETIMES)
        forecast = MemoryForecast(demand, lifetimes, costs, differences)
        trial = server.trial(options, sample, question.bucket_layout)
        step(1)
    return Measured(server, forecast, trial)
