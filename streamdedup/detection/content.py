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

from streamdedup.errors import MessageError
from streamdedup.index.documents import EMPTY_CONTENT, MAX_COUNT, Content
from streamdedup.similarity.sketch import Sketch, Sketcher
from streamdedup.text.runs import ranges
from streamdedup.text.shingle_hashes import repetitions
from streamdedup.text.shingles import ShingleBatch, Shingler
from streamdedup.wire import ErrorCode


def contents_of(shingles: ShingleBatch, sketches: Sequence[Sketch]) -> list[Content]:
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


def content_after_append(shingler: Shingler, sketcher: Sketcher, content: Content, text: str) -> Content:
    """Return the content of a document after a text is appended on a new line.

    The other fields of the content stay: incarnation, source, scope, caption and first digest. Raises MessageError for
    a bag beyond ``exact_limit``.
    """
    tail = np.array(content.tail, np.uint64)
    gained = shingler.appended(tail, text, is_first=not content.element_count)
    gained_count = int(gained.element_counts[0])  # with the tail
    if not gained_count:
        return content
    stored, hashes, stop_only = _kept(content, gained, shingler.options.size)
    return replace(
        content,
        sketch=_extended(shingler, sketcher, stored, hashes),
        token_count=min(content.token_count + int(gained.token_counts[0]), MAX_COUNT),
        element_count=min(content.element_count - len(content.tail) + gained_count, MAX_COUNT),
        tail=tuple(gained.tails.tolist()),
        stop_only=stop_only,
    )


def _kept(content: Content, gained: ShingleBatch, size: int) -> tuple[Sketch, NDArray[np.uint32], bool]:
    """Return what the whole text keeps of stored sketch and gained hashes, and whether all are stop shingles."""
    stop_only = bool(gained.stop_only[0])
    if content.element_count < size:
        # The stored text was one short shingle, which the whole text does not have. All its elements are in the tail,
        # so the gained hashes are all shingles of the whole text.
        return EMPTY_CONTENT.sketch, gained.hashes, stop_only
    # A text keeps its stop shingles only where it has no other shingles.
    if content.stop_only and not stop_only:
        return EMPTY_CONTENT.sketch, gained.hashes, False
    if stop_only and not content.stop_only:
        return content.sketch, gained.hashes[:0], False
    return content.sketch, gained.hashes, stop_only


def _extended(shingler: Shingler, sketcher: Sketcher, stored: Sketch, hashes: NDArray[np.uint32]) -> Sketch:
    """Return the sketch of the stored shingles and the gained ``hashes``: of their union, or in a bag of their sum.

    In a bag ``hashes`` are plain shingle hashes with repetitions, while the stored hashes are occurrence hashes: the
    first occurrence of a shingle has the plain hash, each further one a hash of its own.
    """
    if stored.hashes is None:
        assert stored.signature is not None
        if shingler.options.bag:  # a signature counts no repetitions
            text = (
                f"a bag of more than {sketcher.exact_limit} shingles is kept by its signature and cannot be continued"
            )
            raise MessageError(ErrorCode.BAG_TOO_LARGE, text)
        gained = sketcher.family.sign(hashes, np.array([0, hashes.size]))[0]
        signature = np.minimum(stored.signature, gained)
        # Too great a count, because it has shingles in both parts twice: ``signature_sketch`` caps it.
        return sketcher.signature_sketch(stored.count + len(hashes), signature)
    if shingler.options.bag:
        hashes = _occurrence_hashes(stored.hashes, hashes)
    union = np.union1d(stored.hashes, hashes)
    sketches, _ = sketcher.sketch(union, np.array([0, union.size]))
    return sketches[0]


def _occurrence_hashes(bag: NDArray[np.uint32], hashes: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Return the occurrence hashes of plain hashes with repetitions.

    A shingle that ``bag`` has twice continues with its third occurrence.
    """
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
