"""The pairs of a sample from a threshold on, by an exact join."""

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.join import join
from streamdedup.evaluation.pairs import Pairs, ShingleSets, gathered
from streamdedup.tuning.candidates import DistinctSets, distinct_sets

#: Bins of the distribution of similarity between 0 and 1.
BINS: Final = 20
_SEED: Final = 1


class SamplePairs(NamedTuple):
    """The sample pairs from a threshold on.

    Attributes:
        sets: The documents' distinct shingle sets.
        pairs: Pairs between different sets, by their numbers in ``sets``.
        counts: float64 (n_pairs, 2); pair count (``candidates``) that each pair represents.
        histogram: float64 (BINS,); document pairs by similarity, equal sets in the last bin.
    """

    sets: DistinctSets
    pairs: Pairs
    counts: NDArray[np.float64]
    histogram: NDArray[np.float64]


def sample_pairs(
    sets: ShingleSets,
    threshold: float,
    min_words: int,
    max_pairs: int,
    progress: Callable[[int], None] = lambda _: None,
) -> SamplePairs:
    """Find the sample pairs by an exact join.

    Args:
        sets: The documents' shingle sets.
        threshold: Least similarity, above 0, at most 1.
        min_words: Documents with fewer words are skipped.
        max_pairs: Pairs between different sets that are kept; of more, each is kept with the same chance.
        progress: Called with the newly joined sets' count.
    """
    chance = np.random.default_rng(_SEED)
    distinct = distinct_sets(sets, min_words)
    pairs, share, histogram = gathered([]), 1.0, np.zeros(BINS)
    for joined in join(distinct.hashes, distinct.offsets, threshold, progress):
        block = joined.within(distinct.scopes)
        weights = distinct.pair_counts(block.left, block.right)[:, 0]
        bins = np.minimum((block.similarities * BINS + 1e-9).astype(np.int64), BINS - 1)
        histogram += np.bincount(bins, weights=weights, minlength=BINS)
        part = block if share == 1.0 else block.where(chance.random(len(block.left)) < share)
        pairs = gathered([pairs, part])
        while len(pairs.left) > max_pairs:
            pairs = pairs.where(chance.random(len(pairs.left)) < 0.5)
            share /= 2
    histogram[-1] += distinct.copy_pairs()[0]
    return SamplePairs(distinct, pairs, distinct.pair_counts(pairs.left, pairs.right) / share, histogram)
