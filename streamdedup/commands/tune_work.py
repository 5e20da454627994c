"""The work of ``streamdedup tune``: from a sample to the figures that are printed, written as JSON and drawn."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from streamdedup.commands.tune_question import DAY_S, Memory, Question
from streamdedup.errors import SettingsError
from streamdedup.evaluation.advice import Choice, choose, warnings
from streamdedup.evaluation.sample import Sample
from streamdedup.evaluation.sets import SetCollector
from streamdedup.evaluation.study import BINS, Study
from streamdedup.evaluation.templates import Template, templates
from streamdedup.evaluation.tuning import Demand, Row, exact_share, rows_of
from streamdedup.minhash import HashFamily, standard_error
from streamdedup.settings import Profile
from streamdedup.settings.units import counted, format_duration
from streamdedup.store.footprint import REDIS_7, VALKEY_9
from streamdedup.store.redis_buckets import LAYOUTS
from streamdedup.text import ShingleOptions

#: What a daemon may be loaded with of what it can do, so that peaks and backlogs find room.
LOAD: Final = 0.5
#: Templates, buckets and pairs that are shown.
_SHOWN: Final = 10
#: Shingles that templates are looked for in.
_TEMPLATE_SHINGLES: Final = ShingleOptions("word", 3)
#: Bins of similarity in which the recall is drawn.
_CURVE_BINS: Final = 40
#: A forecast for so many times the documents that were looked at deserves a warning.
_FAR: Final = 50
#: Limits whose prices are named.
_LIMITS: Final[tuple[int | None, ...]] = (0, 512, None)
#: Settings of a profile that decide what is compared, and stand in the section to paste where they are not the default.
_KEPT: Final = ("text_fields", "id_field", "letters_only", "fold_marks", "similarity", "short_texts", "min_words")
_KEPT_NUMBERS: Final = ("permutations", "seed")
#: The same of those that belong to one unit.
_OF_UNIT: Final = {"word": ("stop_words",), "char": ("keep_white_space",)}

Progress = Callable[[str, int], Callable[[int], None]]


class Result(NamedTuple):
    """What came out.

    Attributes:
        figures: Everything, as JSON has it.
        study: The sample with the recommended shingles.
        choice: The recommendation.
        sample: The sample.
    """

    figures: dict[str, Any]
    study: Study
    choice: Choice
    sample: Sample


def work(question: Question, sample: Sample, *, server: bool, url: str | None, progress: Progress) -> Result:
    """Do all of it.

    Args:
        question: What is asked.
        sample: The sample; at least one text.
        server: Whether to measure on a server.
        url: Which one; None starts a private one, where there is one to start.
        progress: Called with the name and the length of each step; what it returns is told of the progress.

    Raises:
        SettingsError: No bands reach any of the recalls.
        StoreUnavailable: The server does not answer.
    """
    demand = _demand(question, sample)
    family = HashFamily(question.profile.permutations, question.profile.seed)
    studies, rows = [], []
    for kind in question.kinds:
        step = progress(f"{kind.unit} {kind.size}: pairs", len(sample.texts))
        study = Study(
            kind,
            sample.texts,
            family,
            floor=min(question.thresholds),
            min_words=question.profile.min_words,
            bucket_cap=question.profile.bucket_cap,
            progress=step,
        )
        step = progress(f"{kind.unit} {kind.size}: bands", len(question.thresholds) * len(question.recalls))
        studies.append(study)
        rows.append(list(rows_of(study, demand, question.thresholds, question.recalls, step)))
    choice, study = _choice(question, studies, rows)
    memory = Memory(demand, question.profile)
    progress("on a server", 1)
    measured = memory.check(study, choice.row, question, sample, url) if server else None
    found = _templates(sample)
    limits = {"exact_limit": question.profile.exact_limit, "bucket_cap": question.profile.bucket_cap}
    figures = {
        "sample": _of_sample(sample, studies),
        "demand": _of_demand(question, demand),
        "rows": [_of_row(row, memory, one, demand) for one, own in zip(studies, rows, strict=True) for row in own],
        "recommendation": _of_choice(question, choice, memory, study, demand, measured),
        "measured": measured,
        "memory_server": memory.server.name,
        "exact_limits": [_of_limit(limit, study, choice.row, memory, question) for limit in _limits(question.profile)],
        "warnings": [*warnings(study, choice.row, found, **limits), *_far(study, demand)],
        "similarities": [
            {"from": at / BINS, "to": (at + 1) / BINS, "pairs": round(float(count))}
            for at, count in enumerate(study.histogram)
            if (at + 1) / BINS > min(question.thresholds) + 1e-9
        ],
        "curve": [
            {"similarity": middle, "found": rate.hits, "pairs": rate.total}
            for middle, rate in study.found_by_similarity(choice.row.banding, _CURVE_BINS)
        ],
        "templates": [{"text": " ".join(one.words), "documents": one.documents, "share": one.share} for one in found],
        "buckets": _of_buckets(study, choice.row, sample),
        "borderline": _borderline(study, choice.row.threshold, sample),
    }
    return Result(figures, study, choice, sample)


def _far(study: Study, demand: Demand) -> Iterator[str]:
    if demand.documents > _FAR * study.documents_count:
        yield (
            f"the forecast goes from {counted(study.documents_count, 'document')} to {demand.documents:,.0f}: of what "
            f"grows with the index it says the order of magnitude; take a larger sample"
        )


def _demand(question: Question, sample: Sample) -> Demand:
    lengths = [len(one.encode("utf-8", "surrogatepass")) for one in sample.ids]
    return Demand(
        documents=question.documents_kept,
        collection=sample.read_count,
        share=sample.share,
        permutations=question.profile.permutations,
        exact_limit=question.profile.exact_limit,
        max_candidates=question.profile.max_candidates,
        id_bytes=sum(lengths) / len(lengths),
        namespace_bytes=len(f"{question.key_prefix}:{question.name}".encode()),
        partition_bytes=len(f"{question.profile.topics[0]}:0"),
        basis=question.basis,
        bucket_layout=question.bucket_layout,
    )


def _choice(question: Question, studies: Sequence[Study], rows: Sequence[Sequence[Row]]) -> tuple[Choice, Study]:
    """Choose among the rows that are nearest to what the profile asks for.

    Raises:
        SettingsError: There are none.
    """
    own = question.profile
    found = {(row.threshold, row.min_recall) for of_kind in rows for row in of_kind}
    if not found:
        raise SettingsError(
            f"no bands within {own.permutations} permutations reach a recall of {min(question.recalls):g} at the "
            f"threshold {max(question.thresholds):g}: lower --min-recall, raise --threshold or allow more permutations"
        )
    nearest = min(found, key=lambda one: (abs(one[0] - own.threshold), abs(one[1] - own.min_recall)))
    pairs = [
        (row, study)
        for study, of_kind in zip(studies, rows, strict=True)
        for row in of_kind
        if (row.threshold, row.min_recall) == nearest
    ]
    choice = choose([row for row, _ in pairs], studies, own.shingle_options())
    return choice, next(study for row, study in pairs if row is choice.row)


def _templates(sample: Sample) -> list[Template]:
    collector = SetCollector(_TEMPLATE_SHINGLES)
    for low in range(0, len(sample.texts), 500):
        collector.add(sample.texts[low : low + 500])
    return templates(collector.sets(), sample.texts, _TEMPLATE_SHINGLES, _SHOWN)


def _of_sample(sample: Sample, studies: Sequence[Study]) -> dict[str, Any]:
    words = studies[0].sets.token_counts
    return {
        "documents": len(sample.ids),
        "read": sample.read_count,
        "sampling": sample.method,
        "median_words": int(np.median(words)) if words.size else 0,
        "looked_at": {f"{one.options.unit} {one.options.size}": one.documents_count for one in studies},
    }


def _of_demand(question: Question, demand: Demand) -> dict[str, Any]:
    return {
        "documents_per_day": question.documents_per_day,
        "retention_s": question.profile.retention_s,
        "retention_slack_s": question.profile.retention_slack_s,
        "documents_kept": demand.documents,
        "basis": question.basis,
    }


def _of_row(row: Row, memory: Memory, study: Study, demand: Demand) -> dict[str, Any]:
    size = memory.bytes(study, row)
    bounds = row.recall.edited.bounds()
    return {
        "unit": row.options.unit,
        "size": row.options.size,
        "threshold": row.threshold,
        "min_recall": row.min_recall,
        "reached": row.basis,
        "bands": row.banding.bands,
        "rows": row.banding.rows,
        "probability_at_threshold": row.probability,
        "pairs": round(row.recall.pairs),
        "expected_recall": row.recall.expected,
        "measured_recall": row.recall.measured,
        "edited_pairs": row.recall.edited.total,
        "edited_pairs_found": row.recall.edited.hits,
        "edited_recall_bounds": bounds,
        "candidates_per_document": _number(row.candidates_at(study.documents_count, demand.collection)),
        "candidates_that_stay": _number(row.unrelated.near + row.related.at(demand.collection)),
        "candidates_that_grow_per_million": _number(row.unrelated.per_document * 1e6),
        "candidates_forecast": _number(row.candidates_at(demand.documents, demand.collection)),
        "false_candidates_forecast": _number(row.false_candidates_at(demand.documents, demand.collection)),
        "bytes_per_document": size / demand.documents if demand.documents else 0.0,
        "memory_bytes": size,
        "memory_bytes_when_first_filled": memory.filled(study, row),
        "documents_per_s": row.speed.documents_per_s,
        "prepare_us": row.speed.prepare_us,
    }


def _number(value: float) -> float | None:
    """Return a number as JSON can hold it."""
    return value if math.isfinite(value) else None


def _of_choice(
    question: Question, choice: Choice, memory: Memory, study: Study, demand: Demand, measured: dict[str, Any] | None
) -> dict[str, Any]:
    row = choice.row
    speed = row.speed
    timed = measured is not None and measured["corrects"]
    if measured is not None and timed:
        speed = speed._replace(index_us=max(1e6 / measured["documents_per_s"] - speed.prepare_us, 0.0))
    return {
        **_of_row(row, memory, study, demand),
        "reason": choice.reason,
        "documents_per_s": speed.documents_per_s,
        "documents_per_s_measured": timed,
        "daemons": max(1, math.ceil(question.documents_per_day / DAY_S / (LOAD * speed.documents_per_s))),
        "memory_bytes_by_model": {one.name: memory.by(one, study, row) for one in (REDIS_7, VALKEY_9)},
        "bucket_layout": question.bucket_layout,
        "memory_bytes_by_layout": {name: memory.with_layout(name, study, row) for name in LAYOUTS},
        "toml": toml(question, row),
    }


def _limits(profile: Profile) -> list[int | None]:
    """Return the limits whose prices are named, the profile's among them; no limit stands last."""
    return sorted({*_LIMITS, profile.exact_limit}, key=lambda one: math.inf if one is None else one)


def toml(question: Question, row: Row) -> str:
    """Return the section of a settings file that says what the row does."""
    profile = question.profile
    lines: dict[str, object] = {
        "topics": list(profile.topics),
        "shingle_unit": row.options.unit,
        "shingle_size": row.options.size,
        "threshold": row.threshold,
        **({"min_recall": row.min_recall} if row.basis == "theory" else {}),
        "bands": row.banding.bands,
        "rows": row.banding.rows,
        "exact_limit": "none" if profile.exact_limit is None else profile.exact_limit,
        "retention": format_duration(profile.retention_s),
        **_kept(profile, row),
    }
    # A JSON string is a TOML string, and a JSON list or number is TOML too.
    return "\n".join([f"[profiles.{question.name}]", *(f"{key} = {json.dumps(value)}" for key, value in lines.items())])


def _kept(profile: Profile, row: Row) -> dict[str, object]:
    """Return what else the profile says of how texts are compared."""
    own = (row.options.unit, row.options.size) == (profile.shingle_unit, profile.shingle_size)
    keys = [*_KEPT, *_KEPT_NUMBERS, *(_OF_UNIT[row.options.unit] if row.options.unit == profile.shingle_unit else ())]
    keys += ["stop_shingles"] if own else []
    defaults = type(profile).model_fields
    kept = {key: getattr(profile, key) for key in keys if getattr(profile, key) != defaults[key].default}
    if profile.retention_slack_s != defaults["retention_slack_s"].default:
        kept["retention_slack"] = format_duration(profile.retention_slack_s)
    return kept


def _of_limit(limit: int | None, study: Study, row: Row, memory: Memory, question: Question) -> dict[str, Any]:
    size = memory.bytes(study, row, limit)
    return {
        "exact_limit": "none" if limit is None else limit,
        "exact_share": exact_share(study, limit),
        "standard_error": 0.0 if limit is None else float(standard_error(row.threshold, question.profile.permutations)),
        "bytes_per_document": size / question.documents_kept if question.documents_kept else 0.0,
        "memory_bytes": size,
    }


def _of_buckets(study: Study, row: Row, sample: Sample) -> list[dict[str, Any]]:
    return [
        {"band": band, "documents": count, "example": sample.ids[int(study.places[study.distinct.first[place]])]}
        for band, count, place in study.hottest(row.banding, _SHOWN)
        if count > 1
    ]


def _borderline(study: Study, threshold: float, sample: Sample) -> list[dict[str, Any]]:
    """Return the pairs of different texts that are nearest to the threshold."""
    pairs = study.pairs
    nearest = np.argsort(np.abs(pairs.similarities - threshold), kind="stable")[:_SHOWN]
    places = study.places[study.distinct.first]
    return [
        {
            "left": sample.ids[int(places[pairs.left[at]])],
            "right": sample.ids[int(places[pairs.right[at]])],
            "similarity": float(pairs.similarities[at]),
        }
        for at in nearest.tolist()
    ]
