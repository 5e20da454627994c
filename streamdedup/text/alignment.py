"""Alignment of two texts, for people: the parts that both have, and the parts that replace each other.

A change of ``Segment`` also touches ``serve.schemas`` and docs/http.md.

A text is divided into words, each with the white space behind it. A comma or another sign is a word, and so is a
character in scripts without spaces. The equal words at both ends are aligned first, then the words between them by
their longest common subsequence, with the bit-parallel algorithm of Hyyrö (Bit-parallel LCS-length computation
revisited, 2004): one step on an integer for each word of the longer text, and one bit for each word of the shorter one.

Time and memory grow with the product of both lengths, so texts beyond ``MAX_WORDS`` are not aligned. Two texts of
``MAX_WORDS`` words take 20 MB and 40 to 75 ms of one core; other threads of the process have turns in between.
"""

import re
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby, islice
from typing import Final, NamedTuple

from streamdedup.text.unicode_ranges import SOLO_RANGES

#: Largest number of words of a text that is aligned.
MAX_WORDS: Final = 10_000
#: An equal part between two changes with at most so many characters, spaces aside, is shown as changed.
_MAX_SHORT_EQUAL_CHARS: Final = 3
#: Ranges of code points that have combining marks.
_MARK_RANGES: Final = (range(0x300, 0x1F000), range(0xE0100, 0xE01F0))


class Segment(NamedTuple):
    """A part of both texts, ``a`` of the first and ``b`` of the second."""

    is_equal: bool
    a: str
    b: str


class Word(NamedTuple):
    """A word and the white space behind it; white space at the beginning of a text is behind an empty word."""

    core: str
    space: str


def align(a: str, b: str, key: Callable[[str], str] = str) -> list[Segment] | None:
    """Return two texts as segments, in order, or None if one has more than ``MAX_WORDS`` words.

    ``key`` returns the form in which words, and runs of white space, are compared.
    """
    words_a, words_b = split_words(a), split_words(b)
    if max(len(words_a), len(words_b)) > MAX_WORDS:
        return None
    keys_a, keys_b = ([key(word.core) for word in words] for words in (words_a, words_b))
    matches = list(_matches(keys_a, keys_b))
    return _without_short_equals(_joined(_parts(words_a, words_b, matches, key)))


def _word_pattern() -> re.Pattern[str]:
    """Return the pattern of a word; a combining mark belongs to the character before it."""
    marks = [chr(point) for points in _MARK_RANGES for point in points if unicodedata.category(chr(point))[0] == "M"]
    mark = f"[{''.join(marks)}]"
    solo = "".join(f"{chr(first)}-{chr(last)}" for first, last in SOLO_RANGES)
    # With backtracking a word of a megabyte would take 150 ms. The empty word is for white space at the beginning.
    return re.compile(rf"([^\W{solo}]++(?:{mark}++[^\W{solo}]*+)*+|\S{mark}*+|)(\s*+)")


_WORD: Final = _word_pattern()


def split_words(text: str) -> list[Word]:
    """Return the words of a text, at most ``MAX_WORDS`` + 1."""
    matches = (match for match in _WORD.finditer(text) if match[0])
    return [Word(match[1], match[2]) for match in islice(matches, MAX_WORDS + 1)]


# Words in common


def _matches(a: Sequence[str], b: Sequence[str]) -> Iterator[tuple[int, int]]:
    head = _shared_length(a, b)
    tail = _shared_length(a[head:][::-1], b[head:][::-1])
    yield from ((row, row) for row in range(head))
    between = _common_subsequence(a[head : len(a) - tail], b[head : len(b) - tail])
    yield from ((head + row_a, head + row_b) for row_a, row_b in between)
    yield from zip(range(len(a) - tail, len(a)), range(len(b) - tail, len(b)), strict=True)


def _shared_length(a: Sequence[str], b: Sequence[str]) -> int:
    differing = (row for row, (word_a, word_b) in enumerate(zip(a, b, strict=False)) if word_a != word_b)
    return next(differing, min(len(a), len(b)))


def _common_subsequence(a: Sequence[str], b: Sequence[str]) -> list[tuple[int, int]]:
    """Return the rows of a longest common subsequence in both texts, ascending."""
    if len(a) > len(b):  # the shorter text has the bits
        return [(row_a, row_b) for row_b, row_a in _common_subsequence(b, a)]
    rows: dict[str, int] = {}  # for each word of a, a bit for each of its rows
    for row, word in enumerate(a):
        rows[word] = rows.get(word, 0) | 1 << row
    full = (1 << len(a)) - 1
    # After the words b[:j], bit i is 0 where LCS(a[: i + 1], b[:j]) is longer than LCS(a[:i], b[:j]).
    state, states = full, [full]
    for word in b:
        if word in rows:
            matching = state & rows[word]
            state = ((state + matching) | (state - matching)) & full
        states.append(state)
    return _traced(states, len(a))


def _traced(states: Sequence[int], a_count: int) -> list[tuple[int, int]]:
    """Return the rows of the common subsequence that the states after each word of b describe."""
    matches: list[tuple[int, int]] = []
    row_a, row_b = a_count, len(states) - 1
    while row_a and row_b:
        if states[row_b] >> (row_a - 1) & 1:
            row_a -= 1  # the last word of a adds nothing
        elif not states[row_b - 1] >> (row_a - 1) & 1:
            row_b -= 1  # the last word of b adds nothing
        else:
            row_a, row_b = row_a - 1, row_b - 1
            matches.append((row_a, row_b))
    return matches[::-1]


# From words to segments


def _parts(
    a: Sequence[Word], b: Sequence[Word], matches: Sequence[tuple[int, int]], key: Callable[[str], str]
) -> Iterator[Segment]:
    """Yield a segment of the words before each match, then the match; behind each a segment of its white space."""
    next_a = next_b = 0
    # The ends of both texts are a last pair, for the words behind the last match.
    for row_a, row_b in [*matches, (len(a), len(b))]:
        for is_equal, end_a, end_b in ((False, row_a, row_b), (True, row_a + 1, row_b + 1)):
            if (next_a, next_b) == (end_a, end_b):
                continue
            text_a, space_a = _text_and_space(a[next_a:end_a])
            text_b, space_b = _text_and_space(b[next_b:end_b])
            yield Segment(is_equal, text_a, text_b)
            yield Segment(key(space_a) == key(space_b), space_a, space_b)
            next_a, next_b = end_a, end_b


def _text_and_space(words: Sequence[Word]) -> tuple[str, str]:
    if not words:
        return "", ""
    return "".join(core + space for core, space in words[:-1]) + words[-1].core, words[-1].space


def _joined(segments: Iterator[Segment]) -> Iterator[Segment]:
    """Join neighbours that are both equal, or both changes; drop empty segments."""
    filled = (segment for segment in segments if segment.a or segment.b)
    for is_equal, neighbours in groupby(filled, key=lambda segment: segment.is_equal):
        _, parts_a, parts_b = zip(*neighbours, strict=True)
        yield Segment(is_equal, "".join(parts_a), "".join(parts_b))


def _without_short_equals(segments: Iterator[Segment]) -> list[Segment]:
    """Join changes that are separated by a short equal part only; ``segments`` alternate between equal and changed."""
    # Texts are joined at the end, so that none is copied again and again. An equal part is a group of one.
    groups: list[list[Segment]] = []
    for segment in segments:
        if not segment.is_equal and len(groups) >= 2 and _is_short(groups[-1][0].a):
            equal = groups.pop()
            groups[-1] += [*equal, segment]
        else:
            groups.append([segment])
    return [
        Segment(parts[0].is_equal, *map("".join, zip(*(part[1:] for part in parts), strict=True))) for parts in groups
    ]


def _is_short(text: str) -> bool:
    return len("".join(text.split())) <= _MAX_SHORT_EQUAL_CHARS
