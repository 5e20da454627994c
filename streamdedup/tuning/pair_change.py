"""Pairs of a sample at a threshold, and the pairs that another definition of its shingles loses and gains."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.truth import Pairs, ShingleSets, gathered, join, similarities
from streamdedup.tuning.candidates import DistinctSets, distinct_sets

#: Pairs of different sets that are kept; of more, each is kept with the same chance.
MOST_PAIRS: Final = 100_000
_SEED: Final = 1


class SamplePairs(NamedTuple):
    """The pairs of a sample from a threshold on.

    Attributes:
        sets: The distinct shingle sets of the documents.
        pairs: Pairs of different sets, by their numbers in ``sets``; at most ``MOST_PAIRS``.
        weights: float64 (n_pairs,); pairs of documents that each of ``pairs`` represents.
        total: Pairs of documents, equal sets included.
        threshold: The threshold.
    """

    sets: DistinctSets
    pairs: Pairs
    weights: NDArray[np.float64]
    total: float
    threshold: float


class PairChange(NamedTuple):
    """Pairs of documents before a change, after it, lost by it and gained by it."""

    before: int
    after: int
    lost: int
    gained: int


def sample_pairs(
    sets: ShingleSets, threshold: float, min_words: int = 0, progress: Callable[[int], None] = lambda _: None
) -> SamplePairs:
    """Find the pairs of a sample by an exact join.

    Args:
        sets: Shingle sets of the documents.
        threshold: Least similarity, above 0, at most 1.
        min_words: Documents with fewer words are skipped.
        progress: Called with the number of sets joined since the last call.
    """
    chance = np.random.default_rng(_SEED)
    distinct = distinct_sets(sets, min_words)
    kept, share, total = gathered([]), 1.0, float(distinct.copy_pairs()[0])
    for block in join(distinct.hashes, distinct.offsets, threshold, progress):
        total += float(distinct.pair_counts(block.left, block.right)[:, 0].sum())
        part = block if share == 1.0 else block.where(chance.random(len(block.left)) < share)
        kept = gathered([kept, part])
        while len(kept.left) > MOST_PAIRS:
            kept = kept.where(chance.random(len(kept.left)) < 0.5)
            share /= 2
    weights = distinct.pair_counts(kept.left, kept.right)[:, 0] / share
    return SamplePairs(distinct, kept, weights, total, threshold)


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
