"""The benchmarks: their documents, their exact joins, and the pages that show their tables. None is run here."""

import itertools
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks import __main__, called, page, report, scans, servers, worked
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


class TestRuns:
    def test_a_process_calls_a_function_and_leaves_its_result(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", servers.call("reuters_source", "first_prime_above", number=7)[4:])
        called.main()
        assert json.loads((tmp_path / called.RESULT).read_text()) == 11

    @pytest.mark.parametrize(
        ("asked", "names"),
        [
            (["--group", "quality"], ["quality", "adviser"]),
            (["worked", "against"], ["worked"]),
            (["--against", "other"], ["against"]),
            (["worked", "--against", "other"], ["worked", "against"]),
        ],
    )
    def test_another_checkout_is_compared_only_where_it_is_named(self, tmp_path, monkeypatch, asked, names):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "other" / ".venv" / "bin").mkdir(parents=True)
        (tmp_path / "other" / ".venv" / "bin" / "python").touch()
        monkeypatch.setattr(sys, "argv", ["benchmarks", *asked])
        planned = dict(__main__.runs(__main__.parse_arguments()))
        assert list(planned) == names
        assert planned.get("against", {}) == ({"other": Path("other")} if "against" in names else {})

    @pytest.mark.parametrize("fault", [None, "the pairs differ"])
    def test_a_run_writes_its_report_and_then_fails_by_the_fault(self, tmp_path, monkeypatch, capsys, fault):
        made = Report({"documents": 3}, {"rates": TABLE}, fault)
        monkeypatch.setattr(worked, "main", lambda *, quick: made if quick else None)
        with pytest.raises(SystemExit) as ended:
            report.run("worked", tmp_path / "new", quick=True)
        assert ended.value.code == fault
        written = json.loads((tmp_path / "new" / "worked.json").read_text())
        assert (written["name"], written["quick"], written["setting"]["documents"]) == ("worked", True, 3)
        assert "machine" in written["setting"]
        assert written["tables"] == {"rates": {"columns": TABLE.columns, "rows": TABLE.rows}}
        shown = capsys.readouterr().out
        assert all(part in shown for part in ("## worked (quick", "documents: 3", TABLE.text()))


class TestPages:
    PAGE = "Before\n<!-- bench: stages.rates -->\nold\n<!-- end of bench -->\nafter"

    @pytest.fixture
    def results(self, tmp_path):
        made = Report(setting={"documents": 3}, tables={"rates": TABLE})
        return {"stages": json.loads(made.write("stages", tmp_path, quick=False).read_text())}

    def test_a_table_is_rewritten_and_the_rest_left_alone(self, results):
        written = page.render(self.PAGE, results)
        assert written == self.PAGE.replace("old\n", f"\n{TABLE.markdown()}\n")
        assert page.render(written, results) == written
        assert page.render(self.PAGE, {}) == self.PAGE

    @pytest.mark.parametrize("path", page.pages(), ids=lambda path: path.stem)
    def test_a_table_is_in_one_page(self, path):
        text = path.read_text(encoding="utf-8")
        assert text.count("<!-- bench: ") == len(page.BLOCK.findall(text))
        for match in page.BLOCK.finditer(text):
            assert "| --- |" in match[0]
            assert f"## {match[3]}\n" not in (page.MEASUREMENTS / f"{match[2]}.md").read_text(encoding="utf-8")

    def test_the_page_of_a_benchmark_has_the_tables_that_no_other_page_shows(self, results):
        made = results["stages"]
        assert TABLE.markdown() in page.raw_page(made, {"other.rates"})
        assert TABLE.markdown() not in page.raw_page(made, {"stages.rates"})

    def test_only_benchmarks_that_a_page_shows_or_links_to_are_written(self, results, tmp_path, monkeypatch, capsys):
        (tmp_path / "measurements").mkdir()
        (tmp_path / "measurements.md").write_text("[latency](measurements/latency.md)\n" + self.PAGE)
        made = {name: results["stages"] | {"name": name} for name in ("stages", "latency", "growth")}
        monkeypatch.setattr(page, "DOCS", tmp_path)
        monkeypatch.setattr(page, "MEASUREMENTS", tmp_path / "measurements")
        monkeypatch.setattr(page, "result_of", made.get)
        monkeypatch.setattr("sys.argv", ["page", *made])
        page.main()
        assert capsys.readouterr().out == "written: latency, stages\n"
        assert [path.name for path in (tmp_path / "measurements").iterdir()] == ["latency.md"]

    def test_every_raw_page_is_of_a_benchmark_and_ends_with_its_setting(self):
        for path in page.MEASUREMENTS.glob("*.md"):
            assert path.stem in [*__main__.names_of(), "defaults"]  # pairs that were read by hand
            assert "\n## Setting\n" in path.read_text(encoding="utf-8")
