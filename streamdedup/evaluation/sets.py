"""The shingle sets of a collection, in two arrays, as the product computes them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.hashing import offsets_of
from streamdedup.text.shingles import ShingleOptions, Shingler


class ShingleSets(NamedTuple):
    """The shingle sets of documents; of bags the sets of shingles with their occurrence numbers.

    Attributes:
        hashes: uint32 (n_total,); strictly ascending within a document.
        offsets: int64 (n_documents + 1,); document i owns hashes[offsets[i] : offsets[i + 1]].
        token_counts: int64 (n_documents,); tokens of each.
    """

    hashes: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    token_counts: NDArray[np.int64]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Distinct shingles of each document, int64 (n_documents,)."""
        return np.diff(self.offsets)

    def of(self, document: int) -> NDArray[np.uint32]:
        """Return the shingles of a document."""
        return self.hashes[self.offsets[document] : self.offsets[document + 1]]


class SetCollector:
    """Gathers the shingle sets of a stream of texts; no text is kept.

    Args:
        options: What counts as a shingle.
    """

    def __init__(self, options: ShingleOptions) -> None:
        self._shingler = Shingler(options)
        self._hashes: list[NDArray[np.uint32]] = [np.empty(0, np.uint32)]
        self._sizes: list[NDArray[np.int64]] = [np.empty(0, np.int64)]
        self._token_counts: list[NDArray[np.int64]] = [np.empty(0, np.int64)]

    def add(self, texts: Sequence[str]) -> None:
        """Take in a batch of texts."""
        batch = self._shingler.shingle(texts)
        self._hashes.append(batch.hashes)
        self._sizes.append(np.diff(batch.offsets))
        self._token_counts.append(batch.token_counts)

    def sets(self) -> ShingleSets:
        """Return the sets of all texts so far, in their order."""
        return ShingleSets(
            np.concatenate(self._hashes), offsets_of(np.concatenate(self._sizes)), np.concatenate(self._token_counts)
        )


def similarities(sets: ShingleSets, left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the Jaccard similarities of pairs, each correctly rounded; 0 where a document has no shingles.

    Args:
        sets: Of all documents.
        left: int64 (n,); documents.
        right: int64 (n,); their partners.
    """
    pairs = zip(left.tolist(), right.tolist(), strict=True)
    common = np.fromiter((_common(sets.of(a), sets.of(b)) for a, b in pairs), np.int64, len(left))
    unions = sets.sizes[left] + sets.sizes[right] - common
    result: NDArray[np.float64] = np.divide(common, unions, out=np.zeros(len(left)), where=unions > 0)
    return result


def _common(left: NDArray[np.uint32], right: NDArray[np.uint32]) -> int:
    """Return how many values two ascending arrays have in common."""
    both = np.concatenate((left, right))
    both.sort()
    return int(np.count_nonzero(both[1:] == both[:-1]))
