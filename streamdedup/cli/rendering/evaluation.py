"""The result of ``streamdedup evaluate`` as lines, which ``docs/tuning.md`` explains, and as one JSON object."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from streamdedup.cli.rendering.safe_text import printable
from streamdedup.counts import counted, listed_counts
from streamdedup.detection.model import DetectorOptions
from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.scores import Evaluation


def as_lines(evaluation: Evaluation) -> Iterator[str]:
    yield from _conditions(evaluation)
    yield ""
    yield from _rates(evaluation)
    yield ""
    yield from _missed(evaluation)


def _conditions(evaluation: Evaluation) -> Iterator[str]:
    options, run, speed = evaluation.options, evaluation.run, evaluation.documents_per_second
    documents = f"{counted(len(evaluation.ids), 'document')}, skipped: {listed_counts(run.skipped)}"
    yield f"{documents}; {speed:,.0f} documents/s" if speed else documents
    yield _settings_line(options)
    if evaluation.candidates_per_document is not None:
        yield f"candidates: {evaluation.candidates_per_document:,.1f} a document"
    truth = f"truth: {evaluation.truth}"
    if evaluation.unknown_pairs_count:
        truth += f"; {counted(evaluation.unknown_pairs_count, 'pair')} with a document that is in no file"
    yield truth
    if options.suppression is not None:
        yield (
            f"suppressed: {listed_counts(run.suppressed)}; "
            f"of the truth {counted(evaluation.suppressed_count, 'pair')}, not counted below"
        )
    if limits_text := run.limits.sentence():  # empty unless documents reached a limit for storms
        yield limits_text


def _settings_line(options: DetectorOptions) -> str:
    line = (
        f"threshold {options.threshold:g}; {options.banding} (bands x rows), "
        f"{options.recall(options.recall_from):.4f} expected at recall_from {options.recall_from:g}"
    )
    if (rule := options.containment) is not None:
        line += f"; by containment from {rule.threshold:g}"
    return f"{line}; {_comparison_method(options)}"


def _comparison_method(options: DetectorOptions) -> str:
    if options.exact_limit is None:
        return "every pair is compared exactly"
    error = options.measure.standard_error(options.threshold, options.permutations)
    estimates = f"estimates have a standard error of {error:.3f} at the threshold"
    if options.exact_limit == 0:
        return estimates
    return f"exact up to {options.exact_limit:,} shingles, beyond that {estimates}"


def _rates(evaluation: Evaluation) -> Iterator[str]:
    scores = evaluation.scores
    yield f"{'':<28}{'hits':>12}{'of':>12}{'share':>9}"
    # A computed truth has only pairs from `recall_from` on, for which the recall is promised; a file has any pairs.
    recall_range = "" if evaluation.truth_file else f" from {evaluation.options.recall_from:g}"
    yield _rate_line(f"recall{recall_range}", scores.recall)
    yield _rate_line("precision", scores.precision)
    if evaluation.options.containment is not None:
        yield _rate_line("recall by containment", scores.containment_recall)
        yield _rate_line("precision by containment", scores.containment_precision)
    yield _rate_line("documents without an alert", scores.documents_without_alert)


def _rate_line(name: str, rate: Rate) -> str:
    if rate.share is None:  # the total is 0
        return f"{name:<28}{0:>12}{0:>12}{'-':>9}"
    return f"{name:<28}{rate.hits:>12,}{rate.total:>12,}{rate.share:>9.4f}"


def _missed(evaluation: Evaluation) -> Iterator[str]:
    scores = evaluation.scores
    yield f"missed: {counted(sum(scores.missed.values()), 'pair')}"
    for reason, count in scores.missed.items():
        yield f"  {count:,}  {reason.value}"
        for pair in (example for example in scores.examples if example.reason == reason):
            ids = "  ".join(printable(evaluation.ids[row]) for row in (pair.left, pair.right))
            yield f"       {pair.similarity:.4f}  {ids}"


def as_object(evaluation: Evaluation) -> dict[str, Any]:
    options, run, ids, scores = evaluation.options, evaluation.run, evaluation.ids, evaluation.scores
    containment = {}
    if options.containment is not None:  # with the rates of its pairs
        rates = {"recall": _rate_json(scores.containment_recall), "precision": _rate_json(scores.containment_precision)}
        containment = {"containment": {**asdict(options.containment), **rates}}
    return {
        "documents": len(ids),
        "skipped": run.skipped,
        "suppressed": run.suppressed,
        "documents_per_second": evaluation.documents_per_second,
        "candidates_per_document": evaluation.candidates_per_document,
        "threshold": options.threshold,
        "recall_from": options.recall_from,
        **containment,
        "bands": options.banding.bands,
        "rows": options.banding.rows,
        "permutations": options.permutations,
        "exact_limit": options.exact_limit,
        "limits": asdict(run.limits),
        "truth": evaluation.truth,
        "truth_seconds": evaluation.truth_seconds,
        "truth_pairs_unknown": evaluation.unknown_pairs_count,
        "truth_pairs_suppressed": evaluation.suppressed_count,
        "recall": _rate_json(scores.recall),
        "precision": _rate_json(scores.precision),
        "missed": {reason.value: count for reason, count in scores.missed.items()},
        "missed_examples": [
            {"id1": ids[pair.left], "id2": ids[pair.right], "similarity": pair.similarity, "reason": pair.reason.value}
            for pair in scores.examples
        ],
        "documents_without_alert": _rate_json(scores.documents_without_alert),
    }


def _rate_json(rate: Rate) -> dict[str, Any]:
    return {"hits": rate.hits, "of": rate.total, "share": rate.share}
