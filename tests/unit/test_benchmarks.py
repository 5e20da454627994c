"""The benchmarks: their documents, their exact joins, and the pages that show their tables. None is run here."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import __main__, page, scans, worked


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
    @pytest.mark.parametrize("path", page.pages(), ids=lambda path: path.stem)
    def test_a_table_is_in_one_page(self, path):
        text = path.read_text(encoding="utf-8")
        assert text.count("<!-- bench: ") == len(page.BLOCK.findall(text))
        for match in page.BLOCK.finditer(text):
            assert "| --- |" in match[0]
            assert f"## {match[3]}\n" not in (page.MEASUREMENTS / f"{match[2]}.md").read_text(encoding="utf-8")

    def test_every_raw_page_is_of_a_benchmark_and_ends_with_its_setting(self):
        for path in page.MEASUREMENTS.glob("*.md"):
            assert path.stem in [*__main__.names_of(), "defaults"]  # pairs that were read by hand
            assert "\n## Setting\n" in path.read_text(encoding="utf-8")
