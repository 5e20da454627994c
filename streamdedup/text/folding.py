"""Folding of texts with ``unicodedata``: slow, for the tables of ``unicode_tables``, and where these do not suffice.

A change touches tests/unit/reference_shingles.py, docs/text.md, docs/format.md, and needs a new ``shingles.ALGORITHM``.
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, Literal, NamedTuple

#: Result of ``casefold`` for U+0130, the capital dotted I of Turkish; it becomes i.
DOTTED_I: Final = "i\u0307"
#: An i with all its dots: if each round of folding removed one, a long run would take quadratic time.
_DOTTED_I_RUN: Final = re.compile(f"{DOTTED_I}+")

#: The characters of each line fold to the first; docs/text.md has the rules by which the lines are drawn up.
_VARIANTS: Final = Path(__file__).with_name("han_variants.txt")
_LOOK_ALIKES: Final = Path(__file__).with_name("look_alikes.txt")
#: Romanian letters with a comma below, for which old encodings and keyboards have a cedilla; no language has both. They
#: fold to the cedilla, which has the lower combining class (202, not 220), so that marks after the letter keep places.
_COMMAS: Final = dict(zip("\u0219\u021b", "\u015f\u0163", strict=True))
#: Letters of Azerbaijani that older texts write with the Cyrillic or the turned e.
_SCHWAS: Final = dict.fromkeys("\u04d9\u01dd", "\u0259")
#: Consonants without vowel that older encodings write as letter, virama and joiner, which is ignored: the chillus of
#: Malayalam, khanda ta of Bengali.
FINAL_CONSONANTS: Final = {
    "\u0d7a": "\u0d23\u0d4d",
    "\u0d7b": "\u0d28\u0d4d",
    "\u0d7c": "\u0d30\u0d4d",
    "\u0d7d": "\u0d32\u0d4d",
    "\u0d7e": "\u0d33\u0d4d",
    "\u0d7f": "\u0d15\u0d4d",
    "\u09ce": "\u09a4\u09cd",
}
#: Letters that differ by a dot, by the keyboard or by a stroke, and joined letters.
_SIMPLE_LETTERS: Final = {
    "\u0131": "i",  # without the dot
    **dict.fromkeys("\u06a9\u06aa", "\u0643"),  # kaf of Persian, Urdu and Sindhi
    **dict.fromkeys("\u06cc\u0649", "\u064a"),  # yeh of Persian and Urdu; alef maksura
    **dict.fromkeys("\u06c1\u06be\u06d5", "\u0647"),  # heh of Urdu and Kurdish
    "\u06c3": "\u0629",  # teh marbuta of Urdu
    "\u0671": "\u0627",  # alef wasla
    **dict(zip("\u0111\u0127\u0142\u00f8\u0167", "dhlot", strict=True)),  # a stroke is no part of a decomposition
    "\u00e6": "ae",
    "\u0153": "oe",
}
#: Length from which a run of marks is put into canonical order before ``unicodedata`` sees it.
_LONG_RUN: Final = 32
#: Separator that Korean texts write between words, by its category a letter.
_KOREAN_DOT: Final = "\u318d"


class FoldOptions(NamedTuple):
    """Differences that a profile may also remove; case, compatibility forms and ignorable characters always go.

    Attributes:
        marks: Accents and vowel signs; letters that differ by a dot, a stroke or the keyboard; digits of other scripts.
        variants: Han variants: traditional, simplified, regional and new Japanese forms.
        look_alikes: Letters of other scripts that look like Latin letters.
    """

    marks: bool = False
    variants: bool = False
    look_alikes: bool = False


def variants_version() -> str:
    return _version(_VARIANTS)


def look_alikes_version() -> str:
    return _version(_LOOK_ALIKES)


@functools.cache
def _version(file: Path) -> str:
    lines = file.read_text(encoding="utf-8").splitlines()
    return next(line.partition("version = ")[2] for line in lines if line.startswith("# version = "))


@functools.cache
def replacements(folding: FoldOptions) -> Mapping[str, str]:
    """Return the replacement, one or two characters, of each character that is replaced after case folding."""
    replaced = _COMMAS | _SCHWAS | FINAL_CONSONANTS | (_SIMPLE_LETTERS | _digits() if folding.marks else {})
    files = ((_VARIANTS, folding.variants), (_LOOK_ALIKES, folding.look_alikes))
    for file in [file for file, is_on in files if is_on]:  # look-alikes override variants
        for line in file.read_text(encoding="utf-8").splitlines():
            if not line.startswith("#"):
                replaced |= dict.fromkeys(line[1:], line[0])
    return replaced


def _digits() -> dict[str, str]:
    """Return the digit from 0 to 9 for each decimal digit of another script that NFKC leaves alone."""
    digits = (c for c in map(chr, range(0x80, 0x20000)) if unicodedata.category(c) == "Nd")
    return {c: str(unicodedata.decimal(c)) for c in digits if not unicodedata.decomposition(c)}


def normalized(form: Literal["NFC", "NFD", "NFKC"], text: str) -> str:
    """Return what ``unicodedata.normalize`` returns, in linear time.

    ``unicodedata`` puts marks into canonical order, a stable sort by combining class, by an insertion sort
    (python/cpython#149079; not mended in Python 3.11): a text of 1 MiB with marks alone would take minutes, and no
    other thread runs meanwhile. So long runs are sorted here before.
    """
    long_runs, decompositions = _long_run_tools("NFKD" if form == "NFKC" else "NFD")
    return unicodedata.normalize(form, long_runs.sub(lambda run: _ordered(run[0].translate(decompositions)), text))


def _ordered(text: str) -> str:
    """Return a text with its marks in canonical order; each character is decomposed or no mark."""
    groups = itertools.groupby(text, lambda c: unicodedata.combining(c) != 0)
    return "".join("".join(sorted(group, key=unicodedata.combining)) for _, group in groups)


@functools.cache
def _long_run_tools(form: Literal["NFD", "NFKD"]) -> tuple[re.Pattern[str], Mapping[int, str]]:
    """Return an expression for long runs of marks, and the decomposition of each mark that has one.

    A mark is here a character whose decomposition has a combining class, even if the character has none (U+0F73).
    """
    points = range(0x300, 0x20000)  # all such characters are within
    changing = (c for c in map(chr, points) if unicodedata.combining(c) or unicodedata.decomposition(c))
    decompositions = {c: unicodedata.normalize(form, c) for c in changing}
    marks = {c: parts for c, parts in decompositions.items() if unicodedata.combining(parts[0])}
    # One range for all characters beyond 16 bits, of which `re` would try each mark in turn.
    characters = "".join(c for c in marks if c < "\U00010000") + "\U00010000-\U0001ffff"
    # The first separately, which `re` finds faster.
    expression = f"[{characters}][{characters}]{{{_LONG_RUN - 1},}}+"
    return re.compile(expression), {ord(c): parts for c, parts in marks.items() if c != parts}


def compatible(text: str) -> str:
    """Return a text in NFKC, but with a space for each separator that NFKC would turn into a space and a mark."""
    composed = normalized("NFC", text)  # first, because U+00A8 and U+0301 compose to one separator
    return normalized("NFKC", _space_pattern().sub(" ", composed))


def folding_rounds(
    text: str, folding: FoldOptions, without_ignorable: Callable[[str], str]
) -> Iterator[tuple[str, str]]:
    """Yield the text in NFKC and folded, round by round, until a round changes nothing.

    A folded text may contain ignorable or cased characters again, so one round does not suffice.
    """
    while True:
        # NFD separates accents from their letters, so that ``without_ignorable`` removes them.
        composed = compatible(without_ignorable(normalized("NFD", text) if folding.marks else text))
        # After `compatible`, because case folding leaves compatibility forms alone.
        folded = case_folded(composed, folding)
        yield composed, folded
        if folded == text:
            return
        text = folded


def case_folded(text: str, folding: FoldOptions) -> str:
    """Return a text with folded case and replaced characters, in NFKC, because folding may decompose."""
    # By a regular expression: ``str.translate`` takes ten times as long where few characters change.
    replaced = replacements(folding)
    folded = _DOTTED_I_RUN.sub("i", text.casefold())
    return normalized("NFKC", _replaced_pattern(folding).sub(lambda match: replaced.get(match[0], match[0]), folded))


@functools.cache
def _space_pattern() -> re.Pattern[str]:
    """Return an expression for the separators whose NFKD begins with a space, such as U+00A8, and the Korean dot."""
    characters = map(chr, range(0x10000))  # all such characters are within
    separators = (c for c in characters if unicodedata.category(c)[0] not in "LMN")
    spaced = (c for c in separators if c != " " and unicodedata.normalize("NFKD", c).startswith(" "))
    return re.compile(f"[{_KOREAN_DOT}{''.join(spaced)}]")


@functools.cache
def _replaced_pattern(folding: FoldOptions) -> re.Pattern[str]:
    # One range for all characters beyond 16 bits, as in `_long_run_tools`: a hundred times as fast with ``variants``.
    characters = "".join(c for c in replacements(folding) if c < "\U00010000")
    return re.compile(f"[{characters}\U00010000-\U0010ffff]")
