"""Unicode properties by code point as NumPy tables.

``Tables.packed`` has one 32-bit entry for each code point. The low 21 bits say what the code point becomes in
normalised text, the bits above what it is and whether neighbours may change the result:

    A         becomes a         LETTER
    U+0301    becomes itself    LETTER MARK CHECK CLASSED ENDS_CLASSED    the combining acute accent
    U+FB01    becomes f i       EXPANDS                                   the ligature; low bits: its expansion number
    U+4E2D    becomes itself    LETTER SOLO                               a Han character is a whole token
    U+00AD    is removed        IGNORED                                   the soft hyphen; low bits: a space

Where neighbours may change an entry, ``mark_repair`` reads ``Tables.context`` and ``Tables.composites``.

The tables follow Python's Unicode version. They take 10 MB and some 0.2 s, once, when the first text beyond ASCII
arrives, and as much again for each combination of further foldings. A daemon has them built at its start.
"""

import functools
import sys
import unicodedata
from collections.abc import Collection, Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.folding import DOTTED_I, FINAL_CONSONANTS, FoldOptions, folding_rounds, replacements
from streamdedup.text.runs import Int64s, UInt32s, offsets_of
from streamdedup.text.unicode_ranges import (
    APOSTROPHE_RANGES,
    FOLDED_MARKS_RANGES,
    HANGUL_BACKWARD,
    HANGUL_FORWARD,
    IGNORED_RANGES,
    SOLO_RANGES,
    Ranges,
)

# Bits of ``Tables.packed``; without LETTER and NUMBER the code point is a separator.

#: The folded code point; with ``EXPANDS`` the expansion number, which is the place in ``Tables.expansion_offsets``.
CODE_POINT = np.uint32(0x1FFFFF)
#: Invisible: removed before anything else.
IGNORED = np.uint32(1 << 21)
#: Becomes several code points.
EXPANDS = np.uint32(1 << 22)
#: A letter or a combining mark: always part of a token.
LETTER = np.uint32(1 << 24)
NUMBER = np.uint32(1 << 25)
#: A combining mark, which continues the token before it; set beside ``LETTER``.
MARK = np.uint32(1 << 26)
#: A character of a script without spaces: a token of its own.
SOLO = np.uint32(1 << 27)
#: Neighbours may change the result: the code point has ``COMPOSES_BACKWARD`` or ``COMPLEX`` in ``Tables.context``.
CHECK = np.uint32(1 << 28)
#: Has a combining class: may have to change places with a code point before it that has ``ENDS_CLASSED``.
CLASSED = np.uint32(1 << 29)
#: The decomposition ends in a code point with a combining class. One bit above ``CLASSED``: ``mark_repair`` shifts.
ENDS_CLASSED = np.uint32(1 << 30)
#: The bits from here on, one byte, are the kind of a code point.
_KIND_SHIFT = 24

# Bits of ``Tables.context``.

#: The combining class, 0 for most.
OWN_CLASS = np.uint32(0xFF)
#: Bits from here on, as many as ``OWN_CLASS`` has: the class of the last code point of the decomposition.
LAST_CLASS_SHIFT = 16
#: Composes with certain code points before it.
COMPOSES_BACKWARD = np.uint32(1 << 8)
#: The folded form depends on neighbours, and no table tells how: ``normalise`` folds the document anew.
COMPLEX = np.uint32(1 << 9)
#: Composes with certain code points after it: Hangul only, which ``Tables.composites`` lacks.
COMPOSES_FORWARD = np.uint32(1 << 24)

#: Entry of ``Tables.composites`` where the table cannot tell: the pair composes only after folding, or the folded form
#: of the composed code point depends on neighbours. No pair composes to the code point 1.
DOUBTFUL = np.uint32(1)

#: Separator of tokens in folded text.
SPACE = np.uint32(0x20)

_CODE_POINTS = 0x110000

#: First and last code points of the ranges with letters, marks and numbers: planes 0-3 and the first block of plane 14.
#: Planes 4-13 have never been used, 15 and 16 are private use.
_CANDIDATES: Final = ((0, 0x3FFFF), (0xE0000, 0xE0FFF))

#: Bits of a code point by the first letter of its category.
_CATEGORY_BITS = {"L": LETTER, "M": LETTER | MARK, "N": NUMBER}


class Tables(NamedTuple):
    """The tables; ``packed`` and ``context`` have an entry for all 0x110000 code points.

    Attributes:
        expansions: The folded forms of all expanding code points, as packed entries, concatenated.
        expansion_offsets: By expansion number; start of the folded form in ``expansions``, and last the end of all.
        composites: By pair of letter and mark, at ``letter_row[letter] + mark_column[mark]``: the composed code point,
            ``DOUBTFUL``, or 0 without a pair. Without Hangul, which has too many pairs; equal rows are stored once.
        letter_row: Row start by code point; the empty row 0 for one that begins no pair.
        mark_column: Column by code point; the empty column 0 for one that ends no pair.

    Code points beyond the end of ``letter_row`` or ``mark_column`` use the last entry, which is 0.
    """

    packed: UInt32s
    context: UInt32s
    expansions: UInt32s
    expansion_offsets: Int64s
    composites: UInt32s
    letter_row: UInt32s
    mark_column: NDArray[np.uint8]


def kind_mask(bits: np.uint32) -> np.uint8:
    """Return bits of a packed entry from ``LETTER`` on as a mask for ``kinds_of``."""
    return np.uint8(bits >> _KIND_SHIFT)


def kinds_of(packed: UInt32s) -> NDArray[np.uint8]:
    """Return the highest byte of packed entries: the bits from ``LETTER`` on."""
    return (packed >> _KIND_SHIFT).astype(np.uint8)


@functools.cache
def tables(folding: FoldOptions) -> Tables:
    """Return the tables; built at the first call."""
    characters = _characters(folding)
    packed = _category_entries(characters)
    composing = _composing_pairs(characters.foldings)
    context = _context(characters, composing)
    # Copies entries within ``packed``, so it comes before the bits about neighbours, which must not be copied.
    expansions = _write_foldings(packed, characters.foldings)
    points = np.flatnonzero(context)
    bits = context[points]
    packed[points[(bits & (COMPOSES_BACKWARD | COMPLEX)) != 0]] |= CHECK
    packed[points[(bits & OWN_CLASS) != 0]] |= CLASSED
    packed[points[((bits >> LAST_CLASS_SHIFT) & OWN_CLASS) != 0]] |= ENDS_CLASSED
    packed[[ord(character) for character in characters.ignored]] = SPACE | IGNORED
    lengths = np.array([expansion.size for expansion in expansions], np.int64)
    composites = _composites(composing, characters.foldings, packed)  # last: reads the bits about neighbours
    return Tables(packed, context, np.concatenate(expansions), offsets_of(lengths), *composites)


# The characters, and the way of each through normalisation

#: The ``_folding_steps`` by character.
_Foldings = dict[str, list[str]]
#: Composed code point, or ``DOUBTFUL``, by pair of letter and mark.
_Pairs = dict[tuple[int, int], int]


class _Characters(NamedTuple):
    """The characters of ``_CANDIDATES`` and their properties, from ``unicodedata``.

    Attributes:
        points: Ascending.
        categories: By candidate; the first letter of the Unicode category, in ASCII.
        ignored: Characters that are removed, or that fold to nothing.
        foldings: Of the characters that normalisation or folding may change.
    """

    points: UInt32s
    categories: NDArray[np.uint8]
    ignored: frozenset[str]
    foldings: _Foldings


def _characters(folding: FoldOptions) -> _Characters:
    points = np.concatenate([np.arange(first, last + 1, dtype=np.uint32) for first, last in _CANDIDATES])
    candidates = str(points.astype("<u4").data, "utf-32-le", "surrogatepass")
    # Interned, because each call returns a new text.
    categories = [sys.intern(unicodedata.category(character)) for character in candidates]
    ignored = {character for character, category in zip(candidates, categories, strict=True) if category == "Cf"}
    ignored.update(_in_ranges(IGNORED_RANGES))
    if folding.marks:
        ignored.update(c for c in _in_ranges(FOLDED_MARKS_RANGES) if unicodedata.category(c)[0] == "M")
    replaced = replacements(folding)
    changing = [c for c in candidates if unicodedata.decomposition(c) or c.casefold() != c or c in replaced]
    foldings = {c: _folding_steps(c, ignored, folding) for c in changing if c not in ignored}
    folded_away = {character for character, steps in foldings.items() if not steps[-1]}
    visible = {character: steps for character, steps in foldings.items() if steps[-1]}
    initials = np.frombuffer("".join(category[0] for category in categories).encode(), np.uint8)
    return _Characters(points, initials, frozenset(ignored | folded_away), visible)


def _in_ranges(ranges: Ranges) -> Iterator[str]:
    return (chr(point) for first, last in ranges for point in range(first, last + 1))


def _folding_steps(character: str, ignored: Collection[str], folding: FoldOptions) -> list[str]:
    """Return the NFKC form of a character, then the folded text of each round; the last is the folded form."""
    steps: list[str] = []
    for composed, folded in folding_rounds(
        character, folding, lambda text: "".join(c for c in text if c not in ignored)
    ):
        if not steps:
            steps.append(composed)  # before case folding: a neighbour may compose with this NFKC result, too
        steps.append(folded)
    return steps


# Tables.packed and Tables.expansions


def _category_entries(characters: _Characters) -> UInt32s:
    packed = np.full(_CODE_POINTS, SPACE, np.uint32)
    for letter, bits in _CATEGORY_BITS.items():
        points = characters.points[characters.categories == ord(letter)]
        packed[points] = points | bits
    for first, last in APOSTROPHE_RANGES:
        packed[first : last + 1] = SPACE
    for first, last in SOLO_RANGES:
        entries = packed[first : last + 1]  # a view
        entries[(entries & (LETTER | NUMBER) != 0) & (entries & MARK == 0)] |= SOLO
    return packed


def _write_foldings(packed: UInt32s, foldings: _Foldings) -> list[UInt32s]:
    """Write the folded form for each character into ``packed``; return the expansions."""
    folded: dict[int, UInt32s] = {
        ord(character): _without_repeated_spaces(packed[[ord(c) for c in steps[-1]]])
        for character, steps in foldings.items()
    }
    expansions: list[UInt32s] = []
    for point, entries in folded.items():
        if entries.size == 1:
            packed[point] = entries[0]
        else:
            packed[point] = np.uint32(len(expansions)) | EXPANDS
            expansions.append(entries)
    return expansions


def _without_repeated_spaces(packed: UInt32s) -> UInt32s:
    """Shorten each run of separators to one, so that an ellipsis needs no expansion."""
    repeated = (packed[1:] == SPACE) & (packed[:-1] == SPACE)
    return packed[np.concatenate(([True], ~repeated))]


# Tables.context


def _context(characters: _Characters, composing: _Pairs) -> UInt32s:
    context = np.zeros(_CODE_POINTS, np.uint32)
    for first, last in HANGUL_FORWARD:
        context[first : last + 1] |= COMPOSES_FORWARD
    for first, last in HANGUL_BACKWARD:
        context[first : last + 1] |= COMPOSES_BACKWARD
    context[[mark for _, mark in composing]] |= COMPOSES_BACKWARD
    for mark in characters.points[characters.categories == ord("M")].tolist():
        combining_class = unicodedata.combining(chr(mark))
        context[mark] |= combining_class | combining_class << LAST_CLASS_SHIFT  # most marks decompose to themselves
    # A copy, because the loop below overwrites entries of ``context``.
    own_context = {chr(point): int(context[point]) for point in np.flatnonzero(context).tolist()}
    for character, steps in characters.foldings.items():
        context[ord(character)] = _context_of(character, steps, own_context)
    return context


def _context_of(character: str, steps: list[str], own_context: dict[str, int]) -> int:
    """Return the context bits of a character that normalisation or case folding may change."""
    bits = own_context.get(character, 0)
    # A final consonant folds to a consonant and a virama. The virama only affects marks behind it: `last_class` below.
    texts = [step[:1] for step in steps] if character in FINAL_CONSONANTS else steps
    inside = [own_context.get(c, 0) for text in texts for c in text]
    if bits & OWN_CLASS or any(entry & (OWN_CLASS | COMPOSES_BACKWARD) for entry in inside):
        # A mark that folds, or a character with a mark in its folded form: no table tells what neighbours change.
        return int(bits | COMPLEX)
    # A neighbour may compose with any of the steps. So the bit is set if one step has it, and the class is the greatest
    # of all: a check too many costs only time.
    ends = [step[-1] for step in steps]
    forward = max(own_context.get(c, 0) & COMPOSES_FORWARD for c in ends)
    last_class = max(unicodedata.combining(unicodedata.normalize("NFD", c)[-1]) for c in ends)
    return int(bits | forward | last_class << LAST_CLASS_SHIFT)


# Tables.composites: pairs of a letter and a mark


def _composing_pairs(foldings: _Foldings) -> _Pairs:
    """Return the composed code point by pair of letter and mark; without Hangul."""
    composing = {(ord(DOTTED_I[0]), ord(DOTTED_I[1])): ord("i")}  # ``folding`` makes the dotted i an i
    for character in foldings:
        # Not compatibility decompositions, which begin with <, and not characters that NFC excludes from composition.
        decomposition = unicodedata.decomposition(character).split()
        if len(decomposition) == 2 and decomposition[0][0] != "<" and unicodedata.is_normalized("NFC", character):
            composing[int(decomposition[0], 16), int(decomposition[1], 16)] = ord(character)
    return composing


def _composites(composing: _Pairs, foldings: _Foldings, packed: UInt32s) -> tuple[UInt32s, UInt32s, NDArray[np.uint8]]:
    """Return the composites, the letter rows and the mark columns of ``Tables``."""
    pairs = _doubtful_pairs(composing, foldings) | composing  # a pair in both has its composed code point
    letters, row = np.unique([letter for letter, _ in pairs], return_inverse=True)
    marks, column = np.unique([mark for _, mark in pairs], return_inverse=True)
    composites = np.array(list(pairs.values()), np.uint32)
    # ``DOUBTFUL`` itself, taken as the code point 1, has neither bit.
    composites[(packed.take(composites) & (CHECK | CLASSED)) != 0] = DOUBTFUL
    matrix = np.zeros((letters.size + 1, marks.size + 1), np.uint32)  # row and column 0 stay empty
    matrix[row + 1, column + 1] = composites
    unique_rows: dict[bytes, int] = {}  # number by content of a row, in the order of the numbers; the empty row has 0
    row_numbers = np.array([unique_rows.setdefault(cells.tobytes(), len(unique_rows)) for cells in matrix])
    letter_row = np.zeros(letters[-1] + 2, np.uint32)
    letter_row[letters] = row_numbers[1:] * matrix.shape[1]
    mark_column = np.zeros(marks[-1] + 2, np.uint8)  # some 60 columns
    mark_column[marks] = np.arange(1, matrix.shape[1])
    return np.frombuffer(b"".join(unique_rows), np.uint32), letter_row, mark_column


def _doubtful_pairs(composing: _Pairs, foldings: _Foldings) -> _Pairs:
    """Return ``DOUBTFUL`` for each pair whose letter folds to a letter that composes with the mark."""
    marks: dict[int, list[int]] = {}
    for letter, mark in composing:
        marks.setdefault(letter, []).append(mark)
    doubtful: _Pairs = {}
    for character, steps in foldings.items():
        for step in steps:
            doubtful |= {(ord(character), mark): int(DOUBTFUL) for mark in marks.get(ord(step[-1]), ())}
    return doubtful
