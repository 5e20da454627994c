"""Avro and Protobuf values by seed, with schemas in a registry: whole ones, damaged ones, and ``bombs``."""

import json
import random
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import Any

import fastavro
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from tests.bombs import BOMBS, KINDS
from tests.fuzz.messages import WORDS, Fuzzed

#: The profiles; all values are in both topics, so that each format also gets the other's.
PROFILES: dict[str, dict[str, Any]] = {
    "avro": {"format": "avro", "text_fields": ["payload.body", "title", "text"]},
    "protobuf": {"format": "protobuf", "text_fields": ["payload.body", "title", "text"]},
}
#: What is done to a value that must then be processed.
WHOLE = "whole"
#: Share of bombs, and their bytes: some of them in one batch of Kafka.
_BOMBS, _BOMB_BYTES = 0.01, 100_000
_AVRO = {
    "type": "record",
    "name": "Article",
    "fields": [
        {"name": "id", "type": ["null", "string", "long"], "default": None},
        {"name": "title", "type": ["null", "string"]},
        {"name": "published_at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
        {
            "name": "payload",
            "type": {
                "type": "record",
                "name": "Body",
                "fields": [
                    {"name": "body", "type": "string"},
                    {"name": "replies", "type": {"type": "array", "items": "Body"}},
                ],
            },
        },
    ],
}
_PROTOBUF = """
syntax = "proto3";
message Body { string body = 1; repeated Body replies = 2; }
message Article {
  string id = 1;
  optional string title = 2;
  int64 published_at = 3;
  repeated string tags = 4;
  Body payload = 5;
}
"""


def register(url: str) -> dict[str, int]:
    """Register the schemas, and one without text fields; return the ids."""
    schemas = {
        "avro": (json.dumps(_AVRO), "AVRO"),
        "protobuf": (_PROTOBUF, "PROTOBUF"),
        "useless": ('"string"', "AVRO"),
    }
    bombs = {name: bomb for name, bomb in BOMBS.items() if bomb.format in PROFILES}
    schemas |= {name: (bomb.schema, KINDS[bomb.format]) for name, bomb in bombs.items()}
    with SchemaRegistryClient({"url": url}) as client:
        return {
            name: client.register_schema(name.replace(" ", "-"), Schema(text, kind))
            for name, (text, kind) in schemas.items()
        }


def fuzzed_values(seed: str, count: int, now_ms: int, ids: dict[str, int]) -> Iterator[Fuzzed]:
    """Make so many messages of a seed; ``ids``: of each schema, as ``register`` returns them."""
    rng = random.Random(seed)
    writers = {"avro": _avro_writer(), "protobuf": _protobuf_writer()}
    damages: list[Callable[[random.Random, bytes], bytes]] = [_flip, _cut, _extend, _splice, _repeat, _noise, _other_id]
    bombs = sorted(BOMBS.keys() & ids.keys())
    for _ in range(count):
        if rng.random() < _BOMBS:
            name = rng.choice(bombs)
            value = bytes(1) + ids[name].to_bytes(4, "big") + BOMBS[name].value(_BOMB_BYTES)
            yield Fuzzed(BOMBS[name].format, b"bomb", value, (), now_ms, name)
            continue
        topic = rng.choice(list(PROFILES))
        value = bytes(1) + ids[topic].to_bytes(4, "big") + writers[topic](rng)
        made_by, headers = WHOLE, ()
        if rng.random() < 0.8:
            damage = rng.choice(damages)
            value, made_by = damage(rng, value), damage.__name__
        elif rng.random() < 0.1:
            value, made_by = bytes(1) + rng.choice(list(ids.values())).to_bytes(4, "big") + value[5:], "other schema"
        if rng.random() < 0.2:
            headers, value = (("__value_schema_id", value[:5]),), value[5:]
        key = f"key-{rng.randrange(500)}".encode()
        yield Fuzzed(topic, key, None if rng.random() < 0.02 else value, headers, now_ms, made_by)


def _document(rng: random.Random) -> dict[str, Any]:
    text = " ".join(rng.choices(WORDS, k=rng.randrange(1, 60)))
    identity = rng.choice([None, f"id-{rng.randrange(2_000)}", rng.randrange(1, 10**6)])
    replies = [{"body": "r", "replies": []} for _ in range(rng.randrange(3))]
    return {
        "id": identity,
        "title": rng.choice([None, "a title"]),
        "published_at": rng.randrange(1, 2**41),
        "tags": rng.choices(WORDS, k=rng.randrange(4)),
        "payload": {"body": text, "replies": replies},
    }


def _avro_writer() -> Callable[[random.Random], bytes]:
    parsed = fastavro.parse_schema(_AVRO)

    def write(rng: random.Random) -> bytes:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, parsed, _document(rng))
        return stream.getvalue()

    return write


def _protobuf_writer() -> Callable[[random.Random], bytes]:
    kinds = {"id": 9, "title": 9, "published_at": 3, "tags": 9, "payload": 11}
    file = FileDescriptorProto(name="fuzz.proto", syntax="proto3")
    body, article = file.message_type.add(name="Body"), file.message_type.add(name="Article")
    body.field.add(name="body", number=1, type=FieldDescriptorProto.TYPE_STRING, label=1)
    body.field.add(name="replies", number=2, type=FieldDescriptorProto.TYPE_MESSAGE, type_name=".Body", label=3)
    for number, (name, kind) in enumerate(kinds.items(), 1):
        inner = {"type_name": ".Body"} if name == "payload" else {}
        article.field.add(name=name, number=number, type=kind, label=3 if name == "tags" else 1, **inner)
    pool = DescriptorPool()
    pool.Add(file)
    made = GetMessageClass(pool.FindMessageTypeByName("Article"))

    def write(rng: random.Random) -> bytes:
        fields = {name: value for name, value in _document(rng).items() if value is not None}
        if "id" in fields:
            fields["id"] = str(fields["id"])
        return b"\2\2" + made(**fields).SerializeToString()

    return write


def _flip(rng: random.Random, value: bytes) -> bytes:
    damaged = bytearray(value)
    for _ in range(rng.randrange(1, 4)):
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)
    return bytes(damaged)


def _cut(rng: random.Random, value: bytes) -> bytes:
    return value[: rng.randrange(len(value))]


def _extend(rng: random.Random, value: bytes) -> bytes:
    return value + rng.randbytes(rng.randrange(1, 20))


def _splice(rng: random.Random, value: bytes) -> bytes:
    a, b = sorted(rng.choices(range(5, len(value)), k=2))
    return value[:a] + value[b:]


def _repeat(rng: random.Random, value: bytes) -> bytes:
    a, b = sorted(rng.choices(range(5, len(value)), k=2))
    return value[:b] + value[a:b] * rng.choice([1, 2, 100]) + value[b:]


def _noise(rng: random.Random, value: bytes) -> bytes:
    return value[:5] + rng.choice([rng.randbytes(40), b"\xff" * 3_000, b"\2" * 3_000, bytes(3_000)])


def _other_id(rng: random.Random, value: bytes) -> bytes:
    return rng.choice([bytes([rng.randrange(3)]) + rng.randbytes(4), b"\1" + rng.randbytes(16)]) + value[5:]
