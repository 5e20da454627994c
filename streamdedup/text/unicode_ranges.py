"""Ranges of code points with properties that ``unicodedata`` lacks. Read by ``unicode_tables`` and ``alignment``.

A change also touches docs/format.md and tests/unit/reference_shingles.py, and needs a new ``shingles.ALGORITHM``.
"""

from typing import Final

#: First and last code point of each range; below, ``*(...)`` only puts several ranges on a line.
Ranges = tuple[tuple[int, int], ...]

#: Ignorable code points outside category Cf. They are the default-ignorable ones (DerivedCoreProperties.txt: grapheme
#: joiner, Hangul fillers, Khmer inherent vowels, Mongolian and other variation selectors, reserved ranges), and two
#: that only stretch a word: Arabic tatweel, N'Ko lajanyalan.
IGNORED_RANGES: Final[Ranges] = (
    *((0x034F, 0x034F), (0x0640, 0x0640), (0x07FA, 0x07FA), (0x115F, 0x1160), (0x17B4, 0x17B5), (0x180B, 0x180F)),
    *((0x2065, 0x2065), (0x3164, 0x3164), (0xFE00, 0xFE0F), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF)),
)

#: Ranges whose marks (category M) a profile may fold: accents (Latin, Greek, Cyrillic), points and vowel signs (Hebrew,
#: Arabic, Syriac), enclosing marks. In other scripts marks distinguish words.
FOLDED_MARKS_RANGES: Final[Ranges] = (
    *((0x0300, 0x036F), (0x0483, 0x0489), (0x0591, 0x05C7), (0x0610, 0x061A), (0x064B, 0x065F), (0x0670, 0x0670)),
    *((0x06D6, 0x06ED), (0x0711, 0x0711), (0x0730, 0x074A), (0x0890, 0x08FF), (0x1AB0, 0x1AFF), (0x1DC0, 0x1DFF)),
    *((0x20D0, 0x20FF), (0x2DE0, 0x2DFF), (0xA66F, 0xA67D), (0xA69E, 0xA69F), (0xFB1E, 0xFB1E), (0xFE20, 0xFE2F)),
    (0x10EC0, 0x10EFF),
)

#: Modifier letters that are written as apostrophes (Ukrainian, Uzbek, Hawaiian, N'Ko, transliterations, saltillo), and
#: a dot between syllables of transliterated Chinese. All of them separate tokens, as punctuation does.
APOSTROPHE_RANGES: Final[Ranges] = (
    *((0x02B9, 0x02BF), (0x02C8, 0x02C8), (0x02EE, 0x02EE), (0x0559, 0x0559), (0x07F4, 0x07F5), (0xA78B, 0xA78C)),
    (0xA78F, 0xA78F),
)

#: Scripts written without spaces, where each letter or number, with its marks, is a solo token; others separate.
SOLO_RANGES: Final[Ranges] = (
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

#: Hangul that composes with the next character (forward: leading consonants, syllables) or with the one before
#: (backward: vowels, trailing consonants).
HANGUL_FORWARD: Final[Ranges] = ((0x1100, 0x1112), (0xAC00, 0xD7A3))
HANGUL_BACKWARD: Final[Ranges] = ((0x1161, 0x1175), (0x11A8, 0x11C2))
