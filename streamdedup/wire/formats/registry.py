"""``RegistryFormat``: reads and writes values, and record keys, whose schemas are in a registry.

The value names its schema by an id. The text of the schema is requested once, and a ``SchemaCompiler`` makes a reader.
"""

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from streamdedup.errors import DecodeError
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.fields import Headers, WantedFields
from streamdedup.wire.schema_registry import RegisteredSchema, Registry, RegistrySession

#: Limit of the text bytes of all remembered schemas; a text counts as at least ``_LEAST_BYTES``. Without a limit,
#: records that name every id of a registry would fill the memory: a compiled schema takes a multiple of its text.
MAX_REMEMBERED_BYTES: Final = 8 * 1024 * 1024
_LEAST_BYTES = 16 * 1024
#: Seconds for which a repeated batch remembers unknown ids, so that a registry's limit on requests cannot stop it.
UNKNOWN_S: Final = 60.0
#: Headers in which newer serializers send the frame, which is then not in front of the value or the key.
VALUE_ID_HEADER, KEY_ID_HEADER = "__value_schema_id", "__key_schema_id"
#: First byte of a frame, which tells the form of the schema id, and the bytes of the id: ``00 00000007`` for 7.
_NUMBER, _UUID = b"\0", b"\1"
_ID_BYTES = {_NUMBER: 4, _UUID: 16}


class CompiledSchema(NamedTuple):
    """A schema that reads values without their frame, and the names of the fields that the schema has."""

    read: Callable[[bytes], Any]
    names: Collection[str]


#: Makes a value of fields by name: without the frame from ``SchemaCompiler``, with it from ``RegistryFormat``.
Write = Callable[[Mapping[str, Any]], bytes]


class _Remembered(NamedTuple):
    read: Callable[[bytes], Any]
    counted_bytes: int


class SchemaCompiler(Protocol):
    """The module of a format: ``avro``, ``json_schema`` or ``protobuf``."""

    def compile_schema(self, registered: RegisteredSchema, wanted_fields: WantedFields) -> CompiledSchema:
        """Return a reader for the values of a schema; raise ``DecodeError`` for an invalid schema."""

    def compile_writer(self, registered: RegisteredSchema, wanted_fields: WantedFields) -> Write:
        """Return a writer, which raises ``DecodeError`` for fields that do not fit."""


class RegistryFormat:
    """Reads and writes values; ``compilers`` has one by kind of schema: ``AVRO``, ``JSON``, ``PROTOBUF``."""

    def __init__(
        self, wanted_fields: WantedFields, registry: Registry, compilers: Mapping[str, SchemaCompiler], id_header: str
    ) -> None:
        self._wanted = wanted_fields
        self._registry = registry
        self._compilers = compilers
        self._id_header = id_header
        #: Readers by schema id, the last used at the end. They are kept, because a schema never changes under its id.
        self._readers: dict[int | UUID, _Remembered] = {}
        self._session: RegistrySession | None = None  # of the present batch
        #: Ids that the registry lacks, until the next batch; after an interrupted one for ``UNKNOWN_S``.
        self._unknown: dict[int | UUID, DecodeError] = {}
        self._unknown_until = 0.0  # monotonic time

    @contextmanager
    def batch(self) -> Iterator[None]:
        with RegistrySession(self._registry) as session:
            self._session = session
            if time.monotonic() > self._unknown_until:
                self._unknown.clear()
            try:
                yield
                self._unknown.clear()
            finally:
                self._session = None

    def fields(self, value: bytes, headers: Headers = ()) -> Any:
        schema_id, value = split_frame(value, headers, self._id_header)
        remembered = self._readers.pop(schema_id, None)
        if remembered is None:
            remembered = self._new_reader(schema_id)
            self._make_room(remembered.counted_bytes)
        self._readers[schema_id] = remembered
        return remembered.read(value)

    def _new_reader(self, schema_id: int | UUID) -> _Remembered:
        """Request a schema and return its reader; of an unusable schema, a reader that raises for each value.

        Raises ``DecodeError`` if the registry lacks the id: that is not remembered beyond the batch.
        """
        if (unknown := self._unknown.get(schema_id)) is not None:
            raise DecodeError(unknown.code, str(unknown))  # a new one: a raised error keeps its traceback
        try:
            registered = self._request(schema_id)
            size = len(registered.text) + sum(map(len, registered.references.values()))
            return _Remembered(self._compiled(registered).read, max(size, _LEAST_BYTES))
        except DecodeError as error:
            if error.code == ErrorCode.UNUSABLE_SCHEMA:
                return _Remembered(_refusal(error.code, f"schema {schema_id}: {error}"), _LEAST_BYTES)
            if self._session is not None:
                self._unknown[schema_id] = error
                self._unknown_until = time.monotonic() + UNKNOWN_S
            raise

    def _request(self, schema_id: int | UUID) -> RegisteredSchema:
        # Outside a batch, a session for this request alone.
        with RegistrySession(self._registry) if self._session is None else nullcontext(self._session) as session:
            return session.by_id(schema_id)

    def _compiled(self, registered: RegisteredSchema) -> CompiledSchema:
        if registered.kind not in self._compilers:
            kinds = " or ".join(self._compilers)
            raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, f"its type is {registered.kind}, not {kinds}")
        try:
            compiled = self._compilers[registered.kind].compile_schema(registered, self._wanted)
        except RecursionError:
            raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, "it is nested too deeply") from None
        names = self._wanted.names
        texts = [names[attribute] for attribute in self._wanted.texts]
        # A schema of deletions has no text field, but one for the operation. A schema of keys needs the id.
        needed = [*texts, *(names[key] for key in ("op", "deleted") if key in names)]
        if not any(name in compiled.names for name in needed or [names["id"]]):
            id_name = names["id"] or "for the id without key_field"
            lacking = f"none of the text fields: {', '.join(texts)}" if texts else f"no field {id_name}"
            raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, f"it has {lacking}")
        return compiled

    def _make_room(self, needed_bytes: int) -> None:
        limit = MAX_REMEMBERED_BYTES - needed_bytes
        while self._readers and sum(reader.counted_bytes for reader in self._readers.values()) > limit:
            del self._readers[next(iter(self._readers))]

    def missing_fields(self, subject: str) -> list[str] | None:
        """Return the wanted fields that a subject's newest schema lacks; None if there is no such subject.

        Raises ``DecodeError`` for a schema that the daemon cannot use.
        """
        registered = self._latest(subject)
        if registered is None:
            return None
        names = self._compiled(registered).names
        return [name for name in self._wanted.names.values() if name not in names]

    def writer(self, subject: str) -> Write | None:
        """Return a writer of framed values with a subject's newest schema; None and errors as ``missing_fields``."""
        registered = self._latest(subject)
        if registered is None:
            return None
        self._compiled(registered)  # raises if the daemon could not read the values
        write = self._compilers[registered.kind].compile_writer(registered, self._wanted)
        frame = _NUMBER + registered.schema_id.to_bytes(_ID_BYTES[_NUMBER], "big")
        return lambda fields: frame + write(fields)

    def _latest(self, subject: str) -> RegisteredSchema | None:
        with RegistrySession(self._registry) as session:
            return session.latest(subject)


def _refusal(code: str, reason: str) -> Callable[[bytes], Any]:
    def refuse(_value: bytes) -> Any:
        raise DecodeError(code, reason)

    return refuse


def nested(fields: Mapping[str, Any]) -> Any:
    """Return fields by path as nested objects: ``{"a.b": 1}`` becomes ``{"a": {"b": 1}}``, ``{"": 1}`` becomes 1.

    Raises ``DecodeError`` where one path leads into the value of another.
    """
    if fields.keys() == {""}:
        return fields[""]
    whole: dict[str, Any] = {}
    for name, value in fields.items():
        inner: Any = whole
        *outer, last = name.split(".")
        for step in outer:
            inner = inner.setdefault(step, {}) if isinstance(inner, dict) else None
        if not isinstance(inner, dict) or last in inner:
            raise DecodeError(ErrorCode.SCHEMA_MISMATCH, f"field `{name}` and another one have the same place")
        inner[last] = value
    return whole


def split_frame(value: bytes, headers: Headers, id_header: str) -> tuple[int | UUID, bytes]:
    """Return the schema id of a value, and the value without the frame, which is in the record header or in front.

    In Protobuf a path to the message follows the id; it stays in front of the value.
    """
    # Of several such headers the last counts, as for Confluent's deserializers: serializers append theirs to the
    # headers that a job forwards. A last header that is null means a frame in front of the value, and so does an empty
    # one, because dead letters and replayed records have an empty one for it.
    for name, content in reversed(headers):
        if name == id_header:
            if not content:
                break
            schema_id, path = _split_id(content, id_header)
            return schema_id, path + value
    return _split_id(value, id_header)


def _split_id(framed: bytes, id_header: str) -> tuple[int | UUID, bytes]:
    id_bytes = _ID_BYTES.get(framed[:1])
    if id_bytes is None or len(framed) <= id_bytes:
        reason = f"no schema id is in front of the value or in the record header {id_header}"
        raise DecodeError(ErrorCode.NOT_FRAMED, reason)
    content, rest = framed[1 : 1 + id_bytes], framed[1 + id_bytes :]
    return (UUID(bytes=content) if framed[:1] == _UUID else int.from_bytes(content, "big")), rest
