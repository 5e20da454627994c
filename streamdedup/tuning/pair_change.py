"""Pairs of a sample at a threshold, and how another setting changes them.

``compare`` counts the pairs that other shingles lose and gain, ``study_folding`` those of ``fold_marks``;
``study_contained`` counts the pairs that a rule of containment alerts and the threshold does not.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.truth import Pairs, ShingleSets, gathered, join, shingle_sets, similarities
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.tuning.candidates import DistinctSets, distinct_sets

#: Pairs of different sets that are kept, unless told otherwise.
MOST_PAIRS: Final = 100_000
#: Bins of the distribution of similarity between 0 and 1.
BINS: Final = 20
_SEED: Final = 1
#: Points and vowel signs of Hebrew, Arabic and Syriac, which a writer may leave out.
_SIGNS: Final = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8"
    "\u06ea-\u06ed\u0711\u0730-\u074a]"
)
#: Least share of documents with a vowel sign.
_LEAST_SHARE: Final = 0.001
#: Pairs that are listed.
_LISTED: Final = 3


class SamplePairs(NamedTuple):
    """The pairs of a sample from a threshold on.

    Attributes:
        sets: The distinct shingle sets of the documents.
        pairs: Pairs of different sets, by their numbers in ``sets``.
        counts: float64 (n_pairs, 2); pair count (``candidates``) of the documents that each of ``pairs`` represents.
        histogram: float64 (BINS,); pairs of documents by similarity, equal sets in the last bin.
        threshold: The threshold.
    """

    sets: DistinctSets
    pairs: Pairs
    counts: NDArray[np.float64]
    histogram: NDArray[np.float64]
    threshold: float

    @property
    def weights(self) -> NDArray[np.float64]:
        """Pairs of documents that each of ``pairs`` represents, float64 (n_pairs,)."""
        return self.counts[:, 0]

    @property
    def total(self) -> float:
        """Pairs of documents, equal sets included."""
        return float(self.histogram.sum())


class PairChange(NamedTuple):
    """Pairs of documents before a change, after it, lost by it and gained by it."""

    before: int
    after: int
    lost: int
    gained: int


def sample_pairs(
    sets: ShingleSets,
    threshold: float,
    min_words: int = 0,
    progress: Callable[[int], None] = lambda _: None,
    most: int = MOST_PAIRS,
) -> SamplePairs:
    """Find the pairs of a sample by an exact join.

    Args:
        sets: Shingle sets of the documents.
        threshold: Least similarity, above 0, at most 1.
        min_words: Documents with fewer words are skipped.
        progress: Called with the number of sets joined since the last call.
        most: Pairs of different sets that are kept; of more, each is kept with the same chance.
    """
    chance = np.random.default_rng(_SEED)
    distinct = distinct_sets(sets, min_words)
    kept, share, histogram = gathered([]), 1.0, np.zeros(BINS)
    for block in join(distinct.hashes, distinct.offsets, threshold, progress):
        weights = distinct.pair_counts(block.left, block.right)[:, 0]
        bins = np.minimum((block.similarities * BINS + 1e-9).astype(np.int64), BINS - 1)
        histogram += np.bincount(bins, weights=weights, minlength=BINS)
        part = block if share == 1.0 else block.where(chance.random(len(block.left)) < share)
        kept = gathered([kept, part])
        while len(kept.left) > most:
            kept = kept.where(chance.random(len(kept.left)) < 0.5)
            share /= 2
    histogram[-1] += distinct.copy_pairs()[0]
    return SamplePairs(distinct, kept, distinct.pair_counts(kept.left, kept.right) / share, histogram, threshold)


def compare(
    before: SamplePairs, sets: ShingleSets, min_words: int = 0, progress: Callable[[int], None] = lambda _: None
) -> tuple[PairChange, NDArray[np.bool_]]:
    """Compare the pairs of a sample with those of other shingle sets of the same documents.

    Documents with equal sets before have equal sets afterwards.

    Args:
        before: The pairs before the change.
        sets: Shingle sets of the documents after the change.
        min_words: Documents with fewer words are skipped.
        progress: Called with the number of sets joined since the last call.

    Returns:
        The change, and bool (n_pairs,): which of ``before.pairs`` are no pairs any more.
    """
    after = sample_pairs(sets, before.threshold, min_words, progress).total
    left, right = (before.sets.first[column] for column in (before.pairs.left, before.pairs.right))
    lost = similarities(sets, left, right) < before.threshold
    lost_count = float(before.weights[lost].sum())
    gained_count = max(after - (before.total - lost_count), 0.0)
    return PairChange(round(before.total), round(after), round(lost_count), round(gained_count)), lost


class Folding(NamedTuple):
    """Pairs of a sample without and with ``fold_marks``.

    Attributes:
        documents: Documents with a vowel sign.
        share: Their share of the documents.
        change: Pairs without ``fold_marks``, and with it.
    """

    documents: int
    share: float
    change: PairChange


def study_folding(
    texts: Sequence[str],
    options: ShingleOptions,
    threshold: float,
    *,
    min_words: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> Folding | None:
    """Compare the pairs of texts without and with ``fold_marks``; None where it is set or vowel signs are rare.

    Args:
        texts: Texts of the sample.
        options: Shingles of the profile. Repetitions do not count here, and similarity is that of sets.
        threshold: Least similarity of a pair.
        min_words: Documents with fewer words are skipped.
        progress: Called with the number of texts compared since the last call, each twice.
    """
    count = sum(not text.isascii() and _SIGNS.search(text) is not None for text in texts)
    if options.fold_marks or not count or count < _LEAST_SHARE * len(texts):
        return None
    plain = replace(options, bag=False, stop_shingles=frozenset())
    before = sample_pairs(shingle_sets(Shingler(plain), texts), threshold, min_words, progress)
    folded = shingle_sets(Shingler(replace(plain, fold_marks=True)), texts)
    change, _ = compare(before, folded, min_words, progress)
    return Folding(count, count / len(texts), change)


class ContainedPair(NamedTuple):
    """A pair: numbers of its texts, its similarity and its containment."""

    left: int
    right: int
    similarity: float
    containment: float


class ContainedPairs(NamedTuple):
    """Pairs by containment of a sample.

    Attributes:
        rule: The rule.
        pairs: Pairs of documents below the threshold for which the rule holds.
        total: Pairs of documents from the threshold on.
        nearest: Those of ``pairs`` with the least containment.
    """

    rule: ContainmentRule
    pairs: int
    total: int
    nearest: Sequence[ContainedPair]


def study_contained(
    texts: Sequence[str],
    options: ShingleOptions,
    threshold: float,
    rule: ContainmentRule,
    *,
    min_words: int = 0,
    progress: Callable[[int], None] = lambda _: None,
) -> ContainedPairs | None:
    """Count the pairs of texts below a threshold for which a rule holds; None if the rule begins at the threshold.

    Args:
        texts: Texts of the sample.
        options: Shingles of the profile. Repetitions do not count here, and similarity is that of sets.
        threshold: Least similarity of a pair.
        rule: The rule.
        min_words: Documents with fewer words are skipped.
        progress: Called with the number of texts compared since the last call, each once.
    """
    if rule.min_similarity >= threshold:
        return None
    sets = shingle_sets(Shingler(replace(options, bag=False)), texts)
    found = sample_pairs(sets, rule.min_similarity, min_words, progress)
    is_below = found.pairs.similarities < threshold
    below = np.flatnonzero(is_below & found.sets.contained(found.pairs, rule))
    pairs = float(found.weights[below].sum())
    containments = found.sets.overlaps(found.pairs).containments()
    nearest = below[np.argsort(containments[below], kind="stable")][:_LISTED].tolist()
    return ContainedPairs(
        rule,
        round(pairs),
        round(found.total - float(found.weights[is_below].sum())),
        [
            ContainedPair(
                int(found.sets.first[found.pairs.left[at]]),
                int(found.sets.first[found.pairs.right[at]]),
                float(found.pairs.similarities[at]),
                float(containments[at]),
            )
            for at in nearest
        ],
    )
