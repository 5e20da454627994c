"""The program examples/stories.py on a real PostgreSQL, with records that it gets from the test instead of Kafka."""

import contextlib
import json
import re
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest
from msgspec import structs

from examples import stories
from streamdedup.cli.assembly import alert_reader
from streamdedup.errors import TransientError
from streamdedup.kafka.protocols import Batch, Record
from streamdedup.position import Position
from streamdedup.settings import Settings
from streamdedup.wire import content_digest, decode_alert, encode_alert, schema_registry
from tests.alerts import a_document, a_match, an_alert
from tests.unit.test_avro_alerts import MemoryRegistry, settings_of

SETTINGS = Settings.load(
    None,
    {
        "kafka.bootstrap_servers": "kafka:9092",
        "redis.url": "redis://redis",
        "profiles.news.topics": "articles",
        "profiles.reviews.topics": "reviews",
    },
    {},
)
TIME_MS = 1_777_618_931_480
PAGE = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text(encoding="utf-8")


class Reader:
    """A reader of batches; the one behind the last batch finds new partitions, and ends the program."""

    def __init__(self, *batches, during=lambda: None):
        self._batches = [Batch(tuple(records)) for records in batches]
        self._during = during
        self.starts = None

    def start_at(self, starts):
        self.starts = starts

    def has_new_partitions(self):
        return not self._batches

    def poll(self, timeout_s):
        self._during()
        return self._batches.pop(0)


class Table:
    """The program and its database."""

    def __init__(self, address, monkeypatch):
        self.address = address
        self._monkeypatch = monkeypatch

    def follow(self, *batches, settings=SETTINGS, **options):
        """Run the program over batches of records; return the reader."""
        reader = Reader(*batches, **options)
        self.topics = []

        def opened(kafka_options):
            self.topics += kafka_options.topics
            return contextlib.nullcontext(reader)

        self._monkeypatch.setattr(stories, "TopicReader", opened)
        stories.main(settings, self.address)
        return reader

    def rows(self, query):
        with psycopg.connect(self.address) as connection:
            return connection.execute(query).fetchall()

    def stories(self):
        """Members of each story by the id of its first document."""
        rows = self.rows("SELECT cluster, array_agg(id ORDER BY id) FROM members GROUP BY cluster")
        return {cluster: members for cluster, members in rows if members != [cluster]}


@pytest.fixture
def table(postgres, monkeypatch):
    return Table(postgres, monkeypatch)


def record(value, key=None, at=0, topic="articles", time_ms=TIME_MS):
    return Record(Position(topic, 0, at), time_ms, key, value if value is None else json.dumps(value).encode())


def document(identity, text="", at=0, **more):
    """A record of a document, whose time is later the greater its offset is."""
    fields = {"id": identity, "text": text or identity, **more}
    return record(fields, identity.encode(), at, time_ms=TIME_MS + 1000 * at)


def digest_of(text):
    return content_digest(text).hex()


def alert(version, *others, profile="news"):
    """A record of an alert; a version is an id, whose text is the id, or an id and a digest."""
    sides = [(side, digest_of(side)) if isinstance(side, str) else side for side in (version, *others)]
    (identity, digest), *found = sides
    matches = [a_match(name, Position("articles", 0, 0), digest=other) for name, other in found]
    made = an_alert(a_document(identity, Position("articles", 0, 0), digest), *matches, profile=profile)
    (value,) = encode_alert(made)
    return Record(Position("duplicates", 0, 0), TIME_MS, identity.encode(), value)


THREE = [document("a", at=1, source="north"), document("b", at=2, source="south"), document("c", at=3, source="north")]


def test_a_story_has_the_size_the_sources_and_the_time_of_its_documents(table):
    table.follow([*THREE, document("d", at=4), alert("b", "a"), alert("c", "a", "b")])
    assert table.topics == ["articles", "reviews", "duplicates"]
    first = datetime.fromtimestamp((TIME_MS + 1000) / 1000, UTC)
    assert table.rows("SELECT profile, cluster, size, sources, first FROM stories") == [
        ("news", "a", 3, ["north", "south"], first)
    ]
    members = table.rows("SELECT id, cluster, source FROM members WHERE profile = 'news' ORDER BY id")
    assert members == [("a", "a", "north"), ("b", "a", "south"), ("c", "a", "north"), ("d", "d", None)]


def test_alerts_in_avro_and_in_json_are_read_from_one_topic(table, monkeypatch):
    monkeypatch.setattr(schema_registry, "HttpSession", MemoryRegistry())
    settings = settings_of(**{"profiles.p.topics": "articles"})
    in_json, other = alert("b", "a", profile="p"), alert("c", "a", "b", profile="p")
    in_avro = structs.replace(other, value=alert_reader(settings).encode(decode_alert(other.value)))
    table.follow([*THREE, in_json, in_avro], settings=settings)
    assert table.stories() == {"a": ["a", "b", "c"]}


def test_an_alert_may_be_read_before_its_documents(table):
    table.follow([alert("c", "a", "b"), alert("b", "a")])
    assert table.stories() == {}
    table.follow([THREE[2]], [THREE[0], THREE[1]])
    assert table.stories() == {"a": ["a", "b", "c"]}


def test_equal_ids_of_two_profiles_are_two_documents(table):
    review = record({"id": "b", "text": "b"}, topic="reviews", time_ms=TIME_MS + 5000)
    table.follow([THREE[0], review, alert("b", "a")])
    assert table.rows("TABLE live_pairs") == []
    table.follow([record({"id": "a", "text": "a"}, topic="reviews"), alert("b", "a", profile="reviews")])
    assert table.rows("SELECT profile, size FROM stories") == [("reviews", 2)]


@pytest.mark.parametrize("deletion", [{"id": "a", "op": "delete"}, None])
def test_a_deleted_document_leaves_its_story_to_the_next_one(table, deletion):
    table.follow([*THREE, alert("b", "a"), alert("c", "a", "b"), record(deletion, b"a", 4)])
    assert table.stories() == {"b": ["b", "c"]}
    assert table.rows("SELECT id FROM documents ORDER BY id") == [("b",), ("c",)]


@pytest.mark.parametrize("at", [1, 4])
def test_a_new_version_leaves_the_story_and_the_text_of_before_brings_it_back(table, at):
    table.follow([*THREE, alert("b", "a"), alert("c", "a", "b"), document("a", "another text", at)])
    assert table.stories() == {"b": ["b", "c"]}
    # The daemon does not alert the pairs again.
    table.follow([document("a", at=5)])
    assert table.stories() == {"b": ["a", "b", "c"]}


def test_the_same_text_again_keeps_the_time_and_has_the_new_source(table):
    table.follow([*THREE, alert("b", "a"), document("a", at=9, source="west")])
    assert table.rows("SELECT cluster, sources FROM stories") == [("a", ["south", "west"])]


def test_an_append_keeps_pairs_and_has_the_digest_of_alerts(table):
    appends = [document("a", text, at, op="append") for at, text in enumerate(("more", "and more"), 4)]
    # As docs/messages.md defines it.
    digest = content_digest("a")
    for text in ("more", "and more"):
        digest = stories.blake2b(digest + content_digest(text), digest_size=16).digest()
    table.follow([*THREE, alert("b", "a"), *appends, alert("c", ("a", digest.hex()))])
    assert table.stories() == {"a": ["a", "b", "c"]}
    table.follow([document("nobody", "more", op="append", at=6)])
    assert table.rows("SELECT count(*) FROM documents") == [(3,)]


def test_a_story_goes_on_from_document_to_document_and_one_between_two_stories_does_not_unite_them(table):
    documents = [document(name, at=at) for at, name in enumerate("abcxyz")]
    # c resembles b alone; z resembles y of another story, and the earlier c.
    alerts = [alert("b", "a"), alert("c", "b"), alert("y", "x"), alert("z", "y", "c")]
    table.follow([*documents, *alerts])
    assert table.stories() == {"a": ["a", "b", "c", "z"], "x": ["x", "y"]}


def test_records_that_are_no_documents_or_alerts_are_passed_over(table):
    bad = [record({"id": ""}), record(["no object"]), Record(Position("duplicates", 0, 7), TIME_MS, None, b"{}")]
    table.follow([*bad, record(None, None, 8), THREE[0]])
    assert table.rows("SELECT id FROM documents") == [("a",)]


def test_a_zero_byte_in_a_source_is_left_out_and_times_are_those_of_a_calendar(table):
    odd = [record({"id": "past", "text": "x"}, time_ms=-1), record({"id": "future", "text": "x"}, time_ms=2**62)]
    table.follow([document("a", source="no\0rth"), *odd])
    assert table.rows("SELECT source FROM documents WHERE id = 'a'") == [("north",)]
    assert table.rows("SELECT id FROM documents WHERE time BETWEEN '2026-01-01Z' AND now() ORDER BY id") == [
        ("a",),
        ("future",),
        ("past",),
    ]


def test_the_program_goes_on_behind_the_last_stored_batch(table):
    assert table.follow(THREE[:2], [THREE[2], alert("b", "a")]).starts == {}
    assert table.follow().starts == {("articles", 0): 4, ("duplicates", 0): 1}


def test_a_batch_is_stored_with_its_offsets_or_not_at_all(table, monkeypatch):
    store = stories.store

    def failing(database, inputs, alerts, read):
        store(database, inputs, alerts, read)
        if read.position.offset == 3:
            raise TransientError("the registry does not answer")

    monkeypatch.setattr(stories, "store", failing)
    with pytest.raises(TransientError):
        table.follow(THREE[:1], THREE[1:])
    assert table.rows("SELECT id, next FROM documents, offsets") == [("a", 2)]


def test_a_second_process_waits_for_the_end_of_the_first(table):
    attempt = "SELECT pg_try_advisory_lock(hashtext('streamdedup stories'))"
    seen = []
    table.follow([], during=lambda: seen.append(table.rows(attempt)))
    assert seen == [[(False,)]]
    assert table.rows(attempt) == [(True,)]


def test_the_documented_statements_show_stories_and_remove_old_documents_with_their_pairs(table):
    (select,) = re.findall(r'^psql --dbname stories --command "(.*?)"$', PAGE, re.MULTILINE)
    deletions = re.findall(r"^    (DELETE .*?;)$", stories.__doc__, re.DOTALL | re.MULTILINE)
    recent = [record({"id": name, "text": name}, at=at, time_ms=2**62) for at, name in enumerate("cd", 3)]
    table.follow([*THREE[:2], *recent, alert("b", "a"), alert("d", "c")])
    assert [row[:2] for row in sorted(table.rows(select))] == [("a", 2), ("c", 2)]
    with psycopg.connect(table.address) as connection:
        for statement in deletions:
            connection.execute(statement)
    assert (table.rows("SELECT id FROM documents ORDER BY id"), table.rows("SELECT id FROM pairs")) == (
        [("c",), ("d",)],
        [("d",)],
    )


def test_an_address_that_cannot_be_read_is_not_shown_with_its_password(tmp_path):
    settings = tmp_path / "settings.toml"
    settings.write_text(
        '[kafka]\nbootstrap_servers = "kafka:9092"\n[redis]\nurl = "redis://redis"\n[profiles.a]\ntopics = ["a"]\n'
    )
    address = "postgresql:/user:secret@host/db"
    command = [sys.executable, stories.__file__, settings, address]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 1
    assert "ADDRESS" in done.stderr
    assert "secret" not in done.stderr
    assert "Traceback" not in done.stderr
