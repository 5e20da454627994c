"""``streamdedup tune`` as a user types it."""

import json
from importlib import resources
from pathlib import Path

import pytest

from tests.daemons import streamdedup

SAMPLE = Path(str(resources.files("streamdedup"))) / "sample"
SERVERS = '[kafka]\nbootstrap_servers = "localhost:9092"\n[redis]\nurl = "redis://localhost:6379/0"\n'


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("tune") / "texts.jsonl"
    lines = []
    for at in range(340):
        words = " ".join(f"word{at}x{place}" for place in range(40))
        for copy, extra in enumerate(("", " a correction", " a correction once more")):
            lines.append(json.dumps({"id": f"{at}/{copy}", "text": f"{words}{extra}"}))
    path.write_text("\n".join(lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def tuned(corpus) -> dict:
    done = streamdedup("tune", corpus, "--json", "--documents-per-day", 5_760)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_the_numbers_are_consistent(tuned):
    assert tuned["sample"]["documents"] == 1_020
    assert tuned["demand"]["documents_kept"] == 5_760 * 31
    best = tuned["recommendation"]
    assert best["probability_at_recall_from"] >= best["found_at_recall_from"] >= best["min_recall"] == 0.99
    assert best["recall_reached"]
    assert len(set(tuned["sample"]["looked_at"].values())) == 1
    assert best["measured_recall"] > 0.9
    assert best["memory_bytes"] == pytest.approx(best["bytes_per_document"] * 178_560)
    assert best["daemons"] == 1
    assert {(row["unit"], row["size"]) for row in tuned["rows"]} == {
        ("word", 3), ("word", 5), ("char", 5), ("char", 9),
    }  # fmt: skip
    by_layout = best["memory_bytes_by_layout"]
    assert by_layout["sets"] == best["memory_bytes"] > by_layout["packed"] > 0


def test_the_printed_settings_are_a_file_as_they_are(corpus, tmp_path):
    done = streamdedup("tune", corpus, "--unit", "word", "--size", 3)
    assert done.returncode == 0, done.stderr
    config = tmp_path / "streamdedup.toml"
    config.write_text(done.stdout[done.stdout.index("# Your servers") :], encoding="utf-8")
    checked = streamdedup("config", "check", "--config", config)
    assert checked.returncode == 0, checked.stderr
    scanned = streamdedup("scan", corpus, "--config", config)
    assert scanned.returncode == 0, scanned.stderr
    assert len(scanned.stdout.splitlines()) >= 300


def test_memory_is_that_of_the_default_settings_where_no_file_names_others(corpus, tmp_path):
    config = tmp_path / "streamdedup.toml"
    config.write_text(SERVERS + '[profiles.articles]\ntopics = ["articles"]\n', encoding="utf-8")
    options = ["--json", "--unit", "word", "--size", 3, "--threshold", 0.8]
    without, with_file = (
        json.loads(streamdedup("tune", corpus, *options, *more).stdout)["rows"] for more in ([], ["--config", config])
    )
    assert [row["memory_bytes"] for row in without] == [row["memory_bytes"] for row in with_file]
    config.write_text(f'{SERVERS}bucket_layout = "packed"\n[profiles.articles]\ntopics = ["articles"]\n')
    packed = json.loads(streamdedup("tune", corpus, *options, "--config", config).stdout)["rows"]
    assert packed[0]["memory_bytes"] < 0.7 * without[0]["memory_bytes"]


def test_tables_are_for_people_and_name_the_recommendation():
    done = streamdedup("tune", SAMPLE / "reviews.jsonl", "--profile", "reviews")
    assert done.returncode == 0, done.stderr
    assert "Not recommended, the cheapest: char 5" in done.stdout
    assert "[profiles.reviews]" not in done.stdout
    assert "too few to check the recall by" in done.stdout
    assert 'with "packed" on Redis 7' in done.stdout


@pytest.mark.long
@pytest.mark.parametrize("text", ["!!!\n...\n", "one single text\n", "the same words again\n" * 40])
def test_an_uninformative_sample_does_not_choose_bands_that_make_every_pair_a_candidate(text):
    done = streamdedup("tune", "-", "--format", "text", "--json", "--unit", "word", "--size", 3, text=text)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["recommendation"]["rows"] >= 4


@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        (["--threshold", "1.5"], 2, "--threshold 1.5: must be above 0 and at most 1"),
        (["--unit", "byte"], 2, "--unit byte: must be word or char"),
        (["--size", "0"], 2, "--size 0: must be a whole number from 1 up to 64"),
        (["--documents-per-day", "0"], 2, "--documents-per-day 0: must be at least 1"),
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


def test_proposals_are_applied_to_the_settings_file_with_their_stop_shingles(news, tmp_path):
    config = tmp_path / "streamdedup.toml"
    heading = "# ours\n" + SERVERS.replace("[redis]", "\n[redis]")
    config.write_text(
        f'{heading}\n[profiles.articles]\ntopics = ["wire"]\n\n[profiles.other]\ntopics = ["other"]\n',
        encoding="utf-8",
    )
    options = ["--unit", "word", "--size", 3, "--config", config]
    done = streamdedup("tune", news, "--json", *options, "--apply", config)
    assert done.returncode == 0, done.stderr
    results = json.loads(done.stdout)
    first, *_, last = results["proposals"]
    assert (first["pairs"], first["boilerplate"]) == (435, 435)
    assert (last["pairs"], last["lost"], last["boilerplate"]) == (0, 435, 0)
    written = config.read_text(encoding="utf-8")
    assert written.startswith("# ours\n")
    assert 'topics = ["wire"]' in written
    assert '[profiles.other]\ntopics = ["other"]\n' in written
    assert str(tmp_path / "boilerplate-articles.txt") in written
    assert streamdedup("config", "check", "--config", config).returncode == 0
    scanned = streamdedup("scan", news, "--config", config)
    assert (scanned.returncode, scanned.stdout) == (0, "")
    again = json.loads(streamdedup("tune", news, "--config", config, "--json", "--unit", "word", "--size", 3).stdout)
    assert again["proposals"] == []


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
    pasted = results["proposed"]["toml"]
    assert 'topics = ["shop.items"]' in pasted
    assert "keep_white_space = false" in pasted
    config.write_text(SERVERS + pasted, encoding="utf-8")
    assert streamdedup("config", "check", "--config", config).returncode == 0
