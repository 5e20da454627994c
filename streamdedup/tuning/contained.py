"""Pairs of a sample that a rule of containment alerts, and the threshold of similarity does not."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from streamdedup.evaluation.truth import shingle_sets
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.text.shingles import ShingleOptions, Shingler
from streamdedup.tuning.pair_change import sample_pairs

#: Pairs that are listed.
_LISTED: Final = 3


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
