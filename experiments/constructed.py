"""Pairs of sets constructed with a known similarity, and the interval of chance of a share."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

#: Members of both sets of a pair together: similarities in steps of 1/200 are possible.
UNION = 200
#: Share of cases that lie within an interval of chance.
LEVEL = 0.95


class Sets(NamedTuple):
    """Pairs of sets: pair i has the sets 2 i and 2 i + 1, cut out of `hashes` by `offsets`."""

    hashes: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    similarity: float


def pairs(similarity: float, count: int, seed: int) -> Sets:
    """Make pairs of random sets with one similarity.

    Args:
        similarity: Above 0, at most 1; rounded to 1/UNION.
        count: Number of pairs; all of their members differ.
        seed: Seed of the members.
    """
    source = np.random.default_rng(seed)
    drawn = source.choice(2**32, size=(count, UNION), replace=False).astype(np.uint32)
    common = round(similarity * UNION)
    middle = common + (UNION - common) // 2
    left, right = drawn[:, :middle], np.concatenate((drawn[:, :common], drawn[:, middle:]), axis=1)
    hashes = np.concatenate((left, right), axis=1)
    lengths = np.tile([left.shape[1], right.shape[1]], count)
    return Sets(hashes.ravel(), np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths))), common / UNION)


def chance(probability: float, count: int) -> tuple[float, float]:
    """Return the interval of shares in which a binomial variable lies in LEVEL of all cases.

    Args:
        probability: Of success, 0 .. 1.
        count: Trials, at least 1.
    """
    if not 0.0 < probability < 1.0:
        return probability, probability
    successes = np.arange(count + 1)
    logs = [math.lgamma(count + 1) - math.lgamma(k + 1) - math.lgamma(count - k + 1) for k in range(count + 1)]
    terms = np.array(logs) + successes * math.log(probability) + (count - successes) * math.log1p(-probability)
    reached = np.cumsum(np.exp(terms))
    outside = (1 - LEVEL) / 2
    low = int(np.searchsorted(reached, outside))
    high = int(np.searchsorted(reached, 1 - outside))
    return low / count, min(high, count) / count
