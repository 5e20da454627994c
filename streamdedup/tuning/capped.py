"""The chance that a candidate is compared in spite of ``bucket_cap`` and ``max_candidates``, in an index of any size.

``study`` calls ``compared_shares``; ``rows`` calls ``find_chance`` and judges bandings by it. The daemon compares a
document with at most ``max_candidates`` candidates, those with the most shared bands first, and with
``STORM_CANDIDATES`` if one of the document's buckets is full. With c_j candidates that share j bands, a candidate that
shares j bands is compared with the chance

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
from streamdedup.tuning.candidates import DistinctSets, largest_bucket_of_each, shared_pairs


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

    0 everywhere if there are too many candidates to list (``candidates.MOST_CANDIDATES``). ``keys``: band keys, uint32
    (n_sets, bands). ``related``: the related set pairs, int64 (n,), each coded as smaller set number * n_sets + larger
    set number.
    """
    set_count, bands = keys.shape
    candidate_pairs = shared_pairs(keys, sets)
    if candidate_pairs is None:
        return np.zeros((set_count, bands + 1))
    codes, shared = candidate_pairs
    copies = sets.copies.astype(np.float64)
    factors = np.where(np.isin(codes, related), scales.related, scales.unrelated)
    # For a document with each set: its c_j, scaled to the index, at set number * (bands + 1) + j; and the number of its
    # candidates in the sample, beginning with its copies.
    counts, in_sample = np.zeros(set_count * (bands + 1)), copies - 1
    smaller, larger = codes // set_count, codes % set_count
    for set_numbers, candidates in ((smaller, larger), (larger, smaller)):
        counts += np.bincount(set_numbers * (bands + 1) + shared, copies[candidates] * factors, counts.size)
        in_sample += np.bincount(set_numbers, copies[candidates], set_count)
    counts = counts.reshape(set_count, bands + 1)
    counts[:, bands] += (copies - 1) * scales.related  # a copy is related and shares all bands
    limit = np.full(set_count, math.inf if limits.max_candidates is None else float(limits.max_candidates))
    if limits.bucket_cap is not None:
        mean_factors = np.divide(counts.sum(axis=1), in_sample, out=np.ones(set_count), where=in_sample > 0)
        # Without the document itself, which looks the bucket up.
        is_full = (largest_bucket_of_each(keys, sets) - 1) * mean_factors >= limits.bucket_cap
        limit = np.where(is_full, np.minimum(limit, STORM_CANDIDATES), limit)
    # Candidates that share more than j bands: the sum of c_i from j on, less c_j.
    with_more_bands = counts[:, ::-1].cumsum(axis=1)[:, ::-1] - counts
    room = limit[:, None] - with_more_bands
    # ``out`` is for c_j = 0: where the sample has no such candidate, one in the index is compared if there is any room.
    shares = np.divide(room, counts, out=(room > 0).astype(np.float64), where=counts > 0)
    clipped: NDArray[np.float64] = shares.clip(0.0, 1.0)
    return clipped


def find_chance(similarity: float, banding: Banding, shares: NDArray[np.float64]) -> float:
    """Return the chance to find a pair with a Jaccard similarity; each distinct set counts once.

    ``shares``: float64 (n_sets, bands + 1), from ``compared_shares``; without sets every candidate is compared.
    """
    p, bands = similarity**banding.rows, banding.bands  # p, C and S: module docstring
    mean_shares = shares.mean(axis=0).tolist() if len(shares) else [1.0] * (bands + 1)
    return math.fsum(
        math.comb(bands, j) * p**j * (1.0 - p) ** (bands - j) * mean_shares[j] for j in range(1, bands + 1)
    )
