"""The chance that a candidate is compared in spite of ``bucket_cap`` and ``max_candidates``, in an index of any size.

The daemon (``detection.candidates``) compares a document with at most ``max_candidates`` candidates, those with the
most shared bands first, and with ``STORM_CANDIDATES`` if one of the document's buckets is full. With c_j candidates
that share j bands, a candidate that shares j bands is compared with the chance

    S(j) = (limit - sum of c_i over i > j) / c_j,    within 0 .. 1

With a limit of 500, 480 candidates that share more than 2 bands and 100 that share 2, S(2) is 20 / 100 = 0.2. The c_j
are counted in the sample and scaled to the index, by one factor for versions of the same text (related candidates,
``rows.RELATED_FROM``), and by another for all others. To judge whether a document's largest bucket is full, it is
scaled by the mean factor of the document's candidates. A pair with the Jaccard similarity s shares each of b bands with
the chance p = s^r, and is found with the chance

    sum over j > 0 of C(b, j) p^j (1 - p)^(b - j) S(j)
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.candidates import STORM_CANDIDATES
from streamdedup.similarity.lsh import Banding
from streamdedup.tuning.buckets import largest_bucket_of_each, shared_pairs
from streamdedup.tuning.distinct import DistinctSets


class StormLimits(NamedTuple):
    """Limits for storms (many copies of one text): documents in a bucket, candidates of a document; None: no limit."""

    bucket_cap: int | None
    max_candidates: int | None

    def times(self, factor: int) -> "StormLimits":
        """Return larger limits, for a banding that finds too few pairs within these."""
        return StormLimits(*(None if limit is None else limit * factor for limit in self))


class Scales(NamedTuple):
    """Factors from a document's candidates in the sample to those in the index, for unrelated and related ones."""

    unrelated: float
    related: float


def compared_shares(
    keys: NDArray[np.uint32], sets: DistinctSets, related: NDArray[np.int64], scales: Scales, limits: StormLimits
) -> NDArray[np.float64]:
    """Return each set's chance S(j) to compare a candidate that shares j bands, float64 (n_sets, bands + 1).

    0 everywhere if there are too many candidates to list (``buckets.MOST_CANDIDATES``). ``keys``: band keys, uint32
    (n_sets, bands). ``related``: codes of the related set pairs (``DistinctSets.pair_codes``), int64 (n,).
    """
    bands = keys.shape[1]
    candidate_pairs = shared_pairs(keys, sets)
    if candidate_pairs is None:
        return np.zeros((len(keys), bands + 1))
    codes, shared = candidate_pairs
    factors = np.where(np.isin(codes, related), scales.related, scales.unrelated)
    counts = _counts_by_bands(sets, codes, shared, bands, factors)
    counts[:, bands] += (sets.copies - 1) * scales.related  # a copy is related and shares all bands
    in_sample = _counts_by_bands(sets, codes, shared, bands, np.ones(len(codes))).sum(axis=1) + sets.copies - 1
    limit = np.full(len(keys), math.inf if limits.max_candidates is None else float(limits.max_candidates))
    if limits.bucket_cap is not None:
        mean_factors = np.divide(counts.sum(axis=1), in_sample, out=np.ones(len(keys)), where=in_sample > 0)
        # Without the document itself, which looks the bucket up.
        is_full = (largest_bucket_of_each(keys, sets) - 1) * mean_factors >= limits.bucket_cap
        limit = np.where(is_full, np.minimum(limit, STORM_CANDIDATES), limit)
    with_more_bands = counts[:, ::-1].cumsum(axis=1)[:, ::-1] - counts  # for each j: the sum of c_i over i > j
    room = limit[:, None] - with_more_bands
    # ``out`` is for c_j = 0: where the sample has no such candidate, one in the index is compared if there is any room.
    shares = np.divide(room, counts, out=(room > 0).astype(np.float64), where=counts > 0)
    clipped: NDArray[np.float64] = shares.clip(0.0, 1.0)
    return clipped


def _counts_by_bands(
    sets: DistinctSets, codes: NDArray[np.int64], shared: NDArray[np.int64], bands: int, factors: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return each set's candidates except copies, weighted by ``factors``, by shared bands, (n_sets, bands + 1)."""
    set_count, width = len(sets.copies), bands + 1
    counts = np.zeros(set_count * width)
    smaller, larger = sets.decoded(codes)
    for rows, candidates in ((smaller, larger), (larger, smaller)):
        counts += np.bincount(rows * width + shared, sets.copies[candidates] * factors, counts.size)
    return counts.reshape(set_count, width)


def find_chance(similarity: float, banding: Banding, shares: NDArray[np.float64]) -> float:
    """Return the chance to find a pair with a Jaccard similarity; each distinct set counts once.

    ``shares``: float64 (n_sets, bands + 1), from ``compared_shares``; without sets every candidate is compared.
    """
    p, bands = similarity**banding.rows, banding.bands  # p, C and S: module docstring
    mean_shares = shares.mean(axis=0).tolist() if len(shares) else [1.0] * (bands + 1)
    return math.fsum(
        math.comb(bands, j) * p**j * (1.0 - p) ** (bands - j) * mean_shares[j] for j in range(1, bands + 1)
    )
