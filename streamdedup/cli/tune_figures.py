"""The figures of ``streamdedup tune`` as one object, which is printed, written as JSON and drawn."""

import json
import math
from typing import Any, Final

import numpy as np

from streamdedup.cli.tune_work import DAY_S, SHOWN, Question, Result
from streamdedup.index.redis.buckets import LAYOUTS
from streamdedup.settings import Profile
from streamdedup.settings.units import format_duration
from streamdedup.similarity.minhash import standard_error
from streamdedup.tuning.advice import warnings
from streamdedup.tuning.rows import Row
from streamdedup.tuning.sample import Sample
from streamdedup.tuning.study import BINS, Study

#: Load of a daemon, as a share of what it can do; the rest is for peaks and backlogs.
LOAD: Final = 0.5
#: Bins of similarity in which the recall is drawn.
_CURVE_BINS: Final = 40
#: Settings of a profile that decide who is compared with whom; the section to paste has those that are not the default.
_KEPT: Final = ("text_fields", "id_field", "letters_only", "fold_marks", "similarity", "short_texts", "min_words")
_KEPT_NUMBERS: Final = ("permutations", "seed")
#: Settings that belong to one unit of shingles.
_OF_UNIT: Final = {"word": ("stop_words",), "char": ("keep_white_space",)}


def figures_of(question: Question, sample: Sample, result: Result) -> dict[str, Any]:
    """Return all figures; None stands for values that are not known."""
    study, row, profile = result.study, result.choice.row, question.profile
    caps = {"exact_limit": profile.exact_limit, "bucket_cap": profile.bucket_cap}
    return {
        "sample": _sample(sample, result),
        "demand": _demand(question),
        "rows": [_row(question, result, each, of_row) for each, of_row in result.rows],
        "recommendation": _recommendation(question, result),
        "measured": _measured(question, result),
        "memory_server": None if result.measured is None else result.measured.server.name,
        "exact_limits": [_exact_limit(question, result, limit) for limit in question.exact_limits],
        "warnings": list(warnings(study, row, result.templates, question.documents_kept, **caps)),
        "similarities": [
            {"from": at / BINS, "to": (at + 1) / BINS, "pairs": round(float(count))}
            for at, count in enumerate(study.histogram)
            if (at + 1) / BINS > min(question.thresholds) + 1e-9
        ],
        "curve": [
            {"similarity": middle, "found": rate.hits, "pairs": rate.total}
            for middle, rate in study.found_by_similarity(row.banding, _CURVE_BINS)
        ],
        "templates": [
            {"text": " ".join(one.words), "documents": one.documents, "share": one.share} for one in result.templates
        ],
        "buckets": _buckets(sample, result),
        "borderline": _borderline(sample, result),
    }


def _sample(sample: Sample, result: Result) -> dict[str, Any]:
    words = result.studies[0].sets.token_counts
    return {
        "documents": len(sample.ids),
        "read": sample.read_count,
        "sampling": sample.method,
        "median_words": int(np.median(words)) if words.size else 0,
        "looked_at": {f"{one.options.unit} {one.options.size}": one.documents_count for one in result.studies},
    }


def _demand(question: Question) -> dict[str, Any]:
    return {
        "documents_per_day": question.documents_per_day,
        "retention_s": question.profile.retention_s,
        "retention_slack_s": question.profile.retention_slack_s,
        "documents_kept": question.documents_kept,
        "basis": question.basis,
    }


def _row(question: Question, result: Result, row: Row, study: Study) -> dict[str, Any]:
    documents, collection = result.demand.documents, result.demand.collection
    limit = question.profile.exact_limit
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
        "edited_recall_bounds": row.recall.edited.bounds(),
        "candidates_per_document": _finite(row.candidates_at(study.documents_count, collection)),
        "candidates_that_stay": _finite(row.unrelated.near + row.related.at(collection)),
        "candidates_that_grow_per_million": _finite(row.unrelated.per_document * 1e6),
        "candidates_forecast": _finite(row.candidates_at(documents, collection)),
        "false_candidates_forecast": _finite(row.false_candidates_at(documents, collection)),
        **_memory(question, result, row, study, limit),
        "memory_bytes_when_first_filled": _filled(question, result, row, study),
        "documents_per_s": row.speed.documents_per_s,
        "prepare_us": row.speed.prepare_us,
    }


def _memory(question: Question, result: Result, row: Row, study: Study, limit: int | None) -> dict[str, float | None]:
    """Return the memory in the steady state; None without a server."""
    if result.measured is None:
        return {"bytes_per_document": None, "memory_bytes": None}
    size = result.measured.forecast.steady(study, row, question.bucket_layout, limit)
    return {"bytes_per_document": size / result.demand.documents, "memory_bytes": size}


def _filled(question: Question, result: Result, row: Row, study: Study, documents: float | None = None) -> float | None:
    """Return the memory of an index that has just been filled for the first time; None without a server."""
    if result.measured is None:
        return None
    layout, limit = question.bucket_layout, question.profile.exact_limit
    return result.measured.forecast.filled(study, row, layout, limit, documents)


def _finite(value: float) -> float | None:
    """Return a number that JSON can hold."""
    return value if math.isfinite(value) else None


def _recommendation(question: Question, result: Result) -> dict[str, Any]:
    row, study, measured = result.choice.row, result.study, result.measured
    speed, is_timed, sizes = row.speed, measured is not None and measured.is_timed, dict.fromkeys(LAYOUTS)
    if measured is not None:
        limit = question.profile.exact_limit
        sizes = {layout: measured.forecast.steady(study, row, layout, limit) for layout in LAYOUTS}
        if is_timed:
            index_us = 1e6 * measured.trial.seconds / measured.trial.documents - speed.prepare_us
            speed = speed._replace(index_us=max(index_us, 0.0))
    return {
        **_row(question, result, row, study),
        "reason": result.choice.reason,
        "documents_per_s": speed.documents_per_s,
        "documents_per_s_measured": is_timed,
        "daemons": max(1, math.ceil(question.documents_per_day / DAY_S / (LOAD * speed.documents_per_s))),
        "bucket_layout": question.bucket_layout,
        "memory_bytes_by_layout": sizes,
        "toml": settings_section(question, row),
    }


def _measured(question: Question, result: Result) -> dict[str, Any] | None:
    if result.measured is None:
        return None
    server, _, trial = result.measured
    size = _filled(question, result, result.choice.row, result.study, float(trial.documents))
    assert size is not None
    return {
        "server": server.name,
        "allocator": server.allocator,
        "private": server.private,
        "documents": trial.documents,
        "measured_bytes": trial.used_bytes,
        "forecast_bytes": size,
        "forecast_error": size / trial.used_bytes - 1 if trial.used_bytes > 0 else None,
        "bytes_per_document": trial.used_bytes / trial.documents,
        "documents_per_s": trial.documents / trial.seconds,
    }


def _exact_limit(question: Question, result: Result, limit: int | None) -> dict[str, Any]:
    row, study = result.choice.row, result.study
    return {
        "exact_limit": "none" if limit is None else limit,
        "exact_share": study.exact_share(limit),
        "standard_error": 0.0 if limit is None else float(standard_error(row.threshold, question.profile.permutations)),
        **_memory(question, result, row, study, limit),
    }


def _buckets(sample: Sample, result: Result) -> list[dict[str, Any]]:
    study = result.study
    return [
        {"band": band, "documents": count, "example": sample.ids[int(study.places[study.distinct.first[place]])]}
        for band, count, place in study.hottest(result.choice.row.banding, SHOWN)
        if count > 1
    ]


def _borderline(sample: Sample, result: Result) -> list[dict[str, Any]]:
    """Return the pairs of different texts that are nearest to the threshold."""
    pairs = result.study.pairs
    nearest = np.argsort(np.abs(pairs.similarities - result.choice.row.threshold), kind="stable")[:SHOWN]
    places = result.study.places[result.study.distinct.first]
    return [
        {
            "left": sample.ids[int(places[pairs.left[at]])],
            "right": sample.ids[int(places[pairs.right[at]])],
            "similarity": float(pairs.similarities[at]),
        }
        for at in nearest.tolist()
    ]


def settings_section(question: Question, row: Row) -> str:
    """Return the section of a settings file with the settings of a row."""
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
    """Return the other settings of the profile that decide how texts are compared, and are not the default."""
    own = (row.options.unit, row.options.size) == (profile.shingle_unit, profile.shingle_size)
    keys = [*_KEPT, *_KEPT_NUMBERS, *(_OF_UNIT[row.options.unit] if row.options.unit == profile.shingle_unit else ())]
    keys += ["stop_shingles"] if own else []
    defaults = type(profile).model_fields
    kept = {key: getattr(profile, key) for key in keys if getattr(profile, key) != defaults[key].default}
    if profile.retention_slack_s != defaults["retention_slack_s"].default:
        kept["retention_slack"] = format_duration(profile.retention_slack_s)
    return kept
