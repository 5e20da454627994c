"""Avro, framed for a schema registry. Needs the extra ``registry``.

``avro_walk`` reads the leaves of a value: the contents of document fields. Logical types become texts, times as in ISO
8601. A content that does not fit its logical type stays as it is, such as a time beyond the year 9999, for which
fastavro 1.13.1 raises. fastavro writes values.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from io import BytesIO
from itertools import chain
from typing import Any, Final
from uuid import UUID

import fastavro
from fastavro.read import LOGICAL_READERS

from streamdedup.errors import DecodeError
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.avro_walk import Step, Type, Walk, as_step, unusable
from streamdedup.wire.formats.fields import WantedFields
from streamdedup.wire.formats.registry import CompiledSchema, Write, nested
from streamdedup.wire.schema_registry import RegisteredSchema, parsed_json

#: Largest number of bytes of a decimal that becomes part of a document: 308 digits. The time in which fastavro converts
#: a decimal grows with the square of its length (1 MB: 2 minutes).
MAX_DECIMAL_BYTES: Final = 128

_ABSENT: Final = (None, None)  # content and type of a leaf that a value does not have
# fastavro 1.13.1 lacks these logical types of Avro 1.12.
_READERS: Final[Mapping[str, Callable[..., Any]]] = {
    **LOGICAL_READERS,
    "fixed-uuid": lambda content, *_: UUID(bytes=content),
    "long-timestamp-nanos": lambda content, *more: LOGICAL_READERS["long-timestamp-micros"](content // 1000, *more),
    "long-local-timestamp-nanos": lambda content, *more: LOGICAL_READERS["long-local-timestamp-micros"](
        content // 1000, *more
    ),
}

# Name of a record around the value, which adds no bytes, and of its only field. The writer of fastavro finds referenced
# schemas in records alone, and a value may be a union. Without a namespace, which names inside would inherit.
_WHOLE = "streamdedup_value"


def compile_schema(registered: RegisteredSchema, wanted_fields: WantedFields) -> CompiledSchema:
    """Return a reader for a schema's values; raise ``DecodeError`` for a schema that cannot be read safely."""
    names, step, leaf_types = _leaves(registered, wanted_fields)

    def fields(value: bytes) -> Any:
        leaves: list[Any] = [_ABSENT] * len(names)
        try:
            end = step(value, 0, 0, leaves)  # from position 0 on, at nesting level 0
            contents = [
                None if content is None else _converted(content, type_, wanted_fields) for content, type_ in leaves
            ]
        except (LookupError, ValueError, TypeError, RecursionError) as error:
            raise _damaged(type(error).__name__) from None
        if end != len(value):
            raise _damaged("bytes are left over, or missing")
        pairs = zip(names, contents, strict=True)
        return wanted_fields.from_mapping({name: content for name, content in pairs if content is not None})

    return CompiledSchema(fields, {names[number] for number in leaf_types})


def _leaves(registered: RegisteredSchema, wanted_fields: WantedFields) -> tuple[list[str], Step, dict[int, list[Any]]]:
    """Return the field name of each leaf, the step for a value, and ``Walk.leaf_types``."""
    # A name with dots has two paths, thus two leaves, and the first path with a content counts. The paths are reversed
    # because ``fields`` builds a dict, in which the last content of a name wins.
    leaves = [(path, name) for name, paths in wanted_fields.paths.items() for path in reversed(paths)]
    walk = Walk([path for path, _ in leaves])
    try:
        *references, root = (parsed_json(text) for text in (*registered.references.values(), registered.text))
        for node in (*references, root):
            walk.add_types(node)
        walk.type_of(root)  # raises for a root that is no type
    except (ValueError, TypeError, KeyError) as error:
        raise unusable(f"{type(error).__name__}: {error}") from None
    step = as_step(walk.step_of(root))  # fills ``walk.leaf_types``
    return [name for _, name in leaves], step, walk.leaf_types


def _damaged(reason: str) -> DecodeError:
    return DecodeError(ErrorCode.SCHEMA_MISMATCH, f"the bytes do not fit the schema: {reason}")


def _converted(content: Any, type_: Type, wanted_fields: WantedFields) -> Any:
    # A longer text stays bytes, which ``from_mapping`` refuses as too large.
    if type_.kind == "string" and len(content) <= wanted_fields.max_text_bytes:
        content = content.decode()  # no return: a string may have a logical type
    if type_.kind == "enum":
        symbol = type_.node["symbols"][content]
        if not isinstance(symbol, str) or "\ufffd" in symbol:
            # U+FFFD may be any half of a surrogate pair, so two different symbols, such as ids, could become equal.
            raise unusable("a symbol is no text, or contains half of a surrogate pair or U+FFFD")
        return symbol
    if "logicalType" not in type_.node:
        return content
    name = f"{type_.kind}-{type_.node['logicalType']}"
    convert = _READERS.get(name)
    if convert is None or (isinstance(content, bytes) and len(content) > MAX_DECIMAL_BYTES):
        return content  # bytes above the limit are a decimal, which ``from_mapping`` refuses as a wrong type
    try:
        converted = convert(content, type_.node, None)  # no reader schema
    except (ValueError, TypeError, KeyError, ArithmeticError):
        return content
    if isinstance(converted, date | time):  # a datetime is a date
        return converted.isoformat().replace("+00:00", "Z")
    return str(converted) if isinstance(converted, UUID | Decimal) else content


def compile_writer(registered: RegisteredSchema, wanted_fields: WantedFields) -> Write:
    """Return a writer; where the schema has a time of publication, the field may be a text as in ISO 8601."""
    parsed = _parsed(registered)
    time_name = wanted_fields.names.get("published_at", "")
    names, _, leaf_types = _leaves(registered, wanted_fields)
    time_types = chain.from_iterable(types for number, types in leaf_types.items() if names[number] == time_name)
    has_time = any(str(node.get("logicalType")).startswith("timestamp-") for node in time_types)

    def write(fields: Mapping[str, Any]) -> bytes:
        stream, time_text = BytesIO(), fields.get(time_name)
        if has_time and isinstance(time_text, str):
            with suppress(ValueError):  # a text that is no time does not fit the schema
                time_at = datetime.fromisoformat(time_text)
                # For fastavro a time without a zone is one of the zone of this machine.
                fields = {**fields, time_name: time_at if time_at.tzinfo else time_at.replace(tzinfo=UTC)}
        whole = nested(fields)
        try:
            fastavro.schemaless_writer(stream, parsed, {_WHOLE: whole})
        except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
            reason = _misfit(whole, parsed) or type(error).__name__
            raise DecodeError(ErrorCode.SCHEMA_MISMATCH, f"it does not fit the schema: {reason}") from None
        return stream.getvalue()

    return write


def _misfit(fields: Mapping[str, Any], parsed: Any) -> str:
    """Return the names of the fields that do not fit; errors of fastavro quote the values."""
    try:
        fastavro.validate({_WHOLE: fields}, parsed)
    except fastavro.validation.ValidationError as error:
        names = (str(misfit.field).removeprefix(f"{_WHOLE}.{_WHOLE}.") for misfit in error.errors)
        return ", ".join(dict.fromkeys(names))
    except ValueError:  # fastavro 1.13.1 converts the text of a date before it validates it: no name is known
        pass
    return ""


def _parsed(registered: RegisteredSchema) -> Any:
    """Return the schema for the writer of fastavro: a record ``_WHOLE`` around the value."""
    named: dict[str, Any] = {}
    try:
        for text in registered.references.values():
            fastavro.parse_schema(parsed_json(text), named)
        field = {"name": _WHOLE, "type": parsed_json(registered.text)}
        return fastavro.parse_schema({"type": "record", "name": _WHOLE, "fields": [field]}, named)
    except (fastavro.schema.SchemaParseException, ValueError, TypeError, KeyError, ArithmeticError) as error:
        raise unusable(f"{type(error).__name__}: {error}") from None
