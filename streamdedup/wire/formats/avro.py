"""Avro, framed for a schema registry. Needs the extra ``registry``.

``avro_walk`` reads the leaves of a value. Logical types become texts: times as in ISO 8601.
A content that does not fit its logical type stays as it is, such as a time beyond the year 9999, for which fastavro
1.13.1 raises. fastavro converts a decimal in a time that grows with the square of its length (1 MB: 2 minutes), so
``MAX_DECIMAL_BYTES`` bounds decimals.
"""

from collections.abc import Callable, Mapping
from datetime import date, time
from decimal import Decimal
from typing import Any, Final
from uuid import UUID

from fastavro.read import LOGICAL_READERS

from streamdedup.errors import DecodeError
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.avro_walk import Step, Type, Walk, as_step, unusable
from streamdedup.wire.formats.fields import WantedFields
from streamdedup.wire.formats.registry import CompiledSchema
from streamdedup.wire.schema_registry import RegisteredSchema, parsed_json

#: Largest number of bytes of a decimal that becomes part of a document: 308 digits.
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


def compile_schema(registered: RegisteredSchema, wanted_fields: WantedFields) -> CompiledSchema:
    """Return a reader for a schema's values; raise ``DecodeError`` for a schema that cannot be read safely."""
    names, step, definitions = _leaves(registered, wanted_fields)

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

    return CompiledSchema(fields, {names[number] for number in definitions})


def _leaves(
    registered: RegisteredSchema, wanted_fields: WantedFields
) -> tuple[list[str], Step, Mapping[int, list[Any]]]:
    """Return the field name of each leaf, the step for a value, and the types of the leaves that the schema has."""
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
    step = as_step(walk.step_of(root))  # fills ``walk.definitions``
    return [name for _, name in leaves], step, walk.definitions


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
