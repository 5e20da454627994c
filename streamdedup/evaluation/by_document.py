"""Misses by document, and the connected components among the true pairs."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.pairs import Pairs
from streamdedup.evaluation.rates import Rate, components

#: Documents and components that are listed.
_LISTED: Final = 5
#: A document with at least so many true pairs, of which it misses at least half, is missed as a whole.
LEAST_PAIRS: Final = 3


class DocumentMisses(NamedTuple):
    """A document: its number, its missed pairs, and all of its true pairs."""

    document: int
    missed: int
    pairs: int


class Component(NamedTuple):
    """A connected component among the true pairs: its first document, its documents, its pairs, the missed ones."""

    first: int
    documents: int
    pairs: int
    missed: int


class ByDocument(NamedTuple):
    """The distribution of pairs and misses over documents.

    Attributes:
        most_missed: Documents with the most missed pairs, at least two each.
        unlucky: Documents with true pairs of which none was found, among all documents with true pairs.
        lost_count: Documents with at least three true pairs that miss at least half of them.
        components_count: Connected components among the true pairs.
        largest: Components with the most pairs.
    """

    most_missed: Sequence[DocumentMisses]
    unlucky: Rate
    lost_count: int
    components_count: int
    largest: Sequence[Component]


def by_document(pairs: Pairs, is_found: NDArray[np.bool_], documents: int) -> ByDocument:
    """Count pairs and misses by document and by component.

    Args:
        pairs: The true pairs.
        is_found: bool (n,); the pairs that were found.
        documents: Document count.
    """
    ends = np.stack((pairs.left, pairs.right))
    totals = np.bincount(ends.reshape(-1), minlength=documents)
    missed = np.bincount(ends[:, ~is_found].reshape(-1), minlength=documents)
    # Of equally many misses the document with the fewer pairs first: it is the cause.
    worst = np.lexsort((totals, -missed))[:_LISTED]
    first = components(pairs.left, pairs.right, documents)
    sizes = np.bincount(first, minlength=documents)
    pairs_of = np.bincount(first[pairs.left], minlength=documents)
    missed_of = np.bincount(first[pairs.left[~is_found]], minlength=documents)
    largest = np.argsort(-pairs_of, kind="stable")[:_LISTED]
    return ByDocument(
        most_missed=[
            DocumentMisses(number, int(missed[number]), int(totals[number]))
            for number in worst.tolist()
            if missed[number] > 1
        ],
        unlucky=Rate.of((missed == totals)[totals > 0]),
        lost_count=int(np.count_nonzero((totals >= LEAST_PAIRS) & (2 * missed >= totals))),
        components_count=int(np.count_nonzero(pairs_of)),
        largest=[
            Component(number, int(sizes[number]), int(pairs_of[number]), int(missed_of[number]))
            for number in largest.tolist()
            if pairs_of[number]
        ],
    )
