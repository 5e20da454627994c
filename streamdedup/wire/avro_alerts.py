"""Alerts in Avro, framed for a schema registry. Reader and writer need the extra ``registry``.

The schema is made from the classes of ``alerts``: a new field of a class is a field of the record, with its default. A
field that JSON may leave out is null, a ``Time`` is a number, and a ``Literal`` a text, so that further values stay
compatible. ``first_match`` repeats the first match, because Kafka Connect makes columns from records, not from lists.
"""

from contextlib import suppress
from datetime import datetime
from functools import lru_cache
from importlib import import_module
from io import BytesIO
from typing import Any, Final, get_args
from uuid import UUID

import msgspec
from msgspec import NODEFAULT, inspect

from streamdedup.errors import DecodeError
from streamdedup.wire import alerts
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.avro_walk import MAX_DEPTH
from streamdedup.wire.formats.registry import split_frame
from streamdedup.wire.schema_registry import Registry, RegistrySession, parsed_json

#: Longest alert in Avro that is read; 100 matches with the longest ids and labels have a third of it. Decoding takes
#: up to 100 times the bytes of the value: the reader fills in the fields that a schema of another program lacks.
_MAX_VALUE_BYTES: Final = 512 * 1024
#: The unnamed Avro types whose values always have bytes.
_TYPES_WITH_BYTES: Final = ("boolean", "int", "long", "float", "double", "bytes", "string")

_PRIMITIVES: Final[dict[type[Any], str]] = {
    str: "string",
    int: "long",
    inspect.StrType: "string",
    inspect.IntType: "long",
    inspect.FloatType: "double",
    inspect.BoolType: "boolean",
}
_RECORDS = (alerts.Alert, alerts.AlertDocument, alerts.Match)
_FIELDS = [field for record in _RECORDS for field in msgspec.structs.fields(record)]
#: Texts that JSON leaves out where they are empty; null in Avro. Only matches of ``serve`` lack ``pair``.
_NULL_TEXTS: Final = {field.name for field in _FIELDS if field.default == "" and field.name != "pair"}
_TIMES: Final = {field.name for field in _FIELDS if alerts.Time in (field.type, *get_args(field.type))}


def _avro_type(info: Any) -> Any:
    avro_type: Any
    match info:
        case inspect.Metadata(extra_json_schema={"format": "date-time"}):
            avro_type = {"type": "long", "logicalType": "timestamp-millis"}
        case inspect.Metadata():
            avro_type = _avro_type(info.type)
        case inspect.StructType():
            avro_type = _record(info)
        case inspect.UnionType():  # with None
            other_type = next(kind for kind in info.types if not isinstance(kind, inspect.NoneType))
            avro_type = ["null", _avro_type(other_type)]
        case inspect.VarTupleType():
            avro_type = {"type": "array", "items": _avro_type(info.item_type)}
        case inspect.DictType():
            avro_type = {"type": "map", "values": _avro_type(info.value_type)}
        case inspect.LiteralType():
            avro_type = _PRIMITIVES[type(info.values[0])]
        case _:
            avro_type = _PRIMITIVES[type(info)]
    return avro_type


def _record(info: Any) -> dict[str, Any]:
    return {"type": "record", "name": info.cls.__name__, "fields": [_field(field) for field in info.fields]}


def _field(field: inspect.Field) -> dict[str, Any]:
    type_ = ["null", "string"] if field.name in _NULL_TEXTS else _avro_type(field.type)
    if isinstance(type_, list):
        return {"name": field.name, "type": type_, "default": None}
    if field.required or field.name == "pair":
        return {"name": field.name, "type": type_}
    default = field.default if field.default_factory is NODEFAULT else field.default_factory()
    return {"name": field.name, "type": type_, "default": default}


_ALERT: Final = _record(inspect.type_info(alerts.Alert))
_ALERT["namespace"] = "streamdedup"
_ALERT["fields"].append({"name": "first_match", "type": "Match"})
#: The schema, as it is registered.
ALERT_SCHEMA: Final = msgspec.json.encode(_ALERT).decode()


class AvroAlerts(alerts.AlertReader):
    """Encodes alerts in Avro, and reads those in Avro and in JSON; several threads may read."""

    def __init__(self, registry: Registry, subject: str) -> None:
        self._avro = import_module("fastavro")
        self._parsed = self._avro.parse_schema(_ALERT)
        self._registry = registry
        self._schema_by_id = lru_cache(maxsize=64)(self._fetch_schema)
        self._frame = b""  # in front of each message: a zero byte and the schema id; empty before `register`
        self.subject = subject

    def registered_id(self) -> int | None:
        """Return the id of the subject's newest schema: 0 if it is not ``ALERT_SCHEMA``, None if there is none."""
        try:
            with RegistrySession(self._registry) as session:
                newest = session.latest(self.subject)
        except DecodeError:
            return 0  # the newest schema is too long, or refers to a missing schema
        if newest is None:
            return None
        try:
            is_same = newest.kind == "AVRO" and parsed_json(newest.text) == _ALERT
        except (ValueError, RecursionError):
            is_same = False
        return newest.schema_id if is_same else 0

    def register(self) -> bool:
        """Register the schema, unless the subject has it as the newest; return whether this call registered it."""
        newest_id = self.registered_id()
        with RegistrySession(self._registry) as session:
            schema_id = newest_id or session.register(self.subject, ALERT_SCHEMA)
        self._frame = b"\0" + schema_id.to_bytes(4, "big")
        return not newest_id

    def encode(self, alert: alerts.Alert) -> bytes:
        """Encode one message, whose part is set; register the schema first if nothing has."""
        if not self._frame:
            self.register()
        fields = msgspec.to_builtins(alert)
        fields["first_match"] = fields["matches"][0]
        for record in (fields, fields["document"], *fields["matches"]):
            record.update({name: alerts.to_ms(record[name]) for name in _TIMES & record.keys()})
        stream = BytesIO()
        self._avro.schemaless_writer(stream, self._parsed, fields)
        return self._frame + stream.getvalue()

    def as_json(self, value: bytes) -> bytes:
        if not alerts.is_framed(value):
            return value
        schema_id, body = split_frame(value, (), "")
        if len(body) > _MAX_VALUE_BYTES:
            raise DecodeError(ErrorCode.INVALID_FIELD, f"no alert: longer than {_MAX_VALUE_BYTES:,} bytes")
        written_by, refusal = self._schema_by_id(schema_id)
        if refusal:
            raise DecodeError(ErrorCode.INVALID_FIELD, refusal)
        stream = _CheckedBytes(body)
        try:
            fields = self._avro.schemaless_reader(stream, written_by, self._parsed)
            if stream.tell() < len(body):
                raise ValueError("bytes are left over")  # noqa: TRY301  all mistakes raise the same error
            return alerts.alert_json(msgspec.convert(_in_json(fields), alerts.Alert))
        except MemoryError:  # no fault of the alert, which a rebuild would leave out
            raise
        except Exception as error:  # noqa: BLE001  of fastavro, for damaged bytes and schemas: of a dozen classes
            # The texts of errors of fastavro quote the value.
            reason = str(error) if isinstance(error, msgspec.ValidationError) else type(error).__name__
            raise DecodeError(ErrorCode.INVALID_FIELD, f"no alert by schema {schema_id}: {reason}") from None

    def ping(self) -> None:
        with RegistrySession(self._registry) as session, suppress(DecodeError):
            session.by_id(1)  # any answer will do

    def _fetch_schema(self, schema_id: int | UUID) -> tuple[Any, str]:
        """Return a schema for fastavro and "", or None and why it is refused: the cache has refusals, too."""
        with RegistrySession(self._registry) as session:
            registered = session.by_id(schema_id)
        try:
            parsed = self._avro.parse_schema(parsed_json(registered.text))
            _checked_levels(parsed, dict.fromkeys(_TYPES_WITH_BYTES, 1))
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001  of fastavro: of a dozen classes
            return None, f"no alert by schema {schema_id}: {type(error).__name__}"
        return parsed, ""


class _CheckedBytes(BytesIO):
    """Bytes that raise ``EOFError`` behind their end.

    fastavro 1.13.1 skips numbers and texts in fields that no alert has without a look at the end, so that an array of
    10^18 numbers in a value of 15 bytes would be skipped for years, in C, where no other thread and no signal runs.
    """

    def read(self, size: int | None = -1, /) -> bytes:
        data = super().read(size)
        if size is not None and len(data) < size:
            raise EOFError
        return data


def _checked_levels(node: Any, known: dict[str, int]) -> int:
    """Return the number of nested levels of a type that fastavro has parsed; ``known`` has that of each named type.

    Raises ``ValueError`` or ``KeyError`` for a type that fastavro might read without an end: without bytes outside a
    union (as the item of an array), in itself (the stack of C ends the process), or of more than ``MAX_DEPTH`` levels.
    """
    if isinstance(node, str):
        return known[node]  # absent: null, or a type whose parts are being counted
    if isinstance(node, list):
        parts = [branch for branch in node if branch != "null"]  # the number of the branch is a byte
    elif node["type"] in ("record", "error"):
        parts = [field["type"] for field in node["fields"]]
    else:
        parts = [part for key in ("items", "values") if (part := node.get(key)) is not None]
        parts += [] if node["type"] in ("array", "map", "enum", "fixed") else [node["type"]]
    levels = 1 + max((_checked_levels(part, known) for part in parts), default=0)
    has_bytes = parts or isinstance(node, list) or node["type"] == "enum" or node.get("size", 0) > 0
    if levels > MAX_DEPTH or not has_bytes:
        raise ValueError("a type nests too deeply, or has no bytes")
    if isinstance(node, dict) and "name" in node:
        known[node["name"]] = levels
    return levels


def _in_json(content: Any) -> Any:
    if isinstance(content, dict):
        return {name: _in_json(part) for name, part in content.items() if part is not None or name not in _NULL_TEXTS}
    if isinstance(content, list):
        return [_in_json(part) for part in content]
    return alerts.rfc_3339(alerts.to_ms(content.isoformat())) if isinstance(content, datetime) else content
