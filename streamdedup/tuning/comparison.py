"""Compares settings on a part of a sample, and recommends one row, for ``streamdedup tune``.

1. Each shingle kind is studied on the same texts of the sample (``study``): all pairs, by an exact join.
2. Bands and rows are chosen for each threshold and minimum recall (``rows``).
3. Of the rows at the profile's threshold and minimum recall, one is recommended (``advice``).
4. The recommended kind alone is studied on more texts.

No clock is read: the same sample has the same results on any machine.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from streamdedup.errors import SettingsError
from streamdedup.evaluation.scores import LEAST_CONTAINED_SIMILARITY
from streamdedup.settings import Profile
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import ShingleOptions
from streamdedup.tuning.advice import Recommendation, recommend
from streamdedup.tuning.buckets import MOST_CANDIDATES
from streamdedup.tuning.rows import LIMIT_FACTORS, TuningRow, Workload, table_rows
from streamdedup.tuning.sample import Sample, usable_characters, used_text_rows
from streamdedup.tuning.storm_limits import StormLimits
from streamdedup.tuning.study import Study

#: Shows the progress of a part of the work: takes a title and a number of steps, and returns a context manager. Its
#: target is a function, to be called with the number of steps done since the last call.
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]

DAY_S: Final = 86_400.0
TIME_S: Final = 50.0  # default of ``--time``, in seconds
#: Characters for each second of ``--time`` where all kinds are compared, on one core (AMD EPYC; news and reviews).
KINDS_CHARACTERS_PER_S: Final = 40_000
CHARACTERS_PER_S: Final = 400_000  # the same where one kind is studied with its proposals
LARGEST_SIGNATURE: Final = 1_024  # most signature values that the settings allow
MOST_PERMUTATIONS: Final = 512  # most signature values that are tried, unless the profile has more


@dataclass(frozen=True, slots=True)
class TuningPlan:
    name: str  # of the profile, for the section that results print
    profile: Profile  # the settings that do not vary
    kinds: tuple[ShingleOptions, ...]
    thresholds: tuple[float, ...]
    recalls: tuple[float, ...]  # minimum recalls
    documents_per_day: float
    bucket_layout: str
    has_settings_file: bool  # which names the servers
    stops_path: Path  # file for learnt stop shingles, which the printed section names

    @property
    def threshold(self) -> float:
        """The compared threshold nearest to the profile's, for which a row is recommended."""
        return min(self.thresholds, key=lambda threshold: abs(threshold - self.profile.threshold))

    @property
    def min_recall(self) -> float:
        """The compared minimum recall that is nearest to the profile's, for the same row."""
        return min(self.recalls, key=lambda recall: abs(recall - self.profile.min_recall))

    @property
    def documents_kept(self) -> float:
        return self.documents_per_day * (self.profile.retention_s + self.profile.retention_slack_s) / DAY_S

    @property
    def most_permutations(self) -> int:
        return max(MOST_PERMUTATIONS, self.profile.permutations)


class ComparedSettings(NamedTuple):
    plan: TuningPlan
    sample: Sample
    workload: Workload
    rows: list[TuningRow]  # one shingle kind after the other, on the same documents
    #: A row of each shingle kind, at the recommended threshold and minimum recall, from the comparison of all kinds.
    kind_rows: list[TuningRow]
    recommendation: Recommendation  # one of the rows, with the reason
    studied_share: float  # of the usable characters, with the recommended kind


def compare_in_budget(plan: TuningPlan, sample: Sample, progress: Progress, time_s: float = TIME_S) -> ComparedSettings:
    """Compare all kinds of shingles on a part of a sample, and the recommended kind on more of it.

    ``time_s`` is converted to numbers of characters. Raises as ``compare_settings``.
    """
    rate = CHARACTERS_PER_S if len(plan.kinds) == 1 else KINDS_CHARACTERS_PER_S
    compared = compare_settings(plan, sample, progress, _share_of_characters(plan.kinds, sample, time_s * rate))
    best = compared.recommendation.row
    share = _share_of_characters([best.options], sample, time_s * CHARACTERS_PER_S)
    if len(used_text_rows(sample.texts, [best.options.unit], share)) <= best.study.documents_count:
        return compared  # no more texts than were studied, as always with one kind
    return compare_settings(plan, sample, progress, share, compared)


def _share_of_characters(kinds: Sequence[ShingleOptions], sample: Sample, characters: float) -> float:
    return min(1.0, characters / max(usable_characters(sample.texts, {kind.unit for kind in kinds}), 1))


def compare_settings(
    plan: TuningPlan, sample: Sample, progress: Progress, share: float = 1.0, earlier: ComparedSettings | None = None
) -> ComparedSettings:
    """Compare settings on a share of a sample's usable characters (``used_text_rows``); the sample has a document.

    Given an ``earlier`` comparison on fewer documents, study only the shingle kind that it recommends.

    Raises SettingsError where no row reaches the minimum recall at the profile's threshold.
    """
    profile = plan.profile
    workload = Workload(
        index_size=plan.documents_kept,
        collection_size=sample.read_count,
        sample_share=sample.sampled_share,
        permutations=profile.permutations,
        most_permutations=plan.most_permutations,
        limits=StormLimits(profile.bucket_cap, profile.max_candidates),
        recall_from=profile.configured_recall_from(),
    )
    kinds = plan.kinds if earlier is None else (earlier.recommendation.row.options,)
    rows: list[TuningRow] = []
    text_rows = used_text_rows(sample.texts, {kind.unit for kind in kinds}, share)
    for options in kinds:
        with progress(f"{options.kind}: pairs", len(text_rows)) as step:
            study = Study(
                options,
                sample.texts,
                HashFamily(plan.most_permutations, profile.seed),
                floor=min(*plan.thresholds, LEAST_CONTAINED_SIMILARITY),  # pairs by containment may be below thresholds
                rule=profile.containment_rule(),
                scopes=sample.scopes,
                text_rows=text_rows,
                min_words=profile.min_words,
                progress=step,
            )
        with progress(f"{options.kind}: bands", plan.most_permutations - 1) as step:  # rows of a band from 2 on
            rows += table_rows(study, workload, plan.thresholds, plan.recalls, step)
    recommendation = _recommended(plan, workload, rows)
    if earlier is None:
        kind_rows = _rows_at_target(plan, rows)
    else:
        # One kind was studied. The rows of all kinds, and the reason to recommend this one, are those of ``earlier``.
        kind_rows = earlier.kind_rows
        recommendation = recommendation._replace(reason=earlier.recommendation.reason)
    return ComparedSettings(plan, sample, workload, rows, kind_rows, recommendation, share)


def _recommended(plan: TuningPlan, workload: Workload, rows: Sequence[TuningRow]) -> Recommendation:
    """Recommend one of the rows with ``plan``'s threshold and minimum recall; raises as ``compare_settings``."""
    eligible = _rows_at_target(plan, rows)
    reaching = [row for row in eligible if row.reaches_recall]
    if not reaching:
        raise SettingsError(_why_none_reaches(plan, workload, eligible))
    return recommend(reaching, plan.profile.shingle_options())


def _rows_at_target(plan: TuningPlan, rows: Sequence[TuningRow]) -> list[TuningRow]:
    """Return the rows for which settings are recommended: those with ``plan``'s threshold and minimum recall."""
    return [row for row in rows if (row.threshold, row.min_recall) == (plan.threshold, plan.min_recall)]


def _why_none_reaches(plan: TuningPlan, workload: Workload, rows: Sequence[TuningRow]) -> str:
    reason = (
        f"no bands within {plan.most_permutations} permutations reach a recall of {plan.min_recall:g} at "
        f"similarity {max(plan.threshold, workload.recall_from):g}"
    )
    remedies = (
        "in the settings file of --config raise recall_from, lower min_recall or raise permutations (at most "
        f"{LARGEST_SIGNATURE})"
    )
    if not rows:
        return f"{reason}: {remedies}"
    best = max(rows, key=lambda row: row.chance)
    if best.chance == 0.0:  # as ``storm_limits`` gives it for too many candidate pairs
        return (
            f"{reason}, because texts of one template or with the same boilerplate have more than {MOST_CANDIDATES:,} "
            "candidate pairs, too many to list: try longer shingles with --size, leave boilerplate out with "
            "streamdedup stop-shingles, or take a smaller --sample"
        )
    index_size = workload.judged_index_size(best.study)
    return (
        f"{reason} in an index of {index_size:,.0f} documents, with bucket_cap and max_candidates up to "
        f"{LIMIT_FACTORS[-1]} times those of the profile; the best, {best.options.kind} in "
        f"{best.banding}, reach {best.chance:.4f}: {remedies}; or try longer shingles with --size, leave boilerplate "
        'out with streamdedup stop-shingles, or set both limits to "none"'
    )
