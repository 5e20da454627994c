"""What a command says when its output goes nowhere: a full disk, a reader that has gone, a stream that is closed."""

import os
import re
import resource
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from streamdedup.errors import EXIT_FAILED, EXIT_OK, EXIT_PIPE, EXIT_USAGE
from tests import servers

FULL = Path("/dev/full")
MESSAGES = (Path(__file__).parents[2] / "docs" / "messages.md").read_text(encoding="utf-8")
CORPUS = '{"id": "a", "text": "one two three four five six"}\n{"id": "b", "text": "one two three four five six"}\n'
SETTINGS = """
kafka.bootstrap_servers = "localhost:9092"
redis.url = "redis://localhost:6379/0"
profiles.articles.topics = ["articles"]
"""
COMMANDS = {
    "scan": ("scan", "{corpus}"),
    "schema": ("schema", "alert"),
    "config-show": ("config", "show", "--config", "{settings}"),
    "help": ("--help",),
    "demo": ("demo",),
}

pytestmark = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


@pytest.fixture(params=COMMANDS.values(), ids=COMMANDS)
def command(request, tmp_path) -> list[str]:
    files = {"corpus": tmp_path / "corpus.jsonl", "settings": tmp_path / "streamdedup.toml"}
    files["corpus"].write_text(CORPUS, encoding="utf-8")
    files["settings"].write_text(SETTINGS, encoding="utf-8")
    return [part.format(**files) for part in request.param]


def started(command: list[str], **streams: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "streamdedup", *command], **streams, text=True, timeout=900, check=False
    )


def into_a_full_disk(command: list[str]) -> subprocess.CompletedProcess[str]:
    with FULL.open("w") as full:
        return started(command, stdout=full, stderr=subprocess.PIPE)


def without_a_reader(command: list[str]) -> subprocess.CompletedProcess[str]:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        return started(command, stdout=writing, stderr=subprocess.PIPE)
    finally:
        os.close(writing)


def test_a_full_disk_is_reported_in_one_line(command):
    done = into_a_full_disk(command)
    assert done.returncode == EXIT_FAILED
    assert done.stderr.splitlines()[-1].endswith(": No space left on device")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("obstacle", ["a disk that fills up", "a full pipe"])
def test_output_that_is_written_in_part_is_reported(monkeypatch, tmp_path, obstacle, unbuffered):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # the limit would cut these files too
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    os.write(writing, bytes(60_000))
    with (tmp_path / "output").open("w") as file, os.fdopen(reading), os.fdopen(writing, "w") as pipe:
        done = started(
            ["schema", "alert"],
            stdout=file if obstacle.startswith("a disk") else pipe,
            stderr=subprocess.PIPE,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (5_000, 5_000)),
        )
    assert done.returncode == EXIT_FAILED
    assert done.stderr.startswith("streamdedup: cannot write the output: ")
    assert len(done.stderr.splitlines()) == 1


def test_a_closed_pipe_ends_a_command_without_a_message(command):
    done = without_a_reader(command)
    assert done.returncode == EXIT_PIPE
    assert done.stderr == ""


def test_a_full_disk_for_messages_too_changes_no_exit_code(tmp_path):
    with FULL.open("w") as full:
        assert started(["scan", str(tmp_path / "nowhere.jsonl")], stdout=full, stderr=full).returncode == EXIT_FAILED


@pytest.mark.parametrize("redirection", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_that_are_closed_are_written_to_in_vain(redirection):
    line = f"exec {shlex.quote(sys.executable)} -m streamdedup schema alert {redirection}"
    done = subprocess.run(["sh", "-c", line], capture_output=True, text=True, timeout=900, check=False)
    assert (done.returncode, done.stderr) == (EXIT_OK, "")


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text(CORPUS, encoding="utf-8")
    done = started(["scan", str(corpus), "--output", str(FULL)], capture_output=True)
    assert (done.returncode, done.stderr) == (EXIT_FAILED, f"streamdedup: {FULL}: No space left on device\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["scan", "-"],
        ["scan", "{link}"],
        ["scan", "{folder}"],
        ["evaluate", "{pairs}", "--truth", "{corpus}"],
        ["neighbours", "{corpus}", "--id", "a"],
        ["stop-shingles", "{corpus}"],
    ],
)
def test_an_input_is_not_written_over(tmp_path, arguments):
    files = {name: tmp_path / name for name in ("corpus", "folder", "link", "pairs")}
    files["corpus"].write_text(CORPUS, encoding="utf-8")
    files["pairs"].write_text(CORPUS, encoding="utf-8")
    files["link"].symlink_to(files["corpus"])
    files["folder"].mkdir()
    (files["folder"] / "reut2-000.sgm").hardlink_to(files["corpus"])
    command = [part.format(**files) for part in arguments]
    with files["corpus"].open() as standard_input:
        done = started([*command, "--output", str(files["corpus"])], stdin=standard_input, capture_output=True)
    assert files["corpus"].read_text(encoding="utf-8") == CORPUS
    said = f"streamdedup: --output {files['corpus']}: the command reads or writes this file already; name another one\n"
    assert (done.returncode, done.stderr) == (EXIT_USAGE, said)


def test_a_file_keeps_its_content_until_there_is_something_to_write(tmp_path):
    corpus, pairs = tmp_path / "corpus.jsonl", tmp_path / "pairs.tsv"
    corpus.write_text(CORPUS, encoding="utf-8")
    earlier = "an earlier result, longer than the one that follows\n"
    pairs.write_text(earlier, encoding="utf-8")
    failed = started(["scan", str(tmp_path / "nowhere.jsonl"), "--output", str(pairs)], capture_output=True)
    assert (failed.returncode, pairs.read_text(encoding="utf-8")) == (EXIT_FAILED, earlier)
    assert started(["scan", str(corpus), "--output", str(pairs)], capture_output=True).returncode == EXIT_OK
    assert pairs.read_text(encoding="utf-8") == "a\tb\t1.000000\t1.000000\tsimilarity\n"
    corpus.write_text("", encoding="utf-8")
    assert started(["scan", str(corpus), "--output", str(pairs)], capture_output=True).returncode == EXIT_OK
    assert pairs.read_text(encoding="utf-8") == ""


@pytest.mark.parametrize("form", ["lines", "--json"])
def test_tail_ends_when_its_output_cannot_be_written(kafka, new_topic, tmp_path, form):
    topic, config = new_topic("duplicates"), tmp_path / "streamdedup.toml"
    here = SETTINGS.replace("localhost:9092", kafka)
    config.write_text(f'{here}kafka.duplicates_topic = "{topic}"\n', encoding="utf-8")
    alert = re.findall(r"```json alert\n(.*?)```", MESSAGES, re.DOTALL)[0]
    servers.produce(kafka, topic, [alert.encode()])
    command = ["tail", "--config", str(config), "--from-beginning", *([] if form == "lines" else [form])]
    full, gone = into_a_full_disk(command), without_a_reader(command)
    assert (full.returncode, gone.returncode) == (EXIT_FAILED, EXIT_PIPE)
    assert full.stderr.splitlines()[-1] == "streamdedup: cannot write the output: No space left on device"
    assert "Traceback" not in full.stderr + gone.stderr
