"""The content in an index entry: computed from a text (for ``preparation``), or after an append (for ``appending``).

A new field of ``Content`` also touches ``index.documents``, ``index.entries`` and docs/format.md.

A shingle is a run of elements: tokens or characters, as the profile says. After an append the content is that of the
whole text, although no text is stored: an entry keeps the hashes of its last elements (``Content.tail``), from which
the shingles across the seam are computed.
"""

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from streamdedup.index.documents import MAX_COUNT, Content
from streamdedup.similarity.sketch import Sketch, Sketcher
from streamdedup.text.runs import ranges
from streamdedup.text.shingle_hashes import repetitions
from streamdedup.text.shingles import ShingleBatch, Shingler


class BagTooLarge(ValueError):
    """A bag (a multiset of shingles) beyond ``exact_limit`` cannot be extended: its signature counts no repetitions."""


def contents_of(shingles: ShingleBatch, sketches: Sequence[Sketch]) -> list[Content]:
    """Return the contents for a batch, from its shingles and a sketch for each text."""
    tails: list[int] = shingles.tails.tolist()
    return [
        Content(sketch, token_count, element_count, tuple(tails[first:last]), stop_only)
        for sketch, token_count, element_count, (first, last), stop_only in zip(
            sketches,
            np.minimum(shingles.token_counts, MAX_COUNT).tolist(),
            np.minimum(shingles.element_counts, MAX_COUNT).tolist(),
            pairwise(shingles.tail_offsets.tolist()),
            shingles.stop_only.tolist(),
            strict=True,
        )
    ]


def contents_after_append(
    shingler: Shingler, sketcher: Sketcher, contents: Sequence[Content], texts: Sequence[str]
) -> list[Content]:
    """Return the contents of n documents after n texts are appended, one to each document, on a new line.

    The other fields of a content stay: incarnation, source, scope, caption and first digest. Raises ``BagTooLarge`` for
    a bag beyond ``exact_limit``.
    """
    # After a stored text without elements there is no space at the seam. An empty tail does not tell: with shingles of
    # one element every tail is empty.
    empty = [not content.element_count for content in contents]
    added = shingler.appended([np.array(content.tail, np.uint64) for content in contents], empty, texts)
    offsets, tails, tail_offsets = added.offsets.tolist(), added.tails.tolist(), added.tail_offsets.tolist()
    results = []
    for row, content in enumerate(contents):
        # ``added.token_counts`` are without the tail. ``element_counts`` include the tail; without added elements, 0.
        if not added.element_counts[row]:
            results.append(content)
            continue
        element_count = content.element_count + int(added.element_counts[row]) - len(content.tail)
        hashes = added.hashes[offsets[row] : offsets[row + 1]]
        stored_sketch: Sketch | None = content.sketch
        stop_only = bool(added.stop_only[row])
        if content.element_count < shingler.options.size:
            # The stored text was one short shingle, which the whole text does not have. All its elements are in the
            # tail, so ``hashes`` are all shingles of the whole text.
            stored_sketch = None
        # A text keeps its stop shingles only where it has no other shingles.
        elif content.stop_only and not stop_only:
            stored_sketch = None
        elif stop_only and not content.stop_only:
            hashes, stop_only = hashes[:0], False
        results.append(
            replace(
                content,
                sketch=_extended(shingler, sketcher, stored_sketch, hashes),
                token_count=min(content.token_count + int(added.token_counts[row]), MAX_COUNT),
                element_count=min(element_count, MAX_COUNT),
                tail=tuple(tails[tail_offsets[row] : tail_offsets[row + 1]]),
                stop_only=stop_only,
            )
        )
    return results


def _extended(
    shingler: Shingler, sketcher: Sketcher, stored_sketch: Sketch | None, hashes: NDArray[np.uint32]
) -> Sketch:
    """Return the sketch of the stored shingles and the gained ``hashes``: of their union, or in a bag of their sum.

    ``stored_sketch`` is None if the whole text has the gained shingles only. In a bag ``hashes`` are plain shingle
    hashes with repetitions, while the stored hashes are occurrence hashes: the first occurrence of a shingle has the
    plain hash, each further one a hash of its own.
    """
    family, limit = sketcher.family, sketcher.exact_limit
    if stored_sketch is not None and stored_sketch.hashes is None:
        if shingler.options.bag:
            raise BagTooLarge(f"a bag of more than {limit} shingles is kept by its signature and cannot be continued")
        assert stored_sketch.signature is not None
        shingles = np.unique(hashes)
        offsets = np.array([0, len(shingles)], np.int64)  # one document
        signature = family.extended(stored_sketch.signature[np.newaxis], shingles, offsets)[0]
        # The sum counts shingles in both parts twice. That changes nothing: the stored count is the limit + 1 already,
        # where ``signature_sketch`` caps it.
        return sketcher.signature_sketch(stored_sketch.count + len(shingles), signature)
    stored = np.empty(0, np.uint32) if stored_sketch is None or stored_sketch.hashes is None else stored_sketch.hashes
    if shingler.options.bag:
        hashes = _occurrence_hashes(stored, hashes)
    union = np.union1d(stored, hashes)
    sketches, _ = sketcher.make(union, np.array([0, len(union)], np.int64))
    return sketches[0]


def _occurrence_hashes(bag: NDArray[np.uint32], hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the occurrence hashes of plain hashes with repetitions: the third one of a shingle twice in ``bag``."""
    unique, counts = np.unique(hashes, return_counts=True)
    shingles = unique.astype(np.uint64)
    bag_counts = np.zeros(shingles.size, np.int64)  # occurrences of each shingle in the bag
    rows, tested = np.arange(shingles.size), 0
    while rows.size:
        # Occurrence 0, then 1 and 2, then 3 to 6: so many steps that a bag of one repeated shingle takes few.
        numbers = np.arange(tested, 2 * tested + 1)
        in_bag = np.isin(repetitions(shingles[rows, np.newaxis], numbers), bag)
        bag_counts[rows] += np.logical_and.accumulate(in_bag, axis=1).sum(axis=1)
        rows, tested = rows[in_bag.all(axis=1)], 2 * tested + 1
    return repetitions(np.repeat(shingles, counts), ranges(bag_counts, counts)).astype(np.uint32)
