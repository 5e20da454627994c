"""Alerts in Avro: the schema, the messages and their readers, with a registry in this process."""

import json
import sys
from dataclasses import replace
from io import BytesIO
from types import SimpleNamespace

import avro.schema
import fastavro
import pytest
from avro.compatibility import ReaderWriterCompatibilityChecker, SchemaCompatibilityType
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from msgspec import structs

from streamdedup.cli import assembly, checks, serve, topics
from streamdedup.cli import run as run_module
from streamdedup.cli.tail import _alerts
from streamdedup.daemon.metrics import Awaited, Metrics
from streamdedup.daemon.readiness import Readiness
from streamdedup.errors import DecodeError, RegistryMisconfigured, RegistryUnavailable, SettingsError
from streamdedup.index.memory import MemoryIndex
from streamdedup.kafka.admin import CreatedTopics
from streamdedup.kafka.protocols import Batch, Record
from streamdedup.position import Position
from streamdedup.serve.feed import _reason
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.stream_kinds import alerts_kind
from streamdedup.settings import Settings
from streamdedup.wire import MIN_ALERT_BYTES, AlertReader, ErrorCode, decode_alert, encode_alert, schema
from streamdedup.wire import schema_registry as registry_module
from streamdedup.wire.avro_alerts import ALERT_SCHEMA, AvroAlerts
from streamdedup.wire.identity import MAX_ID_BYTES
from streamdedup.wire.schema_registry import MAX_ANSWER_BYTES, Registry
from tests import alerts as made
from tests import released
from tests.thoroughness import examples
from tests.turns import DUPLICATES, Sent, World, once
from tests.unit.test_messages import alerts

#: The schema of the last release.
LAST = (released.last() / "alert.avsc").read_text(encoding="utf-8")
#: A schema with a further field in front.
LATER = ALERT_SCHEMA.replace('"fields":[', '"fields":[{"name":"new","type":"string","default":"new"},', 1)
AT = Position("articles", 0, 7)
DIGEST = "00112233445566778899aabbccddeeff"
SUBJECT = "duplicates-value"


class MemoryRegistry:
    """A registry behind ``HttpSession``: schemas by id, and the ids of one subject."""

    def __init__(self):
        self.schemas = {1: '"string"'}
        self.subject = []
        self.asked = []
        self.is_away, self.refusal = False, 0

    def __call__(self, *_arguments):
        return self

    def close(self):
        pass

    def request(self, method, path, headers, body=None):
        if self.is_away:
            raise ConnectionRefusedError
        self.asked.append(path)
        sent = body and json.loads(body)["schema"]
        assert (method, "Content-Type" in headers) == (("POST", True) if body else ("GET", False))
        status, answer = self.answer(path.removeprefix("/api/"), sent)
        return status, json.dumps(answer).encode()

    def answer(self, path, sent):
        missing = 404, {"error_code": 40401}
        if path.startswith("schemas/ids/"):
            text = self.schemas.get(int(path.rpartition("/")[2]))
            return missing if text is None else (200, {"schema": text})
        if path == f"subjects/{SUBJECT}/versions/latest":
            newest = self.subject[-1] if self.subject else 0
            return (200, {"schema": self.schemas[newest], "id": newest}) if newest else missing
        assert path == f"subjects/{SUBJECT}/versions"
        return (self.refusal, missing[1]) if self.refusal else (200, {"id": self.add(sent, is_alerts=True)})

    def add(self, text, *, is_alerts=False):
        self.schemas[schema_id := max(self.schemas) + 299] = text
        self.subject += [schema_id] * is_alerts
        return schema_id


@pytest.fixture(scope="module")
def served():
    """A registry with the schema, for tests that change nothing in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(registry_module, "HttpSession", memory := MemoryRegistry())
        yield memory


@pytest.fixture
def memory(served, monkeypatch):
    monkeypatch.setattr(registry_module, "HttpSession", fresh := MemoryRegistry())
    return fresh


def in_avro():
    return AvroAlerts(Registry("http://registry/api"), SUBJECT)


def decoded(value, codec=None):
    return decode_alert((codec or in_avro()).as_json(value))


def an_alert(count=1, **more):
    matches = [made.a_match(f"m{at}", AT, digest=DIGEST, pair=DIGEST) for at in range(count)]
    return made.an_alert(made.a_document("d", AT, DIGEST, 1_777_618_931_480), *matches, detected_at_ms=5, **more)


def settings_of(**more):
    values = {
        "kafka.bootstrap_servers": "localhost:9",
        "kafka.alert_format": "avro",
        "redis.url": "redis://localhost",
        "schema_registry.url": "http://registry/api",
        "profiles.p.topics": "t",
    }
    return Settings.load(None, values | more, environ={})


# The schema


def fields_of(text):
    """Return the names of the fields by record."""
    top = {field["name"]: field["type"] for field in json.loads(text)["fields"]}
    records = {"document": top["document"], "match": top["matches"]["items"]}
    return {"": set(top)} | {name: {field["name"] for field in made["fields"]} for name, made in records.items()}


def test_the_schema_has_the_fields_of_the_json_schema_and_the_first_match():
    expected = json.loads(schema("alert"))
    place = set(expected["$defs"]["place"]["properties"])
    names = {name: place | set(expected["$defs"][name]["properties"]) for name in ("document", "match")}
    assert fields_of(ALERT_SCHEMA) == {"": set(expected["properties"]) | {"first_match"}} | names


@pytest.mark.parametrize("newest", ["{", '{"doc": "\ud800"}', r'{"doc": "\ud800"}', '{"size": NaN}', "[" * 100_000])
def test_a_newest_schema_in_any_text_is_another_than_that_of_alerts(memory, newest):
    memory.add(newest, is_alerts=True)
    assert in_avro().registered_id() == 0
    assert in_avro().register()
    assert in_avro().registered_id() == max(memory.schemas)


def test_an_alert_is_read_with_a_schema_that_has_half_of_a_surrogate_pair(memory):
    value = in_avro().encode(an_alert())
    loose = ALERT_SCHEMA.replace('"type":"record"', r'"type":"record","doc":"\ud800"', 1)
    memory.schemas[max(memory.schemas)] = loose
    assert decoded(value) == an_alert()


def test_a_reader_with_the_schema_reads_what_the_last_release_has_written():
    checker = ReaderWriterCompatibilityChecker()
    result = checker.get_compatibility(reader=avro.schema.parse(ALERT_SCHEMA), writer=avro.schema.parse(LAST))
    assert result.compatibility is SchemaCompatibilityType.compatible, result


@pytest.mark.parametrize("text", [LAST, LATER], ids=["last", "later"])
def test_an_alert_of_the_last_release_or_of_a_later_one_is_read(memory, text):
    value = in_avro().encode(an_alert())
    body = BytesIO()
    writer = fastavro.parse_schema(json.loads(text))
    fields = fastavro.schemaless_reader(BytesIO(value[5:]), json.loads(ALERT_SCHEMA), writer)
    fastavro.schemaless_writer(body, writer, fields)
    frame = b"\0" + memory.add(text).to_bytes(4, "big")
    assert decoded(frame + body.getvalue()) == an_alert()


# Messages


def test_an_alert_is_framed_with_absent_fields_null_times_as_numbers_and_its_first_match(memory):
    alert = structs.replace(an_alert(2), cluster_label="first")
    value = in_avro().encode(alert)
    assert value[:5] == b"\0\0\0\1\x2c"
    plain = json.loads(ALERT_SCHEMA.replace(',"logicalType":"timestamp-millis"', ""))
    found = fastavro.schemaless_reader(BytesIO(value[5:]), plain, None)
    assert found["first_match"] == found["matches"][0]
    assert (found["detected_at"], found["document"]["record_time"]) == (5, 1_777_618_931_480)
    assert (found["document"]["source"], found["document"]["label"], found["cluster_size"]) == (None, None, None)
    assert (found["cluster_label"], found["complete"], found["suppressed"]) == ("first", True, {})


@hypothesis_settings(max_examples=examples(100))
@given(alerts, st.integers(1, 3))
def test_an_alert_in_avro_becomes_the_bytes_of_the_alert_in_json(served, alert, max_matches):
    messages = encode_alert(alert, max_matches, encode=in_avro().encode)
    assert [in_avro().as_json(value) for value in messages] == encode_alert(alert, max_matches)


def test_no_message_in_avro_is_longer_than_its_limit(memory):
    """Also with the longest first match, which is there twice, and short ones behind it, of which JSON takes little."""
    at = Position("t" * 249, 2**31 - 1, 2**63 - 1)
    longest = {"label": "y" * 1_024, "source": "s" * 32, "published_at": "p" * 64, "contained": "document"}
    for more in (longest, {}):
        rest = [made.a_match(f"{number}", at if more else AT, 0.5, digest=DIGEST, **more) for number in range(2_000)]
        first = made.a_match("x" * MAX_ID_BYTES, at, 0.9, digest=DIGEST, **longest)
        alert = made.an_alert(made.a_document("d" * MAX_ID_BYTES, at, DIGEST), first, *rest)
        messages = encode_alert(alert, 5_000, MIN_ALERT_BYTES, encode=in_avro().encode)
        assert max(map(len, messages)) <= MIN_ALERT_BYTES - MAX_ID_BYTES - 82
        assert sum(len(decoded(value).matches) for value in messages) == 2_001


# Reading


def code_of(value, codec):
    with pytest.raises(DecodeError) as refused:
        decoded(value, codec)
    return refused.value.code


@hypothesis_settings(max_examples=examples(300))
@given(st.data())
def test_a_damaged_alert_is_refused_or_read(served, data):
    octets = bytearray(in_avro().encode(an_alert()))
    for _ in range(data.draw(st.integers(1, 3))):
        octets[data.draw(st.integers(5, len(octets) - 1))] = data.draw(st.integers(0, 255))
    try:
        decode_alert(in_avro().as_json(bytes(octets)))
    except DecodeError as error:
        reason = str(error)
    else:
        reason = ""
    assert "aabbcc" not in reason  # a part of the value


def a_field(kind):
    """Return the text of a schema of alerts with one field, which no alert has."""
    return json.dumps({"type": "record", "name": "Alert", "fields": [{"name": "x", "type": kind}]})


def a_type(kind, **more):
    return {"type": kind, "name": "T", **more}


EMPTY = a_type("record", fields=[])
NO_BYTES = [
    {"type": "array", "items": "null"},
    {"type": "array", "items": {"type": "null"}},
    {"type": "array", "items": a_type("fixed", size=0)},
    {"type": "array", "items": EMPTY},
    {"type": "array", "items": a_type("record", fields=[{"name": "n", "type": "null"}])},
    ["null", {"type": "map", "values": {"type": "array", "items": EMPTY}}],
]


@pytest.mark.parametrize("kind", NO_BYTES, ids=str)
def test_an_alert_by_a_schema_with_items_without_bytes_is_refused_before_it_is_read(memory, kind):
    value, codec = b"\0" + memory.add(a_field(kind)).to_bytes(4, "big") + b"\0", in_avro()
    for _ in range(2):
        with pytest.raises(DecodeError, match=r"no alert by schema 300: (Value|Key)Error"):
            codec.as_json(value)
    assert memory.asked == ["/api/schemas/ids/300"]


@pytest.mark.parametrize("count", [5 * 10**8, -5 * 10**8])
@pytest.mark.parametrize("outer", ["array", "map"])
@pytest.mark.parametrize(
    "kind", ["float", "double", "boolean", "string", "int", a_type("fixed", size=9), ["null", "int"]]
)
def test_an_array_in_a_skipped_field_ends_with_the_value(memory, kind, outer, count):
    schema_id = memory.add(a_field({"type": outer, {"array": "items", "map": "values"}[outer]: kind}))
    body = BytesIO()
    fastavro.schemaless_writer(body, "long", count)
    assert code_of(b"\0" + schema_id.to_bytes(4, "big") + body.getvalue(), in_avro()) == ErrorCode.INVALID_FIELD


def deep(levels):
    kind = "int"
    for _ in range(levels):
        kind = {"type": "array", "items": kind}
    return kind


def doubled(depth):
    """Return records in each other, each twice in the next, the innermost with a number."""
    kind = a_type("record", fields=[{"name": "n", "type": "int"}]) | {"name": "T0"}
    for at in range(1, depth):
        fields = [{"name": "a", "type": kind}, {"name": "b", "type": f"T{at - 1}"}]
        kind = {"type": "record", "name": f"T{at}", "fields": fields}
    return kind


@pytest.mark.parametrize("kind", ["Alert", ["null", "Alert"], deep(49), deep(400), doubled(60)])
def test_an_alert_by_a_schema_that_contains_itself_or_nests_deeply_is_refused(memory, kind):
    value = b"\0" + memory.add(a_field(kind)).to_bytes(4, "big") + b"\2" * 100_000
    assert code_of(value, in_avro()) == ErrorCode.INVALID_FIELD


def test_an_alert_longer_than_any_daemon_writes_is_refused_without_a_registry(memory):
    memory.is_away = True
    assert code_of(b"\0\0\0\0\1" + bytes(512 * 1024 + 1), in_avro()) == ErrorCode.INVALID_FIELD


def test_a_longer_or_shorter_value_and_one_by_another_schema_are_no_alerts(memory):
    value, codec = in_avro().encode(an_alert()), in_avro()
    assert code_of(value + b"x", codec) == code_of(value[:-1], codec) == ErrorCode.INVALID_FIELD
    assert code_of(b"\0\0\0\0\1\4ab", codec) == ErrorCode.INVALID_FIELD
    other = b"\0" + memory.add("no schema").to_bytes(4, "big") + value[5:]
    assert code_of(other, codec) == ErrorCode.INVALID_FIELD
    assert code_of(b"\0\0\0\0\2" + value[5:], codec) == ErrorCode.UNKNOWN_SCHEMA
    assert code_of(b"\0\0\0\0\1", codec) == ErrorCode.INVALID_FIELD


@pytest.mark.parametrize("step", ["parse_schema", "schemaless_reader"])
def test_an_alert_for_which_the_memory_is_short_is_not_refused_as_damaged(memory, monkeypatch, step):
    def raise_memory_error(*_arguments):
        raise MemoryError

    value, codec = in_avro().encode(an_alert()), in_avro()
    monkeypatch.setattr(fastavro, step, raise_memory_error)
    with pytest.raises(MemoryError):
        decoded(value, codec)


def test_a_schema_is_asked_for_once_and_json_is_read_without_a_registry(memory):
    value, codec = in_avro().encode(an_alert()), in_avro()
    assert decoded(value, codec) == decoded(value, codec) == an_alert()
    assert memory.asked.count("/api/schemas/ids/300") == 1
    memory.is_away = True
    (as_json,) = encode_alert(an_alert())
    assert codec.as_json(as_json) == as_json
    with pytest.raises(RegistryUnavailable):
        decoded(value)
    assert code_of(value, AlertReader()) == ErrorCode.FOREIGN_FRAMING


def test_tail_and_service_show_an_alert_in_avro_as_json(memory):
    value, (as_json,) = in_avro().encode(an_alert()), encode_alert(an_alert())
    record = Record(AT, 0, None, value, ())
    assert alerts_kind(in_avro()).event_of(record).data == as_json
    topic = []  # the record is in a partition that the topic has got meanwhile
    poller = SimpleNamespace(
        add_new_partitions=lambda: topic.append(Batch(records=(record,))), poll=lambda _timeout_s: topic.pop()
    )
    assert next(_alerts(poller, in_avro())) == (as_json, an_alert())
    assert "schema registry" in _reason(RegistryUnavailable("away"))


# The subject


@pytest.mark.parametrize("other", ['"int"', " " * MAX_ANSWER_BYTES])
def test_the_schema_is_registered_where_it_is_absent_and_never_again(memory, other):
    memory.subject.append(memory.add(other))
    assert (in_avro().register(), in_avro().register()) == (True, False)
    assert len(memory.subject) == 2
    codec = in_avro()
    codec.encode(an_alert())
    codec.encode(an_alert())
    assert memory.asked.count(f"/api/subjects/{SUBJECT}/versions/latest") == 3


@pytest.mark.parametrize(("status", "reason"), [(409, "refuses the schema"), (422, "refuses"), (403, "the login")])
def test_a_registry_that_refuses_the_schema_ends_the_daemon(memory, status, reason):
    memory.refusal = status
    with pytest.raises(RegistryMisconfigured, match=f"{reason}.*{SUBJECT}"):
        in_avro().register()


def test_a_registry_that_is_away_or_busy_is_waited_for(memory):
    for memory.refusal, reason in ((503, "status 503"), (404, rf"no usable answer \(status 404, .*{SUBJECT}")):
        with pytest.raises(RegistryUnavailable, match=reason):
            in_avro().register()
    memory.is_away = True
    for ask in (in_avro().register, in_avro().ping, lambda: in_avro().encode(an_alert())):
        with pytest.raises(RegistryUnavailable):
            ask()
    AlertReader().ping()
    memory.is_away = False
    in_avro().ping()


def test_check_compares_the_schema_with_the_subject(memory):
    def finding():
        (found,) = checks.registry_findings(checks.CheckRun(settings_of(), None))
        return str(found.level), found.text.partition(SUBJECT)[2].partition(":")[0].partition(";")[0]

    assert finding() == ("warning", " has no schema")
    memory.subject.append(memory.add('"int"'))
    assert finding() == ("warning", " has another schema")
    in_avro().register()
    assert finding() == ("ok", " is that of alerts")
    memory.is_away = True
    (found,) = checks.REGISTRY.findings(checks.CheckRun(settings_of(), None))
    assert found.error is RegistryUnavailable
    in_json = settings_of(**{"kafka.alert_format": "json"})
    assert not list(checks.registry_findings(checks.CheckRun(in_json, None)))


def test_topics_create_registers_the_schema(memory, monkeypatch, capsys):
    monkeypatch.setattr(topics, "load_settings", lambda *_: settings_of())
    monkeypatch.setattr(topics, "create_topics", lambda *_, **__: CreatedTopics(frozenset(), {}))
    for outcome in ("schema registered", "has the schema, unchanged"):
        topics.create()
        assert f"{SUBJECT}: {outcome}\n" in capsys.readouterr().out


def test_the_start_waits_for_the_registry_and_registers_the_schema(memory, monkeypatch):
    memory.is_away = True
    monkeypatch.setattr(run_module, "CHECKS", [checks.REGISTRY])

    class Stop:
        stopping = False

        def wait(self, _delay_s):
            assert loop.readiness.waiting_for() is Awaited.SCHEMA_REGISTRY
            memory.is_away = False

    loop = type("Loop", (), {"readiness": Readiness(Metrics())})
    asked = []  # paths of the requests before each tick
    pulse = type("Pulse", (), {"tick": lambda: asked.append(memory.asked.copy())})
    run_module._await_servers(settings_of(), None, assembly.alert_writer(settings_of()), Stop(), pulse, loop)
    assert [memory.schemas[schema_id] for schema_id in memory.subject] == [ALERT_SCHEMA]
    registration = [f"/api/subjects/{SUBJECT}/versions/latest", f"/api/subjects/{SUBJECT}/versions"]
    # The registration and the check each have the whole time of the watchdog.
    assert registration in asked
    assert len(memory.asked) > len(registration)


def test_the_setting_needs_a_registry_and_the_extra(monkeypatch):
    with pytest.raises(SettingsError, match=r'schema_registry.url: is missing; kafka.alert_format = "avro" needs it'):
        settings_of(**{"schema_registry.url": None})
    assert assembly.alert_writer(settings_of(**{"kafka.alert_format": "json"})) is None
    assert isinstance(assembly.alert_reader(settings_of(**{"kafka.alert_format": "json"})), AvroAlerts)
    monkeypatch.setitem(sys.modules, "fastavro", None)
    assert type(assembly.alert_reader(settings_of(**{"kafka.alert_format": "json"}))) is AlertReader
    for make in (assembly.alert_reader, assembly.alert_writer):
        with pytest.raises(SettingsError, match=r"kafka.alert_format needs .*streamdedup\[registry\]"):
            make(settings_of())


def test_daemon_rebuild_and_service_get_what_the_settings_say(memory, monkeypatch):
    def loop(options, **_):
        raise SettingsError(options.encode_alert.__qualname__)

    monkeypatch.setattr(run_module, "Loop", loop)
    given = settings_of(**{"service.metrics_port": 0})
    with pytest.raises(SettingsError, match=r"AvroAlerts\.encode"):
        run_module.run_daemon(given)
    backend = SimpleNamespace(staging=lambda *_: SimpleNamespace(store=MemoryIndex()))
    assert isinstance(assembly.rebuilder(given, backend)._open_target("p").alert_reader, AvroAlerts)
    record = Record(AT, 0, None, in_avro().encode(an_alert()), ())
    assert serve._feeds(given, ServeMetrics()).alerts._kind.event_of(record).profile == "articles"


# A rebuild


class AvroWorld(World):
    """Daemons that publish in Avro, and read it with ``alerts``."""

    alerts = None

    def start(self, name):
        daemon = super().start(name)
        publisher = daemon.loop._publisher
        publisher._options = replace(publisher._options, encode_alert=in_avro().encode)
        return daemon

    def open_target(self, daemon, name):
        return replace(super().open_target(daemon, name), alert_reader=self.alerts or in_avro())

    def read_pairs(self):
        values = [record.value for record in self.broker.records(DUPLICATES)]
        assert all(value[:1] == b"\0" for value in values)
        found = [decoded(value) for value in values]
        return sorted(tuple(sorted((alert.document.id, match.id))) for alert in found for match in alert.matches)


TEXT = "the harbour lamp burns again tonight above the old stone pier"
TWO = [Sent("a", TEXT), Sent("b", TEXT, 1)]
#: A pair whose claim is lost is published again when a document returns to its text.
BACK = [Sent("b", "quite another text of words that nobody has", 1), Sent("b", TEXT, 1)]


def test_a_rebuild_claims_the_pairs_of_alerts_in_avro(memory):
    world = AvroWorld(TWO, on_index_lost="rebuild").run()
    world.server.go_back(None)
    world.start_later()
    assert world.send(*BACK).run().read_pairs() == [("a", "b")]


def test_a_rebuild_begins_when_the_registry_answers_again(memory):
    world = AvroWorld(TWO, on_index_lost="rebuild").run()
    world.server.go_back(None)
    daemon = world.start_later()
    memory.is_away = True
    world.outages = [lambda: None] * 20 + [lambda: setattr(memory, "is_away", False)]
    world.send(*BACK)
    began = len(world.trace)
    while memory.is_away:
        world.turn(daemon)
    assert not {"clear", "fence"} & {moment.effect for moment in world.trace[began:]}
    assert daemon.metric("waiting", what="schema_registry") == 1
    assert world.run().read_pairs() == [("a", "b")]


@pytest.mark.parametrize("is_known_registry", [True, False])
def test_a_rebuild_that_cannot_read_an_alert_ends_instead_of_publishing_its_pairs_again(memory, is_known_registry):
    world = AvroWorld(TWO, on_index_lost="rebuild").run()
    world.server.go_back(None)
    world.start_later()
    if is_known_registry:
        del memory.schemas[300]
    else:
        world.alerts = AlertReader()
    with pytest.raises(RegistryMisconfigured, match=r"duplicates:0:0: .*published again"):
        world.send(*BACK).run()


def test_a_rebuild_whose_registry_goes_away_begins_again(memory):
    world = AvroWorld(TWO, on_index_lost="rebuild").run()
    world.server.go_back(None)
    world.start_later(plan=once("clear", lambda *_: setattr(memory, "is_away", True)))
    world.outages = [lambda: None] * 20 + [lambda: setattr(memory, "is_away", False)]
    assert world.send(*BACK).run().read_pairs() == [("a", "b")]
    assert not memory.is_away
    assert [moment.effect for moment in world.trace].count("clear") > 1
