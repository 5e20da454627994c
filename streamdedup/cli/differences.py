"""Two texts side by side: what they share, where they differ, and which long shared stretches can be left out.

Texts come from anywhere, so whatever could steer a terminal is replaced before it gets to one.
"""

import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import lru_cache
from itertools import groupby
from typing import Literal, NamedTuple

#: Characters of each text that are compared; what follows is cut off, and said to be.
MAX_CHARS = 10_000
#: Characters of shared text that are shown before and after a difference.
CONTEXT_CHARS = 48
#: Characters of one difference that are shown; of a longer one its two ends.
MAX_CHANGED_CHARS = 240
#: Shared stretches between two differences with at most so many characters are no help to a reader.
MIN_SHARED_CHARS = 3
#: Stands for text that is left out.
GAP = "[…]"

#: First and last code points of the scripts that put no spaces between words: there each character is a token.
UNSPACED = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x3005, 0x30FF),  # Kana
    (0x3400, 0x9FFF),  # Han
    (0xF900, 0xFAFF),
    (0x20000, 0x3FFFF),
)

_CharacterKind = Literal["space", "word", "mark", "alone"]
Kind = Literal["same", "changed", "gap"]


class Piece(NamedTuple):
    """A stretch of one text.

    Attributes:
        text: What to show; without blanks at its ends.
        kind: Shared by both texts, found in this one only, or left out.
        space: What follows: nothing, a blank or a line break.
    """

    text: str
    kind: Kind
    space: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both texts in pieces.

    Attributes:
        left: Pieces of the first text, in order.
        right: Pieces of the second.
    """

    left: tuple[Piece, ...]
    right: tuple[Piece, ...]

    @property
    def is_same(self) -> bool:
        """Whether no token differs."""
        return not any(piece.kind == "changed" for piece in (*self.left, *self.right))


class _Token(NamedTuple):
    core: str
    space: str


class _Run(NamedTuple):
    """The same stretch of both texts, or two that stand for each other, as ranges of tokens."""

    is_same: bool
    left: range
    right: range


def printable(text: str) -> str:
    """Return ``text`` with blanks for control characters and without marks that change the direction of writing."""
    return "".join(map(_printable_character, text))


@lru_cache(maxsize=4096)
def _printable_character(character: str) -> str:
    category = unicodedata.category(character)
    if category in {"Cc", "Zl", "Zp"}:
        return " "
    if category == "Cs":
        return "\N{REPLACEMENT CHARACTER}"
    overrides = "\u202a" <= character <= "\u202e" or "\u2066" <= character <= "\u2069"
    return "" if overrides else character


def compare(left: str, right: str) -> Comparison:
    """Compare two texts token by token: words, or single characters in scripts without spaces.

    Blanks, upper and lower case and the form of characters (full width, composed) do not count, as in the index.
    """
    tokens_left, tokens_right = _tokens(left), _tokens(right)
    runs = list(_joined(list(_runs(tokens_left, tokens_right)), tokens_left))
    return Comparison(
        tuple(_pieces(tokens_left, [(run.is_same, run.left) for run in runs], cut=len(left) > MAX_CHARS)),
        tuple(_pieces(tokens_right, [(run.is_same, run.right) for run in runs], cut=len(right) > MAX_CHARS)),
    )


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    core, kind_before, space = "", "space", ""
    for character in text[:MAX_CHARS]:
        shown = _printable_character(character)
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


def _runs(left: Sequence[_Token], right: Sequence[_Token]) -> Iterator[_Run]:
    """Yield the stretches in order."""
    cores_left, cores_right = [_folded(token.core) for token in left], [_folded(token.core) for token in right]
    # What both begin or end with is most of two near-duplicates, and need not go through the slow comparison.
    head = _shared_length(cores_left, cores_right)
    tail = _shared_length(cores_left[head:][::-1], cores_right[head:][::-1])
    end_left, end_right = len(left) - tail, len(right) - tail
    if head:
        yield _Run(is_same=True, left=range(head), right=range(head))
    matcher = SequenceMatcher(None, cores_left[head:end_left], cores_right[head:end_right], autojunk=False)
    for operation, i, i_end, j, j_end in matcher.get_opcodes():
        yield _Run(operation == "equal", range(head + i, head + i_end), range(head + j, head + j_end))
    if tail:
        yield _Run(is_same=True, left=range(end_left, len(left)), right=range(end_right, len(right)))


def _folded(core: str) -> str:
    return unicodedata.normalize("NFKC", core).casefold()


def _shared_length(left: Sequence[str], right: Sequence[str]) -> int:
    """Return how many tokens two sequences begin with alike."""
    for index, (one, other) in enumerate(zip(left, right, strict=False)):
        if one != other:
            return index
    return min(len(left), len(right))


def _joined(runs: Sequence[_Run], tokens: Sequence[_Token]) -> Iterator[_Run]:
    """Yield the runs, neighbouring differences as one: a shared comma between two says nothing.

    Args:
        runs: The stretches in order.
        tokens: The first text.
    """

    def is_same(number: int) -> bool:
        run = runs[number]
        at_the_edge = number in {0, len(runs) - 1}
        return run.is_same and (at_the_edge or _length(tokens[run.left.start : run.left.stop]) > MIN_SHARED_CHARS)

    for same, group in groupby(range(len(runs)), key=is_same):
        joined = [runs[number] for number in group]
        first, last = joined[0], joined[-1]
        yield _Run(same, range(first.left.start, last.left.stop), range(first.right.start, last.right.stop))


def _pieces(tokens: Sequence[_Token], runs: Sequence[tuple[bool, range]], *, cut: bool) -> Iterator[Piece]:
    """Yield the pieces of one text, long stretches without their middle."""
    for number, (is_same, span) in enumerate(runs):
        run = tokens[span.start : span.stop]
        if not run:
            continue
        if not is_same:
            yield from _shortened(run, "changed", MAX_CHANGED_CHARS * 2 // 3, MAX_CHANGED_CHARS // 3)
            continue
        first, last = number == 0, number == len(runs) - 1
        alone = first and last
        before = CONTEXT_CHARS * 2 if alone else 0 if first else CONTEXT_CHARS
        after = 0 if last else CONTEXT_CHARS
        yield from _shortened(run, "same", before, after)
    if cut:
        yield Piece(GAP, "gap", "")


def _shortened(run: Sequence[_Token], kind: Kind, head_chars: int, tail_chars: int) -> Iterator[Piece]:
    """Yield a stretch, or as much of its two ends as asked for and a gap between."""
    head = _count_within(run, head_chars)
    tail = _count_within(run[::-1], tail_chars)
    if head + tail >= len(run) or _length(run[head : len(run) - tail]) <= len(GAP) * 2:
        yield Piece(_written(run), kind, run[-1].space)
        return
    if head:
        yield Piece(_written(run[:head]), kind, " ")
    yield Piece(GAP, "gap", run[len(run) - tail - 1].space)
    if tail:
        yield Piece(_written(run[len(run) - tail :]), kind, run[-1].space)


def _count_within(run: Sequence[_Token], chars: int) -> int:
    """Return how many tokens of the beginning fit into so many characters."""
    used = 0
    for count, token in enumerate(run):
        used += len(token.core) + len(token.space)
        if used > chars:
            return count
    return len(run)


def _length(run: Sequence[_Token]) -> int:
    return sum(len(token.core) + len(token.space) for token in run)


def _written(run: Sequence[_Token]) -> str:
    return "".join(token.core + token.space for token in run).rstrip()
