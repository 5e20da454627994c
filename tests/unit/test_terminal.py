"""Texts of arbitrary senders on a terminal: nothing that differs is invisible."""

import re
from importlib import resources

import pytest

from streamdedup.cli.rendering.differences import compare
from streamdedup.cli.rendering.safe_text import HIDDEN, ODD_SPACES, UNSEEN, visible
from streamdedup.cli.rendering.terminal import TIME_FORMAT, local_time


def test_times_have_their_zone():
    assert re.fullmatch(r"2026-03-0[12] \d\d:24:00[+-]\d{4}", local_time(1_772_432_640, TIME_FORMAT))


def changed(pieces):
    return [piece.text for piece in pieces if piece.kind == "changed"]


@pytest.mark.parametrize(
    ("left", "right", "only_left", "only_right"),
    [
        ("the fer\u200bry returns", "the ferry returns", "fer⟦U+200B⟧ry", "ferry"),
        ("costs 100\u00a0000 crowns", "costs 100 000 crowns", "⟦U+00A0⟧", ""),
        ("a \u202eword\u202c here", "a word here", "⟦U+202E⟧⟦U+202C⟧", ""),
    ],
)
def test_what_differs_invisibly_is_named(left, right, only_left, only_right):
    comparison = compare(left, right)
    assert "".join(changed(comparison.left)) == only_left
    assert "".join(changed(comparison.right)) == only_right
    assert not comparison.is_same


def test_a_space_that_both_texts_have_is_a_blank():
    comparison = compare("Vraiment\u00a0? Oui", "Vraiment\u00a0? Non")
    assert "⟦" not in "".join(piece.text for piece in (*comparison.left, *comparison.right))


def test_the_page_and_the_terminal_name_the_same_characters():
    page = resources.files("streamdedup.serve").joinpath("static", "dom.js").read_text(encoding="utf-8")
    for characters in (HIDDEN, UNSEEN, ODD_SPACES):
        assert characters.pattern in page.replace("\\\\", "\\")


@pytest.mark.parametrize("character", ["\u00ad", "\u200c", "\u200d", "\ufe0f", "\u00a0", "\u202f"])
def test_a_character_that_is_all_that_differs_is_named_and_stays_where_nothing_differs(character):
    assert visible(f"a{character}b", differs=True) == f"a⟦U+{ord(character):04X}⟧b"
    assert "⟦" not in visible(f"a{character}b", differs=False)
