"""Reads the fields at some paths of a Protobuf message and steps over all others.

For example, field 2 is a message, whose field 1 is a text. The tags of these fields (number * 8 + wire type 2) are 18
and 10, the tree is ``{18: {10: None}}``, and the contents are ``{18: {10: b"text"}}``.

As in decoders, the last occurrence of a field counts, and the occurrences of a message are merged. Unlike decoders, the
walk also keeps earlier members of a oneof. The decoder of protobuf 7.36.2 is not used: it stores also replaced
occurrences and unknown fields, and so needs up to twelve times as much memory as the message has bytes.
"""

import struct
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor import FieldDescriptor as Field
from google.protobuf.timestamp_pb2 import Timestamp

#: Field descriptors from a message to a value.
FieldPath = Sequence[Field]
#: Fields to read, by tag: for a message the ``Tree`` of its fields, for another type None.
Tree = dict[int, Any]

#: Limit of nested groups, as in other decoders.
MAX_DEPTH: Final = 100
_MAX_BITS = 70  # ten bytes with seven bits each hold a number of 64 bits
# Wire types.
_VARINT, _FIXED64, _BYTES, _GROUP, _END, _FIXED32 = range(6)
_SIZES = {_FIXED64: 8, _FIXED32: 4}  # bytes of a value
_FLOATS = {Field.TYPE_DOUBLE: "<d", Field.TYPE_FLOAT: "<f"}
_WIRE_TYPES = {
    **dict.fromkeys((Field.TYPE_DOUBLE, Field.TYPE_FIXED64, Field.TYPE_SFIXED64), _FIXED64),
    **dict.fromkeys((Field.TYPE_STRING, Field.TYPE_BYTES, Field.TYPE_MESSAGE), _BYTES),
    Field.TYPE_GROUP: _GROUP,
    **dict.fromkeys((Field.TYPE_FLOAT, Field.TYPE_FIXED32, Field.TYPE_SFIXED32), _FIXED32),
}
_LONG = {Field.CPPTYPE_INT64, Field.CPPTYPE_UINT64}
_UNSIGNED = {Field.CPPTYPE_UINT32, Field.CPPTYPE_UINT64}
_ZIGZAG = {Field.TYPE_SINT32, Field.TYPE_SINT64}
_TIME = "google.protobuf.Timestamp"
_WRAPPED = ("String", "Bool", "Int32", "Int64", "UInt32", "UInt64")
#: Messages of Google that count as one value: a time, and texts, truth values and numbers in a wrapper.
_AS_VALUES = {_TIME} | {f"google.protobuf.{kind}Value" for kind in _WRAPPED}


def tree_of(paths: Iterable[FieldPath]) -> Tree:
    """Return the tree of the fields on some paths; a time or wrapper at the end of a path has all its fields."""
    tree: Tree = {}
    for path in paths:
        inner: Any = tree
        for field in path:
            inner = inner.setdefault(_tag(field), None if field.message_type is None else {})
        message = path[-1].message_type
        if message is not None and message.full_name in _AS_VALUES:
            inner.update({_tag(field): None for field in message.fields})
    return tree


def _tag(field: Field) -> int:
    number: int = field.number
    return number << 3 | _WIRE_TYPES.get(field.type, _VARINT)


def read_message(value: bytes, position: int, tree: Tree) -> dict[int, Any]:
    """Return the contents of a message by tag; ``LookupError`` or ``ValueError`` for damaged bytes."""
    contents: dict[int, Any] = {}
    _walk(value, position, len(value), tree, contents)
    return contents


def _walk(
    value: bytes, position: int, end: int, tree: Tree, contents: dict[int, Any], group: int = 0, level: int = 0
) -> int:
    """Add the fields from ``position`` to ``end`` to ``contents``; return the position behind them.

    The fields of a group end at its end tag, before ``end``: ``group`` is its field number, 0 outside groups, and
    ``level`` the depth of open groups.
    """
    while position < end:
        tag, start = read_varint(value, position)
        number, wire_type = tag >> 3, tag & 7
        inner = tree.get(tag)  # None for a scalar, and for a field that is not wanted
        if wire_type == _VARINT:
            content, position = read_varint(value, start)
        elif wire_type == _BYTES:
            length, start = read_varint(value, start)
            position = start + length
        elif wire_type == _GROUP and level < MAX_DEPTH:
            merged: dict[int, Any] = {} if inner is None else contents.setdefault(tag, {})  # {}: only to find the end
            position = _walk(value, start, end, inner or {}, merged, number, level + 1)
        elif wire_type == _END and group and number == group:
            return start
        else:  # a KeyError for an unknown type, for a group that is too deep, and for the end of another group
            position = start + _SIZES[wire_type]
        if position > end or number == 0:
            raise IndexError(position)
        if tag not in tree or wire_type == _GROUP:  # a group has been merged above
            continue
        if inner is not None:
            _walk(value, start, position, inner, contents.setdefault(tag, {}))
        else:
            contents[tag] = content if wire_type == _VARINT else value[start:position]
    if group:  # without its end
        raise IndexError(position)
    return position


def read_varint(value: bytes, position: int, max_bits: int = _MAX_BITS) -> tuple[int, int]:
    """Return a number, and the position behind it; raise ``IndexError`` for a number that is cut or too long."""
    number = byte = value[position]
    if byte < 0x80:  # most tags and lengths
        return number, position + 1
    number, shift = byte & 0x7F, 7
    while byte >= 0x80:
        if shift >= max_bits:
            raise IndexError(position)
        position += 1
        byte = value[position]
        number |= (byte & 0x7F) << shift
        shift += 7
    return number, position + 1


def value_at(contents: Mapping[int, Any], path: FieldPath, *, is_text: bool, max_bytes: int = sys.maxsize) -> Any:
    """Return the value at a path; None where it is absent. A text of more than ``max_bytes`` stays bytes.

    A field without presence (``has_presence``) that has its default counts as absent, because a writer may leave it
    out. With ``is_text`` (the settings name the path as a text field) it has its default, and "" if it is left out.
    """
    content: Any = contents
    for field in path:
        content = content.get(_tag(field))
        if content is None:
            return "" if is_text and not field.has_presence else None
    last = path[-1]
    if last.message_type is not None:
        return _message_value(last.message_type, content, max_bytes)
    value = _scalar(last, content, max_bytes)
    if not (value or last.has_presence or is_text):
        return None
    enum_values: Mapping[int, Any] = {} if last.enum_type is None else last.enum_type.values_by_number
    return enum_values[value].name if value in enum_values else value


def _message_value(message: Descriptor, contents: Mapping[int, Any], max_bytes: int) -> Any:
    """Return a time as text, or the value in a wrapper; for another message {}, which ``WantedFields`` refuses."""
    if message.full_name not in _AS_VALUES:
        return {}
    fields = {_tag(field): field for field in message.fields}
    values = {
        field.name: _scalar(field, contents[tag], max_bytes) if tag in contents else field.default_value
        for tag, field in fields.items()
    }
    if message.full_name != _TIME:
        return values["value"]
    try:
        return Timestamp(**values).ToJsonString()
    except ValueError:
        return values["seconds"]


def _scalar(field: Field, content: Any, max_bytes: int) -> Any:
    if field.type in _FLOATS:
        return struct.unpack(_FLOATS[field.type], content)[0]
    if field.type == Field.TYPE_STRING:
        return content.decode() if len(content) <= max_bytes else content
    if field.type == Field.TYPE_BYTES:
        return content
    if field.type == Field.TYPE_BOOL:
        return bool(content)
    return _signed(field, int.from_bytes(content, "little") if isinstance(content, bytes) else content)


def _signed(field: Field, content: int) -> int:
    """Return the number of a field from its bits, which are sent without a sign."""
    bits = 64 if field.cpp_type in _LONG else 32
    number = content & (1 << bits) - 1
    if field.type in _ZIGZAG:
        return (number >> 1) ^ -(number & 1)
    if number >> bits - 1 and field.cpp_type not in _UNSIGNED:
        number -= 1 << bits
    return number
