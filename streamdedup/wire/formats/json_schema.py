"""JSON, framed for a schema registry; values are read as JSON, and not compared with their schema."""

import msgspec

from streamdedup.errors import DecodeError
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.fields import Schema
from streamdedup.wire.formats.json import JsonFormat
from streamdedup.wire.formats.registry import CompiledSchema, RegisteredSchema, Write


def compile_writer(_registered: RegisteredSchema, _schema: Schema) -> Write:
    """Return a writer of JSON."""
    return msgspec.json.encode


def compile_schema(registered: RegisteredSchema, schema: Schema) -> CompiledSchema:
    """Return a reader for the values of a JSON Schema; only one that admits no other properties tells what they have.

    Raises:
        DecodeError: It is no JSON Schema.
    """
    try:
        declared = msgspec.json.decode(registered.text, type=dict | bool)
    except msgspec.DecodeError:
        raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, "it is no JSON Schema") from None
    is_closed = isinstance(declared, dict) and declared.get("additionalProperties") is False
    names = declared.get("properties", {}) if is_closed else schema.names.values()
    return CompiledSchema(JsonFormat(schema).fields, names)
