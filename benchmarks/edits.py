"""Edits that turn a text into a copy, each at several strengths, drawn by a seed.

Words are separated by white space; of a text without white space each character is a word.
"""

import random
import re
import unicodedata
from collections.abc import Callable, Sequence
from typing import NamedTuple

#: Mean length of a run without white space from which on a text counts as written without.
_NO_SPACES = 15
_SENTENCE = re.compile(r"(?<=[.!?;\u3002\uff01\uff1f\u061f\u0964])\s*")
_PUNCTUATION = re.compile(r"[^\w\s]|_")
_VOWELS = frozenset("aeiouAEIOU")
_LETTERS = "abcdefghijklmnopqrstuvwxyz"

#: Latin letter -> Cyrillic letter that most typefaces draw alike: a small part of confusables.txt of UTS 39.
LOOK_ALIKES = dict(zip("aceijopqsxyABCEHIJKMOPSTXY", "асеіјорԛѕхуАВСЕНІЈКМОРЅТХУ", strict=True))  # noqa: RUF001  the same look
#: Zero-width space, non-joiner and joiner, word joiner, byte order mark, soft hyphen.
UNSEEN = "\u200b\u200c\u200d\u2060\ufeff\u00ad"


class Tools(NamedTuple):
    """Sources of edits: chance, and the other texts of the set."""

    chance: random.Random
    others: Sequence[str]

    def words(self, count: int) -> list[str]:
        """Return so many successive words of other texts."""
        drawn: list[str] = []
        while len(drawn) < count:
            drawn += parts_of(self.chance.choice(self.others))[0]
        return drawn[:count]


#: Makes a copy of a text at a strength.
Apply = Callable[[str, float, Tools], str]
#: Changes one word or letter.
Change = Callable[[str, Tools], str]


class Edit(NamedTuple):
    """A kind of edit: its name, its strengths, and its function."""

    name: str
    strengths: tuple[tuple[str, float], ...]
    apply: Apply


def parts_of(text: str) -> tuple[list[str], str]:
    """Return the words of a text and their separator; of a text without spaces all characters."""
    words = text.split()
    if words and sum(map(len, words)) / len(words) >= _NO_SPACES:
        return list(text), ""
    return words, " "


def in_words(change: Change) -> Apply:
    """Return an edit that changes a share of the words, each by chance."""

    def apply(text: str, share: float, tools: Tools) -> str:
        words, joint = parts_of(text)
        return joint.join(change(word, tools) if tools.chance.random() < share else word for word in words)

    return apply


def in_letters(change: Change) -> Apply:
    """Return an edit that changes a share of the letters, each by chance."""

    def apply(text: str, share: float, tools: Tools) -> str:
        return "".join(
            change(letter, tools) if letter.isalpha() and tools.chance.random() < share else letter for letter in text
        )

    return apply


def cut_end(text: str, share: float, _: Tools) -> str:
    words, joint = parts_of(text)
    return joint.join(words[: len(words) - round(share * len(words))])


def prepend(text: str, share: float, tools: Tools) -> str:
    """Begin with words of others, this share of the text's own."""
    words, joint = parts_of(text)
    return joint.join(tools.words(round(share * len(words)))) + "\n" + text


def quote(text: str, share: float, tools: Tools) -> str:
    """Quote this share of the text between as many words of other texts."""
    words, joint = parts_of(text)
    length = round(share * len(words))
    start = tools.chance.randint(0, len(words) - length)
    around = tools.words(len(words))
    middle = len(around) // 2
    return joint.join(around[:middle] + words[start : start + length] + around[middle:])


def reorder(text: str, share: float, tools: Tools) -> str:
    """Swap two neighbouring sentences (0), or shuffle all of them (1)."""
    sentences = [sentence for sentence in _SENTENCE.split(text) if sentence]
    if share == 1:
        tools.chance.shuffle(sentences)
    elif len(sentences) > 1:
        index = tools.chance.randrange(len(sentences) - 1)
        sentences[index : index + 2] = sentences[index + 1], sentences[index]
    return parts_of(text)[1].join(sentences)


def drop_words(text: str, share: float, tools: Tools) -> str:
    words, joint = parts_of(text)
    return joint.join(word for word in words if tools.chance.random() >= share)


def misspell(word: str, tools: Tools) -> str:
    """Return a word with one letter swapped with the next, dropped, doubled, or another."""
    chance = tools.chance
    index = chance.randrange(len(word))
    kind = chance.randrange(4)
    if kind == 0 and index + 1 < len(word):
        return word[:index] + word[index + 1] + word[index] + word[index + 2 :]
    middle = ("", "", word[index] * 2, chance.choice(_LETTERS))[kind]
    return word[:index] + middle + word[index + 1 :]


def look_alike(letter: str, _: Tools) -> str:
    """Return the Cyrillic letter that looks the same as a Latin one."""
    return LOOK_ALIKES.get(letter, letter)


def unseen(letter: str, tools: Tools) -> str:
    """Return a letter with an invisible character behind it."""
    return letter + tools.chance.choice(UNSEEN)


def accent(letter: str, _: Tools) -> str:
    """Return a vowel with an accent."""
    return unicodedata.normalize("NFC", f"{letter}\u0301") if letter in _VOWELS else letter


def full_width(letter: str, _: Tools) -> str:
    """Return the full-width form of a letter of ASCII."""
    return chr(ord(letter) + 0xFEE0) if letter.isascii() else letter


def no_punctuation(text: str, _share: float, _: Tools) -> str:
    """Drop all punctuation, so that separated parts become one word."""
    return _PUNCTUATION.sub("", text)


def run_together(text: str, share: float, tools: Tools) -> str:
    return re.sub(r"\s+", lambda gap: "" if tools.chance.random() < share else gap[0], text)


def _shares(*shares: float) -> tuple[tuple[str, float], ...]:
    return tuple((f"{round(100 * share)} %", share) for share in shares)


#: Every edit, in the order of the tables.
EDITS = (
    Edit("end cut off", _shares(0.1, 0.2, 0.3), cut_end),
    Edit("words of others in front", _shares(0.1, 0.25, 0.5), prepend),
    Edit("part quoted in as many words of others", _shares(1.0), quote),
    Edit("sentences reordered", (("two swapped", 0), ("all", 1)), reorder),
    Edit("words replaced", _shares(0.01, 0.02, 0.05, 0.1), in_words(lambda _, tools: tools.words(1)[0])),
    Edit("words left out", _shares(0.01, 0.02, 0.05, 0.1), drop_words),
    Edit("a typo in words", _shares(0.01, 0.02, 0.05, 0.1), in_words(misspell)),
    Edit("typos at letters", _shares(0.01, 0.02, 0.05), in_letters(misspell)),
    Edit("spaces left out", _shares(0.02, 0.1, 1.0), run_together),
    Edit("accents on vowels", _shares(0.02, 1.0), in_letters(accent)),
    Edit("Cyrillic look-alikes of letters", _shares(0.01, 0.05, 1.0), in_letters(look_alike)),
    Edit("unseen characters behind letters", _shares(1.0), in_letters(unseen)),
    Edit("full-width letters", _shares(1.0), in_letters(full_width)),
    Edit("capitals", _shares(1.0), in_words(lambda word, _: word.upper())),
    Edit("punctuation left out", (("all", 1),), no_punctuation),
    Edit("commas behind words", _shares(0.02, 1.0), in_words(lambda word, _: f"{word},")),
    Edit("lines broken behind words", _shares(0.02, 1.0), in_words(lambda word, _: f"{word}\n\t ")),
)
