"""Unicode properties of each code point as NumPy tables, for ``normalise``.

The tables follow the Unicode version of the running Python. They take 10 MB and some 0.2 s, once, when the first text
beyond ASCII arrives, and as much again for profiles that fold marks or variants. The daemon builds them before it is
ready (``cli.warm_up``).
"""

import functools
import unicodedata
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.hashing import offsets_of

#: Bits of a packed code point that hold the code point itself.
CODE_POINT = np.uint32(0x1FFFFF)
#: Ignorable, because invisible: removed before anything else.
IGNORED = np.uint32(1 << 21)
#: Becomes several code points; the low bits are then an index into ``Tables.first`` and ``Tables.length``.
EXPANDS = np.uint32(1 << 22)
#: A letter or a combining mark: always part of a token.
LETTER = np.uint32(1 << 24)
#: A number: part of a token unless only letters count.
NUMBER = np.uint32(1 << 25)
#: A combining mark: continues the token before it (LETTER is set as well).
MARK = np.uint32(1 << 26)
#: A character of a script without spaces: a token of its own.
SOLO = np.uint32(1 << 27)
#: The table alone may be wrong here: look at the neighbour before it.
CHECK = np.uint32(1 << 28)
#: Has a combining class: the table alone may be wrong after a code point with ``ENDS_CLASSED``.
CLASSED = np.uint32(1 << 29)
#: The decomposition ends in a code point with a combining class; twice ``CLASSED``.
ENDS_CLASSED = np.uint32(1 << 30)
#: Position of the highest byte, the kind of a code point: all bits from ``LETTER`` on.
_KIND_SHIFT = 24

#: Bits of ``Tables.context``: the combining class of this code point.
OWN_CLASS = np.uint32(0xFF)
#: This code point composes with certain code points before it.
COMPOSES_BACKWARD = np.uint32(1 << 8)
#: The folded form of this code point depends on its neighbours: only ``normalise._canonical`` is right.
COMPLEX = np.uint32(1 << 9)
#: Position of the combining class of the last code point of the decomposition, which a following mark is compared with.
LAST_CLASS_SHIFT = 16
#: This code point composes with certain code points after it (Hangul only; for the others see ``Tables.composites``).
COMPOSES_FORWARD = np.uint32(1 << 24)

#: Entry of ``Tables.composites`` of a pair that composes only after folding, or whose composed code point has a folded
#: form that depends on neighbours. No pair composes to the code point 1.
UNDECIDED = np.uint32(1)

#: The Han characters of each line are variants of one character; ``experiments.han_variants`` writes the file.
_VARIANTS: Final = Path(__file__).with_name("han_variants.txt")

#: Separator of tokens in folded text.
SPACE = np.uint32(0x20)

#: Ignorable code points outside category Cf, first and last of each range. The default-ignorable ones
#: (DerivedCoreProperties.txt): grapheme joiner, Hangul fillers, Khmer inherent vowels, Mongolian and other variation
#: selectors, reserved ranges. And two that only stretch a word: Arabic tatweel, N'Ko lajanyalan.
_IGNORED_RANGES = (
    *((0x034F, 0x034F), (0x0640, 0x0640), (0x07FA, 0x07FA), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x2065, 0x2065), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF)),
)

#: Marks that a profile may fold, first and last code point of each range: accents (Latin, Greek, Cyrillic), points and
#: vowel signs (Hebrew, Arabic, Syriac), enclosing marks. In other scripts marks distinguish words.
_FOLDED_RANGES = (
    *((0x0300, 0x036F), (0x0483, 0x0489), (0x0591, 0x05C7), (0x0610, 0x061A), (0x064B, 0x065F), (0x0670, 0x0670)),
    *((0x06D6, 0x06ED), (0x0711, 0x0711), (0x0730, 0x074A), (0x0890, 0x08FF), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF)),
    *((0x20D0, 0x20FF), (0x2DE0, 0x2DFF), (0xA66F, 0xA67D), (0xA69E, 0xA69F), (0xFB1E, 0xFB1E), (0xFE20, 0xFE2F)),
    (0x10EC0, 0x10EFF),
)

#: Scripts written without spaces, first and last code point of each range. Other
#: characters than letters, marks and numbers stay separators there.
SOLO_RANGES = (
    *((0x0E00, 0x0EFF), (0x1000, 0x109F), (0x1780, 0x17FF)),  # Thai, Lao; Myanmar; Khmer
    *((0x1950, 0x19DF), (0x1A20, 0x1AAF)),  # Tai Le, New Tai Lue; Tai Tham
    (0x3005, 0x3007),  # Han: iteration mark, closing mark, zero
    (0x3021, 0x30FF),  # Hangzhou numerals, further iteration marks, Hiragana, Katakana
    (0x31F0, 0x31FF),  # Katakana phonetic extensions
    (0x3400, 0x4DBF),  # Han extension A
    (0x4E00, 0x9FFF),  # Han
    (0xA9E0, 0xA9FF),  # Myanmar extended B
    (0xAA60, 0xAADF),  # Myanmar extended A, Tai Viet
    (0xF900, 0xFAFF),  # Han compatibility ideographs
    (0x11700, 0x1174F),  # Ahom
    (0x16FE0, 0x18DFF),  # Tangut, Nushu iteration marks, Khitan
    (0x1AFF0, 0x1B2FF),  # Kana extensions and supplement, Nushu
    (0x20000, 0x3FFFF),  # Han extensions B and later
)

#: Hangul: leading consonants and syllables compose with the vowels and trailing consonants after them.
_HANGUL_FORWARD = ((0x1100, 0x1112), (0xAC00, 0xD7A3))
_HANGUL_BACKWARD = ((0x1161, 0x1175), (0x11A8, 0x11C2))

#: All code points that may not be separators: planes 0-3 and the first block of plane 14. Planes 4-13
#: have never been used, 15 and 16 are private use.
_CANDIDATES = (*range(0x40000), *range(0xE0000, 0xE1000))

#: Bits of a code point by the first letter of its category.
_CATEGORY_BITS = {"L": int(LETTER), "M": int(LETTER | MARK), "N": int(NUMBER)}


class Tables(NamedTuple):
    """The tables; each has an entry for all 0x110000 code points unless a length is given.

    Attributes:
        packed: uint32; the folded code point and its bits.
        context: uint32; combining classes and composition, for the tests on neighbours.
        expansions: uint32, packed; the folded forms of the expanding code points, joined.
        first: int64, by expanding code point; its start in ``expansions``.
        length: int64, by expanding code point; number of its code points there.
        letter_row: uint32 (n,), the last entry for all greater code points; start of the row of ``composites`` for
            pairs that begin with this code point or its folded form. The first row is empty.
        mark_column: uint8 (n,), the last entry for all greater code points; column of ``composites`` for pairs that end
            with this code point. The first column is empty.
        composites: uint32, by the sum of row and column; the composed code point, ``UNDECIDED``, or 0 without a pair.
            Without Hangul, which has too many pairs.
    """

    packed: NDArray[np.uint32]
    context: NDArray[np.uint32]
    expansions: NDArray[np.uint32]
    first: NDArray[np.int64]
    length: NDArray[np.int64]
    letter_row: NDArray[np.uint32]
    mark_column: NDArray[np.uint8]
    composites: NDArray[np.uint32]


def kind(bits: np.uint32) -> np.uint8:
    """Return the highest byte of bits."""
    return np.uint8(bits >> _KIND_SHIFT)


def kinds_of(packed: NDArray[np.uint32]) -> NDArray[np.uint8]:
    """Return the highest byte of each code point."""
    return (packed >> _KIND_SHIFT).astype(np.uint8)


class FoldOptions(NamedTuple):
    """Differences between texts that are removed in addition to the ignorable ones.

    Attributes:
        marks: Accents and vowel signs.
        variants: Variants of a Han character: traditional, simplified, regional and new Japanese forms.
    """

    marks: bool = False
    variants: bool = False


@functools.cache
def tables(folding: FoldOptions) -> Tables:
    """Return the tables; built at the first call."""
    plain = _plain_tables(fold_marks=folding.marks)
    return _with_variants(plain) if folding.variants else plain


def _with_variants(plain: Tables) -> Tables:
    """Return tables that fold each Han character to the representative of its variants."""
    representative = np.arange(int(CODE_POINT) + 1, dtype=np.uint32)
    for line in _VARIANTS.read_text(encoding="utf-8").splitlines():
        if not line.startswith("#"):
            representative[[ord(character) for character in line]] = ord(line[0])

    def folded(packed: NDArray[np.uint32]) -> NDArray[np.uint32]:
        changed = (packed & ~CODE_POINT) | representative.take(packed & CODE_POINT)
        return np.where(packed & EXPANDS != 0, packed, changed)

    return plain._replace(packed=folded(plain.packed), expansions=folded(plain.expansions))


@functools.cache
def variants_version() -> str:
    """Return the version of the table of Han variants, for fingerprints."""
    return next(
        line.partition("version = ")[2]
        for line in _VARIANTS.read_text(encoding="utf-8").splitlines()
        if line.startswith("# version = ")
    )


@functools.cache
def _plain_tables(*, fold_marks: bool) -> Tables:
    """Return the tables without variants.

    Args:
        fold_marks: Accents and vowel signs are ignorable too.
    """
    characters = list(map(chr, _CANDIDATES))
    categories = list(map(unicodedata.category, characters))
    ignored = _ignored(characters, categories, fold_marks=fold_marks)
    changing = [c for c in characters if unicodedata.decomposition(c) or c.casefold() != c]
    forms = {c: _forms(c, ignored, fold_marks=fold_marks) for c in changing if c not in ignored}
    ignored |= {c for c, steps in forms.items() if not steps[-1]}
    forms = {c: steps for c, steps in forms.items() if steps[-1]}
    packed = _kinds(categories)
    pairs = _composing_pairs(forms)
    context = _context(characters, categories, forms, list(pairs))
    expansions = _fold_changing(packed, forms)
    packed[context & (COMPOSES_BACKWARD | COMPLEX) != 0] |= CHECK
    packed[context & OWN_CLASS != 0] |= CLASSED
    packed[context >> LAST_CLASS_SHIFT & OWN_CLASS != 0] |= ENDS_CLASSED
    packed[list(map(ord, ignored))] = SPACE | IGNORED
    length = np.array([part.size for part in expansions], np.int64)
    first = offsets_of(length)[:-1]
    return Tables(packed, context, np.concatenate(expansions), first, length, *_pair_table(pairs, forms, packed))


def _kinds(categories: list[str]) -> NDArray[np.uint32]:
    """Return the table with each code point folded to itself, and the bits of its category and script."""
    packed = np.full(0x110000, SPACE, np.uint32)
    kinds = np.array([_CATEGORY_BITS.get(category[0], 0) for category in categories], np.uint32)
    points = np.array(_CANDIDATES, np.uint32)[kinds != 0]
    packed[points] = points | kinds[kinds != 0]
    for first, last in SOLO_RANGES:
        block = packed[first : last + 1]
        block[(block & (LETTER | NUMBER) != 0) & (block & MARK == 0)] |= SOLO
    return packed


def _ignored(characters: list[str], categories: list[str], *, fold_marks: bool) -> frozenset[str]:
    """Return the ignorable characters: all format characters, and those of ``_IGNORED_RANGES``."""
    ignored = {c for c, category in zip(characters, categories, strict=True) if category == "Cf"}
    ignored.update(chr(c) for first, last in _IGNORED_RANGES for c in range(first, last + 1))
    if fold_marks:
        marks = (chr(c) for first, last in _FOLDED_RANGES for c in range(first, last + 1))
        ignored.update(c for c in marks if unicodedata.category(c)[0] == "M")
    return frozenset(ignored)


def _forms(character: str, ignored: frozenset[str], *, fold_marks: bool) -> list[str]:
    """Return the results of each NFKC of a character on the way to its fixed point; the last is the fixed point."""
    forms: list[str] = []
    text = character
    while True:
        parts = unicodedata.normalize("NFD", text) if fold_marks else text
        first = unicodedata.normalize("NFKC", "".join(c for c in parts if c not in ignored))
        folded = unicodedata.normalize("NFKC", first.casefold())
        if forms and folded == text:
            return forms
        forms += [first, folded] if not forms else [folded]
        text = folded


def _fold_changing(packed: NDArray[np.uint32], forms: dict[str, list[str]]) -> list[NDArray[np.uint32]]:
    """Write the folded form of each character into ``packed``; return the expansions of those that become several."""
    entries: dict[int, NDArray[np.uint32]] = {
        ord(character): _without_repeated_spaces(packed[[ord(c) for c in steps[-1]]])
        for character, steps in forms.items()
    }
    expansions: list[NDArray[np.uint32]] = []
    for point, entry in entries.items():
        if entry.size == 1:
            packed[point] = entry[0]
        else:
            packed[point] = np.uint32(len(expansions)) | EXPANDS
            expansions.append(entry)
    return expansions


def _without_repeated_spaces(packed: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Shorten runs of separators to one, so that an ellipsis needs no expansion."""
    repeated = (packed[1:] == SPACE) & (packed[:-1] == SPACE)
    return packed[np.concatenate(([True], ~repeated))]


def _composing_pairs(forms: dict[str, list[str]]) -> dict[tuple[int, int], int]:
    """Return the pairs of code points that NFC composes, each with the composed one; without Hangul."""
    pairs = {}
    for character in forms:
        decomposition = unicodedata.decomposition(character).split()
        if len(decomposition) == 2 and decomposition[0][0] != "<" and unicodedata.is_normalized("NFC", character):
            pairs[int(decomposition[0], 16), int(decomposition[1], 16)] = ord(character)
    return pairs


def _pair_table(
    pairs: dict[tuple[int, int], int], forms: dict[str, list[str]], packed: NDArray[np.uint32]
) -> tuple[NDArray[np.uint32], NDArray[np.uint8], NDArray[np.uint32]]:
    """Return ``letter_row``, ``mark_column`` and ``composites`` of `Tables`; equal rows are stored once."""
    every = _with_forms(pairs, forms)
    letters, letter = np.unique([first for first, _ in every], return_inverse=True)
    marks, mark = np.unique([second for _, second in every], return_inverse=True)
    values = np.array(list(every.values()), np.uint32)
    values[(packed.take(values) & (CHECK | CLASSED)) != 0] = UNDECIDED
    matrix = np.zeros((letters.size + 1, marks.size + 1), np.uint32)
    matrix[letter + 1, mark + 1] = values
    rows: dict[bytes, int] = {}
    numbers = np.array([rows.setdefault(row.tobytes(), len(rows)) for row in matrix])
    letter_row = np.zeros(letters[-1] + 2, np.uint32)
    letter_row[letters] = numbers[1:] * matrix.shape[1]
    mark_column = np.zeros(marks[-1] + 2, np.uint8)
    mark_column[marks] = np.arange(1, matrix.shape[1])
    return letter_row, mark_column, np.frombuffer(b"".join(rows), np.uint32)


def _with_forms(pairs: dict[tuple[int, int], int], forms: dict[str, list[str]]) -> dict[tuple[int, int], int]:
    """Return the pairs with their composed code points, and those of characters that fold to the first of a pair."""
    seconds: dict[int, list[int]] = {}
    for first, second in pairs:
        seconds.setdefault(first, []).append(second)
    folded = (
        (ord(character), second)
        for character, steps in forms.items()
        for step in steps
        for second in seconds.get(ord(step[-1]), ())
    )
    return dict.fromkeys(folded, int(UNDECIDED)) | pairs


def _context(
    characters: list[str], categories: list[str], forms: dict[str, list[str]], pairs: list[tuple[int, int]]
) -> NDArray[np.uint32]:
    """Return ``Tables.context``."""
    context = np.zeros(0x110000, np.uint32)
    for first, last in _HANGUL_FORWARD:
        context[first : last + 1] |= COMPOSES_FORWARD
    for first, last in _HANGUL_BACKWARD:
        context[first : last + 1] |= COMPOSES_BACKWARD
    context[[second for _, second in pairs]] |= COMPOSES_BACKWARD
    for character, category in zip(characters, categories, strict=True):
        if category[0] == "M":
            own_class = unicodedata.combining(character)
            context[ord(character)] |= own_class | own_class << LAST_CLASS_SHIFT
    stable = context.copy()
    for character, steps in forms.items():
        context[ord(character)] = _context_of(character, steps, stable)
    return context


def _context_of(character: str, steps: list[str], stable: NDArray[np.uint32]) -> np.uint32:
    """Return the context bits of a character that normalisation or case folding may change."""
    inside = stable[[ord(c) for step in steps for c in step]]
    own = stable[ord(character)]
    if np.any(inside & (OWN_CLASS | COMPOSES_BACKWARD)) or own & OWN_CLASS:
        return np.uint32(own | COMPLEX)
    ends = [step[-1] for step in steps]
    forward = np.bitwise_or.reduce(stable[[ord(c) for c in ends]]) & COMPOSES_FORWARD
    last_class = max(unicodedata.combining(unicodedata.normalize("NFD", c)[-1]) for c in ends)
    return np.uint32(own | forward | last_class << LAST_CLASS_SHIFT)
