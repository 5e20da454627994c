"""Alignment of two texts: laws for any texts, bounded steps for hostile ones, and the process for long ones."""

import itertools
import random
import subprocess
import sys
from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamdedup.serve import alignment, alignment_process
from streamdedup.serve.alignment import align
from streamdedup.serve.alignment_process import MAX_SHORT, AlignmentError, align_within

#: Characters of a long text.
LONG_CHARS = 300_000

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


@given(TEXTS, TEXTS, st.data())
def test_the_laws_hold_where_ranges_are_divided(a, b, data):
    """With a limit of a few pairs of tokens, as of long texts with the real one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alignment, "_MAX_CELLS", data.draw(st.integers(0, 9)))
        patch.setattr(alignment, "_ANCHOR_DISTANCE", data.draw(st.integers(1, 4)))
        check_laws(a, b)


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


@given(st.permutations(range(9)))
def test_the_anchors_in_order_are_as_many_as_possible(values):
    rows = alignment._longest_increasing(values)
    chosen = [values[row] for row in rows]
    assert chosen == sorted(chosen)
    longest = [1] * len(values)
    for at in range(len(values)):
        longest[at] = 1 + max((longest[before] for before in range(at) if values[before] < values[at]), default=0)
    assert len(chosen) == max(longest)


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
        # Scripts without spaces: each character; a mark stays with its letter.
        ("今日は今晴れです", "今日は今雨です", [(True, "今日は今", None), (False, "晴れ", "雨"), (True, "です", None)]),
        (
            "at cafe\u0301 one",
            "at cafe one",
            [(True, "at ", None), (False, "cafe\u0301", "cafe"), (True, " one", None)],
        ),
    ],
)
def test_words_are_aligned(a, b, expected):
    assert align(a, b) == [(kind, one, one if other is None else other) for kind, one, other in expected]


def edited(words: list[str], order: random.Random, share: float) -> list[str]:
    """Return words of which a share is replaced, left out or doubled."""
    changes = (lambda word: [word[::-1]], lambda _: [], lambda word: [word, word])
    return [new for word in words for new in (order.choice(changes)(word) if order.random() < share else [word])]


def vocabulary(order: random.Random, count: int) -> list[str]:
    return ["".join(order.choices("abcdefghijklmnop", k=order.randint(2, 9))) for _ in range(count)]


def long_words(order: random.Random) -> list[str]:
    """Return the words of a long text as of an article: some are common, most are rare."""
    known = vocabulary(order, 20_000)
    weights = [1 / (rank + 3) for rank in range(len(known))]
    return order.choices(known, weights, k=LONG_CHARS // 6)


def rare_words(count: int = LONG_CHARS // 8) -> list[str]:
    return [f"w{at:06}" for at in range(count)]


def marked_words(mark: str) -> str:
    """Return words of which every second one is another for each mark."""
    return " ".join(f"{word} {mark}{at}" for at, word in enumerate(rare_words()[::2]))


def an_edited_pair(order: random.Random, share: float) -> tuple[str, str]:
    words = long_words(order)
    return " ".join(words), " ".join(edited(words, order, share))


def random_text(order: random.Random) -> str:
    return "".join(order.choices("ab ,", k=LONG_CHARS))


#: Pairs of long texts, most of which take a quadratic comparison very many steps.
PAIRS = {
    "one edit in fifty words": lambda order: an_edited_pair(order, 0.02),
    "every third word": lambda order: an_edited_pair(order, 0.33),
    "nothing in common": lambda order: (" ".join(long_words(order)), " ".join(long_words(order)).upper()),
    "the same word": lambda _: ("a " * (LONG_CHARS // 2), "b" + " a" * (LONG_CHARS // 2) + "c"),
    "two words in turn": lambda _: ("a b " * (LONG_CHARS // 4) + "x", "y" + "b a " * (LONG_CHARS // 4)),
    "another order": lambda order: (" ".join(rare_words()), " ".join(order.sample(rare_words(), LONG_CHARS // 8))),
    "reversed": lambda _: (" ".join(rare_words()), " ".join(rare_words()[::-1])),
    "every second word": lambda _: (marked_words("p"), marked_words("q")),
    "no spaces": lambda _: ("字" * (LONG_CHARS // 3), "符" + "字符" * (LONG_CHARS // 6)),
    "one word": lambda _: ("a" * LONG_CHARS, "a" * (LONG_CHARS - 1) + "b"),
    "random characters": lambda order: (random_text(order), random_text(order)),
    "short against long": lambda order: ("ab, " * 5, random_text(order)),
    "marks": lambda _: ("a" + "\u0301" * (LONG_CHARS // 2), "a" + "\u0300" * (LONG_CHARS // 2)),
}


@pytest.mark.parametrize("name", PAIRS)
def test_two_long_texts_take_a_bounded_number_of_steps(name, monkeypatch):
    """Each token is sorted once for each length of runs, and is in one common subsequence of few bits."""
    a, b = PAIRS[name](random.Random(7))
    tokens_count = len(alignment._TOKEN.findall(a)) + len(alignment._TOKEN.findall(b))
    steps = Counter()
    common_subsequence, unique_runs = alignment._common_subsequence, alignment._unique_runs

    def counted_subsequence(one, other):
        steps["subsequence"] += len(one) + len(other)
        steps["bits"] = max(steps["bits"], min(len(one), len(other)))
        return common_subsequence(one, other)

    def counted_runs(tokens, length):
        steps["sorted"] += len(tokens)
        return unique_runs(tokens, length)

    monkeypatch.setattr(alignment, "_common_subsequence", counted_subsequence)
    monkeypatch.setattr(alignment, "_unique_runs", counted_runs)
    check_laws(a, b)
    assert steps["subsequence"] <= 2 * tokens_count  # a range is passed on with its sides exchanged
    assert steps["bits"] ** 2 <= alignment._MAX_CELLS
    assert steps["sorted"] <= len(alignment._RUN_LENGTHS) * tokens_count


def test_a_long_near_duplicate_is_aligned_in_detail():
    """Nearly all words that were not edited are in equal segments."""
    order = random.Random(3)
    words = long_words(order)
    segments = align(" ".join(words), " ".join(edited(words, order, 0.02)))
    equal = sum(len(segment.a) for segment in segments if segment.is_equal)
    assert equal > 0.96 * len(" ".join(words))
    assert len(segments) > len(words) * 0.02


class TestProcess:
    """Long texts are aligned in a process of its own, so that the threads of the service go on."""

    LONG = ("amber été 我能吞 \x00\u202e " * MAX_SHORT)[: MAX_SHORT // 2]

    def refuse(self, *_given, **_options):
        pytest.fail("aligned in the wrong place")

    def test_long_texts_are_aligned_in_another_process(self, monkeypatch):
        a, b = self.LONG, f"birch {self.LONG}"
        expected = align(a, b)
        monkeypatch.setattr(alignment_process, "align", self.refuse)
        assert align_within(a, b, 300.0) == expected

    def test_short_texts_are_aligned_at_once(self, monkeypatch):
        monkeypatch.setattr(subprocess, "run", self.refuse)
        assert align_within(self.LONG, self.LONG, 300.0) == align(self.LONG, self.LONG)

    def test_the_folder_of_the_service_is_not_imported_from(self, monkeypatch, tmp_path):
        (tmp_path / "streamdedup.py").write_text("raise SystemExit(3)", encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        assert align_within(self.LONG, f"{self.LONG} ", 300.0) == align(self.LONG, f"{self.LONG} ")

    def test_the_process_is_ended_after_the_time_limit(self):
        with pytest.raises(AlignmentError, match="took longer than 0 s"):
            align_within(self.LONG, f"{self.LONG} ", 0.0)

    @pytest.mark.parametrize(
        ("program", "reason"), [("/bin/false", "exit code 1"), ("/nowhere/python", "No such file or directory")]
    )
    def test_a_process_that_fails_is_an_error(self, monkeypatch, program, reason):
        monkeypatch.setattr(sys, "executable", program)
        with pytest.raises(AlignmentError, match=f"the process that aligns long texts failed: {reason}"):
            align_within(self.LONG, f"{self.LONG} ", 300.0)
