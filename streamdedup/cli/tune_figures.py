"""The result of ``streamdedup tune`` as one object of plain values, for the tables, the report and ``--json``."""

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
from streamdedup.tuning.rows import TuningRow
from streamdedup.tuning.sample import Sample
from streamdedup.tuning.study import BINS, Study

#: Load of a daemon, as a share of its speed; the rest is for peaks and backlogs.
LOAD: Final = 0.5
#: Bins of similarity for which the recall is drawn.
_CURVE_BINS: Final = 40
#: Settings of a profile that decide which pairs are found; those that are not the default are in the section to paste.
_KEPT: Final = (
    *("text_fields", "id_field", "letters_only", "fold_marks", "similarity", "short_texts", "min_words"),
    *("permutations", "seed"),
)
#: Settings that belong to one unit of shingles.
_OF_UNIT: Final = {"word": ("stop_words",), "char": ("keep_white_space",)}


def figures_of(question: Question, sample: Sample, result: Result) -> dict[str, Any]:
    """Return all figures; None for unknown values."""
    row, study, _ = result.best
    profile, measured = question.profile, result.measured
    words = result.studies[0].sets.token_counts
    return {
        "sample": {
            "documents": len(sample.ids),
            "read": sample.read_count,
            "sampling": sample.method,
            "median_words": int(np.median(words)) if words.size else 0,
            "looked_at": {f"{one.options.unit} {one.options.size}": one.documents_count for one in result.studies},
        },
        "demand": {
            "documents_per_day": question.documents_per_day,
            "retention_s": profile.retention_s,
            "retention_slack_s": profile.retention_slack_s,
            "documents_kept": question.documents_kept,
            "basis": question.basis,
        },
        "rows": [_row(question, result, *one) for one in result.rows],
        "recommendation": _recommendation(question, result),
        "measured": _measured(question, result),
        "memory_server": None if measured is None else measured.server.name,
        "exact_limits": [
            {
                "exact_limit": "none" if limit is None else limit,
                "exact_share": study.exact_share(limit),
                "standard_error": 0.0 if limit is None else standard_error(row.threshold, profile.permutations),
                **_memory(question, result, row, study, limit),
            }
            for limit in question.exact_limits
        ],
        "warnings": list(
            warnings(
                row,
                study,
                result.templates,
                question.documents_kept,
                exact_limit=profile.exact_limit,
                bucket_cap=profile.bucket_cap,
            )
        ),
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
        **_examples(sample, result),
    }


def _row(question: Question, result: Result, row: TuningRow, study: Study) -> dict[str, Any]:
    candidates, documents = row.candidates, result.workload.documents
    return {
        "unit": row.options.unit,
        "size": row.options.size,
        "threshold": row.threshold,
        "min_recall": row.min_recall,
        "reached": row.basis,
        "bands": row.banding.bands,
        "rows": row.banding.rows,
        "probability_at_threshold": row.banding.probability(row.threshold),
        "pairs": round(row.recall.pairs),
        "expected_recall": row.recall.expected,
        "measured_recall": row.recall.measured,
        "edited_pairs": row.recall.edited.total,
        "edited_pairs_found": row.recall.edited.hits,
        "edited_recall_bounds": row.recall.edited.bounds(),
        "candidates_per_document": _finite(candidates.at(study.documents_count)),
        "candidates_that_stay": _finite(candidates.unrelated.near + candidates.related.at(candidates.collection)),
        "candidates_that_grow_per_million": _finite(candidates.unrelated.per_document * 1e6),
        "candidates_forecast": _finite(candidates.at(documents)),
        "false_candidates_forecast": _finite(candidates.false_at(documents)),
        **_memory(question, result, row, study, question.profile.exact_limit),
        "memory_bytes_when_first_filled": _filled(question, result, row, study, documents),
        "documents_per_s": row.documents_per_s,
        "prepare_us": row.prepare_us,
    }


def _finite(value: float) -> float | None:
    """Return a number that JSON can represent."""
    return value if math.isfinite(value) else None


def _memory(
    question: Question, result: Result, row: TuningRow, study: Study, limit: int | None
) -> dict[str, float | None]:
    """Return the memory in the steady state; None without a server."""
    if result.measured is None:
        return {"bytes_per_document": None, "memory_bytes": None}
    size = result.measured.forecast.total(study, row, question.bucket_layout, limit)
    return {"bytes_per_document": size / result.workload.documents, "memory_bytes": size}


def _filled(question: Question, result: Result, row: TuningRow, study: Study, documents: float) -> float | None:
    """Return the memory of an index that was filled for the first time; None without a server."""
    if result.measured is None:
        return None
    limit = question.profile.exact_limit
    return result.measured.forecast.total(study, row, question.bucket_layout, limit, filled_with=documents)


def _recommendation(question: Question, result: Result) -> dict[str, Any]:
    row, study, reason = result.best
    measured, by_layout = result.measured, dict.fromkeys(LAYOUTS)
    if measured is not None:
        limit = question.profile.exact_limit
        by_layout = {layout: measured.forecast.total(study, row, layout, limit) for layout in LAYOUTS}
        if measured.is_timed:
            index_us = 1e6 * measured.sample_index.seconds / measured.sample_index.documents - row.prepare_us
            row = row._replace(index_us=max(index_us, 0.0))
    return {
        **_row(question, result, row, study),
        "reason": reason,
        "documents_per_s_measured": measured is not None and measured.is_timed,
        "daemons": max(1, math.ceil(question.documents_per_day / DAY_S / (LOAD * row.documents_per_s))),
        "bucket_layout": question.bucket_layout,
        "memory_bytes_by_layout": by_layout,
        "toml": settings_section(question, row),
    }


def _measured(question: Question, result: Result) -> dict[str, Any] | None:
    if result.measured is None:
        return None
    server, _, index = result.measured
    size = _filled(question, result, result.best.row, result.best.study, float(index.documents))
    assert size is not None
    return {
        "server": server.name,
        "allocator": server.allocator,
        "private": server.private,
        "documents": index.documents,
        "measured_bytes": index.used_bytes,
        "forecast_bytes": size,
        "forecast_error": size / index.used_bytes - 1 if index.used_bytes > 0 else None,
        "bytes_per_document": index.used_bytes / index.documents,
        "documents_per_s": index.documents / index.seconds,
    }


def _examples(sample: Sample, result: Result) -> dict[str, list[dict[str, Any]]]:
    """Return the largest buckets, and the pairs of different texts nearest to the threshold."""
    row, study, _ = result.best
    ids = [sample.ids[number] for number in study.documents[study.distinct.first].tolist()]
    pairs = study.pairs
    nearest = np.argsort(np.abs(pairs.similarities - row.threshold), kind="stable")[:SHOWN]
    return {
        "buckets": [
            {"band": one.band, "documents": one.documents, "example": ids[one.example]}
            for one in study.largest_buckets(row.banding, SHOWN)
            if one.documents > 1
        ],
        "borderline": [
            {"left": ids[left], "right": ids[right], "similarity": similarity}
            for left, right, similarity in zip(*(column[nearest].tolist() for column in pairs), strict=True)
        ],
    }


def settings_section(question: Question, row: TuningRow) -> str:
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


def _kept(profile: Profile, row: TuningRow) -> dict[str, object]:
    """Return the other settings of the profile that decide which pairs are found, and are not the default."""
    keys = [*_KEPT, *(_OF_UNIT[row.options.unit] if row.options.unit == profile.shingle_unit else ())]
    if (row.options.unit, row.options.size) == (profile.shingle_unit, profile.shingle_size):
        keys.append("stop_shingles")
    defaults = type(profile).model_fields
    kept = {key: getattr(profile, key) for key in keys if getattr(profile, key) != defaults[key].default}
    if profile.retention_slack_s != defaults["retention_slack_s"].default:
        kept["retention_slack"] = format_duration(profile.retention_slack_s)
    return kept
