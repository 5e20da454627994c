"""``produce`` against a real Kafka: what arrives, how fast, and changed how."""

import json
import os
import pty
import random
import re
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from streamdedup.cli import main as cli
from streamdedup.errors import EXIT_FAILED, EXIT_OK, CorpusError
from tests import servers

SETTINGS = """
[kafka]
bootstrap_servers = "{kafka}"

[redis]
url = "redis://127.0.0.1:1/0"

[profiles.articles]
topics = ["{topic}"]
id_field = "nr"
text_fields = ["title", "body"]
"""
LINES = [{"nr": f"d{number}", "body": "one two three four five six seven eight nine ten"} for number in range(20)]


class World:
    """An input topic and a settings file whose profile has field names of its own."""

    def __init__(self, folder, kafka, topic):
        self.folder, self.kafka = folder, kafka
        self.use(topic)
        self.corpus = self.file("d.jsonl", "".join(json.dumps(line) + "\n" for line in LINES))

    def file(self, name, content):
        (self.folder / name).write_text(content, encoding="utf-8")
        return str(self.folder / name)

    def use(self, topic):
        """Send into this topic from now on."""
        self.topic = topic
        self.config = self.file("streamdedup.toml", SETTINGS.format(kafka=self.kafka, topic=topic))

    def produce(self, *arguments, exit_code=EXIT_OK):
        """Standard error of ``produce`` into the topic."""
        done = CliRunner().invoke(cli.app, ["produce", *arguments, "--topic", self.topic, "--config", self.config])
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == exit_code
        assert done.stdout == ""
        return done.stderr

    def arrived(self):
        """Key and value of each record, in order of keys."""
        records = servers.read_topic(self.kafka, self.topic)
        return sorted(((r.key or b"").decode(), r.value.decode()) for r in records)


@pytest.fixture
def world(tmp_path, kafka, new_topic):
    return World(tmp_path, kafka, new_topic(partitions=3))


def test_rows_of_a_table_arrive_under_the_names_of_the_profile(world):
    table = world.file("t.csv", 'no,head,text\n1,Title,"two\nlines"\n2,,x\n')
    said = world.produce(table, "--id-column", "no", "--text-column", "head", "--text-column", "text")
    assert re.search(r"^2 records sent to \S+ in \d+\.\d s$", said, re.MULTILINE)
    assert [(key, json.loads(value)) for key, value in world.arrived()] == [
        ("1", {"nr": "1", "title": "Title\ntwo\nlines"}),
        ("2", {"nr": "2", "title": "x"}),
    ]


def test_plain_text_arrives_under_the_names_of_the_profile(world):
    world.produce(world.file("t.txt", "one two\n"))
    assert [json.loads(value) for _, value in world.arrived()] == [{"nr": "t.txt:1", "title": "one two"}]


def test_json_lines_arrive_untouched_bad_ones_too_and_these_are_named(world):
    lines = ['{"nr": "a",  "body": "x", "extra": [1]}', *["{"] * 7]
    said = world.produce(world.file("bad.jsonl", "\n".join(lines)))
    assert sorted(value for _, value in world.arrived()) == sorted(lines)
    assert "8 records sent" in said
    assert said.rstrip().endswith("; 7 lines that are no documents")
    assert said.count("the value is not JSON") == 5
    assert "bad.jsonl:2: the value is not JSON" in said
    assert "further ones are only counted" in said


@pytest.mark.parametrize(
    ("limit", "advice"), [("kafka.max_message_bytes=64KiB", "kafka.max_message_bytes"), (None, "max.message.bytes")]
)
@pytest.mark.short
def test_a_record_that_is_too_large_is_named_and_the_others_are_sent(world, new_topic, limit, advice):
    if limit is None:
        world.use(new_topic(max_message_bytes="65536"))
    long = random.Random(1).randbytes(120_000).hex()  # above the limit compressed too
    lines = ["short", long, "shorter", long, "last"]
    options = [] if limit is None else ["--set", limit]
    said = world.produce(world.file("long.txt", "\n".join(lines)), *options, exit_code=EXIT_FAILED)
    assert [key for key, _ in world.arrived()] == ["long.txt:1", "long.txt:3", "long.txt:5"]
    assert said.count("too large: ") == 2
    place = f"{world.folder}/long.txt:4 (id long.txt:4)"
    assert f"too large: {place}: cannot send it (topic {world.topic}): a record is larger" in said
    assert advice in said
    assert re.search(r"^3 records sent to .*; 2 records left out: too large$", said, re.MULTILINE)


def test_a_refused_line_is_keyed_by_its_id_also_where_it_is_too_large(world):
    lines = [
        '{"nr": "a", "text": "x"}',
        json.dumps({"nr": "b", "text": random.Random(1).randbytes(120_000).hex()}),
        "{",
    ]
    limit = ("--set", "kafka.max_message_bytes=64KiB")
    said = world.produce(world.file("bad.jsonl", "\n".join(lines)), *limit, exit_code=EXIT_FAILED)
    assert [key for key, _ in world.arrived()] == ["", "a"]
    assert f"too large: {world.folder}/bad.jsonl:2 (id b): " in said
    assert "2 records sent" in said
    assert said.rstrip().endswith("; 3 lines that are no documents; 1 record left out: too large")


def test_no_rate_is_no_limit(world):
    assert "20 records sent" in world.produce(world.corpus, "--rate", "0")


def test_a_limit_ends_after_so_many_records(world):
    assert "15 records sent" in world.produce(world.corpus, "--limit", "15")
    assert [key for key, _ in world.arrived()] == sorted(f"d{number}" for number in range(15))


def test_the_rate_is_kept_from_the_first_record_to_the_last(world):
    said = world.produce(*[world.corpus] * 3, "--rate", "40")
    (duration_s,) = re.findall(r"^60 records sent to \S+ in (\d+\.\d) s$", said, re.MULTILINE)
    assert float(duration_s) >= 1.4  # 59 / 40, rounded


def test_progress_is_shown_on_a_terminal_only(world, monkeypatch):
    monkeypatch.chdir(world.folder)
    command = [sys.executable, "-m", "streamdedup", "produce", "d.jsonl", "-t", world.topic, "-c", world.config]
    command += ["--rate", "15"]
    plain = subprocess.run(command, capture_output=True, text=True, timeout=900, check=True)
    assert plain.stdout == ""
    assert len(plain.stderr.splitlines()) == 1
    ours, theirs = pty.openpty()
    terminal = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(command, stderr=theirs, stdout=theirs, env=terminal) as process:
        os.close(theirs)
        seen, end = b"", time.monotonic() + servers.DEADLINE_S
        while b"20 records sent" not in seen and time.monotonic() < end:
            seen += os.read(ours, 4096)
        assert process.wait(120) == 0
    os.close(ours)
    assert b"d.jsonl" in seen
    assert b" documents" in seen


@pytest.mark.parametrize(
    ("arguments", "kind", "text"),
    [
        (["nowhere.csv"], CorpusError, "nowhere.csv: No such file"),
        (["t.csv"], CorpusError, "there is no column `title` or `body`; the columns are `id`, `text`"),
        (["t.csv", "--text-column", "words"], CorpusError, "there is no column `words`"),
        (["d.jsonl", "--id-column", "nr"], CorpusError, "columns are named, but it is read as jsonl"),
    ],
)
def test_wrong_use_is_answered_in_words(world, monkeypatch, arguments, kind, text):
    monkeypatch.chdir(world.folder)
    world.file("t.csv", "id,text\n1,x\n")
    with pytest.raises(kind, match=text):
        world.produce(*arguments)
