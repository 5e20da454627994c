"""The exact join: all pairs of shingle sets that are similar enough, without comparing all pairs.

Called by ``cli.evaluate`` and ``tuning.study``, which judge the product by these pairs, so the join shares only the
formula of the measure with it: no signature, no band, no bucket. It is a prefix-filter join (C. Xiao, W. Wang, X. Lin,
J. X. Yu, "Efficient similarity joins for near duplicate detection", 2008):

1. Documents with equal sets form a group; one set per group is compared (``_grouped``).
2. Every set's elements are sorted by frequency, the rarest first (``_ranked``).
3. Similar sets have a rare element in common: the first elements of each set, its prefix, are indexed (``_Prefixes``).
4. Each set is looked up there; the sets that share enough elements of the prefixes are its candidates.
5. Candidates are compared in full (``_similarities``).
6. Similar sets become document pairs (``_expanded``).

Let x be the larger and y the smaller set of a pair with Jaccard similarity J(x, y) >= t. Then

    |y| >= t |x|                                                                       (length filter)
    |x and y| >= t / (1 + t) (|x| + |y|) >= max(t |x|, 2 t / (1 + t) |y|)

and for any n up to |x and y| the two prefixes have n elements in common, if their lengths are

    |x| - ceil(t |x|) + n of x,  |y| - ceil(2 t / (1 + t) |y|) + n of y                (prefix filter)

For t = 0.8, two sets of 10 elements and n = 1, the prefixes are 3 elements of x and 2 of y, and have one in common. For
other measures ``Measure.bounds`` gives the three factors t, t and 2 t / (1 + t).

The classical n is 1; a larger n (J. Wang, G. Li, J. Feng, "Can we beat the prefix filtering?", 2012) drops the pairs of
large sets that share a few elements by chance. Here n is 1 + |y| / 16, rounded down. Elements of one set only come
first and are skipped, frequent ones come last, so few candidates remain: 62,773 Chinese reviews (3 million shingles)
take 1 to 2 seconds at t = 0.8 and 0.5.

Memory: about 30 bytes for each element of the sets, and a block of pairs; never all pairs.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.pairs import Pairs
from streamdedup.similarity.measures import MEASURES, Measure, OverlapBounds
from streamdedup.text.runs import offsets_of, ranges

#: Elements of one step: bounds its arrays to some 100 MB however many pairs share an element.
_STEP_ELEMENTS: Final = 1 << 22
#: Sets of one step that are looked up, at most.
_LOOKUP_SETS: Final = 1 << 10
#: A pair must share one more element in the prefixes for each 16 elements of the smaller set (n, module docstring).
#: Measured on articles as character 5-shingles, whose large sets share many elements by chance.
_ELEMENTS_PER_NEED: Final = 16
#: With fewer occurrences than this share of the number of sets, ``_sharing_enough`` sorts them to count them; with more
#: it has an array with a counter for each set.
_COUNT_IN_ARRAY_FROM: Final = 1 / 16
#: Least number of pairs in a block, except the last block.
_BLOCK_PAIRS: Final = 1 << 16
#: Tolerance for a product of threshold and size that should be a whole number.
_ROUNDING: Final = 1e-9


class _Groups(NamedTuple):
    """Documents with equal sets: group i has members[offsets[i] : offsets[i + 1]], ascending; int64.

    Groups are ordered by the size of their set, the smallest first.
    """

    members: NDArray[np.int64]
    offsets: NDArray[np.int64]

    def documents_of(self, group: int) -> NDArray[np.int64]:
        return self.members[self.offsets[group] : self.offsets[group + 1]]


class _RankedSets(NamedTuple):
    """The set of each group: set i, of group i, has ranks[offsets[i] : offsets[i + 1]], ascending.

    Ranks are int64; 0 is the rarest element of all. The lowest ``single_count`` ranks are elements of one set only.
    """

    ranks: NDArray[np.int64]
    offsets: NDArray[np.int64]
    single_count: int
    ranks_count: int

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)


class _SimilarSets(NamedTuple):
    """A set's row, and the lower rows of the sets similar to it."""

    row: int
    similar_rows: NDArray[np.int64]
    similarities: NDArray[np.float64]


def join(
    hashes: NDArray[np.uint32],
    offsets: NDArray[np.int64],
    threshold: float,
    progress: Callable[[int], None] = lambda _: None,
    measure: Measure = MEASURES["set"],
) -> Iterator[Pairs]:
    """Yield all document pairs whose sets have at least the threshold's similarity, in blocks, each pair once.

    ``hashes`` and ``offsets`` are those of ``ShingleSets``; a document without elements is in no pair. ``progress`` is
    called with the number of sets joined since its last call; documents with equal sets count once.
    """
    groups = _grouped(hashes, offsets)
    if not groups.members.size:
        return
    sets = _ranked(hashes, offsets, groups)
    yield from _in_blocks(_expanded(groups, _with_similar_sets(sets, threshold, measure, progress)))


def _grouped(hashes: NDArray[np.uint32], offsets: NDArray[np.int64]) -> _Groups:
    documents_by_set: dict[bytes, list[int]] = {}
    for document, (start, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        if end > start:
            documents_by_set.setdefault(hashes[start:end].tobytes(), []).append(document)
    groups = [documents_by_set[content] for content in sorted(documents_by_set, key=len)]  # 4 bytes an element
    members = np.array([document for group in groups for document in group], np.int64)
    return _Groups(members, offsets_of(np.array([len(group) for group in groups], np.int64)))


def _ranked(hashes: NDArray[np.uint32], offsets: NDArray[np.int64], groups: _Groups) -> _RankedSets:
    """Return one set for each group, its elements in the order of their frequency."""
    documents = groups.members[groups.offsets[:-1]]  # the first of each group
    sizes = offsets[documents + 1] - offsets[documents]
    elements = hashes[ranges(offsets[documents], sizes)]
    distinct, frequencies = np.unique(elements, return_counts=True)
    rank_of = np.empty(distinct.size, np.int64)
    rank_of[np.argsort(frequencies, kind="stable")] = np.arange(distinct.size)
    set_offsets = offsets_of(sizes)
    ranks = np.empty(elements.size, np.int64)
    for low, high in _steps(sizes):
        part = slice(set_offsets[low], set_offsets[high])
        keys = rank_of[np.searchsorted(distinct, elements[part])]
        # Sorted within each set: the set's row in the upper 32 bits keeps the sets apart.
        keys += np.repeat(np.arange(low, high) << 32, sizes[low:high])
        keys.sort()
        ranks[part] = keys & 0xFFFFFFFF
    return _RankedSets(ranks, set_offsets, int(np.count_nonzero(frequencies == 1)), distinct.size)


def _with_similar_sets(
    sets: _RankedSets, threshold: float, measure: Measure, progress: Callable[[int], None]
) -> Iterator[_SimilarSets]:
    """Yield each set that has similar sets among those of lower rows, which are smaller or equally large."""
    prefixes = _Prefixes(sets, measure.bounds(threshold))
    is_member = np.zeros(sets.ranks_count, np.bool_)
    for low, high in _steps(sets.sizes, _LOOKUP_SETS):
        for row, candidates in prefixes.candidates(low, high):
            similarities = _similarities(sets, row, candidates, measure, is_member)
            near = similarities >= threshold
            if near.any():
                yield _SimilarSets(row, candidates[near], similarities[near])
        progress(high - low)


class _Prefixes:
    """An index of the prefixes of all sets, without the elements that occur in one set only.

    Each set is indexed with its prefix as the smaller set y of a pair, and looked up with its prefix as the larger set
    x. The postings are the sets by element: int64 (n,), rank << 32 | set, ascending.
    """

    def __init__(self, sets: _RankedSets, bounds: OverlapBounds) -> None:
        sizes = sets.sizes
        self._sets = sets
        # Number of elements of each set that occur in no other set; they are the first elements of the set.
        singles_sum = np.append(0, np.cumsum(sets.ranks < sets.single_count))
        self._single_counts: NDArray[np.int64] = np.diff(singles_sum[sets.offsets])
        # Least number of elements in common with a larger set; for Jaccard 2 t / (1 + t) |y| (module docstring).
        least_common = _least_counts(bounds.of_smaller, sizes)
        # n (module docstring) of each set as the smaller one of a pair.
        self._needed = np.minimum(1 + sizes // _ELEMENTS_PER_NEED, least_common)
        self._postings = self._postings_of(sizes - least_common + self._needed)
        # Prefix lengths for look-ups. The smaller set y is not known yet; n of the looked-up set x is at least its n.
        self._lookup_lengths = np.minimum(sizes - _least_counts(bounds.of_larger, sizes) + self._needed, sizes)
        # For each set, the row of the first set that is large enough to be similar to it: the length filter.
        self._first_large_enough = np.searchsorted(sizes, _least_counts(bounds.size, sizes))

    def _postings_of(self, prefix_lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        counts = np.maximum(prefix_lengths - self._single_counts, 0)
        postings = self._sets.ranks[ranges(self._sets.offsets[:-1] + self._single_counts, counts)] << 32
        postings += np.repeat(np.arange(len(counts)), counts)
        postings.sort()
        return postings

    def candidates(self, low: int, high: int) -> Iterator[tuple[int, NDArray[np.int64]]]:
        """Yield each set from ``low`` to ``high`` - 1 that has candidates, with these sets, all of lower rows."""
        sets, single_counts = self._sets, self._single_counts[low:high]
        counts = np.maximum(self._lookup_lengths[low:high] - single_counts, 0)
        ranks = sets.ranks[ranges(sets.offsets[low:high] + single_counts, counts)] << 32
        # For each element, the range of postings (rank << 32 | row) of sets that are large enough and have a lower row.
        begins = np.searchsorted(self._postings, ranks + np.repeat(self._first_large_enough[low:high], counts))
        lengths = np.searchsorted(self._postings, ranks + np.repeat(np.arange(low, high), counts)) - begins
        offsets = offsets_of(counts)
        # ``reduceat`` refuses an offset at the end of the array (hence the 0), and gives no 0 for an empty range (hence
        # the factor).
        totals = np.add.reduceat(np.append(lengths, 0), offsets[:-1]) * (counts > 0)
        for row in np.flatnonzero(totals).tolist():
            elements = slice(offsets[row], offsets[row + 1])
            candidates = self._sharing_enough(begins[elements], lengths[elements])
            if candidates.size:
                yield low + row, candidates

    def _sharing_enough(self, begins: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sets that occur in ranges of the postings as often as ``_needed`` says; each once, ascending."""
        needed = self._needed
        if lengths.sum() < len(needed) * _COUNT_IN_ARRAY_FROM:
            rows, counts = np.unique(self._postings[ranges(begins, lengths)] & 0xFFFFFFFF, return_counts=True)
            sharing: NDArray[np.int64] = rows[counts >= needed[rows]]
            return sharing
        counts = np.zeros(len(needed), np.int64)
        for low, high in _steps(lengths):
            rows = self._postings[ranges(begins[low:high], lengths[low:high])] & 0xFFFFFFFF
            counts += np.bincount(rows, minlength=len(needed))
        return np.flatnonzero(counts >= needed)


def _least_counts(share: float, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the least element count, at least 1, that is no less than a share of each size."""
    counts: NDArray[np.int64] = np.ceil(share * sizes - _ROUNDING).astype(np.int64).clip(min=1)
    return counts


def _similarities(
    sets: _RankedSets, row: int, candidates: NDArray[np.int64], measure: Measure, is_member: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return a set's similarities with its candidates, float64 (n_candidates,).

    ``is_member``: bool (ranks_count,), reused by all calls; all False at the beginning and at the end of a call.
    """
    ranks = sets.ranks[sets.offsets[row] : sets.offsets[row + 1]]
    sizes = sets.offsets[candidates + 1] - sets.offsets[candidates]
    is_member[ranks] = True
    common = np.empty(len(candidates), np.int64)
    for low, high in _steps(sizes):
        elements = sets.ranks[ranges(sets.offsets[candidates[low:high]], sizes[low:high])]
        starts = offsets_of(sizes[low:high])[:-1]  # no range is empty, as ``reduceat`` needs it
        common[low:high] = np.add.reduceat(is_member[elements], starts, dtype=np.int64)
    is_member[ranks] = False
    return measure.exact(common, np.full_like(sizes, len(ranks)), sizes)


def _steps(sizes: NDArray[np.int64], max_items: int | None = None) -> Iterator[tuple[int, int]]:
    """Yield consecutive runs of items, each as (first, one past the last); ``sizes``: element count of each item.

    A run has at most ``max_items`` items (None: any number) and ``_STEP_ELEMENTS`` elements. An item with more elements
    is a run alone.
    """
    offsets = offsets_of(sizes)
    low = 0
    while low < len(sizes):
        high = int(np.searchsorted(offsets, offsets[low] + _STEP_ELEMENTS, side="right")) - 1
        high = max(min(high, low + (max_items or len(sizes))), low + 1)  # one item at least
        yield low, high
        low = high


def _expanded(groups: _Groups, similar_sets: Iterator[_SimilarSets]) -> Iterator[Pairs]:
    """Yield the document pairs within each group, and between the groups of similar sets (set i is of group i)."""
    sizes = np.diff(groups.offsets)
    for group in np.flatnonzero(sizes > 1).tolist():
        documents = groups.documents_of(group)
        for row, document in enumerate(documents[:-1], start=1):
            yield _pairs(document, documents[row:], np.ones(len(documents) - row))
    for group, similar_groups, similarities in similar_sets:
        similar_documents = groups.members[ranges(groups.offsets[similar_groups], sizes[similar_groups])]
        for document in groups.documents_of(group):
            yield _pairs(document, similar_documents, np.repeat(similarities, sizes[similar_groups]))


def _pairs(document: np.int64, similar: NDArray[np.int64], similarities: NDArray[np.float64]) -> Pairs:
    return Pairs(np.minimum(document, similar), np.maximum(document, similar), similarities)


def _in_blocks(pairs: Iterable[Pairs]) -> Iterator[Pairs]:
    """Yield the same pairs in fewer pieces."""
    pieces: list[Pairs] = []
    count = 0
    for piece in pairs:
        pieces.append(piece)
        count += len(piece.left)
        if count >= _BLOCK_PAIRS:
            yield Pairs.concatenated(pieces)
            pieces, count = [], 0
    if pieces:
        yield Pairs.concatenated(pieces)
