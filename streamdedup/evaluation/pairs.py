"""Shingle sets of documents, and document pairs with exact similarities, as arrays for whole collections.

The pairs come from ``evaluation.join``, ``evaluation.trial`` or a file (``cli.evaluate``). A document's row is its
place in ``ShingleSets``, not the document number of the index.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.similarity.containment import ContainmentRule, Overlaps
from streamdedup.similarity.measures import MEASURES, Measure, intersection_size
from streamdedup.text.runs import joined_offsets
from streamdedup.text.shingles import Shingler
from streamdedup.wire import scope_key


class ShingleSets(NamedTuple):
    """Documents as shingle sets, as the daemon computes them; in a bag each occurrence of a shingle has its own hash.

    Attributes:
        hashes: uint32 (n_total,), all documents' hashes; strictly ascending within a document.
        offsets: int64 (n_documents + 1,); document i has hashes[offsets[i] : offsets[i + 1]].
        token_counts: int64 (n_documents,); words per document, without stop words, also for shingles of characters.
        stop_only: bool (n_documents,); documents that consist of stop shingles only, and so keep the stop shingles.
        scopes: uint64 (n_documents,); hash of each document's scope, 0 without a scope.
    """

    hashes: NDArray[np.uint32]
    offsets: NDArray[np.int64]
    token_counts: NDArray[np.int64]
    stop_only: NDArray[np.bool_]
    scopes: NDArray[np.uint64]

    @classmethod
    def concatenated(cls, parts: Iterable["ShingleSets"]) -> "ShingleSets":
        """Return the sets of all parts, at least one, as one."""
        hashes, offsets, *columns = zip(*parts, strict=True)  # columns: the other three fields, one value per document
        return cls(np.concatenate(hashes), joined_offsets(offsets), *map(np.concatenate, columns))

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Hashes per document: distinct shingles, in bags also repetitions; int64 (n_documents,)."""
        return np.diff(self.offsets)

    def shingles_of(self, document: int) -> NDArray[np.uint32]:
        return self.hashes[self.offsets[document] : self.offsets[document + 1]]


def shingle_sets(shingler: Shingler, texts: Sequence[str], scopes: Sequence[str | None] = ()) -> ShingleSets:
    batch = shingler.shingle(texts)
    # ``scope_key`` returns the 8 stored bytes of a scope, and without a scope no bytes, which become 0.
    keys = np.array([int.from_bytes(scope_key(scope), "little") for scope in scopes or [None] * len(texts)], np.uint64)
    return ShingleSets(batch.hashes, batch.offsets, batch.token_counts, batch.stop_only, keys)


class Pairs(NamedTuple):
    """Document pairs: rows of the earlier and of the later document, int64 (n,), and similarities, float64 (n,)."""

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    similarities: NDArray[np.float64]

    @classmethod
    def concatenated(cls, blocks: Iterable["Pairs"]) -> "Pairs":
        """Return the pairs of all blocks as one; without blocks, no pairs."""
        empty = cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.float64))
        return cls(*map(np.concatenate, zip(empty, *blocks, strict=True)))

    def where(self, selected: NDArray[np.bool_] | NDArray[np.int64] | slice) -> "Pairs":
        return Pairs(self.left[selected], self.right[selected], self.similarities[selected])

    def within(self, scopes: NDArray[np.uint64]) -> "Pairs":
        """Return the pairs whose documents have the same scope; ``scopes`` has that of each document."""
        return self.where(scopes[self.left] == scopes[self.right])


def similarities(
    sets: ShingleSets, left: NDArray[np.int64], right: NDArray[np.int64], measure: Measure = MEASURES["set"]
) -> NDArray[np.float64]:
    """Return the exact similarities of pairs by their rows; 0 where a document has no shingles."""
    return measure.exact(*overlaps_of(sets, left, right))


def contained(
    sets: ShingleSets, left: NDArray[np.int64], right: NDArray[np.int64], rule: ContainmentRule
) -> NDArray[np.bool_]:
    overlaps = overlaps_of(sets, left, right)
    return rule.holds(overlaps.containments(), np.minimum(overlaps.left, overlaps.right))


def overlaps_of(sets: ShingleSets, left: NDArray[np.int64], right: NDArray[np.int64]) -> Overlaps:
    pairs = zip(left.tolist(), right.tolist(), strict=True)
    common = np.fromiter(
        (intersection_size(sets.shingles_of(a), sets.shingles_of(b)) for a, b in pairs), np.int64, len(left)
    )
    return Overlaps(common, sets.sizes[left], sets.sizes[right])
