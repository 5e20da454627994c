"""Alignment of two texts: the parts that both have, and the parts that replace each other.

A text is divided into tokens: words, runs of white space, and single other characters; in scripts without spaces each
character is a token. Three steps, each on the ranges that the step before has left:

1. The equal tokens at both ends of two ranges are aligned.
2. Two ranges of at most ``_MAX_CELLS`` pairs of tokens get their longest common subsequence, by the bit-parallel
   algorithm of Hyyrö (Bit-parallel LCS-length computation revisited, 2004): one step on an integer for each token of
   the longer range, and one bit for each token of the shorter one.
3. Longer ranges are divided at anchors, as in patience diff (Bram Cohen): runs of 16 tokens that occur once in each
   range, and of these the longest sequence in the same order. Ranges that are still too long are divided by runs of 4
   tokens, then by single tokens. Ranges without anchors are one change.

The number of steps is bounded for any texts: each token is sorted three times, and is in one common subsequence. Two
texts of 1 MB with an edit in fifty words take 0.8 s of one processor, the worst known ones 2.4 s.
"""

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.unicode_tables import SOLO_RANGES

#: Most pairs of tokens in two ranges whose longest common subsequence is computed.
_MAX_CELLS: Final = 4_000_000
#: Lengths of the runs that are anchors, in tokens, the longest first; each is a power of two.
_RUN_LENGTHS: Final = (16, 4, 1)
#: At most one anchor in so many tokens: fewer, longer gaps take less time and are aligned better.
_ANCHOR_DISTANCE: Final = 32
#: An equal part of at most so many characters between two changes, spaces aside, belongs to the change.
_MIN_EQUAL_CHARS: Final = 3
#: Base of the hashes of runs, which are polynomials modulo 2**64: 2**64 divided by the golden ratio. Equal hashes of
#: different runs would divide ranges at a wrong place, and make nothing equal.
_BASE: Final = 0x9E3779B97F4A7C15
#: Ranges of code points that have combining marks.
_MARK_RANGES: Final = (range(0x300, 0x1F000), range(0xE0100, 0xE01F0))

Numbers = NDArray[np.uint64]


class Segment(NamedTuple):
    """A part of both texts.

    Attributes:
        is_equal: Whether both texts have the same part.
        a: The part of the first text.
        b: The part of the second text.
    """

    is_equal: bool
    a: str
    b: str


class _Run(NamedTuple):
    """Equal tokens: the first place in each text, and their number."""

    a: int
    b: int
    length: int


class _Part(NamedTuple):
    """A range of tokens of each text, equal or changed."""

    is_equal: bool
    a: range
    b: range


def align(a: str, b: str) -> list[Segment]:
    """Return two texts as segments, in order; the segments of each text joined are the text."""
    tokens_a, tokens_b = _TOKEN.findall(a), _TOKEN.findall(b)
    numbers: dict[str, int] = {}
    numbers_a, numbers_b = _numbered(tokens_a, numbers), _numbered(tokens_b, numbers)
    starts_a, starts_b = ([0, *accumulate(map(len, tokens))] for tokens in (tokens_a, tokens_b))

    def segment(part: _Part) -> Segment:
        text_a = a[starts_a[part.a.start] : starts_a[part.a.stop]]
        return Segment(part.is_equal, text_a, b[starts_b[part.b.start] : starts_b[part.b.stop]])

    runs = _equal_runs(numbers_a, numbers_b, _Run(0, 0, 0), _RUN_LENGTHS)
    parts = _parts(runs, len(tokens_a), len(tokens_b))
    return [segment(part) for part in _without_short_equals(parts, tokens_a)]


def _numbered(tokens: Sequence[str], numbers: dict[str, int]) -> Numbers:
    """Return the number of each token; new tokens get the next numbers."""
    return np.fromiter((numbers.setdefault(token, len(numbers)) for token in tokens), np.uint64, len(tokens))


def _token_pattern() -> re.Pattern[str]:
    """Return the pattern of a token; a combining mark belongs to the character before it."""
    marks = [chr(point) for points in _MARK_RANGES for point in points if unicodedata.category(chr(point))[0] == "M"]
    mark = f"[{''.join(marks)}]"
    solo = "".join(f"{chr(first)}-{chr(last)}" for first, last in SOLO_RANGES)
    return re.compile(rf"\s+|[^\W{solo}](?:[^\W{solo}]|{mark})*|.{mark}*", re.DOTALL)


_TOKEN: Final = _token_pattern()


# Equal runs


def _equal_runs(a: Numbers, b: Numbers, first: _Run, lengths: Sequence[int]) -> Iterator[_Run]:
    """Yield the equal runs of two ranges, in order.

    Args:
        a: Tokens of the range of the first text.
        b: Tokens of the range of the second text.
        first: Places of the ranges in the texts.
        lengths: Lengths of the runs by which ranges that are too long are divided.
    """
    head = _shared_length(a, b)
    tail = _shared_length(a[head:][::-1], b[head:][::-1])
    if head:
        yield _Run(first.a, first.b, head)
    inner_a, inner_b = a[head : len(a) - tail], b[head : len(b) - tail]
    inner = _Run(first.a + head, first.b + head, 0)
    if len(inner_a) * len(inner_b) <= _MAX_CELLS:
        for at_a, at_b in _common_subsequence(inner_a.tolist(), inner_b.tolist()):
            yield _Run(inner.a + at_a, inner.b + at_b, 1)
    elif lengths:
        yield from _divided_runs(inner_a, inner_b, inner, lengths)
    if tail:
        yield _Run(first.a + len(a) - tail, first.b + len(b) - tail, tail)


def _divided_runs(a: Numbers, b: Numbers, first: _Run, lengths: Sequence[int]) -> Iterator[_Run]:
    """Yield the equal runs of two ranges, divided at anchors; an anchor begins the range behind it."""
    at_a = at_b = 0
    for anchor_a, anchor_b in [*_anchors(a, b, lengths[0]), (len(a), len(b))]:
        place = _Run(first.a + at_a, first.b + at_b, 0)
        yield from _equal_runs(a[at_a:anchor_a], b[at_b:anchor_b], place, lengths[1:])
        at_a, at_b = anchor_a, anchor_b


def _shared_length(a: Numbers, b: Numbers) -> int:
    """Return the number of equal tokens at the beginning."""
    length = min(len(a), len(b))
    differing = np.flatnonzero(a[:length] != b[:length])
    return int(differing[0]) if differing.size else length


def _anchors(a: Numbers, b: Numbers, length: int) -> list[tuple[int, int]]:
    """Return places of equal tokens in both ranges, ascending in both, that divide the ranges."""
    if min(len(a), len(b)) < length:
        return []
    (hashes_a, places_a), (hashes_b, places_b) = _unique_runs(a, length), _unique_runs(b, length)
    _, rows_a, rows_b = np.intersect1d(hashes_a, hashes_b, assume_unique=True, return_indices=True)
    order = np.argsort(places_a[rows_a])
    at_a, at_b = places_a[rows_a][order], places_b[rows_b][order]
    _, chosen = np.unique(at_a // _ANCHOR_DISTANCE, return_index=True)
    at_a, at_b = at_a[chosen], at_b[chosen]
    rows = _longest_increasing(at_b.tolist())
    return list(zip(at_a[rows].tolist(), at_b[rows].tolist(), strict=True))


def _unique_runs(tokens: Numbers, length: int) -> tuple[Numbers, NDArray[np.int64]]:
    """Return the hashes of the runs of ``length`` tokens that occur once, and their first places."""
    hashes, width = tokens, 1
    while width < length:
        hashes = hashes[:-width] * np.uint64(pow(_BASE, width, 2**64)) + hashes[width:]
        width *= 2
    unique, places, counts = np.unique(hashes, return_index=True, return_counts=True)
    return unique[counts == 1], places[counts == 1]


def _longest_increasing(values: Sequence[int]) -> list[int]:
    """Return the rows of a longest strictly increasing subsequence of distinct values."""
    ends: list[int] = []  # least last value of a subsequence of each length
    rows: list[int] = []  # its row
    before: list[int] = []  # for each row, the row before it in its subsequence
    for row, value in enumerate(values):
        length = bisect_left(ends, value)
        before.append(rows[length - 1] if length else -1)
        ends[length : length + 1] = [value]
        rows[length : length + 1] = [row]
    found: list[int] = []
    row = rows[-1] if rows else -1
    while row >= 0:
        found.append(row)
        row = before[row]
    return found[::-1]


def _common_subsequence(a: Sequence[int], b: Sequence[int]) -> list[tuple[int, int]]:
    """Return the places of a longest common subsequence in both ranges, ascending."""
    if len(a) > len(b):
        return [(at_a, at_b) for at_b, at_a in _common_subsequence(b, a)]
    if not a:
        return []
    places: dict[int, int] = {}  # for each token of a, a bit for each place
    for at, token in enumerate(a):
        places[token] = places.get(token, 0) | 1 << at
    full = (1 << len(a)) - 1
    # Bit i of a state is 0 where the subsequence with a[: i + 1] is longer than that with a[:i].
    state, states = full, [full]
    for token in b:
        if token in places:
            matching = state & places[token]
            state = ((state + matching) | (state - matching)) & full
        states.append(state)
    found: list[tuple[int, int]] = []
    at_a, at_b = len(a), len(b)
    while at_a and at_b:
        if states[at_b] >> (at_a - 1) & 1:
            at_a -= 1
        elif not states[at_b - 1] >> (at_a - 1) & 1:
            at_b -= 1
        else:
            at_a, at_b = at_a - 1, at_b - 1
            found.append((at_a, at_b))
    return found[::-1]


# From runs to segments


def _parts(runs: Iterator[_Run], count_a: int, count_b: int) -> Iterator[_Part]:
    """Yield equal parts and, between them, changed ones."""
    start_a = start_b = at_a = at_b = 0  # the present equal part
    for run in [*runs, _Run(count_a, count_b, 0)]:
        if (run.a, run.b) != (at_a, at_b):
            if start_a < at_a:
                yield _Part(True, range(start_a, at_a), range(start_b, at_b))
            yield _Part(False, range(at_a, run.a), range(at_b, run.b))
            start_a, start_b = run.a, run.b
        at_a, at_b = run.a + run.length, run.b + run.length
    if start_a < at_a:
        yield _Part(True, range(start_a, at_a), range(start_b, at_b))


def _without_short_equals(parts: Iterator[_Part], tokens: Sequence[str]) -> list[_Part]:
    """Join changes that are separated by a short equal part only."""
    joined: list[_Part] = []
    for part in parts:
        if not part.is_equal and len(joined) >= 2 and _is_short(joined[-1].a, tokens):
            joined.pop()
            first = joined.pop()
            joined.append(_Part(False, range(first.a.start, part.a.stop), range(first.b.start, part.b.stop)))
        else:
            joined.append(part)
    return joined


def _is_short(places: range, tokens: Sequence[str]) -> bool:
    # A token has a character at least, white space aside at every second place.
    if len(places) > 2 * _MIN_EQUAL_CHARS + 1:
        return False
    return sum(len(token.strip()) for token in tokens[places.start : places.stop]) <= _MIN_EQUAL_CHARS
