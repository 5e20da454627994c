"""Repairs code points folded by table where their neighbours change the result. Called by `normalise`.

Unicode Standard Annex 15 (section 9, "Detecting Normalization Forms") gives the conditions for a text in normal form:
no code point is excluded from the form, combining classes never decrease, except to 0, and nothing composes. The bits
of `unicode_tables` tell at which places to test them. There ``repair`` exchanges marks and composes letters with marks
in the arrays; a document with a case that is not as simple is left in doubt.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.runs import UNCHECKED, Int64s, Mask, UInt32s, without
from streamdedup.text.unicode_tables import (
    CHECK,
    CLASSED,
    COMPLEX,
    COMPOSES_BACKWARD,
    COMPOSES_FORWARD,
    DOUBTFUL,
    ENDS_CLASSED,
    LAST_CLASS_SHIFT,
    OWN_CLASS,
    Tables,
    kind_mask,
)

#: Steps, each of which composes one more mark with each letter after the first. Only i composes with more than three.
_LATER_MARKS = 4


class Repaired(NamedTuple):
    """Documents after the repair; in ``doubtful_documents``, ascending, ``packed`` may still be wrong.

    Without ``is_composed`` no code point was removed, and marks were exchanged at most.
    """

    packed: UInt32s
    starts: Int64s
    doubtful_documents: Int64s
    is_composed: bool = False


def _places_to_check(kinds: NDArray[np.uint8]) -> Int64s:
    """Return the places, ascending, at which neighbours may change the result."""
    # A place has CHECK, or has CLASSED behind a code point with ENDS_CLASSED: the bit above CLASSED, hence the shift.
    reasons = kinds[:-1] >> 1
    reasons &= kind_mask(CLASSED)
    reasons |= kind_mask(CHECK)
    reasons &= kinds[1:]
    return np.flatnonzero(reasons != 0) + 1


def repair(packed: UInt32s, starts: Int64s, kinds: NDArray[np.uint8], points: UInt32s, table: Tables) -> Repaired:
    """Exchange marks in the wrong order, in place, in ``packed``; compose letters with their marks.

    ``packed``, ``starts`` and ``kinds`` are those of `normalise.Folded`, ``points`` the code points of the texts.
    """
    places = _places_to_check(kinds)
    if not places.size:
        return Repaired(packed, starts, doubtful_documents=places)
    previous, current = points.take(places - 1, mode=UNCHECKED), points.take(places, mode=UNCHECKED)
    previous_context = table.context.take(previous, mode=UNCHECKED)
    context = table.context.take(current, mode=UNCHECKED)
    is_doubtful = _exchange_marks(packed, places, previous_context, context)
    if not int(np.bitwise_or.reduce(context)) & (COMPLEX | COMPOSES_BACKWARD):  # many batches need no composition
        return Repaired(packed, starts, _documents_of(places[is_doubtful], starts))
    is_doubtful |= (context & COMPLEX) != 0
    backward = np.flatnonzero((context & COMPOSES_BACKWARD) != 0)
    marks, mark_points = places.take(backward), current.take(backward)
    letters, letter_context = previous.take(backward), previous_context.take(backward)
    composites, is_doubtful_mark = _compose_with_previous(letters, letter_context, mark_points, table)
    _compose_later_marks(composites, is_doubtful_mark, marks, mark_points, table)
    is_doubtful[backward] |= is_doubtful_mark
    documents = _documents_of(places[is_doubtful], starts)
    packed, starts = _composed_at(packed, starts, marks, composites, table)
    return Repaired(packed, starts, documents, is_composed=bool(composites.any()))


def _exchange_marks(packed: UInt32s, places: Int64s, previous_context: UInt32s, context: UInt32s) -> Mask:
    """Exchange two marks in the wrong order, in place, where that suffices; return a mask of the others."""
    own_class = context & OWN_CLASS
    is_misplaced = ((previous_context >> LAST_CLASS_SHIFT) & OWN_CLASS) > own_class
    is_misplaced &= own_class != 0  # a mark of class 0 never moves
    misplaced = np.flatnonzero(is_misplaced)
    if misplaced.size:
        contexts = previous_context.take(misplaced, mode=UNCHECKED) | context.take(misplaced, mode=UNCHECKED)
        exchanged = misplaced.take(np.flatnonzero(_only_reordered(packed, places.take(misplaced), contexts)))
        moved = places.take(exchanged)
        packed[moved - 1], packed[moved] = packed[moved], packed[moved - 1]
        is_misplaced[exchanged] = False
    return is_misplaced


def _compose_with_previous(
    letters: UInt32s, letter_context: UInt32s, mark_points: UInt32s, table: Tables
) -> tuple[UInt32s, Mask]:
    """Return the code point that each mark composes with the code point before it, or 0; and a mask of doubtful marks.

    A doubtful mark may compose, but the table of pairs cannot tell to which code point.
    """
    entries = _entries(letters, mark_points, table)
    # A letter has no class; this one neither composes backward itself nor changes by its neighbours.
    is_plain_letter = (letter_context & (OWN_CLASS | COMPOSES_BACKWARD | COMPLEX)) == 0
    composes = (entries > DOUBTFUL) & is_plain_letter
    # Doubtful: a pair that does not compose here; a mark after another mark, which has a class, because it may compose
    # with a letter before both; a mark after Hangul (only Hangul composes forward), which the table of pairs lacks.
    is_after_mark_or_hangul = (letter_context & (OWN_CLASS | COMPOSES_FORWARD)) != 0
    return np.where(composes, entries, 0), ((entries != 0) | is_after_mark_or_hangul) & ~composes


def _compose_later_marks(
    composites: UInt32s, is_doubtful_mark: Mask, marks: Int64s, mark_points: UInt32s, table: Tables
) -> None:
    """Correct ``composites`` and ``is_doubtful_mark``, in place, for marks directly after a composing mark.

    Before such a mark is the composed letter: their pair alone decides. Marks that are not reached stay doubtful.
    """
    next_is_adjacent = np.diff(marks, append=-1) == 1  # not behind the last
    composing = np.flatnonzero((composites != 0) & next_is_adjacent)
    for _ in range(_LATER_MARKS):
        if not composing.size:
            return
        second = composing + 1
        entries = _entries(composites.take(composing), mark_points.take(second), table)
        composes_again = entries > DOUBTFUL
        composites[second] = np.where(composes_again, entries, 0)
        is_doubtful_mark[second] = entries == DOUBTFUL
        composing = second[composes_again & next_is_adjacent.take(second)]


def _entries(letters: UInt32s, marks: UInt32s, table: Tables) -> UInt32s:
    """Return the entry of each pair of a letter and a mark in ``Tables.composites``."""
    places = table.letter_row.take(letters, mode="clip") + table.mark_column.take(marks, mode="clip")
    return table.composites.take(places, mode=UNCHECKED)


def _only_reordered(packed: UInt32s, places: Int64s, contexts: UInt32s) -> Mask:
    """Return which marks, at ``places``, need only be exchanged with the mark before, as a vowel sign after shadda.

    ``contexts`` are the context bits of each mark and the mark before, combined.
    """
    # Each set bit is a reason against the exchange. Neither of the two may compose.
    hindered = contexts & (COMPLEX | COMPOSES_BACKWARD | COMPOSES_FORWARD)
    # The code point before must be a mark. é is none, although its decomposition ends in one, and keeps its place.
    hindered |= ~packed.take(places - 1, mode=UNCHECKED) & CLASSED
    # No further mark before or after the two, which could have to change places as well, or compose.
    hindered |= packed.take(places - 2, mode=UNCHECKED) & (CHECK | CLASSED | ENDS_CLASSED)
    hindered |= packed.take(places + 1, mode=UNCHECKED) & (CHECK | CLASSED)
    is_reordered: Mask = hindered == 0
    return is_reordered


def _documents_of(places: Int64s, starts: Int64s) -> Int64s:
    return np.unique(np.searchsorted(starts, places, side="right") - 1) if places.size else places


def _composed_at(
    packed: UInt32s, starts: Int64s, marks: Int64s, composites: UInt32s, table: Tables
) -> tuple[UInt32s, Int64s]:
    """Replace the letters before ``marks`` by ``composites``; return ``packed`` and ``starts`` without these marks.

    A mark whose composite is 0 stays.
    """
    composing = np.flatnonzero(composites)
    if not composing.size:
        return packed, starts
    marks = marks.take(composing)
    packed = without(packed, marks)
    # The letter of each mark in the shorter array, the same for several marks on one letter.
    letters = marks - 1 - np.arange(marks.size)
    # The last of several marks on a letter has the composite of all of them.
    last = np.flatnonzero(np.diff(letters, append=-1))  # -1 is no place: a difference behind the last
    packed[letters.take(last)] = table.packed.take(composites.take(composing.take(last)))
    return packed, starts - np.searchsorted(marks, starts)
