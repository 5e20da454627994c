"""From texts to folded and classified code points, for texts beyond ASCII.

Normalising by a table of code points is many times faster than ``unicodedata.normalize``, but right only where
neighbours do not interact. Unicode Standard Annex 15 (section 9, "Detecting Normalization Forms") gives the conditions:
a text is in normal form when no code point is excluded from the form, combining classes never decrease, and nothing
composes. ``fold`` works in steps:

1. Map each code point by table, and test the conditions: of marks that compose with nothing, only those after a mark.
2. Repair the simple cases in the arrays: compose a letter with the marks directly after it; exchange two marks in
   the wrong order. Texts in NFD, Vietnamese as well, and vowelled Arabic, typed with shadda first, need no more.
3. Compose the other documents with ``unicodedata``, then map again.
4. Fold documents that still fail with ``_canonical``, which is slow and always right.

All steps give the same result. The result for a document does not depend on the other documents of the batch.
"""

import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.hashing import VALID, offsets_of, ranges
from streamdedup.text.unicode_tables import (
    CHECK,
    CLASSED,
    CODE_POINT,
    COMPLEX,
    COMPOSES_BACKWARD,
    COMPOSES_FORWARD,
    ENDS_CLASSED,
    EXPANDS,
    IGNORED,
    LAST_CLASS_SHIFT,
    OWN_CLASS,
    UNDECIDED,
    FoldOptions,
    Tables,
    kind,
    kinds_of,
    tables,
)

#: Up to one changed character in so many, joining the unchanged runs is cheaper than a mask over all characters.
_FEW = 100


class Folded(NamedTuple):
    """Documents after normalisation, all in one array, a separator before each and one at the end.

    Attributes:
        packed: uint32 (n_code_points,); code point and bits; separators are SPACE without bits.
        starts: int64 (n_docs + 1,); start of each document; the last entry is the length of ``packed``.
        bits: All bits that occur in ``packed``.
        kinds: uint8 (n_code_points,); `kind` of each entry of ``packed``.
    """

    packed: NDArray[np.uint32]
    starts: NDArray[np.int64]
    bits: int
    kinds: NDArray[np.uint8]


class _Written(NamedTuple):
    """Documents without ignorable code points, before composition: as in `Folded`, and their code points."""

    packed: NDArray[np.uint32]
    starts: NDArray[np.int64]
    bits: int
    kinds: NDArray[np.uint8]
    points: NDArray[np.uint32]


class _Composed(NamedTuple):
    """Documents after the simple cases of composition.

    Attributes:
        packed: As in `Folded`.
        starts: As in `Folded`.
        doubtful: Documents, ascending, in which `packed` may still be wrong.
    """

    packed: NDArray[np.uint32]
    starts: NDArray[np.int64]
    doubtful: NDArray[np.int64]


def fold(texts: Sequence[str], folding: FoldOptions) -> Folded:
    """Normalise and classify documents.

    Args:
        texts: At least one text; any code points, lone surrogates and NUL included.
        folding: Further differences to remove.
    """
    table = tables(folding)
    written = _look_up(texts, table)
    packed, starts, doubtful = _composed(written, table)
    if doubtful.size:
        packed, starts = _replace(written, packed, starts, doubtful, table, fold_marks=folding.marks)
    if packed is written.packed:
        # Exchanged marks are all of the same kind for tokens.
        folded = Folded(packed, starts, written.bits, written.kinds)
    else:
        folded = _folded(packed, starts)
    return _expand(folded, table) if folded.bits & EXPANDS else folded


def _folded(packed: NDArray[np.uint32], starts: NDArray[np.int64]) -> Folded:
    """Return documents with their bits and kinds."""
    return Folded(packed, starts, int(np.bitwise_or.reduce(packed)), kinds_of(packed))


def _look_up(texts: Sequence[str], table: Tables) -> _Written:
    """Look up the code points of all texts, a line feed before each and after the last."""
    joined = "\n".join(["", *texts, ""])
    starts = offsets_of(np.fromiter(map(len, texts), np.int64, len(texts)) + 1) + 1
    # A third of the time of `str.encode`; lone surrogates pass as well.
    points = np.array([joined], "<U").view("<u4")
    packed = table.packed.take(points, mode=VALID)
    folded = _folded(packed, starts)
    if folded.bits & IGNORED:
        ignored = np.flatnonzero((packed & IGNORED) != 0)
        starts = starts - np.searchsorted(ignored, starts)
        folded, points = _folded(_without(packed, ignored), starts), _without(points, ignored)
    return _Written(*folded, points)


def _without(values: NDArray[np.uint32], at: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return ``values`` without those at ``at``, ascending indexes."""
    if at.size * _FEW < values.size:
        return _with_pieces(values, at, [values[:0]] * at.size)
    keep = np.ones(values.size, np.bool_)
    keep[at] = False
    return values.take(np.flatnonzero(keep), mode=VALID)


def _with_pieces(
    values: NDArray[np.uint32], at: NDArray[np.int64], pieces: Sequence[NDArray[np.uint32]]
) -> NDArray[np.uint32]:
    """Return ``values`` with each value at ``at``, few ascending indexes, replaced by a piece."""
    parts, end = [], 0
    for place, piece in zip(at.tolist(), pieces, strict=True):
        parts += [values[end:place], piece]
        end = place + 1
    return np.concatenate([*parts, values[end:]])


def _to_check(kinds: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the indexes, ascending, of the code points that their neighbours may change."""
    check = kinds[:-1] >> 1
    check &= kind(CLASSED)
    check |= kind(CHECK)
    check &= kinds[1:]
    return np.flatnonzero(check != 0) + 1


def _composed(written: _Written, table: Tables) -> _Composed:
    """Repair the simple cases, exchanged marks in place.

    A mark changes places with the code point before it when its combining class is lower. It may compose when the two
    are a pair, or when the code point before it is a mark, over which it could reach.
    """
    packed, starts, bits, kinds, points = written
    at = _to_check(kinds) if bits & (CHECK | CLASSED) else starts[:0]
    if not at.size:
        return _Composed(packed, starts, at)
    after, here = points.take(at - 1, mode=VALID), points.take(at, mode=VALID)
    before, context = table.context.take(after, mode=VALID), table.context.take(here, mode=VALID)
    own_class = context & OWN_CLASS
    doubtful = before >> LAST_CLASS_SHIFT & OWN_CLASS > own_class
    doubtful &= own_class != 0
    swapped = np.flatnonzero(doubtful)
    if swapped.size:
        contexts = before.take(swapped, mode=VALID) | context.take(swapped, mode=VALID)
        exchanged = swapped.take(np.flatnonzero(_only_reordered(packed, at.take(swapped), contexts)))
        _exchange(packed, at.take(exchanged))
        doubtful[exchanged] = False
    if int(np.bitwise_or.reduce(context)) & (COMPLEX | COMPOSES_BACKWARD):
        doubtful |= (context & COMPLEX) != 0
        backward = np.flatnonzero((context & COMPOSES_BACKWARD) != 0)
        marks = at.take(backward)
        pairs = after.take(backward), here.take(backward)
        composites, unclear = _composites(marks, *pairs, before.take(backward), table)
        doubtful[backward] |= unclear
        documents = _documents_of(at[doubtful], starts)
        return _Composed(*_with_composites(packed, starts, marks, composites, table), documents)
    return _Composed(packed, starts, _documents_of(at[doubtful], starts))


def _composites(
    marks: NDArray[np.int64],
    after: NDArray[np.uint32],
    here: NDArray[np.uint32],
    before: NDArray[np.uint32],
    table: Tables,
) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """Return the code point composed of each mark, its letter and the marks between, else 0; and the unclear marks.

    An unclear mark may compose, but not with the code points directly before it alone.

    Args:
        marks: Indexes, ascending, of the marks.
        after: The code point before each mark.
        here: Each mark.
        before: Context bits of ``after``.
        table: Tables.
    """
    entries = _entries(after, here, table)
    composes = entries > UNDECIDED
    composes &= before & (OWN_CLASS | COMPOSES_BACKWARD | COMPLEX) == 0
    composites = entries * composes
    unclear = before & (OWN_CLASS | COMPOSES_FORWARD) != 0
    unclear |= entries != 0
    unclear &= ~composes
    # A mark directly after one that composes: only the composed letter is before it.
    followed = np.zeros(marks.size, np.bool_)
    followed[:-1] = marks[1:] == marks[:-1] + 1
    composing = np.flatnonzero(composes & followed)
    while composing.size:
        second = composing + 1
        entries = _entries(composites.take(composing), here.take(second), table)
        unclear[second] = entries == UNDECIDED
        composes = entries > UNDECIDED
        composites[second] = entries * composes
        composing = second[composes & followed.take(second)]
    return composites, unclear


def _entries(letters: NDArray[np.uint32], marks: NDArray[np.uint32], table: Tables) -> NDArray[np.uint32]:
    """Return the entry of ``table.composites`` for each letter with its mark."""
    cells = table.letter_row.take(letters, mode="clip") + table.mark_column.take(marks, mode="clip")
    return table.composites.take(cells, mode=VALID)


def _only_reordered(
    packed: NDArray[np.uint32], marks: NDArray[np.int64], contexts: NDArray[np.uint32]
) -> NDArray[np.bool_]:
    """Return which marks need only change places with the mark before, as a vowel sign typed after shadda does.

    Args:
        packed: Table entries of all code points.
        marks: Indexes of the marks.
        contexts: Context bits of each mark and of the mark before, combined.
    """
    # Excludes code points that decompose: the last combining class is not that of the code point.
    hindered = contexts & (COMPLEX | COMPOSES_BACKWARD | COMPOSES_FORWARD)
    hindered |= ~packed.take(marks - 1, mode=VALID) & CLASSED
    hindered |= packed.take(marks - 2, mode="clip") & (CHECK | CLASSED | ENDS_CLASSED)
    hindered |= packed.take(marks + 1, mode=VALID) & (CHECK | CLASSED)
    only: NDArray[np.bool_] = hindered == 0
    return only


def _exchange(values: NDArray[np.uint32], marks: NDArray[np.int64]) -> None:
    """Exchange the value of each of ``marks`` with that of the mark before it, in place."""
    first, second = values.take(marks - 1, mode=VALID), values.take(marks, mode=VALID)
    values[marks], values[marks - 1] = first, second


def _documents_of(at: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the documents, ascending and distinct, that contain the indexes ``at``."""
    return np.unique(np.searchsorted(starts, at, side="right") - 1) if at.size else at


def _with_composites(
    packed: NDArray[np.uint32],
    starts: NDArray[np.int64],
    marks: NDArray[np.int64],
    composites: NDArray[np.uint32],
    table: Tables,
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Replace the letters before ``marks`` by ``composites``; return ``packed`` and ``starts`` without these marks.

    Args:
        packed: As in `Folded`.
        starts: As in `Folded`.
        marks: Indexes, ascending, of marks.
        composites: Composed code point of each, 0 for a mark that stays.
        table: Tables.
    """
    composing = np.flatnonzero(composites)
    if not composing.size:
        return packed, starts
    marks = marks.take(composing)
    packed = _without(packed, marks)
    letters = marks - 1 - np.arange(marks.size)
    # The last of several marks on a letter has the composite of all of them.
    last = np.flatnonzero(np.diff(letters, append=-1))
    packed[letters.take(last)] = table.packed.take(composites.take(composing.take(last)))
    return packed, starts - np.searchsorted(marks, starts)


def _canonical(text: str, table: Tables, *, fold_marks: bool) -> str:
    """Return a text without ignorable characters in NFKC and case-folded, to a fixed point; separators stay."""
    while True:
        visible = _visible(unicodedata.normalize("NFD", text) if fold_marks else text, table)
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold())
        if folded == text:
            return folded
        text = folded


def _visible(text: str, table: Tables) -> str:
    """Return a text without ignorable code points."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    ignored = np.flatnonzero((table.packed.take(points) & IGNORED) != 0)
    return str(_without(points, ignored).data, "utf-32-le", "surrogatepass") if ignored.size else text


def _replace(
    written: _Written,
    packed: NDArray[np.uint32],
    starts: NDArray[np.int64],
    documents: NDArray[np.int64],
    table: Tables,
    *,
    fold_marks: bool,
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Fold some documents with ``unicodedata``; return the new ``packed`` and ``starts`` of all.

    Args:
        written: The documents as they were written.
        packed: The documents after the simple cases of composition.
        starts: Their starts in ``packed``.
        documents: The documents to fold, ascending.
        table: Tables.
        fold_marks: Marks are ignorable too.
    """
    texts = [
        str(written.points[first:last].data, "utf-32-le", "surrogatepass")
        for first, last in _bounds(written.starts, documents)
    ]
    composed = _composed(_look_up([unicodedata.normalize("NFC", text) for text in texts], table), table)
    slow = set(composed.doubtful.tolist())
    lengths = np.diff(starts)
    pieces, end = [], 0
    for nth, (first, last) in enumerate(_bounds(starts, documents)):
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


def _bounds(starts: NDArray[np.int64], documents: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return start and end of some documents, without the separators behind them."""
    return list(zip(starts.take(documents).tolist(), (starts.take(documents + 1) - 1).tolist(), strict=True))


def _expand(folded: Folded, table: Tables) -> Folded:
    """Replace each code point that folds to several by all of them."""
    packed = folded.packed
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
    return _folded(grown, folded.starts + added[np.searchsorted(at, folded.starts)])
