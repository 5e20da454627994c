"""Alignment of two texts: laws for any texts, and the limit of words."""

import itertools
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamdedup.text import alignment
from streamdedup.text.alignment import MAX_WORDS, align

WORDS = st.sampled_from(
    ["amber", "birch", "cedar", "delta", "été", "नमस्ते", "我", "能", "吞", "ไทย", "👩‍👩‍👧", "e\u0301"]
)
SPACES = st.sampled_from([" ", "  ", "\n", "\t", ", ", ".", "-", "\x00", "\u202e", "\u3000"])
TEXTS = st.lists(WORDS | SPACES, max_size=40).map("".join) | st.text(st.characters(), max_size=30)


def check_laws(a: str, b: str) -> list[alignment.Segment]:
    """Check what holds for any two texts."""
    segments = align(a, b)
    assert "".join(segment.a for segment in segments) == a
    assert "".join(segment.b for segment in segments) == b
    assert all(segment.a == segment.b != "" for segment in segments if segment.is_equal)
    assert all(segment.a or segment.b for segment in segments)
    kinds = [segment.is_equal for segment in segments]
    assert all(one != other for one, other in itertools.pairwise(kinds))
    return segments


@given(TEXTS, TEXTS)
@example("", "")
@example("", "a")
@example("a b", "a b")
def test_the_segments_restore_both_texts_and_equal_ones_are_equal(a, b):
    segments = check_laws(a, b)
    assert all(segment.is_equal for segment in segments) == (a == b)


@given(st.lists(st.integers(0, 3), max_size=12), st.lists(st.integers(0, 3), max_size=12))
def test_a_common_subsequence_is_a_longest_one(a, b):
    found = alignment._common_subsequence(a, b)
    assert all(a[at_a] == b[at_b] for at_a, at_b in found)
    assert all(one[0] < other[0] and one[1] < other[1] for one, other in itertools.pairwise(found))
    lengths = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for at_a, one in enumerate(a):
        for at_b, other in enumerate(b):
            longest = max(lengths[at_a][at_b + 1], lengths[at_a + 1][at_b])
            lengths[at_a + 1][at_b + 1] = lengths[at_a][at_b] + 1 if one == other else longest
    assert len(found) == lengths[-1][-1]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (
            "The ferry runs again on Monday.",
            "The ferry runs again on Friday.",
            [(True, "The ferry runs again on ", None), (False, "Monday", "Friday"), (True, ".", None)],
        ),
        ("one two three", "one three", [(True, "one ", None), (False, "two ", ""), (True, "three", None)]),
        # A comma or a short word between two changes belongs to the change.
        ("red is it now", "big is he now", [(False, "red is it", "big is he"), (True, " now", None)]),
        ("", "new", [(False, "", "new")]),
        # A common subsequence is of words, not of the spaces behind them.
        ("one two\nthree", "one two three", [(True, "one two", None), (False, "\n", " "), (True, "three", None)]),
        # Scripts without spaces: each character; a mark stays with its letter.
        ("今日は今晴れです", "今日は今雨です", [(True, "今日は今", None), (False, "晴れ", "雨"), (True, "です", None)]),
        ("a cafe\u0301 one", "a cafe one", [(True, "a ", None), (False, "cafe\u0301", "cafe"), (True, " one", None)]),
    ],
)
def test_words_are_aligned(a, b, expected):
    assert align(a, b) == [(kind, one, one if other is None else other) for kind, one, other in expected]


@given(TEXTS, TEXTS)
def test_words_and_spaces_with_equal_keys_are_equal(a, b):
    segments = align(a, b.upper(), key=lambda text: text.upper().strip())
    assert "".join(segment.a for segment in segments) == a
    assert "".join(segment.b for segment in segments) == b.upper()
    if a == b:
        assert len(segments) <= 1


@pytest.mark.parametrize("text", ["a ", "字", ", "], ids=["words", "characters", "signs"])
def test_a_text_of_more_words_than_the_limit_is_not_aligned(text):
    assert align(text * MAX_WORDS, text * MAX_WORDS) == [(True, text * MAX_WORDS, text * MAX_WORDS)]
    assert align(text * (MAX_WORDS + 1), text) is None
    assert align("", text * 10 * MAX_WORDS) is None


def test_two_texts_at_the_limit_are_aligned_in_detail():
    order = random.Random(7)
    words = [f"w{order.randrange(3_000)}" for _ in range(MAX_WORDS)]
    edited = [word if order.random() > 0.02 else "x" for word in words]
    segments = check_laws(" ".join(words), " ".join(edited))
    assert sum(segment.b.count("x") for segment in segments if not segment.is_equal) == edited.count("x")
    assert sum(len(segment.a) for segment in segments if segment.is_equal) > 0.97 * len(" ".join(words))


class Copied(str):
    """A text that counts the characters of the texts that `+` makes of it."""

    __slots__ = ()
    count = 0

    def __add__(self, other):
        Copied.count += len(self) + len(other)
        return Copied(super().__add__(other))


@pytest.mark.parametrize("shared", [" the ", " this "])
def test_each_text_is_copied_once_however_many_changes_are_joined(shared):
    changes = [alignment.Segment(False, Copied("a" * 100), Copied("b" * 100)) for _ in range(1_000)]
    equals = [alignment.Segment(True, Copied(shared), Copied(shared)) for _ in range(1_000)]
    segments = [segment for pair in zip(changes, equals, strict=True) for segment in pair]
    joined = alignment._without_short_equals(iter(segments))
    assert len(joined) == (2_000 if shared == " this " else 2)
    for side in (1, 2):
        assert "".join(segment[side] for segment in joined) == "".join(segment[side] for segment in segments)
    assert Copied.count <= sum(len(segment.a) + len(segment.b) for segment in segments)
