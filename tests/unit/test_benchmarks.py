"""The benchmarks: their documents, their exact joins, and the pages that show their tables. None is run here."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import __main__, page, scans, worked
from benchmarks.report import Report, Table

TABLE = Table(["one core", "documents/s"], [["ours", "12,000"], ["theirs", "900"]])


class TestPairs:
    @given(st.lists(st.sets(st.integers(0, 12), max_size=8), max_size=12), st.sampled_from([0.1, 0.5, 0.8, 1.0]))
    def test_the_exact_join_finds_the_pairs_of_comparing_every_pair(self, sets, threshold):
        hashes = np.array([value for members in sets for value in members], np.int64)
        pairs = scans.all_pairs(hashes, np.cumsum([0, *map(len, sets)]), threshold)
        expected = {
            (left, right)
            for left, right in itertools.combinations(range(len(sets)), 2)
            if sets[left] & sets[right] and len(sets[left] & sets[right]) / len(sets[left] | sets[right]) >= threshold
        }
        assert scans.as_set(pairs) == expected


class TestSource:
    def test_the_worked_examples_have_their_known_answers(self):
        rows = [*worked.shingles(), *worked.bags(), *worked.minhash(), *worked.bands(), *worked.arithmetic()]
        assert len(rows) > 20
        assert [example for example, computed, answer in rows if computed != answer] == []


class TestPages:
    PAGE = "Before\n<!-- bench: stages.rates -->\nold\n<!-- end of bench -->\nafter"

    @pytest.fixture
    def results(self, tmp_path):
        report = Report(setting={"documents": 3}, tables={"rates": TABLE})
        return {"stages": json.loads(report.write("stages", tmp_path, quick=False).read_text())}

    def test_a_table_is_rewritten_and_the_rest_left_alone(self, results):
        written = page.render(self.PAGE, results)
        assert written == self.PAGE.replace("old\n", f"\n{TABLE.markdown()}\n")
        assert page.render(written, results) == written
        assert page.render(self.PAGE, {}) == self.PAGE

    @pytest.mark.parametrize("path", page.pages(), ids=lambda path: path.stem)
    def test_a_page_shows_the_tables_of_the_raw_pages(self, path):
        text = path.read_text(encoding="utf-8")
        assert text.count("<!-- bench: ") == len(page.BLOCK.findall(text))
        for match in page.BLOCK.finditer(text):
            raw = (page.MEASUREMENTS / f"{match[2]}.md").read_text(encoding="utf-8")
            shown = match[0].partition("-->\n\n")[2].rpartition("\n\n<!--")[0]
            assert "| --- |" in shown
            assert f"## {match[3]}\n\n{shown}\n" in raw, match[1]

    def test_every_raw_page_is_of_a_benchmark_and_ends_with_its_setting(self):
        for path in page.MEASUREMENTS.glob("*.md"):
            assert path.stem in [*__main__.names_of(), "defaults"]  # pairs that were read by hand
            assert "\n## Setting\n" in path.read_text(encoding="utf-8")
