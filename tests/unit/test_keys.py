"""Record keys, and deletions by them: the id in a key, keys that name no document, and what is counted of them."""

import itertools
import json
import random
import re
import tomllib
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Self

import pytest
from msgspec import structs
from structlog.testing import capture_logs
from typer.testing import CliRunner

from streamdedup.cli import checks, erase_scope, produce
from streamdedup.cli import main as cli
from streamdedup.cli.assembly import topic_decoder
from streamdedup.cli.collection import FileEntries
from streamdedup.corpora import CorpusReader
from streamdedup.daemon.batch import BatchResult
from streamdedup.daemon.metrics import Metrics
from streamdedup.daemon.statistics import Statistics
from streamdedup.detection.writing import IndexWriter
from streamdedup.errors import (
    EXIT_FAILED,
    BrokerMisconfigured,
    CorpusError,
    MessageError,
    SettingsError,
    StoreUnavailable,
)
from streamdedup.findings import Level
from streamdedup.index.memory import MemoryIndex
from streamdedup.kafka.protocols import Batch, CommittedOffset, Record, UnreadableRecord
from streamdedup.position import Partition, Position
from streamdedup.settings import Settings
from streamdedup.wire import Decoder, Document, ErrorCode
from streamdedup.wire.formats import json_schema
from streamdedup.wire.formats.fields import WantedFields
from streamdedup.wire.schema_registry import RegisteredSchema
from tests import envelopes
from tests.simulation.server import NUMBERED
from tests.streams import OPTIONS, Stream, decode_batch
from tests.turns import DEAD_LETTERS, INPUT, Sent, World

AT = Position("articles", 0, 7)
TEXT = "amber birch cedar delta ember fjord grove heath"
JSON_ID = '{"id":"a"}'


def deletion(key: bytes, **options: object) -> Document:
    return Decoder(**options).decode(AT, 5, key, None)


def refusal(key: bytes, **options: object) -> MessageError:
    with pytest.raises(MessageError) as caught:
        deletion(key, **options)
    return caught.value


# Keys as JSON


@pytest.mark.parametrize(
    ("key", "field", "document_id"),
    [
        (b'"doc"', None, "doc"),
        (b" 42\n", None, "42"),
        (b'{"id":"doc"}', "id", "doc"),
        (b'{"id":42,"tenant":{"id":1}}', "id", "42"),
        (b'\xef\xbb\xbf{"id":"doc"}', "id", "doc"),
        (b'{"id":"d\\u006fc"}', "id", "doc"),
    ],
)
def test_a_key_of_json_holds_the_id_as_a_whole_or_in_a_field(key, field, document_id):
    assert deletion(key, key_format="json", key_field=field).id == document_id
    assert Decoder(key_format="json", key_field=field).decode(AT, 5, key, b'{"text":"a"}').id == document_id


@pytest.mark.parametrize(
    ("key", "field", "text"),
    [
        (b"doc", None, "it is not JSON"),
        (b"", None, "it is empty"),
        (b"\0\0\0\0\7\2a", None, "framed for schema registry id 7"),
        (b"1.5", None, "of a wrong type"),
        (b'{"id":"a"}', None, "does not fit key_format and key_field: the id (the key) is of a wrong type"),
        (b'"\\ud83d"', None, "half of a surrogate pair"),
        (b"null", None, "key_field is missing or null"),
        (b'{"id":null}', "id", "key_field is missing or null"),
        (b"{}", "id", "key_field is missing or null"),
        (b'"doc"', "id", "no object"),
        (b'{"id":true}', "id", "of a wrong type"),
        (b"[" * 300, "id", "nested deeper"),
        (b'{"id":"a\\n"}', "id", "control character"),
    ],
)
def test_a_key_that_is_no_such_json_is_an_invalid_id_with_the_reason(key, field, text):
    error = refusal(key, key_format="json", key_field=field)
    assert (error.code, text in str(error)) == (ErrorCode.INVALID_ID, True), error


def test_the_key_names_the_document_of_an_envelope_without_an_id():
    decoder = Decoder(key_format="json", key_field="id", op_values=[("c", "upsert"), ("d", "delete")])
    for op, expected in (("c", "upsert"), ("d", "delete"), ("delete", "delete"), ("append", "append")):
        document = decoder.decode(AT, 5, b'{"id":42}', json.dumps({"id": None, "op": op, "text": "a"}).encode())
        assert (document.id, document.op) == ("42", expected)
    with pytest.raises(MessageError, match="is none of `upsert`, `append`, `delete`, `c`, `d`"):
        decoder.decode(AT, 5, b'{"id":42}', b'{"op":"t"}')


@pytest.mark.parametrize(
    ("flag", "op"), [(True, "delete"), ("true", "delete"), (False, "append"), ("false", "append"), (None, "append")]
)
def test_a_flag_makes_a_record_a_deletion_whatever_its_operation(flag, op):
    value = json.dumps({"id": "a", "text": "b", "op": "append", "__deleted": flag}).encode()
    assert Decoder(deleted_field="__deleted").decode(AT, 5, None, value).op == op


@pytest.mark.parametrize("flag", [1, "yes", "True", "", []])
def test_any_other_flag_is_an_invalid_field(flag):
    with pytest.raises(MessageError, match="field `gone`") as caught:
        Decoder(deleted_field="gone").decode(AT, 5, b"a", json.dumps({"gone": flag, "text": "b"}).encode())
    assert caught.value.code == ErrorCode.INVALID_FIELD


@pytest.mark.parametrize(
    ("fields", "left_out"),
    [
        ({"source": [], "published_at": "x"}, ("source",)),
        ({"source": "x", "published_at": 1.5}, ("published_at",)),
        ({"source": {"db": "a"}, "published_at": False}, ("source", "published_at")),
        ({"source": "é" * 513, "published_at": 7}, ("source",)),
        ({"source": 8, "published_at": "t" * 1_025}, ("published_at",)),
    ],
)
def test_a_source_or_time_that_is_unusable_is_left_out_and_the_document_stays(fields, left_out):
    document = Decoder().decode(AT, 5, b"a", json.dumps({"text": "b"} | fields).encode())
    kept = {name: None if name in left_out else str(value) for name, value in fields.items()}
    assert document == Document("a", "b", AT, 5, left_out=left_out, **kept)


def test_of_repeated_sources_the_last_counts_whatever_the_first_holds():
    document = Decoder().decode(
        AT, 5, b"a", b'{"text":"b","source":[],"source":"x","published_at":1,"published_at":{}}'
    )
    assert document == Document("a", "b", AT, 5, source="x", left_out=("published_at",))


@pytest.mark.parametrize(
    ("value", "source", "left_out"),
    [
        (b'{"text":"b","a.b":null,"a":{"b":"x\\ud800"}}', "x\ufffd", ()),
        (b'{"text":"b","a.b":[],"a":{"b":"x"}}', None, ("source",)),
        (b'{"text":"b","a":{"b":null}}', None, ()),
        (b'{"text":"b","a":{"b":false}}', None, ("source",)),
    ],
)
def test_a_source_may_be_at_a_path(value, source, left_out):
    assert Decoder(source_field="a.b").decode(AT, 5, b"a", value) == Document(
        "a", "b", AT, 5, source=source, left_out=left_out
    )


def test_a_source_that_is_not_utf8_is_left_out():
    document = Decoder().decode(AT, 5, b"a", b'{"text":"b","source":"\xff","published_at":"x"}')
    assert document == Document("a", "b", AT, 5, published_at="x", left_out=("source",))


@pytest.mark.parametrize("field", ["text", "op", "tenant"])
def test_no_other_field_is_left_out_and_the_error_names_it_beside_an_unusable_source(field):
    value = json.dumps({"text": "b", "tenant": "x", "source": [], "published_at": []} | {field: 1.5}).encode()
    with pytest.raises(MessageError, match=f"field `{field}`") as caught:
        Decoder(scope_field="tenant").decode(AT, 5, b"a", value)
    assert caught.value.code == ErrorCode.INVALID_FIELD


def test_ids_are_written_as_they_are_read():
    for options in ({}, {"key_format": "text"}, {"key_format": "json"}, {"key_format": "json", "key_field": "id"}):
        decoder = Decoder(**options)
        key = decoder.key_writer("articles-key")('a "b"')
        assert decoder.decode(AT, 5, key, None).id == 'a "b"'
    assert Decoder(key_format="json", key_field="a.b").key_writer("t-key")("c") == b'{"a":{"b":"c"}}'


@pytest.mark.parametrize(
    ("changes", "mistake"),
    [
        ({"key_field": "id"}, "profiles.a.key_field: needs key_format"),
        ({"key_format": "text", "key_field": "id"}, "profiles.a.key_field: needs key_format"),
        ({"key_format": "avro"}, "profiles.a.key_format: "),
        ({"key_format": "registry"}, 'schema_registry.url: is missing; profiles.a.key_format = "registry"'),
        ({"op_values": {"c": "create"}}, "profiles.a.op_values"),
        ({"op_values": "c"}, "profiles.a.op_values"),
        ({"deleted_field": "op"}, "profiles.a.deleted_field: is op, which op_field names already"),
    ],
)
def test_settings_of_keys_and_envelopes_that_cannot_work_are_refused(changes, mistake):
    with pytest.raises(SettingsError, match=mistake):
        load(changes)


def load(changes: dict[str, object], **environ: str) -> Settings:
    fixed = {"kafka.bootstrap_servers": "h:1", "redis.url": "redis://h", "redis.allow_plaintext": True}
    profile = {f"profiles.a.{key}": value for key, value in {"topics": "articles", **changes}.items()}
    return Settings.load(None, fixed | profile, environ)


def test_operations_are_written_in_a_variable_as_in_a_file():
    expected = (("c", "upsert"), ("d.e", "delete"))
    variable = {"STREAMDEDUP_PROFILES__A__OP_VALUES": '{c = "upsert", "d.e" = "delete"}'}
    assert load({}, **variable).profiles["a"].op_values == expected
    assert load({"op_values": ' {c = "upsert", "d.e" = "delete"} '}).profiles["a"].op_values == expected
    assert load({"op_values": dict(expected)}).profiles["a"].op_values == expected
    with pytest.raises(SettingsError, match=r'such as \{c = "upsert", d = "delete"\}'):
        load({"op_values": '{"c": "upsert"}'})
    with pytest.raises(SettingsError, match="op_values"):
        load({"op_values": '{c = "upsert"}\nd = "delete"'})


@pytest.mark.parametrize("key", [JSON_ID.encode(), b'"a"'])
def test_a_deletion_by_a_key_that_looks_like_json_is_doubtful_unless_key_format_is_set(key):
    envelope = b'{"op":"delete"}'
    for value in (None, envelope):
        assert Decoder().decode(AT, 5, key, value).doubtful
        assert not Decoder(key_format="text").decode(AT, 5, key, value).doubtful
        assert not Decoder().decode(AT, 5, b"a", value).doubtful
    field = "id" if key.startswith(b"{") else None
    assert not deletion(key, key_format="json", key_field=field).doubtful
    assert not Decoder().decode(AT, 5, key, b'{"text":"b"}').doubtful
    assert not Decoder().decode(AT, 5, key, b'{"id":"a","op":"delete"}').doubtful


@pytest.mark.parametrize("key", [b"\0\0\0\0\7\2a", b"\1" + b"g" * 16, b"\xff", b'{\n"id":1}'])
def test_a_key_that_can_be_no_id_is_refused_with_the_advice_to_set_key_format(key):
    assert "set key_format" in str(refusal(key))


# Deletions of documents that the index does not know


class Failing(MemoryIndex):
    """An index that fails once, before or after the markers of deletions are stored."""

    fails_at = ""

    def replace_entries(self, entries, fences):
        if self.fails_at == "before":
            self.fails_at = ""
            raise StoreUnavailable("before")
        super().replace_entries(entries, fences)
        if self.fails_at == "after":
            self.fails_at = ""
            raise StoreUnavailable("after")


def tombstones(first: int, *ids: str) -> list[Document]:
    return [
        Document(name, "", Position("articles", 0, first + number), 9, "delete", doubtful=name[0] in '{"')
        for number, name in enumerate(ids)
    ]


def outcome(result) -> tuple[int, int, list[str]]:
    refused = [document.id for document, error in result.refused if error.code == ErrorCode.INVALID_ID]
    return result.deleted_count, result.deleted_unknown_count, refused


@pytest.mark.parametrize("fails_at", ["", "before", "after"])
@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        (["known"], (1, 0, [])),
        (["known", "known"], (2, 0, [])),
        (["unknown"], (1, 1, [])),
        (["unknown", "unknown", "other"], (3, 2, [])),
        (['"known"'], (1, 0, [])),
        ([JSON_ID], (0, 0, [JSON_ID])),
        ([JSON_ID, JSON_ID, "unknown", '"known"'], (2, 1, [JSON_ID, JSON_ID])),
    ],
)
def test_what_a_deletion_finds_is_the_same_when_the_batch_is_done_again(ids, expected, fails_at):
    stream = Stream(store=Failing())
    stream.index(*(Document(name, TEXT, Position("articles", 0, n), 5) for n, name in enumerate(("known", '"known"'))))
    stream.store.fails_at = fails_at
    batch = tombstones(2, *ids)
    for _ in range(2):
        try:
            result = stream.delete(batch)
            break
        except StoreUnavailable:
            assert fails_at
    assert outcome(result) == expected
    assert len(result.pending_positions) == expected[1] + len(expected[2])
    assert outcome(stream.delete(batch)) == expected  # published, and not committed
    stream.store.finish({}, result.pending_positions, list(stream.fences.values()))
    # The second deletion of change data capture finds the marker of the first; a refused one has left none.
    again = tombstones(9, *ids)
    assert outcome(stream.delete(again)) == (expected[0], 0, expected[2])


@pytest.mark.parametrize("fails_at", ["before", "after"])
def test_a_document_whose_deletion_failed_halfway_is_left_in_no_bucket(fails_at):
    stream, document = Stream(store=Failing()), Document("known", TEXT, Position("articles", 0, 0), 5)
    stream.index(document)
    stream.store.fails_at = fails_at
    with pytest.raises(StoreUnavailable):
        stream.delete(tombstones(1, "known"))
    stream.delete(tombstones(1, "known"))
    assert stream.store.look_up([0], stream.detector.prepare([document]).band_keys).candidates == [{}]


def test_a_document_that_comes_after_a_refused_deletion_does_not_change_the_outcome_of_a_replay():
    stream, batch = Stream(), tombstones(0, JSON_ID, "unknown")
    expected = (1, 1, [JSON_ID])
    assert outcome(stream.delete(batch)) == expected
    stream.index(
        *(Document(name, TEXT, Position("articles", 0, 5 + n), 9) for n, name in enumerate((JSON_ID, "unknown")))
    )
    assert outcome(stream.delete(batch)) == expected
    assert outcome(stream.delete(tombstones(9, JSON_ID, "unknown"))) == (2, 0, [])


def test_a_program_that_removes_an_unknown_document_leaves_nothing_in_the_index_but_the_marker():
    store = MemoryIndex()
    IndexWriter(OPTIONS, store, {}).remove(["unknown"])
    assert (len(store._pending_matches), store.count_documents()) == (0, 1)


def test_a_silent_deletion_of_an_unknown_document_leaves_nothing_to_be_cleared_up():
    stream = Stream()
    stream.fence(generation=2, start=9)
    result = stream.delete(tombstones(0, "unknown", JSON_ID))
    assert outcome(result) == (1, 1, [JSON_ID])
    assert result.pending_positions == ()


def test_a_deletion_whose_number_belongs_to_another_document_is_one_of_an_unknown_document(monkeypatch):
    monkeypatch.setattr("streamdedup.detection.lifecycle.document_number", lambda _profile, _id: 1)
    monkeypatch.setattr("streamdedup.detection.preparation.document_number", lambda _profile, _id: 1)
    stream = Stream()
    stream.index(Document("a", TEXT, Position("articles", 0, 0), 5))
    assert outcome(stream.delete(tombstones(1, "b", "b"))) == (2, 1, [])
    assert not stream.store.get_entries([1])[1].deleted


# The daemon


class KeyedWorld(World):
    """A world whose records have keys: the id is the key, and the value has none; no text is a tombstone."""

    def produce(self, sent: Sent) -> Position:
        value = None if sent.text is None else json.dumps({"text": sent.text}).encode()
        return self.broker.produce(INPUT, value, sent.id.encode(), partition=sent.partition)


def test_an_unknown_key_that_looks_like_json_becomes_one_dead_letter_wherever_the_daemon_fails():
    records = [Sent('"a"', TEXT), Sent('"a"', None), Sent(JSON_ID, None), Sent("b", None), Sent(JSON_ID, TEXT)]
    calm = keyed_run(records, None)
    assert calm == ([b'{"id":"a"}'], 2.0, 1.0)
    for number in random.Random(5).sample(range(80), 25):
        assert keyed_run(records, number) == calm, number


def test_a_rebuild_reports_no_refused_deletion_again_and_a_later_one_is_refused_as_before():
    records = [Sent('"a"', TEXT), Sent('"a"', None), Sent(JSON_ID, None)]
    world = KeyedWorld(records, partitions=1, on_index_lost="rebuild")
    for lost in (False, True):
        if lost:
            world.server.go_back(None)
            world.send(Sent("b", TEXT))
        for _ in range(40):
            world.turn(world.daemons[0])
        assert [letter.key for letter in world.broker.records(DEAD_LETTERS)] == [b'{"id":"a"}']
    world.send(Sent(JSON_ID, None), Sent('"a"', None))
    for _ in range(40):
        world.turn(world.daemons[0])
    assert [letter.key for letter in world.broker.records(DEAD_LETTERS)] == [b'{"id":"a"}'] * 2
    assert not world.index._pending_matches.all_keys()


def keyed_run(records, failing: int | None):
    def fail(_world, moment):
        if moment.effect in NUMBERED - {"finish"}:
            raise StoreUnavailable("away")

    world = KeyedWorld(records, partitions=1, batch_size=5, plan=lambda number: fail if number == failing else None)
    daemon = world.daemons[0]
    for _ in range(40):
        world.turn(daemon)
    letters = [letter.key for letter in world.broker.records(DEAD_LETTERS)]
    counts = [daemon.metric(f"documents_deleted{name}_total") for name in ("", "_unknown")]
    return letters, *counts


def records_of(*pairs: tuple[bytes | None, bytes | None]) -> list[Record]:
    return [Record(Position("articles", 0, n), 5, key, value, ()) for n, (key, value) in enumerate(pairs)]


SAMPLE = records_of(
    (b"a", b'{"id":"a","text":"b"}'),
    (b"b", b'{"text":"b"}'),
    (b"7", b'{"id":7,"text":"b"}'),
    (None, b'{"id":"a","text":"b"}'),
    (b"a", None),
    (b"c", b'{"id":"a","text":"b"}'),
    (b'"a"', b'{"id":"a","text":"b"}'),
    (b"\xff", b'{"id":"a","op":"delete"}'),
    (b"a", b'{"id":"a","text":"b","source":[]}'),
    (b"a", b"{"),
)


def test_documents_with_other_keys_or_unusable_fields_are_counted_by_profile_and_logged_once_a_topic():
    pipelines = {"articles": SimpleNamespace(name="p", decoder=Decoder())}
    decoded, metrics = decode_batch(Batch(tuple(SAMPLE)), pipelines), Metrics()
    statistics = Statistics(metrics, {})
    metrics.begin_at_zero({"articles": "p"})
    with capture_logs() as lines:
        for _ in range(2):
            statistics.count_batch(BatchResult(decoded, {}, []), [])
    expected = {"key": 6.0, "source": 2.0, "published_at": 0.0}
    for reason, count in expected.items():
        labels = {"profile": "p", "reason": reason}
        assert metrics.registry.get_sample_value("streamdedup_documents_flawed_total", labels) == count
    told = [(line["log_level"], line["flaw"], line["position"]) for line in lines if line["event"] == "document_flawed"]
    assert told == [("warning", "key", "articles:0:5"), ("warning", "source", "articles:0:8")]


@pytest.fixture
def checked(monkeypatch):
    def run(records, changes=None):
        def opened(options, since_ms, ends, newest_count):
            assert (options.topics, since_ms, ends, newest_count) == (("articles",), None, None, 1_000)
            if records is None:
                raise BrokerMisconfigured("no such topic")
            return nullcontext(SimpleNamespace(batches=lambda: iter([Batch(tuple(records)), Batch()])))

        monkeypatch.setattr(checks, "KafkaSpan", opened)
        findings = checks.record_findings(checks.CheckRun(load(changes or {}), None))
        return [(finding.check, finding.level, finding.text) for finding in findings]

    return run


def test_the_check_finds_keys_of_other_documents_in_recent_records(checked):
    ((check, level, text),) = checked(SAMPLE)
    assert (check, level) == ("keys", Level.WARNING)
    assert text.startswith("3 of the newest 8 records with keys of profile a have the key of another document")
    ((_, level, _),) = checked(records_of((b'{"id":"a"}', None)))
    assert level is Level.WARNING
    right = records_of((b'{"id":"a"}', None), (b'{"id":"a"}', b'{"id":"a","text":"b"}'))
    ((_, level, text),) = checked(right, {"key_format": "json", "key_field": "id"})
    assert (level, text) == (Level.OK, "the newest 2 records with keys of profile a have the keys of their documents")


def test_the_check_says_nothing_of_keys_that_cannot_be_read_or_of_none(checked):
    assert checked(None) == checked([]) == checked(records_of((None, b'{"text":"a"}'))) == []


def test_the_check_warns_of_records_with_html(checked):
    records = records_of((None, b'{"id":"a","text":"<p>b</p>"}'), (None, b'{"id":"b","text":"b"}'))
    ((check, level, text),) = checked(records)
    assert (check, level) == ("text", Level.WARNING)
    assert text == (
        "profile a: 50.0% of the documents have entities or tags of HTML, which count as words: send plain text"
    )


@pytest.mark.parametrize(
    ("appended", "policies", "warned"),
    [
        (["b", "b"], {"articles": "delete", "b": "compact,delete"}, True),
        (["b"], {"articles": "compact", "b": "delete"}, False),
        (["b"], {}, False),  # may not be read
        ([], {"articles": "compact", "b": "compact"}, False),
    ],
)
def test_the_check_warns_of_appends_in_a_compacted_topic(checked, monkeypatch, appended, policies, warned):
    monkeypatch.setattr(checks, "cleanup_policies", lambda options: policies if options.topics == ("articles",) else {})
    records = [Record(Position(topic, 0, 9), 5, None, b'{"id":"a","text":"b","op":"append"}') for topic in appended]
    findings = checked([*records_of((None, b'{"id":"a","text":"b"}')), *records])
    assert [(check, level) for check, level, _ in findings] == [("appends", Level.WARNING)] * warned
    assert not warned or findings[0][2].startswith(
        "2 of the newest records of topic b are appends, which need cleanup.policy delete"
    )


# Envelopes, by the recipes of docs/messages.md

PAGE = (Path(__file__).parents[2] / "docs" / "messages.md").read_text(encoding="utf-8")
RECIPES = tomllib.loads(re.search(r"### Envelopes\n.*?```toml\n(.*?)```", PAGE, re.DOTALL)[1])


def recipe(name: str, schemas: bool = True) -> Decoder:
    """Return the decoder of a recipe; without schemas, the paths have no ``payload``."""
    text = json.dumps(RECIPES) if schemas else json.dumps(RECIPES).replace("payload.", "")
    settings = Settings.load(None, json.loads(text) | {"redis.allow_plaintext": True}, {})
    decoder = topic_decoder(settings, settings.profiles[name])
    return decoder if schemas or name != "connect" else replace(decoder, key_field=None)


def read(decoder: Decoder, *records: envelopes.Envelope) -> list[Document]:
    """Decode records, none of which has a flaw."""
    documents = [decoder.decode(AT, 5, key, value, headers) for key, value, headers in records]
    assert [decoder.flaws(d, key, headers) for d, (key, _, headers) in zip(documents, records, strict=True)] == [
        ()
    ] * len(records)
    return documents


@pytest.mark.parametrize("schemas", [True, False])
def test_the_recipe_for_connect_reads_its_records_and_tombstones(schemas):
    records = [envelopes.connect("a", text, schemas=schemas) for text in (TEXT, None)]
    assert read(recipe("connect", schemas), *records) == [
        Document("a", TEXT, AT, 5, source="files"),
        Document("a", "", AT, 5, "delete"),
    ]


@pytest.mark.parametrize("schemas", [True, False])
def test_the_recipe_for_debezium_reads_changes_deletions_and_tombstones(schemas):
    decoder = recipe("debezium", schemas)
    for op in "cru":
        (record,) = envelopes.debezium(op, 42, TEXT, schemas=schemas)
        expected = Document("42", TEXT, AT, 5, source="articles", published_at="1777618931480")
        assert read(decoder, record) == [expected]
    change, tombstone = read(decoder, *envelopes.debezium("d", 42, schemas=schemas))
    assert (change.id, change.op, tombstone) == ("42", "delete", Document("42", "", AT, 5, "delete"))
    for op in "tm":
        with pytest.raises(MessageError) as caught:
            read(decoder, *envelopes.debezium(op, 42, schemas=schemas))
        assert caught.value.code == ErrorCode.UNKNOWN_OP


def test_rows_alone_with_rewritten_deletions_are_read():
    decoder = Decoder(key_format="json", key_field="id", deleted_field="__deleted")
    for flag, op in (("false", "upsert"), ("true", "delete")):
        row = {"id": 42, "text": TEXT if op == "upsert" else None, "__deleted": flag}
        assert read(decoder, (b'{"id":42}', json.dumps(row).encode(), []))[0].op == op


def test_the_recipe_for_cloudevents_reads_structured_mode_and_the_defaults_read_binary_mode():
    saved, removed = (envelopes.cloudevent("saved", "a", TEXT), envelopes.cloudevent("removed", "a"))
    source, time = "https://cms.example.com/articles", "2026-05-01T07:00:00Z"
    assert read(recipe("cloudevents"), saved, removed) == [
        Document("a", TEXT, AT, 5, source=source, published_at=time),
        Document("a", "", AT, 5, "delete", source=source, published_at=time),
    ]
    with pytest.raises(MessageError, match=r"field `type` is none of"):
        read(recipe("cloudevents"), envelopes.cloudevent("read", "a", TEXT))
    binary = [envelopes.binary_cloudevent("saved", "a", text) for text in (TEXT, None)]
    assert read(Decoder(), *binary) == [Document("a", TEXT, AT, 5), Document("a", "", AT, 5, "delete")]


# Commands


class Sink:
    """A ``Feeder`` that keeps the records."""

    def __init__(self, sent: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]]) -> None:
        self._sent = sent
        self.delivered_count = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.delivered_count = len(self._sent)

    def send(
        self, _topic: str, key: bytes | None, value: bytes | None, *, headers: list = (), partition=None, name=""
    ) -> None:
        self._sent.append((key, value, list(headers), *([] if partition is None else [partition])))


@pytest.fixture
def produced(monkeypatch, tmp_path):
    def run(*arguments, settings="", records=(), unreadable=(), exit_code=0):
        sent = []
        reader = SimpleNamespace(batches=lambda: iter([Batch(tuple(records), tuple(unreadable))]))
        for module in (produce, erase_scope):
            monkeypatch.setattr(module, "Feeder", lambda _options, **_how: Sink(sent))
            monkeypatch.setattr(module, "require_topics", lambda _options, needed: run.needed_rights.append(needed))
        monkeypatch.setattr(erase_scope, "TopicReader", lambda _options: nullcontext(reader))
        config = tmp_path / "streamdedup.toml"
        servers = 'kafka.bootstrap_servers = "h:1"\nredis.url = "redis://h"\nredis.allow_plaintext = true\n'
        config.write_text(f'{servers}[profiles.a]\ntopics = ["articles"]\n{settings}', encoding="utf-8")
        done = CliRunner().invoke(cli.app, ["produce", *arguments, "--topic", "articles", "--config", str(config)])
        assert done.exit_code == exit_code, done.output
        run.stderr = done.stderr
        return sent

    run.needed_rights = []
    return run


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ("", b"a"),
        ('key_format = "text"', b"a"),
        ('key_format = "json"', b'"a"'),
        ('key_format = "json"\nkey_field = "payload.id"', b'{"payload":{"id":"a"}}'),
    ],
)
def test_produce_writes_keys_in_their_format_and_none_for_a_line_that_is_no_document(produced, tmp_path, settings, key):
    lines = tmp_path / "a.jsonl"
    lines.write_text('{"id":"a","text":"b"}\n{\n', encoding="utf-8")
    assert produced(str(lines), settings=settings) == [(key, b'{"id":"a","text":"b"}', []), (None, b"{", [])]


def test_lines_are_written_with_a_schema_as_they_are_read(tmp_path):
    lines = tmp_path / "a.jsonl"
    lines.write_bytes(
        b'{"id":"a","text":"half \\ud83d"}\n{"id":"b","text":"c","more":"\xff"}\n'
        b'{"id":"d","text":"e","more":%b}\n' % (b"9" * 5_000)
    )
    decoder = Decoder()
    write = json_schema.compile_writer(RegisteredSchema("JSON", "{}", {}), WantedFields(texts=("text",), id="id"))
    readers = [(str(lines), CorpusReader(str(lines), format="jsonl", decoder=decoder))]
    records = produce._records(readers, FileEntries(), decoder, str.encode, write)
    values = [json.loads(value) for _, _, value in itertools.islice(records, 2)]
    assert [(value["id"], value["text"]) for value in values] == [("a", "half \ufffd"), ("b", "c")]
    with pytest.raises(CorpusError, match=r"a\.jsonl:3: it has a number with too many digits"):
        next(records)


def test_an_erased_scope_gets_the_keys_that_its_documents_have_else_keys_in_their_format(produced):
    schema_id = ("__key_schema_id", b"\0\0\0\0\7")
    values = {
        name: json.dumps({"id": name, "text": "a", "scope": scope}).encode()
        for name, scope in zip("abcd", "xxxy", strict=True)
    }
    records = records_of(
        (b'{ "id" : "a" }', values["a"]),
        (None, values["b"]),
        (b'{"id":"z"}', values["c"]),
        (b'{"id":"d"}', values["d"]),
    )
    forwarded = ("__key_schema_id", b"\0\0\0\0\6")
    records[0] = structs.replace(records[0], headers=(forwarded, schema_id, ("other", b"x")))
    settings = 'scope_field = "scope"\nkey_format = "json"\nkey_field = "id"'
    sent = produced("--erase-scope", "x", settings=settings, records=records)
    assert sent == [
        (b'{ "id" : "a" }', None, [schema_id], 0),
        (b'{"id":"b"}', None, [], 0),
        (b'{"id":"c"}', None, [], 0),
    ]


def test_the_tombstones_of_a_scope_are_in_the_partitions_of_its_documents_and_have_their_names(produced, monkeypatch):
    incarnations = {("articles", 1): 3, ("articles", 3): 2, ("other", 2): 4}
    commits = {Partition(*name): CommittedOffset(2, topic_id="t", incarnation=n) for name, n in incarnations.items()}
    monkeypatch.setattr(erase_scope, "read_committed_offsets", lambda _options: commits)
    values = [b'{"id":"a","text":"a","scope":"x"}', b'{"text":"b","scope":"x"}', b'{"text":"c","scope":"x"}']
    records = [
        Record(Position("articles", partition, 7), 5, key, value, ())
        for partition, key, value in zip((5, 1, 2), (b"a", None, None), values, strict=True)
    ]
    sent = produced("--erase-scope", "x", settings='scope_field = "scope"', records=records)
    assert sent == [(b"a", None, [], 5), (b"articles@3:1:7", None, [], 1), (b"articles@3:2:7", None, [], 2)]


def test_documents_of_which_only_appends_are_left_are_no_part_of_an_erased_scope_and_counted(produced):
    records = records_of(
        (b"a", b'{"text":"a","scope":"x"}'),
        *((key, b'{"op":"append","text":"b"}') for key in (b"a", b"b", b"b", b"c")),
    )
    sent = produced("--erase-scope", "x", settings='scope_field = "scope"', records=records)
    assert [key for key, *_ in sent] == [b"a"]
    assert "2 documents left out: articles has only appends to them" in produced.stderr
    produced("--erase-scope", "x", settings='scope_field = "scope"', records=records[:2])
    assert "appends" not in produced.stderr


def test_an_erased_scope_has_continued_documents_but_none_that_was_deleted_or_left_it(produced):
    records = records_of(
        *((key, b'{"text":"a","scope":"x"}') for key in (b"a", b"b", b"c")),
        (b"a", b'{"op":"append","text":"b"}'),
        (b"b", None),
        (b"c", b'{"text":"a","scope":"y"}'),
    )
    sent = produced("--erase-scope", "x", settings='scope_field = "scope"', records=records)
    assert [key for key, *_ in sent] == [b"a"]


def test_a_text_above_the_limit_counts_as_a_possible_last_version_in_an_erased_scope(produced):
    large = [json.dumps({"text": "a" * 99, "scope": scope}).encode() for scope in "xy"]
    records = records_of(
        (b"indexed-under-a-higher-limit", large[0]),
        (b"refused-in-another-scope", b'{"text":"a","scope":"x"}'),
        (b"refused-in-another-scope", large[1]),
        (b"left", b'{"text":"a","scope":"x"}'),
        (b"left", b'{"text":"a","scope":"y"}'),
        (b"left", large[1]),
    )
    sent = produced("--erase-scope", "x", settings='scope_field = "scope"\nmax_text_bytes = "50B"', records=records)
    assert [key for key, *_ in sent] == [b"indexed-under-a-higher-limit", b"refused-in-another-scope"]


def test_records_that_cannot_be_read_for_an_erasure_are_told_and_the_exit_code_is_1(produced):
    records = records_of((b"a", b'{"text":"a","scope":"x"}'), (b"b", b'{"title":"a","scope":"x"}'))
    unreadable = [UnreadableRecord(Position("articles", 0, 9), "wrong checksum")]
    settings = 'scope_field = "scope"'
    sent = produced(
        "--erase-scope", "x", settings=settings, records=records, unreadable=unreadable, exit_code=EXIT_FAILED
    )
    assert [key for key, *_ in sent] == [b"a"]
    assert "unreadable: articles:0:1: no text: `text` missing or null" in produced.stderr
    assert "unreadable: articles:0:9: wrong checksum" in produced.stderr
    assert "2 records left out: unreadable with these settings and schemas" in produced.stderr


def test_the_rights_to_send_are_asked_for_before_anything_is_read_or_sent(produced, tmp_path):
    (tmp_path / "a.jsonl").write_text('{"id":"a","text":"b"}\n', encoding="utf-8")
    produced(str(tmp_path / "a.jsonl"))
    produced("--erase-scope", "x", settings='scope_field = "scope"')
    assert produced.needed_rights == [{"articles": ("WRITE",)}, {"articles": ("READ", "WRITE")}]


@pytest.mark.parametrize(("have_keys", "subjects"), [(False, ["articles-key"]), (True, [])])
def test_an_erased_scope_makes_one_writer_of_keys_and_only_where_documents_have_none(
    produced, monkeypatch, have_keys, subjects
):
    asked, key_writer = [], Decoder.key_writer

    def asking(decoder, subject):
        asked.append(subject)
        return key_writer(decoder, subject)

    monkeypatch.setattr(Decoder, "key_writer", asking)
    keys = [b'"a"', b'"b"', b'"c"']
    values = [b'{"id":%b,"text":"a","scope":"x"}' % key for key in keys]
    records = records_of(*((key if have_keys else None, value) for key, value in zip(keys, values, strict=True)))
    settings = 'scope_field = "scope"\nkey_format = "json"'
    sent = produced("--erase-scope", "x", settings=settings, records=records)
    assert [key for key, *_ in sent] == keys
    assert asked == subjects
