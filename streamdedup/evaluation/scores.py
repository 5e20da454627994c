"""Recall and precision of the pairs found, against a truth.

Where the shingles of both documents are stored the similarity is exact, and recall and precision are promised at the
threshold t. Elsewhere the similarity is an estimate with the standard error e = sqrt(t (1 - t) / K); a pair near t may
fall on either side, so recall counts from t + 3 e on and precision from t - 3 e on.
"""

import itertools
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.model import DetectorOptions
from streamdedup.detection.suppression import Suppression, source_key
from streamdedup.evaluation.by_document import ByDocument, by_document
from streamdedup.evaluation.misses import Miss, MissClassifier, compared_exactly
from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.trial import Findings
from streamdedup.evaluation.truth import Pairs, ShingleSets, contained, similarities
from streamdedup.similarity.containment import standard_error

#: Standard errors that an estimated pair may be off.
TOLERANCE: Final = 3.0
#: Width of a band of similarity.
_BAND: Final = 0.05
#: Examples of missed pairs for each reason.
_EXAMPLES: Final = 5


class Truth(NamedTuple):
    """The pairs that should be found.

    Attributes:
        pairs: All true pairs; those below the threshold count only if they count whole.
        computed: ``pairs`` are all pairs with an exact Jaccard similarity of at least the threshold. Otherwise they
            were judged elsewhere, and a found pair is right if it is among them.
        whole: All pairs count, also those below the threshold.
    """

    pairs: Pairs
    computed: bool
    whole: bool = False


class BandScore(NamedTuple):
    """Recall of the true pairs with a similarity from ``low`` to below ``high``; 1 and 1 is the band of equal sets."""

    low: float
    high: float
    recall: Rate


class MissedPair(NamedTuple):
    """A missed pair: numbers of its documents, similarity, and reason."""

    left: int
    right: int
    similarity: float
    reason: Miss


class ClusterScore(NamedTuple):
    """Agreement of the clusters with the true ones; None where there is nothing to judge.

    Pairwise: of the pairs of documents in one cluster, the share in one true cluster (precision), and of the pairs in
        one true cluster, the share in one cluster (recall). B-cubed (A. Bagga, B. Baldwin, 1998): the same for the
        companions of each document, itself included, as a mean over the documents with a companion in either
        clustering.

    Attributes:
        found_count: Clusters of at least two documents.
        true_count: The same of the true ones.
        pairwise_precision: See above.
        pairwise_recall: See above.
        b_cubed_precision: See above.
        b_cubed_recall: See above.
    """

    found_count: int
    true_count: int
    pairwise_precision: float | None
    pairwise_recall: float | None
    b_cubed_precision: float | None
    b_cubed_recall: float | None


class ThresholdShare(NamedTuple):
    """A threshold, with the number of judged pairs from it on, and their share of all judged pairs."""

    threshold: float
    pairs: int
    share: float


class Scores(NamedTuple):
    """Scores of a trial; bounds of shares of pairs are those by document (``rates``).

    Attributes:
        recall: Found pairs among the true pairs, by similarity and by containment.
        precision: True pairs among the found pairs.
        exact_recall: Recall of the true pairs that the detector compares exactly.
        exact_precision: Precision of the found pairs that it reports as exact.
        estimated_recall: Recall of the true pairs that it estimates, from ``estimated_from`` on.
        estimated_precision: Precision of the pairs that it reports as estimated, from ``estimated_at`` on.
        estimated_from: The threshold plus three standard errors, at most 1.
        estimated_at: The threshold minus three standard errors.
        containment_recall: Recall of the true pairs below the threshold.
        containment_precision: Precision of the found pairs with a similarity below the threshold.
        bands: Recall by similarity.
        missed: Missed pairs by reason, without reasons of no pair.
        examples: Some of them.
        clusters: Agreement of the clusters.
        by_document: True and missed pairs by document.
        thresholds: Judged pairs by threshold, where all of them count; else empty.
    """

    recall: Rate
    precision: Rate
    exact_recall: Rate
    exact_precision: Rate
    estimated_recall: Rate
    estimated_precision: Rate
    estimated_from: float
    estimated_at: float
    containment_recall: Rate
    containment_precision: Rate
    bands: Sequence[BandScore]
    missed: Mapping[Miss, int]
    examples: Sequence[MissedPair]
    clusters: ClusterScore
    by_document: ByDocument
    thresholds: Sequence[ThresholdShare]


def lowest_judged(options: DetectorOptions) -> float:
    """Return the least true similarity of an estimated pair that counts as right."""
    error = options.measure.standard_error(options.threshold, options.permutations)
    return max(options.threshold - TOLERANCE * error, 0.0)


def _tolerant(options: DetectorOptions) -> DetectorOptions:
    """Return the options by which an estimated pair counts as right: all limits are lower by three standard errors."""
    rule = options.containment
    if rule is not None:
        similarity, permutations = rule.min_similarity, options.permutations
        errors = (
            standard_error(rule.threshold, options.measure.least_jaccard(similarity), permutations),
            options.measure.standard_error(similarity, permutations),
        )
        rule = replace(
            rule,
            threshold=max(rule.threshold - TOLERANCE * errors[0], 0.0),
            min_similarity=max(similarity - TOLERANCE * errors[1], 0.0),
        )
    return replace(options, threshold=lowest_judged(options), containment=rule)


def near_duplicates(pairs: Pairs, options: DetectorOptions, sets: ShingleSets) -> NDArray[np.bool_]:
    """Return the pairs that are near-duplicates by their exact similarity or containment, bool (n,)."""
    near: NDArray[np.bool_] = pairs.similarities >= options.threshold
    if options.containment is not None:
        below = np.flatnonzero(~near)
        near[below] = contained(sets, pairs.left[below], pairs.right[below], options.containment, options.measure)
    return near


def without_suppressed(
    pairs: Pairs, suppression: Suppression | None, sources: Sequence[str | None], sets: ShingleSets
) -> Pairs:
    """Return the pairs that are alerted.

    Args:
        pairs: Pairs of documents.
        suppression: Rules of the profile; None for no rule.
        sources: Source of each document.
        sets: Shingles of all documents.
    """
    if suppression is None or not len(pairs.left):
        return pairs
    shingle_counts = np.where(sets.stop_only, 0, sets.sizes)
    is_short = np.minimum(shingle_counts[pairs.left], shingle_counts[pairs.right]) < suppression.min_shingles
    keys = [source_key(source) if source else None for source in sources]
    distinct = {key: at for at, key in enumerate(dict.fromkeys(keys))}
    source_at = np.array([distinct[key] for key in keys], np.int64)
    # The rules are asked once for each combination of sources.
    combinations, place = np.unique(
        np.stack((source_at[pairs.left], source_at[pairs.right])), axis=1, return_inverse=True
    )
    names = list(distinct)
    is_ignored = np.array(
        [suppression.source_rule(names[a], names[b]) is not None for a, b in combinations.T.tolist()], np.bool_
    )
    return pairs.where(~(is_short | is_ignored[place.reshape(-1)]))


def score(truth: Truth, findings: Findings, options: DetectorOptions, sets: ShingleSets, ids: list[str]) -> Scores:
    """Compare findings with the truth.

    Args:
        truth: The pairs that should be found.
        findings: Findings of the trial.
        options: Options of the detector.
        sets: Shingles of all documents.
        ids: Ids of all documents.
    """
    pairs, estimated_at = findings.pairs, lowest_judged(options)
    wanted = truth.pairs if truth.whole else truth.pairs.where(near_duplicates(truth.pairs, options, sets))
    found = np.isin(_codes(wanted, ids), _codes(pairs, ids))
    exact = compared_exactly(sets, options, wanted.left, wanted.right)
    estimated_from = min(2 * options.threshold - estimated_at, 1.0)
    sure = ~exact & (wanted.similarities >= estimated_from)
    below = wanted.similarities < options.threshold
    missed = wanted.where(~found)
    reasons = MissClassifier(options, sets, findings).reasons(missed.left, missed.right)
    if truth.computed:
        true = Pairs(pairs.left, pairs.right, similarities(sets, pairs.left, pairs.right, options.measure))
        right, nearly_right = near_duplicates(true, options, sets), near_duplicates(true, _tolerant(options), sets)
    else:
        right, nearly_right = (np.isin(_codes(pairs, ids), _codes(judged, ids)) for judged in (wanted, truth.pairs))
    return Scores(
        recall=_rate(wanted, found),
        precision=_rate(pairs, right),
        exact_recall=_rate(wanted, found, exact),
        exact_precision=_rate(pairs, right, findings.exact),
        estimated_recall=_rate(wanted, found, sure),
        estimated_precision=_rate(pairs, nearly_right, ~findings.exact),
        estimated_from=estimated_from,
        estimated_at=estimated_at,
        containment_recall=_rate(wanted, found, below),
        containment_precision=_rate(pairs, right, pairs.similarities < options.threshold),
        bands=_bands(wanted, found, 0.0 if truth.whole else options.least_similarity),
        missed={reason: count for reason in Miss if (count := Counter(reasons)[reason])},
        examples=_examples(missed, reasons),
        clusters=compare_clusters(findings.clusters, star_clusters(wanted, ids)),
        by_document=by_document(wanted, found, len(ids)),
        thresholds=_thresholds(wanted.similarities, options.threshold) if truth.whole else [],
    )


def _rate(pairs: Pairs, hits: NDArray[np.bool_], chosen: NDArray[np.bool_] | None = None) -> Rate:
    """Return the share of hits among the chosen pairs, all if None; both arguments bool (n,)."""
    own: slice | NDArray[np.bool_] = slice(None) if chosen is None else chosen
    return Rate.of_pairs(hits[own], pairs.left[own], pairs.right[own])


def _codes(pairs: Pairs, ids: Sequence[str]) -> NDArray[np.int64]:
    """Return one number for each pair."""
    return pairs.left * len(ids) + pairs.right


def _bands(pairs: Pairs, found: NDArray[np.bool_], lowest: float) -> list[BandScore]:
    """Return the recall of each band of similarity that has pairs; the lowest begins at ``lowest``."""
    steps = np.arange(round(1 / _BAND) + 1) * _BAND
    edges = [lowest, *(float(round(edge, 2)) for edge in steps if edge > lowest + _BAND / 100), 1.0]
    edges = edges if lowest < 1.0 else [1.0, 1.0]
    scores = []
    for low, high in itertools.pairwise(edges):
        inside = (pairs.similarities >= low) & ((pairs.similarities < high) | (low == high))
        if inside.any():
            scores.append(BandScore(low, high, _rate(pairs, found, inside)))
    return scores


def _thresholds(similarity: NDArray[np.float64], own: float) -> list[ThresholdShare]:
    """Return the judged pairs that each tenth and the own threshold can find, the highest threshold first."""
    steps = {round(tenth / 10, 1) for tenth in range(1, 11)} | {own}
    counts = {step: int(np.count_nonzero(similarity >= step)) for step in sorted(steps, reverse=True)}
    return [ThresholdShare(step, count, count / max(len(similarity), 1)) for step, count in counts.items()]


def _examples(missed: Pairs, reasons: Sequence[Miss]) -> list[MissedPair]:
    """Return the most similar missed pairs of each reason."""
    examples: list[MissedPair] = []
    counts: Counter[Miss] = Counter()
    for at in np.argsort(-missed.similarities, kind="stable").tolist():
        counts[reasons[at]] += 1
        if counts[reasons[at]] <= _EXAMPLES:
            pair = int(missed.left[at]), int(missed.right[at]), float(missed.similarities[at])
            examples.append(MissedPair(*pair, reasons[at]))
    return examples


def star_clusters(pairs: Pairs, ids: Sequence[str]) -> NDArray[np.int64]:
    """Return the first document of each document's cluster, its own number if alone; the rule of `detection.clusters`.

    A document joins the cluster of its best earlier match if it matches that cluster's first document too; so a
    difference from the clusters found is due to missed or wrong pairs, not to another definition of a cluster.

    Args:
        pairs: All true pairs.
        ids: Ids of all documents; of equally similar matches that with the lesser id is the best.
    """
    similar = set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
    best: dict[int, tuple[float, str, int]] = {}
    for earlier, later, similarity in zip(*(column.tolist() for column in pairs), strict=True):
        match = (-similarity, ids[earlier], earlier)
        best[later] = min(best.get(later, match), match)
    first = np.arange(len(ids))
    for later in sorted(best):
        of_best = int(first[best[later][2]])
        if (of_best, later) in similar:
            first[later] = of_best
    return first


def compare_clusters(found: NDArray[np.int64], true: NDArray[np.int64]) -> ClusterScore:
    """Compare two clusterings, each int64 (n,): a cluster number for each document."""
    _, found_at, found_sizes = np.unique(found, return_inverse=True, return_counts=True)
    _, true_at, true_sizes = np.unique(true, return_inverse=True, return_counts=True)
    _, cell_at, cell_sizes = np.unique(np.stack((found, true)), axis=1, return_inverse=True, return_counts=True)
    companions = cell_sizes[cell_at.reshape(-1)]
    judged = (found_sizes[found_at] > 1) | (true_sizes[true_at] > 1)
    together, found_pairs, true_pairs = (
        int((sizes * (sizes - 1)).sum()) for sizes in (cell_sizes, found_sizes, true_sizes)
    )
    return ClusterScore(
        found_count=int(np.count_nonzero(found_sizes > 1)),
        true_count=int(np.count_nonzero(true_sizes > 1)),
        pairwise_precision=Rate(together, found_pairs).share,
        pairwise_recall=Rate(together, true_pairs).share,
        b_cubed_precision=float((companions / found_sizes[found_at])[judged].mean()) if judged.any() else None,
        b_cubed_recall=float((companions / true_sizes[true_at])[judged].mean()) if judged.any() else None,
    )
