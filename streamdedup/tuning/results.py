"""The results of ``streamdedup tune`` as plain values: ``--json`` prints them, ``cli/rendering`` shows them.

``tuning_tables`` or ``tuning_report`` of ``cli/rendering`` shows a new value.

A row of the table (``rows.TuningRow``) is a banding for a shingle kind, a threshold and a minimum recall. Its ``study``
has the similar pairs of the sample, each of which represents several document pairs. An unknown value is None.
"""

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from streamdedup.evaluation.pairs import Pairs
from streamdedup.text.markup import has_html, html_warning
from streamdedup.tuning.advice import SERVERS, settings_section, warnings
from streamdedup.tuning.comparison import DAY_S, ComparedSettings, Progress, TuningPlan
from streamdedup.tuning.distinct import ALL_PAIRS
from streamdedup.tuning.memory import BAND_LIFETIMES, bytes_per_document
from streamdedup.tuning.meter import MeasuredProposal
from streamdedup.tuning.proposals import Proposals, study_proposals
from streamdedup.tuning.recall import found_by_similarity, share_without_alert
from streamdedup.tuning.rows import TuningRow
from streamdedup.tuning.shown_pairs import across_share, shown_pairs
from streamdedup.tuning.study import BINS, Study

_LOAD: Final = 0.5  # mean load of a daemon, as a share of its speed; the rest is for busy hours and backlogs
LEAST_COMPARED: Final = 1_000  # fewest compared documents for which something is recommended
_BORDERLINE_COUNT: Final = 10  # pairs nearest to the threshold that the report lists
_CURVE_BINS: Final = 40  # bins of similarity for which the recall is drawn


def results_of(compared: ComparedSettings, progress: Progress) -> dict[str, Any]:
    plan, sample, best = compared.plan, compared.sample, compared.recommendation.row
    studies = {row.options: row.study for row in (*compared.kind_rows, *compared.rows)}
    proposals = study_proposals(compared, progress)
    return {
        "sample": {
            "documents": len(sample.ids),
            "read": sample.read_count,
            "median_words": best.study.median_words,
            "cut_by_time": compared.studied_share < 1.0,
            "looked_at": {options.kind: study.documents_count for options, study in studies.items()},
        },
        "demand": {
            "documents_per_day": plan.documents_per_day,
            "retention_s": plan.profile.retention_s,
            "retention_slack_s": plan.profile.retention_slack_s,
            "documents_kept": plan.documents_kept,
        },
        "rows": [_row_values(compared, row) for row in compared.rows],
        "kinds": [{**_row_values(compared, row), "documents": row.study.documents_count} for row in compared.kind_rows],
        "recalls": list(_recalls(compared)),
        "thresholds": list(_thresholds(compared)),
        "recommendation": _recommendation(compared),
        "warnings": [
            *_too_few_documents(best.study.indexed_count),
            *warnings(best, plan.documents_kept, plan.profile.exact_limit, is_cut_by_time=compared.studied_share < 1.0),
            *proposals.warnings,
            *filter(None, [html_warning(sum(map(has_html, sample.texts)), len(sample.texts))]),
        ],
        "similarities": [
            {"from": place / BINS, "to": (place + 1) / BINS, "pairs": round(float(count))}
            for place, count in enumerate(best.study.histogram)
            # Only bins that end above the lowest threshold; 1e-9 for a rounded edge.
            if (place + 1) / BINS > min(plan.thresholds) + 1e-9
        ],
        "curve": [
            {"similarity": middle, "found": rate.hits, "pairs": rate.total}
            for middle, rate in found_by_similarity(best.study, best.banding, _CURVE_BINS)
        ],
        **_proposals(compared, proposals),
        "borderline": _borderline(compared),
    }


def _too_few_documents(compared_count: int) -> Iterator[str]:
    if compared_count < LEAST_COMPARED:
        yield f"nothing is recommended: of {compared_count:,} documents compared, {LEAST_COMPARED:,} are the least"


def _proposals(compared: ComparedSettings, proposals: Proposals) -> dict[str, Any]:
    """Return ``proposals`` for the table, and ``proposed``, the advised settings; None with too few documents."""
    recommendation, *advised = proposals.measured
    is_enough = recommendation.row.study.indexed_count >= LEAST_COMPARED
    shown = [(recommendation, True)]
    shown += [(proposal, False) for proposal in proposals.rejected]
    shown += [(proposal, True) for proposal in advised]
    return {
        "proposals": [
            {**_proposal(compared, proposal), "is_advised": is_advised}
            for proposal, is_advised in (shown if len(shown) > 1 else [])  # empty if there is only the recommendation
        ],
        "proposed": _advised(compared.plan, proposals) if is_enough else None,
    }


def _advised(plan: TuningPlan, proposals: Proposals) -> dict[str, Any]:
    proposal = proposals.measured[-1]  # all proposals together, if there are several
    learnt = proposal.learnt
    stops = {} if learnt is None else {"stop_shingles": str(plan.stops_path)}
    section = settings_section(plan.name, proposal.profile.model_copy(update=stops), proposal.row)
    return {
        "toml": section,
        "settings_file": section if plan.has_settings_file else f"{SERVERS}\n{section}",
        "stop_shingles": None if learnt is None else learnt.stops.encoded(),
        "stops_path": str(plan.stops_path),
    }


def _proposal(compared: ComparedSettings, proposal: MeasuredProposal) -> dict[str, Any]:
    """Return the pair counts and examples of a proposal, and those values of its row that it may change."""
    row_values = _row_values(compared, proposal.row)
    row_keys = ("bands", "rows", "bytes_per_document", "candidates_that_stay", "candidates_forecast", "documents_per_s")
    return {
        "name": proposal.name,
        "pairs": proposal.pairs,
        "gained": proposal.gained_count,
        "lost": proposal.lost_count,
        "boilerplate": proposal.boilerplate,
        "families": proposal.families,
        "across": proposal.across,
        **{key: row_values[key] for key in row_keys},
        "examples": _examples(compared, proposal.row.study, proposal.gained_pairs),
    }


def _examples(compared: ComparedSettings, study: Study, pairs: Pairs) -> list[dict[str, Any]]:
    """Return some of the pairs for people; ``pairs`` have the rows of the study's texts."""
    rows = study.text_rows
    return shown_pairs(compared.sample, study.options, pairs._replace(left=rows[pairs.left], right=rows[pairs.right]))


def _row_values(compared: ComparedSettings, row: TuningRow) -> dict[str, Any]:
    plan, candidates, index_size = compared.plan, row.candidates, compared.plan.documents_kept
    document_bytes = bytes_per_document(row, compared.workload, plan.bucket_layout, plan.profile)
    return {
        "unit": row.options.unit,
        "size": row.options.size,
        "threshold": row.threshold,
        "min_recall": row.min_recall,
        "bands": row.banding.bands,
        "rows": row.banding.rows,
        "pairs": round(row.study.alerted_count(row.threshold)),
        "recall_from": row.recall_from,
        # With the bands alone, of pairs from the similarity recall_from on: the least chance that a pair becomes a
        # candidate; the mean chance over the sample's pairs; the share of these that are candidates.
        "probability_at_recall_from": row.banding.probability(row.recall_from),
        "expected_recall": row.recall.expected,
        "measured_recall": row.recall.measured,
        "permutations": row.permutations,
        **row.limits._asdict(),
        # With these limits (bucket_cap, max_candidates), which leave some candidates out of the comparison: the least
        # chance that a pair from recall_from on is found; the share of the sample's pairs that is found; whether the
        # chance is at least min_recall.
        "found_at_recall_from": row.chance,
        "found_recall": row.found_share,
        "recall_reached": row.reaches_recall,
        # With the bands alone, of pairs of different sets: of edited texts.
        "edited_pairs": row.recall.edited.total,
        "edited_pairs_found": row.recall.edited.hits,
        # In an index that is larger than the collection: the number of candidates that stays the same, and the number
        # by which the others grow with each million documents.
        "candidates_that_stay": _finite(
            candidates.unrelated.near + candidates.related.expected(candidates.collection_size)
        ),
        "candidates_that_grow_per_million": _finite(candidates.unrelated.per_document * 1e6),
        "candidates_forecast": _finite(candidates.expected(index_size)),
        "false_candidates_forecast": _finite(candidates.expected_false(index_size)),
        "bytes_per_document": document_bytes,
        "memory_bytes": document_bytes * index_size,
        "documents_per_s": row.documents_per_s,
        "prepare_us": row.prepare_us,
    }


def _recommendation(compared: ComparedSettings) -> dict[str, Any]:
    plan, (row, reason) = compared.plan, compared.recommendation
    documents_per_s = plan.documents_per_day / DAY_S
    return {
        **_row_values(compared, row),
        "reason": reason,
        "daemons": max(1, math.ceil(documents_per_s / (_LOAD * row.documents_per_s))),
        "bucket_layout": plan.bucket_layout,
        "memory_bytes_by_layout": {
            layout: bytes_per_document(row, compared.workload, layout, plan.profile) * plan.documents_kept
            for layout in BAND_LIFETIMES
        },
    }


def _recalls(compared: ComparedSettings) -> Iterator[dict[str, Any]]:
    """Yield the rows of the recommended kind and threshold, with the share of documents that miss all their pairs."""
    best = compared.recommendation.row
    for row in compared.rows:
        if (row.options, row.threshold) == (best.options, best.threshold):
            yield {
                **_row_values(compared, row),
                "documents_without_alert": share_without_alert(row.study, row.banding, row.recall_from),
            }


def _thresholds(compared: ComparedSettings) -> Iterator[dict[str, Any]]:
    """Yield each threshold, the highest first, with the pairs that it adds to the next higher one."""
    row = compared.recommendation.row
    study = row.study
    copy_pairs = float(study.distinct.copy_pairs()[ALL_PAIRS])  # not only those across the halves of the sample
    weights = study.counts[:, ALL_PAIRS]  # document pairs that each kept pair represents
    similarities = study.pairs.similarities
    is_candidate = study.candidate_mask(row.banding)
    sources = compared.sample.sources_of(study.text_rows)
    pairs_above, alerted_above = 0, np.zeros(len(similarities), np.bool_)
    for threshold in sorted(compared.plan.thresholds, reverse=True):
        alerted = study.alerted_mask(threshold)
        pairs = round(copy_pairs + float(weights[alerted].sum()))
        is_added = alerted & ~alerted_above
        added_weight = float(weights[is_added].sum())
        added_pairs = study.as_text_pairs(study.pairs.where(is_added))
        yield {
            "threshold": threshold,
            "pairs": pairs,
            "added": pairs - pairs_above,
            "by_containment": round(float(weights[alerted & (similarities < threshold)].sum())),
            # Share that the bands find of the added pairs of different texts.
            "found": float(weights[is_added] @ is_candidate[is_added]) / added_weight if added_weight else None,
            "across": across_share(sources, added_pairs),
            "examples": _examples(compared, study, added_pairs) if threshold < row.threshold else [],
        }
        pairs_above, alerted_above = pairs, alerted


def _borderline(compared: ComparedSettings) -> list[dict[str, Any]]:
    """Return the pairs of different sets nearest to the recommended threshold, each by one document of each set."""
    row = compared.recommendation.row
    study = row.study
    first_texts = study.text_rows[study.distinct.first_documents]  # with each set
    ids = [compared.sample.ids[text_row] for text_row in first_texts.tolist()]
    nearest = np.argsort(np.abs(study.pairs.similarities - row.threshold), kind="stable")[:_BORDERLINE_COUNT]
    columns = (column[nearest].tolist() for column in study.pairs)  # left, right, similarities
    return [
        {"left": ids[left], "right": ids[right], "similarity": similarity}
        for left, right, similarity in zip(*columns, strict=True)
    ]


def _finite(value: float) -> float | None:
    """Return a count of candidates; None for infinity (too many to count), which JSON cannot represent."""
    return value if math.isfinite(value) else None
