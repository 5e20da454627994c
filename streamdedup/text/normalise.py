"""From texts to folded and classified code points, for texts beyond ASCII.

Called by `tokens` and `shingles.folded_text`. A change of the result also touches `unicode_tables`,
tests/unit/reference_shingles.py and docs/format.md ("Folding"), and needs a new `shingles.ALGORITHM`.

Normalising by a table is many times faster than ``unicodedata.normalize``, but right only where neighbours do not
interact. Unicode Standard Annex 15 (section 9, "Detecting Normalization Forms") gives the conditions: a text is in
normal form when no code point is excluded from the form, combining classes never decrease, except to 0, and nothing
composes. `unicode_tables` has two tables by code point: ``packed``, the folded code point with the bits that describe
it, and ``context``, combining classes and compositions. Three bits in ``packed`` tell where to test the conditions:

    CHECK         may compose with the code point before it, or depends on neighbours in another way
    CLASSED       has a combining class, as most marks have
    ENDS_CLASSED  ends in a code point with a combining class when decomposed: most marks, and letters such as é

``context`` has the combining class of the code point, the class at the end of its decomposition, and whether it may
compose (``COMPOSES_BACKWARD``, ``COMPOSES_FORWARD``) or depends on neighbours in a way that no table tells
(``COMPLEX``). ``fold`` works in steps:

1. Look each code point up in ``packed``, and drop the ignorable ones (``_look_up``).
2. Test the conditions at code points with ``CHECK``, and at those with ``CLASSED`` directly after ``ENDS_CLASSED``
   (``_places_to_check``). Repair the simple cases in the arrays (``_repair_simple``): compose a letter with the marks
   directly after it; exchange two marks in the wrong order. Texts in NFD need no more, Vietnamese included; nor does
   vowelled Arabic in which shadda is typed before the vowel sign.
3. Compose with ``unicodedata`` the documents that step 2 leaves in doubt, and repeat steps 1 and 2 for them
   (``_fold_doubtful``).
4. Fold documents that are still in doubt with ``_fold_slowly``, which is always right.
5. Replace entries with ``EXPANDS`` by several code points (``_expand``).

The result for a document depends neither on the steps that fold it nor on the rest of the batch.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.folding import FoldOptions, case_folded, compatible, normalized
from streamdedup.text.runs import UNCHECKED, offsets_of, ranges
from streamdedup.text.unicode_tables import (
    CHECK,
    CLASSED,
    CODE_POINT,
    COMPLEX,
    COMPOSES_BACKWARD,
    COMPOSES_FORWARD,
    DOUBTFUL,
    ENDS_CLASSED,
    EXPANDS,
    IGNORED,
    LAST_CLASS_SHIFT,
    OWN_CLASS,
    Tables,
    kind_mask,
    kinds_of,
    tables,
)

#: If fewer than one in so many characters are removed or replaced, it is cheaper to join the rest than to use a mask.
_CHARACTERS_PER_CHANGE = 100
#: Steps of a loop that composes, in each step, a second or later mark with each letter. More than any letter needs: it
#: composes with at most three marks, except i, with any number of dots.
_MARK_STEPS = 4


class Folded(NamedTuple):
    """Documents after normalisation, all in one array, a separator before each and one at the end.

    Attributes:
        packed: uint32 (n_code_points,); code point and bits; separators are SPACE without bits.
        starts: int64 (n_docs + 1,); document starts; the last entry is the length of ``packed``.
        bits: The union (OR) of all entries of ``packed``, to tell which bits occur at all.
        kinds: uint8 (n_code_points,); highest byte of each entry (`unicode_tables.kinds_of`): bits from LETTER on.
    """

    packed: NDArray[np.uint32]
    starts: NDArray[np.int64]
    bits: int
    kinds: NDArray[np.uint8]


class _LookedUp(NamedTuple):
    """Documents after step 1: as `Folded`, and in ``points`` the texts' code points, without the ignorable ones."""

    packed: NDArray[np.uint32]
    starts: NDArray[np.int64]
    bits: int
    kinds: NDArray[np.uint8]
    points: NDArray[np.uint32]


class _Repaired(NamedTuple):
    """Documents after step 2.

    In ``doubtful_documents``, ascending, ``packed`` may still be wrong. ``is_composed``: whether letters were composed;
    otherwise step 2 has at most exchanged marks.
    """

    packed: NDArray[np.uint32]
    starts: NDArray[np.int64]
    doubtful_documents: NDArray[np.int64]
    is_composed: bool = False


def fold(texts: Sequence[str], folding: FoldOptions) -> Folded:
    """Normalise and classify at least one text of any code points, lone surrogates and NUL included.

    ``folding`` names further differences to remove.
    """
    table = tables(folding)
    looked_up = _look_up(texts, table)
    repaired = _repair_simple(looked_up, table)
    if repaired.doubtful_documents.size:
        folded = _classified(*_fold_doubtful(looked_up, repaired, table, folding))
    elif repaired.is_composed:
        folded = _classified(repaired.packed, repaired.starts)
    else:
        # Marks may have changed places, but all marks have the same bits for `tokens`.
        folded = Folded(looked_up.packed, looked_up.starts, looked_up.bits, looked_up.kinds)
    return _expand(folded, table) if folded.bits & EXPANDS else folded


def _classified(packed: NDArray[np.uint32], starts: NDArray[np.int64]) -> Folded:
    """Return a `Folded` with ``bits`` and ``kinds`` computed from ``packed``."""
    return Folded(packed, starts, int(np.bitwise_or.reduce(packed)), kinds_of(packed))


def _look_up(texts: Sequence[str], table: Tables) -> _LookedUp:
    """Step 1: look up all code points, a line feed before each text and after the last; drop the ignorable ones."""
    joined = "\n".join(["", *texts, ""])
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    starts = offsets_of(lengths + 1) + 1  # each text begins after its line feed
    # Takes a third of the time that `str.encode` takes, and accepts lone surrogates.
    points = np.array([joined], "<U").view("<u4")
    packed = table.packed.take(points, mode=UNCHECKED)
    folded = _classified(packed, starts)
    if folded.bits & IGNORED:
        ignored = np.flatnonzero((packed & IGNORED) != 0)
        starts = starts - np.searchsorted(ignored, starts)  # fewer by the ignorable code points before
        folded, points = _classified(_without(packed, ignored), starts), _without(points, ignored)
    return _LookedUp(*folded, points)


def _without(values: NDArray[np.uint32], places: NDArray[np.int64]) -> NDArray[np.uint32]:
    if places.size * _CHARACTERS_PER_CHANGE < values.size:
        return _spliced(values, places, [values[:0]] * places.size)  # empty pieces
    remains = np.ones(values.size, np.bool_)
    remains[places] = False
    return values.take(np.flatnonzero(remains), mode=UNCHECKED)


def _spliced(
    values: NDArray[np.uint32], places: NDArray[np.int64], pieces: Sequence[NDArray[np.uint32]]
) -> NDArray[np.uint32]:
    """Return ``values`` with the value at each of a few ascending places replaced by a piece."""
    parts, end = [], 0
    for replaced, piece in zip(places.tolist(), pieces, strict=True):
        parts += [values[end:replaced], piece]
        end = replaced + 1
    return np.concatenate([*parts, values[end:]])


def _places_to_check(kinds: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the places, ascending, at which neighbours may change the result."""
    # ``counting`` has the bits that make each code point but the first a place to check: CHECK always, CLASSED if the
    # code point before has ENDS_CLASSED. This is the bit above CLASSED, so a shift by one bit moves it there.
    counting = kinds[:-1] >> 1
    counting &= kind_mask(CLASSED)
    counting |= kind_mask(CHECK)
    counting &= kinds[1:]
    return np.flatnonzero(counting != 0) + 1


def _repair_simple(looked_up: _LookedUp, table: Tables) -> _Repaired:
    """Step 2: exchange marks in the wrong order, in place, in ``looked_up.packed``; compose letters with their marks.

    Pairs of letter and mark are looked up by the original code points, ``points``, which step 3 needs unchanged;
    ``packed`` gets the folded result.
    """
    packed, starts, bits, kinds, points = looked_up
    places = _places_to_check(kinds) if bits & (CHECK | CLASSED) else starts[:0]
    if not places.size:
        return _Repaired(packed, starts, doubtful_documents=places)
    previous, current = points.take(places - 1, mode=UNCHECKED), points.take(places, mode=UNCHECKED)
    previous_context = table.context.take(previous, mode=UNCHECKED)
    context = table.context.take(current, mode=UNCHECKED)
    is_doubtful = _exchange_marks(packed, places, previous_context, context)
    if not int(np.bitwise_or.reduce(context)) & (COMPLEX | COMPOSES_BACKWARD):  # many batches need no composition
        return _Repaired(packed, starts, _documents_of(places[is_doubtful], starts))
    is_doubtful |= (context & COMPLEX) != 0
    backward = np.flatnonzero((context & COMPOSES_BACKWARD) != 0)
    marks, mark_points = places.take(backward), current.take(backward)
    before, before_context = previous.take(backward), previous_context.take(backward)
    composites, is_doubtful_mark = _compose_with_previous(before, before_context, mark_points, table)
    _compose_later_marks(composites, is_doubtful_mark, marks, mark_points, table)
    is_doubtful[backward] |= is_doubtful_mark
    documents = _documents_of(places[is_doubtful], starts)
    packed, starts = _composed_at(packed, starts, marks, composites, table)
    return _Repaired(packed, starts, documents, is_composed=bool(composites.any()))


def _exchange_marks(
    packed: NDArray[np.uint32], places: NDArray[np.int64], before: NDArray[np.uint32], context: NDArray[np.uint32]
) -> NDArray[np.bool_]:
    """Exchange marks that come after a higher class, in place, in the simple cases; return a mask of the others."""
    own_class = context & OWN_CLASS
    is_misplaced = ((before >> LAST_CLASS_SHIFT) & OWN_CLASS) > own_class
    is_misplaced &= own_class != 0  # a mark of class 0 never moves
    misplaced = np.flatnonzero(is_misplaced)
    if misplaced.size:
        contexts = before.take(misplaced, mode=UNCHECKED) | context.take(misplaced, mode=UNCHECKED)
        exchanged = misplaced.take(np.flatnonzero(_only_reordered(packed, places.take(misplaced), contexts)))
        moved = places.take(exchanged)
        packed[moved - 1], packed[moved] = packed[moved], packed[moved - 1]
        is_misplaced[exchanged] = False
    return is_misplaced


def _compose_with_previous(
    before: NDArray[np.uint32], before_context: NDArray[np.uint32], mark_points: NDArray[np.uint32], table: Tables
) -> tuple[NDArray[np.uint32], NDArray[np.bool_]]:
    """Return the code point that each mark composes with the code point before it, or 0; and a mask of doubtful marks.

    A doubtful mark may compose, but the table of pairs cannot tell to which code point.
    """
    # An entry is 0 without a pair, ``DOUBTFUL`` where the table of pairs cannot tell, else the composed code point.
    entries = _entries(before, mark_points, table)
    # The code point before must be a letter (no class) that neither composes backward itself nor changes by neighbours.
    is_plain_letter = (before_context & (OWN_CLASS | COMPOSES_BACKWARD | COMPLEX)) == 0
    composes = (entries > DOUBTFUL) & is_plain_letter
    # Doubtful: a pair that does not compose here; a mark after another mark, which has a class, because it may compose
    # with a letter before both; a mark after Hangul (only Hangul composes forward), which the table of pairs lacks.
    is_after_mark_or_hangul = (before_context & (OWN_CLASS | COMPOSES_FORWARD)) != 0
    return np.where(composes, entries, 0), ((entries != 0) | is_after_mark_or_hangul) & ~composes


def _compose_later_marks(
    composites: NDArray[np.uint32],
    is_doubtful_mark: NDArray[np.bool_],
    marks: NDArray[np.int64],
    mark_points: NDArray[np.uint32],
    table: Tables,
) -> None:
    """Correct ``composites`` and ``is_doubtful_mark``, in place, for marks directly after a composing mark.

    The code point before such a mark is the composed letter: its pair alone decides. ``marks`` are ascending places.
    Marks that ``_MARK_STEPS`` do not reach stay doubtful.
    """
    next_is_adjacent = np.diff(marks, append=-1) == 1
    composing = np.flatnonzero((composites != 0) & next_is_adjacent)
    for _ in range(_MARK_STEPS):
        if not composing.size:
            return
        second = composing + 1
        entries = _entries(composites.take(composing), mark_points.take(second), table)
        composes_again = entries > DOUBTFUL
        composites[second] = np.where(composes_again, entries, 0)
        is_doubtful_mark[second] = entries == DOUBTFUL
        composing = second[composes_again & next_is_adjacent.take(second)]


def _entries(letters: NDArray[np.uint32], marks: NDArray[np.uint32], table: Tables) -> NDArray[np.uint32]:
    """Return the entry in ``CompositeTable.composites`` for each letter with its mark."""
    pairs = table.pairs
    # Code points beyond the end of a table use its last entry, which belongs to no pair.
    cells = pairs.letter_row.take(letters, mode="clip") + pairs.mark_column.take(marks, mode="clip")
    return pairs.composites.take(cells, mode=UNCHECKED)


def _only_reordered(
    packed: NDArray[np.uint32], places: NDArray[np.int64], contexts: NDArray[np.uint32]
) -> NDArray[np.bool_]:
    """Return which marks, at ``places``, need only be exchanged with the mark before, as a vowel sign after shadda.

    ``contexts`` are the context bits of each mark and the mark before, combined.
    """
    # Each bit that is set in ``hindered`` is a reason against it. Neither of the two may compose.
    hindered = contexts & (COMPLEX | COMPOSES_BACKWARD | COMPOSES_FORWARD)
    # The code point before must be a mark. é is none, although its decomposition ends in one, and keeps its place.
    hindered |= ~packed.take(places - 1, mode=UNCHECKED) & CLASSED
    # No further mark before or after the two, which could have to change places as well, or compose.
    hindered |= packed.take(places - 2, mode=UNCHECKED) & (CHECK | CLASSED | ENDS_CLASSED)
    hindered |= packed.take(places + 1, mode=UNCHECKED) & (CHECK | CLASSED)
    is_reordered: NDArray[np.bool_] = hindered == 0
    return is_reordered


def _documents_of(places: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(np.searchsorted(starts, places, side="right") - 1) if places.size else places


def _composed_at(
    packed: NDArray[np.uint32],
    starts: NDArray[np.int64],
    marks: NDArray[np.int64],
    composites: NDArray[np.uint32],
    table: Tables,
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Replace the letters before ``marks`` by ``composites``; return ``packed`` and ``starts`` without these marks.

    A mark whose composite is 0 stays.
    """
    composing = np.flatnonzero(composites)
    if not composing.size:
        return packed, starts
    marks = marks.take(composing)
    packed = _without(packed, marks)
    # The letter of each mark in the shorter array, the same for several marks on one letter.
    letters = marks - 1 - np.arange(marks.size)
    # The last of several marks on a letter has the composite of all of them.
    last = np.flatnonzero(np.diff(letters, append=-1))
    packed[letters.take(last)] = table.packed.take(composites.take(composing.take(last)))
    return packed, starts - np.searchsorted(marks, starts)


def _fold_slowly(text: str, table: Tables, folding: FoldOptions) -> str:
    """Return a text in NFKC, case-folded and without ignorable characters; separators stay."""
    # A result may contain ignorable or cased characters, so the steps are repeated until nothing changes.
    while True:
        # NFD separates accents from their letters, so that ``_visible`` removes them.
        visible = _visible(normalized("NFD", text) if folding.marks else text, table)
        # `compatible` first, because case folding leaves compatibility forms alone. `case_folded` ends with NFKC,
        # because folding may decompose.
        folded = case_folded(compatible(visible), folding)
        if folded == text:
            return folded
        text = folded


def _visible(text: str, table: Tables) -> str:
    """Return a text without ignorable code points; ``table`` decides whether accents are among them."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4")
    ignored = np.flatnonzero((table.packed.take(points) & IGNORED) != 0)
    return str(_without(points, ignored).data, "utf-32-le", "surrogatepass") if ignored.size else text


def _fold_doubtful(
    looked_up: _LookedUp, repaired: _Repaired, table: Tables, folding: FoldOptions
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Steps 3 and 4: fold the doubtful documents anew; return ``packed`` and ``starts`` of all documents."""
    packed, starts, documents = repaired.packed, repaired.starts, repaired.doubtful_documents
    texts = [
        str(looked_up.points[first:last].data, "utf-32-le", "surrogatepass")
        for first, last in _bounds(looked_up.starts, documents)
    ]
    composed = _repair_simple(_look_up([normalized("NFC", text) for text in texts], table), table)
    slow = set(composed.doubtful_documents.tolist())
    lengths = np.diff(starts)  # with the separator behind each document
    pieces, end = [], 0
    for doubtful_row, (first, last) in enumerate(_bounds(starts, documents)):
        if doubtful_row in slow:
            text = _fold_slowly(texts[doubtful_row], table, folding)
            piece = table.packed.take(np.frombuffer(text.encode("utf-32-le", "surrogatepass"), "<u4"))
        else:
            piece = composed.packed[composed.starts[doubtful_row] : composed.starts[doubtful_row + 1] - 1]
        lengths[documents[doubtful_row]] += piece.size - (last - first)
        pieces += [packed[end:first], piece]
        end = last
    pieces.append(packed[end:])
    return np.concatenate(pieces), starts[0] + offsets_of(lengths)


def _bounds(starts: NDArray[np.int64], documents: NDArray[np.int64]) -> list[tuple[int, int]]:
    """Return starts and ends of some documents, without the separators behind them."""
    return list(zip(starts.take(documents).tolist(), (starts.take(documents + 1) - 1).tolist(), strict=True))


def _expand(folded: Folded, table: Tables) -> Folded:
    """Step 5: replace each entry with ``EXPANDS``, whose low bits are an expansion number, by several code points."""
    packed = folded.packed
    places = np.flatnonzero((packed & EXPANDS) != 0)
    numbers = packed[places] & CODE_POINT
    first, length = table.expansion_starts[numbers], table.expansion_lengths[numbers]
    # How many code points the expansions before each place add; the last value: all expansions.
    shifts = np.concatenate(([0], np.cumsum(length - 1)))
    if places.size * _CHARACTERS_PER_CHANGE < packed.size:
        ends = (first + length).tolist()
        pieces = [table.expansions[begin:end] for begin, end in zip(first.tolist(), ends, strict=True)]
        expanded = _spliced(packed, places, pieces)
    else:
        counts = np.ones(packed.size, np.int64)
        counts[places] = length
        expanded = np.repeat(packed, counts)
        expanded[ranges(places + shifts[:-1], length)] = table.expansions[ranges(first, length)]
    return _classified(expanded, folded.starts + shifts[np.searchsorted(places, folded.starts)])
