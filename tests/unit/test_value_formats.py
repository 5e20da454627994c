"""Formats with schemas in a registry: values, schemas, and answers of the registry that are none."""

import json
import shlex
import ssl
import struct
import sys
import time
import tracemalloc
from base64 import b64encode
from contextlib import contextmanager, nullcontext, suppress
from datetime import UTC, datetime
from decimal import Decimal
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from uuid import UUID

import fastavro
import pytest
import typer
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from msgspec import structs

from streamdedup.cli import dlq, erase_scope, topic_reading
from streamdedup.cli.assembly import registry_of, topic_decoder
from streamdedup.cli.checks import REGISTRY, CheckRun
from streamdedup.errors import DecodeError, RegistryMisconfigured, RegistryUnavailable, SettingsError
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch, Record
from streamdedup.position import Position
from streamdedup.settings import Settings
from streamdedup.wire import Decoder, Document, ErrorCode, Registry, schema_registry
from streamdedup.wire.dead_letters import PREFIX, DeadLetter
from streamdedup.wire.formats import avro, protobuf
from streamdedup.wire.formats import registry as registry_module
from streamdedup.wire.formats.avro_walk import MAX_DEPTH
from streamdedup.wire.formats.fields import WantedFields
from streamdedup.wire.schema_registry import MAX_ANSWER_BYTES, RegisteredSchema, RegistrySession
from tests.streams import decode_batch

AT = Position("articles", 3, 1042)
TLS = Path(__file__).parents[1] / "tls"
GUID = UUID("0123456789abcdef0123456789abcdef")


def record(name, **fields):
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields.items()]}


ARTICLE = record("Article", id="string", text=["null", "string"])
MILLIS, MICROS = ({"type": "long", "logicalType": f"timestamp-{unit}"} for unit in ("millis", "micros"))


class Answers(dict):
    """Answers of a registry: by path a status and a body, or the schema, its references, or its type."""

    def __init__(self):
        super().__init__()
        self.asked = []
        self.logins = []
        self.connections = set()
        self.on_asked = lambda: None
        #: Paths whose answers end the connection without a word, are cut, or never end.
        self.closing, self.cut, self.slow = set(), set(), set()

    def add(self, schema_id, schema, kind="AVRO", references=()):
        text = schema if isinstance(schema, str) else json.dumps(schema)
        answer = {"schema": text, "schemaType": kind, "references": list(references)}
        self[f"/api/schemas/ids/{schema_id}"] = (200, answer)
        return answer


@pytest.fixture
def answers():
    return Answers()


@contextmanager
def served(answers, tls=None):
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self):
            answers.connections.add(self.client_address)
            answers.asked.append(self.path)
            answers.on_asked()
            answers.logins.append(self.headers["Authorization"])
            missing = (404, {"error_code": 40403, "message": "no such schema"})
            status, content = answers.get(self.path, missing)
            body = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body) + 1_000 * (self.path in answers.slow)))
            self.end_headers()
            self.close_connection = self.path in answers.closing | answers.cut | answers.slow
            self.wfile.write(body[: -1 if self.path in answers.cut | answers.slow else None])
            while self.path in answers.slow:
                time.sleep(0.05)
                try:
                    self.connection.send(b" ")
                except OSError:
                    return

        def log_message(self, *_arguments):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        if tls is not None:
            server.socket = tls.wrap_socket(server.socket, server_side=True)
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http{'' if tls is None else 's'}://127.0.0.1:{server.server_port}/api"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def url(answers):
    with served(answers) as address:
        yield address


@pytest.fixture
def decode(url):
    decoders = {}

    def run(value, headers=(), **options):
        key = repr(options)
        if key not in decoders:
            decoders[key] = Decoder(registry=Registry(url), **{"format": "avro", **options})
        return decoders[key].decode(AT, 5, b"key", value, headers)

    run.url = url
    return run


def encoded(schema, value):
    stream = BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


def framed(schema_id, schema, value):
    return struct.pack(">bI", 0, schema_id) + encoded(schema, value)


def refused(decode, value, headers=(), **options):
    with pytest.raises(DecodeError) as caught:
        decode(value, headers, **options)
    return caught.value.code, str(caught.value)


def test_the_id_of_the_schema_is_in_front_of_the_value_or_in_a_header_as_number_or_as_uuid(answers, decode):
    answers["/api/schemas/guids/01234567-89ab-cdef-0123-456789abcdef"] = (200, answers.add(7, ARTICLE))
    plain = encoded(ARTICLE, {"id": "a", "text": "one"})
    expected = Document("a", "one", AT, 5)
    number, uuid = b"\0\0\0\0\7", b"\1" + GUID.bytes
    assert [decode(frame + plain) for frame in (number, uuid)] == [expected] * 2
    for frame in (number, uuid):
        assert decode(plain, [("other", None), ("__value_schema_id", frame)]) == expected


def test_of_several_headers_with_a_schema_the_last_one_is_that_of_the_writer(answers, decode):
    answers.add(6, record("Raw", url="string", html="string"))
    answers.add(7, ARTICLE)
    forwarded, own = [("__value_schema_id", b"\0\0\0\0%c" % number) for number in (6, 7)]
    plain = encoded(ARTICLE, {"id": "a", "text": "one"})
    assert decode(plain, [forwarded, own, ("other", b"x")]) == Document("a", "one", AT, 5)
    # Without a content in the last header, the id is in front of the value. A replayed header that was null is empty.
    for absent in (None, b""):
        assert decode(b"\0\0\0\0\7" + plain, [forwarded, ("__value_schema_id", absent)]) == Document("a", "one", AT, 5)


def test_a_schema_is_asked_for_once_and_an_unknown_one_each_time(answers, decode):
    answers.add(7, ARTICLE)
    for name in "ab":
        assert decode(framed(7, ARTICLE, {"id": name, "text": "one"})).id == name
    for _ in range(2):
        assert refused(decode, framed(8, ARTICLE, {"id": "a", "text": "one"}))[0] == ErrorCode.UNKNOWN_SCHEMA
    assert answers.asked == ["/api/schemas/ids/7", "/api/schemas/ids/8", "/api/schemas/ids/8"]


def test_a_schema_whose_values_have_an_unusable_source_and_text_is_asked_for_once(answers, decode):
    schema = record("A", source="double", published_at="bytes", text="long")
    answers.add(7, schema)
    value = framed(7, schema, {"source": 1.5, "published_at": b"", "text": 5})
    assert refused(decode, value) == (ErrorCode.INVALID_FIELD, "field `text`: Expected `str | null`, got `int`")
    assert len(answers.asked) == 1


def test_a_truth_value_is_no_source(answers, decode):
    schema = record("A", source="boolean", text="string")
    answers.add(7, schema)
    value = framed(7, schema, {"source": True, "text": "a"})
    assert decode(value) == Document("key", "a", AT, 5, left_out=("source",))


def decoded_batch(url, *ids, tick=lambda: None):
    """Return the codes of a batch of values with these schema ids, decoded twice by a new decoder."""
    batch = Batch(tuple(Record(AT, 5, b"key", b"\0\0\0\0%c\2a\2\2a" % number) for number in ids))
    pipelines = {"articles": SimpleNamespace(name="p", decoder=Decoder(format="avro", registry=Registry(url)))}
    return [[failed.failure.code for failed in decode_batch(batch, pipelines, tick).failures] for _ in range(2)]


def test_a_batch_asks_once_for_an_unknown_schema_over_one_connection_and_the_next_batch_again(answers, url):
    ticks = []
    answers.add(7, ARTICLE)
    refusals = decoded_batch(url, 8, 9, 8, 7, 9, 7, tick=lambda: ticks.append(1))
    assert refusals == [[ErrorCode.UNKNOWN_SCHEMA] * 4] * 2
    assert answers.asked == [f"/api/schemas/ids/{number}" for number in (8, 9, 7, 8, 9)]
    assert (len(answers.connections), len(ticks)) == (2, 12)


@pytest.mark.parametrize(("later_s", "asked"), [(59.0, [9]), (61.0, [8, 9])])
def test_a_batch_that_a_rate_limit_interrupts_asks_for_unknown_schemas_again_only_after_a_minute(
    answers, url, monkeypatch, later_s, asked
):
    now_s = 1e6
    monkeypatch.setattr(registry_module, "time", SimpleNamespace(monotonic=lambda: now_s))
    batch = Batch(tuple(Record(AT, 5, b"key", b"\0\0\0\0%c\2a" % number) for number in (8, 9)))
    pipelines = {"articles": SimpleNamespace(name="p", decoder=Decoder(format="avro", registry=Registry(url)))}
    answers["/api/schemas/ids/9"] = 429, {}
    with pytest.raises(RegistryUnavailable, match="429"):
        decode_batch(batch, pipelines)
    del answers["/api/schemas/ids/9"]
    now_s += later_s
    for expected in (asked, [8, 9]):  # a batch that ends keeps nothing
        answers.asked.clear()
        assert len(decode_batch(batch, pipelines).failures) == 2
        assert answers.asked == [f"/api/schemas/ids/{number}" for number in expected]


#: Four records of two unknown schemas.
UNKNOWN = [Record(AT, 5, b"key", b"\0\0\0\0%c\2a\2\2a" % number, ()) for number in (8, 9, 8, 9)]


@pytest.fixture
def unknown_topic(answers, url, monkeypatch):
    """Let commands read ``UNKNOWN`` from a topic in Avro; return its decoder."""
    decoder = Decoder(format="avro", registry=Registry(url), scope_field="scope")
    batches = SimpleNamespace(batches=lambda: iter([Batch(tuple(UNKNOWN))]), total_count=4, done_count=lambda: 4)
    for module in (erase_scope, topic_reading):
        monkeypatch.setattr(module, "topic_decoder", lambda *_: decoder)
        monkeypatch.setattr(
            module,
            "kafka_options",
            lambda _settings: KafkaOptions(
                bootstrap_servers="h:1", group_id="g", topics=("articles",), transactional_id="x"
            ),
        )
    for module, reader in ((erase_scope, "TopicReader"), (topic_reading, "KafkaSpan")):
        monkeypatch.setattr(module, reader, lambda *_, **__: nullcontext(batches))
    monkeypatch.setattr(erase_scope, "require_topics", lambda *_: None)
    monkeypatch.setattr(erase_scope, "Feeder", lambda _options: nullcontext(SimpleNamespace(delivered_count=0)))
    return decoder


def test_commands_ask_once_for_an_unknown_schema_over_one_connection(answers, unknown_topic):
    profile = SimpleNamespace(topics=("articles",), scope_field="scope")
    decoders = {"articles": unknown_topic}

    def erase():
        with pytest.raises(typer.Exit):  # no record can be read
            erase_scope.erase_documents(None, profile, "articles", "x")

    letters = [DeadLetter(structs.replace(r, headers=((f"{PREFIX}topic", b"articles"),))) for r in UNKNOWN]
    for command in (
        lambda: dlq._show_lines(letters, decoders),
        erase,
        lambda: list(topic_reading.newest_documents(None, profile, 0.0, 4)),
    ):
        answers.asked.clear()
        answers.connections.clear()
        command()
        assert (answers.asked, len(answers.connections)) == (["/api/schemas/ids/8", "/api/schemas/ids/9"], 1)


def test_a_connection_that_the_registry_has_closed_is_opened_again(answers, url):
    answers.add(7, ARTICLE)
    answers.closing.add("/api/schemas/ids/8")
    assert decoded_batch(url, 8, 7, 9)[0] == [ErrorCode.UNKNOWN_SCHEMA] * 2
    answers.cut.add("/api/schemas/ids/7")
    with pytest.raises(RegistryUnavailable, match="IncompleteRead"):
        decoded_batch(url, 7)


def test_an_answer_in_small_pieces_has_a_time_limit(answers, url):
    decoder = Decoder(format="avro", registry=registry_of(settings_with(url, timeout="500ms")))
    answers.add(7, ARTICLE)
    answers.slow.add("/api/schemas/ids/7")
    with pytest.raises(RegistryUnavailable, match="takes too long"):
        decoder.decode(AT, 5, b"key", b"\0\0\0\0\7\2a")


def test_a_schema_may_refer_to_others_and_be_a_union_of_them(answers, decode):
    body = record("x.Body", body="string", time=MILLIS, expires=MILLIS)
    article = record("x.Article", id="string", payload=["null", "x.Body"])
    other = record("x.Removed", id="string", op="string")
    subjects = {"body": (body, []), "article": (article, ["body"]), "other": (other, [])}
    for name, (schema, needed) in subjects.items():
        references = [{"name": part, "subject": f"s/{part}", "version": 3} for part in needed]
        answer = {"schema": json.dumps(schema), "references": references}
        answers[f"/api/subjects/s%2F{name}/versions/3"] = (200, answer)
    references = [{"name": name, "subject": f"s/{name}", "version": 3} for name in ("article", "other", "body")]
    answers.add(1, ["x.Article", "x.Removed"], references=references)
    names = {}
    whole = [fastavro.parse_schema(schema, names) for schema in (body, article, other)][1:]
    frame = b"\0\0\0\0\1"
    payload = {"body": "one", "time": datetime(2026, 5, 1, tzinfo=UTC), "expires": 2**60}
    article = frame + encoded(whole, ("x.Article", {"id": "a", "payload": payload}))
    paths = {"text_fields": ("payload.body",), "published_at_field": "payload.time"}
    assert decode(article, **paths) == Document("a", "one", AT, 5, published_at="2026-05-01T00:00:00Z")
    removed = frame + encoded(whole, ("x.Removed", {"id": "a", "op": "delete"}))
    assert decode(removed, text_fields=("payload.body",)) == Document("a", "", AT, 5, "delete")
    del answers["/api/subjects/s%2Fbody/versions/3"]
    answers.add(2, ["x.Article", "x.Removed"], references=references)
    code, text = refused(decode, b"\0\0\0\0\2" + article[5:], text_fields=("payload.body",))
    assert (code, "refers to s/body, version 3" in text) == (ErrorCode.UNKNOWN_SCHEMA, True)


def test_a_bare_name_is_that_of_a_type_in_the_enclosing_namespace_or_of_one_without_a_namespace(answers, decode):
    answers["/api/subjects/author/versions/1"] = (200, {"schema": json.dumps(record("Author", pen="string"))})
    references = [{"name": "Author", "subject": "author", "version": 1}]
    answers.add(7, record("com.acme.Article", author="Author", text="string"), references=references)
    author = record("Author", pen="string") | {"namespace": ""}
    answers.add(8, record("com.acme.Article", author=author, editor="Author", text="string"))
    answers.add(9, record("com.acme.Article", a=record("Author"), b="Author", text="string"), references=references)
    for framed_value in (b"\7\2x\2a", b"\x08\2x\2y\2a", b"\x09\2a"):
        assert decode(b"\0\0\0\0" + framed_value).text == "a"


def refer(answers, schema_id, count, size=0, path=lambda number: number + 1):
    """Add a schema that refers to the first of ``count`` schemas, each of which refers to the one of ``path``."""

    def referring(number):
        names = [f"E{number}"] if number < count else []
        return [{"name": name, "subject": name, "version": 1} for name in names]

    answers.add(schema_id, record("A", text="string"), references=referring(0))
    for number in range(count):
        schema = {"type": "enum", "name": f"E{number}", "symbols": ["x"], "doc": "d" * size}
        answer = {"schema": json.dumps(schema), "references": referring(path(number))}
        answers[f"/api/subjects/E{number}/versions/1"] = (200, answer)


@pytest.fixture
def limit(monkeypatch):
    monkeypatch.setattr(schema_registry, "MAX_REFERENCES", 20)
    return 20


def test_a_schema_may_refer_to_many_others_and_in_circles(answers, decode, limit):
    refer(answers, 7, limit, path=lambda number: (number + 1) % limit)
    assert decode(b"\0\0\0\0\7\2a").text == "a"
    assert len(answers.asked) == 1 + limit


def test_a_schema_that_refers_to_too_many_others_is_asked_for_once(answers, decode, limit):
    refer(answers, 7, limit + 1)
    many = [{"name": f"E{number}", "subject": f"E{limit}", "version": 1} for number in range(5_000)]
    answers.add(8, record("A", text="string"), references=many)
    for schema_id in (7, 8):
        for _ in range(2):
            code, text = refused(decode, b"\0\0\0\0%c\2a" % schema_id)
            assert (code, f"more than {limit} schemas" in text) == (ErrorCode.UNUSABLE_SCHEMA, True)
    assert len(answers.asked) == 2 * (1 + limit)


@pytest.mark.parametrize("size", [MAX_ANSWER_BYTES, MAX_ANSWER_BYTES // 2, MAX_ANSWER_BYTES // 20])
def test_a_schema_and_those_that_it_refers_to_are_bounded_together(answers, decode, size):
    refer(answers, 7, 21, size)
    for _ in range(2):
        code, text = refused(decode, b"\0\0\0\0\7\2a")
        assert (code, "longer than 4,194,304 bytes" in text) == (ErrorCode.UNUSABLE_SCHEMA, True)
    assert len(answers.asked) == 1 + MAX_ANSWER_BYTES // size
    # The bound is for each schema: the next one is read.
    answers.add(8, ARTICLE)
    with RegistrySession(Registry(decode.url)) as session:
        for _ in range(3):
            with pytest.raises(DecodeError):
                session.by_id(7)
            assert session.by_id(8).text == json.dumps(ARTICLE)


def test_slow_references_are_asked_for_until_the_time_ends_and_again_in_the_next_batch(answers, url, monkeypatch):
    refer(answers, 7, 10)
    now = [0.0]
    monkeypatch.setattr(schema_registry, "time", SimpleNamespace(monotonic=lambda: now[0]))
    answers.on_asked = lambda: now.__setitem__(0, now[0] + 7)  # of 10 seconds for each, and 20 together
    assert decoded_batch(url, 7, 7) == [[ErrorCode.UNKNOWN_SCHEMA] * 2] * 2
    assert len(answers.asked) == 2 * 4
    answers.on_asked = lambda: now.__setitem__(0, now[0] + 2)
    assert decoded_batch(url, 7) == [[ErrorCode.SCHEMA_MISMATCH]] * 2  # read, but with another schema in mind


DEEP = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    ("form", "schema", "extra"),
    [
        ("avro", json.dumps(ARTICLE), b', "x": ' + DEEP),
        ("avro", DEEP.decode(), b""),
        ("avro", '{"type": ' * 900 + '"string"' + "}" * 900, b""),
        ("avro", '{"type": "array", "items": ' * 400 + '"string"' + "}" * 400, b""),
        ("json-schema", '{"a": ' * 50_000 + "1" + "}" * 50_000, b""),
        ("json-schema", DEEP.decode(), b""),
        ("protobuf", 'syntax = "proto3"; ' + "message A { " * 10_000 + "}" * 10_000, b""),
    ],
)
def test_a_schema_that_is_nested_too_deeply_is_asked_for_once(answers, decode, form, schema, extra):
    kind = {"avro": "AVRO", "json-schema": "JSON", "protobuf": "PROTOBUF"}[form]
    body = json.dumps({"schema": schema, "schemaType": kind}).encode()
    answers["/api/schemas/ids/7"] = (200, body[:-1] + extra + b"}")
    for _ in range(2):
        assert refused(decode, b"\0\0\0\0\7\2a", format=form)[0] == ErrorCode.UNUSABLE_SCHEMA
    assert len(answers.asked) == 1


def test_a_deep_answer_that_is_no_schema_makes_no_dead_letter(answers, decode):
    answers["/api/schemas/ids/7"] = (404, b'{"x": ' + DEEP + b"}")
    with pytest.raises(RegistryMisconfigured, match="not the API"):
        decode(b"\0\0\0\0\7\2a")


def test_the_schemas_that_were_used_last_are_remembered_up_to_their_bytes(answers, decode, monkeypatch):
    monkeypatch.setattr(registry_module, "MAX_REMEMBERED_BYTES", 3 * 16_384)
    for schema_id in (1, 2, 3, 4):
        answers.add(schema_id, ARTICLE)
    answers.add(5, "no schema")
    large = record("A", text="string") | {"doc": "d" * 40_000}
    answers.add(6, large)

    def asked(*ids):
        del answers.asked[:]
        for schema_id in ids:
            is_read(decode, b"\0\0\0\0%c\2a\2\2a" % schema_id)
        return [int(path.rsplit("/", 1)[1]) for path in answers.asked]

    assert asked(1, 2, 3, 1, 1, 4, 1, 3) == [1, 2, 3, 4]
    assert asked(2, 4, 3) == [2, 4]
    assert asked(5, 5, 3, 4, 2) == [5, 2]  # an unusable one counts too
    assert asked(6, 6, 3, 6) == [6, 3, 6]  # beside a large one there is no room


def test_a_schema_larger_than_all_that_is_remembered_is_read_and_remembered(answers, decode, monkeypatch):
    monkeypatch.setattr(registry_module, "MAX_REMEMBERED_BYTES", 10)
    answers.add(7, ARTICLE)
    for _ in range(2):
        assert decode(framed(7, ARTICLE, {"id": "a", "text": "one"})).text == "one"
    assert len(answers.asked) == 1


def test_a_path_leads_through_records_maps_and_unions(answers, decode):
    inner = record("Inner", title=["null", "string"])
    schema = record("A", inner=["null", "string", inner], notes={"type": "map", "values": "string"}, id="int")
    answers.add(7, schema)
    names = {"text_fields": ("inner.title", "notes.more", "nowhere.title")}
    value = {"id": 4, "inner": {"title": "one"}, "notes": {"more": "two", "other": "x"}}
    assert decode(framed(7, schema, value), **names) == Document("4", "one\ntwo", AT, 5)
    for nothing in (None, "a text", {"title": None}):
        value = {"id": 4, "inner": nothing, "notes": {}}
        assert refused(decode, framed(7, schema, value), **names)[0] == ErrorCode.MISSING_TEXT


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (MILLIS, datetime(2026, 5, 1, 6, tzinfo=UTC), "2026-05-01T06:00:00Z"),
        (MICROS, datetime(2026, 5, 1, 6, 0, 0, 7, tzinfo=UTC), "2026-05-01T06:00:00.000007Z"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, datetime(2026, 5, 1), "2026-05-01T00:00:00"),  # noqa: DTZ001
        ({"type": "int", "logicalType": "date"}, datetime(2026, 5, 1, tzinfo=UTC).date(), "2026-05-01"),
        ({"type": "string", "logicalType": "uuid"}, GUID, str(GUID)),
        ({"type": "fixed", "name": "F", "size": 16, "logicalType": "uuid"}, GUID.bytes, str(GUID)),
        ({"type": "long", "logicalType": "timestamp-nanos"}, 7_999, "1970-01-01T00:00:00.000007Z"),
        ({"type": "long", "logicalType": "local-timestamp-nanos"}, 7_999, "1970-01-01T00:00:00.000007"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, Decimal("1.50"), "1.50"),
        ("long", 1777615200000, "1777615200000"),
        ({"type": "enum", "name": "E", "symbols": ["SPRING"]}, "SPRING", "SPRING"),
    ],
)
def test_logical_types_become_texts(answers, decode, kind, value, text):
    schema = record("A", text="string", published_at=kind)
    answers.add(7, schema)
    assert decode(framed(7, schema, {"text": "one", "published_at": value})).published_at == text


LARGEST = b"\xfe" + b"\xff" * 8 + b"\1"
MEGABYTE = b"\x80\x89\x7a" + b"\x7f" * 1_000_000
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}


@pytest.mark.parametrize(
    ("kind", "value", "published_at"),
    [
        (MILLIS, LARGEST, str(2**63 - 1)),
        ({"type": "int", "logicalType": "date"}, b"\xfe\xff\xff\xff\x0f", str(2**31 - 1)),
        ({"type": "string", "logicalType": "uuid"}, b"\2x", "x"),
        (DECIMAL, MEGABYTE, ErrorCode.INVALID_FIELD),
        (DECIMAL, b"\x82\2" + b"\x7f" * 129, ErrorCode.INVALID_FIELD),
        (DECIMAL | {"precision": "x"}, b"\2\7", ErrorCode.INVALID_FIELD),
        ({"type": "long", "logicalType": ["x"]}, b"\2", "1"),
        ({"type": "fixed", "name": "F", "size": 3, "logicalType": "uuid"}, b"abc", ErrorCode.INVALID_FIELD),
    ],
)
def test_a_content_that_does_not_fit_its_logical_type_stays_as_it_is(answers, decode, kind, value, published_at):
    answers.add(7, record("A", text="string", price=kind, more=record("B", price=["null", kind])))
    framed_value = b"\0\0\0\0\7\2a" + value + b"\2" + value
    assert decode(framed_value) == Document("key", "a", AT, 5)
    if isinstance(published_at, ErrorCode):
        for field in ("price", "more.price"):
            expected = Document("key", "a", AT, 5, left_out=("published_at",))
            assert decode(framed_value, published_at_field=field) == expected
    else:
        assert decode(framed_value, published_at_field="more.price").published_at == published_at


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"text": ("int", 5)}, ErrorCode.INVALID_FIELD, "field `text`: Expected `str | null`, got `int`"),
        ({"text": ("bytes", b"a")}, ErrorCode.INVALID_FIELD, "field `text`: Expected `str | null`, got `bytes`"),
        ({"id": ("boolean", True), "text": ("string", "a")}, ErrorCode.INVALID_ID, "is of a wrong type"),
        ({"id": ("string", "a\n"), "text": ("string", "a")}, ErrorCode.INVALID_ID, "control character"),
        ({"text": ("string", "a"), "op": ("string", "remove")}, ErrorCode.UNKNOWN_OP, "is none of"),
    ],
)
def test_the_rules_for_documents_are_those_of_json(answers, decode, fields, code, text):
    schema = record("A", **{name: kind for name, (kind, _) in fields.items()})
    answers.add(7, schema)
    found = refused(decode, framed(7, schema, {name: value for name, (_, value) in fields.items()}))
    assert found[0] == code
    assert text in found[1]


@pytest.mark.parametrize("cut", range(1, 9))
def test_bytes_that_do_not_fit_are_refused(answers, decode, cut):
    answers.add(7, ARTICLE)
    value = framed(7, ARTICLE, {"id": "abc", "text": "one"})
    assert len(value) == 14
    for damaged in (value[:-cut], value + b"x" * cut):
        code, reason = refused(decode, damaged)
        assert code == ErrorCode.SCHEMA_MISMATCH
        assert "abc" not in reason
    assert refused(decode, b"\0\0\0\0\7\6\xff\xff\xff\0")[0] == ErrorCode.SCHEMA_MISMATCH


@pytest.mark.parametrize(
    "value", [b"", b"\0", b"\0\0\0\0", b"\1" + b"a" * 15, b'{"text": "a"}', b"\2aaaaaaaaaaaaaaaaaaa"]
)
def test_a_value_without_an_id_is_refused(answers, decode, value):
    assert refused(decode, value)[0] == ErrorCode.NOT_FRAMED
    assert refused(decode, b"", [("__value_schema_id", value)])[0] == ErrorCode.NOT_FRAMED
    assert not answers.asked


DECIMAL_FIXED = {"type": "fixed", "name": "F", "size": 1, "logicalType": "decimal", "precision": 1}
LONG_FIXED = json.dumps(record("A", skipped=DECIMAL_FIXED, text="string")).replace('"size": 1', '"size": 1e999')


def test_nothing_is_written_with_an_unusable_schema(answers, url):
    answers["/api/subjects/a-value/versions/latest"] = (200, answers.add(7, LONG_FIXED) | {"id": 7})
    with pytest.raises(DecodeError, match="no Avro schema: OverflowError"):
        Decoder(format="avro", registry=Registry(url)).value_format.writer("a-value")


@pytest.mark.parametrize(
    ("schema", "kind", "reason"),
    [
        (ARTICLE, "JSON", "its type is JSON, not AVRO"),
        ("{", "AVRO", "no Avro schema"),
        ("5", "AVRO", "no Avro schema"),
        ('"Unknown"', "AVRO", "no Avro schema"),
        (record("A", body="string"), "AVRO", "none of the text fields: text"),
        ("string", "AVRO", "no Avro schema"),
        ('"string"', "AVRO", "none of the text fields: text"),
        ([{"foo": 1}], "AVRO", "none of the text fields: text"),
        (LONG_FIXED, "AVRO", "no Avro schema: OverflowError"),
    ],
)
def test_an_unusable_schema_is_asked_for_once(answers, decode, schema, kind, reason):
    answers.add(7, schema, kind)
    for _ in range(2):
        code, text = refused(decode, b"\0\0\0\0\7\0\0")
        assert (code, reason in text) == (ErrorCode.UNUSABLE_SCHEMA, True)
    assert len(answers.asked) == 1


@pytest.mark.parametrize(
    ("kind", "enter", "end"),
    [
        (["null", "Node"], b"\2", b"\0"),
        ({"type": "array", "items": "Node"}, b"\2", b"\0\0"),
        ({"type": "map", "values": "Node"}, b"\2\2k", b"\0\0"),
    ],
    ids=["union", "array", "map"],
)
def test_values_of_recursive_schemas_have_a_depth_limit_and_never_end_the_process(answers, decode, kind, enter, end):
    answers.add(7, record("A", node=record("Node", next=kind), text="string"))

    def nested(levels):
        return b"\0\0\0\0\7" + enter * levels + end[:1] + end[1:] * levels + b"\2a"

    assert decode(nested(10)) == Document("key", "a", AT, 5)
    levels = next(levels for levels in range(10, MAX_DEPTH + 1) if not is_read(decode, nested(levels)))
    assert levels > 15
    for deeper in (levels, levels + 30, 500, 200_000):
        assert refused(decode, nested(deeper))[0] == ErrorCode.TOO_DEEP


def is_read(decode, value):
    try:
        decode(value)
    except DecodeError:
        return False
    return True


def test_a_registry_that_is_away_makes_no_dead_letter(answers):
    with served(answers) as url:
        pass
    with pytest.raises(RegistryUnavailable, match="does not answer"):
        decoded_batch(url, 7)


@pytest.mark.parametrize(
    ("status", "body", "error"),
    [
        (500, b"", RegistryUnavailable),
        (503, b"<html>", RegistryUnavailable),
        (429, b"", RegistryUnavailable),
        (401, b"", RegistryMisconfigured),
        (403, b"", RegistryMisconfigured),
        (301, b"", RegistryMisconfigured),
        (404, b"<html>", RegistryMisconfigured),
        (404, b'{"error_code": 404}', RegistryMisconfigured),
        (200, b"<html>", RegistryMisconfigured),
        (200, b"{}", RegistryMisconfigured),
    ],
)
def test_an_answer_that_is_none_of_a_registry_makes_no_dead_letter(answers, decode, status, body, error):
    answers["/api/schemas/ids/7"] = answers["/api/schemas/ids/8"] = (status, body)
    with pytest.raises(error, match=r"schema[ _]registry"):
        decode(b"\0\0\0\0\7\2a")
    answers.add(7, ARTICLE)
    assert decode(framed(7, ARTICLE, {"id": "a", "text": "one"})).text == "one"
    # A server that was a registry is one that restarts, or that has another token.
    with pytest.raises(RegistryUnavailable, match=r"schema[ _]registry"):
        decode(b"\0\0\0\0\x08\2a")


def test_a_schema_without_a_type_is_avro(answers, decode):
    answers.add(7, ARTICLE, None)
    assert decode(framed(7, ARTICLE, {"id": "a", "text": "one"})).text == "one"


@pytest.mark.parametrize("unread", ['"\\ud800"', "1e999", "NaN", "-Infinity"])
def test_a_part_of_a_schema_that_is_not_read_may_have_what_strict_json_has_not(answers, decode, unread):
    text = json.dumps(ARTICLE).replace('"type": "string"', f'"type": "string", "default": {unread}', 1)
    answers.add(7, text)
    answers.add(8, f'{{"examples": [{unread}]}}', "JSON")
    subject = {"name": "Article", "subject": "article", "version": 1}
    answers.add(9, record("A", inner="Article"), references=[subject])
    answers["/api/subjects/article/versions/1"] = answers["/api/schemas/ids/7"]
    value = framed(7, ARTICLE, {"id": "a", "text": "one"})
    assert decode(value).text == "one"
    assert decode(b"\0\0\0\0\x09" + value[5:], text_fields=("inner.text",)).text == "one"
    assert decode(b'\0\0\0\0\x08{"text": "one"}', format="json-schema").text == "one"


@pytest.mark.parametrize(
    ("kind", "schema", "value"),
    [
        ("AVRO", json.dumps(record("A", text="string") | {"doc": "DOC"}), b"\2a"),
        ("JSON", '{"title": "DOC"}', b'{"text": "a"}'),
        ("PROTOBUF", 'syntax = "proto3"; message A { string text = 1; } // DOC', b"\0\x0a\1a"),
    ],
)
def test_half_of_a_surrogate_pair_in_a_schema_costs_nothing(answers, decode, kind, schema, value):
    answers.add(7, schema.replace("DOC", "\ud800"), kind)
    form = {"JSON": "json-schema"}.get(kind, kind.lower())
    assert decode(b"\0\0\0\0\7" + value, format=form).text == "a"


@pytest.mark.parametrize("is_escaped", [True, False])
@pytest.mark.parametrize("field", ["id", "text", "source", "scope", "published_at", "op"])
def test_a_symbol_with_half_of_a_surrogate_pair_reaches_no_document(answers, decode, field, is_escaped):
    fields = {"id": "string", "text": "string"} | {field: {"type": "enum", "name": "E", "symbols": ["\ud800x", "FINE"]}}
    answers.add(7, json.dumps(record("A", **fields), ensure_ascii=is_escaped))
    options = {"scope_field": "scope"} if field == "scope" else {}
    bad, fine = (b"".join(symbol if name == field else b"\2a" for name in fields) for symbol in (b"\0", b"\2"))
    for _ in range(2):
        code, reason = refused(decode, b"\0\0\0\0\7" + bad, **options)
        assert (code, "half of a surrogate pair" in reason) == (ErrorCode.UNUSABLE_SCHEMA, True)
    assert len(answers.asked) == 1
    if field != "op":
        assert getattr(decode(b"\0\0\0\0\7" + fine, **options), field) == "FINE"


@pytest.mark.parametrize("symbols", [["\ufffd"], [7], [None]])
def test_a_symbol_that_is_no_usable_text_is_a_fault_of_the_schema(answers, decode, symbols):
    answers.add(7, record("A", id={"type": "enum", "name": "E", "symbols": symbols}, text="string"))
    assert refused(decode, b"\0\0\0\0\7\0\2a")[0] == ErrorCode.UNUSABLE_SCHEMA


@pytest.mark.parametrize("name", ["\ud800", "\ud800.E", "n.\ufffd"])
def test_a_type_whose_name_has_half_of_a_surrogate_pair_is_not_usable(answers, decode, name):
    answers.add(7, record("A", id={"type": "enum", "name": name, "symbols": ["x"]}, text="string"))
    assert refused(decode, b"\0\0\0\0\7\0\2a")[0] == ErrorCode.UNUSABLE_SCHEMA


@pytest.mark.parametrize("subject", ["\ud800", "a/\ud800"])
def test_half_of_a_surrogate_pair_in_the_name_of_a_referred_schema_makes_it_unknown(answers, decode, subject):
    answers.add(7, record("A", text="B"), references=[{"name": "B", "subject": subject, "version": 1}])
    code, reason = refused(decode, b"\0\0\0\0\7\2a")
    assert (code, "which is gone" in reason) == (ErrorCode.UNKNOWN_SCHEMA, True)


def test_a_schema_without_measure_is_refused(answers, decode):
    answers["/api/schemas/ids/7"] = (200, b'{"schema": "' + b" " * MAX_ANSWER_BYTES + b'"}')
    code, reason = refused(decode, b"\0\0\0\0\7\2a")
    assert (code, "longer than" in reason) == (ErrorCode.UNUSABLE_SCHEMA, True)


def test_a_registry_without_uuids_does_not_know_them_and_none_knows_a_number_above_its_range(answers, decode):
    answers[f"/api/schemas/guids/{GUID}"] = (404, b"")
    assert refused(decode, b"\1" + GUID.bytes)[0] == ErrorCode.UNKNOWN_SCHEMA
    assert refused(decode, b"\0\xff\xff\xff\xff")[0] == ErrorCode.UNKNOWN_SCHEMA
    assert len(answers.asked) == 2


def test_a_server_that_is_no_registry_makes_no_dead_letter_of_a_value_with_a_uuid(answers, decode):
    for path in (f"guids/{GUID}", f"ids/{2**31 - 1}"):
        answers[f"/api/schemas/{path}"] = (404, b"<html>")
    with pytest.raises(RegistryMisconfigured, match="not the API"):
        decode(b"\1" + GUID.bytes)


def test_framed_json_is_read_as_json(answers, decode):
    options = {"format": "json-schema", "text_fields": ("payload.body",)}
    answers.add(7, True, "JSON")
    closed = {"additionalProperties": False}
    answers.add(8, {"properties": {"payload": {"properties": {"body": {}}} | closed}} | closed, "JSON")
    answers.add(9, {"properties": {"payload": {"properties": {"text": {}}} | closed}} | closed, "JSON")
    answers.add(10, ARTICLE)
    answers.add(11, "{", "JSON")
    answers.add(12, {"$ref": "#/definitions/A", "definitions": {"A": {"properties": {"payload": {}}}}} | closed, "JSON")
    answers.add(13, {"patternProperties": {"^p": {}}} | closed, "JSON")
    answers.add(14, {"properties": 5} | closed, "JSON")
    answers.add(15, {"properties": {"payload": {"$ref": "#/x"} | closed}} | closed, "JSON")
    values = b'{"payload": {"body": "a", "other": [1.5]}}', b'\xef\xbb\xbf{"payload": {"body": "a"}, "id": null}'
    for schema_id in (7, 8, 12, 13, 14, 15):
        frame = struct.pack(">bI", 0, schema_id)
        for value in values:
            assert decode(frame + value, **options) == Document("key", "a", AT, 5)
    lacking = (b"{}", b'{"payload": "a"}', b'{"payload": {"body.body": "a"}}')
    codes = {b"\0\0\0\0\7" + value: ErrorCode.MISSING_TEXT for value in lacking}
    codes |= {b'\0\0\0\0\7{"payload": {"body": 5}}': ErrorCode.INVALID_FIELD, b"\0\0\0\0\7": ErrorCode.NOT_JSON}
    for wrong in (b"1.5", b'"\\ud800"'):
        codes[b'\0\0\0\0\7{"payload": {"body": "a"}, "id": %b}' % wrong] = ErrorCode.INVALID_ID
    codes |= {b"\0\0\0\0\7[]": ErrorCode.NOT_AN_OBJECT, b'{"payload.body": "a"}': ErrorCode.NOT_FRAMED}
    codes |= {bytes([0, 0, 0, 0, number]): ErrorCode.UNUSABLE_SCHEMA for number in (9, 10, 11)}
    codes |= {b"\0\0\0\0\7\0\0\0\0\7{}": ErrorCode.FOREIGN_FRAMING}
    for value, code in codes.items():
        assert refused(decode, value, **options)[0] == code


PROTO = """
syntax = "proto3";
package news;
import "news/body.proto";
import "google/protobuf/timestamp.proto";
message Other { string title = 1; }
message Article {
  string id = 1;
  Body payload = 2;
  google.protobuf.Timestamp published_at = 3;
  optional string title = 4;
  Kind source = 5;
  repeated string op = 6;
  enum Kind { NONE = 0; WEB = 1; }
  message Part { string title = 1; bool id = 2; bytes source = 3; }
}
"""
BODY = 'syntax = "proto3"; package news; message Body { string body = 1; }'


@pytest.fixture
def decode_proto(answers, decode):
    answers["/api/subjects/body/versions/1"] = (200, {"schema": BODY, "schemaType": "PROTOBUF"})
    answers.add(7, PROTO, "PROTOBUF", [{"name": "news/body.proto", "subject": "body", "version": 1}])
    return partial(decode, format="protobuf", text_fields=("payload.body", "title"))


WHOLE = b"\x0a\1i\x12\5\x0a\3abc\x1a\2\x08\5\x28\1"


@pytest.mark.parametrize(
    ("value", "document"),
    [
        (b"\2\2" + WHOLE, Document("i", "abc", AT, 5, source="WEB", published_at="1970-01-01T00:00:05Z")),
        (b"\0\x0a\3abc", Document("key", "abc", AT, 5)),
        (b"\2\0\x0a\3abc", Document("key", "abc", AT, 5)),
        (b"\4\2\0\x0a\3abc", Document("key", "abc", AT, 5)),
        (b"\2\2\x12\0", Document("key", "", AT, 5)),
        (b"\2\2\x22\0\x28\x09", Document("key", "", AT, 5, source="9")),
        (b"\2\2\x22\1a\x32\6delete\xa2\x06\3abc", Document("key", "a", AT, 5)),
        (b"\2\2\x22\1a\x1a\x0a\x08" + b"\xff" * 8 + b"\x7f", Document("key", "a", AT, 5, published_at=str(2**63 - 1))),
    ],
)
def test_a_message_of_a_protobuf_file_is_named_by_its_path(decode_proto, value, document):
    assert decode_proto(b"\0\0\0\0\7" + value) == document
    for length in range(len(value)):
        header = [("__value_schema_id", b"\0\0\0\0\7" + value[:length])]
        assert decode_proto(value[length:], header) == document


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (b"", ErrorCode.SCHEMA_MISMATCH),
        (b"\2", ErrorCode.SCHEMA_MISMATCH),
        (b"\1", ErrorCode.SCHEMA_MISMATCH),
        (b"\2\1", ErrorCode.SCHEMA_MISMATCH),
        (b"\2\4", ErrorCode.SCHEMA_MISMATCH),
        (b"\4\2\2", ErrorCode.SCHEMA_MISMATCH),
        (b"\1\2" + WHOLE, ErrorCode.SCHEMA_MISMATCH),
        (b"\2\1" + WHOLE, ErrorCode.SCHEMA_MISMATCH),
        (b"\4\2\1" + WHOLE, ErrorCode.SCHEMA_MISMATCH),
        (b"\2\3" + WHOLE, ErrorCode.SCHEMA_MISMATCH),
        (b"\4\2\3" + WHOLE, ErrorCode.SCHEMA_MISMATCH),
        (b"\xfe\xff\xff\xff\x0f" + b"\0" * 1_000_000, ErrorCode.SCHEMA_MISMATCH),
        (b"\xff" * 200_000, ErrorCode.SCHEMA_MISMATCH),
        (b"\xfe\xff\xff\xff\x0f" + b"\0" * 200_000, ErrorCode.SCHEMA_MISMATCH),
        (b"\2\2\x0a\2\xff\xff", ErrorCode.SCHEMA_MISMATCH),
        (b"\2\2" + WHOLE[:-1], ErrorCode.SCHEMA_MISMATCH),
        (b"\2\2", ErrorCode.MISSING_TEXT),
        (b"\4\2\0\x10\1", ErrorCode.INVALID_ID),
    ],
)
def test_damaged_messages_have_a_code(decode_proto, value, code):
    assert refused(decode_proto, b"\0\0\0\0\7" + value)[0] == code


def test_a_path_without_measure_takes_no_memory(decode_proto):
    value = b"\0\0\0\0\7\xfe\xff\xff\xff\x0f" + bytes(500_000)
    refused(decode_proto, value)
    tracemalloc.start()
    try:
        code, _ = refused(decode_proto, value)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert (code, peak_bytes < 4 * len(value)) == (ErrorCode.SCHEMA_MISMATCH, True)


def test_a_file_may_be_registered_as_its_descriptor(answers, decode):
    file = FileDescriptorProto(name="any.proto", package="news", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    message = file.message_type.add(name="Article")
    message.field.add(name="text", number=1, type=FieldDescriptorProto.TYPE_STRING, label=1)
    time = {"type": FieldDescriptorProto.TYPE_MESSAGE, "type_name": ".google.protobuf.Timestamp"}
    message.field.add(name="published_at", number=2, label=1, **time)
    answers.add(7, b64encode(file.SerializeToString()).decode(), "PROTOBUF")
    found = decode(b"\0\0\0\0\7\0\x0a\1a\x12\2\x08\5", format="protobuf")
    assert found == Document("key", "a", AT, 5, published_at="1970-01-01T00:00:05Z")
    file.dependency[0] = "nowhere.proto"
    answers.add(8, b64encode(file.SerializeToString()).decode(), "PROTOBUF")
    del file.dependency[:]
    answers.add(9, b64encode(file.SerializeToString()).decode(), "PROTOBUF")
    for schema_id in (b"\x08", b"\x09"):
        value = b"\0\0\0\0" + schema_id + b"\0\x0a\1a"
        assert refused(decode, value, format="protobuf")[0] == ErrorCode.UNUSABLE_SCHEMA


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("message {", "a.proto"),
        ("abcd", "a.proto"),
        ('syntax = "proto3"; import "nowhere.proto";', "a.proto"),
        ('syntax = "proto3"; message A { string body = 1; }', "a.proto"),
        ('syntax = "proto3"; message A { repeated string text = 1; }', "a.proto"),
        (PROTO, "../a.proto"),
        (PROTO, "/tmp/a.proto"),
        (PROTO, "."),
        (PROTO, ""),
        (PROTO, "news/"),
        (PROTO, "-Ia.proto"),
        (PROTO, "@a.proto"),
        (PROTO, "streamdedup_value.proto/a.proto"),
        (PROTO, "é" * 150),
        (PROTO, "google/protobuf/timestamp.proto"),
        (PROTO, "google/protobuf/of_my_own.proto"),
    ],
)
def test_an_unusable_protobuf_file_has_a_code_and_nothing_is_written_elsewhere(answers, decode, text, name):
    answers["/api/subjects/a/versions/1"] = (200, {"schema": BODY, "schemaType": "PROTOBUF"})
    answers.add(7, text, "PROTOBUF", [{"name": name, "subject": "a", "version": 1}])
    assert refused(decode, b"\0\0\0\0\7\0", format="protobuf")[0] == ErrorCode.UNUSABLE_SCHEMA


def test_a_wrapper_of_a_text_is_a_text(answers, decode):
    text = 'import "google/protobuf/wrappers.proto"; message A { google.protobuf.StringValue text = 1; }'
    answers.add(7, f'syntax = "proto3"; {text}', "PROTOBUF")
    assert decode(b"\0\0\0\0\7\0\x0a\3\x0a\1a", format="protobuf").text == "a"
    assert refused(decode, b"\0\0\0\0\7\0", format="protobuf")[0] == ErrorCode.MISSING_TEXT


def test_a_wrapper_of_a_truth_value_is_a_truth_value(answers, decode):
    text = 'import "google/protobuf/wrappers.proto"; message A { google.protobuf.BoolValue gone = 1; string text = 2; }'
    answers.add(7, f'syntax = "proto3"; {text}', "PROTOBUF")
    for content, op in ((b"\x0a\2\x08\1", "delete"), (b"\x0a\0\x12\1a", "upsert"), (b"\x12\1a", "upsert")):
        assert decode(b"\0\0\0\0\7\0" + content, format="protobuf", deleted_field="gone").op == op


KNOWN_IMPORTS = [
    "confluent/meta",
    "confluent/type/decimal",
    "confluent/types/decimal",
    "google/type/date",
    "google/type/money",
]
RICH = """
syntax = "proto3";
package news;
IMPORTS
option (confluent.file_meta).doc = "d";
message Article {
  option (confluent.message_meta).tags = "t";
  google.type.Money price = 1;
  confluent.type.Decimal cost = 2 [(confluent.field_meta).doc = "c"];
  string text = 3 [(confluent.field_meta).tags = "PII"];
  google.type.Date published_at = 4;
}
"""


def test_files_that_clients_have_built_in_are_known(answers, decode):
    text = RICH.replace("IMPORTS", "".join(f'import "{name}.proto";' for name in KNOWN_IMPORTS))
    answers.add(7, text, "PROTOBUF")
    file = FileDescriptorProto(
        name="any.proto", syntax="proto3", dependency=[f"{name}.proto" for name in KNOWN_IMPORTS]
    )
    article = file.message_type.add(name="Article")
    article.field.add(name="price", number=1, type=11, type_name=".google.type.Money", label=1)
    article.field.add(name="text", number=3, type=9, label=1)
    answers.add(8, b64encode(file.SerializeToString()).decode(), "PROTOBUF")
    for schema_id in (b"\7", b"\x08"):
        value = b"\0\0\0\0" + schema_id + b"\0\x0a\5\x0a\3EUR\x1a\4text"
        assert decode(value, format="protobuf") == Document("key", "text", AT, 5)
        assert decode(value, format="protobuf", source_field="price.currency_code").source == "EUR"
    answers.add(9, 'syntax = "proto3"; import "google/type/nowhere.proto"; message A { string text = 1; }', "PROTOBUF")
    assert refused(decode, b"\0\0\0\0\x09\0", format="protobuf")[0] == ErrorCode.UNUSABLE_SCHEMA


def test_two_fields_may_have_one_name_in_json(answers, decode):
    twins = "optional string foo_bar = 1; optional string fooBar = 2;"
    answers.add(7, f'syntax = "proto2"; message A {{ {twins} message B {{ {twins} }} }}', "PROTOBUF")
    found = decode(b"\0\0\0\0\7\0\x0a\1a\x12\1b", format="protobuf", text_fields=("foo_bar", "fooBar"))
    assert found.text == "a\nb"


MODES = {
    "proto2": """syntax = "proto2";
        message A {
          required int32 needed = 9;
          optional string text = 1 [default = "none"];
          optional group Payload = 2 { optional string body = 1; repeated group Many = 3 { optional string body = 1; } }
          optional Kind source = 3 [default = WEB];
          optional Inner.A meta = 4;
          extensions 100 to 200;
        }
        enum Kind { NONE = 0; WEB = 1; PRINT = -1; }
        message Inner { message A { optional string id = 2; } }""",
    "edition": """edition = "2023";
        message A {
          string text = 1;
          Payload payload = 2 [features.message_encoding = DELIMITED];
          Kind source = 3;
          Inner.A meta = 4;
          message Payload { string body = 1; }
        }
        enum Kind { NONE = 0; WEB = 1; PRINT = -1; }
        message Inner { message A { string id = 2; } }""",
    "proto3": """syntax = "proto3";
        message A {
          oneof content { string text = 1; Inner other = 12; }
          Body payload = 2;
          optional Kind source = 3;
          Inner.A meta = 4;
          map<string, A> many = 7;
          repeated A all = 8;
        }
        message Body { string body = 1; }
        enum Kind { NONE = 0; WEB = 1; PRINT = -1; }
        message Inner { message A { string id = 2; } }""",
}


@pytest.mark.parametrize("mode", MODES)
def test_groups_enumerations_and_types_of_one_name_are_read_in_every_edition_of_the_language(answers, decode, mode):
    answers.add(7, MODES[mode], "PROTOBUF")
    options = {"format": "protobuf", "text_fields": ("payload.body", "text"), "id_field": "meta.id"}
    body = b"\x12\3\x0a\1b" if mode == "proto3" else b"\x13\x0a\1b\x1b\x0a\1z\x1c\x14"
    value = b"\x0a\1t" + body + b"\x18\1\x22\3\x12\1i\x3a\2\x0a\0\x42\3\x0a\1z\x92\6\1x"
    frame = b"\0\0\0\0\7\0"
    assert decode(frame + value, **options) == Document("i", "b\nt", AT, 5, source="WEB")
    minus_one = b"\x18" + b"\xff" * 9 + b"\1"
    # Several times in one message: the last number counts, and messages are merged.
    again = value + minus_one + b"\x22\3\x12\1j" + body[:1] + (b"\0" if mode == "proto3" else b"\x14")
    assert decode(frame + again, **options) == Document("j", "b\nt", AT, 5, source="PRINT")
    assert decode(frame + b"\x0a\1t", **options) == Document("key", "t", AT, 5)
    assert refused(decode, frame + b"\x0a\2\xff\xff", **options)[0] == ErrorCode.SCHEMA_MISMATCH
    if mode == "proto2":
        assert refused(decode, frame, **options)[0] == ErrorCode.MISSING_TEXT


def test_no_import_of_a_descriptor_becomes_an_option_of_protoc(answers, decode, tmp_path):
    proof, program, options = tmp_path / "proof", tmp_path / "program", tmp_path / "options"
    program.write_text(f"#!/bin/sh\ntouch {proof}\n")
    program.chmod(0o755)
    run = [f"--plugin=protoc-gen-x={program}", f"--x_out={tmp_path}"]
    options.write_text("\n".join(run))
    time = "google/protobuf/timestamp.proto"
    imports = [*run, time], [f"@{options}", time], [time, f"--descriptor_set_out={proof}"], ["--version"]
    for schema_id, names in enumerate(imports):
        # A file in Base64, as serializers in Python register it.
        file = FileDescriptorProto(name="any.proto", syntax="proto3", dependency=names)
        file.message_type.add(name="A").field.add(name="text", number=1, type=FieldDescriptorProto.TYPE_STRING, label=1)
        answers.add(schema_id, b64encode(file.SerializeToString()).decode(), "PROTOBUF")
        code, text = refused(decode, b"\0\0\0\0%c\0\x0a\1a" % schema_id, format="protobuf")
        assert (code, "imports a file" in text) == (ErrorCode.UNUSABLE_SCHEMA, True)
        assert not proof.exists()


@pytest.fixture
def as_protoc(monkeypatch, tmp_path):
    """Return what makes a program take the place of protoc."""

    def use(program):
        python = tmp_path / "python"
        python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{program}"\n')
        python.chmod(0o755)
        monkeypatch.setattr("sys.executable", str(python))

    return use


@pytest.mark.parametrize("signal", [9, 15])
def test_a_protoc_that_another_process_ends_makes_no_dead_letter(decode_proto, as_protoc, signal):
    as_protoc(f"import os; os.kill(os.getpid(), {signal})")
    with pytest.raises(RegistryUnavailable, match=f"signal {signal}"):
        decode_proto(b"\0\0\0\0\7\0\x0a\3abc")


@pytest.mark.parametrize(
    "program",
    ["import time; time.sleep(60)", "import os; os.abort()", "import os; os.kill(os.getpid(), 11)", "bytes(-1)"],
)
def test_a_schema_at_which_protoc_ends_without_a_result_is_unusable(
    answers, decode_proto, as_protoc, monkeypatch, program
):
    as_protoc(program)
    monkeypatch.setattr("streamdedup.wire.formats.protobuf.PROTOC_TIMEOUT_S", 0.5)
    for _ in range(2):
        assert refused(decode_proto, b"\0\0\0\0\7\0\x0a\3abc")[0] == ErrorCode.UNUSABLE_SCHEMA
    assert len(answers.asked) == 2


def test_the_memory_of_protoc_is_bounded(answers, decode, monkeypatch):
    messages = "".join(f"message M{number} {{ string text = 1; }}" for number in range(3_000))
    answers.add(7, f'syntax = "proto3"; {messages}', "PROTOBUF")
    answers.add(8, f'syntax = "proto3"; {messages}', "PROTOBUF")
    assert decode(b"\0\0\0\0\7\0\x0a\1a", format="protobuf").text == "a"
    monkeypatch.setattr("streamdedup.wire.formats.protobuf.PROTOC_BYTES", 32 * 2**20)
    assert refused(decode, b"\0\0\0\0\x08\0\x0a\1a", format="protobuf")[0] == ErrorCode.UNUSABLE_SCHEMA


def test_an_error_of_protoc_is_part_of_the_reason(answers, decode, capfd):
    answers.add(7, 'syntax = "proto3"; message A { Nowhere text = 1; }', "PROTOBUF")
    _, text = refused(decode, b"\0\0\0\0\7\0", format="protobuf")
    assert '"Nowhere" is not defined' in text
    assert capfd.readouterr() == ("", "")


def test_without_temporary_files_a_protobuf_schema_makes_no_dead_letter(decode_proto, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    with pytest.raises(RegistryMisconfigured, match="temporary files"):
        decode_proto(b"\0\0\0\0\7\0\x0a\3abc")


def settings_with(url, **keys):
    tree = {
        "kafka": {"bootstrap_servers": "localhost:9092"},
        "redis": {"url": "redis://localhost"},
        "schema_registry": {"url": url, **keys},
        "profiles": {"articles": {"topics": "a,b", "text_fields": "title,text", "format": "avro"}},
    }
    return Settings.load(None, tree, {})


def latest(registry, subject="a"):
    with RegistrySession(registry) as session:
        return session.latest(subject)


def test_the_login_is_read_again_for_each_request(answers, url, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("one\n")
    basic = registry_of(settings_with(url, username="ann", password_file=str(secret)))
    bearer = registry_of(settings_with(url, password_file=str(secret)))
    for registry in (basic, bearer):
        latest(registry)
    secret.write_text("two")
    latest(bearer)
    assert answers.logins == ["Basic YW5uOm9uZQ==", "Bearer one", "Bearer two"]
    secret.write_text("two\r\nX-Other: 1")
    with pytest.raises(RegistryUnavailable, match="printable"):
        latest(bearer)
    secret.unlink()
    with pytest.raises(RegistryUnavailable, match=r"schema_registry\.password: .*secret cannot be read"):
        latest(bearer)


def test_a_registry_by_tls_needs_a_certificate_of_a_trusted_authority(answers):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(TLS / "certificate.pem", TLS / "plain.key")
    with served(answers, tls) as url:
        assert latest(registry_of(settings_with(url, ssl_ca_file=str(TLS / "certificate.pem")))) is None
        for keys in ({}, {"ssl_ca_file": str(TLS / "other.pem")}):
            with pytest.raises(RegistryUnavailable, match="certificate verify failed"):
                latest(registry_of(settings_with(url, **keys)))


def test_a_registry_may_ask_for_a_certificate_whose_files_are_read_again(answers, tmp_path):
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(TLS / "certificate.pem", TLS / "plain.key")
    tls.load_verify_locations(TLS / "certificate.pem")
    tls.verify_mode = ssl.CERT_REQUIRED
    files = {"ssl_cert_file": tmp_path / "certificate", "ssl_key_file": tmp_path / "key"}

    def use(certificate, key):
        for path, name in zip(files.values(), (certificate, key), strict=True):
            path.write_bytes((TLS / name).read_bytes())

    use("other.pem", "other.key")
    with served(answers, tls) as url:
        keys = {key: str(path) for key, path in files.items()} | {"ssl_ca_file": str(TLS / "certificate.pem")}
        registry = registry_of(settings_with(url, **keys))
        with pytest.raises(RegistryUnavailable):
            latest(registry)
        use("certificate.pem", "plain.key")
        assert latest(registry) is None
        files["ssl_key_file"].unlink()
        with pytest.raises(RegistryUnavailable, match="does not answer: FileNotFoundError"):
            latest(registry)


def test_the_fields_of_a_dead_letter_are_shown_where_its_schema_reads_it(answers, url, decode):
    answers.add(7, record("A", text="string", id="string"))
    decoder = Decoder(format="avro", registry=Registry(url))
    value = b"\0\0\0\0\7\4ab\2\1"
    assert refused(decode, value)[0] == ErrorCode.INVALID_ID
    assert decoder.shown_fields(value) == b'{"id":"\\u0001","text":"ab"}'
    assert decoder.shown_fields(value[:-1]) is None
    assert Decoder(format="avro", registry=Registry(url), max_text_bytes=1).shown_fields(value) is None
    assert Decoder().shown_fields(b"{}") is None


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"url": "ftp://a"}, "schema_registry.url: .* is not valid"),
        ({"url": "http://u:secret-7@a"}, "schema_registry.url: .* is not valid"),
        ({"url": "http://a..b"}, "schema_registry.url: .* is not valid"),
        ({"url": None}, "schema_registry.url: is missing; profiles.articles.format"),
        ({"url": None, "password": "secret-7"}, "schema_registry.password: is given, but url is missing"),
        ({"url": None, "username": "u"}, "schema_registry.username: is given, but url is missing"),
        ({"url": None, "ssl_ca_file": str(TLS / "certificate.pem")}, "ssl_ca_file: is given, but url is missing"),
        ({"username": "u"}, "schema_registry.password: is missing; username needs it"),
        ({"ssl_ca_file": str(TLS / "certificate.pem")}, "schema_registry.ssl_ca_file: .*write https://"),
        ({"url": "https://a", "ssl_ca_file": str(TLS / "plain.key")}, "ssl_ca_file: holds no certificate"),
    ],
)
def test_contradictory_settings_are_refused_without_a_secret(keys, reason):
    with pytest.raises(SettingsError, match=reason) as caught:
        settings_with(**{"url": "http://a"} | keys)
    assert "secret-7" not in str(caught.value)


def test_a_password_in_clear_to_another_machine_is_pointed_out():
    hints = [
        list(settings_with(url, password="p").hint_lines()) for url in ("http://a", "https://a", "http://localhost")
    ]
    assert [["in clear" in hint for hint in each] for each in hints] == [[True], [], []]


def test_check_names_registry_subjects_and_fields(answers, url):
    def findings():
        found = REGISTRY.findings(CheckRun(settings_with(url), None))
        return [(str(finding.level), finding.text) for finding in found]

    answers["/api/subjects/a-value/versions/latest"] = (200, answers.add(7, record("A", title="string", id="long")))
    first, second = findings()
    assert first == ("warning", "newest schema of a-value lacks text fields: text")
    assert (second[0], "no subject b-value" in second[1]) == ("warning", True)
    answers["/api/subjects/a-value/versions/latest"] = (200, answers.add(8, record("A", title="string", text="string")))
    answers["/api/subjects/b-value/versions/latest"] = (200, answers.add(9, record("A", body="string")))
    first, second = findings()
    assert first == ("ok", "newest schema of a-value has the text fields; it has no id, op, published_at, source")
    assert second == ("failed", "newest schema of b-value: it has none of the text fields: title, text")
    answers["/api/subjects/a-value/versions/latest"] = (401, b"")
    ((level, text),) = findings()
    assert (level, "refuses the login" in text) == ("failed", True)


def test_without_the_extra_an_error_says_which_command_installs_it(monkeypatch, url):
    monkeypatch.setitem(sys.modules, "fastavro", None)
    monkeypatch.delitem(sys.modules, "streamdedup.wire.formats.avro")
    settings = settings_with(url)
    with pytest.raises(SettingsError, match=r"needs fastavro: pip install 'streamdedup\[registry\]'"):
        topic_decoder(settings, settings.profiles["articles"])


TWO = 'syntax = "proto3"; message B { } message A { string id = 1; string text = 2; }'


@pytest.mark.parametrize(
    ("form", "kind", "schema"),
    [
        ("avro", "AVRO", ARTICLE),
        ("avro", "AVRO", json.dumps(ARTICLE | {"doc": "\ud800"})),
        ("avro", "AVRO", record("A", id="string", text="string", published_at="string")),
        ("json-schema", "JSON", {}),
        ("protobuf", "PROTOBUF", TWO),
    ],
)
def test_what_is_written_is_read_or_refused(answers, url, form, kind, schema):
    fields = {"id": "a", "text": "one"}
    answers["/api/subjects/a-value/versions/latest"] = (200, answers.add(7, schema, kind) | {"id": 7})
    decoder = Decoder(format=form, registry=Registry(url))
    write = decoder.value_format.writer("a-value")
    if "published_at" in str(schema):
        with pytest.raises(DecodeError, match=r"does not fit the schema: A\.published_at"):
            write(fields)
        fields["published_at"] = "2026-05-01T00:00:00Z"
    read = decoder.decode(AT, 5, b"key", write(fields))
    assert read == Document("a", "one", AT, 5, published_at=fields.get("published_at"))
    assert decoder.value_format.writer("b-value") is None
    if form != "json-schema":
        for wrong in ({"id": "a", "text": ["secret text"]}, {"id": "a", "text": {"secret text": 1}}):
            with pytest.raises(DecodeError, match=r"does not fit the schema: [\w.]*text$"):
                write(wrong)


AVRO_TYPES = [
    *("null", "boolean", "int", "long", "float", "double", "bytes", "string", ["null", "long"], record("R", a="int")),
    *({"type": "array", "items": "int"}, {"type": "map", "values": "int"}),
    {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int", "default": 0}]},
    *({"type": "enum", "name": "E", "symbols": []}, {"type": "fixed", "name": "F", "size": 2}),
    *(MILLIS, {"type": "int", "logicalType": "date"}, {"type": "string", "logicalType": "uuid"}),
    {"type": "bytes", "logicalType": "decimal", "precision": 4},
]
PROTO_TYPES = [
    *("double", "int32", "uint64", "bool", "string", "bytes", "Kind", "Part"),
    *(f"google.protobuf.{name}" for name in ("Any", "Duration", "NullValue", "Struct", "Timestamp", "Value")),
]


def test_what_fits_no_type_is_refused_and_ends_no_command():
    wanted = WantedFields(texts=("text",))
    writers = []
    for type_ in AVRO_TYPES:
        registered = RegisteredSchema("AVRO", json.dumps(record("A", text="string", x=type_)), {})
        writers.append((avro.compile_writer(registered, wanted), "x"))
    types = [form % type_ for type_ in PROTO_TYPES for form in ("optional %s", "repeated %s", "map<string, %s>")]
    lines = [
        'syntax = "proto2"; enum Kind { NONE = 0; } message Part { required int32 a = 1; }',
        *(f'import "google/protobuf/{name}.proto";' for name in ("any", "duration", "struct", "timestamp")),
        "message A { required string text = 1; optional Part part = 2;",
        *(f"{type_} x{number} = {number};" for number, type_ in enumerate(types, 3)),
    ]
    write_proto = protobuf.compile_writer(RegisteredSchema("PROTOBUF", "\n".join([*lines, "}"]), {}), wanted)
    writers += [(write_proto, f"x{number}") for number in range(3, 3 + len(types))]
    for content in (None, True, 1.5, 10**400, float("inf"), "", "a", [], ["a"], [None], {}, {"a": "a"}, {"@type": 5}):
        for write, name in writers:
            with suppress(DecodeError):
                write({"text": "one", name: content})
    with pytest.raises(DecodeError, match=r"does not fit the schema: text,part\.a$"):
        write_proto({"part": {}})


KEYS = {
    "whole-avro": ("AVRO", '"string"', None, encoded("string", "doc"), "doc"),
    "whole-number": ("AVRO", '"long"', None, encoded("long", 42), "42"),
    "avro": ("AVRO", record("Key", id="long"), "id", encoded(record("Key", id="long"), {"id": 42}), "42"),
    "whole-json": ("JSON", {"type": "string"}, None, b'"doc"', "doc"),
    "json": ("JSON", {"type": "object"}, "payload.id", b'{"payload":{"id":42}}', "42"),
    "protobuf": ("PROTOBUF", TWO, "id", b"\2\2\x0a\3doc", "doc"),
}


@pytest.mark.parametrize("form", ["json", "avro"])
@pytest.mark.parametrize(("kind", "schema", "field", "key", "document_id"), KEYS.values(), ids=KEYS.keys())
def test_the_id_in_a_key_is_read_and_written_with_the_schema_of_the_key(
    answers, url, form, kind, schema, field, key, document_id
):
    answers["/api/subjects/t-key/versions/latest"] = (200, answers.add(8, schema, kind) | {"id": 8})
    decoder = Decoder(format=form, registry=Registry(url), key_format="registry", key_field=field)
    assert decoder.decode(AT, 5, b"\0\0\0\0\x08" + key, None) == Document(document_id, "", AT, 5, "delete")
    headers = [("__key_schema_id", b"\0\0\0\0%c" % number) for number in (9, 8)]  # of the forwarded key, and its own
    assert decoder.decode(AT, 5, key, None, headers).id == document_id
    if document_id == "doc":
        assert decoder.key_writer("t-key")("doc") == b"\0\0\0\0\x08" + key
    assert decoder.key_writer("u-key") is None


@pytest.mark.parametrize(
    ("key", "text"),
    [
        (b"doc", "no schema id is in front of it or in the record header __key_schema_id"),
        (b"\0\0\0\0\x09\2a", "has no schema 9"),
        (b"\0\0\0\0\x08\xff", "the bytes do not fit the schema"),
        (b"\0\0\0\0\x08\0", "is 0 bytes long"),
        (b"\0\0\0\0\7\0\0", "schema 7: it has no field id"),
    ],
)
def test_a_key_that_its_schema_cannot_read_is_an_invalid_id_and_beside_an_id_a_flaw(answers, url, key, text):
    answers.add(7, ARTICLE | {"fields": ARTICLE["fields"][1:]})
    answers.add(8, record("Key", id="string"))
    decoder = Decoder(registry=Registry(url), key_format="registry", key_field="id")
    with pytest.raises(DecodeError, match=text) as caught:
        decoder.decode(AT, 5, key, None)
    assert caught.value.code == ErrorCode.INVALID_ID
    document = decoder.decode(AT, 5, key, b'{"id":"a","text":"one"}')
    assert decoder.flaws(document, key) == ("key",)


def test_a_message_as_key_needs_a_key_field(answers, url):
    answers.add(7, BODY, "PROTOBUF")
    decoder = Decoder(registry=Registry(url), key_format="registry")
    with pytest.raises(DecodeError, match="schema 7: it has no field for the id without key_field"):
        decoder.decode(AT, 5, b"\0\0\0\0\7\0", None)


def test_a_time_without_a_zone_is_written_as_one_of_utc(monkeypatch):
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    registered = RegisteredSchema("AVRO", json.dumps(record("A", text="string", published_at=MILLIS)), {})
    wanted = WantedFields(texts=("text",), published_at="published_at")
    read, write = avro.compile_schema(registered, wanted).read, avro.compile_writer(registered, wanted)
    times = {"2026-03-02": "00:00", "2026-03-02T08:20:00": "08:20", "2026-03-02T08:20:00+02:00": "06:20"}
    try:
        for text, utc in times.items():
            assert read(write({"text": "a", "published_at": text})).published_at == f"2026-03-02T{utc}:00Z"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_a_schema_without_texts_may_be_one_of_deletions_by_a_flag(answers, decode):
    schema = record("Gone", id="string", gone="boolean")
    answers.add(7, schema)
    value = framed(7, schema, {"id": "a", "gone": True})
    assert decode(value, deleted_field="gone") == Document("a", "", AT, 5, "delete")
    assert refused(decode, value)[0] == ErrorCode.UNUSABLE_SCHEMA


def test_a_batch_asks_once_for_the_unknown_schema_of_its_keys(answers, url):
    decoder = Decoder(registry=Registry(url), key_format="registry")
    batch = Batch(tuple(Record(AT, 5, b"\0\0\0\0\x08\2a", value) for value in (None, b'{"id":"a","text":"b"}', None)))
    decoded = decode_batch(batch, {"articles": SimpleNamespace(name="p", decoder=decoder)})
    assert [failed.failure.code for failed in decoded.failures] == [ErrorCode.INVALID_ID] * 2
    assert answers.asked == ["/api/schemas/ids/8"]


def test_a_registry_that_is_away_costs_no_document_whose_key_has_a_schema():
    decoder = Decoder(registry=Registry("http://127.0.0.1:9", timeout_s=0.5), key_format="registry")
    pipelines = {"articles": SimpleNamespace(name="p", decoder=decoder)}
    for value in (None, b'{"id":"a","text":"b"}'):
        with pytest.raises(RegistryUnavailable):
            decode_batch(Batch((Record(AT, 5, b"\0\0\0\0\x08\2a", value),)), pipelines)


def test_fields_by_path_have_one_place_each():
    assert registry_module.nested({"a.b": 1, "a.c.d": 2, "e": {"f": 3}, "e.g": 4}) == {
        "a": {"b": 1, "c": {"d": 2}},
        "e": {"f": 3, "g": 4},
    }
    assert (registry_module.nested({"": 1}), registry_module.nested({"": 1, "a": 2})) == (1, {"": 1, "a": 2})
    for fields in ({"a": 1, "a.b": 2}, {"a.b": 2, "a": 1}, {"a": {"b": 1}, "a.b": 2}, {"a.b": 1, "a.b.c": 2}):
        with pytest.raises(DecodeError, match="have the same place"):
            registry_module.nested(fields)
