"""JSON, framed for a schema registry: a ``SchemaCompiler`` of ``registry``. Values are not compared with their schema.

``payload.body`` in the settings names the property ``body`` of the object in the property ``payload``.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from streamdedup.errors import DecodeError
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.fields import Schema
from streamdedup.wire.formats.json import JsonFormat
from streamdedup.wire.formats.registry import CompiledSchema, RegisteredSchema, Write, nested

#: Keywords beside which ``additionalProperties: false`` excludes no name: they add properties, or replace the object.
_OPEN = frozenset({"patternProperties", "$ref"})


def compile_writer(_registered: RegisteredSchema, _schema: Schema) -> Write:
    """Return a writer of JSON."""
    return lambda fields: msgspec.json.encode(nested(fields))


def compile_schema(registered: RegisteredSchema, schema: Schema) -> CompiledSchema:
    """Return a reader for the values of a JSON Schema, and the names of the fields that the values may have.

    Only a schema without additional properties excludes a field.

    Raises:
        DecodeError: It is no JSON Schema.
    """
    try:
        declared = msgspec.json.decode(registered.text, type=dict | bool)
    except msgspec.DecodeError:
        raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, "it is no JSON Schema") from None
    paths = {name: name.split(".") for name in schema.names.values()}
    names = [name for name, path in paths.items() if _may_have(declared, path)]
    is_flat = all(len(path) == 1 for path in paths.values())
    return CompiledSchema(JsonFormat(schema, None if is_flat else _nested_decode(schema, paths)).fields, names)


def _nested_decode(schema: Schema, paths: Mapping[str, Sequence[str]]) -> Callable[[bytes], Any]:
    """Return a decoder of fields in nested objects; a path through a missing value or another type leads to None."""
    attributes = {  # by top-level property, whose name may be no name of an attribute
        root: f"root_{number}" for number, root in enumerate(dict.fromkeys(path[0] for path in paths.values()))
    }
    roots = [(attribute, Any, None) for attribute in attributes.values()]
    renamed = {attribute: root for root, attribute in attributes.items()}
    objects = msgspec.json.Decoder(msgspec.defstruct("Roots", roots, rename=renamed))
    inner = {name: (attributes[root], steps) for name, (root, *steps) in paths.items()}

    def decode(value: bytes) -> Any:
        whole = objects.decode(value)  # of the top-level properties, only the roots: msgspec skips the other ones
        fields = {name: _value_at(getattr(whole, attribute), steps) for name, (attribute, steps) in inner.items()}
        return schema.from_mapping(fields)

    return decode


def _value_at(value: Any, steps: Sequence[str]) -> Any:
    for step in steps:
        value = value.get(step) if isinstance(value, dict) else None
    return value


def _may_have(declared: Any, path: Sequence[str]) -> bool:
    """Tell whether objects of a schema may have a property."""
    for step in path:
        is_closed = isinstance(declared, dict) and declared.get("additionalProperties") is False
        properties = declared.get("properties", {}) if is_closed and _OPEN.isdisjoint(declared) else None
        if not isinstance(properties, dict):  # any name may occur, or the schema is invalid
            return True
        if step not in properties:
            return False
        declared = properties[step]
    return True
