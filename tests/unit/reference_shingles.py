"""Reference for `streamdedup.text.shingles`: one character at a time, without NumPy, without tables of the product.

It shares no code with the product, only the list of Han variants. Scripts without spaces are recognised by character
names instead of ranges.
"""

import functools
import sys
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from importlib import resources

MASK = 2**64 - 1

#: Default-ignorable code points besides category Cf (DerivedCoreProperties.txt, Default_Ignorable_Code_Point).
OTHER_IGNORABLE = {
    *(0x0640, 0x07FA),  # what stretches words: Arabic tatweel, N'Ko lajanyalan
    *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x2065, 0x3164, 0xFFA0),
    *range(0x180B, 0x1810),
    *range(0xFE00, 0xFE10),
    *range(0xFFF0, 0xFFF9),
    *range(0xE0000, 0xE1000),
}

#: How the names of characters begin whose scripts are written without spaces.
SOLO_NAMES = (
    "CJK UNIFIED IDEOGRAPH",
    "CJK COMPATIBILITY IDEOGRAPH",
    "IDEOGRAPHIC ITERATION MARK",
    "IDEOGRAPHIC CLOSING MARK",
    "IDEOGRAPHIC NUMBER ZERO",
    "VERTICAL IDEOGRAPHIC ITERATION MARK",
    "VERTICAL KANA REPEAT",
    "HANGZHOU NUMERAL",
    "MASU MARK",
    "HIRAGANA",
    "KATAKANA",
    "HENTAIGANA",
    "THAI",
    "LAO",
    "KHMER",
    "MYANMAR",
    "TAI LE",
    "NEW TAI LUE",
    "TAI THAM",
    "TAI VIET",
    "AHOM",
    "TANGUT",  # iteration mark and components
    "NUSHU",
    "KHITAN",
    "OLD CHINESE",
)


#: How the names of marks begin that can be folded, and words in the names of those that cannot.
FOLDED_NAMES = ("COMBINING ", "ARABIC ", "HEBREW ", "SYRIAC ")
KEPT_NAMES = {"KATAKANA-HIRAGANA", "DEVANAGARI", "GRANTHA", "GLAGOLITIC", "PERMIC", "BINDU", "MUSICAL"}


@functools.cache
def is_folded(character: str) -> bool:
    name = unicodedata.name(character, "")
    mark = unicodedata.category(character)[0] == "M"
    return mark and name.startswith(FOLDED_NAMES) and KEPT_NAMES.isdisjoint(name.split())


def visible(text: str, *, fold_marks: bool) -> str:
    seen = "".join(c for c in text if unicodedata.category(c) != "Cf" and ord(c) not in OTHER_IGNORABLE)
    if not fold_marks:
        return seen
    return "".join(c for c in unicodedata.normalize("NFD", seen) if not is_folded(c))


@functools.cache
def representatives(file: str) -> dict[int, str]:
    lines = (resources.files("streamdedup.text") / file).read_text(encoding="utf-8").splitlines()
    return {ord(variant): line[0] for line in lines if line[0] != "#" for variant in line[1:]}


#: Letters that are written as apostrophes.
APOSTROPHES = "\u02b9\u02ba\u02bb\u02bc\u02bd\u02be\u02bf\u02c8\u02ee\u0559\u07f4\u07f5\ua78b\ua78c\ua78f"
#: Letters that replace the same letter of another encoding: with cedilla for comma below, schwa, with virama.
SAME = {
    "\u0219": "\u015f",
    "\u021b": "\u0163",
    **dict.fromkeys("\u04d9\u01dd", "\u0259"),
    **dict(zip("ൺൻർൽൾൿৎ", ["ണ്", "ന്", "ര്", "ല്", "ള്", "ക്", "ত্"], strict=True)),
}
#: Letters that differ by dots, strokes or keyboards, joined letters and digits, folded with the marks.
SIMPLE = {
    **dict(zip("đħłøŧæœ", ["d", "h", "l", "o", "t", "ae", "oe"], strict=True)),
    **{c: str(int(c)) for c in map(chr, range(0x80, sys.maxunicode)) if c.isdecimal()},
    "\u0131": "i",
    **dict.fromkeys("\u06a9\u06aa", "\u0643"),
    **dict.fromkeys("\u06cc\u0649", "\u064a"),
    **dict.fromkeys("\u06c1\u06be\u06d5", "\u0647"),
    "\u06c3": "\u0629",
    "\u0671": "\u0627",
}


def separated(text: str) -> str:
    """A separator of which NFKC makes a letter, or a space and marks, is a space."""
    return "".join(
        " " if c == "\u318d" or (not is_kept(c) and unicodedata.normalize("NFKC", c).startswith(" ")) else c
        for c in unicodedata.normalize("NFC", text)
    )


def is_kept(character: str, categories: str = "LMN") -> bool:
    return unicodedata.category(character)[0] in categories and character not in APOSTROPHES


def fold(text: str, *, fold_marks: bool = False, fold_variants: bool = False, fold_look_alikes: bool = False) -> str:
    """NFKC, case folding, NFKC, without what is not to be seen, again and again until nothing changes."""
    letters = str.maketrans(SAME | (SIMPLE if fold_marks else {}))
    letters |= representatives("han_variants.txt") if fold_variants else {}
    letters |= representatives("look_alikes.txt") if fold_look_alikes else {}
    while True:
        nfkc = unicodedata.normalize("NFKC", separated(visible(text, fold_marks=fold_marks)))
        lower = nfkc.casefold().replace("i\u0307", "i")
        folded = unicodedata.normalize("NFKC", lower.translate(letters))
        if folded == text:
            return folded
        text = folded


def normalise(text: str, *, letters_only: bool = False, **folding: bool) -> str:
    kept = "LM" if letters_only else "LMN"
    return " ".join("".join(c if is_kept(c, kept) else " " for c in fold(text, **folding)).split())


@functools.cache
def stands_alone(character: str) -> bool:
    # Python knows no names of Tangut ideographs.
    tangut = 0x17000 <= ord(character) <= 0x18AFF or 0x18D00 <= ord(character) <= 0x18D7F
    return tangut or unicodedata.name(character, "").startswith(SOLO_NAMES)


def tokens(text: str, **options: bool) -> list[str]:
    found = []
    for run in normalise(text, **options).split(" "):
        after_solo = False
        for i, character in enumerate(run):
            if i > 0 and unicodedata.category(character)[0] == "M":
                found[-1] += character
                continue
            solo = stands_alone(character) and unicodedata.category(character)[0] != "M"
            if i == 0 or solo or after_solo:
                found.append(character)
            else:
                found[-1] += character
            after_solo = solo
    return found


def windows(items: Sequence[str], size: int, short_texts: str) -> list[Sequence[str]]:
    if len(items) >= size:
        return [items[i : i + size] for i in range(len(items) - size + 1)]
    return [items] if items and short_texts == "whole" else []


def shingle_texts(
    text: str,
    *,
    unit: str = "word",
    size: int = 3,
    stop_words: Iterable[str] = (),
    keep_white_space: bool = True,
    short_texts: str = "whole",
    **folding: bool,
) -> list[tuple[str, ...]]:
    """Every shingle of a text, in order and with repetitions: a tuple of tokens, or of one string of characters."""
    if unit == "char":
        characters = normalise(text, **folding)
        if not keep_white_space:
            characters = characters.replace(" ", "")
        return [(str(window),) for window in windows(characters, size, short_texts)]
    words = without_stop_words(text, stop_words, **folding)
    return [tuple(window) for window in windows(words, size, short_texts)]


def without_stop_words(text: str, stop_words: Iterable[str] = (), **options: bool) -> list[str]:
    stopped = {token for word in stop_words for token in tokens(word, **options)}
    return [token for token in tokens(text, **options) if token not in stopped]


def mix(x: int) -> int:
    y = (x ^ x >> 32) * 0x6A09E667F3BCC909 & MASK
    return y ^ y >> 29


def finish(x: int) -> int:
    y = x * 0xA54FF53A5F1D36F1 & MASK
    return ((y ^ y >> 32) * 0x510E527FADE682D1 & MASK) >> 32


def hash64(data: bytes) -> int:
    words = [int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)]
    return sum(0xBB67AE8584CAA73B**j * mix(word) for j, word in enumerate(words)) & MASK


def token_hash(token: str) -> int:
    if token.isascii():
        return hash64(token.encode())
    return hash64(token.encode("utf-16-le")) + 0x1F83D9ABFB41BD6B & MASK


def shingle_hash(shingle: tuple[str, ...], unit: str) -> int:
    """The 32-bit hash of a tuple of tokens, or of one string of characters."""
    elements = [mix(mix(ord(c))) for c in shingle[0]] if unit == "char" else [token_hash(part) for part in shingle]
    return finish(sum(0x3C6EF372FE94F82B**j * element for j, element in enumerate(elements)) & MASK)


def shingle_hashes(
    text: str, *, bag: bool = False, unit: str = "word", stop_shingles: Iterable[int] = (), **options: object
) -> list[int]:
    """The sorted, distinct hashes of one text."""
    every = [shingle_hash(shingle, unit) for shingle in shingle_texts(text, unit=unit, **options)]
    hashes = [value for value in every if value not in stop_shingles] or every
    if not bag:
        return sorted(set(hashes))
    elements = set(hashes)
    for value, count in Counter(hashes).items():
        elements |= {finish(mix((value + number * 0x9B05688C2B3E6C1F) & MASK)) for number in range(1, count)}
    return sorted(elements)
