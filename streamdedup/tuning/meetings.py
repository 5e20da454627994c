"""Who meets whom in the buckets: for each number of rows, all numbers of bands at once.

With r rows, b bands are the first b of all bands that a signature is long enough for. So it is enough to know the first
band on which a pair agrees: it is a candidate with b bands if that is one of them.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.similarity.lsh import Banding
from streamdedup.text.hashing import ranges
from streamdedup.tuning.distinct import DistinctSets, Weights

#: Candidate pairs of distinct sets that are listed for one number of rows; beyond, nobody would want such bands.
MOST_CANDIDATES: Final = 4_000_000
#: Bucket sizes are told apart up to here where buckets have no cap.
_UNCAPPED: Final = 5_000
#: Sets whose band keys are made at once.
_KEYS_AT_ONCE: Final = 1 << 9


class Meetings(NamedTuple):
    """What happens in the buckets with r rows; index b of each array is for b bands, 0 .. B.

    Attributes:
        candidates: float64 (B + 1, 2); pairs of documents that meet, and those of them across the halves, see
            ``Weights``; pairs with equal sets are among them for b > 0. Infinite where there are too many to list.
        sizes: int64 (B + 1, cap + 1); buckets with so many members, at most the cap.
        half_buckets: float64 (B + 1,); buckets that a half of the documents fills, in the mean of both.
        largest: int64 (B + 1,); documents with the band key of the largest bucket, beyond any cap.
    """

    candidates: NDArray[np.float64]
    sizes: NDArray[np.int64]
    half_buckets: NDArray[np.float64]
    largest: NDArray[np.int64]

    def met(self, bands: int) -> Weights:
        """Return the pairs that meet."""
        return Weights(*self.candidates[bands].tolist())

    def members(self, bands: int) -> NDArray[np.int64]:
        """Return the members of each bucket, int64 (n_buckets,)."""
        return np.repeat(np.arange(self.sizes.shape[1]), self.sizes[bands])


def band_keys(signatures: NDArray[np.uint32], banding: Banding) -> NDArray[np.uint32]:
    """Return the band keys of many signatures, uint32 (n, bands)."""
    pieces = [
        banding.band_keys(signatures[low : low + _KEYS_AT_ONCE]) for low in range(0, len(signatures), _KEYS_AT_ONCE)
    ]
    return np.concatenate([np.empty((0, banding.bands), np.uint32), *pieces])


def first_shared(keys: NDArray[np.uint32], left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the first band on which each pair agrees; the number of bands where it agrees on none.

    Args:
        keys: Band keys of all sets, uint32 (n_sets, bands).
        left: int64 (n,); places of sets.
        right: int64 (n,); of their partners.
    """
    first = np.full(len(left), keys.shape[1], np.int64)
    for band in range(keys.shape[1] - 1, -1, -1):
        first[keys[left, band] == keys[right, band]] = band
    return first


def meet(keys: NDArray[np.uint32], sets: DistinctSets, cap: int | None) -> Meetings:
    """Let all documents enter their buckets.

    Args:
        keys: Band keys, uint32 (n_sets, B).
        sets: The sets.
        cap: Most members of a bucket; it bounds what is stored and not, here, who meets whom.
    """
    bands = keys.shape[1]
    most = cap or _UNCAPPED
    candidates = np.zeros((bands + 1, 2))
    sizes = np.zeros((bands + 1, most + 1), np.int64)
    half_buckets, largest = np.zeros(bands + 1), np.zeros(bands + 1, np.int64)
    copies = np.array(sets.pairs_of_copies())
    seen: list[NDArray[np.int64]] = []
    room = MOST_CANDIDATES
    for band in range(bands):
        order = np.argsort(keys[:, band], kind="stable")
        starts = _starts(keys[order, band])
        halves = np.add.reduceat(sets.halves[order], starts, axis=0) if starts.size else np.empty((0, 2), np.int64)
        documents = halves.sum(axis=1)
        sizes[band + 1] = sizes[band] + np.bincount(np.minimum(documents, most), minlength=most + 1)
        half_buckets[band + 1] = half_buckets[band] + np.count_nonzero(halves, axis=0).mean()
        largest[band + 1] = max(largest[band], documents.max(initial=0))
        lengths = np.diff(np.append(starts, len(order)))
        room -= int((lengths * (lengths - 1) // 2).sum())
        if room >= 0:
            seen.append(_pair_codes(order, starts, lengths))
    if seen:
        _count(seen, sets, candidates)
    candidates[1:] += copies
    candidates[len(seen) + 1 :] = np.inf
    return Meetings(candidates, sizes, half_buckets, largest)


def _count(seen: list[NDArray[np.int64]], sets: DistinctSets, candidates: NDArray[np.float64]) -> None:
    """Add up the pairs of different sets, each at the first band that it shares."""
    codes = np.concatenate(seen)
    band_of = np.repeat(np.arange(len(seen)), [len(one) for one in seen])
    distinct, first = np.unique(codes, return_index=True)
    weights = sets.weights(distinct // len(sets.first), distinct % len(sets.first))
    for kind in (0, 1):
        by_band = np.bincount(band_of[first], weights=weights[:, kind], minlength=len(seen))
        candidates[1 : len(seen) + 1, kind] = np.cumsum(by_band)


def _starts(ordered: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return where each run of equal keys begins."""
    if not ordered.size:
        return np.empty(0, np.int64)
    return np.append(0, np.flatnonzero(ordered[1:] != ordered[:-1]) + 1)


def _pair_codes(order: NDArray[np.int64], starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return one number for each pair of sets in one bucket.

    Args:
        order: Places of sets, bucket by bucket, int64 (n_sets,).
        starts: Where each bucket begins, int64 (n_buckets,).
        lengths: Sets in each bucket, int64 (n_buckets,).
    """
    shared = np.flatnonzero(lengths > 1)
    spans = ranges(starts[shared], lengths[shared])
    # Each member with all that follow it in its bucket.
    after = np.repeat(starts[shared] + lengths[shared], lengths[shared]) - spans - 1
    left = order[np.repeat(spans, after)]
    right = order[ranges(spans + 1, after)]
    codes: NDArray[np.int64] = np.minimum(left, right) * len(order) + np.maximum(left, right)
    return codes


def hottest(keys: NDArray[np.uint32], sets: DistinctSets, count: int) -> list[tuple[int, int, int]]:
    """Return the buckets that most documents have the key of: band, documents, and a set that has it.

    Args:
        keys: Band keys, uint32 (n_sets, bands).
        sets: The sets.
        count: How many to return, at most; a set stands in one of them only.
    """
    found: list[tuple[int, int, int]] = []
    for band in range(keys.shape[1]):
        order = np.argsort(keys[:, band], kind="stable")
        starts = _starts(keys[order, band])
        documents = np.add.reduceat(sets.copies[order], starts) if starts.size else np.empty(0, np.int64)
        fullest = np.argsort(-documents, kind="stable")[:count]
        places = order[starts[fullest]]
        found += [(held, band, place) for held, place in zip(documents[fullest].tolist(), places.tolist(), strict=True)]
    found.sort(key=lambda one: (-one[0], one[1]))
    chosen: dict[int, tuple[int, int, int]] = {}
    for documents_count, band, place in found:
        chosen.setdefault(place, (band, documents_count, place))
    return list(chosen.values())[:count]
