"""What the benchmarks share: their documents, their tables, and the page that shows them. None is run here."""

import gzip
import itertools
import json
import re
import sys
import unicodedata
from base64 import b64decode
from pathlib import Path

import numpy as np
import pytest

from benchmarks import (
    __main__,
    boilerplate,
    boilerplate_share,
    containment,
    corpus,
    growth,
    latency,
    load,
    lookups,
    open_sets,
    page,
    paywall,
    quality,
    quality_summary,
    quality_tables,
    scale,
    scripts,
    serve,
    suppression,
    vegeta,
    world,
)
from benchmarks.places import LIBRARY_PAGE, PAGE, QUALITY_PAGE
from benchmarks.report import Report, Table
from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.truth import shingle_sets
from streamdedup.text.shingles import ShingleOptions, Shingler

PAGES = (PAGE, QUALITY_PAGE, LIBRARY_PAGE)
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
            assert set("".join(texts)) <= {*"".join(script.letters), *"".join(script.marks), *", "}

    def test_texts_in_vietnamese_have_letters_with_two_marks(self):
        (text,) = scripts.made(scripts.SCRIPTS["Vietnamese, separate accents"], 1, 400)
        assert any(
            unicodedata.combining(one) and unicodedata.combining(other) for one, other in itertools.pairwise(text)
        )

    def test_a_mixed_text_has_parts_of_four_scripts(self):
        (mixed,) = scripts.mixed([["a" * 40], ["b" * 40], ["c" * 40], ["d" * 40], ["e" * 40]])
        assert sorted(mixed.split()) == ["a" * 10, "b" * 10, "d" * 10, "e" * 10]


class TestBoilerplate:
    def test_pairs_that_an_option_loses_and_gains_are_counted_by_kind(self):
        kinds = {(0, 1): "same text", (0, 2): "boilerplate only", (1, 2): "copy"}
        collection = boilerplate.Collection([], kinds.__getitem__)
        row = boilerplate.row("x", collection, {(0, 1), (0, 2)}, {(0, 2), (1, 2)})
        assert row == ["x", "2", "1", "0", "1", "1", "0", "0", "1"]

    def test_boilerplate_makes_texts_alike_unless_it_is_left_out(self, monkeypatch, tmp_path):
        monkeypatch.setattr(boilerplate, "REPOSITORY", tmp_path)
        frame = " ".join(f"notice{word}" for word in range(60))
        texts = [f"{' '.join(f'w{story}x{word}' for word in range(5))} {frame}" for story in range(6)]
        collection = boilerplate.Collection(texts, lambda _: "boilerplate only")
        rows = {row[0].split(", ")[1]: row[1:3] for row in boilerplate.rows_of("bbc_news", collection, 0.8)}
        assert rows["default"] == ["15", "15"]
        assert rows["stop shingles 5%"] == ["0", "0"]

    def test_a_notice_of_one_source_is_left_out_by_source_only(self, monkeypatch, tmp_path):
        monkeypatch.setattr(boilerplate, "REPOSITORY", tmp_path)
        notice = " ".join(f"notice{word}" for word in range(60))
        parts = [(f"{' '.join(f'w{story}x{word}' for word in range(5))}", story < 6) for story in range(300)]
        texts = [f"{words} {notice}" if has_notice else words for words, has_notice in parts]
        sources = ["small" if at < 100 else "large" for at in range(300)]
        collection = boilerplate.Collection(texts, lambda _: "boilerplate only", sources)
        rows = {row[0].split(", ")[1]: row[1] for row in boilerplate.rows_of("masakhane_news", collection, 0.8)}
        assert rows["default"] == rows.get("stop shingles 5%", "15") == "15"
        assert rows["stop shingles 5% by source"] == "0"

    def test_the_articles_with_a_notice_are_those_of_one_source_and_no_copies(self, monkeypatch, tmp_path):
        monkeypatch.setattr(paywall, "FILE", tmp_path / "news.jsonl")
        assert paywall.articles() == []
        words = " ".join(f"w{word}" for word in range(25))
        lines = [
            {"id": f"{lang}{at}", "text": f"{words} {at}", "lang": lang} for lang in ("eng", "fra") for at in range(50)
        ]
        lines += [{**lines[0], "id": "copy"}]
        paywall.FILE.write_text("\n".join(map(json.dumps, lines)), encoding="utf-8")
        articles = paywall.articles()
        with_notice = [one for one in articles if one.text != one.original]
        assert [one.id for one in with_notice] == [f"eng{at}" for at in range(50)]
        assert all(one.text == f"{one.original}\n\n{paywall.NOTICE}" for one in with_notice)
        assert [one.source for one in articles] == ["eng"] * 50 + ["fra"] * 50 + ["eng"] + [paywall.SECOND_SOURCE] * 40
        assert [one.text for one in articles[-40:]] == [one.original for one in with_notice[:40]]

    def test_stop_shingles_and_rules_together_leave_only_real_pairs(self, tmp_path):
        def story(at: int) -> str:
            return " ".join(f"w{at}x{word}" for word in range(25))

        base = [
            paywall.Article(f"teaser{at}", f"{story(at)}\n\n{paywall.NOTICE}", "eng", story(at)) for at in range(20)
        ]
        base += [paywall.Article(f"again{at}", story(at), "agency", story(at)) for at in range(5)]
        base += [paywall.Article(f"plain{at}", story(100 + at), "eng", story(100 + at)) for at in range(180)]
        made = suppression.collection(base)
        found = {(stop, rule): one for stop, rule, one in suppression.measure(made, tmp_path)}
        before, only_stops = found["none", "no rule"], found["5% within each source", "no rule"]
        assert before.of_notice == 120 * 119 // 2
        assert (before.within, before.between) == (60, 0)
        assert (only_stops.of_notice, only_stops.within, only_stops.between) == (100 * 99 // 2, 60, 5)
        assert found["none", "both rules"].of_notice == 70 * 50
        both = found["5% within each source", "both rules"]
        assert both == (0, 0, 5, {"min_shingles": 4_950, "ignore_same_source": 60})


class TestLatency:
    @pytest.mark.parametrize("rate", latency.RATES)
    def test_a_near_duplicate_follows_its_original_after_about_a_second_and_its_alert_is_awaited(self, rate):
        words = (" ".join(f"w{number}x{word}" for word in range(60)) for number in range(10**9))
        texts = list(latency.in_pairs(words, rate, 3 * rate))
        copies = [number for number in range(3 * rate) if latency.is_copy(number, rate)]
        lag = latency.lag_of(rate)
        assert rate <= lag <= rate + 1
        assert len(copies) >= rate / 20
        assert all(load.is_awaited(latency.key_of(number, rate).encode()) for number in copies)
        assert not any(latency.is_copy(number - lag, rate) for number in copies)
        assert similarity(texts[copies[-1]], texts[copies[-1] - lag]) > 0.9
        assert not load.is_awaited(latency.key_of(copies[-1] - lag, rate).encode())

    def test_a_row_of_the_table_has_both_contenders_at_one_rate(self):
        found = [
            latency.Measured(name, rate, 100, 0, p50, p50 * 2, p50 * 3, 0.1, 0.0)
            for rate, p50 in ((20, 8.4), (1_000, 20.0))
            for name in (latency.BARE, latency.OURS)
        ]
        assert latency.table(found).rows == [["20/s", "8", "17", "8", "17"], ["1,000/s", "20", "40", "20", "40"]]


class TestGrowth:
    TEXTS = ("The ferry runs again on 1 May 1987.", "The ferry runs again on 1 May 1988.", "Something else.", "")

    def test_the_first_copy_has_the_shingles_of_the_articles(self):
        shingles = Shingler(ShingleOptions()).shingle(self.TEXTS)
        made = growth.CopyShingler(shingles).shingle(["0 2", "0 0", "0 3", "0 1"])
        for row, article in enumerate((2, 0, 3, 1)):
            assert list(self.row(made, row)) == list(self.row(shingles, article))
            assert made.token_counts[row] == shingles.token_counts[article]

    def test_copies_have_the_similarities_of_the_articles_and_none_between_each_other(self):
        made = growth.CopyShingler(Shingler(ShingleOptions()).shingle(self.TEXTS)).shingle(["0 0", "0 1", "7 0", "7 1"])
        first, second, third, fourth = (set(self.row(made, row)) for row in range(4))
        assert 0 < len(first & second) == len(third & fourth) < len(first) == len(third)
        assert not (first | second) & (third | fourth)
        assert all((np.diff(self.row(made, row).astype(np.int64)) > 0).all() for row in range(4))

    def test_sizes_that_were_not_measured_are_named(self):
        points = [
            growth.Point("Redis", "sets", 10, 50.0, 9.0, 8_000.0, 2_000.0),
            growth.Point("Valkey", "sets", 10, 40.0, 9.0, 9_000.0, 1_000.0),
            growth.Point("Redis", "sets", 20, 60.0, 9.0, 7_000.0, 2_000.0),
        ]
        points += [growth.Point("Redis", growth.BARE, size, 20.0, 60.0, 4_000.0, 1_300.0) for size in (10, 20)]
        assert growth.left_out(points, [10, 20]) == ["sets at 20 on Valkey"]
        assert [row[:5] for row in growth.costs(points).rows] == [
            ["Redis", '"sets"', "10", "50.0", "1.00"],
            ["Valkey", '"sets"', "10", "40.0", "1.00"],
            ["Redis", '"sets"', "20", "60.0", "1.20"],
            ["Redis", "bare commands", "10", "20.0", "1.00"],
            ["Redis", "bare commands", "20", "20.0", "1.00"],
        ]

    @staticmethod
    def row(made, at):
        return made.hashes[made.offsets[at] : made.offsets[at + 1]]


class TestScale:
    def measured(self, daemon_us, redis_us, kafka_us):
        used = {"consumer": daemon_us, "Redis": redis_us, "Kafka": kafka_us}
        return world.Round(1_000, 1.0, 1_000.0, used, {}, 0.0, 0)

    def test_the_process_with_the_least_capacity_limits(self):
        one = self.measured(50.0, 40.0, 10.0)
        found = scale.capacity(scale.Setup(1, 1), one)
        assert (found.daemons, found.redis, found.kafka) == (20_000, 25_000, 100_000)
        assert (found.limit, found.most, round(found.least)) == ("daemon", 20_000, 11_111)
        assert scale.capacity(scale.Setup(2, 1), one).limit == "Redis"
        assert scale.capacity(scale.Setup(8, 8), one).limit == "Kafka"

    def test_setups_that_were_not_measured_are_computed_from_the_nearest(self):
        best = {setup: self.measured(50.0, 40.0 * setup.masters, 10.0) for setup in scale.SETUPS}
        rows = {row[0]: row[1:] for row in scale.cores(best).rows}
        assert rows["4 daemons, 1 Redis"] == ["80,000", "25,000", "100,000", "25,000 to 25,000", "Redis"]
        assert rows["4 daemons, 2 Redis in a cluster"][1] == "25,000"


class TestRuns:
    def runs(self, monkeypatch, *words):
        monkeypatch.setattr(sys, "argv", ["benchmarks", *words])
        return list(__main__.runs(__main__.parse_arguments()))

    def test_all_run_unless_some_are_named(self, monkeypatch):
        assert [name for name, _ in self.runs(monkeypatch)] == list(__main__.NAMES)
        assert self.runs(monkeypatch, "--large", "growth", "store") == [("growth", ["--large"]), ("store", [])]

    def test_the_comparison_with_another_checkout_runs_alone_or_after_those_named(self, monkeypatch, tmp_path):
        assert self.runs(monkeypatch, "--against", str(tmp_path)) == [("against", [str(tmp_path)])]
        assert [name for name, _ in self.runs(monkeypatch, "--against", str(tmp_path), "store")] == ["store", "against"]


class TestTables:
    def test_numbers_are_aligned_right_on_the_screen(self):
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

    def test_the_machine_is_named(self, result):
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
        assert len(places) == text.count("<!-- bench: ") >= 2
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

    def test_a_document_has_the_source_that_the_field_of_its_set_names(self, tmp_path):
        for name in ("masakhane_news", "other"):
            languages = enumerate(("eng", "", None))
            lines = (json.dumps({"id": str(at), "text": "x", "lang": language}) for at, language in languages)
            (tmp_path / f"{name}.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
        sets = {one.name: one.sources for one in map(open_sets.read, open_sets.files(tmp_path))}
        assert sets == {"masakhane_news": ["eng", None, None], "other": [None] * 3}

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
        summary = result["tables"]["summary"]
        assert [row[:5] for row in summary["rows"]] == [
            [name, profile, seed, "1", "1.0000"]
            for name, profile in (("long", "articles"), ("short", "reviews"), ("short", "articles"))
            for seed in ("default", "2")
        ]
        assert [row[-2:] for row in summary["rows"]] == [
            ["", ""] if profile == "reviews" else ["0 of 1 (0.0%)"] * 2
            for profile in ("articles", "reviews", "articles")
            for _ in quality.SEEDS
        ]
        assert len(result["tables"]["boilerplate"]["rows"]) == 2
        assert "written: " in capsys.readouterr().out

    def test_a_set_with_enough_pairs_has_a_line_of_its_own(self, folder, monkeypatch):
        monkeypatch.setattr(quality_tables, "ENOUGH_PAIRS", 1)
        one = open_sets.read(folder / "long.jsonl.gz")
        tables = quality_tables.all_tables(quality._measure(one, None, (0.8,)))
        assert tables["exact"].rows == [
            ["long", "articles", "0.8", "1", "1.0000", "0.2065 - 1.0000", "1", "1.0000"],
        ]
        assert tables["daemon"].rows == []

    def test_higher_limits_are_compared_side_by_side(self, tmp_path, monkeypatch):
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


class TestContainment:
    def test_all_pairs_of_large_texts_with_enough_in_common_exist_without_any_band(self):
        draw = np.random.default_rng(5)
        texts = [" ".join(f"w{word}" for word in draw.integers(0, 60, draw.integers(10, 60))) for _ in range(60)]
        texts += [f"{text} {texts[0]}" for text in texts[:30]]
        sets = shingle_sets(Shingler(ShingleOptions(size=1)), texts)
        members = [frozenset(sets.of(document).tolist()) for document in range(len(texts))]
        expected = {
            (a, b)
            for a, b in itertools.combinations(range(len(texts)), 2)
            if min(len(members[a]), len(members[b])) >= containment.MIN_SHINGLES
            and len(members[a] & members[b]) >= containment.CONTAINMENT * min(len(members[a]), len(members[b]))
        }
        found = containment.contained_pairs(sets)
        assert set(zip(found.left.tolist(), found.right.tolist(), strict=True)) == expected
        assert len(expected) > 30

    def test_a_set_is_measured_with_and_without_the_rule(self, tmp_path):
        story = " ".join(f"word{at}" for at in range(200))
        texts = {"short": story, "long": f"{story} {' '.join(f'more{at}' for at in range(120))}", "copy": story}
        documents = [corpus.Text(name, text) for name, text in texts.items()]
        (found,) = containment.measure(open_sets.Set("stories", tmp_path, documents, [None] * 3), (1, 2))
        counts = found.existing, found.within_reach, found.by_threshold, found.by_rule, found.more, found.right
        assert counts == (3, 3, 1, 3, 2, 2)
        assert (found.without.bands, found.with_rule.bands) == ("9 x 4", "35 x 3")
        assert containment.table([found]).rows[0][:8] == ["stories", "articles", "3", "3", "1", "3", "2", "1.0000"]
        assert json.loads(json.dumps(found.plain()))["with_rule"]["pairs"] == 3
        assert {seed: (rate.hits, rate.total) for seed, rate in found.recalls.items()} == {1: (2, 2), 2: (2, 2)}


class TestBoilerplateShare:
    """A source with a notice below short stories, one without it, and copies of two stories."""

    @staticmethod
    def story(at: int) -> str:
        return " ".join(f"w{at}x{word}" for word in range(12))

    def documents(self) -> list[tuple[str, str]]:
        notice = " ".join(f"notice{word}" for word in range(150))
        with_notice = [(f"{self.story(at)} {notice}", "daily") for at in range(20)]
        plain = [(self.story(100 + at), "daily") for at in range(180)]
        return [*with_notice, *plain, *((self.story(500 + at), "evening") for at in range(120)), *plain[:2]]

    def as_set(self, tmp_path: Path) -> open_sets.Set:
        texts, sources = zip(*self.documents(), strict=True)
        return open_sets.Set(
            "news", tmp_path, [corpus.Text(str(at), text) for at, text in enumerate(texts)], list(sources)
        )

    def test_pairs_of_a_notice_are_boilerplate_and_a_file_of_half_of_the_documents_removes_them(self, tmp_path):
        made = self.as_set(tmp_path)
        alerted = {
            seed: quality._evaluated(made, "articles", 0.8, seed=seed).evaluation.findings.pairs for seed in (1, 2)
        }
        found = boilerplate_share.measure(made, alerted)
        notice_pairs = 20 * 19 // 2
        for seed, shares in found.shares.items():
            # Not every pair of the notice is found; the copies are.
            assert shares.before.hits + 2 == shares.before.total == len(alerted[seed].left) > 0.9 * notice_pairs
            assert (shares.after.hits, shares.after.total) == (0, 2)
        assert found.sources == 2
        assert found.study.change == (notice_pairs + 2, 2, notice_pairs, 0)
        assert found.causes == [notice_pairs]
        row = boilerplate_share.table([found]).rows[0]
        assert (row[0], row[1], row[4:]) == ("news", "2", ["192", "2", "190", "0", "1", "190"])
        assert "notice1" not in json.dumps(found.plain())

    def test_a_set_without_boilerplate_has_the_same_pairs_after_as_before(self, tmp_path):
        made = self.as_set(tmp_path)
        few = made._replace(documents=made.documents[200:320], sources=made.sources[200:320])
        pairs = quality._evaluated(few, "articles", 0.8).evaluation.findings.pairs
        found = boilerplate_share.measure(few, {1: pairs})
        assert found.shares[1] == (Rate(0, 0), Rate(0, 0))
        line = quality_summary.Summary("few", "articles", 1, Rate(0, 0), Rate(0, 0), found.shares[1])
        assert quality_summary.table([line]).rows == [
            ["few", "articles", "1", "0", "", "", "0", "", "", "0 of 0", "0 of 0"]
        ]


class TestServe:
    def test_a_fourth_of_the_texts_is_known_and_each_is_looked_up_once(self):
        def texts(name, count):
            return [corpus.Text(f"{name}{at}", f"{name}{at} " * 50) for at in range(count)]

        documents = serve.Documents("made", [corpus.Text("short", "x"), *texts("known", 3)], [], texts("unknown", 9))
        found = list(serve.lookup_texts(documents, 12))
        assert len(set(found)) == 12
        assert [text.partition(" ")[0] for text in found[:5]] == [
            "known0",
            "unknown0",
            "unknown1",
            "unknown2",
            "known1",
        ]
        assert found[4].endswith("known1  repeated as number 4")

    def test_documents_of_different_fields_have_different_texts(self, monkeypatch):
        monkeypatch.setattr(corpus, "SAMPLE_DOCUMENTS", 5)
        monkeypatch.setattr(corpus, "REUTERS", Path("none"))
        documents = serve.documents_of(7, 3)
        assert [len(documents.indexed), len(documents.fed), len(documents.unknown)] == [5, 7, 3]
        assert len({text for field in documents[1:] for _, text in field}) == 15

    @pytest.mark.long  # `make test-all` installs the peers
    def test_a_copied_signature_resembles_no_other_and_keeps_the_similarities_of_its_copy(self):
        import datasketch  # noqa: PLC0415

        from benchmarks import peers  # noqa: PLC0415  needs datasketch

        signatures = []
        for words in (range(100), range(10, 110)):
            signature = datasketch.MinHash(num_perm=128)
            for word in words:
                signature.update(b"%d" % word)
            signatures.append(signature)
        first, second = signatures
        assert peers.copied(first, 0).jaccard(first) == 1.0
        assert peers.copied(first, 3).jaccard(first) == 0.0
        assert peers.copied(first, 3).jaccard(peers.copied(second, 3)) == first.jaccard(second) > 0.5

    def test_the_result_of_the_generator_is_read(self):
        written = {
            "requests": 10,
            "status_codes": {"200": 8, "0": 1, "429": 1},
            "duration": 1_500_000_000,
            "wait": 500_000_000,
            "latencies": {"50th": 5_000_000, "99th": 20_000_000, "max": 30_000_000},
        }
        assert vegeta.read_report(written) == vegeta.Load(10, 2, 4.0, 5.0, 20.0, 30.0)

    def test_requests_are_written_for_the_generator(self, tmp_path):
        path = vegeta.write_targets(tmp_path / "targets", "http://x/y", [{"text": "a"}, {"text": "ä"}])
        targets = [json.loads(line) for line in path.read_text().splitlines()]
        assert [json.loads(b64decode(target["body"])) for target in targets] == [{"text": "a"}, {"text": "ä"}]
        assert {target["url"] for target in targets} == {"http://x/y"}

    def test_ratios_above_one_are_to_our_advantage(self):
        ours = serve.Measured(serve.OURS, 5.0, 10.0, 15.0, 20.0, 0, 2.0, 1_000.0, 4_000.0)
        peer = serve.Measured(serve.PEER, 10.0, 50.0, 55.0, 60.0, 3, 6.0, 500.0, 400.0)
        rows = dict(serve.ratios([ours, ours, peer]).rows)
        assert list(rows.values()) == ["2.0", "5.0", "3.0", "2.0", "10.0"]
        assert serve.table([ours, peer]).rows[1] == [
            serve.PEER,
            "10.0",
            "50.0",
            "55.0",
            "60",
            "3",
            "6.00",
            "500",
            "400",
        ]


def test_the_parts_of_an_alert_are_joined_for_the_comparison_with_look_ups():
    def part(document_id, number, *matches):
        return json.dumps(
            {"document": {"id": document_id}, "part": number, "matches": [{"id": each} for each in matches]}
        )

    found = lookups.alerted([part("b", 2, "z"), part("a", 1, "x"), part("b", 1, "x", "y")])
    assert {each: [match["id"] for match in matches] for each, matches in found.items()} == {
        "a": ["x"],
        "b": ["x", "y", "z"],
    }
