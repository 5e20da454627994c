"""The commands ``dlq inspect`` and ``dlq replay`` against a real Kafka, on dead letters made for the purpose."""

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass
from uuid import uuid4

import pytest
from kafka import KafkaProducer, TopicPartition
from typer.testing import CliRunner

from streamdedup.cli import guards
from streamdedup.cli import main as cli
from streamdedup.errors import EXIT_PIPE, BrokerMisconfigured, SettingsError
from streamdedup.kafka.producer import Feeder
from streamdedup.kafka.protocols import Record
from streamdedup.kafka.reader import RecordFetcher
from streamdedup.position import Position
from streamdedup.wire.dead_letters import PREFIX, DaemonInfo, Failure, Stage, dead_letter
from tests import servers
from tests.raw_batches import SNAPPY, RawRecord, record_batch, send_batch

TIME_MS = 1_777_618_931_612
SETTINGS = """
[kafka]
bootstrap_servers = "{kafka}"
group_id = "{group}"
duplicates_topic = "{duplicates}"

[redis]
url = "redis://127.0.0.1:1/0"

[profiles.articles]
topics = ["{articles}", "{reviews}"]
"""


@dataclass
class World:
    """Two input topics, a dead-letter topic and a settings file."""

    kafka: str
    articles: str
    reviews: str
    dead: str
    config: str

    def fill(self, *codes, topic=None, partition=0, first=0, headers=(), topic_id=""):
        """Append dead letters; the n-th failed n seconds after ``TIME_MS``, and its value is its number."""
        with contextlib.closing(KafkaProducer(bootstrap_servers=self.kafka)) as producer:
            for number, code in enumerate(codes, first):
                origin = Position(topic or self.articles, number % 2, number)
                record = Record(origin, TIME_MS - 10_000, b"key", b"%d" % number, headers)
                stage = Stage.READ if code == "unreadable" else Stage.DECODE
                failure, time_ms = Failure(stage, code, "DecodeError", "why"), TIME_MS + number * 1000
                made = dead_letter(
                    "dead", record, failure, DaemonInfo("g", "a", "1"), time_ms=time_ms, topic_id=topic_id
                )
                fields = {"headers": list(made.headers), "timestamp_ms": made.timestamp_ms, "partition": partition}
                producer.send(self.dead, key=made.key, value=made.value, **fields).get(servers.DEADLINE_S)

    def run(self, *arguments, text="", code=0):
        """Standard output of a command that ends with ``code``."""
        done = CliRunner().invoke(cli.app, ["dlq", *arguments, "--config", self.config], input=text)
        if done.exception is not None and not isinstance(done.exception, SystemExit):
            raise done.exception
        assert done.exit_code == code, done.output
        return done.stdout

    def numbers(self, *arguments):
        """Numbers of the dead letters that are shown."""
        return [int(json.loads(line)["value"]) for line in self.run("inspect", "--json", *arguments).splitlines()]

    def arrived(self, topic=None):
        """Numbers of what stands in an input topic, and in which partition."""
        return sorted((int(r.value), r.partition) for r in servers.read_topic(self.kafka, topic or self.articles))


@pytest.fixture
def world(tmp_path, kafka, new_topic, new_group):
    duplicates = new_topic("duplicates")
    servers.create_topics(kafka, [f"{duplicates}.dlq"], 2)
    names = {"articles": new_topic("articles", 2), "reviews": new_topic("reviews", 2), "duplicates": duplicates}
    path = tmp_path / "streamdedup.toml"
    path.write_text(SETTINGS.format(kafka=kafka, group=new_group(), **names), encoding="utf-8")
    return World(kafka, names["articles"], names["reviews"], f"{duplicates}.dlq", str(path))


def test_inspect_shows_the_letters_that_the_filter_accepts(world):
    world.fill("not_json", "too_large", "not_json", "unreadable")
    world.fill("too_large", topic=world.reviews, partition=1, first=4)
    assert sorted(world.numbers()) == [0, 1, 2, 3, 4]
    assert world.numbers("--code", "not_json", "--code", "unreadable") == [0, 2, 3]
    assert world.numbers("--topic", world.reviews) == [4]
    assert world.numbers("--since", "2026-05-01T07:02:14Z") == [3, 4]


def test_inspect_counts_the_letters_that_the_filter_accepts_by_topic_and_code(world):
    world.fill("not_json", "too_large", "not_json", "\x1b[2Junreadable")
    world.fill("too_large", topic=world.reviews, partition=1, first=4)
    lines = [line.split() for line in world.run("inspect", "--count").splitlines()]
    assert lines[0] == ["2", world.articles, "not_json"]
    assert sorted(lines[1:]) == sorted(
        [["1", world.articles, "too_large"], ["1", world.articles, "\\x1b[2Junreadable"],
         ["1", world.reviews, "too_large"]]
    )  # fmt: skip
    assert world.run("inspect", "--count", "--topic", world.reviews).split() == ["1", world.reviews, "too_large"]
    with pytest.raises(SettingsError, match="--json and --count: give one"):
        world.run("inspect", "--count", "--json")
    assert world.run("inspect", "--count", "--code", "not_utf8") == ""


def test_inspect_ends_at_its_limit(world):
    world.fill(*["not_json", "too_large"] * 4)
    assert world.numbers("--limit", "3") == [0, 1, 2]
    assert world.numbers("--code", "too_large", "--limit", "2") == [1, 3]
    assert world.run("inspect", "--count", "--limit", "2").count("\n") == 2
    assert len(world.run("inspect", "--limit", "100").splitlines()) == 8


def test_inspect_survives_a_reader_that_has_seen_enough(world):
    world.fill("not_json")
    command = [sys.executable, "-m", "streamdedup", "dlq", "inspect", "--config", str(world.config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("not_json") == 1
    read_end, write_end = os.pipe()
    os.close(read_end)
    with os.fdopen(write_end, "wb") as closed:
        ended = subprocess.run(command, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=900, check=False)
    assert ended.returncode == EXIT_PIPE
    assert "Traceback" not in ended.stderr


def test_replay_sends_each_letter_to_the_partition_that_its_record_came_from(world):
    world.fill("not_json", "too_large", "not_json", headers=(("trace", b"1"),))
    world.fill("not_json", topic=world.reviews, partition=1, first=3)
    shown = world.run("replay", "--yes", "--from-beginning").splitlines()
    assert shown == [f"replayed: 4 dead letters ({world.articles} 3, {world.reviews} 1)"]
    assert world.arrived() == [(0, 0), (1, 1), (2, 0)]
    assert world.arrived(world.reviews) == [(3, 1)]
    for record in servers.read_topic(world.kafka, world.articles):
        headers = dict(record.headers)
        assert (record.key, record.timestamp, headers["trace"]) == (b"key", TIME_MS - 10_000, b"1")
        assert headers[f"{PREFIX}attempts"] == b"1"


def test_replay_leaves_out_letters_that_cannot_be_sent_with_the_reason(world):
    world.fill("not_json", "unreadable")
    world.fill("not_json", topic="elsewhere", first=2)
    servers.produce(world.kafka, world.dead, [b"somebody else's"])
    servers.produce(world.kafka, world.dead, [b"damaged"], headers=[(servers.NotUtf8("name"), b"")])
    shown = world.run("replay", "--dry-run").splitlines()
    assert shown == [
        f"to replay: 1 dead letter ({world.articles} 1)",
        "2 left out: from no input topic of the settings",
        "1 left out: the dead letter itself cannot be read by the Kafka client",
        "1 left out: without its bytes, and the record is no longer in its topic",
    ]
    assert len(world.run("inspect").splitlines()) == 4
    assert world.arrived() == []


def test_letters_without_bytes_are_replayed_from_their_places_once_the_records_can_be_read(world):
    """Offset 0 is deleted, 2 (with snappy) can be read by now, 4 cannot, 6 has neither key nor value.

    A further letter is of an offset 2 in an earlier topic.
    """
    servers.produce(world.kafka, world.articles, [b"0", b"1"], partition=0)
    batch = record_batch([RawRecord(b"2" * 100, b"key", ((b"trace", b"1"),), TIME_MS)], SNAPPY)
    assert send_batch(world.kafka, world.articles, 0, batch) == 2
    servers.produce(world.kafka, world.articles, [b"3"], partition=0)
    servers.produce(world.kafka, world.articles, [b"4"], partition=0, headers=[(servers.NotUtf8("name"), b"")])
    servers.produce(world.kafka, world.articles, [b"5"], partition=0)
    assert send_batch(world.kafka, world.articles, 0, record_batch([RawRecord(None)])) == 6
    with contextlib.closing(servers.admin_client(world.kafka)) as admin:
        admin.delete_records({TopicPartition(world.articles, 0): 1})
    for offset in (0, 2, 4, 6):
        world.fill("unreadable", first=offset)
    world.fill("unreadable", first=2, topic_id=str(uuid4()))
    expected = [
        "1 left out: neither key nor value, which cannot be sent",
        "1 left out: without its bytes, and the Kafka client still cannot read the record",
        "2 left out: without its bytes, and the record is no longer in its topic",
    ]
    shown = world.run("replay", "--dry-run").splitlines()
    assert [shown[0], *sorted(shown[1:])] == [f"to replay: 1 dead letter ({world.articles} 1)", *expected]
    shown = world.run("replay", "--yes", "--from-beginning").splitlines()
    assert [shown[0], *sorted(shown[1:])] == [f"replayed: 1 dead letter ({world.articles} 1)", *expected]
    with RecordFetcher(servers.kafka_options(world.kafka, world.articles)) as fetcher:
        sent = fetcher.fetch(Position(world.articles, 0, 7))
        assert fetcher.fetch(Position(world.articles, 0, 8)) is None
    assert (sent.key, sent.value, sent.timestamp_ms) == (b"key", b"2" * 100, TIME_MS)
    facts = dict(sent.headers)
    assert (facts["trace"], facts[f"{PREFIX}attempts"], f"{PREFIX}unread" in facts) == (b"1", b"1", False)


def test_replay_asks_first_and_does_nothing_without_a_yes(world, monkeypatch):
    world.fill("not_json")
    with pytest.raises(SettingsError, match="--yes: required without a terminal"):
        world.run("replay")
    assert world.run("replay", "--dry-run").startswith("to replay: 1 dead letter")
    monkeypatch.setattr(guards, "is_interactive", lambda: True)
    world.run("replay", text="", code=1)
    world.run("replay", text="n\n", code=1)
    assert world.arrived() == []
    world.run("replay", text="y\n")
    assert world.arrived() == [(0, 0)]
    assert world.run("replay").startswith("to replay: 0 dead letters")


def test_an_interrupted_replay_goes_on_where_it_ended(world, monkeypatch):
    world.fill(*["not_json"] * 20)
    send, sent = Feeder.send, []

    def send_until_interrupted(*arguments, **options):
        if len(sent) == 7:
            raise KeyboardInterrupt
        sent.append(arguments)
        send(*arguments, **options)

    monkeypatch.setattr(Feeder, "send", send_until_interrupted)
    world.run("replay", "--yes", "--from-beginning", code=cli.EXIT_INTERRUPTED)
    assert len(world.arrived()) == 7
    monkeypatch.undo()
    assert world.run("replay", "--yes").startswith("replayed: 13 dead letters")
    assert [number for number, _ in world.arrived()] == list(range(20))


def test_a_replay_with_conditions_begins_at_the_stored_position_and_leaves_it(world):
    world.fill("not_json")
    world.run("replay", "--yes", "--from-beginning")
    world.fill("too_large", "not_json", "not_json", first=1)
    since = ("--since", "2026-05-01T07:02:14Z")  # number 3
    assert world.run("replay", "--yes", "--code", "not_json", *since).splitlines()[1:] == [
        "2 left out: excluded by --code, --topic or --since"
    ]
    assert world.run("replay", "--yes", "--code", "not_json").startswith("replayed: 2 dead letters")
    assert world.run("replay", "--yes", "--topic", world.articles).startswith("replayed: 3 dead letters")
    assert world.run("replay", "--yes").startswith("replayed: 3 dead letters")
    assert world.run("replay", "--yes").startswith("replayed: 0 dead letters")
    assert [number for number, _ in world.arrived()] == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3]


def test_a_dead_letter_topic_that_was_made_anew_is_looked_at_from_its_beginning(world, monkeypatch):
    world.fill("not_json", "not_json", "not_json")
    world.run("replay", "--yes", "--from-beginning")
    with contextlib.closing(servers.admin_client(world.kafka)) as admin:
        admin.delete_topics([world.dead])
        servers.wait_until(lambda: world.dead not in admin.list_topics(), what="the end of the topic")
    servers.create_topics(world.kafka, [world.dead], 2)
    world.fill("not_json", first=7)
    # With the topic Kafka deletes the progress, sooner or later; without progress the command must ask.
    monkeypatch.setattr(guards, "is_interactive", lambda: True)
    assert world.run("replay", text="y\n").splitlines()[-1].startswith("replayed: 1 dead letter ")


@pytest.mark.parametrize("command", ["inspect", "replay"])
def test_a_missing_dead_letter_topic_is_named(world, command):
    with pytest.raises(BrokerMisconfigured, match=r"no such topic: nowhere\.dlq"):
        world.run(command, *["--yes"][: command == "replay"], "--set", "kafka.duplicates_topic=nowhere")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["inspect", "--since", "yesterday"], "--since"),
        (["replay", "--topic", "elsewhere"], "no profile has this topic"),
    ],
)
def test_wrong_use_is_an_error_before_any_request_to_kafka(world, arguments, text):
    with pytest.raises(SettingsError, match=text):
        world.run(*arguments, "--set", "kafka.bootstrap_servers=127.0.0.1:9")


def test_a_topic_that_does_not_exist_is_not_taken_for_one_without_failures(world):
    world.fill("not_json")
    with pytest.raises(BrokerMisconfigured, match="no such topic: nowhere"):
        world.run("inspect", "--topic", "nowhere")
    assert world.run("inspect", "--topic", world.reviews) == ""


def test_a_code_that_does_not_exist_is_answered_with_those_that_do(world):
    done = CliRunner().invoke(cli.app, ["dlq", "inspect", "--config", world.config, "--code", "toolarge"])
    assert done.exit_code == 2
    assert "too_large" in done.output
