"""The work of ``streamdedup tune``: study a sample, choose settings, measure them on a server."""

import math
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from streamdedup.cli.assembly import detector_options
from streamdedup.cli.output import steps
from streamdedup.cli.tune_server import SampleIndex, TuneServer
from streamdedup.errors import SettingsError
from streamdedup.index.redis.buckets import LAYOUTS
from streamdedup.index.redis.claims import CLAIM_LIFETIMES
from streamdedup.position import Partition
from streamdedup.settings import Profile
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.advice import Recommendation, recommend
from streamdedup.tuning.memory import EntryForm, Measurement, MemoryForecast
from streamdedup.tuning.rows import Basis, TuningRow, Workload, rows_of
from streamdedup.tuning.sample import Sample
from streamdedup.tuning.study import Study
from streamdedup.tuning.templates import Template, find_templates

DAY_S: Final = 86_400.0
#: Templates, buckets and pairs in the report.
SHOWN: Final = 10
#: Least size of a sample whose indexing time counts; with fewer, connections and caches take too much of it.
_TIMED_FROM: Final = 2_000
#: Exact limits whose memory is forecast, beside that of the profile.
_EXACT_LIMITS: Final[tuple[int | None, ...]] = (0, 512, None)


@dataclass(frozen=True, slots=True)
class Question:
    """The options of ``tune``.

    Attributes:
        name: Name of the profile.
        profile: Settings that do not vary.
        kinds: Kinds of shingles to try.
        thresholds: Each above 0, at most 1.
        recalls: Minimum recalls, each above 0, below 1.
        documents_per_day: Documents a day.
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
        """Documents in the index in the steady state."""
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
    """The recommended settings on a server: forecast of memory, and an index of the sample."""

    server: TuneServer
    forecast: MemoryForecast
    sample_index: SampleIndex

    @property
    def is_timed(self) -> bool:
        """Whether the sample is large enough to tell the speed."""
        return self.sample_index.documents >= _TIMED_FROM


class Result(NamedTuple):
    """Result of the work.

    Attributes:
        workload: Size of the index.
        studies: The sample with each kind of shingles.
        rows: Each row with the study of its kind of shingles.
        best: The recommended row.
        measured: None without a server.
        templates: The most frequent first.
    """

    workload: Workload
    studies: list[Study]
    rows: list[tuple[TuningRow, Study]]
    best: Recommendation
    measured: Measured | None
    templates: list[Template]


def work(question: Question, sample: Sample, server: TuneServer | None) -> Result:
    """Study the sample, recommend a row, and measure it on the server, if there is one.

    Raises:
        SettingsError: No bands reach any of the recalls.
        StoreUnavailable: The server does not answer.
    """
    profile = question.profile
    workload = Workload(
        documents=question.documents_kept,
        collection=sample.read_count,
        share=sample.share,
        permutations=profile.permutations,
        max_candidates=profile.max_candidates,
        basis=question.basis,
    )
    studies, rows = [], []
    for kind in question.kinds:
        with steps(f"{kind.unit} {kind.size}: pairs", len(sample.texts)) as step:
            study = Study(
                kind,
                sample.texts,
                HashFamily(profile.permutations, profile.seed),
                floor=min(question.thresholds),
                min_words=profile.min_words,
                bucket_cap=profile.bucket_cap,
                progress=step,
            )
        studies.append(study)
        with steps(f"{kind.unit} {kind.size}: bands", profile.permutations) as step:
            rows += [(row, study) for row in rows_of(study, workload, question.thresholds, question.recalls, step)]
    best = _recommended(question, rows)
    measured = None if server is None else _measured(question, sample, workload, best, server)
    return Result(workload, studies, rows, best, measured, find_templates(sample.texts, SHOWN))


def _recommended(question: Question, rows: list[tuple[TuningRow, Study]]) -> Recommendation:
    """Recommend one of the rows that are nearest to the threshold and the recall of the profile.

    Raises:
        SettingsError: There are no rows.
    """
    own = question.profile
    if not rows:
        raise SettingsError(
            f"no bands within {own.permutations} permutations reach a recall of {min(question.recalls):g} at the "
            f"threshold {max(question.thresholds):g}: lower --min-recall, raise --threshold or allow more permutations"
        )

    def distance(row: TuningRow) -> tuple[float, float]:
        return abs(row.threshold - own.threshold), abs(row.min_recall - own.min_recall)

    nearest, _ = min(rows, key=lambda one: distance(one[0]))
    wanted = (nearest.threshold, nearest.min_recall)
    return recommend([one for one in rows if (one[0].threshold, one[0].min_recall) == wanted], own.shingle_options())


def _measured(
    question: Question, sample: Sample, workload: Workload, best: Recommendation, server: TuneServer
) -> Measured:
    """Measure the parts of the recommended index, and an index of the sample."""
    row, study, _ = best
    profile = question.profile
    options = replace(
        detector_options(question.name, profile), shingles=row.options, banding=row.banding, threshold=row.threshold
    )
    measurement = Measurement(server, options, sample, Partition(profile.topics[0], 0))
    forms = dict.fromkeys(
        [
            *(EntryForm(row.options, limit) for limit in question.exact_limits),
            *(EntryForm(kind, profile.exact_limit) for kind in question.kinds),
        ]
    )
    with steps("on a server", len(LAYOUTS) + len(forms) + 1) as step:
        costs = {}
        for layout in LAYOUTS:
            costs[layout] = measurement.costs(study, workload, row, layout)
            step(1)
        forecast = MemoryForecast(
            workload,
            costs,
            measurement.entry_bytes(list(forms), step),
            measurement.form,
            {name: layout.lifetimes for name, layout in LAYOUTS.items()},
            CLAIM_LIFETIMES,
        )
        sample_index = server.index_sample(options, sample, question.bucket_layout)
        step(1)
    return Measured(server, forecast, sample_index)
