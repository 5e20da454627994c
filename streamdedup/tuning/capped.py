"""The chance that a candidate is compared in spite of ``bucket_cap`` and ``max_candidates``, in any index.

A document is compared with at most ``max_candidates`` candidates, those with the most shared bands first, and with
three if a bucket is full. With c_j candidates that share j bands, a candidate that shares j bands is compared
with the chance

    S(j) = (limit - sum of c_i over i > j) / c_j,    within 0 .. 1

The c_j are those of the sample, multiplied by the growth of the candidates from the sample to the index: of unrelated
ones and of related ones (``rows.RELATED_FROM``). A document's largest bucket grows as its
candidates do. A pair with similarity s shares j of b bands with a binomial chance of p = s^r, and is found with

    sum over j > 0 of C(b, j) p^j (1 - p)^(b - j) S(j)
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.candidates import STORM_CANDIDATES
from streamdedup.similarity.lsh import Banding
from streamdedup.tuning.candidates import DistinctSets, largest_bucket_of_each, shared_pairs


class StormLimits(NamedTuple):
    """Limits for storms: most members per bucket, and most candidates per document; None for no limit."""

    bucket_cap: int | None
    max_candidates: int | None

    def times(self, factor: int) -> "StormLimits":
        """Return limits that are so many times as high."""
        return StormLimits(*(None if limit is None else limit * factor for limit in self))


class Scales(NamedTuple):
    """Candidates in the index for each one in the sample: unrelated and related ones."""

    unrelated: float
    related: float


def compared_shares(
    keys: NDArray[np.uint32], sets: DistinctSets, related: NDArray[np.int64], scales: Scales, limits: StormLimits
) -> NDArray[np.float64]:
    """Return each set's chance S(j) to compare a candidate that shares j bands, float64 (n_sets, bands + 1).

    Args:
        keys: Band keys, uint32 (n_sets, bands).
        sets: The sets.
        related: int64 (n,); related set pairs, smaller number * n_sets + larger number.
        scales: Candidate growth.
        limits: Limits for storms.

    Returns:
        0 everywhere if there are more candidates than ``MOST_CANDIDATES``.
    """
    count, bands = keys.shape
    candidate_pairs = shared_pairs(keys, sets)
    if candidate_pairs is None:
        return np.zeros((count, bands + 1))
    codes, shared = candidate_pairs
    copies = sets.copies.astype(np.float64)
    weights = np.where(np.isin(codes, related), scales.related, scales.unrelated)
    counts, in_sample = np.zeros(count * (bands + 1)), copies - 1
    for left, right in ((codes // count, codes % count), (codes % count, codes // count)):
        counts += np.bincount(left * (bands + 1) + shared, copies[right] * weights, counts.size)
        in_sample += np.bincount(left, copies[right], count)
    counts = counts.reshape(count, bands + 1)
    counts[:, bands] += (copies - 1) * scales.related
    limit = np.full(count, math.inf if limits.max_candidates is None else float(limits.max_candidates))
    if limits.bucket_cap is not None:
        scale = np.divide(counts.sum(axis=1), in_sample, out=np.ones(count), where=in_sample > 0)
        is_full = (largest_bucket_of_each(keys, sets) - 1) * scale >= limits.bucket_cap
        limit = np.where(is_full, np.minimum(limit, STORM_CANDIDATES), limit)
    with_more_bands = counts[:, ::-1].cumsum(axis=1)[:, ::-1] - counts
    room = limit[:, None] - with_more_bands
    shares = np.divide(room, counts, out=(room > 0).astype(np.float64), where=counts > 0)
    clipped: NDArray[np.float64] = shares.clip(0.0, 1.0)
    return clipped


def found_at(similarity: float, banding: Banding, shares: NDArray[np.float64]) -> float:
    """Return the chance to find a pair with this similarity, the mean over all sets; each distinct set counts once.

    Args:
        similarity: Pair similarity.
        banding: Bands and rows.
        shares: float64 (n_sets, bands + 1), by ``compared_shares``; without sets every candidate is compared.
    """
    agree, bands = similarity**banding.rows, banding.bands
    mean = shares.mean(axis=0).tolist() if len(shares) else [1.0] * (bands + 1)
    return math.fsum(
        math.comb(bands, j) * agree**j * (1.0 - agree) ** (bands - j) * mean[j] for j in range(1, bands + 1)
    )
