"""What Unicode says about each code point, as NumPy tables: the part of `text` for texts beyond ASCII.

Normalising code point by code point with a table is many times faster than `unicodedata.normalize`, but right only
where neighbours do not matter. Unicode Standard Annex 15 (section 9, "Detecting Normalization Forms") says where that
is: a text is in normal form when no code point is excluded from the form, combining classes never decrease, and
nothing composes. So `fold` maps by table, tests those conditions, and sends only the documents that fail them through
`_canonical`, which is slow and always right. Both give the same result; nobody can tell from it which one ran.

The tables follow the Unicode version of the running Python. They take 9 MB and about 0.1 s, once, when the first text
beyond ASCII arrives. Nothing here may depend on what else is in a batch.
"""

import functools
import itertools
import unicodedata
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.shingle_hashes import offsets_of, ranges

#: Bits of a packed code point that hold the code point itself.
CODE_POINT = np.uint32(0x1FFFFF)
#: A letter or a combining mark: always part of a token.
LETTER = np.uint32(1 << 21)
#: A number: part of a token unless only letters count.
NUMBER = np.uint32(1 << 22)
#: A combining mark: continues the token before it (LETTER is set as well).
MARK = np.uint32(1 << 23)
#: A character of a script without spaces: a token of its own.
SOLO = np.uint32(1 << 24)
#: Not to be seen in the text: removed before anything else.
_IGNORED = np.uint32(1 << 25)
#: Becomes several code points; the low bits are then an index into `_Tables.first` and `_Tables.length`.
_EXPANDS = np.uint32(1 << 26)
#: The table alone may be wrong here: look at the neighbour before it.
_CHECK = np.uint32(1 << 27)

#: Bits of `_Tables.context`: the combining class of this code point.
_OWN_CLASS = np.uint32(0xFF)
#: This code point composes with certain code points before it.
_COMPOSES_BACKWARD = np.uint32(1 << 8)
#: Only `_canonical` knows what this code point becomes.
_COMPLEX = np.uint32(1 << 9)
#: Where the combining class that a following mark meets starts.
_LAST_CLASS_SHIFT = 16
#: This code point composes with certain code points after it (Hangul only; for the others see `_Tables.pairs`).
_COMPOSES_FORWARD = np.uint32(1 << 24)

#: What separates tokens in folded text.
SPACE = np.uint32(0x20)

#: Default-ignorable code points (DerivedCoreProperties.txt) that are not of category Cf, first and last of each range:
#: grapheme joiner, Hangul fillers, Khmer inherent vowels, Mongolian and other variation selectors, reserved ranges.
_IGNORED_RANGES = (
    *((0x034F, 0x034F), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F), (0x2065, 0x2065)),
    *((0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF)),
)

#: Scripts written without spaces, first and last code point of each range. What is no letter, mark or number there
#: stays a separator.
_SOLO_RANGES = (
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

#: All code points that can be something else than a separator: planes 0-3 and the first block of plane 14. Planes 4-13
#: have never been used, 15 and 16 are private use.
_CANDIDATES = (*range(0x40000), *range(0xE0000, 0xE1000))

#: What a category, by its first letter, makes of a code point.
_CATEGORY_BITS = {"L": int(LETTER), "M": int(LETTER | MARK), "N": int(NUMBER)}


class _Tables(NamedTuple):
    """The tables, each over all 0x110000 code points unless said otherwise.

    Attributes:
        packed: uint32; the folded code point and its bits.
        context: uint32; what the tests on neighbours need.
        expansions: uint32, packed; what the expanding code points become, one after the other.
        first: int64, by expanding code point; where in `expansions` it starts.
        length: int64, by expanding code point; how many code points it becomes.
        pairs: uint64 (n,), ascending; pairs of code points, the second of which composes with what the first becomes
            (Hangul apart, which has too many).
    """

    packed: NDArray[np.uint32]
    context: NDArray[np.uint32]
    expansions: NDArray[np.uint32]
    first: NDArray[np.int64]
    length: NDArray[np.int64]
    pairs: NDArray[np.uint64]


class Folded(NamedTuple):
    """Documents after normalisation, all in one array, a separator before each and one at the end.

    Attributes:
        packed: uint32 (n_code_points,); code point and bits; separators are SPACE without bits.
        starts: int64 (n_docs + 1,); where each document starts; the last entry is the length of `packed`.
        bits: All bits that occur in `packed`.
    """

    packed: NDArray[np.uint32]
    starts: NDArray[np.int64]
    bits: int


def fold(texts: Sequence[str]) -> Folded:
    """Normalise and classify documents.

    Args:
        texts: At least one text; any code points, lone surrogates and NUL included.
    """
    points, starts = _concatenate(texts)
    packed = tables().packed.take(points)
    bits = int(np.bitwise_or.reduce(packed))
    if bits & _IGNORED:
        visible = np.flatnonzero((packed & _IGNORED) == 0)
        starts = np.searchsorted(visible, starts)
        packed, points = packed.take(visible), points.take(visible)
    if bits & _CHECK:
        doubtful = _context_matters(packed, points, starts)
        if doubtful.size:
            packed, starts = _replace(packed, points, starts, doubtful)
            bits = int(np.bitwise_or.reduce(packed))
    return _expand(packed, starts, bits)


def _canonical(text: str) -> str:
    """Return a text without ignorable characters in NFKC and case-folded, to a fixed point; separators stay."""
    while True:
        folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
        if folded == text:
            return folded
        text = folded


def _replace(
    packed: NDArray[np.uint32], points: NDArray[np.uint32], starts: NDArray[np.int64], documents: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Put some documents' canonical form in their place; return the new `packed` and `starts`."""
    pieces, end = [], 0
    lengths = np.diff(starts)
    for document in documents.tolist():
        first, last = int(starts[document]), int(starts[document + 1]) - 1
        text = str(points[first:last].data, "utf-32-le", "surrogatepass")
        piece = tables().packed.take(np.frombuffer(_canonical(text).encode("utf-32-le", "surrogatepass"), "<u4"))
        lengths[document] += piece.size - (last - first)
        pieces += [packed[end:first], piece]
        end = last
    pieces.append(packed[end:])
    return np.concatenate(pieces), starts[0] + offsets_of(lengths)


def _concatenate(texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the code points of all texts, a line feed before each and after the last, and where each text starts."""
    joined = "\n".join(["", *texts, ""])
    starts = np.fromiter(itertools.accumulate((len(text) + 1 for text in texts), initial=1), np.int64, len(texts) + 1)
    return np.frombuffer(joined.encode("utf-32-le", "surrogatepass"), "<u4"), starts


def _context_matters(
    packed: NDArray[np.uint32], points: NDArray[np.uint32], starts: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the documents in which the table alone may be wrong, ascending.

    A mark is reordered when its combining class is below that of what it follows. It may compose when it makes a pair
    with what it follows, or follows another mark, so that it could reach over it.
    """
    at = np.flatnonzero((packed & _CHECK) != 0)
    table = tables()
    after, here = points.take(at - 1), points.take(at)
    before, context = table.context.take(after), table.context.take(here)
    own_class = context & _OWN_CLASS
    doubtful = (context & _COMPLEX) != 0
    doubtful |= (own_class != 0) & (before >> _LAST_CLASS_SHIFT & _OWN_CLASS > own_class)
    backward = np.flatnonzero((context & _COMPOSES_BACKWARD) != 0)
    if backward.size:
        before, keys = before.take(backward), _pair_keys(after.take(backward), here.take(backward))
        composes = table.pairs.take(np.searchsorted(table.pairs, keys), mode="clip") == keys
        doubtful[backward] |= composes | ((before & (_OWN_CLASS | _COMPOSES_FORWARD)) != 0)
    return np.unique(np.searchsorted(starts, at[doubtful], side="right") - 1)


def _pair_keys(first: NDArray[np.uint32], second: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return one number for each pair of code points."""
    return (first.astype(np.uint64) << np.uint64(32)) | second


def _expand(packed: NDArray[np.uint32], starts: NDArray[np.int64], bits: int) -> Folded:
    """Put the code points that become several in their place."""
    if not bits & _EXPANDS:
        return Folded(packed, starts, bits)
    table = tables()
    at = np.flatnonzero(packed & _EXPANDS)
    which = packed[at] & CODE_POINT
    first, length = table.first[which], table.length[which]
    counts = np.ones(packed.size, np.int64)
    counts[at] = length
    grown = np.repeat(packed, counts)
    added = np.concatenate(([0], np.cumsum(length - 1)))
    targets = ranges(at + added[:-1], length)
    grown[targets] = table.expansions[ranges(first, length)]
    starts = starts + added[np.searchsorted(at, starts)]
    return Folded(grown, starts, int(np.bitwise_or.reduce(grown)))


@functools.cache
def tables() -> _Tables:
    """Return the tables; built at the first call."""
    characters = list(map(chr, _CANDIDATES))
    categories = list(map(unicodedata.category, characters))
    ignored = _ignored(characters, categories)
    changing = [c for c in characters if unicodedata.decomposition(c) or c.casefold() != c]
    forms = {c: _forms(c) for c in changing if c not in ignored}
    packed = _kinds(categories)
    pairs = _composing_pairs(forms)
    context = _context(characters, categories, forms, pairs)
    expansions = _fold_changing(packed, forms)
    packed[context & (_OWN_CLASS | _COMPOSES_BACKWARD | _COMPLEX) != 0] |= _CHECK
    packed[list(map(ord, ignored))] = SPACE | _IGNORED
    length = np.array([part.size for part in expansions], np.int64)
    flat = np.concatenate(expansions)
    return _Tables(packed, context, flat, offsets_of(length)[:-1], length, _pairs_with_forms(pairs, forms))


def _kinds(categories: list[str]) -> NDArray[np.uint32]:
    """Return the table of code points that become themselves, with what their category and script say."""
    packed = np.full(0x110000, SPACE, np.uint32)
    kinds = np.array([_CATEGORY_BITS.get(category[0], 0) for category in categories], np.uint32)
    points = np.array(_CANDIDATES, np.uint32)[kinds != 0]
    packed[points] = points | kinds[kinds != 0]
    for first, last in _SOLO_RANGES:
        block = packed[first : last + 1]
        block[(block & (LETTER | NUMBER) != 0) & (block & MARK == 0)] |= SOLO
    return packed


def _ignored(characters: list[str], categories: list[str]) -> set[str]:
    """Return the characters that are not to be seen: all format characters and the other default-ignorable ones."""
    formats = {c for c, category in zip(characters, categories, strict=True) if category == "Cf"}
    return formats | {chr(c) for first, last in _IGNORED_RANGES for c in range(first, last + 1)}


def _forms(character: str) -> list[str]:
    """Return what a character becomes by each NFKC on the way to its fixed point; the last is the fixed point."""
    forms = [unicodedata.normalize("NFKC", character)]
    while True:
        folded = unicodedata.normalize("NFKC", forms[-1].casefold())
        if len(forms) > 1 and folded == forms[-1]:
            return forms
        forms.append(folded)


def _fold_changing(packed: NDArray[np.uint32], forms: dict[str, list[str]]) -> list[NDArray[np.uint32]]:
    """Enter what each character folds to; return the expansions of those that become several."""
    entries: dict[int, NDArray[np.uint32]] = {
        ord(character): _without_repeated_spaces(packed[[ord(c) for c in steps[-1]]])
        for character, steps in forms.items()
    }
    expansions: list[NDArray[np.uint32]] = []
    for point, entry in entries.items():
        if entry.size == 1:
            packed[point] = entry[0]
        else:
            packed[point] = np.uint32(len(expansions)) | _EXPANDS
            expansions.append(entry)
    return expansions


def _without_repeated_spaces(packed: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Shorten runs of separators to one, so that an ellipsis needs no expansion."""
    repeated = (packed[1:] == SPACE) & (packed[:-1] == SPACE)
    return packed[np.concatenate(([True], ~repeated))]


def _composing_pairs(forms: dict[str, list[str]]) -> list[tuple[int, int]]:
    """Return all pairs of code points that NFC makes into one, Hangul apart."""
    pairs = []
    for character in forms:
        decomposition = unicodedata.decomposition(character).split()
        if len(decomposition) == 2 and decomposition[0][0] != "<" and unicodedata.is_normalized("NFC", character):
            pairs.append((int(decomposition[0], 16), int(decomposition[1], 16)))
    return pairs


def _pairs_with_forms(pairs: list[tuple[int, int]], forms: dict[str, list[str]]) -> NDArray[np.uint64]:
    """Return the keys of all pairs, also with the characters that become the first of a pair on their way."""
    seconds: dict[int, list[int]] = {}
    for first, second in pairs:
        seconds.setdefault(first, []).append(second)
    found = set(pairs)
    for character, steps in forms.items():
        for step in steps:
            found.update((ord(character), second) for second in seconds.get(ord(step[-1]), ()))
    both = np.array(sorted(found), np.uint32)
    return _pair_keys(both[:, 0], both[:, 1])


def _context(
    characters: list[str], categories: list[str], forms: dict[str, list[str]], pairs: list[tuple[int, int]]
) -> NDArray[np.uint32]:
    """Return the table of what the tests on neighbours need (see `_Tables.context`)."""
    context = np.zeros(0x110000, np.uint32)
    for first, last in _HANGUL_FORWARD:
        context[first : last + 1] |= _COMPOSES_FORWARD
    for first, last in _HANGUL_BACKWARD:
        context[first : last + 1] |= _COMPOSES_BACKWARD
    context[[second for _, second in pairs]] |= _COMPOSES_BACKWARD
    for character, category in zip(characters, categories, strict=True):
        if category[0] == "M":
            own_class = unicodedata.combining(character)
            context[ord(character)] |= own_class | own_class << _LAST_CLASS_SHIFT
    stable = context.copy()
    for character, steps in forms.items():
        context[ord(character)] = _context_of(character, steps, stable)
    return context


def _context_of(character: str, steps: list[str], stable: NDArray[np.uint32]) -> np.uint32:
    """Return the context bits of a character that normalisation or case folding may change."""
    inside = stable[[ord(c) for step in steps for c in step]]
    own = stable[ord(character)]
    if np.any(inside & (_OWN_CLASS | _COMPOSES_BACKWARD)) or own & _OWN_CLASS:
        return np.uint32(own | _COMPLEX)
    ends = [step[-1] for step in steps]
    forward = np.bitwise_or.reduce(stable[[ord(c) for c in ends]]) & _COMPOSES_FORWARD
    last_class = max(unicodedata.combining(unicodedata.normalize("NFD", c)[-1]) for c in ends)
    return np.uint32(own | forward | last_class << _LAST_CLASS_SHIFT)
