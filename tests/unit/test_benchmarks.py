"""What the benchmarks share: their documents, their tables, and the page that shows them. None is run here."""

import itertools
import json
import re

import pytest

from benchmarks import corpus, page
from benchmarks.places import PAGE
from benchmarks.report import Report, Table
from streamdedup.text import ShingleOptions, Shingler

TABLE = Table(["one core", "documents/s"], [["ours", "12,000"], ["theirs", "900"]])


def similarity(one, other):
    """Jaccard similarity of the word 3-shingles of two texts."""
    shingles = Shingler(ShingleOptions()).shingle([one, other])
    left, right = (set(shingles.hashes[start:end]) for start, end in itertools.pairwise(shingles.offsets))
    return len(left & right) / len(left | right)


class TestDocuments:
    def test_a_copy_in_other_letters_has_the_pairs_of_the_first_and_none_with_it(self):
        texts = [
            "The ferry runs again on 1 May 1987.",
            "The ferry runs again on 1 May 1988.",
            "Something else entirely.",
        ]
        made = corpus.in_other_letters([corpus.Text(str(at), text) for at, text in enumerate(texts)])
        first, second = ([next(made) for _ in texts] for _ in range(2))
        assert [document.text for document in first] == texts
        assert second[0].text == "Uif gfssz svot bhbjo po 2 Nbz 2098."
        assert similarity(second[0].text, second[1].text) == similarity(first[0].text, first[1].text) > 0.5
        assert similarity(first[0].text, second[0].text) == 0
        assert len({document.id for document in first + second}) == 6

    def test_variations_of_the_sample_are_no_near_duplicates_of_each_other(self):
        documents = corpus.sample()
        made = corpus.variations([max(documents, key=lambda document: len(document.text))])
        one, other = next(made), next(made)
        assert one.id != other.id
        assert 0 < similarity(one.text, other.text) < 0.8

    def test_as_many_documents_as_wanted_are_made_of_the_sample(self, monkeypatch, tmp_path):
        monkeypatch.setattr(corpus, "REUTERS", tmp_path / "absent.tar.gz")
        found = corpus.load(1_000)
        assert found.name == "sample with variations"
        assert len({document.id for document in found.documents}) == 1_000


class TestTables:
    def test_numbers_stand_at_the_right_on_the_screen(self):
        assert TABLE.text() == "one core  documents/s\nours           12,000\ntheirs            900"

    def test_a_table_on_a_page_is_markdown(self):
        assert TABLE.markdown().splitlines()[:3] == ["| one core | documents/s |", "| --- | --: |", "| ours | 12,000 |"]


@pytest.fixture
def result(tmp_path):
    """Return what a benchmark leaves behind."""
    report = Report("speed", quick=False, setting={"documents": 3}, results=[1], tables={"rates": TABLE})
    return json.loads(report.write(tmp_path).read_text())


class TestPage:
    PAGE = "Before\n<!-- bench: speed.rates -->\nold\n<!-- end of bench -->\nafter"

    def test_a_table_is_written_anew_and_the_rest_left_alone(self, result):
        written = page.render(self.PAGE, {"speed": result}.__getitem__)
        assert written == self.PAGE.replace("old\n", f"\n{TABLE.markdown()}\n")
        assert page.render(written, {"speed": result}.__getitem__) == written

    def test_what_was_measured_on_is_named(self, result):
        written = page.render(self.PAGE.replace("rates", "setting"), {"speed": result}.__getitem__)
        assert "- documents: 3\n" in written
        assert f"{result['machine']['cores']} cores" in written
        assert f"numpy {result['versions']['numpy']}" in written

    def test_a_quick_run_is_not_shown(self, result):
        with pytest.raises(ValueError, match="--quick"):
            page.render(self.PAGE, lambda _: {**result, "quick": True})

    def test_the_page_shows_something_in_every_place(self):
        places = page.BLOCK.findall(PAGE.read_text(encoding="utf-8"))
        assert len(places) == PAGE.read_text(encoding="utf-8").count("<!-- bench: ")
        assert len({(name, table) for _, name, table, _ in places}) == len(places)
        for match in page.BLOCK.finditer(PAGE.read_text(encoding="utf-8")):
            assert re.search(r"^(\| |- )", match[0], re.MULTILINE), match[2]
