"""Kafka to Kafka in each value format: one daemon over the same documents as JSON, Avro and Protobuf, in turns.

The schemas are in a private registry. `benchmarks.world` defines a round; the best round of each format counts.
"""

import json
from collections.abc import Mapping
from io import BytesIO
from typing import Any

import fastavro
import msgspec
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

from benchmarks import datasets, report
from benchmarks.world import Encode, Entry, Make, World, in_turns, rates, setting_of
from tests.servers import make_registry

FIELDS = ("id", "text")
AVRO = {"type": "record", "name": "Article", "fields": [{"name": name, "type": "string"} for name in FIELDS]}
PROTOBUF = 'syntax = "proto3"; message Article { string id = 1; string text = 2; }'


def main(*, quick: bool) -> report.Report:
    count, rounds_count = (10_000, 2) if quick else (30_000, 3)
    texts = datasets.load(count)
    with World.started() as world, make_registry() as registry:
        with SchemaRegistryClient({"url": registry.url}) as client:
            encoders = {
                "json": msgspec.json.encode,
                "avro": avro(client.register_schema("avro", Schema(json.dumps(AVRO), "AVRO"))),
                "protobuf": protobuf(client.register_schema("protobuf", Schema(PROTOBUF, "PROTOBUF"))),
            }
        for name, encode in encoders.items():
            world.fill(name, texts.documents, encode)
        entries = [Entry(name, name, daemon(world, name, registry.url)) for name in encoders]
        rounds = in_turns(world, "json", entries, rounds_count)
        setting = setting_of(world, f"{texts.name}: {len(texts.documents):,}", rounds)
    return report.Report(setting, {"rates": rates(rounds, "format", "times JSON")})


def daemon(world: World, name: str, url: str) -> Make:
    return lambda job: [world.daemon(job, profile={"format": name}, registry=url)]


def avro(schema_id: int) -> Encode:
    parsed, frame = fastavro.parse_schema(AVRO), bytes(1) + schema_id.to_bytes(4, "big")

    def encode(fields: Mapping[str, Any]) -> bytes:
        stream = BytesIO()
        fastavro.schemaless_writer(stream, parsed, fields)
        return frame + stream.getvalue()

    return encode


def protobuf(schema_id: int) -> Encode:
    """Return an encoder of framed Protobuf, for the first message of the file."""
    file = FileDescriptorProto(name="article.proto", syntax="proto3")
    message = file.message_type.add(name="Article")
    for number, name in enumerate(FIELDS, 1):
        message.field.add(name=name, number=number, type=FieldDescriptorProto.TYPE_STRING, label=1)
    pool = DescriptorPool()
    pool.Add(file)
    article = GetMessageClass(pool.FindMessageTypeByName("Article"))
    frame = bytes(1) + schema_id.to_bytes(4, "big") + bytes(1)
    return lambda fields: frame + article(**fields).SerializeToString()
