"""Recall and precision of what was found, against a truth.

Where the method keeps the shingles of both documents its similarity is exact, and there recall and precision are
promised at the threshold t. Elsewhere it is an estimate with the standard error e = sqrt(t (1 - t) / K); a pair near t
is a coin toss, so recall is counted from t + 3 e on and precision at t - 3 e.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.model import DetectorOptions
from streamdedup.evaluation.grouping import ClusterQuality, compare, stars
from streamdedup.evaluation.misses import Miss, MissClassifier, compared_exactly
from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.sets import ShingleSets, similarities
from streamdedup.evaluation.trial import Findings
from streamdedup.evaluation.truth import Pairs, Truth

#: Standard errors by which estimated pairs may be off without being held against the method.
TOLERANCE: Final = 3.0
#: Width of a band of similarity.
_BAND: Final = 0.05
#: Examples of missed pairs for each reason.
_EXAMPLES: Final = 5


class BandScore(NamedTuple):
    """Recall of the pairs of one band of similarity.

    Attributes:
        low: From, included.
        high: To, not included; 1 and 1 is the band of the equal ones.
        recall: Found among all true ones in it.
    """

    low: float
    high: float
    recall: Rate


class MissedPair(NamedTuple):
    """An example of a pair that was missed: the places of its documents, its similarity and the reason."""

    left: int
    right: int
    similarity: float
    reason: Miss


class Scores(NamedTuple):
    """How good what was found is.

    Attributes:
        recall: Of all true pairs at the threshold and above, those found.
        precision: Of all found pairs, those that are true.
        exact_recall: Recall of the true pairs that the method compares exactly.
        exact_precision: Precision of the found pairs that it calls exact.
        estimated_recall: Recall of the true pairs that it estimates, from ``estimated_from`` on.
        estimated_precision: Precision of those it calls estimated, at ``estimated_at``.
        estimated_from: The threshold plus three standard errors, at most 1.
        estimated_at: The threshold minus three standard errors.
        bands: Recall by similarity.
        missed: Missed pairs by reason, each with one.
        examples: Some of them.
        clusters: Quality of the clusters.
    """

    recall: Rate
    precision: Rate
    exact_recall: Rate
    exact_precision: Rate
    estimated_recall: Rate
    estimated_precision: Rate
    estimated_from: float
    estimated_at: float
    bands: Sequence[BandScore]
    missed: Mapping[Miss, int]
    examples: Sequence[MissedPair]
    clusters: ClusterQuality


def lowest_judged(options: DetectorOptions) -> float:
    """Return the similarity from which on an estimated pair may be reported without being held against the method."""
    error = options.measure.standard_error(options.threshold, options.permutations)
    return max(options.threshold - TOLERANCE * error, 0.0)


def score(
    truth: Truth,
    findings: Findings,
    options: DetectorOptions,
    sets: ShingleSets,
    ids: list[str],
    times_ms: NDArray[np.int64] | None = None,
) -> Scores:
    """Compare what was found with the truth.

    Args:
        truth: What should be found.
        findings: What was found.
        options: By which rules.
        sets: The shingles of all documents.
        ids: Of all documents, by place.
        times_ms: int64 (n_documents,); record times, for the window; all the same if None.
    """
    wanted = truth.pairs.where(truth.pairs.similarities >= options.threshold)
    found = np.isin(_keys(wanted.left, wanted.right, ids), _keys(findings.pairs.left, findings.pairs.right, ids))
    exact = compared_exactly(sets, options, wanted.left, wanted.right)
    estimated_from = min(2 * options.threshold - lowest_judged(options), 1.0)
    sure = ~exact & (wanted.similarities >= estimated_from)
    missed = wanted.where(~found)
    times = np.zeros(len(ids), np.int64) if times_ms is None else times_ms
    reasons = MissClassifier(options, sets, findings, times).reasons(missed.left, missed.right)
    right = _right(truth, findings, options, sets, ids)
    called_exact = findings.pairs.exact
    return Scores(
        recall=_rate(found),
        precision=_rate(right.at_threshold),
        exact_recall=_rate(found[exact]),
        exact_precision=_rate(right.at_threshold[called_exact]),
        estimated_recall=_rate(found[sure]),
        estimated_precision=_rate(right.within_error[~called_exact]),
        estimated_from=estimated_from,
        estimated_at=lowest_judged(options),
        bands=_bands(wanted.similarities, found, options.threshold),
        missed={reason: count for reason in Miss if (count := Counter(reasons)[reason])},
        examples=_examples(missed, reasons),
        clusters=compare(findings.clusters, stars(wanted, ids)),
    )


class _Right(NamedTuple):
    """Which found pairs are right: at the threshold, and within the error of an estimate."""

    at_threshold: NDArray[np.bool_]
    within_error: NDArray[np.bool_]


def _right(truth: Truth, findings: Findings, options: DetectorOptions, sets: ShingleSets, ids: list[str]) -> _Right:
    pairs = findings.pairs
    if truth.computed:
        true = similarities(sets, pairs.left, pairs.right, options.measure)
        return _Right(true >= options.threshold, true >= lowest_judged(options))
    counted = truth.pairs.similarities >= options.threshold
    keys, known = _keys(pairs.left, pairs.right, ids), _keys(truth.pairs.left, truth.pairs.right, ids)
    return _Right(np.isin(keys, known[counted]), np.isin(keys, known))


def _keys(left: NDArray[np.int64], right: NDArray[np.int64], ids: Sequence[str]) -> NDArray[np.int64]:
    """Return one number for each pair."""
    return left * len(ids) + right


def _rate(hits: NDArray[np.bool_]) -> Rate:
    return Rate(int(np.count_nonzero(hits)), len(hits))


def _bands(similarity: NDArray[np.float64], found: NDArray[np.bool_], threshold: float) -> list[BandScore]:
    """Return the recall of each band that has pairs; the lowest begins at the threshold."""
    steps = np.arange(round(1 / _BAND) + 1) * _BAND
    edges = [threshold, *(float(round(edge, 2)) for edge in steps if edge > threshold + _BAND / 100), 1.0]
    edges = edges if threshold < 1.0 else [1.0, 1.0]
    scores = []
    for low, high in itertools.pairwise(edges):
        inside = (similarity >= low) & ((similarity < high) | (low == high))
        if inside.any():
            scores.append(BandScore(low, high, _rate(found[inside])))
    return scores


def _examples(missed: Pairs, reasons: Sequence[Miss]) -> list[MissedPair]:
    """Return some missed pairs of each reason, the most similar ones."""
    examples: list[MissedPair] = []
    counts: Counter[Miss] = Counter()
    for at in np.argsort(-missed.similarities, kind="stable").tolist():
        counts[reasons[at]] += 1
        if counts[reasons[at]] <= _EXAMPLES:
            pair = int(missed.left[at]), int(missed.right[at]), float(missed.similarities[at])
            examples.append(MissedPair(*pair, reasons[at]))
    return examples
