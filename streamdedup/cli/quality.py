"""Shows scores: as lines for a reader, or as one JSON object."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamdedup.cli.differences import printable
from streamdedup.detection.model import DetectorOptions
from streamdedup.evaluation import ClusterQuality, FoundPairs, Rate, Scores
from streamdedup.settings.units import counted

#: Heads and widths of the table of rates.
_HEAD = f"{'':<28}{'hits':>12}{'of':>12}{'share':>9}   95 % within"


@dataclass(frozen=True, slots=True)
class Evaluation:
    """What an evaluation is about, beside its scores.

    Attributes:
        options: By which rules documents were compared.
        ids: Of the documents, by place.
        skipped: Documents passed over, by reason.
        seconds: Spent on finding; reading and truth are not in it.
        truth: Where the truth is from, in words.
        truth_seconds: Spent on the truth.
        unknown_count: True pairs of which a document is in no file.
        shingle_counts: int64 (n_documents,); distinct shingles of each document.
        found: The pairs that were found.
        scores: The scores.
    """

    options: DetectorOptions
    ids: Sequence[str]
    skipped: dict[str, int]
    seconds: float
    truth: str
    truth_seconds: float
    unknown_count: int
    shingle_counts: NDArray[np.int64]
    found: FoundPairs
    scores: Scores

    @property
    def documents_per_second(self) -> float | None:
        """Speed of the detector and its store; None where there was nothing to do."""
        return len(self.ids) / self.seconds if self.ids and self.seconds else None


def as_object(one: Evaluation) -> dict[str, Any]:
    """Return everything as plain values that JSON can hold."""
    scores, options = one.scores, one.options
    return {
        "documents": len(one.ids),
        "skipped": one.skipped,
        "documents_per_second": one.documents_per_second,
        "threshold": options.threshold,
        "bands": options.banding.bands,
        "rows": options.banding.rows,
        "permutations": options.permutations,
        "exact_limit": options.exact_limit,
        "truth": one.truth,
        "truth_seconds": one.truth_seconds,
        "truth_pairs_unknown": one.unknown_count,
        "recall": _rate(scores.recall),
        "precision": _rate(scores.precision),
        "exact": {"recall": _rate(scores.exact_recall), "precision": _rate(scores.exact_precision)},
        "estimated": {
            "recall": _rate(scores.estimated_recall),
            "recall_from": scores.estimated_from,
            "precision": _rate(scores.estimated_precision),
            "precision_at": scores.estimated_at,
        },
        "bands_of_similarity": [{"from": band.low, "to": band.high, **_rate(band.recall)} for band in scores.bands],
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
        "clusters": scores.clusters._asdict(),
    }


def _rate(rate: Rate) -> dict[str, Any]:
    low, high = rate.bounds() or (None, None)
    return {"hits": rate.hits, "of": rate.total, "share": rate.share, "low": low, "high": high}


def as_lines(one: Evaluation) -> Iterator[str]:
    """Yield the lines for a reader."""
    options, scores = one.options, one.scores
    skipped = ", ".join(f"{count:,} {reason}" for reason, count in sorted(one.skipped.items())) or "none"
    speed = one.documents_per_second
    yield f"{counted(len(one.ids), 'document')}, skipped: {skipped}" + (f"; {speed:,.0f} documents/s" if speed else "")
    yield (
        f"threshold {options.threshold:g}; {options.banding} (bands x rows), "
        f"{options.banding.probability(options.threshold, options.min_shared_bands):.4f} expected at the threshold; "
        f"{_method(options)}"
    )
    yield f"truth: {one.truth}" + (
        f"; {counted(one.unknown_count, 'pair')} with a document that is in no file" if one.unknown_count else ""
    )
    yield ""
    yield _HEAD
    yield _line("recall", scores.recall)
    yield _line("  of pairs compared exactly", scores.exact_recall)
    yield _line(f"  of estimated, from {scores.estimated_from:.3f}", scores.estimated_recall)
    yield _line("precision", scores.precision)
    yield _line("  of pairs called exact", scores.exact_precision)
    yield _line(f"  of estimated, at {scores.estimated_at:.3f}", scores.estimated_precision)
    yield "recall by similarity"
    for band in scores.bands:
        name = "equal" if band.low == band.high else f"{band.low:.2f} .. {band.high:.2f}"
        yield _line(f"  {name}", band.recall)
    yield ""
    yield from _clusters(scores.clusters)
    yield ""
    yield from _missed(one)


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


def _clusters(quality: ClusterQuality) -> Iterator[str]:
    yield f"clusters: {quality.found_count:,} found, {quality.true_count:,} by the truth"
    if quality.b_cubed_precision is not None and quality.b_cubed_recall is not None:
        yield f"  B-cubed   precision {quality.b_cubed_precision:.4f}  recall {quality.b_cubed_recall:.4f}"
    if quality.pairwise_precision is not None and quality.pairwise_recall is not None:
        yield f"  pairwise  precision {quality.pairwise_precision:.4f}  recall {quality.pairwise_recall:.4f}"


def _missed(one: Evaluation) -> Iterator[str]:
    missed = one.scores.missed
    yield f"missed: {counted(sum(missed.values()), 'pair')}"
    for reason, count in missed.items():
        yield f"  {count:,}  {reason.value}"
        for pair in one.scores.examples:
            if pair.reason == reason:
                ids = "  ".join(printable(one.ids[place]) for place in (pair.left, pair.right))
                yield f"       {pair.similarity:.4f}  {ids}"
