"""JSON with a schema in a registry: values are read as plain JSON, and not validated."""

import msgspec

from streamdedup.errors import DecodeError
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.fields import WantedFields
from streamdedup.wire.formats.json import JsonFormat
from streamdedup.wire.formats.registry import CompiledSchema
from streamdedup.wire.schema_registry import RegisteredSchema, parsed_json


def compile_schema(registered: RegisteredSchema, wanted_fields: WantedFields) -> CompiledSchema:
    try:
        msgspec.convert(parsed_json(registered.text), dict | bool)
    except ValueError:
        raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, "it is no JSON Schema") from None
    # Almost every JSON Schema allows further fields, so each wanted field may be there.
    return CompiledSchema(JsonFormat(wanted_fields).fields, wanted_fields.paths.keys())
