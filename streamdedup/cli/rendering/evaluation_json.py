"""The ``streamdedup evaluate --json`` result as one JSON object; ``evaluation_lines`` has the form for people.

Called by ``cli.evaluate``.
"""

from dataclasses import asdict
from typing import Any

from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.scores import Evaluation


def as_object(evaluation: Evaluation) -> dict[str, Any]:
    run = evaluation.run
    return {
        "documents": len(evaluation.ids),
        "skipped": run.skipped,
        "suppressed": run.suppressed,
        "documents_per_second": evaluation.documents_per_second,
        "candidates_per_document": evaluation.candidates_per_document,
        **_settings(evaluation),
        "limits": asdict(run.limits),
        "truth": evaluation.truth,
        "truth_seconds": evaluation.truth_seconds,
        "truth_pairs_unknown": evaluation.unknown_count,
        "truth_pairs_suppressed": evaluation.suppressed_count,
        "recall": _rate(evaluation.scores.recall),
        "precision": _rate(evaluation.scores.precision),
        **_misses(evaluation),
    }


def _rate(rate: Rate) -> dict[str, Any]:
    return {"hits": rate.hits, "of": rate.total, "share": rate.share}


def _settings(evaluation: Evaluation) -> dict[str, Any]:
    """Return the settings that matter for recall and precision; a containment rule has its own rates."""
    options, scores = evaluation.options, evaluation.scores
    containment = {}
    if options.containment is not None:
        rates = {"recall": _rate(scores.containment_recall), "precision": _rate(scores.containment_precision)}
        containment = {"containment": {**asdict(options.containment), **rates}}
    return {
        "threshold": options.threshold,
        "recall_from": options.recall_from,
        **containment,
        "bands": options.banding.bands,
        "rows": options.banding.rows,
        "permutations": options.permutations,
        "exact_limit": options.exact_limit,
    }


def _misses(evaluation: Evaluation) -> dict[str, Any]:
    ids, scores = evaluation.ids, evaluation.scores
    return {
        "missed": {reason.value: count for reason, count in scores.missed.items()},
        "missed_examples": [
            {"id1": ids[pair.left], "id2": ids[pair.right], "similarity": pair.similarity, "reason": pair.reason.value}
            for pair in scores.examples
        ],
        "unlucky_documents": _rate(scores.without_match),
    }
