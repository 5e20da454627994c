"""Pages and code are free of retired words (tests.words)."""

from pathlib import Path

import pytest

from tests import words

PAGES = sorted([*words.ROOT.glob("*.md"), *(words.ROOT / "docs").glob("*.md")])


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_a_page_has_no_retired_word(page):
    assert not words.in_page(page.relative_to(words.ROOT).as_posix(), page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("folder", words.folders())
def test_identifiers_of_a_folder_have_no_retired_word(folder):
    assert not words.in_identifiers(folder)


@pytest.mark.parametrize("folder", words.folders())
def test_docstrings_and_comments_of_a_folder_have_no_retired_phrase(folder):
    assert not words.in_docstrings(folder)


def test_every_class_of_the_package_has_a_name_of_its_own():
    assert [name for name, count in words.class_names().items() if count > 1] == []


def test_a_retired_word_is_found_in_prose_and_not_in_examples_and_names():
    page = "Whoever reads `take out` here\n\n```text\nwhoever\n```\n\nmeets [it](whoever.md).\n"
    assert words.in_page("page.md", page) == [
        "page.md:1: 'Whoever' (use: the noun that is meant)",
        "page.md:7: 'meets' (use: finds, looks up, shares a bucket with)",
    ]


def test_identifiers_are_split_into_words():
    assert words.parts_of("enterShelfOfCrowd_JSONLife") == ["enter", "shelf", "of", "crowd", "json", "life"]
    assert words.is_retired("shelf", words.PACKAGE / "index" / "memory.py")
    assert not words.is_retired("rights", words.PACKAGE / "kafka" / "topics.py")


def test_defined_names_are_found(tmp_path):
    module = tmp_path / "shelf.py"
    module.write_text("class Loud:\n    era = 1\n\n    def enter(self, portion):\n        self.met = draft = portion\n")
    assert set(words.names_of(Path(module))) == {"shelf", "Loud", "era", "enter", "self", "portion", "met", "draft"}
