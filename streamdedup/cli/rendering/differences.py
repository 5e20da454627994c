"""Differences of two texts: changed parts, and shared parts without the middle.

``align`` returns segments; the text of a segment in one of the texts is a *part*, of which ``_shortened`` makes one to
three *pieces*. The page of ``serve`` shows segments itself (``serve.texts``).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, zip_longest
from typing import Final, Literal, NamedTuple

from streamdedup.cli.rendering.safe_text import printable_character, visible
from streamdedup.text.alignment import Word, align, split_words
from streamdedup.text.folding import normalized

CONTEXT_CHARS: Final = 48  # characters of shared text before and after a difference
#: Characters of one difference; of a longer one, the beginning (two thirds) and the end are shown.
MAX_CHANGED_CHARS: Final = 240
BEGINNING_CHARS: Final = 1_000  # characters that are shown of a text that is too long to be aligned
GAP: Final = "[…]"  # mark of omitted text

PieceKind = Literal["same", "changed", "gap"]


class Piece(NamedTuple):
    """Text that is ``same`` in both texts, ``changed``, or a ``gap`` for omitted text; and the space that follows."""

    text: str
    kind: PieceKind
    space: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """The pieces of the first text (``left``) and the second (``right``), in order.

    ``is_aligned`` is false where a text has too many words: then each side has the beginning of its text, unmarked.
    """

    left: tuple[Piece, ...]
    right: tuple[Piece, ...]
    is_aligned: bool = True

    @property
    def is_same(self) -> bool:
        return self.is_aligned and not any(piece.kind == "changed" for piece in (*self.left, *self.right))


def compare(left: str, right: str) -> Comparison:
    """Compare two texts word by word, or character by character in scripts without spaces.

    Line breaks, case and the form of characters (full width, composed) are ignored, as in the index. Invisible
    characters become code points (``safe_text.visible``).
    """
    texts = _plain(left), _plain(right)
    segments = align(*texts, key=_folded)
    if segments is None:
        beginning_left, beginning_right = (
            tuple(_shortened(visible(text, differs=False), "same", BEGINNING_CHARS, 0)) for text in texts
        )
        return Comparison(beginning_left, beginning_right, is_aligned=False)
    kinds: list[PieceKind] = ["same" if segment.is_equal else "changed" for segment in segments]
    return Comparison(
        tuple(_pieces([visible(a, differs=not is_equal) for is_equal, a, _ in segments], kinds)),
        tuple(_pieces([visible(b, differs=not is_equal) for is_equal, _, b in segments], kinds)),
    )


def _plain(text: str) -> str:
    """Return a text without control characters, with one blank or line break between two words."""
    # Controls of direction, for which `printable_character` returns an empty text, stay: `visible` shows them.
    lines = ("".join(printable_character(character) or character for character in line) for line in text.split("\n"))
    return "\n".join(filter(None, (" ".join(filter(None, line.split(" "))) for line in lines)))


def _folded(text: str) -> str:
    # A word of odd spaces alone (`safe_text.ODD_SPACES`) would become empty; it is compared as it is.
    return normalized("NFKC", text).casefold().strip() or text.strip(" \n")


def _pieces(parts: Sequence[str], kinds: Sequence[PieceKind]) -> Iterator[Piece]:
    """Yield the pieces of one text; a shared part keeps only the context of the differences beside it."""
    last = len(parts) - 1
    for row, (part, kind) in enumerate(zip(_with_spaces_behind(parts), kinds, strict=True)):
        if kind == "changed":
            head_chars, tail_chars = MAX_CHANGED_CHARS * 2 // 3, MAX_CHANGED_CHARS // 3
        elif last == 0:  # no difference: the beginning of the text is shown
            head_chars, tail_chars = CONTEXT_CHARS * 2, 0
        else:
            head_chars = CONTEXT_CHARS if row > 0 else 0
            tail_chars = CONTEXT_CHARS if row < last else 0
        yield from _shortened(part, kind, head_chars, tail_chars)


def _with_spaces_behind(parts: Sequence[str]) -> list[str]:
    """Return the parts with the white space at the beginning of each moved to the end of the previous one."""
    beginnings = [part[: len(part) - len(part.lstrip())] for part in parts]
    return [part.lstrip() + space for part, space in zip_longest(parts, beginnings[1:], fillvalue="")]


def _shortened(part: str, kind: PieceKind, head_chars: int, tail_chars: int) -> Iterator[Piece]:
    """Yield a part whole if it is short, else the words within its first and last characters, and a gap between."""
    words = split_words(part.strip())
    space_behind = part[len(part.rstrip()) :]
    head = _count_within(words, head_chars)
    tail = _count_within(words[::-1], tail_chars)
    middle = words[head : len(words) - tail]
    if _length(middle) <= len(GAP) * 2:  # a gap would save little
        if part:
            yield Piece(part.strip(), kind, space_behind)
        return
    if head:
        yield Piece(_written(words[:head]), kind, " ")
    # The last word of a part has no space of its own.
    yield Piece(GAP, "gap", middle[-1].space or space_behind)
    if tail:
        yield Piece(_written(words[len(words) - tail :]), kind, space_behind)


def _count_within(words: Sequence[Word], chars: int) -> int:
    ends = accumulate(_length([word]) for word in words)  # rising, so those within `chars` are the first ones
    return sum(end <= chars for end in ends)


def _length(words: Sequence[Word]) -> int:
    return sum(len(word.core) + len(word.space) for word in words)


def _written(words: Sequence[Word]) -> str:
    return "".join(word.core + word.space for word in words).rstrip()
