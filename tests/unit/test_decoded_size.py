"""Values that would become much larger when they are decoded whole; what is not read costs nothing."""

import inspect
import json
import os
import random
import subprocess
import sys
import traceback
import tracemalloc
from functools import partial
from io import BytesIO
from pathlib import Path

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamdedup.errors import DecodeError, DocumentTooLarge, MessageError
from streamdedup.position import Position
from streamdedup.wire import Decoder, Document, ErrorCode, Registry
from streamdedup.wire.formats import avro, avro_walk, json_schema, protobuf
from streamdedup.wire.formats.avro_walk import Walk, as_step
from streamdedup.wire.formats.fields import WantedFields
from streamdedup.wire.schema_registry import RegisteredSchema, RegistrySession
from tests.bombs import BOMBS, KINDS, TEXT_FIELDS, record, varint, zigzag
from tests.thoroughness import examples

MIB = 2**20
#: Every large part of memory is returned at once, so that no growth hides in memory that was free before.
MALLOC = {"MALLOC_MMAP_THRESHOLD_": "65536", "MALLOC_TRIM_THRESHOLD_": "0"}


@pytest.mark.parametrize(
    ("kind", "size"),
    [
        ("json", 4_000_000),
        ("avro", 2_000_000),
        ("protobuf", 1_000_000),
        *(
            pytest.param(kind, 10_000_000, marks=pytest.mark.long)
            for kind in ("json", "json-schema", "avro", "protobuf")
        ),
    ],
)
def test_a_value_takes_at_most_four_times_its_bytes_and_32_mib(kind, size):
    command = [sys.executable, "-m", "tests.bombs", kind, str(size)]
    root = Path(__file__).parents[2]
    ended = subprocess.run(command, cwd=root, env=os.environ | MALLOC, capture_output=True, check=True)
    measured = [json.loads(line) for line in ended.stdout.splitlines()]
    assert [bomb["outcome"] for bomb in measured] == [bomb["expected"] for bomb in measured]
    beside = min(32 * MIB, 8 * size)  # so that few bytes show a large factor
    assert {bomb["name"]: bomb["growth"] for bomb in measured if bomb["growth"] > 4 * bomb["bytes"] + beside} == {}
    assert len(measured) == sum(bomb.format in (kind, kind.removesuffix("-schema")) for bomb in BOMBS.values())


@pytest.mark.parametrize("text", ["é" * 70_000, "a" * 65_535 + "😀" * 10_000])
def test_the_bytes_of_a_long_text_are_counted_exactly(text):
    count = len(text.encode())
    value = json.dumps({"text": text}).encode()
    assert Decoder(max_text_bytes=count).decode(Position("t", 0, 0), 5, b"key", value).text == text
    with pytest.raises(DocumentTooLarge, match=f"is {count:,} bytes long"):
        Decoder(max_text_bytes=count - 1).decode(Position("t", 0, 0), 5, b"key", value)


@pytest.mark.parametrize("kind", ["json", "avro", "protobuf"])
def test_a_text_above_the_limit_is_refused_before_it_is_decoded(kind, monkeypatch):
    text = b"a" * 3_000_000 + "😀".encode()
    schema, value = {
        "json": ("", json.dumps({"payload": {"body": "b"}, "text": text.decode()}, ensure_ascii=False).encode()),
        "avro": (json.dumps(record("R", text="string")), zigzag(len(text)) + text),
        "protobuf": ('syntax = "proto3"; message A { string text = 2; }', b"\0\x12" + varint(len(text)) + text),
    }[kind]
    registered = RegisteredSchema(KINDS.get(kind, ""), schema, {})
    monkeypatch.setattr(RegistrySession, "by_id", lambda *_: registered)
    options = {"format": kind, "text_fields": TEXT_FIELDS, "registry": Registry("http://localhost")}
    value = value if kind == "json" else b"\0\0\0\0\7" + value
    with pytest.raises(DocumentTooLarge, match="bytes long"):
        Decoder(**options, max_text_bytes=len(text) - 1).decode(Position("t", 0, 0), 5, b"key", value)
    decoder = Decoder(**options, max_text_bytes=len(text) // 10)
    tracemalloc.start()
    try:
        with pytest.raises(DocumentTooLarge, match="bytes long"):
            decoder.decode(Position("t", 0, 0), 5, b"key", value)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 3 * len(value)


#: Types of Avro and Protobuf.
TYPES = {str: ("string", "string"), int: ("int", "int32"), float: ("double", "double"), bool: ("boolean", "bool")}


@pytest.mark.parametrize(
    ("unusable", "code"),
    [
        pytest.param({"text": "word " * 300}, ErrorCode.TOO_LARGE, id="long text"),
        pytest.param({"text": 5}, ErrorCode.INVALID_FIELD, id="text of a wrong type"),
        pytest.param({"tenant": 1.5}, ErrorCode.INVALID_FIELD, id="scope of a wrong type"),
    ],
)
@pytest.mark.parametrize("kind", ["json", "json-schema", "avro", "protobuf"])
def test_a_deletion_needs_its_id_alone(kind, unusable, code, monkeypatch):
    fields = {"id": "d", "text": "a b", "tenant": "t", "gone": True} | unusable
    types = {name: TYPES[type(content)] for name, content in fields.items()}
    lines = " ".join(f"{type_} {name} = {number};" for number, (name, (_, type_)) in enumerate(types.items(), 1))
    schema = {
        "avro": json.dumps(record("R", **{name: type_ for name, (type_, _) in types.items()})),
        "protobuf": f'syntax = "proto3"; message A {{ {lines} }}',
    }.get(kind, "{}")
    registered = RegisteredSchema(KINDS.get(kind, ""), schema, {})
    monkeypatch.setattr(RegistrySession, "by_id", lambda *_: registered)
    compiler = {"avro": avro, "protobuf": protobuf}.get(kind, json_schema)
    write = compiler.compile_writer(registered, WantedFields(texts=("text",), id="id"))
    decoder = Decoder(
        format=kind,
        registry=Registry("http://localhost"),
        deleted_field="gone",
        scope_field="tenant",
        max_text_bytes=99,
    )

    def decode(**changed):
        value = b"\0\0\0\0\7" * (kind != "json") + write(fields | changed)
        return decoder.decode(Position("t", 0, 0), 5, b"key", value)

    assert decode() == Document("d", "", Position("t", 0, 0), 5, "delete")
    with pytest.raises(MessageError) as refused:
        decode(gone=False)
    assert refused.value.code == code


@pytest.mark.parametrize("texts", [("payload.body", "text"), ("text",)])
def test_a_json_text_of_escapes_is_as_long_as_its_characters(texts):
    value = json.dumps({"payload.body": None, "payload": {"body": "\1" * 9}, "text": "é" * 5}).encode()
    decoder = Decoder(text_fields=texts, max_text_bytes=20 if len(texts) == 2 else 10)
    assert decoder.decode(Position("t", 0, 0), 5, b"key", value).text.endswith("é" * 5)


def test_texts_that_are_too_long_together_are_not_joined():
    value = json.dumps({"a": "é" * 10, "b": "x" * 10}).encode()
    decode = partial(Decoder(text_fields=("a", "b"), max_text_bytes=30).decode, Position("t", 0, 0), 5, b"key")
    with pytest.raises(DocumentTooLarge, match="31 bytes long; the limit is 30"):
        decode(value)
    assert decode(value.replace(b"xx", b"x", 1)).text == "é" * 10 + "\n" + "x" * 9


def reader(schema, *texts, **names):
    names = {"id": "id", "op": "op", "published_at": "published_at", "source": "source"} | names
    registered = RegisteredSchema("AVRO", schema if isinstance(schema, str) else json.dumps(schema), {})
    return avro.compile_schema(registered, WantedFields(texts=texts or ("text",), **names))


def code_of(read, value):
    with pytest.raises(DecodeError) as caught:
        read(value)
    return caught.value.code


EMPTY = {
    "null": "null",
    "null in an object": {"type": {"type": "null"}},
    "record": record("Z"),
    "error": {"type": "error", "name": "Z", "fields": []},
    "fixed": {"type": "fixed", "name": "Z", "size": 0},
    "record of records": record("Z", a=record("Y", b="null"), c="Y"),
}


@pytest.mark.parametrize("items", EMPTY.values(), ids=EMPTY)
def test_items_without_bytes_are_refused_only_where_they_are_reached_before_the_last_field_that_is_read(items):
    many = {"type": "array", "items": items}
    endless = zigzag(2**62) + b"\0"
    assert reader(record("R", text="string", many=many)).read(b"\4hi" + endless).text_0 == "hi"
    before = reader(record("R", many=["string", many], text="string"))
    assert before.read(b"\0\2x\4hi").text_0 == "hi"
    assert before.read(b"\2\0\4hi").text_0 == "hi"
    assert code_of(before.read, b"\2" + endless + b"\4hi") == ErrorCode.UNUSABLE_SCHEMA


NESTED = 45


@pytest.mark.parametrize("beside", [{}, {"nothing": "null"}])
def test_records_in_each_other_multiply_no_steps(beside, monkeypatch):
    calls, skip = [], avro_walk._skip_number
    monkeypatch.setattr(avro_walk, "_skip_number", lambda *rest: calls.append(len(inspect.stack())) or skip(*rest))
    for levels in (1, NESTED):
        items = "int"
        for level in range(levels):
            items = record(f"N{level}", inner=items, **beside)
        assert (
            reader(record("R", many={"type": "array", "items": items}, text="string")).read(b"\2\2\0\4hi").text_0
            == "hi"
        )
    assert calls[0] == calls[1]


@pytest.mark.parametrize("name", [None, 5, ["A"], {"A": 1}])
def test_a_name_that_is_no_text_costs_only_values_that_reach_it(name):
    broken = {"type": "record", "name": name, "fields": [{"name": "text", "type": "string"}]}
    assert reader(record("R", text="string", more=broken)).read(b"\4hi\0").text_0 == "hi"
    assert code_of(reader(record("R", more=["null", broken], text="string")).read, b"\2\2a\4hi") == "unusable_schema"
    with pytest.raises(DecodeError, match="no Avro schema"):
        reader(broken)


def test_a_logical_type_is_converted_once_for_a_value(monkeypatch):
    count = []
    monkeypatch.setitem(avro._READERS, "long-timestamp-millis", lambda *_: count.append(1))
    times = {"type": "map", "values": {"type": "long", "logicalType": "timestamp-millis"}}
    reader(record("R", payload=times, text="string"), published_at="payload.at").read(b"\6" + b"\4at\2" * 3 + b"\0\4hi")
    assert len(count) == 1


def test_a_map_whose_values_have_no_bytes_is_bounded_by_its_keys():
    read = reader(record("R", many={"type": "map", "values": "null"}, text="string")).read
    assert read(b"\4\2a\2b\0\4hi").text_0 == "hi"
    assert code_of(read, zigzag(2**62) + b"\2a" * 100) == ErrorCode.SCHEMA_MISMATCH


@pytest.mark.parametrize("levels", [3, 200])
def test_types_that_contain_a_smaller_type_twice_are_skipped_by_their_size(levels):
    size = {"type": "fixed", "name": "T0", "size": 1}
    types = [record(f"T{level}", a=f"T{level - 1}", b=f"T{level - 1}") for level in range(1, levels)]
    schema = [size, *types, record("R", a=f"T{levels - 1}", text="string")]
    value = zigzag(levels) + bytes(2 ** (levels - 1) if levels == 3 else 9) + b"\4hi"
    if levels == 3:
        assert reader(schema).read(value).text_0 == "hi"
    else:
        assert code_of(reader(schema).read, value) == ErrorCode.SCHEMA_MISMATCH


@pytest.mark.parametrize("make", [avro.compile_schema, avro.compile_writer])
def test_a_type_that_occurs_often_is_visited_once_for_each_step_of_a_path(make, monkeypatch):
    visits, new_step = [], Walk._new_step

    def visited(walk, type_, path, **options):
        visits.append((type_.kind, path))
        return new_step(walk, type_, path, **options)

    monkeypatch.setattr(Walk, "_new_step", visited)
    count = 300
    body = record("B", body="string")
    outer = record("P", payload=[body] + [f"B{at}" for at in range(3)] + ["B"] * count)
    schema = [record(f"B{at}", body="string") for at in range(3)] + [outer] + ["P"] * count
    registered = RegisteredSchema("AVRO", json.dumps(schema), {})
    names = {"id": "id", "op": "op", "published_at": "payload.time", "source": "source"}
    make(registered, WantedFields(texts=("payload.body",), **names))
    assert len(visits) < 50


@pytest.mark.parametrize(
    "value",
    [
        b"\1\0\4hi",  # a branch below zero
        b"\0\1\4hi",  # a symbol below zero
        b"\4\0\4hi",  # a branch that does not exist
        b"\0\4\4hi",
        b"\0\0\3hi",  # a length below zero
        b"\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\1hi",
        b"\2\1\1\0\0\4hi",  # a block with a size below zero
        b"\2\2\3\0\0\4hi",
        b"\2\2",
        b"",
    ],
)
def test_an_index_or_a_length_below_zero_or_beyond_the_value_fits_no_schema(value):
    enum = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    schema = record("R", union=["null", {"type": "array", "items": "string"}], source=enum, text="string")
    read = reader(schema).read
    assert read(b"\0\2\4hi").source == "B"
    assert code_of(read, value) == ErrorCode.SCHEMA_MISMATCH


@pytest.mark.parametrize("block", [b"\2\2x\0", b"\1\4\2x\0", b"\1\6???\0"], ids=["count", "size", "size alone counts"])
@pytest.mark.parametrize("entry", [b"\2", b"\1\x0a", b"\1\0"], ids=["count", "size", "count alone counts"])
def test_a_block_may_begin_with_its_size_by_which_it_is_skipped(block, entry):
    many, texts = {"type": "array", "items": "string"}, {"type": "map", "values": "string"}
    read = reader(record("R", skipped=many, payload=texts, text="string"), "payload.body", "text").read
    found = read(block + entry + b"\x08body\4hi\0\4ho")
    assert (found.text_0, found.text_1) == ("hi", "ho")


def test_bytes_behind_the_last_field_that_is_read_are_not_looked_at():
    schema = record("R", text="string", more="string")
    assert reader(schema).read(b"\4hi\xff\xff").text_0 == "hi"
    assert code_of(reader(record("R", text="string")).read, b"\4hi\0") == ErrorCode.SCHEMA_MISMATCH
    for rest in ({}, {"more": "string"}):
        read = reader(record("R", skipped="bytes", text="null", **rest)).read
        assert read(b"\2a").text_0 is None
        assert code_of(read, b"\x08a") == ErrorCode.SCHEMA_MISMATCH


BROKEN = {
    "default": {"name": "more", "type": "int", "default": "x"},
    "symbol": {"name": "more", "type": {"type": "enum", "name": "E", "symbols": ["not a symbol", 5]}},
    "type": {"name": "more", "type": {"foo": 1}},
    "reference": {"name": "more", "type": ["null", "Nowhere"]},
    "record in itself": {
        "name": "more",
        "type": {"type": "record", "name": "S", "fields": [{"name": "a", "type": "S"}, {}]},
    },
    "size": {"name": "more", "type": {"type": "fixed", "name": "F", "size": "x"}},
    "field": {"name": "more", "type": {"type": "record", "name": "F", "fields": [5]}},
}


@pytest.mark.parametrize("field", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("is_behind", [True, False])
def test_a_broken_field_that_is_not_read_costs_only_values_that_reach_it(field, is_behind):
    fields = [{"name": "text", "type": "string"}, field]
    compiled = reader({"type": "record", "name": "R", "fields": fields if is_behind else [fields[1], fields[0]]})
    assert "text" in compiled.names
    if is_behind:
        assert compiled.read(b"\4hi\0").text_0 == "hi"
    elif field in (BROKEN["default"], BROKEN["symbol"], BROKEN["reference"]):
        assert compiled.read(b"\0\4hi").text_0 == "hi"
    else:
        assert code_of(compiled.read, b"\0\4hi") == ErrorCode.UNUSABLE_SCHEMA


def test_names_are_looked_up_in_the_namespace_around_them():
    inner = {"type": "record", "name": "Inner", "fields": [{"name": "body", "type": "string"}]}
    other = inner | {"namespace": "other", "fields": [{"name": "body", "type": "int"}]}
    schema = {"type": "record", "name": "x.y.R", "fields": []}
    schema["fields"] = [
        {"name": "a", "type": other},
        {"name": "payload", "type": inner},
        {"name": "b", "type": "other.Inner"},
        {"name": "c", "type": "Inner"},
        {"name": "d", "type": "x.y.Inner"},
    ]
    read = reader(schema, "payload.body", "c.body", "d.body", id="b.body").read
    found = read(b"\2\2p\4\2c\2d")
    assert (found.text_0, found.id, found.text_1, found.text_2) == ("p", 2, "c", "d")


def test_a_key_of_a_map_that_is_the_whole_name_comes_before_a_path():
    inner = {"type": "map", "values": "string"}
    read = reader({"type": "map", "values": ["string", inner]}, "payload.body").read
    name, path = b"\x18payload.body\0\2x", b"\x0epayload\2\2\x08body\2y\0"
    assert [read(b"\4" + value + b"\0").text_0 for value in (name + path, path + name)] == ["x", "x"]
    assert read(b"\2" + path + b"\0").text_0 == "y"


class Made:
    """A random schema and values of it."""

    NAMES = "abcd"

    def __init__(self, rng):
        self.rng = rng
        self.named = {}
        self.count = 0

    def type(self, depth):
        """Return a schema, and a function that makes a value."""
        rng = self.rng
        flat = ("null", "boolean", "int", "long", "float", "double", "bytes", "string", "enum", "fixed", "again")
        kind = rng.choice(flat if depth == 0 else (*flat, "array", "map", "union", "record", "record"))
        values = {
            "null": lambda: None,
            "boolean": lambda: rng.random() < 0.5,
            "int": lambda: rng.randrange(-(2**31), 2**31),
            "long": lambda: rng.choice([rng.randrange(-64, 64), rng.randrange(-(2**63), 2**63)]),
            "float": lambda: rng.randrange(99) / 2,
            "double": rng.random,
            "bytes": lambda: rng.randbytes(rng.choice([0, 3, 200])),
            "string": lambda: "é" * rng.choice([0, 1, 100]),
        }
        if kind in values:
            return (kind if rng.random() < 0.8 else {"type": kind}), values[kind]
        if kind == "again" and self.named:
            return rng.choice(list(self.named.items()))
        if kind in ("array", "map"):
            inner, value = self.type(depth - 1)
            if kind == "array":
                return {"type": kind, "items": inner}, lambda: [value() for _ in range(rng.randrange(4))]
            return {"type": kind, "values": inner}, lambda: {
                key: value() for key in rng.sample(self.NAMES, rng.randrange(4))
            }
        if kind == "union":
            return self.union(depth)
        self.count += 1
        node = {"type": kind if kind != "again" else "enum", "name": f"N{self.count}", "namespace": "x"}
        if kind == "record":
            fields = [(name, *self.type(depth - 1)) for name in rng.sample(self.NAMES, rng.randrange(1, 5))]
            node["fields"] = [{"name": name, "type": inner} for name, inner, _ in fields]
            make = lambda: {name: value() for name, _, value in fields}  # noqa: E731
        elif kind == "fixed":
            node["size"] = rng.randrange(1, 9)
            make = lambda: rng.randbytes(node["size"])  # noqa: E731
        else:
            node["symbols"] = ["A", "B", "C"]
            make = lambda: rng.choice("ABC")  # noqa: E731
        self.named[f"x.{node['name']}"] = make
        return node, make

    def union(self, depth):
        branches = {}
        for _ in range(3):
            inner, value = self.type(depth - 1)
            if not isinstance(inner, list):
                branches[inner.get("name", inner["type"]) if isinstance(inner, dict) else inner] = (inner, value)
        branches = branches or {"null": ("null", lambda: None)}
        inner, values = zip(*branches.values(), strict=True)
        return list(inner), lambda: self.rng.choice(values)()  # noqa: PLW0108  another choice for each value


def at(value, path):
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def kept(value):
    """Return what the walk keeps of a content: of types that no document has, only the type."""
    kept_types = (str, bytes, type(None))
    return value if isinstance(value, kept_types) or type(value) is int else type(value)


@settings(max_examples=examples(300))
@given(st.integers(0, 2**48))
def test_the_walk_reads_what_a_whole_decoder_reads(seed):
    rng = random.Random(seed)
    made = Made(rng)
    fields = [(name, *made.type(3)) for name in made.NAMES]
    schema = record("Root") | {"fields": [{"name": name, "type": inner} for name, inner, _ in fields]}
    try:
        parsed = fastavro.parse_schema(json.loads(json.dumps(schema)))
        stream = BytesIO()
        fastavro.schemaless_writer(stream, parsed, {name: value() for name, _, value in fields})
    except (ValueError, fastavro.schema.SchemaParseException):  # two branches of one kind
        return
    value = stream.getvalue()
    whole = fastavro.schemaless_reader(BytesIO(value), parsed, None)
    paths = {tuple(rng.choices(made.NAMES, k=rng.randrange(1, 4))): None for _ in range(5)}
    leaves = [path for path in paths if not any(path[:end] in paths for end in range(1, len(path)))]
    walk = Walk(leaves)
    walk.add_types(schema)
    contents = [(None, None)] * len(leaves)
    try:
        end = as_step(walk.step_of(schema))(value, 0, 0, contents)
    except DecodeError:
        assert "items without bytes" in traceback.format_exc()
        return
    wanted = WantedFields()
    converted = [None if content is None else avro._converted(content, type_, wanted) for content, type_ in contents]
    assert [kept(content) for content in converted] == [kept(at(whole, path)) for path in leaves]
    assert end == len(value)
    for cut in {0, len(value) // 2, len(value) - 1} - {-1}:
        try:
            end = as_step(walk.step_of(schema))(value[:cut], 0, 0, [None] * len(leaves))
        except (IndexError, ValueError, DecodeError):
            continue
        assert end >= cut
