"""Letters that look like others, and invisible characters.

A small part of what Unicode lists as confusable (UTS 39, confusables.txt): the Cyrillic and Greek letters that most
typefaces draw like Latin ones.
"""

import re
import unicodedata

_CYRILLIC = dict(zip("aceijopqsxyABCEHIJKMOPSTXY", "асеіјорԛѕхуАВСЕНІЈКМОРЅТХУ", strict=True))  # noqa: RUF001  the point
_GREEK = dict(zip("ovABEHIKMNOPTXYZ", "ονΑΒΕΗΙΚΜΝΟΡΤΧΥΖ", strict=True))  # noqa: RUF001  the same

#: Latin letter -> Cyrillic letter that looks like it.
LOOK_ALIKES = _CYRILLIC
#: Letter that looks like a Latin one -> the Latin letter.
LATIN = {**{other: latin for latin, other in _CYRILLIC.items()}, **{other: latin for latin, other in _GREEK.items()}}
#: Zero-width space, non-joiner and joiner, word joiner, byte order mark, soft hyphen.
UNSEEN = "\u200b\u200c\u200d\u2060\ufeff\u00ad"

_FOLD = str.maketrans(LATIN)
#: Letters that look like the same Latin letter in both cases: only they may be folded in a word that is Cyrillic or
#: Greek as a whole, which must stay the same word in capitals.
_FOLD_BOTH = str.maketrans(
    {other: latin for other, latin in LATIN.items() if LATIN.get(other.swapcase()) == latin.swapcase()}
)
_LATIN_LETTER = re.compile(r"[A-Za-z\u00c0-\u024f]")
_WORD = re.compile(r"\w+")


def fold_mixed(text: str) -> str:
    """Return a text with look-alikes replaced in words that also have a Latin letter."""
    return _WORD.sub(lambda word: word[0].translate(_FOLD) if _LATIN_LETTER.search(word[0]) else word[0], text)


def fold(text: str) -> str:
    """Return a text with look-alikes replaced in those words, and in other words letters alike in both cases."""
    return fold_mixed(text).translate(_FOLD_BOTH)


def with_accent(letter: str) -> str:
    """Return a letter with an acute accent, composed where Unicode has it."""
    return unicodedata.normalize("NFC", f"{letter}\u0301")
