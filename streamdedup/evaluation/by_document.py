"""Misses by document, and the connected components of the true pairs."""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.rates import components
from streamdedup.evaluation.truth import Pairs

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
    """A connected component of the true pairs: its first document, its documents, its pairs, the missed ones."""

    first: int
    documents: int
    pairs: int
    missed: int


class ByDocument(NamedTuple):
    """The distribution of pairs and misses over documents.

    Attributes:
        most_missed: Documents with the most missed pairs, at least two each.
        lost_count: Documents with at least three true pairs that miss at least half of them.
        components_count: Connected components of the true pairs.
        largest: Components with the most pairs.
    """

    most_missed: Sequence[DocumentMisses]
    lost_count: int
    components_count: int
    largest: Sequence[Component]


def by_document(pairs: Pairs, found: NDArray[np.bool_], documents: int) -> ByDocument:
    """Count pairs and misses by document and by component.

    Args:
        pairs: The true pairs.
        found: bool (n,); the pairs that were found.
        documents: Number of documents.
    """
    ends = np.stack((pairs.left, pairs.right))
    totals = np.bincount(ends.reshape(-1), minlength=documents)
    missed = np.bincount(ends[:, ~found].reshape(-1), minlength=documents)
    # Of equally many misses the document with the fewer pairs first: it is the cause.
    most = np.lexsort((totals, -missed))[:_LISTED]
    first = components(pairs.left, pairs.right, documents)
    sizes = np.bincount(first, minlength=documents)
    pairs_of = np.bincount(first[pairs.left], minlength=documents)
    missed_of = np.bincount(first[pairs.left[~found]], minlength=documents)
    largest = np.argsort(-pairs_of, kind="stable")[:_LISTED]
    return ByDocument(
        most_missed=[DocumentMisses(at, int(missed[at]), int(totals[at])) for at in most.tolist() if missed[at] > 1],
        lost_count=int(np.count_nonzero((totals >= LEAST_PAIRS) & (2 * missed >= totals))),
        components_count=int(np.count_nonzero(pairs_of)),
        largest=[
            Component(at, int(sizes[at]), int(pairs_of[at]), int(missed_of[at]))
            for at in largest.tolist()
            if pairs_of[at]
        ],
    )
