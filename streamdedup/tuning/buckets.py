"""The candidates and buckets of the distinct sets of a sample, from their band keys.

Used by ``study`` and ``storm_limits``. A *code* is a number for a pair of sets (``DistinctSets.pair_codes``). ``keys``
are band keys, uint32 (n_sets, bands).

With r rows, a banding of b bands uses the first b bands of the signature. So the place of the first band that a pair
shares tells for every b whether the pair is a candidate, and one pass over all bands is enough.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.runs import ranges
from streamdedup.tuning.distinct import DistinctSets

#: Most candidate pairs of distinct sets that are listed for one number of rows, counted in each band that they share: a
#: bound for memory and time. A banding with more is useless, so its candidates count as infinitely many.
MOST_CANDIDATES: Final = 4_000_000


def first_shared_bands(
    keys: NDArray[np.uint32], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the place of the first band that each pair of rows shares; the band count for a pair that shares none."""
    bands = np.full(len(left), keys.shape[1], np.int64)
    # From the last band to the first, so that the first shared band is written last.
    for band in range(keys.shape[1] - 1, -1, -1):
        bands[keys[left, band] == keys[right, band]] = band
    return bands


def candidates_by_bands(keys: NDArray[np.uint32], sets: DistinctSets) -> NDArray[np.float64]:
    """Return for 0, 1, ... and all bands the number of candidate pairs of documents, with pairs of equal sets.

    float64 (bands + 1, 2): all, and across (``distinct``); infinite where they are more than ``MOST_CANDIDATES``.
    """
    codes_by_band = list(_pair_codes(keys, sets))
    counts = np.full((keys.shape[1] + 1, 2), np.inf)
    counts[0] = 0.0  # without bands there are no candidates
    if codes_by_band:  # has fewer items than bands if the pairs are too many
        # The codes are in the order of the bands, so the first occurrence of a pair is in its first shared band.
        codes, firsts = np.unique(np.concatenate(codes_by_band), return_index=True)
        lengths = [len(band_codes) for band_codes in codes_by_band]
        first_bands = np.repeat(np.arange(len(lengths)), lengths)[firsts]
        new_pairs = np.zeros((len(lengths), 2))
        np.add.at(new_pairs, first_bands, sets.pair_counts(*sets.decoded(codes)))
        # Equal sets share every band.
        counts[1 : len(codes_by_band) + 1] = new_pairs.cumsum(axis=0) + sets.copy_pairs()
    return counts


def shared_pairs(keys: NDArray[np.uint32], sets: DistinctSets) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the codes of the candidate pairs between different sets, and the number of bands that each pair shares.

    Both int64 (n,); None if there are more than ``MOST_CANDIDATES``.
    """
    codes_by_band = list(_pair_codes(keys, sets))
    if len(codes_by_band) < keys.shape[1]:  # ended early, with too many
        return None
    return np.unique(np.concatenate(codes_by_band), return_counts=True)


def largest_bucket_of_each(keys: NDArray[np.uint32], sets: DistinctSets) -> NDArray[np.int64]:
    """Return the document count of each set's largest bucket, int64 (n_sets,)."""
    largest = np.zeros(len(keys), np.int64)
    for band in _buckets_by_band(keys, sets):
        bucket_sizes = np.repeat(band.document_counts, band.set_counts)
        largest[band.order] = np.maximum(largest[band.order], bucket_sizes)
    return largest


class _BandBuckets(NamedTuple):
    order: NDArray[np.int64]  # (n_sets,); rows of sets, bucket by bucket
    starts: NDArray[np.int64]  # (n_buckets,); place in ``order`` of each bucket's first set
    set_counts: NDArray[np.int64]  # (n_buckets,)
    document_counts: NDArray[np.int64]  # (n_buckets,)


def _buckets_by_band(keys: NDArray[np.uint32], sets: DistinctSets) -> Iterator[_BandBuckets]:
    """Yield the buckets of each band, a column of ``keys``: the sets with equal keys share a bucket."""
    for column in keys.T:
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        # A bucket begins at the first key, if there is one (the slice), and at each that differs from the key before.
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
        document_counts = np.add.reduceat(sets.copies[order], starts) if starts.size else np.empty(0, np.int64)
        yield _BandBuckets(order, starts, np.diff(np.append(starts, len(order))), document_counts)


def _pair_codes(keys: NDArray[np.uint32], sets: DistinctSets) -> Iterator[NDArray[np.int64]]:
    """Yield the codes of the set pairs that share a bucket, band by band; end before more than ``MOST_CANDIDATES``."""
    room = MOST_CANDIDATES
    for order, starts, set_counts, _ in _buckets_by_band(keys, sets):
        room -= int((set_counts * (set_counts - 1) // 2).sum())
        if room < 0:
            return
        shared = np.flatnonzero(set_counts > 1)  # the buckets with several sets
        places = ranges(starts[shared], set_counts[shared])  # in ``order``, of all sets in these buckets
        # Each set is paired with all sets that follow it in its bucket. In a bucket at the places 4, 5 and 6 the sets
        # have 2, 1 and 0 followers, and the pairs are (4, 5), (4, 6), (5, 6).
        follower_counts = np.repeat(starts[shared] + set_counts[shared], set_counts[shared]) - places - 1
        yield sets.pair_codes(order[np.repeat(places, follower_counts)], order[ranges(places + 1, follower_counts)])
