"""The shingle sets of a collection, in two arrays, as the product computes them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.similarity.measures import MEASURES, Measure, intersection_size
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


def similarities(
    sets: ShingleSets, left: NDArray[np.int64], right: NDArray[np.int64], measure: Measure = MEASURES["set"]
) -> NDArray[np.float64]:
    """Return the exact similarities of pairs; 0 where a document has no shingles.

    Args:
        sets: Shingle sets of all documents.
        left: int64 (n,); documents.
        right: int64 (n,); documents to compare them with.
        measure: Measure of similarity.
    """
    pairs = zip(left.tolist(), right.tolist(), strict=True)
    common = np.fromiter((intersection_size(sets.of(a), sets.of(b)) for a, b in pairs), np.int64, len(left))
    return measure.exact(common, sets.sizes[left], sets.sizes[right])
