"""``evaluate`` and ``neighbours`` as a user types them, in this process: no servers."""

import gzip
import html
import json
import os
import re
import sys

import pytest

from streamdedup.cli import main as cli
from streamdedup.cli.rendering.tuning_tables import share_text
from streamdedup.errors import EXIT_FAILED, EXIT_USAGE

#: Pairs of similarity 1 (a, b) and 0.7 (a, c and b, c); d is alone, f shares a run of words with a.
TEXTS = {
    "a": "the harbour lamp burns again tonight over the quiet bay",
    "b": "The harbour lamp burns again tonight over the quiet bay!",
    "c": "the harbour lamp burns again tonight over the quiet water of",
    "d": "nobody has seen a kingfisher near this bridge for years",
    "f": "we saw the harbour lamp and went home early that evening",
}


@pytest.fixture
def run(capsys):
    """Run a command line; returns exit code, standard output and standard error."""

    def run_command(*arguments):
        with pytest.raises(SystemExit) as exited:
            cli.main([str(argument) for argument in arguments])
        shown = capsys.readouterr()
        assert "Traceback" not in shown.err
        return exited.value.code or 0, shown.out, shown.err

    return run_command


@pytest.fixture
def results(run):
    """Run ``evaluate``; returns its JSON."""

    def run_evaluate(*arguments):
        code, out, _ = run("evaluate", *arguments, "--json")
        assert code == 0
        return json.loads(out)

    return run_evaluate


def written(path, texts=None, **sources):
    """Write documents, those that have a source with it."""
    lines = (
        json.dumps({"id": name, "text": text, "source": sources.get(name)}) for name, text in texts or TEXTS.items()
    )
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def judged(path, content):
    """Write a truth."""
    path.write_text(content, encoding="utf-8")
    return "--truth", path


@pytest.fixture
def corpus(tmp_path):
    return written(tmp_path / "corpus.jsonl")


def settings_with(tmp_path, *rules):
    """Return the options for a profile with rules about what is alerted."""
    path = tmp_path / "streamdedup.toml"
    servers = '[kafka]\nbootstrap_servers = "localhost:9092"\n[redis]\nurl = "redis://localhost:6379/0"\n'
    lines = [servers, "[profiles.articles]", 'topics = ["articles"]', "threshold = 0.6", "recall_from = 0.6", *rules]
    path.write_text("\n".join(lines), encoding="utf-8")
    return "--config", path


# scan


def test_scan_obeys_the_rules_of_the_profile_and_counts_them(run, tmp_path):
    corpus = written(tmp_path / "sourced.jsonl", a="daily", b="daily", c="evening")
    code, out, err = run("scan", corpus, *settings_with(tmp_path, "ignore_same_source = true"))
    assert code == 0
    assert [line.split("\t")[:2] for line in out.splitlines()] == [["a", "c"], ["b", "c"]]
    assert "containment of at least 0.8 (0 by containment), suppressed: 1 ignore_same_source; " in err
    rules = 'ignore_sources = [["evening", "daily"]]', "min_shingles = 1"
    code, out, err = run("scan", corpus, *settings_with(tmp_path, *rules))
    assert [line.split("\t")[:2] for line in out.splitlines()] == [["a", "b"]]
    assert "suppressed: 2 ignore_sources; " in err
    _, out, err = run("scan", corpus, *settings_with(tmp_path, 'only_sources = ["evening"]'))
    assert [line.split("\t")[:2] for line in out.splitlines()] == [["a", "c"], ["b", "c"]]
    _, _, err = run("scan", corpus, *settings_with(tmp_path))
    assert "suppressed" not in err


def test_scan_counts_documents_that_are_new_versions(run, corpus):
    assert "new versions" not in run("scan", corpus)[2]
    assert "new versions: 5 documents whose id occurred before\n" in run("scan", corpus, corpus)[2]


@pytest.mark.parametrize(
    "command",
    [("scan",), ("evaluate", "-t", "0.6"), ("neighbours", "--id", "a"), ("stop-shingles",), ("tune", "--time", "1")],
)
def test_the_section_that_an_example_prints_is_a_settings_file_for_commands_on_files(run, corpus, tmp_path, command):
    config = tmp_path / "news.toml"
    config.write_text(run("config", "example", "news")[1], encoding="utf-8")
    code, out, _ = run(*command, corpus, "--config", config)
    assert code == 0
    assert out
    code, _, err = run(*command, corpus, "--config", config, "--profile", "articles")
    assert code == EXIT_USAGE
    assert "has no profile articles; name one with --profile: news" in err


def test_a_recommendation_is_applied_to_a_file_without_servers(run, corpus, tmp_path, monkeypatch):
    config = tmp_path / "news.toml"
    config.write_text("\ufeff" + run("config", "example", "news")[1], encoding="utf-8")
    before = config.read_text(encoding="utf-8")
    code, _, err = run("tune", corpus, "--time", "1", "--config", config, "--apply", config)
    assert (code, config.read_text(encoding="utf-8")) == (EXIT_USAGE, before)
    assert "nothing is recommended: of 5 documents compared, 1,000 are the least" in " ".join(err.split())
    monkeypatch.setattr("streamdedup.tuning.results.LEAST_COMPARED", 5)
    # The threshold of the settings is kept, whichever others are compared.
    assert run("tune", corpus, "--time", "1", "-t", "0.7", "--config", config, "--apply", config)[0] == 0
    assert "bands = " in config.read_text(encoding="utf-8")
    assert "threshold = 0.5\n" in config.read_text(encoding="utf-8")


def test_an_output_that_cannot_be_written_is_told_before_the_corpus_is_read(run, tmp_path):
    code, _, err = run("scan", tmp_path / "absent.jsonl", "-o", tmp_path)
    assert (code, err) == (EXIT_FAILED, f"streamdedup: {tmp_path}: Is a directory\n")


@pytest.mark.parametrize("command", ["scan", "stop-shingles", "evaluate"])
def test_a_command_that_fails_leaves_no_new_file(run, tmp_path, command):
    assert run(command, tmp_path / "absent.jsonl", "-o", tmp_path / "new")[0] == EXIT_FAILED
    assert list(tmp_path.iterdir()) == []


def test_a_report_is_one_page_that_loads_nothing_and_shows_the_numbers_and_texts(run, tmp_path):
    """Texts of arbitrary senders are text."""
    hostile = '<script>document.title="taken"</script>&amp;'
    texts = [(f"{name}<b>", f"{text} {hostile}") for name, text in TEXTS.items()]
    corpus, report = written(tmp_path / "texts.jsonl", texts), tmp_path / "report.html"
    code, out, _ = run("tune", corpus, "--unit", "word", "--size", "3", "-t", "0.5", "--json", "--report", report)
    assert code == 0
    best, page = json.loads(out)["recommendation"], report.read_text(encoding="utf-8")
    assert "default-src 'none'" in page
    assert [text for text in ("<script", "http:", "https:") if text in page] == []
    assert html.escape(hostile, quote=False).split('"')[0] in page
    assert "a&lt;b&gt;" in page
    assert page.count("data:image/svg+xml;base64,") == 3
    shown = {name: html.unescape(text) for name, text in re.findall(r'data-figure="(\w+)">([^<]*)<', page)}
    assert shown["probability_at_recall_from"] == f"{best['probability_at_recall_from']:.4f}"
    assert shown["found_recall"] == share_text(best["found_recall"], best["pairs"])
    assert f"{best['bands']} x {best['rows']}" in page


def test_a_report_without_its_libraries_names_the_extra(run, corpus, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.delitem(sys.modules, "streamdedup.cli.rendering.tuning_report", raising=False)
    code, _, err = run("tune", corpus, "--report", tmp_path / "report.html")
    assert (code, err) == (EXIT_USAGE, "streamdedup: --report needs matplotlib: pip install 'streamdedup[report]'\n")


def test_a_report_is_not_written_over_the_file_of_apply(run, corpus, tmp_path):
    config, link = tmp_path / "news.toml", tmp_path / "link.html"
    config.write_text(content := "kafka.group_id = 'a'\n", encoding="utf-8")
    link.symlink_to(config)
    for report in (config, link):
        code, _, err = run("tune", corpus, "--time", "1", "--apply", config, "--report", report)
        assert (code, config.read_text(encoding="utf-8")) == (EXIT_USAGE, content)
        assert "--apply writes this file; name another one" in err


def test_pairs_below_the_default_are_found_with_the_recall_that_an_option_asks_for(run, results, tmp_path):
    texts = []
    for at in range(40):
        story = [f"w{at}x{place}" for place in range(40)]
        texts += [(f"{at}a", " ".join(story)), (f"{at}b", " ".join([*story[:-9], *(f"n{at}x{n}" for n in range(9))]))]
    corpus, options = written(tmp_path / "corpus.jsonl", texts), ("-t", "0.5", "--containment-threshold", "none")
    found = [len(run("scan", corpus, *options, *more)[1].splitlines()) for more in ([], ["--recall-from", "0.5"])]
    assert found[0] < found[1] == 40
    assert results(corpus, *options, "--recall-from", "0.5")["recall_from"] == 0.5


def test_a_time_up_to_which_the_daemon_is_silent_hides_no_pair_of_files(run, results, corpus, tmp_path):
    silent = settings_with(tmp_path, 'index_silently_until = "2026-05-01T00:00:00Z"')
    _, out, _ = run("scan", corpus, *silent)
    assert [line.split("\t")[:2] for line in out.splitlines()] == [["a", "b"], ["a", "c"], ["b", "c"]]
    recall = results(corpus, *silent)["recall"]
    assert recall["hits"] == recall["of"] == 3


@pytest.mark.parametrize("distance", [0, 10, 600])
def test_each_version_of_a_document_is_compared_however_soon_the_next_one_follows(run, tmp_path, distance):
    others = [(f"o{at}", f"w{at} x{at} y{at} z{at}") for at in range(distance)]
    texts = [("b", TEXTS["b"]), ("a", TEXTS["a"]), *others, ("a", TEXTS["d"]), ("c", TEXTS["a"]), ("c", TEXTS["a"])]
    code, out, err = run("scan", written(tmp_path / "texts.jsonl", texts))
    assert code == 0
    assert [line.split("\t")[:2] for line in out.splitlines()] == [["a", "b"], ["b", "c"]]
    assert "skipped: 1 redelivered" in err


# evaluate


def test_pairs_by_containment_are_scored_and_those_of_scan_are_read(run, results, tmp_path):
    story = " ".join(f"word{at}" for at in range(40))
    added = " ".join(f"more{at}" for at in range(25))
    corpus = written(tmp_path / "corpus.jsonl", [("short", story), ("long", f"{story} {added}"), ("other", added)])
    options = "--containment-threshold", "0.9"
    result = results(corpus, *options)
    assert (result["recall_from"], result["recall"]["of"], result["precision"]["hits"]) == (0.8, 0, 1)
    rule = {key: result["containment"][key] for key in ("threshold", "min_shingles")}
    assert rule == {"threshold": 0.9, "min_shingles": 20}
    assert result["containment"]["recall"]["hits"] == 1
    without = results(corpus, "--containment-threshold", "none")
    assert "containment" not in without
    assert without["precision"]["of"] == 0

    _, out, _ = run("evaluate", corpus, *options)
    assert "9 x 4 (bands x rows), 0.9913 expected at recall_from 0.8; by containment from 0.9; exact" in out
    assert "candidates: 0.3 a document\n" in out
    assert result["candidates_per_document"] == pytest.approx(1 / 3)
    assert any(line.split()[:4] == ["recall", "by", "containment", "1"] for line in out.splitlines())

    _, out, err = run("scan", corpus, *options)
    assert out == "long\tshort\t0.603175\t1.000000\tcontainment\n"
    assert "1 pair with similarity of at least 0.8 or containment of at least 0.9 (1 by containment)" in err
    result = results(corpus, *options, *judged(tmp_path / "pairs.tsv", out))
    assert (result["containment"]["recall"]["of"], result["precision"]["share"]) == (1, 1.0)


def test_suppressed_pairs_are_no_misses(run, results, tmp_path):
    corpus = written(tmp_path / "sourced.jsonl", a="daily", b="daily", c="evening")
    options = settings_with(tmp_path, "ignore_same_source = true", 'only_sources = ["daily"]')
    result = results(corpus, *options)
    assert (result["recall"]["hits"], result["recall"]["of"]) == (2, 2)
    assert (result["suppressed"], result["truth_pairs_suppressed"]) == ({"ignore_same_source": 1}, 1)
    _, out, _ = run("evaluate", corpus, *options)
    assert "suppressed: 1 ignore_same_source; of the truth 1 pair, not counted below\n" in out
    result = results(corpus, *options, *judged(tmp_path / "truth.tsv", "a\tb\na\tc\n"))
    assert (result["recall"]["of"], result["truth_pairs_suppressed"]) == (1, 1)


def test_short_texts_are_no_misses_under_min_shingles(results, corpus, tmp_path):
    result = results(corpus, *settings_with(tmp_path, "min_shingles = 9"))
    assert result["suppressed"] == {"min_shingles": result["truth_pairs_suppressed"]}
    assert result["recall"]["hits"] == result["recall"]["of"] == 3 - result["truth_pairs_suppressed"] < 3


def test_the_findings_are_scored_against_all_pairs(results, corpus):
    result = results(corpus, "--threshold", "0.6")
    assert result["documents"] == 5
    assert result["truth"] == "all pairs, by an exact join"
    assert (result["recall"]["hits"], result["recall"]["of"], result["recall"]["share"]) == (1, 1, 1.0)
    assert (result["precision"]["hits"], result["precision"]["share"]) == (3, 1.0)
    assert result["documents_per_second"] > 0


def test_a_reader_gets_a_table(run, corpus):
    code, out, err = run("evaluate", corpus, "--threshold", "0.6")
    assert (code, err) == (0, "")
    assert "5 documents, skipped: none; " in out
    assert "recall from 0.8                        1           1   1.0000\n" in out
    assert "documents without an alert             0           2   0.0000\n" in out
    assert "missed: 0 pairs" in out


def test_missed_pairs_are_named_with_the_reason(run, tmp_path):
    corpus = written(tmp_path / "texts.jsonl", [("one", "a b"), ("two", "a b"), ("three", "a b c d")])
    code, out, _ = run("evaluate", corpus, *settings_with(tmp_path, "min_words = 3"))
    assert code == 0
    assert "3 documents, skipped: 2 too_few_words" in out
    assert "1  document skipped or refused\n       1.0000  one  two" in out


def test_the_truth_may_come_from_a_file(results, corpus, tmp_path):
    pairs = tmp_path / "pairs.tsv.gz"
    pairs.write_bytes(gzip.compress(b"b\ta\t1.0\na\td\n\na\tb\na\tnobody\t1\n"))
    result = results(corpus, "--truth", pairs)
    assert (result["recall"]["hits"], result["recall"]["of"]) == (1, 2)
    assert result["precision"]["hits"] == 1
    assert result["truth_pairs_unknown"] == 1
    assert result["missed"] == {"similarity below the threshold": 1}
    assert result["missed_examples"] == [
        {"id1": "a", "id2": "d", "similarity": 0.0, "reason": "similarity below the threshold"}
    ]


def test_the_name_of_the_truth_need_not_be_utf8(run, corpus, tmp_path):
    output, truth = tmp_path / "output.txt", judged(tmp_path / os.fsdecode(b"p\xff.tsv"), "a\tb\n")
    assert run("evaluate", corpus, *truth, "--output", output)[0] == 0
    assert r"p\udcff.tsv" in output.read_text(encoding="utf-8")


def test_the_recall_of_a_truth_from_a_file_counts_all_of_its_pairs(run, corpus, tmp_path):
    truth = judged(tmp_path / "pairs.tsv", "a\tb\na\tc\n\n")
    code, out, _ = run("evaluate", corpus, *truth)
    assert code == 0
    assert f"truth: {truth[1]}\n" in out
    assert "recall                                 1           2   0.5000" in out


def test_judged_pairs_of_two_scopes_do_not_count(results, tmp_path):
    corpus = written(tmp_path / "scoped.jsonl", a="one", b="one", c="two", d="two", f="two")
    corpus.write_text(corpus.read_text(encoding="utf-8").replace('"source"', '"tenant"'), encoding="utf-8")
    result = results(corpus, "--scope-field", "tenant", *judged(tmp_path / "pairs.tsv", "a\tb\na\tc\n"))
    assert result["recall"]["of"] == 1


def test_of_documents_with_one_id_the_first_counts(run, tmp_path):
    corpus = written(tmp_path / "texts.jsonl", [("a", TEXTS["a"]), ("a", TEXTS["d"]), ("b", TEXTS["b"])])
    code, out, err = run("evaluate", corpus, "--json")
    assert code == 0
    assert err == "passed over: 1 document whose id occurred before\n"
    assert json.loads(out)["recall"]["of"] == 1


def test_nothing_to_evaluate_is_reported_without_numbers(run, tmp_path):
    (tmp_path / "empty.jsonl").write_text("")
    code, out, _ = run("evaluate", tmp_path / "empty.jsonl")
    assert code == 0
    assert "0 documents" in out
    assert "recall from 0.8                        0           0        -" in out


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["nowhere.jsonl"], EXIT_FAILED, "nowhere.jsonl"),
        (["{corpus}", "--truth", "nowhere.tsv"], EXIT_FAILED, "nowhere.tsv"),
        (["{corpus}", "--truth", "{bad}"], EXIT_FAILED, "bad.tsv:2: not a pair"),
        (["{corpus}", "--truth", "{same}"], EXIT_FAILED, "same.tsv:1: not a pair"),
        (["{corpus}", "--truth", "{gap}"], EXIT_FAILED, "gap.tsv:3: not a pair"),
        (["{corpus}", "--truth", "{strange}"], EXIT_FAILED, "names none of the documents"),
        (["{corpus}", "--truth", "{cut}"], EXIT_FAILED, "ends too early"),
        (["{corpus}", "--truth", "{damaged}"], EXIT_FAILED, "damaged.tsv: damaged compressed data"),
        (["{corpus}", "--truth", "{binary}"], EXIT_FAILED, "not UTF-8"),
        (["{corpus}", "--threshold", "1.5"], EXIT_USAGE, "profiles.articles.threshold"),
        ([], EXIT_USAGE, "files"),
    ],
)
def test_wrong_use_of_evaluate_is_answered_in_words(run, corpus, tmp_path, arguments, code, text):
    files = {
        "bad": b"a\tb\t0.9\na b\n",
        "same": b"a\ta\n",
        "gap": b"a\tb\n\na\ta\n",
        "strange": b"x\ty\n",
        "cut": gzip.compress(b"a\tb\n" * 99)[:-9],
        "damaged": gzip.compress(b"a\tb\n" * 99)[:10] + bytes([0xFF] * 20),
        "binary": b"\xff\xfe\x00",
    }
    names = {"corpus": corpus}
    for name, content in files.items():
        names[name] = tmp_path / f"{name}.tsv"
        names[name].write_bytes(content)
    ended, out, err = run("evaluate", *(argument.format(**names) for argument in arguments))
    assert ended == code
    assert text.lower() in err.lower()
    assert out == ""


# neighbours


def test_the_nearest_come_first(run, corpus):
    code, out, err = run("neighbours", corpus, "--id", "a", "--top", "2")
    assert (code, out) == (0, "b\t1.000000\t1.000000\nc\t0.700000\t0.875000\n")
    assert err == "a: the nearest 2 of 3 that share a shingle, among 4 documents\n"


@pytest.mark.parametrize("document", ["a", "f"])
def test_the_position_of_the_document_makes_no_difference(run, tmp_path, document):
    outputs = set()
    for order in (sorted(TEXTS), sorted(TEXTS, reverse=True)):
        corpus = written(tmp_path / "texts.jsonl", [(name, TEXTS[name]) for name in order])
        outputs.add(run("neighbours", corpus, "--id", document)[1])
    (output,) = outputs
    assert output


@pytest.mark.parametrize(
    ("arguments", "lines", "said"),
    [
        (["d"], 0, "d: none that shares a shingle, among 4 documents"),
        (["a", "--threshold", "0.9"], 1, "a: one with a similarity of at least 0.9, among 4 documents; 10 were"),
        (["a", "--threshold", "0.9", "--top", "1"], 1, "a: one with a similarity of at least 0.9, among 4 doc"),
        (["a"], 3, "a: 3 that share a shingle, among 4 documents; fewer than the 10 asked for"),
        (["a", "--top", "3"], 3, "a: the nearest 3 of 3 that share a shingle"),
    ],
)
def test_the_number_of_neighbours_is_reported(run, corpus, arguments, lines, said):
    code, out, err = run("neighbours", corpus, "--id", *arguments)
    assert code == 0
    assert len(out.splitlines()) == lines
    assert err.startswith(said)


@pytest.mark.parametrize("document", ["a", "f"])
def test_neighbours_of_several_batches_are_those_of_one(run, corpus, monkeypatch, document):
    whole = run("neighbours", corpus, "--id", document)
    monkeypatch.setattr("streamdedup.cli.collection.BATCH_DOCUMENTS", 2)
    assert run("neighbours", corpus, "--id", document) == whole


def test_a_text_without_shingles_has_no_neighbours(run, corpus, tmp_path):
    skipping = settings_with(tmp_path, 'short_texts = "skip"')
    code, out, err = run("neighbours", corpus, "--id", "a", "--size", "40", *skipping)
    assert (code, out, err) == (0, "", "a: none, because its text has no shingle\n")


def test_neighbours_as_json(run, corpus):
    code, out, _ = run("neighbours", corpus, "--id", "a", "--top", "1", "--json")
    assert code == 0
    assert json.loads(out) == {
        "id": "a",
        "asked_for": 1,
        "threshold": 0.0,
        "near": 3,
        "compared": 4,
        "neighbours": [{"id": "b", "similarity": 1.0, "containment": 1.0, "contained": "both"}],
    }


def test_the_containment_of_neighbours_is_shown_where_the_profile_alerts_by_it(run, tmp_path):
    words = [f"word{at}" for at in range(40)]
    texts = {"story": words, "longer": [*words, *(f"more{at}" for at in range(30))], "part": words[:20]}
    corpus = written(tmp_path / "texts.jsonl", [(name, " ".join(text)) for name, text in texts.items()])
    # 38 shingles of the story, 68 of the longer one, 18 of the part.
    _, out, _ = run("neighbours", corpus, "--id", "story", "--json")
    assert json.loads(out)["neighbours"] == [
        {"id": "longer", "similarity": 38 / 68, "containment": 1.0, "contained": "document"},
        {"id": "part", "similarity": 18 / 38, "containment": 1.0, "contained": "neighbour"},
    ]
    for rule, column in {'containment_threshold = "none"': "", "": "\t1.000000"}.items():
        _, out, _ = run("neighbours", corpus, "--id", "story", *settings_with(tmp_path, rule))
        assert out == f"longer\t0.558824{column}\npart\t0.473684{column}\n"


def test_of_several_documents_with_the_id_the_first_is_meant(run, tmp_path):
    corpus = written(tmp_path / "texts.jsonl", [("b", TEXTS["b"]), ("a", TEXTS["a"]), ("a", TEXTS["d"])])
    code, out, err = run("neighbours", corpus, "--id", "a")
    assert (code, out) == (0, "b\t1.000000\t1.000000\n")
    assert err.startswith("passed over: 1 document whose id occurred before\n")


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (["--id", "nobody"], EXIT_FAILED, "--id nobody: none of 5 documents has this id"),
        (["--id", "a", "--top", "0"], EXIT_USAGE, "--top"),
        (["--id", "a", "--threshold", "2"], EXIT_USAGE, "--threshold"),
        ([], EXIT_USAGE, "--id"),
    ],
)
def test_wrong_use_of_neighbours_is_answered_in_words(run, corpus, arguments, code, text):
    ended, out, err = run("neighbours", corpus, *arguments)
    assert ended == code
    assert text in err
    assert out == ""
