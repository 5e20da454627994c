"""The distinct shingle sets of a sample, the document pairs that they represent, and how pairs grow with the index.

Each distinct set is compared once and represents all its documents. A *pair count* is a float64 array with two values:
all document pairs, and the pairs *across*, which have one document in each half of the sample (halves by order of
arrival). The second value tells how the pairs grow with the index, because pairs are of two kinds:

- Neighbours in time, such as one report sent three times in an hour: a new document has l of them in any index.
- Chance pairs of any two documents: a new document has g of them for each document in the index.

Of a sample with n documents, pairs of neighbours are hardly ever across, chance pairs half of the time. So l and g
follow from the pair count:

    all pairs = n l + g n^2 / 2,  pairs across = g n^2 / 4    =>    g = 4 across / n^2,  l = (all - 2 across) / n

A new document has l + g N candidates in an index with N documents. A sample of 1,000 documents with 120 pairs, 10 of
them across, shows l = 0.1 and g = 0.00004: 40.1 candidates in an index with a million documents.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.pairs import Pairs, ShingleSets
from streamdedup.similarity.containment import ContainmentRule, Overlaps
from streamdedup.text.runs import offsets_of, ranges

ALL_PAIRS: Final = 0  # place of all document pairs in a pair count; the other value, 1, is the pairs across


class Growth(NamedTuple):
    """A new document's candidates or matches as a function of the index size: ``near`` is l, ``per_document`` g."""

    near: float
    per_document: float

    def expected(self, index_size: float) -> float:
        return self.near + self.per_document * index_size


def estimate_growth(pairs: NDArray[np.float64], sample_size: int, share: float) -> Growth:
    """Return the growth in candidates or matches that a sample of ``sample_size`` documents shows (module docstring).

    ``pairs``: pair count, both infinite if the pairs are too many to list. ``share``: share of the collection that was
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
    """A sample's distinct shingle sets, with ``hashes`` and ``offsets`` as in ``ShingleSets``."""

    hashes: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    halves: NDArray[np.int64]  # (n_sets, 2); documents with the set in the sample's first and second half
    first_documents: NDArray[np.int64]  # (n_sets,); row of the first document with the set, ascending
    scopes: NDArray[np.uint64]  # (n_sets,); hash of the scope. Equal sets of two scopes are two sets
    set_rows: NDArray[np.int64]  # (n_documents,); row of each document's set; -1 for a document that is skipped

    @property
    def copies(self) -> NDArray[np.int64]:
        counts: NDArray[np.int64] = self.halves.sum(axis=1)
        return counts

    @property
    def copy_pairs_of_each(self) -> NDArray[np.float64]:
        return self.copies * (self.copies - 1) / 2

    @property
    def sizes(self) -> NDArray[np.int64]:
        return np.diff(self.offsets)

    def pair_codes(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return a number for each set pair, the same for both orders of its rows."""
        return np.minimum(left, right) * len(self.first_documents) + np.maximum(left, right)

    def decoded(self, codes: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the rows of the pairs with these codes, the smaller row of each first."""
        return np.divmod(codes, len(self.first_documents))

    def pair_counts(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
        left_halves, right_halves = self.halves[left].astype(np.float64), self.halves[right].astype(np.float64)
        # First half of one set with second half of the other, and the reverse.
        across = (left_halves * right_halves[:, ::-1]).sum(axis=1)
        return np.stack((left_halves.sum(axis=1) * right_halves.sum(axis=1), across), axis=1)

    def copy_pairs(self) -> NDArray[np.float64]:
        """Return the pair count of all documents with equal sets, float64 (2,)."""
        # Across: each copy in the first half with each one in the second.
        return np.array([self.copy_pairs_of_each.sum(), self.halves.astype(np.float64).prod(axis=1).sum()])

    def contained_by_similarity(self, pairs: Pairs, rule: ContainmentRule) -> NDArray[np.bool_]:
        sizes = self.sizes
        left, right = sizes[pairs.left], sizes[pairs.right]
        # The join gives only Jaccard similarities J, from which |A and B| = J (|A| + |B|) / (1 + J).
        common = np.rint(pairs.similarities * (left + right) / (1 + pairs.similarities)).astype(np.int64)
        containments = Overlaps(common, left, right).containments()
        return rule.holds(containments, np.minimum(left, right))


def distinct_sets(sets: ShingleSets, min_words: int) -> DistinctSets:
    """Return the distinct sets among all documents that have shingles and at least ``min_words`` words."""
    middle = len(sets.sizes) // 2
    row_by_set: dict[tuple[int, bytes], int] = {}
    scopes = sets.scopes.tolist()
    first_documents: list[int] = []
    halves: list[list[int]] = []
    set_rows = np.full(len(sets.sizes), -1)
    for document in np.flatnonzero((sets.sizes > 0) & (sets.token_counts >= min_words)).tolist():
        row = row_by_set.setdefault((scopes[document], sets.shingles_of(document).tobytes()), len(row_by_set))
        if row == len(first_documents):  # a new set
            first_documents.append(document)
            halves.append([0, 0])
        halves[row][1 if document >= middle else 0] += 1
        set_rows[document] = row
    documents = np.array(first_documents, np.int64)
    sizes = sets.sizes[documents]
    return DistinctSets(
        hashes=sets.hashes[ranges(sets.offsets[documents], sizes)],
        offsets=offsets_of(sizes),
        halves=np.array(halves, np.int64).reshape(-1, 2),
        first_documents=documents,
        scopes=sets.scopes[documents],
        set_rows=set_rows,
    )
