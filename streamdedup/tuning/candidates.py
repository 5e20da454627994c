"""A sample's pairs, candidates and buckets, counted over its distinct shingle sets.

Documents with equal shingle sets are not compared: each distinct set carries its document count. A *pair
count* is a float64 array with two values: document pairs, and those with one document in each half of the
sample, in the order of arrival. The second value tells how candidates grow with the index. Of a sample with n documents
two parts are told apart: neighbours in time, such as one report sent three times in an hour, l for each document in any
index; and chance pairs of any two documents, g for each document in the index. Only chance pairs cross the halves:

    all pairs = n l + g n^2 / 2,  pairs across = g n^2 / 4    =>    g = 4 across / n^2,  l = (all - 2 across) / n

A new document has l + g N candidates in an index with N documents.

With r rows, b bands are the signature's first b bands, so the first band that a pair shares tells for every
band count whether the pair is a candidate.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.pairs import Pairs, ShingleSets
from streamdedup.similarity.containment import ContainmentRule, Overlaps
from streamdedup.text.runs import offsets_of, ranges

#: Candidate pairs of distinct sets that are listed for one number of rows; with more the banding is useless.
MOST_CANDIDATES: Final = 4_000_000


class Growth(NamedTuple):
    """A document's candidates or matches by the index size.

    Attributes:
        near: Neighbours in time: the same number in any index.
        per_document: Others, for each document in the index.
    """

    near: float
    per_document: float

    def at(self, index_size: float) -> float:
        """Return the number in an index with ``index_size`` documents."""
        return self.near + self.per_document * index_size


def growth(pairs: NDArray[np.float64], sample_size: int, share: float) -> Growth:
    """Return the growth in candidates or matches (module docstring).

    Args:
        pairs: Pair count in a sample; infinite where the pairs are too many to list.
        sample_size: Documents in the sample.
        share: Share of the collection, and so of the neighbours in time, in the sample; above 0, at most 1.
    """
    everywhere, across = pairs.tolist()
    if not sample_size or everywhere == np.inf:
        return Growth(everywhere if sample_size else 0.0, 0.0)
    return Growth(max(everywhere - 2 * across, 0.0) / sample_size / share, 4 * across / sample_size**2)


class DistinctSets(NamedTuple):
    """A sample's distinct shingle sets.

    Attributes:
        hashes: uint32 (n_total,); strictly ascending within a set.
        offsets: int64 (n_sets + 1,).
        halves: int64 (n_sets, 2); documents with the set in the sample's first and second half.
        first: int64 (n_sets,); first document with the set.
        scopes: uint64 (n_sets,); hash of the scope. Equal sets of two scopes are two sets.
    """

    hashes: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    halves: NDArray[np.int64]
    first: NDArray[np.int64]
    scopes: NDArray[np.uint64]

    @property
    def copies(self) -> NDArray[np.int64]:
        """Documents with each set, int64 (n_sets,)."""
        counts: NDArray[np.int64] = self.halves.sum(axis=1)
        return counts

    def pair_counts(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the pair count for each pair, float64 (n, 2).

        Args:
            left: int64 (n,); set numbers.
            right: int64 (n,); each pair's other set.
        """
        left_halves, right_halves = self.halves[left].astype(np.float64), self.halves[right].astype(np.float64)
        across = (left_halves * right_halves[:, ::-1]).sum(axis=1)
        return np.stack((left_halves.sum(axis=1) * right_halves.sum(axis=1), across), axis=1)

    def copy_pairs(self) -> NDArray[np.float64]:
        """Return the pair count for equal sets."""
        counts = self.copies.astype(np.float64)
        return np.array([(counts * (counts - 1) / 2).sum(), self.halves.astype(np.float64).prod(axis=1).sum()])

    def contained(self, pairs: Pairs, rule: ContainmentRule) -> NDArray[np.bool_]:
        """Return the set pairs for which a containment rule holds, bool (n,): |A and B| = J (|A| + |B|) / (1 + J)."""
        left, right = (np.diff(self.offsets)[side] for side in (pairs.left, pairs.right))
        common = np.rint(pairs.similarities * (left + right) / (1 + pairs.similarities)).astype(np.int64)
        containments = Overlaps(common, left, right).containments()
        return rule.holds(pairs.similarities, containments, np.minimum(left, right))


def distinct_sets(sets: ShingleSets, min_words: int = 0) -> DistinctSets:
    """Return the distinct sets among all documents that have shingles and at least ``min_words`` words."""
    middle = len(sets.sizes) // 2
    numbers: dict[tuple[int, bytes], int] = {}
    scopes = sets.scopes.tolist()
    first: list[int] = []
    halves: list[list[int]] = []
    for document in np.flatnonzero((sets.sizes > 0) & (sets.token_counts >= min_words)).tolist():
        number = numbers.setdefault((scopes[document], sets.of(document).tobytes()), len(first))
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
        sets.scopes[documents],
    )


def first_shared_bands(
    keys: NDArray[np.uint32], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the first band that each pair shares; the band count for a pair that shares none.

    Args:
        keys: All sets' band keys, uint32 (n_sets, bands).
        left: int64 (n,); set numbers.
        right: int64 (n,); each pair's other set.
    """
    first = np.full(len(left), keys.shape[1], np.int64)
    for band in range(keys.shape[1] - 1, -1, -1):
        first[keys[left, band] == keys[right, band]] = band
    return first


def candidate_counts(keys: NDArray[np.uint32], sets: DistinctSets) -> NDArray[np.float64]:
    """Return the candidates' pair counts, equal sets included, by the band count from 0 on.

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
        band_of = np.repeat(np.arange(len(codes)), [len(band_codes) for band_codes in codes])[first]
        pairs = np.zeros((len(codes), 2))
        np.add.at(pairs, band_of, sets.pair_counts(distinct // len(keys), distinct % len(keys)))
        counts[1 : len(codes) + 1] = pairs.cumsum(axis=0) + sets.copy_pairs()
    return counts


def shared_pairs(keys: NDArray[np.uint32], sets: DistinctSets) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the candidate pairs between different sets, and the band count that each shares.

    The arguments are those of ``candidate_counts``.

    Returns:
        Smaller number * n_sets + larger number, int64 (n,), and shared bands, int64 (n,); None if there are more than
        ``MOST_CANDIDATES``.
    """
    codes = list(_pair_codes(keys, sets))
    if len(codes) < keys.shape[1]:
        return None
    return np.unique(np.concatenate(codes), return_counts=True)


def largest_bucket_of_each(keys: NDArray[np.uint32], sets: DistinctSets) -> NDArray[np.int64]:
    """Return the document count of the largest bucket of each set, int64 (n_sets,); see ``candidate_counts``."""
    largest = np.zeros(len(keys), np.int64)
    for band in _buckets_by_band(keys, sets):
        documents = np.repeat(band.documents, band.lengths)
        largest[band.order] = np.maximum(largest[band.order], documents)
    return largest


class _BandBuckets(NamedTuple):
    """The buckets of one band.

    Attributes:
        order: int64 (n_sets,); set numbers, bucket by bucket.
        starts: int64 (n_buckets,); index of the first set of each bucket in ``order``.
        lengths: int64 (n_buckets,); sets in each bucket.
        documents: int64 (n_buckets,); documents in each bucket.
    """

    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    documents: NDArray[np.int64]


def _buckets_by_band(keys: NDArray[np.uint32], sets: DistinctSets) -> Iterator[_BandBuckets]:
    for column in keys.T:
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
        documents = np.add.reduceat(sets.copies[order], starts) if starts.size else np.empty(0, np.int64)
        yield _BandBuckets(order, starts, np.diff(np.append(starts, len(order))), documents)


def _pair_codes(keys: NDArray[np.uint32], sets: DistinctSets) -> Iterator[NDArray[np.int64]]:
    """Yield smaller number * n_sets + larger number for each set pair in one bucket, band by band.

    Ends before the band with which there are more than ``MOST_CANDIDATES``.
    """
    room = MOST_CANDIDATES
    for order, starts, lengths, _ in _buckets_by_band(keys, sets):
        room -= int((lengths * (lengths - 1) // 2).sum())
        if room < 0:
            return
        shared = np.flatnonzero(lengths > 1)
        members = ranges(starts[shared], lengths[shared])
        # Each member with all that follow it in its bucket.
        after = np.repeat(starts[shared] + lengths[shared], lengths[shared]) - members - 1
        left, right = order[np.repeat(members, after)], order[ranges(members + 1, after)]
        yield np.minimum(left, right) * len(order) + np.maximum(left, right)
