"""JSON with a schema in a registry: values are read as plain JSON, and not validated.

The JSON Schema only tells which fields values may have: ``RegistryFormat`` refuses one without the needed fields.
"""

from typing import Any

import msgspec

from streamdedup.errors import DecodeError
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.fields import Path, WantedFields
from streamdedup.wire.formats.json import JsonFormat
from streamdedup.wire.formats.registry import CompiledSchema, Write, nested
from streamdedup.wire.schema_registry import RegisteredSchema, parsed_json

#: Keywords by which a schema may have names that are not in ``properties``, although ``additionalProperties`` is false.
_OPEN = frozenset({"patternProperties", "$ref"})


def compile_writer(_registered: RegisteredSchema, _wanted: WantedFields) -> Write:
    return lambda fields: msgspec.json.encode(nested(fields))


def compile_schema(registered: RegisteredSchema, wanted_fields: WantedFields) -> CompiledSchema:
    try:
        declared = msgspec.convert(parsed_json(registered.text), dict | bool)
    except ValueError:
        raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, "it is no JSON Schema") from None
    names = [name for name, paths in wanted_fields.paths.items() if any(_may_have(declared, path) for path in paths)]
    return CompiledSchema(JsonFormat(wanted_fields).fields, names)


def _may_have(declared: Any, path: Path) -> bool:
    """Return whether a JSON Schema allows a field at a path; only ``additionalProperties: false`` excludes a name."""
    for step in path:
        if not _is_closed(declared):
            return True
        properties = declared.get("properties", {})
        if not isinstance(properties, dict):  # an invalid schema
            return True
        if step not in properties:
            return False
        declared = properties[step]
    return True


def _is_closed(declared: Any) -> bool:
    return isinstance(declared, dict) and declared.get("additionalProperties") is False and _OPEN.isdisjoint(declared)
