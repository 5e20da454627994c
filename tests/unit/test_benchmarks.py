"""What the benchmarks share: their documents, their tables, and the page that shows them. None is run here."""

import gzip
import itertools
import json
import re
import sys

import pytest

from benchmarks import corpus, open_sets, page, quality, quality_tables, scripts, templates
from benchmarks.places import PAGE, QUALITY_PAGE
from benchmarks.report import Report, Table
from streamdedup.text import ShingleOptions, Shingler

PAGES = (PAGE, QUALITY_PAGE)
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


class TestScripts:
    def test_texts_of_a_script_have_the_length_and_the_letters_asked_for(self):
        for script in scripts.SCRIPTS.values():
            texts = scripts.made(script, 2, 90)
            assert [len(text) for text in texts] == [90, 90]
            assert set("".join(texts)) <= {*script.letters, *"".join(script.marks), *", "}

    def test_a_mixed_text_has_parts_of_four_scripts(self):
        (mixed,) = scripts.mixed([["a" * 40], ["b" * 40], ["c" * 40], ["d" * 40], ["e" * 40]])
        assert sorted(mixed.split()) == ["a" * 10, "b" * 10, "d" * 10, "e" * 10]


class TestTemplates:
    def test_pairs_that_an_option_loses_and_gains_are_counted_by_kind(self):
        kinds = {(0, 1): "same text", (0, 2): "frame only", (1, 2): "copy"}
        collection = templates.Collection([], kinds.__getitem__)
        row = templates.row("x", collection, {(0, 1), (0, 2)}, {(0, 2), (1, 2)})
        assert row == ["x", "2", "1", "0", "1", "1", "0", "0", "1"]

    def test_a_frame_that_makes_texts_alike_does_not_when_it_is_left_out(self, monkeypatch, tmp_path):
        monkeypatch.setattr(templates, "REPOSITORY", tmp_path)
        frame = " ".join(f"notice{word}" for word in range(60))
        texts = [f"{' '.join(f'w{story}x{word}' for word in range(5))} {frame}" for story in range(6)]
        collection = templates.Collection(texts, lambda _: "frame only")
        rows = {row[0].split(", ")[1]: row[1:3] for row in templates.rows_of("bbc_news", collection, 0.8)}
        assert rows["default"] == ["15", "15"]
        assert rows["stop shingles 5%"] == ["0", "0"]


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

    @pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
    def test_a_page_shows_something_in_every_place(self, path):
        text = path.read_text(encoding="utf-8")
        places = page.BLOCK.findall(text)
        assert len(places) == text.count("<!-- bench: ") > 3
        assert len({(name, table) for _, name, table, _ in places}) == len(places)
        for match in page.BLOCK.finditer(text):
            assert re.search(r"^(\| |- )", match[0], re.MULTILINE), match[2]


class TestQuality:
    @pytest.fixture
    def folder(self, tmp_path):
        """A folder with a set of long texts and one of short ones, each with a pair, an empty text and an id twice."""
        long = " ".join(f"word{number}" for number in range(150))
        for name, text in (("long", long), ("short", "the ferry runs again on the first of May")):
            texts = [("a", text), ("b", f"{text}!"), ("c", ""), ("b", "something else"), ("d", "nothing of the kind")]
            lines = "".join(json.dumps({"id": one, "text": words}) + "\n" for one, words in texts * 3)
            (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
        return tmp_path

    def test_short_texts_are_compared_by_both_profiles_and_long_ones_as_articles(self, folder):
        sets = {one.name: one for one in map(open_sets.read, open_sets.files(folder))}
        assert sets["long"].profiles == ("articles",)
        assert sets["short"].profiles == ("reviews", "articles")
        assert [document.id for document in sets["long"].documents] == ["a", "b", "d"]

    def test_small_sets_are_pooled_and_all_of_it_is_written(self, folder, tmp_path, monkeypatch, capsys):
        command = ["quality", "--no-daemon", "--data", str(folder), "--output", str(tmp_path / "out")]
        monkeypatch.setattr(sys, "argv", command)
        quality.main()
        result = json.loads((tmp_path / "out" / "quality.json").read_text())
        assert [row[:4] for row in result["tables"]["exact"]["rows"]] == [
            ["3 with fewer than 100", "", "0.8", "3"],
            ["3 with fewer than 100", "", "0.5", "3"],
        ]
        assert len(result["tables"]["whole"]["rows"]) == len(result["results"]["sets"]) == 6
        assert "written: " in capsys.readouterr().out

    def test_a_set_with_enough_pairs_has_a_line_of_its_own(self, folder, monkeypatch):
        monkeypatch.setattr(quality_tables, "ENOUGH_PAIRS", 1)
        one = open_sets.read(folder / "long.jsonl.gz")
        tables = quality_tables.all_tables(quality._measure(one, None, (0.8,)))
        assert tables["exact"].rows == [
            ["long", "articles", "0.8", "1", "1.0000", "0.2065 - 1.0000", "1", "1.0000"],
        ]
        assert tables["daemon"].rows == []

    def test_what_higher_limits_bring_is_set_side_by_side(self, tmp_path, monkeypatch):
        monkeypatch.setattr(quality_tables, "ENOUGH_PAIRS", 1)
        texts = [" ".join(f"word{number}" for number in range(start, 800)) for start in (0, 1)]
        lines = "".join(json.dumps({"id": str(at), "text": text}) + "\n" for at, text in enumerate(texts))
        (tmp_path / "long.jsonl.gz").write_bytes(gzip.compress(lines.encode()))
        one = open_sets.read(tmp_path / "long.jsonl.gz")
        limited = quality._with_limits(one, quality._measure(one, None, (0.8,)))
        rows = {row[1]: row for row in quality_tables.limits(limited).rows}
        assert list(rows) == list(quality.EXACT_LIMITS)
        assert rows["512"][5] == "512"
        assert rows["8192"][5] == rows["none"][5] == f"{4 * 797.5:,.0f}"

    def test_a_folder_without_sets_is_named(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sys, "argv", ["quality", "--data", str(tmp_path / "nowhere")])
        with pytest.raises(SystemExit, match=r"no sets .* in .*nowhere; name a folder: QUALITY_DATA=FOLDER"):
            quality.main()
