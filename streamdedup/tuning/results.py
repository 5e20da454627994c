"""The ``streamdedup tune`` results of one round as plain values, None for unknown values.

``rounds`` calls ``results_of``; ``--json`` prints the values, ``cli/rendering`` makes tables and the report from them.
A row is a ``TuningRow`` (``rows``); its ``study`` has the pairs of the sample in one shingle kind, as pairs of distinct
sets with the number of document pairs that each represents.
"""

import math
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from streamdedup.text.markup import has_html, html_warning
from streamdedup.tuning.advice import SERVERS, settings_section, warnings
from streamdedup.tuning.candidates import ALL_PAIRS
from streamdedup.tuning.comparison import DAY_S, ComparedSettings, Progress
from streamdedup.tuning.memory import BAND_LIFETIMES, bytes_per_document
from streamdedup.tuning.proposals import MeasuredProposal, Proposals, learning_command, study_proposals
from streamdedup.tuning.rows import TuningRow
from streamdedup.tuning.study import BINS, Study

#: Greatest load of a daemon, as a share of its speed; the other half is for busy hours and backlogs.
_LOAD: Final = 0.5
#: Pairs nearest to the threshold that the report lists.
_BORDERLINE_COUNT: Final = 10
#: Pairs that are shown for each threshold, and characters of each of their texts.
_EXAMPLES_COUNT: Final = 10
_EXAMPLE_CHARS: Final = 160
#: Characters within which the end of a word is looked for, so that an excerpt is cut between words.
_WORD_CHARS: Final = 24
#: Bins of similarity for which the recall is drawn.
_CURVE_BINS: Final = 40


def results_of(compared: ComparedSettings, progress: Progress) -> dict[str, Any]:
    """Return all results; the proposals are computed here, for the recommended shingles and threshold."""
    question, sample, row = compared.question, compared.sample, compared.recommendation.row
    studies = {row.options: row.study for row in (*compared.kinds, *compared.rows)}
    proposals = study_proposals(compared, progress)
    return {
        "sample": {
            "documents": len(sample.ids),
            "read": sample.read_count,
            "median_words": row.study.median_words,
            "cut_by_time": compared.share < 1.0,
            "looked_at": {f"{kind.unit} {kind.size}": study.documents_count for kind, study in studies.items()},
        },
        "demand": {
            "documents_per_day": question.documents_per_day,
            "retention_s": question.profile.retention_s,
            "retention_slack_s": question.profile.retention_slack_s,
            "documents_kept": question.documents_kept,
        },
        "rows": [_row(compared, row) for row in compared.rows],
        "kinds": [{**_row(compared, row), "documents": row.study.documents_count} for row in compared.kinds],
        "recalls": list(_recalls(compared)),
        "thresholds": list(_thresholds(compared)),
        "recommendation": _recommendation(compared),
        "warnings": [
            *warnings(row, question.documents_kept, question.profile.exact_limit, is_cut_by_time=compared.share < 1.0),
            *proposals.warnings,
            *filter(None, [html_warning(sum(map(has_html, sample.texts)), len(sample.texts))]),
        ],
        "similarities": [
            {"from": index / BINS, "to": (index + 1) / BINS, "pairs": round(float(count))}
            for index, count in enumerate(row.study.histogram)
            # Not a bin that ends at the lowest threshold, also where rounding puts its edge above.
            if (index + 1) / BINS > min(question.thresholds) + 1e-9
        ],
        "curve": [
            {"similarity": middle, "found": rate.hits, "pairs": rate.total}
            for middle, rate in row.study.found_by_similarity(row.banding, _CURVE_BINS)
        ],
        **_proposals(compared, proposals),
        "borderline": _borderline(compared),
    }


def _proposals(compared: ComparedSettings, proposals: Proposals) -> dict[str, Any]:
    question, measured = compared.question, proposals.measured
    learnt = measured[-1].learnt  # of all proposals together, if there are several
    command = None
    if learnt is not None:
        command = learning_command(measured[0].row, question.name, question.profile, question.arguments)
    section = proposals.section(question.name)
    return {
        # The first is the recommendation, which alone is no proposal.
        "proposals": [_proposal(compared, proposal) for proposal in measured] if len(measured) > 1 else [],
        "proposed": {
            "toml": section,
            "settings_file": section if question.has_servers else f"{SERVERS}\n{section}",
            "stop_shingles": None if learnt is None else learnt.stops.encoded(),
            "command": command,
        },
    }


def _proposal(compared: ComparedSettings, proposal: MeasuredProposal) -> dict[str, Any]:
    """Return a proposal's pair counts, and the values of its row that the proposal may change."""
    row = _row(compared, proposal.row)
    pair_keys = ("pairs", "gained", "lost", "boilerplate")
    row_keys = ("bands", "rows", "bytes_per_document", "candidates_that_stay", "candidates_forecast", "documents_per_s")
    return {
        "name": proposal.name,
        **{key: getattr(proposal, key) for key in pair_keys},
        **{key: row[key] for key in row_keys},
    }


def _row(compared: ComparedSettings, row: TuningRow) -> dict[str, Any]:
    """Return the values of one row of the table."""
    candidates, index_size = row.candidates, compared.question.documents_kept
    document_bytes = _document_bytes(compared, row, compared.question.bucket_layout)
    return {
        "unit": row.options.unit,
        "size": row.options.size,
        "threshold": row.threshold,
        "min_recall": row.min_recall,
        "bands": row.banding.bands,
        "rows": row.banding.rows,
        "pairs": round(row.study.alerted_pairs(row.threshold)),
        "recall_from": row.recall_from,
        # The bands alone, before the limits for storms: the chance that a pair with the similarity recall_from becomes
        # a candidate; the mean chance of the sample's pairs from there on; the share of these that are candidates.
        "probability_at_recall_from": row.banding.probability(row.recall_from),
        "expected_recall": row.recall.expected,
        "measured_recall": row.recall.measured,
        "permutations": row.permutations,
        **row.limits._asdict(),
        # With these limits, bucket_cap and max_candidates, not every candidate is compared: the chance that a pair with
        # the similarity recall_from is found, the share of the sample's pairs from there on that is found, and whether
        # the chance is high enough.
        "found_at_recall_from": row.chance,
        "found_recall": row.found_share,
        "recall_reached": row.reached,
        # Pairs of different sets, by the bands alone.
        "edited_pairs": row.recall.edited.total,
        "edited_pairs_found": row.recall.edited.hits,
        "edited_recall_bounds": row.recall.edited.bounds(),
        "candidates_per_document": _finite(candidates.expected(row.study.documents_count)),
        # Beyond the size of the collection: the candidates whose number stays the same, and the growth of the number.
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


def _document_bytes(compared: ComparedSettings, row: TuningRow, layout: str) -> float:
    profile = compared.question.profile
    return bytes_per_document(row, compared.workload, layout, profile.exact_limit, captions=profile.label_bytes > 0)


def _recommendation(compared: ComparedSettings) -> dict[str, Any]:
    question, (row, reason) = compared.question, compared.recommendation
    section = settings_section(question.name, question.profile, row)
    documents_per_s = question.documents_per_day / DAY_S
    return {
        **_row(compared, row),
        "reason": reason,
        "daemons": max(1, math.ceil(documents_per_s / (_LOAD * row.documents_per_s))),
        "bucket_layout": question.bucket_layout,
        "memory_bytes_by_layout": {
            layout: _document_bytes(compared, row, layout) * question.documents_kept for layout in BAND_LIFETIMES
        },
        "toml": section,
    }


def _recalls(compared: ComparedSettings) -> Iterator[dict[str, Any]]:
    """Yield the rows of the recommended kind and threshold, with the share of documents that miss all their pairs."""
    best = compared.recommendation.row
    for row in compared.rows:
        if (row.options, row.threshold) == (best.options, best.threshold):
            yield {**_row(compared, row), "unlucky_documents": row.study.unlucky_share(row.banding, row.recall_from)}


def _thresholds(compared: ComparedSettings) -> Iterator[dict[str, Any]]:
    """Yield each threshold, the highest first, with the pairs that it adds, for the recommended shingles.

    A threshold below the recommended one has examples: texts of pairs that it adds to the next higher threshold, evenly
    spread by similarity rank.
    """
    row = compared.recommendation.row
    study = row.study
    copy_pairs = float(study.distinct.copy_pairs()[ALL_PAIRS])
    weights = study.counts[:, ALL_PAIRS]  # document pairs that each kept pair represents
    similarities = study.pairs.similarities
    is_candidate = study.candidate_mask(row.banding)
    previous_pairs, previous = 0, np.zeros(len(similarities), np.bool_)
    for threshold in sorted(compared.question.thresholds, reverse=True):
        alerted = study.alerted(threshold)
        pairs = round(copy_pairs + float(weights[alerted].sum()))
        added = np.flatnonzero(alerted & ~previous)
        weight = float(weights[added].sum())
        shown = added if threshold < row.threshold else added[:0]
        ordered = shown[np.argsort(-similarities[shown], kind="stable")]
        spread = np.linspace(0, len(ordered) - 1, min(len(ordered), _EXAMPLES_COUNT)).round().astype(np.int64)
        yield {
            "threshold": threshold,
            "pairs": pairs,
            "added": pairs - previous_pairs,
            "by_containment": round(float(weights[alerted & (similarities < threshold)].sum())),
            # Share that the bands find of the added pairs of different texts.
            "found": float(weights[added] @ is_candidate[added]) / weight if weight else None,
            "examples": [_example(compared, study, number) for number in ordered[spread].tolist()],
        }
        previous_pairs, previous = pairs, alerted


def _example(compared: ComparedSettings, study: Study, number: int) -> dict[str, Any]:
    """Return a pair of different texts by its number in ``study.pairs``: the later text first, both as excerpts."""
    ids, texts = compared.sample.ids, compared.sample.texts
    set_numbers = [study.pairs.left[number], study.pairs.right[number]]
    earlier, later = sorted(study.first_texts[set_numbers].tolist())
    left_text, right_text = _excerpts(texts[later], texts[earlier])
    return {
        "similarity": float(study.pairs.similarities[number]),
        "left": ids[later],
        "left_text": left_text,
        "right": ids[earlier],
        "right_text": right_text,
    }


def _excerpts(*texts: str) -> tuple[str, str]:
    """Return two texts in one line each, cut to whole words around the first difference."""
    lines = [" ".join(text.split()) for text in texts]
    characters = enumerate(zip(*lines, strict=False))
    difference = next((index for index, (a, b) in characters if a != b), min(map(len, lines)))
    # A third of the excerpt is before the difference, more where the longer line ends soon after the difference.
    start = max(0, min(difference - _EXAMPLE_CHARS // 3, max(map(len, lines)) - _EXAMPLE_CHARS))
    left, right = (_excerpt(line, start) for line in lines)
    return left, right


def _excerpt(line: str, start: int) -> str:
    """Return at most ``_EXAMPLE_CHARS`` characters of a line from ``start`` on, cut at spaces near the ends, if any."""
    end = start + _EXAMPLE_CHARS
    first_space = line.find(" ", start, start + _WORD_CHARS) if start else -1
    begin = start if first_space < 0 else first_space + 1
    last_space = line.rfind(" ", end - _WORD_CHARS, end) if end < len(line) else len(line)
    stop = last_space if last_space > begin else end
    return f"{'...' * (begin > 0)}{line[begin:stop]}{'...' * (end < len(line))}"


def _borderline(compared: ComparedSettings) -> list[dict[str, Any]]:
    row = compared.recommendation.row
    study = row.study
    ids = [compared.sample.ids[number] for number in study.first_texts.tolist()]  # by set number
    nearest = np.argsort(np.abs(study.pairs.similarities - row.threshold), kind="stable")[:_BORDERLINE_COUNT]
    columns = (column[nearest].tolist() for column in study.pairs)  # left, right, similarities
    return [
        {"left": ids[left], "right": ids[right], "similarity": similarity}
        for left, right, similarity in zip(*columns, strict=True)
    ]


def _finite(value: float) -> float | None:
    """Return a number, or None for infinity, which JSON cannot represent: too many candidates to list."""
    return value if math.isfinite(value) else None
