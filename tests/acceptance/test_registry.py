"""Values with schemas through a real Kafka and a real registry, sent by librdkafka with serializers of its own."""

import json
from datetime import UTC, datetime

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tests import servers
from tests.daemons import PATIENT, Daemon, Installation, produce_keyed, streamdedup
from tests.made_corpus import a_corpus, the_expected
from tests.servers import wait_until
from tests.serving import ServeProcess

BODY = {"type": "record", "name": "news.Body", "fields": [{"name": "body", "type": ["null", "string"]}]}
TIME = {"type": "long", "logicalType": "timestamp-millis"}


def article(*more, name="news.Article"):
    fields = [("id", "string"), ("payload", "news.Body"), ("published_at", ["null", TIME]), *more]
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields]}


AVRO = {
    "profiles.articles.format": "avro",
    "profiles.articles.text_fields": "payload.body",
    "kafka.session_timeout": PATIENT["kafka.session_timeout"],
    "kafka.transaction_timeout": "59s",
}


@pytest.fixture(scope="module")
def registry():
    with servers.make_registry() as server:
        yield server


class Sender:
    """An outside producer: librdkafka, and serializers that register schemas."""

    def __init__(self, installation: Installation, url: str) -> None:
        self._topic = installation.topic
        self._client = SchemaRegistryClient({"url": url})
        self.context = SerializationContext(installation.topic, MessageField.VALUE)
        self._producer = Producer({"bootstrap.servers": installation.kafka, "linger.ms": 5})
        self._client.register_schema("news.Body", Schema(json.dumps(BODY), "AVRO"))

    def __enter__(self):
        return self

    def __exit__(self, *_error):
        self._producer.flush()
        self._client.close()

    def values(self, schema, documents, **more):
        """Return keys and values of documents (id, text) with a schema, which is registered; no text is a tombstone."""
        reference = SchemaReference("news.Body", "news.Body", 1)
        serialize = AvroSerializer(self._client, Schema(json.dumps(schema), "AVRO", [reference]))
        common = {"published_at": datetime(2026, 5, 1, tzinfo=UTC), **more}
        made = [
            (name, None if text is None else {"id": name, "payload": {"body": text}, **common})
            for name, text in documents
        ]
        return [(name.encode(), None if value is None else serialize(value, self.context)) for name, value in made]

    def send(self, schema, documents, **more):
        """Send documents (id, text) with a schema."""
        for key, value in self.values(schema, documents, **more):
            self._producer.produce(self._topic, key=key, value=value)
        assert self._producer.flush(servers.DEADLINE_S) == 0


def daemon_of(installation: Installation, registry, **settings) -> Daemon:
    return installation.daemon(**AVRO | {"schema_registry.url": registry.url} | settings)


def run(installation, registry, *arguments):
    sets = AVRO | {"schema_registry.url": registry.url}
    options = [part for key, value in sets.items() for part in ("--set", f"{key}={value}")]
    name, *more = arguments
    return streamdedup(*name.split(), "--config", installation.config, *options, *more)


def alerts_of(installation):
    return [json.loads(record.value) for record in installation.published(installation.duplicates)]


def codes_of(installation):
    letters = installation.published(f"{installation.duplicates}.dlq")
    return [dict(letter.headers)["streamdedup.dlq.error.code"].decode() for letter in letters]


def test_an_evolving_stream_with_references_and_tombstones_has_exactly_its_pairs(install, registry):
    installation = install(2, batch_records=25)
    corpus = a_corpus(41, 240)
    with Sender(installation, registry.url) as sender, daemon_of(installation, registry) as daemon:
        daemon.wait_ready()
        sender.send(article(), corpus[:120])
        installation.wait_committed(120)
        sender.send(article(("headline", "string")), corpus[120:], headline="more")
        installation.wait_committed(240)
        first, text = corpus[0]
        sender.send(article(), [(first, None)])
        installation.wait_committed(241)
        sender.send(article(), [("copy", text)])
        installation.wait_committed(242)
        assert daemon.stop() == 0
        warnings = [event["reason"] for event in daemon.events("topic_warning")]
    expected = the_expected(corpus)
    found = installation.pairs()
    assert len(expected) > 20
    assert [pair for pair in found if "copy" not in pair] == expected
    assert all(first not in pair for pair in found if "copy" in pair)
    assert codes_of(installation) == []
    assert {alert["document"]["published_at"] for alert in alerts_of(installation)} == {"2026-05-01T00:00:00Z"}
    assert [text for text in warnings if text.startswith(f"no subject {installation.topic}-value")]
    shown = run(installation, registry, "tail", "--diff", "--from-beginning", "--limit", "1")
    assert shown.returncode == 0, shown.stderr
    assert any(word in shown.stdout for word in corpus[0][1].split())


def test_a_registry_that_is_away_stops_nothing_that_is_known_and_loses_nothing(install, tmp_path):
    installation = install(1)
    corpus, evolved = a_corpus(43, 120), article(("headline", "string"))
    with (
        servers.make_registry(tmp_path / "schemas") as registry,
        Sender(installation, registry.url) as sender,
        daemon_of(installation, registry) as daemon,
    ):
        daemon.wait_ready()
        sender.send(article(), corpus[:40])
        installation.wait_committed(40)
        known, unseen = sender.values(article(), corpus[40:80]), sender.values(evolved, corpus[80:], headline="more")
        registry.kill()
        produce_keyed(installation.kafka, installation.topic, known)
        installation.wait_committed(80)
        produce_keyed(installation.kafka, installation.topic, unseen)
        assert registry.url in daemon.wait_event("waiting", what="the schema registry")["reason"]
        wait_until(lambda: "the schema registry" in daemon.get("/readyz")[1], what="the wait")
        assert 'streamdedup_waiting{what="schema_registry"} 1.0' in daemon.get("/metrics")[1]
        assert daemon.stop() == 0
        daemon.start()
        wait_until(lambda: "the schema registry" in daemon.get("/readyz")[1], what="the wait of the next daemon")
        checked = run(installation, registry, "check")
        assert (checked.returncode, "does not answer" in checked.stdout) == (1, True), checked.stdout
        assert installation.committed_count() == 80
        registry.start()
        installation.wait_committed(120)
        assert daemon.stop() == 0
    assert codes_of(installation) == []
    assert installation.pairs() == the_expected(corpus)


def json_values(sender, texts):
    schema = {
        "title": "Article",
        "type": "object",
        "properties": {"id": {"type": "string"}, "text": {"type": "string"}},
    }
    serialize = JSONSerializer(json.dumps(schema), sender._client)
    return [(name, serialize({"id": name, "text": text}, sender.context)) for name, text in texts]


def protobuf_values(sender, texts):
    """Return messages of the second type in a file, which imports a file of its own and one of ``google.protobuf``."""
    pool, timestamp = DescriptorPool(), FileDescriptorProto()
    timestamp_pb2.DESCRIPTOR.CopyToProto(timestamp)
    pool.Add(timestamp)
    body = FileDescriptorProto(name="news/body.proto", package="news", syntax="proto3")
    made = body.message_type.add(name="Body")
    made.field.add(name="text", number=1, type=FieldDescriptorProto.TYPE_STRING, label=1)
    pool.Add(body)
    imported = ["news/body.proto", "google/protobuf/timestamp.proto"]
    file = FileDescriptorProto(name="article.proto", package="news", syntax="proto3", dependency=imported)
    file.message_type.add(name="Other")
    made = file.message_type.add(name="Article")
    made.field.add(name="id", number=1, type=FieldDescriptorProto.TYPE_STRING, label=1)
    types = {"body": ".news.Body", "published_at": ".google.protobuf.Timestamp"}
    for number, (name, type_name) in enumerate(types.items(), 2):
        kind = FieldDescriptorProto.TYPE_MESSAGE
        made.field.add(name=name, number=number, type=kind, label=1, type_name=type_name)
    pool.Add(file)
    article = GetMessageClass(pool.FindMessageTypeByName("news.Article"))
    serialize = ProtobufSerializer(article, sender._client, {"use.deprecated.format": False})
    values = [article(id=name, body={"text": text}, published_at={"seconds": 5}) for name, text in texts]
    return [(value.id, serialize(value, sender.context)) for value in values]


@pytest.mark.parametrize(("form", "make_values"), [("json-schema", json_values), ("protobuf", protobuf_values)])
def test_other_formats_have_exactly_their_pairs(install, registry, form, make_values):
    installation, corpus = install(1), a_corpus(47, 120)
    settings = {"profiles.articles.format": form, "profiles.articles.text_fields": "text,body.text"}
    with Sender(installation, registry.url) as sender, daemon_of(installation, registry, **settings) as daemon:
        values = [(name.encode(), value) for name, value in make_values(sender, corpus)]
        damaged = [(b"c", b'{"text": "plain"}'), (b"c", values[0][1][:-1]), (b"unknown", None)]
        produce_keyed(installation.kafka, installation.topic, values + damaged)
        installation.wait_committed(len(values) + len(damaged))
        assert daemon.stop() == 0
    assert installation.pairs() == the_expected(corpus)
    if form == "protobuf":
        assert {alert["document"]["published_at"] for alert in alerts_of(installation)} == {"1970-01-01T00:00:05Z"}
    assert codes_of(installation) == ["not_framed", "not_json" if form == "json-schema" else "schema_mismatch"]


PROTO = """
syntax = "proto3";
message Other { string other = 1; }
message B { string body = 1; }
message A { string id = 1; B payload = 2; string published_at = 3; }
"""
SCHEMAS = {
    "avro": (
        "AVRO",
        json.dumps(
            {
                "type": "record",
                "name": "A",
                "fields": [
                    {"name": "id", "type": "string"},
                    {
                        "name": "payload",
                        "type": {"type": "record", "name": "B", "fields": [{"name": "body", "type": "string"}]},
                    },
                    {"name": "published_at", "type": TIME},
                ],
            }
        ),
    ),
    "protobuf": ("PROTOBUF", PROTO),
    "json-schema": ("JSON", '{"$schema": "http://json-schema.org/draft-07/schema#", "type": "object"}'),
}


@pytest.mark.parametrize("form", SCHEMAS)
def test_produce_writes_what_daemon_tail_and_service_read(install, registry, form):
    installation, corpus = install(1), a_corpus(53, 60)
    settings = {"profiles.articles.format": form}
    file = installation.folder / "corpus.jsonl"
    lines = [{"id": name, "payload.body": text, "published_at": "2026-05-01T00:00:00Z"} for name, text in corpus]
    file.write_text("\n".join([*map(json.dumps, lines), "no document"]), encoding="utf-8")
    options = ("--topic", installation.topic, "--set", f"profiles.articles.format={form}")
    refused = run(installation, registry, "produce", str(file), *options)
    assert (refused.returncode, f"no subject {installation.topic}-value" in refused.stderr) == (2, True)
    kind, text = SCHEMAS[form]
    with SchemaRegistryClient({"url": registry.url}) as client:
        client.register_schema(f"{installation.topic}-value", Schema(text, kind))
    sent = run(installation, registry, "produce", str(file), *options)
    assert (sent.returncode, "1 line left out" in sent.stderr) == (0, True), sent.stderr
    with daemon_of(installation, registry, **settings) as daemon:
        installation.wait_committed(len(corpus))
        assert daemon.stop() == 0
    assert installation.pairs() == the_expected(corpus)
    assert codes_of(installation) == []
    alert = alerts_of(installation)[0]
    assert alert["document"]["published_at"] == "2026-05-01T00:00:00Z"
    pair = alert["document"]["id"], alert["matches"][0]["id"]
    text = dict(corpus)[pair[0]]
    shown = run(installation, registry, "tail", *options[2:], "--diff", "--from-beginning", "--limit", "1")
    assert shown.returncode == 0, shown.stderr
    assert text.split()[0] in shown.stdout
    served = AVRO | settings | {"schema_registry.url": registry.url}
    with ServeProcess(installation.config, installation.folder, **served) as service:

        def segments():
            path = f"/v1/profiles/articles/compare?a={pair[0]}&b={pair[1]}"
            return service.request("GET", path)[2]["segments"]

        assert "".join(part["a"] for part in wait_until(segments, what="the texts")) == text
        assert service.stop() == 0
