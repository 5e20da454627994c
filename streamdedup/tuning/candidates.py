"""Counts the pairs, candidates and buckets of a sample, for ``study`` and ``capped``, and their growth, for ``rows``.

Documents with equal shingle sets are not compared: each distinct set has its document count. A *pair count* is a
float64 array with two values: all document pairs, and the pairs *across*, which have one document in each half of the
sample (halves by order of arrival). The second value tells how the pairs grow with the index, because pairs are of two
kinds:

- Neighbours in time, such as one report sent three times in an hour: a new document has l of them in any index.
- Chance pairs of any two documents: a new document has g of them for each document in the index.

Of a sample with n documents, pairs of neighbours are hardly ever across, chance pairs half of the time. So l and g
follow from the pair count:

    all pairs = n l + g n^2 / 2,  pairs across = g n^2 / 4    =>    g = 4 across / n^2,  l = (all - 2 across) / n

A new document has l + g N candidates in an index with N documents. A sample of 1,000 documents with 120 pairs, 10 of
them across, shows l = 0.1 and g = 0.00004: 40.1 candidates in an index with a million documents.

With r rows, a banding of b bands uses the first b bands of the signature. So the number of the first band that a pair
shares tells for every b whether the pair is a candidate. A set pair is coded as one number, smaller set number * n_sets
+ larger set number.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.pairs import Pairs, ShingleSets
from streamdedup.similarity.containment import ContainmentRule, Overlaps
from streamdedup.text.runs import offsets_of, ranges

#: Index of all document pairs in a pair count; the other index, 1, has the pairs across.
ALL_PAIRS: Final = 0
#: Most candidate pairs of distinct sets that are listed for one number of rows: a bound for memory and time. A banding
#: with more is useless, so its candidates count as infinitely many.
MOST_CANDIDATES: Final = 4_000_000


class Growth(NamedTuple):
    """A new document's candidates or matches as a function of the index size (module docstring).

    Attributes:
        near: Neighbours in time, l: the same number in any index.
        per_document: Chance pairs for each document in the index, g.
    """

    near: float
    per_document: float

    def expected(self, index_size: float) -> float:
        return self.near + self.per_document * index_size


def estimate_growth(pairs: NDArray[np.float64], sample_size: int, share: float) -> Growth:
    """Return the growth in candidates or matches that a sample of ``sample_size`` documents shows (module docstring).

    ``pairs``: pair count, infinite where the pairs are too many to list. ``share``: share of the collection that was
    drawn at random, above 0, at most 1: in a random tenth, a document has a tenth of its neighbours in time. Runs of
    consecutive documents (``sample``) keep the neighbours, so their share does not count.
    """
    all_pairs, across = pairs.tolist()
    if not sample_size:
        return Growth(near=0.0, per_document=0.0)
    if all_pairs == np.inf:
        return Growth(near=np.inf, per_document=0.0)
    near_pairs = max(all_pairs - 2 * across, 0.0)  # by chance, more than half of the pairs may be across
    return Growth(near=near_pairs / sample_size / share, per_document=4 * across / sample_size**2)


class DistinctSets(NamedTuple):
    """A sample's distinct shingle sets.

    Attributes:
        hashes: uint32 (n_total,); strictly ascending within a set.
        offsets: int64 (n_sets + 1,); set i has hashes[offsets[i] : offsets[i + 1]].
        halves: int64 (n_sets, 2); documents with the set in the sample's first and second half.
        first_documents: int64 (n_sets,); row of the first document with the set, ascending.
        scopes: uint64 (n_sets,); hash of the scope. Equal sets of two scopes are two sets.
        set_numbers: int64 (n_documents,); number of each document's set; -1 for a document that is skipped.
    """

    hashes: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    halves: NDArray[np.int64]
    first_documents: NDArray[np.int64]
    scopes: NDArray[np.uint64]
    set_numbers: NDArray[np.int64]

    @property
    def copies(self) -> NDArray[np.int64]:
        """Documents with each set, int64 (n_sets,)."""
        counts: NDArray[np.int64] = self.halves.sum(axis=1)
        return counts

    def pair_counts(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        """Return the pair count of each set pair, float64 (n, 2); ``left`` and ``right``: set numbers, int64 (n,)."""
        left_halves, right_halves = self.halves[left].astype(np.float64), self.halves[right].astype(np.float64)
        # The other set's halves in reverse: first half with second half, and second with first.
        across = (left_halves * right_halves[:, ::-1]).sum(axis=1)
        return np.stack((left_halves.sum(axis=1) * right_halves.sum(axis=1), across), axis=1)

    def copy_pairs(self) -> NDArray[np.float64]:
        """Return the pair count of all documents with equal sets, float64 (2,)."""
        counts = self.copies.astype(np.float64)
        # Across: each copy in the first half with each one in the second.
        return np.array([(counts * (counts - 1) / 2).sum(), self.halves.astype(np.float64).prod(axis=1).sum()])

    def contained(self, pairs: Pairs, rule: ContainmentRule) -> NDArray[np.bool_]:
        """Return whether a containment rule holds for each set pair, bool (n,)."""
        sizes = np.diff(self.offsets)
        left, right = sizes[pairs.left], sizes[pairs.right]
        # The join gives only Jaccard similarities J, from which |A and B| = J (|A| + |B|) / (1 + J).
        common = np.rint(pairs.similarities * (left + right) / (1 + pairs.similarities)).astype(np.int64)
        containments = Overlaps(common, left, right).containments()
        return rule.holds(containments, np.minimum(left, right))


def distinct_sets(sets: ShingleSets, min_words: int = 0) -> DistinctSets:
    """Return the distinct sets among all documents that have shingles and at least ``min_words`` words."""
    middle = len(sets.sizes) // 2
    set_numbers: dict[tuple[int, bytes], int] = {}
    scopes = sets.scopes.tolist()
    first_documents: list[int] = []
    halves: list[list[int]] = []
    numbers_by_document = np.full(len(sets.sizes), -1)
    for document in np.flatnonzero((sets.sizes > 0) & (sets.token_counts >= min_words)).tolist():
        number = set_numbers.setdefault((scopes[document], sets.shingles_of(document).tobytes()), len(set_numbers))
        if number == len(first_documents):  # a new set
            first_documents.append(document)
            halves.append([0, 0])
        halves[number][1 if document >= middle else 0] += 1
        numbers_by_document[document] = number
    documents = np.array(first_documents, np.int64)
    sizes = sets.sizes[documents]
    return DistinctSets(
        hashes=sets.hashes[ranges(sets.offsets[documents], sizes)],
        offsets=offsets_of(sizes),
        halves=np.array(halves, np.int64).reshape(-1, 2),
        first_documents=documents,
        scopes=sets.scopes[documents],
        set_numbers=numbers_by_document,
    )


def first_shared_bands(
    keys: NDArray[np.uint32], left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the number of the first band that each set pair shares; the band count for a pair that shares none.

    ``keys``: band keys, uint32 (n_sets, bands); ``left`` and ``right``: set numbers, int64 (n,).
    """
    bands = np.full(len(left), keys.shape[1], np.int64)
    # From the last band to the first, so that the first shared band is written last.
    for band in range(keys.shape[1] - 1, -1, -1):
        bands[keys[left, band] == keys[right, band]] = band
    return bands


def candidate_counts(keys: NDArray[np.uint32], sets: DistinctSets) -> NDArray[np.float64]:
    """Return the pair count of the candidates, equal sets included, with 0, 1, ... and all bands.

    ``keys``: band keys, uint32 (n_sets, bands). The result: float64 (bands + 1, 2), infinite where there are more than
    ``MOST_CANDIDATES``.
    """
    codes_by_band = list(_pair_codes(keys, sets))
    counts = np.full((keys.shape[1] + 1, 2), np.inf)
    counts[0] = 0.0  # without bands there are no candidates
    if codes_by_band:
        # The codes are in the order of the bands, so the first occurrence of a pair is in its first shared band.
        codes, firsts = np.unique(np.concatenate(codes_by_band), return_index=True)
        lengths = [len(band_codes) for band_codes in codes_by_band]
        first_bands = np.repeat(np.arange(len(lengths)), lengths)[firsts]
        new_pairs = np.zeros((len(lengths), 2))
        np.add.at(new_pairs, first_bands, sets.pair_counts(codes // len(keys), codes % len(keys)))
        # Equal sets share every band.
        counts[1 : len(codes_by_band) + 1] = new_pairs.cumsum(axis=0) + sets.copy_pairs()
    return counts


def shared_pairs(keys: NDArray[np.uint32], sets: DistinctSets) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """Return the codes of the candidate pairs between different sets, and the number of bands that each pair shares.

    Arguments as for ``candidate_counts``. Both int64 (n,); None if there are more than ``MOST_CANDIDATES``.
    """
    codes_by_band = list(_pair_codes(keys, sets))
    if len(codes_by_band) < keys.shape[1]:  # ended early, with too many
        return None
    return np.unique(np.concatenate(codes_by_band), return_counts=True)


def largest_bucket_of_each(keys: NDArray[np.uint32], sets: DistinctSets) -> NDArray[np.int64]:
    """Return the document count of each set's largest bucket, int64 (n_sets,); arguments as ``candidate_counts``."""
    largest = np.zeros(len(keys), np.int64)
    for band in _buckets_by_band(keys, sets):
        bucket_sizes = np.repeat(band.document_counts, band.set_counts)
        largest[band.order] = np.maximum(largest[band.order], bucket_sizes)
    return largest


class _BandBuckets(NamedTuple):
    """The buckets of one band.

    Attributes:
        order: int64 (n_sets,); set numbers, bucket by bucket.
        starts: int64 (n_buckets,); place in ``order`` of each bucket's first set.
        set_counts: int64 (n_buckets,); sets in each bucket.
        document_counts: int64 (n_buckets,); documents in each bucket.
    """

    order: NDArray[np.int64]
    starts: NDArray[np.int64]
    set_counts: NDArray[np.int64]
    document_counts: NDArray[np.int64]


def _buckets_by_band(keys: NDArray[np.uint32], sets: DistinctSets) -> Iterator[_BandBuckets]:
    """Yield the buckets of each band, a column of ``keys``: the sets with equal keys share a bucket."""
    for column in keys.T:
        order = np.argsort(column, kind="stable")
        ordered = column[order]
        # A bucket begins at each key that differs from the key before. Without sets the slice drops the first True.
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])[: len(ordered)])
        document_counts = np.add.reduceat(sets.copies[order], starts) if starts.size else np.empty(0, np.int64)
        yield _BandBuckets(order, starts, np.diff(np.append(starts, len(order))), document_counts)


def _pair_codes(keys: NDArray[np.uint32], sets: DistinctSets) -> Iterator[NDArray[np.int64]]:
    """Yield the codes of the set pairs that share a bucket, band by band.

    Ends before the band with which there are more than ``MOST_CANDIDATES``.
    """
    room = MOST_CANDIDATES
    for order, starts, set_counts, _ in _buckets_by_band(keys, sets):
        room -= int((set_counts * (set_counts - 1) // 2).sum())
        if room < 0:
            return
        shared = np.flatnonzero(set_counts > 1)  # numbers of the buckets with several sets
        places = ranges(starts[shared], set_counts[shared])  # in ``order``, of all sets in these buckets
        # Each set is paired with all sets that follow it in its bucket.
        followers = np.repeat(starts[shared] + set_counts[shared], set_counts[shared]) - places - 1
        left, right = order[np.repeat(places, followers)], order[ranges(places + 1, followers)]
        yield np.minimum(left, right) * len(order) + np.maximum(left, right)
