"""Comparison of two texts: shared parts, differences, and the long shared parts that can be left out."""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple

from streamdedup.cli.rendering.terminal import printable_character

#: Characters of each text that are compared; the rest is cut off.
MAX_CHARS = 10_000
#: Characters of shared text before and after a difference.
CONTEXT_CHARS = 48
#: Characters of one difference; of a longer one, both ends are shown.
MAX_CHANGED_CHARS = 240
#: Shared parts of at most this many characters between two differences are shown as different.
MIN_SHARED_CHARS = 3
#: Mark of omitted text.
GAP = "[…]"

#: First and last code points of scripts without spaces between words; there each character is a token.
UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x30FF),  # Kana
    (0x3400, 0x9FFF),  # Han
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)

PieceKind = Literal["same", "changed", "gap"]
_CharacterKind = Literal["space", "word", "mark", "alone"]


class Piece(NamedTuple):
    """A part of one text.

    Attributes:
        text: The part, stripped.
        kind: Shared by both texts, different, or omitted.
        space: What follows: nothing, a blank or a line break.
    """

    text: str
    kind: PieceKind
    space: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The pieces of two texts, in order."""

    left: tuple[Piece, ...]
    right: tuple[Piece, ...]

    @property
    def is_same(self) -> bool:
        """Whether no token differs."""
        return not any(piece.kind == "changed" for piece in (*self.left, *self.right))


class _Token(NamedTuple):
    core: str
    space: str


class _Section(NamedTuple):
    """Ranges of tokens in both texts that are equal, or that replace each other."""

    is_same: bool
    left: range
    right: range


def compare(left: str, right: str) -> Comparison:
    """Compare two texts token by token: words, or single characters in scripts without spaces.

    Blanks, case and the form of characters (full width, composed) are ignored, as in the index.
    """
    tokens_left, tokens_right = _tokens(left), _tokens(right)
    sections = list(_joined(list(_sections(tokens_left, tokens_right)), tokens_left))
    return Comparison(
        tuple(_pieces(tokens_left, [(one.is_same, one.left) for one in sections], cut=len(left) > MAX_CHARS)),
        tuple(_pieces(tokens_right, [(one.is_same, one.right) for one in sections], cut=len(right) > MAX_CHARS)),
    )


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    core, kind_before, space = "", "space", ""
    for character in text[:MAX_CHARS]:
        shown = printable_character(character)
        kind = _kind(shown) if shown else "space"
        if kind == "space":
            space = "\n" if character == "\n" else space or shown
        elif core and not space and (kind == "mark" or kind == kind_before == "word"):
            core += shown
        else:
            if core:
                tokens.append(_Token(core, space))
            core, kind_before, space = shown, kind, ""
    if core:
        tokens.append(_Token(core, space))
    return tokens


@lru_cache(maxsize=4096)
def _kind(character: str) -> _CharacterKind:
    if character.isspace():
        return "space"
    category = unicodedata.category(character)
    if category.startswith("M"):
        return "mark"
    if any(first <= ord(character) <= last for first, last in UNSPACED):
        return "alone"
    return "word" if category[0] in "LN" else "alone"


def _sections(left: Sequence[_Token], right: Sequence[_Token]) -> Iterator[_Section]:
    cores_left, cores_right = [_folded(token.core) for token in left], [_folded(token.core) for token in right]
    # The common beginning and end, most of two near-duplicates, skip the slow comparison.
    head = _shared_length(cores_left, cores_right)
    tail = _shared_length(cores_left[head:][::-1], cores_right[head:][::-1])
    end_left, end_right = len(left) - tail, len(right) - tail
    if head:
        yield _Section(is_same=True, left=range(head), right=range(head))
    matcher = SequenceMatcher(None, cores_left[head:end_left], cores_right[head:end_right], autojunk=False)
    for operation, i, i_end, j, j_end in matcher.get_opcodes():
        yield _Section(operation == "equal", range(head + i, head + i_end), range(head + j, head + j_end))
    if tail:
        yield _Section(is_same=True, left=range(end_left, len(left)), right=range(end_right, len(right)))


def _folded(core: str) -> str:
    return unicodedata.normalize("NFKC", core).casefold()


def _shared_length(left: Sequence[str], right: Sequence[str]) -> int:
    """Return the number of equal tokens at the beginning."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))


def _joined(sections: Sequence[_Section], tokens: Sequence[_Token]) -> Iterator[_Section]:
    """Join differences that are separated by a short shared part, such as a comma, into one."""

    def is_same(number: int) -> bool:
        section = sections[number]
        at_the_edge = number in {0, len(sections) - 1}
        shared_chars = _length(tokens[section.left.start : section.left.stop])
        return section.is_same and (at_the_edge or shared_chars > MIN_SHARED_CHARS)

    for same, group in groupby(range(len(sections)), key=is_same):
        joined = [sections[number] for number in group]
        first, last = joined[0], joined[-1]
        yield _Section(same, range(first.left.start, last.left.stop), range(first.right.start, last.right.stop))


def _pieces(tokens: Sequence[_Token], sections: Sequence[tuple[bool, range]], *, cut: bool) -> Iterator[Piece]:
    """Yield the pieces of one text; long sections lose their middle."""
    for number, (is_same, span) in enumerate(sections):
        section = tokens[span.start : span.stop]
        if not section:
            continue
        if not is_same:
            yield from _shortened(section, "changed", MAX_CHANGED_CHARS * 2 // 3, MAX_CHANGED_CHARS // 3)
            continue
        first, last = number == 0, number == len(sections) - 1
        before = CONTEXT_CHARS * 2 if first and last else 0 if first else CONTEXT_CHARS
        yield from _shortened(section, "same", before, 0 if last else CONTEXT_CHARS)
    if cut:
        yield Piece(GAP, "gap", "")


def _shortened(section: Sequence[_Token], kind: PieceKind, head_chars: int, tail_chars: int) -> Iterator[Piece]:
    """Yield a section whole, or its two ends with a gap between."""
    head = _count_within(section, head_chars)
    tail = _count_within(section[::-1], tail_chars)
    if head + tail >= len(section) or _length(section[head : len(section) - tail]) <= len(GAP) * 2:
        yield Piece(_written(section), kind, section[-1].space)
        return
    if head:
        yield Piece(_written(section[:head]), kind, " ")
    yield Piece(GAP, "gap", section[len(section) - tail - 1].space)
    if tail:
        yield Piece(_written(section[len(section) - tail :]), kind, section[-1].space)


def _count_within(section: Sequence[_Token], chars: int) -> int:
    """Return the number of tokens at the beginning that fit into ``chars`` characters."""
    used = 0
    for count, token in enumerate(section):
        used += len(token.core) + len(token.space)
        if used > chars:
            return count
    return len(section)


def _length(section: Sequence[_Token]) -> int:
    return sum(len(token.core) + len(token.space) for token in section)


def _written(section: Sequence[_Token]) -> str:
    return "".join(token.core + token.space for token in section).rstrip()
