"""``streamdedup plan`` as a user types it: this machine is measured, and a saved measurement gives the same plan."""

import json
import os
import random
import subprocess
import sys

import pytest

from streamdedup.tuning.machine import decode_machine

pytestmark = pytest.mark.short

WORDS = [f"word{number}" for number in range(4_001)]


def streamdedup(*arguments: object, text: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "streamdedup", "plan", *map(str, arguments)]
    env = {**os.environ, **environment}
    return subprocess.run(command, input=text, capture_output=True, text=True, timeout=900, check=False, env=env)


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """Measure with documents of this test: a third of them are near-duplicates of the document before."""
    folder = tmp_path_factory.mktemp("plan")
    corpus, saved = folder / "texts.jsonl", folder / "machine.json"
    lines = []
    for at in range(300):
        words = " ".join(random.Random(at).choices(WORDS, k=60))
        texts = (words, f"{words} once more") if at % 2 else (words,)
        lines += [json.dumps({"id": f"{at}/{copy}", "text": text}) for copy, text in enumerate(texts)]
    corpus.write_text("\n".join(lines), encoding="utf-8")
    done = streamdedup(corpus, "--documents-per-day", 1_000_000, "--retention", "7d", "--json", "--save", saved)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), saved


@pytest.mark.skipif(sys.platform == "darwin", reason="its file names are UTF-8")
def test_a_file_name_that_is_not_utf8_is_shown_with_escapes(tmp_path):
    corpus = tmp_path / os.fsdecode(b"caf\xe9.jsonl")
    lines = [json.dumps({"id": name, "text": "one two three four five six"}) for name in "ab"]
    corpus.write_text("\n".join(lines), encoding="utf-8")
    done = streamdedup(corpus, "--documents-per-day", 9, "--json")
    assert done.returncode == 0, done.stderr
    assert "2 documents of caf\\udce9.jsonl" in json.loads(done.stdout)["measured"]


def test_the_costs_of_this_machine_are_measured(planned):
    numbers = {key: one["value"] for key, one in planned[0]["numbers"].items()}
    assert numbers["documents_kept"] == 8_000_000
    # 150 of 450 documents have a near-duplicate before them.
    assert numbers["alerts_share"] == pytest.approx(1 / 3)
    for stage in ("decode_us", "prepare_us", "index_us", "publish_us", "redis_us"):
        assert 0 < numbers[stage] < 10_000, stage
    assert 500 < numbers["memory_packed"] / 8e6 < numbers["memory_sets"] / 8e6 < 5_000
    assert numbers["daemons"] >= 1
    assert numbers["daemons_and_redis"] > numbers["kafka_to_daemons"] / 10 > 0


def test_a_saved_measurement_gives_the_same_plan(planned):
    results, saved = planned
    done = streamdedup("--measured", saved, "--documents-per-day", 1_000_000, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == results
    machine = decode_machine(saved.read_bytes(), "saved")
    assert (machine.sample.name, machine.sample.documents, machine.sample.matches) == ("texts.jsonl", 450, 1.0)
    # A document has a bucket in each band; the second one of a pair shares most of them.
    assert machine.sample.members == machine.profile.bands
    assert machine.sample.members * 2 / 3 <= machine.sample.buckets < machine.sample.members


def test_the_table_is_printed_from_the_sample_of_the_project(tmp_path):
    done = streamdedup("--table", "--sample", 50, "--output", tmp_path / "table.md")
    assert done.returncode == 0, done.stderr
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert table.count("\n|") == 5
    assert "50 documents of the built-in sample" in table


def test_errors_are_one_line_and_name_the_cure(planned, tmp_path):
    for arguments, code, text in (
        (["--table", "--sample", 50, "--save", tmp_path / "no" / "such"], 1, "No such file or directory"),
        (["--table", "--redis", "redis://localhost:1"], 1, "store"),
        (["--table", "--profile", "nothing"], 2, "--profile nothing"),
    ):
        done = streamdedup(*arguments)
        assert done.returncode == code, done.stderr
        assert text in done.stderr
        assert "Traceback" not in done.stderr
        assert done.stdout == ""
    empty = tmp_path / "empty.jsonl"
    empty.write_text("", encoding="utf-8")
    assert "no document to measure" in streamdedup(empty, "--table").stderr
