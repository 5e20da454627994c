"""Normalisation: texts to NFKC with case folding, as classified code points, many documents at once.

A table that maps code point by code point is many times faster than `unicodedata.normalize`, but right only where
neighbours do not matter. Unicode Standard Annex 15 (section 9, "Detecting Normalization Forms") gives the condition: a
text is in normal form when no code point is excluded from the form, combining classes never decrease, and nothing
composes. `fold` therefore works in three steps, each for the documents that the step before leaves in doubt:

1. Map by table, and test the conditions.
2. Compose with `unicodedata` (NFC), map by table, and test again: texts with decomposed letters or marks out of order.
3. Apply `unicodedata` to a fixed point: slow and always right.

The result of a document does not depend on the step, nor on the other documents of the batch.

    ns a character, words, one core                    step 1 to 3   without 2   3 alone
    one text in 382 languages                          17            20          32
    Arabic reviews                                     19            18          54
    Latin, decomposed accents (synthetic)              45            110         90
    Arabic, vowel signs, shadda first (synthetic)      75            100         79
"""

import itertools
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.hashing import offsets_of, ranges
from streamdedup.text.unicode_tables import (
    CHECK,
    CODE_POINT,
    COMPLEX,
    COMPOSES_BACKWARD,
    COMPOSES_FORWARD,
    EXPANDS,
    IGNORED,
    LAST_CLASS_SHIFT,
    OWN_CLASS,
    Tables,
    pair_keys,
    tables,
)

#: Characters for each removed or expanding one from which on slices are joined instead of masking all characters.
_FEW = 100


class Folded(NamedTuple):
    """Normalised documents in one array, a separator before each and one at the end.

    Attributes:
        packed: uint32 (n_code_points,); code point and class bits; separators are SPACE without bits.
        starts: int64 (n_docs + 1,); start of each document; the last entry is the length of `packed`.
        bits: All bits that occur in `packed`.
    """

    packed: NDArray[np.uint32]
    starts: NDArray[np.int64]
    bits: int


class _Mapped(NamedTuple):
    """Visible code points of documents, and their entries in the table; attributes as in `Folded`."""

    packed: NDArray[np.uint32]
    points: NDArray[np.uint32]
    starts: NDArray[np.int64]
    bits: int


def fold(texts: Sequence[str], *, fold_marks: bool = False) -> Folded:
    """Normalise and classify documents.

    Args:
        texts: At least one text; any code points, lone surrogates and NUL included.
        fold_marks: Remove accents and vowel signs, too.
    """
    table = tables(fold_marks=fold_marks)
    mapped = _map(texts, table)
    packed, starts, bits = mapped.packed, mapped.starts, mapped.bits
    doubtful = _doubtful(mapped, table)
    if doubtful.size:
        packed, starts = _replace(mapped, doubtful, table, fold_marks=fold_marks)
        bits = int(np.bitwise_or.reduce(packed))
    return _expand(packed, starts, bits, table)


def _map(texts: Sequence[str], table: Tables) -> _Mapped:
    """Map the visible code points of all texts by table, a line feed before each text and after the last."""
    joined = "\n".join(["", *texts, ""])
    starts = np.fromiter(itertools.accumulate((len(text) + 1 for text in texts), initial=1), np.int64, len(texts) + 1)
    points = np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4")
    packed = table.packed.take(points)
    bits = int(np.bitwise_or.reduce(packed))
    if bits & IGNORED:
        ignored = np.flatnonzero((packed & IGNORED) != 0)
        starts = starts - np.searchsorted(ignored, starts)
        packed, points = _without(packed, ignored), _without(points, ignored)
    return _Mapped(packed, points, starts, bits)


def _doubtful(mapped: _Mapped, table: Tables) -> NDArray[np.int64]:
    """Return the documents for which the table may be wrong, ascending.

    A document is in doubt at a code point that always needs `unicodedata`; at a mark whose combining class is below
    that of the code point before it; and at a code point that composes with the one before it, or follows a mark or
    jamo, so that it could compose with an earlier one.
    """
    packed, points, starts, bits = mapped
    if not bits & CHECK:
        return np.empty(0, np.int64)
    at = np.flatnonzero((packed & CHECK) != 0)
    after, here = points.take(at - 1), points.take(at)
    before, context = table.context.take(after), table.context.take(here)
    own_class = context & OWN_CLASS
    doubtful = (context & COMPLEX) != 0
    doubtful |= (own_class != 0) & (before >> LAST_CLASS_SHIFT & OWN_CLASS > own_class)
    backward = np.flatnonzero((context & COMPOSES_BACKWARD) != 0)
    if backward.size:
        keys = pair_keys(after.take(backward), here.take(backward))
        composes = table.pairs.take(np.searchsorted(table.pairs, keys), mode="clip") == keys
        doubtful[backward] |= composes | ((before.take(backward) & (OWN_CLASS | COMPOSES_FORWARD)) != 0)
    return np.unique(np.searchsorted(starts, at[doubtful], side="right") - 1)


def _replace(
    mapped: _Mapped, documents: NDArray[np.int64], table: Tables, *, fold_marks: bool
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Replace documents in doubt by their normal form (steps 2 and 3); return the new `packed` and `starts`."""
    packed, points, starts, _ = mapped
    bounds = [(int(starts[document]), int(starts[document + 1]) - 1) for document in documents.tolist()]
    texts = [str(points[first:last].data, "utf-32-le", "surrogatepass") for first, last in bounds]
    composed = _map([unicodedata.normalize("NFC", text) for text in texts], table)
    slow = set(_doubtful(composed, table).tolist())
    lengths = np.diff(starts)
    pieces, end = [], 0
    for nth, (first, last) in enumerate(bounds):
        if nth in slow:
            text = _canonical(texts[nth], table, fold_marks=fold_marks)
            piece = table.packed.take(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4"))
        else:
            piece = composed.packed[composed.starts[nth] : composed.starts[nth + 1] - 1]
        lengths[documents[nth]] += piece.size - (last - first)
        pieces += [packed[end:first], piece]
        end = last
    pieces.append(packed[end:])
    return np.concatenate(pieces), starts[0] + offsets_of(lengths)


def _canonical(text: str, table: Tables, *, fold_marks: bool) -> str:
    """Return a text without invisible characters in NFKC and case-folded, to a fixed point; separators stay."""
    while True:
        visible = _visible(unicodedata.normalize("NFD", text) if fold_marks else text, table)
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
        if folded == text:
            return folded
        text = folded


def _visible(text: str, table: Tables) -> str:
    """Return a text without invisible characters."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    ignored = np.flatnonzero((table.packed.take(points) & IGNORED) != 0)
    return str(_without(points, ignored).data, "utf-32-le", "surrogatepass") if ignored.size else text


def _without(values: NDArray[np.uint32], at: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return values without those at given places, ascending."""
    if at.size * _FEW < values.size:
        return _with_pieces(values, at, [values[:0]] * at.size)
    keep = np.ones(values.size, np.bool_)
    keep[at] = False
    return values.take(np.flatnonzero(keep))


def _with_pieces(
    values: NDArray[np.uint32], at: NDArray[np.int64], pieces: Sequence[NDArray[np.uint32]]
) -> NDArray[np.uint32]:
    """Return values with those at given places, ascending and few, replaced by pieces."""
    parts, end = [], 0
    for place, piece in zip(at.tolist(), pieces, strict=True):
        parts += [values[end:place], piece]
        end = place + 1
    return np.concatenate([*parts, values[end:]])


def _expand(packed: NDArray[np.uint32], starts: NDArray[np.int64], bits: int, table: Tables) -> Folded:
    """Replace the code points that become several."""
    if not bits & EXPANDS:
        return Folded(packed, starts, bits)
    at = np.flatnonzero((packed & EXPANDS) != 0)
    which = packed[at] & CODE_POINT
    first, length = table.first[which], table.length[which]
    added = np.concatenate(([0], np.cumsum(length - 1)))
    if at.size * _FEW < packed.size:
        ends = (first + length).tolist()
        pieces = [table.expansions[begin:end] for begin, end in zip(first.tolist(), ends, strict=True)]
        grown = _with_pieces(packed, at, pieces)
    else:
        counts = np.ones(packed.size, np.int64)
        counts[at] = length
        grown = np.repeat(packed, counts)
        grown[ranges(at + added[:-1], length)] = table.expansions[ranges(first, length)]
    starts = starts + added[np.searchsorted(at, starts)]
    return Folded(grown, starts, int(np.bitwise_or.reduce(grown)))
