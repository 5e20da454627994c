"""Avro, framed for a schema registry: a ``SchemaCompiler`` of ``registry``. Needs the extra ``registry``.

``payload.body`` in the settings names the field ``body`` of the record or map in the field ``payload``. Logical types
become texts: times as in ISO 8601, UUIDs and decimals as usual.

fastavro 1.13.1 ends the process at values that are nested deeper than the stack of C, which only a deep or recursive
schema allows. Its reader in Python reads values of such schemas, and ``MAX_DEPTH`` bounds them.

fastavro 1.13.1 converts the logical types of all fields. The conversion of a decimal takes time that grows with the
square of its length (1 MB: 2 minutes), and a time out of the range of Python fails. So logical types are converted
here, and only those of fields that become part of a document; ``MAX_DECIMAL_BYTES`` bounds decimals.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from io import BytesIO
from itertools import chain
from typing import Any, Final, NamedTuple
from uuid import UUID

import fastavro
import msgspec
from fastavro import _read_py
from fastavro.read import LOGICAL_READERS

from streamdedup.errors import DecodeError
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.fields import Schema
from streamdedup.wire.formats.registry import CompiledSchema, RegisteredSchema, Write, nested

#: Limit of nesting levels in a value whose schema allows more: far below the limit of Python's stack, so that the
#: outcome is the same at every call.
MAX_DEPTH: Final = 50

#: Largest number of bytes of a decimal that becomes part of a document: 308 digits.
MAX_DECIMAL_BYTES: Final = 128

# Logical type that makes fastavro return a value as ``_Unconverted``, and the attribute of the schema that keeps the
# original logical type.
_DEFERRED, _LOGICAL = "streamdedup", "streamdedup.logicalType"

# Name of a record and of its only field, which is the whole value; the bytes stay the same. fastavro finds referenced
# schemas in records alone, and a value may be a union. Without a namespace, because names inside would inherit it.
_WHOLE = "streamdedup_value"


class _Unconverted(NamedTuple):
    """A value with a logical type that is not converted yet."""

    value: Any
    schema: Any

    def converted(self) -> Any:
        if isinstance(self.value, bytes) and len(self.value) > MAX_DECIMAL_BYTES:
            raise _damaged(f"a decimal has more than {MAX_DECIMAL_BYTES} bytes")
        convert = LOGICAL_READERS.get(f"{self.schema['type']}-{self.schema[_LOGICAL]}")
        try:
            return self.value if convert is None else convert(self.value, self.schema, None)  # no reader schema
        except (ValueError, TypeError, KeyError, ArithmeticError) as error:
            raise _damaged(type(error).__name__) from None


# The readers of fastavro are global; `_DEFERRED` is a name that no registered schema uses.
LOGICAL_READERS |= {
    f"{kind}-{_DEFERRED}": lambda value, schema, _reader_schema: _Unconverted(value, schema)
    for kind in ("int", "long", "bytes", "fixed", "string")
}


def compile_schema(registered: RegisteredSchema, schema: Schema) -> CompiledSchema:
    """Return a reader for the values of an Avro schema.

    Raises:
        DecodeError: It is no Avro schema, or one whose values cannot be read safely.
    """
    parsed, named = _parsed(registered, _without_logical_types)
    try:
        depth = _depth(_WHOLE, named, {})
    except (ValueError, RecursionError) as error:
        raise _unusable(error) from None
    steps = {name: (_WHOLE, *name.split(".")) for name in schema.names.values()}
    nodes = {name: list(_nodes(_WHOLE, path, named)) for name, path in steps.items()}
    for node in chain.from_iterable(nodes.values()):
        if isinstance(node, dict) and _LOGICAL in node:
            node["logicalType"] = _DEFERRED  # logical types of other fields keep the name that fastavro ignores
    paths = {name: path for name, path in steps.items() if nodes[name]}  # fields that the schema has
    read = fastavro.schemaless_reader if depth <= MAX_DEPTH else _bounded_reader

    def fields(value: bytes) -> Any:
        record = _whole_value(read, value, parsed)
        return schema.from_mapping({name: _value_at(record, path) for name, path in paths.items()})

    return CompiledSchema(fields, paths.keys())


def compile_writer(registered: RegisteredSchema, schema: Schema) -> Write:
    """Return a writer; the time of publication may be a text as in ISO 8601 where the schema has a time."""
    parsed, named = _parsed(registered)
    time_name = schema.names["published_at"]
    nodes = [node for node in _nodes(_WHOLE, (_WHOLE, *time_name.split(".")), named) if isinstance(node, dict)]
    has_time = any(str(node.get("logicalType")).startswith("timestamp-") for node in nodes)

    def write(fields: Mapping[str, Any]) -> bytes:
        stream, time_text = BytesIO(), fields.get(time_name)
        try:
            if has_time and isinstance(time_text, str):
                fields = {**fields, time_name: datetime.fromisoformat(time_text)}
            fastavro.schemaless_writer(stream, parsed, {_WHOLE: nested(fields)})
        except (ValueError, TypeError, KeyError, ArithmeticError) as error:
            reason = _misfit(nested(fields), parsed) or type(error).__name__
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
    return ""


def _parsed(
    registered: RegisteredSchema, adapted: Callable[[Any], Any] = lambda node: node
) -> tuple[Any, Mapping[str, Any]]:
    """Return the schema of whole values, and all named schemas."""
    named: dict[str, Any] = {}
    try:
        for text in registered.references.values():
            fastavro.parse_schema(adapted(msgspec.json.decode(text)), named)
        field = {"name": _WHOLE, "type": adapted(msgspec.json.decode(registered.text))}
        return fastavro.parse_schema({"type": "record", "name": _WHOLE, "fields": [field]}, named), named
    except (fastavro.schema.SchemaParseException, ValueError, TypeError, KeyError, RecursionError) as error:
        raise _unusable(error) from None


def _without_logical_types(node: Any) -> Any:
    """Return a schema whose logical types have another name, which fastavro ignores."""
    if isinstance(node, list):
        return [_without_logical_types(inner) for inner in node]
    if not isinstance(node, dict):
        return node
    return {_LOGICAL if key == "logicalType" else key: _without_logical_types(inner) for key, inner in node.items()}


def _unusable(error: Exception) -> DecodeError:
    return DecodeError(ErrorCode.UNUSABLE_SCHEMA, f"it is no Avro schema: {type(error).__name__}")


def _whole_value(read: Callable[..., Any], value: bytes, parsed: Any) -> Any:
    stream = BytesIO(value)
    try:
        record = read(stream, parsed, None)
    except (MemoryError, DecodeError):
        raise
    except Exception as error:  # noqa: BLE001  fastavro has no error class for damaged values
        raise _damaged(type(error).__name__) from None
    if stream.tell() < len(value):
        raise _damaged(f"{len(value) - stream.tell():,} bytes are left over")
    return record


def _damaged(reason: str) -> DecodeError:
    return DecodeError(ErrorCode.SCHEMA_MISMATCH, f"the bytes do not fit the schema: {reason}")


def _bounded_reader(stream: BytesIO, parsed: Any, reader_schema: None) -> Any:
    """Read with the reader in Python, and refuse a value nested deeper than ``MAX_DEPTH``."""
    try:
        record = _read_py.schemaless_reader(stream, parsed, reader_schema)
    except RecursionError:
        record = None
    level, depth = [record], 0
    while level and depth <= MAX_DEPTH:
        level = [inner for outer in level for inner in _inside(outer)]
        depth += 1
    if record is None or level:
        raise DecodeError(ErrorCode.TOO_DEEP, f"the value is nested deeper than {MAX_DEPTH} levels")
    return record


def _inside(value: Any) -> Sequence[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else ()


def _value_at(value: Any, path: Sequence[str]) -> Any:
    for step in path:
        value = value.get(step) if isinstance(value, dict) else None
    if isinstance(value, _Unconverted):
        value = value.converted()
    if isinstance(value, datetime | date | time):
        return value.isoformat().replace("+00:00", "Z")
    return str(value) if isinstance(value, UUID | Decimal) else value


def _nodes(node: Any, path: Sequence[str], named: Mapping[str, Any]) -> Iterator[Any]:
    """Yield the schemas at a path, of all branches of unions."""
    node = named.get(node, node) if isinstance(node, str) else node
    if isinstance(node, list):
        for branch in node:
            yield from _nodes(branch, path, named)
    elif not path:
        yield node
    elif isinstance(node, dict):
        fields = {field["name"]: field["type"] for field in node.get("fields", ())}
        inner = {path[0]: node["values"]} if node["type"] == "map" else fields  # a map may have each key
        if path[0] in inner:
            yield from _nodes(inner[path[0]], path[1:], named)


def _depth(node: Any, named: Mapping[str, Any], depths: dict[str, float]) -> float:
    """Return the most nesting levels of a value; infinite if a schema contains itself. ``depths``: results by name.

    Raises:
        ValueError: An array has items of no bytes; a short value could then have any number of them.
    """
    name = node if isinstance(node, str) else node.get("name", "") if isinstance(node, dict) else ""
    if name in named:
        if name not in depths:
            depths[name] = math.inf  # found again inside, the schema contains itself
            depths[name] = _inner_depth(named[name], named, depths)
        return depths[name]
    return _inner_depth(node, named, depths)


def _inner_depth(node: Any, named: Mapping[str, Any], depths: dict[str, float]) -> float:
    if isinstance(node, list):
        inner = node
    elif not isinstance(node, dict):
        return 0
    elif node["type"] == "array" and _is_empty(node["items"], named):
        raise ValueError("items without bytes")
    else:
        inner = [field["type"] for field in node.get("fields", ())]
        inner += [node[key] for key in ("items", "values") if key in node]
    return 1 + max((_depth(child, named, depths) for child in inner), default=0)


def _is_empty(node: Any, named: Mapping[str, Any]) -> bool:
    """Tell whether all values of a schema have no bytes."""
    node = named.get(node, node) if isinstance(node, str) else node
    if not isinstance(node, dict):
        return bool(node == "null")
    if node["type"] == "record":
        return all(_is_empty(field["type"], named) for field in node["fields"])
    return bool(node["type"] == "null" or node.get("size") == 0)
