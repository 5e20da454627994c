"""Recall and precision of the pairs that a trial found, against a truth: the result of ``streamdedup evaluate``.

Where the shingles of both documents are stored the similarity is exact, and recall and precision are promised at the
threshold t. Elsewhere signatures of K values give an estimate with the standard error e = sqrt(t (1 - t) / K); a pair
near t may fall on either side, so recall counts from t + 3 e on and precision from t - 3 e on.

``cli/evaluate.py`` computes or reads the truth and calls ``without_suppressed`` and ``score``. ``misses`` has the rules
by which a pair is a near-duplicate, or compared exactly.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.model import DetectorOptions
from streamdedup.detection.suppression import Suppression, source_key
from streamdedup.evaluation.misses import Miss, MissClassifier, compared_exactly, near_duplicates
from streamdedup.evaluation.pairs import Pairs, ShingleSets, contained, similarities
from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.trial import DetectorRun, Findings
from streamdedup.similarity.containment import standard_error

#: Standard errors by which an estimate may miss the exact similarity and still count as right.
TOLERANCE: Final = 3.0
#: Similarity from which pairs by containment are part of a computed truth: bands find few pairs below it.
LEAST_JOINED: Final = 0.5
#: Width of a similarity range.
_RANGE_WIDTH: Final = 0.05
#: Examples of missed pairs for each reason.
_EXAMPLES: Final = 5


class Truth(NamedTuple):
    """The pairs that should be found.

    Attributes:
        pairs: The true pairs that no rule suppresses.
        computed: True: ``pairs`` come from the exact join, those by containment from ``LEAST_JOINED`` on; a found pair
            is right if its exact similarity reaches the threshold or the pair fulfils the rule of containment. False:
            ``pairs`` come from a file; a found pair is right if it is in the file.
        ignores_threshold: True for a file that lists pairs without similarities: all its pairs count.
    """

    pairs: Pairs
    computed: bool
    ignores_threshold: bool = False


class RangeScore(NamedTuple):
    """Recall among the true pairs with a similarity from ``low`` to below ``high``; both are 1 for equal sets."""

    low: float
    high: float
    recall: Rate


class MissedPair(NamedTuple):
    """A missed pair: its document numbers, similarity, and reason."""

    left: int
    right: int
    similarity: float
    reason: Miss


class ThresholdShare(NamedTuple):
    """The true pairs with at least the similarity ``threshold``: their number, and their share of all true pairs."""

    threshold: float
    pairs: int
    share: float


class Scores(NamedTuple):
    """Scores of a trial. The bounds of each rate take into account that pairs share documents (``rates``).

    Attributes:
        recall: Found pairs among the promised pairs: the true pairs from ``recall_from`` on, or all of a truth that
            ignores the threshold.
        precision: Right pairs among the found pairs.
        exact_recall: Recall among the promised pairs that the detector compares exactly.
        exact_precision: Precision among the found pairs that the detector reports as exact.
        estimated_recall: Recall among the true pairs from ``recall_limit`` on that the detector compares by estimate.
        estimated_precision: Precision among the pairs that the detector reports as estimated; with a computed truth,
            each limit of the profile is lower by three standard errors.
        recall_limit: The threshold plus three standard errors, at most 1; ``recall_from`` where it is higher.
        precision_limit: The threshold minus three standard errors, at least 0.
        containment_recall: Recall among the true pairs below the threshold. These are alerted by containment, except
            where the truth ignores the threshold.
        containment_precision: Precision among the found pairs whose reported similarity is below the threshold.
        ranges: Recall by similarity range.
        missed: Missed pair count by reason, for reasons that occur.
        examples: The most similar missed pairs of each reason.
        without_match: Share of the documents with promised pairs of which none was found.
        thresholds: The true pairs from each threshold on, for a truth that ignores the threshold; else empty.
    """

    recall: Rate
    precision: Rate
    exact_recall: Rate
    exact_precision: Rate
    estimated_recall: Rate
    estimated_precision: Rate
    recall_limit: float
    precision_limit: float
    containment_recall: Rate
    containment_precision: Rate
    ranges: Sequence[RangeScore]
    missed: Mapping[Miss, int]
    examples: Sequence[MissedPair]
    without_match: Rate
    thresholds: Sequence[ThresholdShare]


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The ``streamdedup evaluate`` result.

    Attributes:
        options, ids: Options of the trial, and ids of its documents by number.
        run, findings: Counts, time and findings of the trial.
        truth, truth_seconds: Origin of the true pairs, as a text, and the time to compute or read them.
        unknown_count: Pairs in the file of true pairs of which a document is in no file; not part of the scores.
        suppressed_count: Pairs of the truth that the rules of the profile suppress; not part of the scores.
        shingle_counts: int64 (n_documents,); distinct shingles per document.
    """

    options: DetectorOptions
    ids: Sequence[str]
    run: DetectorRun
    findings: Findings
    truth: str
    truth_seconds: float
    unknown_count: int
    suppressed_count: int
    shingle_counts: NDArray[np.int64]
    scores: Scores

    @property
    def documents_per_second(self) -> float | None:
        """Detector and store speed; None without documents."""
        return len(self.ids) / self.run.seconds if self.ids and self.run.seconds else None

    @property
    def candidates_per_document(self) -> float | None:
        """Mean candidate count; None without documents."""
        return self.run.candidates_count / len(self.ids) if self.ids else None


def joined_from(options: DetectorOptions) -> float:
    """Return the least similarity of the pairs of a computed truth."""
    return options.threshold if options.containment is None else min(options.threshold, LEAST_JOINED)


def precision_limit(options: DetectorOptions) -> float:
    """Return the least exact similarity with which an estimated pair counts as right."""
    return max(options.threshold - _tolerance(options), 0.0)


def _tolerance(options: DetectorOptions) -> float:
    """Return how far the estimate for a pair at the threshold may be off."""
    return TOLERANCE * options.measure.standard_error(options.threshold, options.permutations)


def _nearly_right(pairs: Pairs, options: DetectorOptions, sets: ShingleSets) -> NDArray[np.bool_]:
    """Return whether a pair reaches a limit within three standard errors, bool (n,); ``pairs`` by exact similarity."""
    right: NDArray[np.bool_] = pairs.similarities >= precision_limit(options)
    if (rule := options.containment) is not None:
        # The error of a containment is computed from a Jaccard similarity, for every measure.
        jaccards = map(options.measure.least_jaccard, pairs.similarities.tolist())
        errors = [standard_error(rule.threshold, jaccard, options.permutations) for jaccard in jaccards]
        right |= contained(sets, pairs.left, pairs.right, rule, TOLERANCE * np.array(errors))
    return right


def without_suppressed(
    pairs: Pairs, suppression: Suppression | None, sources: Sequence[str | None], sets: ShingleSets
) -> Pairs:
    """Return the pairs that no suppression rule of the profile covers; ``sources``: source of each document."""
    if suppression is None:
        return pairs
    # Stop shingles do not count for ``min_shingles``, but the set of a document that has nothing else keeps them.
    shingle_counts = np.where(sets.stop_only, 0, sets.sizes)
    is_short = np.minimum(shingle_counts[pairs.left], shingle_counts[pairs.right]) < suppression.min_shingles
    keys = [source_key(source) if source else None for source in sources]  # an empty source counts as none
    # Returns the rule that suppresses a pair of sources, or None. Cached: there are few sources and many pairs.
    source_rule = cache(suppression.source_rule)
    ends = zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)
    is_ignored = np.array([source_rule(keys[a], keys[b]) is not None for a, b in ends], np.bool_)
    return pairs.where(~(is_short | is_ignored))


def score(truth: Truth, findings: Findings, options: DetectorOptions, sets: ShingleSets, ids: list[str]) -> Scores:
    """Compare the findings of a trial with the truth; ``sets`` and ``ids``: those of all documents, by number."""
    reported, expected = findings.pairs, truth.pairs
    if not truth.ignores_threshold:
        expected = expected.where(near_duplicates(expected, options, sets))
    is_found = np.isin(_codes(expected, ids), _codes(reported, ids))
    is_promised = (expected.similarities >= options.recall_from) | truth.ignores_threshold
    promised, is_promise_kept = expected.where(is_promised), is_found[is_promised]
    exact = compared_exactly(promised, options, sets)
    recall_limit = max(min(options.threshold + _tolerance(options), 1.0), options.recall_from)
    is_estimated_above = ~exact & (promised.similarities >= recall_limit)
    is_below = expected.similarities < options.threshold
    missed = expected.where(~is_found)
    reasons = MissClassifier(options, sets, findings).reasons(missed)
    reason_counts = Counter(reasons)
    if truth.computed:
        recomputed = reported._replace(similarities=similarities(sets, reported.left, reported.right, options.measure))
        is_right = near_duplicates(recomputed, options, sets)
        is_nearly_right = _nearly_right(recomputed, options, sets)
    else:
        is_right = np.isin(_codes(reported, ids), _codes(expected, ids))
        # ``expected`` lacks the file's pairs below the threshold; to find one of these is no mistake of an estimate.
        is_nearly_right = np.isin(_codes(reported, ids), _codes(truth.pairs, ids))
    return Scores(
        recall=_rate(promised, is_promise_kept),
        precision=_rate(reported, is_right),
        exact_recall=_rate(promised, is_promise_kept, exact),
        exact_precision=_rate(reported, is_right, findings.exact),
        estimated_recall=_rate(promised, is_promise_kept, is_estimated_above),
        estimated_precision=_rate(reported, is_nearly_right, ~findings.exact),
        recall_limit=recall_limit,
        precision_limit=precision_limit(options),
        containment_recall=_rate(expected, is_found, is_below),
        containment_precision=_rate(reported, is_right, reported.similarities < options.threshold),
        ranges=_ranges(expected, is_found, 0.0 if truth.ignores_threshold else joined_from(options)),
        missed={reason: reason_counts[reason] for reason in Miss if reason_counts[reason]},
        examples=_examples(missed, reasons),
        without_match=_without_match(promised, is_promise_kept, len(ids)),
        thresholds=_thresholds(expected.similarities, options.threshold) if truth.ignores_threshold else [],
    )


def _rate(pairs: Pairs, hits: NDArray[np.bool_], mask: NDArray[np.bool_] | None = None) -> Rate:
    """Return the share of hits among the pairs in ``mask``, all if None; ``hits`` and ``mask``: bool (n,)."""
    selection: slice | NDArray[np.bool_] = slice(None) if mask is None else mask
    return Rate.of_pairs(hits[selection], pairs.left[selection], pairs.right[selection])


def _without_match(pairs: Pairs, is_found: NDArray[np.bool_], document_count: int) -> Rate:
    ends = np.stack((pairs.left, pairs.right))
    totals = np.bincount(ends.reshape(-1), minlength=document_count)
    missed = np.bincount(ends[:, ~is_found].reshape(-1), minlength=document_count)
    return Rate.of_items((missed == totals)[totals > 0])


def _codes(pairs: Pairs, ids: Sequence[str]) -> NDArray[np.int64]:
    """Return one number for each pair, by which pairs of two lists are compared."""
    return pairs.left * len(ids) + pairs.right


def _ranges(pairs: Pairs, is_found: NDArray[np.bool_], lowest: float) -> list[RangeScore]:
    """Return the recall of each similarity range that has pairs.

    The first range begins at ``lowest``, the last one is 1 to 1: for 0.83 the edges are 0.83, 0.85, ... 0.95, 1, 1.
    """
    steps = np.arange(round(1 / _RANGE_WIDTH)) * _RANGE_WIDTH
    # A step that only rounding puts above ``lowest`` is no edge: hence the tolerance.
    inner = [float(round(step, 2)) for step in steps if step > lowest + _RANGE_WIDTH / 100]
    edges = [lowest, *inner, 1.0, 1.0] if lowest < 1.0 else [1.0, 1.0]
    scores = []
    for low, high in itertools.pairwise(edges):
        inside = (pairs.similarities >= low) & ((pairs.similarities < high) | (low == high))
        if inside.any():
            scores.append(RangeScore(low, high, _rate(pairs, is_found, inside)))
    return scores


def _thresholds(similarity: NDArray[np.float64], threshold: float) -> list[ThresholdShare]:
    """Return the share of the true pairs from each tenth and from the profile's threshold on, the highest first."""
    steps = {round(tenth / 10, 1) for tenth in range(1, 11)} | {threshold}
    counts = {step: int(np.count_nonzero(similarity >= step)) for step in sorted(steps, reverse=True)}
    return [ThresholdShare(step, count, count / max(len(similarity), 1)) for step, count in counts.items()]


def _examples(missed: Pairs, reasons: Sequence[Miss]) -> list[MissedPair]:
    """Return the most similar missed pairs of each reason."""
    examples: list[MissedPair] = []
    counts: Counter[Miss] = Counter()
    for number in np.argsort(-missed.similarities, kind="stable").tolist():
        counts[reasons[number]] += 1
        if counts[reasons[number]] <= _EXAMPLES:
            pair = int(missed.left[number]), int(missed.right[number]), float(missed.similarities[number])
            examples.append(MissedPair(*pair, reasons[number]))
    return examples
