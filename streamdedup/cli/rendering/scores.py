"""The result of ``streamdedup evaluate``: as lines for a reader, or as one JSON object."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamdedup.cli.rendering.terminal import printable
from streamdedup.detection.model import DetectorOptions
from streamdedup.evaluation.by_document import LEAST_PAIRS, ByDocument
from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.scores import ClusterScore, Scores
from streamdedup.evaluation.trial import Findings
from streamdedup.settings.units import counted, listed_counts
from streamdedup.similarity.lsh import BAND_BYTES


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Result of an evaluation.

    Attributes:
        options: Options of the detector.
        ids: Ids of the documents.
        findings: Findings of the trial.
        truth: Origin of the truth, in words.
        truth_seconds: Time for the truth.
        unknown_count: True pairs with a document that is in no file.
        suppressed_count: Pairs of the truth that the rules of the profile suppress; not part of the scores.
        shingle_counts: int64 (n_documents,); distinct shingles of each document.
        scores: The scores.
    """

    options: DetectorOptions
    ids: Sequence[str]
    findings: Findings
    truth: str
    truth_seconds: float
    unknown_count: int
    suppressed_count: int
    shingle_counts: NDArray[np.int64]
    scores: Scores

    @property
    def documents_per_second(self) -> float | None:
        """Speed of the detector and its store; None without documents."""
        return len(self.ids) / self.findings.seconds if self.ids and self.findings.seconds else None

    @property
    def candidates_per_document(self) -> float | None:
        """Mean number of candidates; None without documents."""
        return self.findings.candidates_count / len(self.ids) if self.ids else None


def as_object(one: Evaluation) -> dict[str, Any]:
    """Return everything as plain values that JSON can represent."""
    scores, options = one.scores, one.options
    return {
        "documents": len(one.ids),
        "skipped": one.findings.skipped_counts,
        "suppressed": one.findings.suppressed_counts,
        "documents_per_second": one.documents_per_second,
        "candidates_per_document": one.candidates_per_document,
        "threshold": options.threshold,
        **_containment_object(one),
        "bands": options.banding.bands,
        "rows": options.banding.rows,
        "permutations": options.permutations,
        "exact_limit": options.exact_limit,
        "limits": asdict(one.findings.limits),
        "truth": one.truth,
        "truth_seconds": one.truth_seconds,
        "truth_pairs_unknown": one.unknown_count,
        "truth_pairs_suppressed": one.suppressed_count,
        "recall": rate_object(scores.recall),
        "precision": rate_object(scores.precision),
        "exact": {"recall": rate_object(scores.exact_recall), "precision": rate_object(scores.exact_precision)},
        "estimated": {
            "recall": rate_object(scores.estimated_recall),
            "recall_from": scores.estimated_from,
            "precision": rate_object(scores.estimated_precision),
            "precision_at": scores.estimated_at,
        },
        "bands_of_similarity": [
            {"from": band.low, "to": band.high, **rate_object(band.recall)} for band in scores.bands
        ],
        "missed": {reason.value: count for reason, count in scores.missed.items()},
        "missed_examples": [
            {
                "id1": one.ids[pair.left],
                "id2": one.ids[pair.right],
                "similarity": pair.similarity,
                "reason": pair.reason.value,
            }
            for pair in scores.examples
        ],
        **_by_document_object(one),
        "clusters": scores.clusters._asdict(),
    }


def _by_document_object(one: Evaluation) -> dict[str, Any]:
    found, ids = one.scores.by_document, one.ids
    return {
        "missed_by_document": [
            {"id": ids[each.document], "missed": each.missed, "pairs": each.pairs} for each in found.most_missed
        ],
        "documents_missing_half": found.lost_count,
        "components": found.components_count,
        "largest_components": [
            {
                "first": ids[each.first],
                "documents": each.documents,
                "pairs": each.pairs,
                "share_of_pairs": each.pairs / one.scores.recall.total,
                "missed": each.missed,
            }
            for each in found.largest
        ],
        "judged_by_threshold": [each._asdict() for each in one.scores.thresholds],
    }


def _containment_object(one: Evaluation) -> dict[str, Any]:
    """Return the rule of containment, with recall and precision of its pairs; nothing where it is off."""
    rule, scores = one.options.containment, one.scores
    if rule is None:
        return {}
    rates = {"recall": rate_object(scores.containment_recall), "precision": rate_object(scores.containment_precision)}
    return {"containment": {**asdict(rule), **rates}}


def rate_object(rate: Rate) -> dict[str, Any]:
    """Return a share with its bounds as plain values."""
    low, high = rate.bounds() or (None, None)
    return {
        "hits": rate.hits,
        "of": rate.total,
        "share": rate.share,
        "low": low,
        "high": high,
        "independent_pairs": rate.effective,
    }


def as_lines(one: Evaluation) -> Iterator[str]:
    """Yield the lines for a reader."""
    yield from _conditions(one)
    yield ""
    yield from _rates(one)
    yield ""
    yield from _by_document(one, one.scores.by_document)
    yield ""
    yield from _clusters(one.scores.clusters)
    yield ""
    yield from _missed(one)


def _conditions(one: Evaluation) -> Iterator[str]:
    """Yield documents, settings and truth."""
    options, speed = one.options, one.documents_per_second
    yield (
        f"{counted(len(one.ids), 'document')}, skipped: {listed_counts(one.findings.skipped_counts)}"
        f"{f'; {speed:,.0f} documents/s' if speed else ''}"
    )
    yield (
        f"threshold {options.threshold:g}; {options.banding} (bands x rows), "
        f"{options.recall(options.threshold):.4f} expected at the threshold{_rule(options)}; "
        f"{_method(options)}"
    )
    if options.containment is not None and one.candidates_per_document is not None:
        bands = options.banding.bands
        yield (
            f"bands for pairs by containment: {one.candidates_per_document:,.1f} candidates a document; "
            f"{counted(bands, 'band')} take about {bands * BAND_BYTES:,} bytes a document in Redis"
        )
    unknown = f"; {counted(one.unknown_count, 'pair')} with a document that is in no file" if one.unknown_count else ""
    yield f"truth: {one.truth}{unknown}"
    if options.suppression is not None:
        yield (
            f"suppressed: {listed_counts(one.findings.suppressed_counts)}; "
            f"of the truth {counted(one.suppressed_count, 'pair')}, not counted below"
        )
    if reached := one.findings.limits.sentence():
        yield reached


def _rates(one: Evaluation) -> Iterator[str]:
    """Yield recall and precision, and the recall by similarity and by threshold."""
    scores = one.scores
    yield f"{'':<28}{'hits':>12}{'of':>12}{'share':>9}   95 % by document"
    yield _line("recall", scores.recall)
    yield _line("  of pairs compared exactly", scores.exact_recall)
    yield _line(f"  of estimated, from {scores.estimated_from:.3f}", scores.estimated_recall)
    yield _line("precision", scores.precision)
    yield _line("  of pairs called exact", scores.exact_precision)
    yield _line(f"  of estimated, at {scores.estimated_at:.3f}", scores.estimated_precision)
    if one.options.containment is not None:
        yield _line("recall by containment", scores.containment_recall)
        yield _line("precision by containment", scores.containment_precision)
    yield "recall by similarity"
    for band in scores.bands:
        name = "equal" if band.low == band.high else f"{band.low:.2f} .. {band.high:.2f}"
        yield _line(f"  {name}", band.recall)
    if scores.thresholds:
        yield "judged pairs that a threshold can find"
        for each in scores.thresholds:
            yield f"  {f'from {each.threshold:g}':<26}{each.pairs:>12,}{scores.recall.total:>12,}{each.share:>9.4f}"


def _rule(options: DetectorOptions) -> str:
    rule = options.containment
    if rule is None:
        return ""
    return (
        f"; by containment from {rule.threshold:g} at similarity {rule.min_similarity:g}, "
        f"{options.recall(rule.min_similarity):.4f} expected there"
    )


def _method(options: DetectorOptions) -> str:
    error = options.measure.standard_error(options.threshold, options.permutations)
    estimates = f"estimates have a standard error of {error:.3f} there"
    if options.exact_limit is None:
        return "every pair is compared exactly"
    if options.exact_limit == 0:
        return estimates
    return f"exact up to {options.exact_limit:,} shingles, beyond that {estimates}"


def _line(name: str, rate: Rate) -> str:
    bounds = rate.bounds()
    if rate.share is None or bounds is None:
        return f"{name:<28}{0:>12}{0:>12}{'-':>9}"
    return f"{name:<28}{rate.hits:>12,}{rate.total:>12,}{rate.share:>9.4f}   {bounds[0]:.4f} .. {bounds[1]:.4f}"


def _clusters(clusters: ClusterScore) -> Iterator[str]:
    yield f"clusters: {clusters.found_count:,} found, {clusters.true_count:,} by the truth"
    if clusters.b_cubed_precision is not None and clusters.b_cubed_recall is not None:
        yield f"  B-cubed   precision {clusters.b_cubed_precision:.4f}  recall {clusters.b_cubed_recall:.4f}"
    if clusters.pairwise_precision is not None and clusters.pairwise_recall is not None:
        yield f"  pairwise  precision {clusters.pairwise_precision:.4f}  recall {clusters.pairwise_recall:.4f}"


def _by_document(one: Evaluation, found: ByDocument) -> Iterator[str]:
    """Yield the components with the most pairs, and the documents with the most misses."""
    yield f"connected components of true pairs: {found.components_count:,}"
    for each in found.largest:
        share = each.pairs / one.scores.recall.total
        yield (
            f"  {counted(each.documents, 'document')}, {counted(each.pairs, 'pair')} ({share:.1%} of all), "
            f"{each.missed:,} missed; with {printable(one.ids[each.first])}"
        )
    if found.lost_count:
        yield (
            f"misses cluster: {counted(found.lost_count, 'document')} of at least {LEAST_PAIRS} pairs missed half or "
            "more of them; a higher min_recall makes such documents rarer"
        )
    for missed in found.most_missed:
        yield f"  {missed.missed:,} of {missed.pairs:,} pairs missed by {printable(one.ids[missed.document])}"


def _missed(one: Evaluation) -> Iterator[str]:
    missed = one.scores.missed
    yield f"missed: {counted(sum(missed.values()), 'pair')}"
    for reason, count in missed.items():
        yield f"  {count:,}  {reason.value}"
        for pair in one.scores.examples:
            if pair.reason == reason:
                ids = "  ".join(printable(one.ids[number]) for number in (pair.left, pair.right))
                yield f"       {pair.similarity:.4f}  {ids}"
