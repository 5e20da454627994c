"""Pairs, candidates and buckets of a sample, counted over its distinct shingle sets.

Documents with equal shingle sets are not compared: each distinct set carries the number of its documents. A *pair
count* is a float64 array of two values: pairs of documents, and those of them with one document in each half of the
sample, in the order of arrival. The second value tells how candidates grow with the index. Pairs across the halves come
from any two documents, however far apart, so a document has more of them in a larger index. The others are neighbours
in time, such as one report sent three times in an hour; a document has as many of them in any index:

    all pairs = n l + g n^2 / 2,  pairs across = g n^2 / 4    =>    g = 4 across / n^2,  l = (all - 2 across) / n

A new document has l + g N candidates in an index of N documents.

With r rows, b bands are the first b of all bands of the signature, so the first band that a pair shares tells for every
number of bands whether the pair is a candidate.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.truth import Pairs, ShingleSets
from streamdedup.similarity.containment import ContainmentRule, Overlaps
from streamdedup.text.hashing import offsets_of, ranges

#: Candidate pairs of distinct sets that are listed for one number of rows; with more the banding is useless.
MOST_CANDIDATES: Final = 4_000_000


class Growth(NamedTuple):
    """Candidates or matches of a document by the size of the index.

    Attributes:
        near: Neighbours in time: the same number in any index.
        per_document: Others, for each document in the index.
    """

    near: float
    per_document: float

    def at(self, documents: float) -> float:
        """Return the number in an index of so many documents."""
        return self.near + self.per_document * documents


def growth(pairs: NDArray[np.float64], documents: int, share: float) -> Growth:
    """Return the growth of candidates or matches (module docstring).

    Args:
        pairs: Pair count of a sample; infinite where the pairs are too many to list.
        documents: Documents of the sample.
        share: Share of the collection, and so of the neighbours in time, that is in the sample; above 0, at most 1.
    """
    everywhere, across = pairs.tolist()
    if not documents or everywhere == np.inf:
        return Growth(everywhere if documents else 0.0, 0.0)
    return Growth(max(everywhere - 2 * across, 0.0) / documents / share, 4 * across / documents**2)


class DistinctSets(NamedTuple):
    """The distinct shingle sets of a sample.

    Attributes:
        hashes: uint32 (n_total,); strictly ascending within a set.
        offsets: int64 (n_sets + 1,).
        halves: int64 (n_sets, 2); documents with the set in the first and in the second half of the sample.
        first: int64 (n_sets,); number of the first document with the set.
    """

    hashes: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    halves: NDArray[np.int64]
    first: NDArray[np.int64]

    @property
    def copies(self) -> NDArray[np.int64]:
        """Documents with each set, int64 (n_sets,)."""
        counts: NDArray[np.int64] = self.halves.sum(axis=1)
        return counts

    def pair_counts(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the pair count of each pair of different sets, float64 (n, 2).

        Args:
            left: int64 (n,); numbers of sets.
            right: int64 (n,); the other set of each pair.
        """
        one, other = self.halves[left].astype(np.float64), self.halves[right].astype(np.float64)
        across = (one * other[:, ::-1]).sum(axis=1)
        return np.stack((one.sum(axis=1) * other.sum(axis=1), across), axis=1)

    def copy_pairs(self) -> NDArray[np.float64]:
        """Return the pair count of documents with equal sets."""
        counts = self.copies.astype(np.float64)
        return np.array([(counts * (counts - 1) / 2).sum(), self.halves.astype(np.float64).prod(axis=1).sum()])

    def overlaps(self, pairs: Pairs) -> Overlaps:
        """Return the overlaps of pairs of sets by their Jaccard similarities: |A and B| = J (|A| + |B|) / (1 + J)."""
        left, right = (np.diff(self.offsets)[side] for side in (pairs.left, pairs.right))
        common = np.rint(pairs.similarities * (left + right) / (1 + pairs.similarities)).astype(np.int64)
        return Overlaps(common, left, right)

    def contained(self, pairs: Pairs, rule: ContainmentRule) -> NDArray[np.bool_]:
        """Return the pairs of sets for which a rule of containment holds, bool (n,)."""
        overlaps = self.overlaps(pairs)
        smaller = np.minimum(overlaps.left, overlaps.right)
        return rule.holds(pairs.similarities, overlaps.containments(), smaller)


def distinct_sets(sets: ShingleSets, min_words: int = 0) -> DistinctSets:
    """Return the distinct sets of all documents that have shingles and at least ``min_words`` words."""
    middle = len(sets.sizes) // 2
    numbers: dict[bytes, int] = {}
    first: list[int] = []
    halves: list[list[int]] = []
    for document in np.flatnonzero((sets.sizes > 0) & (sets.token_counts >= min_words)).tolist():
        number = numbers.setdefault(sets.of(document).tobytes(), len(first))
        if number == len(first):
            first.append(document)
            halves.append([0, 0])
        halves[number][document >= middle] += 1
    documents = np.array(first, np.int64)
    sizes = sets.sizes[documents]
    return DistinctSets(
        sets.hashes[ranges(sets.offsets[documents], sizes)],
        offsets_of(sizes),
        np.array(halves, np.int64).reshape(-1, 2),
        documents,
    )


def first_shared_bands(
    keys: NDArray[np.uint32], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the first band that each pair shares; the number of bands for a pair that shares none.

    Args:
        keys: Band keys of all sets, uint32 (n_sets, bands).
        left: int64 (n,); numbers of sets.
        right: int64 (n,); the other set of each pair.
    """
    first = np.full(len(left), keys.shape[1], np.int64)
    for band in range(keys.shape[1] - 1, -1, -1):
        first[keys[left, band] == keys[right, band]] = band
    return first


def candidate_counts(keys: NDArray[np.uint32], sets: DistinctSets) -> NDArray[np.float64]:
    """Return the pair counts of the candidates, equal sets included, by the number of bands from 0 on.

    Args:
        keys: Band keys, uint32 (n_sets, bands).
        sets: The sets.

    Returns:
        float64 (bands + 1, 2); infinite where there are more than ``MOST_CANDIDATES``.
    """
    codes = list(_pair_codes(keys, sets))
    counts = np.full((keys.shape[1] + 1, 2), np.inf)
    counts[0] = 0.0
    if codes:
        distinct, first = np.unique(np.concatenate(codes), return_index=True)
        band_of = np.repeat(np.arange(len(codes)), [len(one) for one in codes])[first]
        pairs = np.zeros((len(codes), 2))
        np.add.at(pairs, band_of, sets.pair_counts(distinct // len(keys), distinct % len(keys)))
        counts[1 : len(codes) + 1] = pairs.cumsum(axis=0) + sets.copy_pairs()
    return counts


def shared_pairs(keys: NDArray[np.uint32], sets: DistinctSets) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the candidate pairs of different sets, and the number of bands that each shares.

    Args:
        keys: Band keys, uint32 (n_sets, bands).
        sets: The sets.

    Returns:
        Smaller number * n_sets + larger number, int64 (n,), and shared bands, int64 (n,); None if there are more than
        ``MOST_CANDIDATES``.
    """
    codes = list(_pair_codes(keys, sets))
    if len(codes) < keys.shape[1]:
        return None
    return np.unique(np.concatenate(codes), return_counts=True)


def largest_bucket_of_each(keys: NDArray[np.uint32], sets: DistinctSets) -> NDArray[np.int64]:
    """Return the documents in the largest bucket of each set, int64 (n_sets,).

    Args:
        keys: Band keys, uint32 (n_sets, bands).
        sets: The sets.
    """
    largest = np.zeros(len(keys), np.int64)
    for band in _bands(keys, sets):
        documents = np.repeat(band.halves.sum(axis=1), band.lengths)
        largest[band.order] = np.maximum(largest[band.order], documents)
    return largest


class Buckets(NamedTuple):
    """The buckets of all bands, with the sample inserted.

    Attributes:
        members: int64 (n_buckets,); members of each bucket, at most the cap.
        half_count: Buckets that half of the documents fills, mean of both halves.
        largest: Documents in the largest bucket, beyond any cap.
    """

    members: NDArray[np.int64]
    half_count: float
    largest: int


def fill_buckets(keys: NDArray[np.uint32], sets: DistinctSets, cap: int | None) -> Buckets:
    """Insert all documents into their buckets.

    Args:
        keys: Band keys, uint32 (n_sets, bands).
        sets: The sets.
        cap: Most members of a bucket; None for no limit.
    """
    halves = np.concatenate([band.halves for band in _bands(keys, sets)])
    documents = halves.sum(axis=1)
    return Buckets(
        documents if cap is None else np.minimum(documents, cap),
        float(np.count_nonzero(halves)) / 2,
        int(documents.max(initial=0)),
    )


class FullBucket(NamedTuple):
    """One of the largest buckets: its band, its documents, and the number of a set in it."""

    band: int
    documents: int
    example: int


def largest_buckets(keys: NDArray[np.uint32], sets: DistinctSets, most: int) -> list[FullBucket]:
    """Return at most so many of the largest buckets, the largest first, each with another set as example."""
    found: list[FullBucket] = []
    for number, band in enumerate(_bands(keys, sets)):
        documents = band.halves.sum(axis=1)
        largest = np.argsort(-documents, kind="stable")[:most]
        examples = band.order[band.starts[largest]]
        found += map(FullBucket, [number] * len(largest), documents[largest].tolist(), examples.tolist())
    found.sort(key=lambda one: (-one.documents, one.band))
    by_example: dict[int, FullBucket] = {}
    for one in found:
        by_example.setdefault(one.example, one)
    return list(by_example.values())[:most]


class _Band(NamedTuple):
    """The buckets of one band: sets bucket by bucket, start and length of each, documents of each by half (n, 2)."""

    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    halves: NDArray[np.int64]


def _bands(keys: NDArray[np.uint32], sets: DistinctSets) -> Iterator[_Band]:
    for column in keys.T:
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
        halves = np.add.reduceat(sets.halves[order], starts, axis=0) if starts.size else np.empty((0, 2), np.int64)
        yield _Band(order, starts, np.diff(np.append(starts, len(order))), halves)


def _pair_codes(keys: NDArray[np.uint32], sets: DistinctSets) -> Iterator[NDArray[np.int64]]:
    """Yield smaller number * n_sets + larger number for each pair of sets in one bucket, band by band.

    Ends before the band with which there are more than ``MOST_CANDIDATES``.
    """
    room = MOST_CANDIDATES
    for order, starts, lengths, _ in _bands(keys, sets):
        room -= int((lengths * (lengths - 1) // 2).sum())
        if room < 0:
            return
        shared = np.flatnonzero(lengths > 1)
        members = ranges(starts[shared], lengths[shared])
        # Each member with all that follow it in its bucket.
        after = np.repeat(starts[shared] + lengths[shared], lengths[shared]) - members - 1
        left, right = order[np.repeat(members, after)], order[ranges(members + 1, after)]
        yield np.minimum(left, right) * len(order) + np.maximum(left, right)
