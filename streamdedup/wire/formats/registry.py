"""The format of values, and of record keys, whose schemas are in a registry (``schema_registry``).

``formats.make_format`` makes a ``RegistryFormat``, whose compilers are the modules ``avro``, ``json_schema`` and
``protobuf``. ``wire.documents.Decoder`` reads with ``fields``, ``cli.produce`` writes with ``writer``, and
``cli.checks`` calls ``missing_fields``.

A schema never changes under its id, so ``RegistryFormat`` requests a schema once. An unknown id may be registered
later: ``RegistryFormat`` requests its schema once in a batch.
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, Final, NamedTuple, Protocol
from uuid import UUID

from streamdedup.errors import DecodeError
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.fields import Headers, Schema
from streamdedup.wire.schema_registry import RegisteredSchema, Registry, RegistrySession

#: Limit of the bytes of all remembered schemas: of their texts, but at least ``_LEAST_BYTES`` for each. An author of
#: records may name all ids of a registry, and a compiled schema takes a multiple of its text.
MAX_REMEMBERED_BYTES: Final = 8 * 1024 * 1024
_LEAST_BYTES = 16 * 1024
#: Headers in which newer serializers send the id of a value or a key, which is then not framed.
VALUE_ID_HEADER, KEY_ID_HEADER = "__value_schema_id", "__key_schema_id"
#: First byte of a frame, and the bytes of the id behind it: a number, or a UUID.
_NUMBER, _UUID = (0, 4), (1, 16)


class CompiledSchema(NamedTuple):
    """A schema that reads values without their frame, and the names of the fields that the schema has."""

    read: Callable[[bytes], Any]
    names: Collection[str]


#: Makes a value from the fields of a JSON object: from a ``SchemaCompiler`` without the frame, from
#: ``RegistryFormat.writer`` with the frame.
Write = Callable[[Mapping[str, Any]], bytes]


class SchemaCompiler(Protocol):
    """The module of a format: ``avro``, ``json_schema`` or ``protobuf``."""

    def compile_schema(self, registered: RegisteredSchema, schema: Schema) -> CompiledSchema:
        """Return a reader for the values of a schema; raise ``DecodeError`` for an invalid schema."""

    def compile_writer(self, registered: RegisteredSchema, schema: Schema) -> Write:
        """Return a writer, which raises ``DecodeError`` for fields that do not fit."""


class RegistryFormat:
    """Reads values whose schemas are in a registry, with ``compilers`` by kind of schema."""

    def __init__(
        self, schema: Schema, registry: Registry, compilers: Mapping[str, SchemaCompiler], id_header: str
    ) -> None:
        self._schema = schema
        self._registry = registry
        self._compilers = compilers
        self._id_header = id_header
        #: Reader and counted bytes of each remembered schema, the last used at the end; a schema does not change.
        self._readers: dict[int | UUID, tuple[Callable[[bytes], Any], int]] = {}
        #: Connection and unknown ids of the present batch; None and empty between batches.
        self._session: RegistrySession | None = None
        self._unknown: dict[int | UUID, DecodeError] = {}

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Use one connection, and one request for each unknown id, while the context is open."""
        with RegistrySession(self._registry) as session:
            self._session = session
            try:
                yield
            finally:
                self._session = None
                self._unknown.clear()

    def fields(self, value: bytes, headers: Headers = ()) -> Any:
        schema_id, value = split_frame(value, headers, self._id_header)
        remembered = self._readers.pop(schema_id, None)
        if remembered is None:
            remembered = self._reader(schema_id)
            self._forget(MAX_REMEMBERED_BYTES - remembered[1])
        self._readers[schema_id] = remembered
        return remembered[0](value)

    def _forget(self, most_bytes: int) -> None:
        """Forget schemas, the longest unused first, until the remembered ones have at most ``most_bytes``."""
        while self._readers and sum(size for _, size in self._readers.values()) > most_bytes:
            del self._readers[next(iter(self._readers))]

    def _reader(self, schema_id: int | UUID) -> tuple[Callable[[bytes], Any], int]:
        """Return a reader for values with a schema, and its counted bytes.

        For an unusable schema the reader raises the same error for each value. A schema that the registry lacks may be
        registered later, and is remembered for the present batch alone.
        """
        if (unknown := self._unknown.get(schema_id)) is not None:
            raise DecodeError(unknown.code, str(unknown))
        try:
            registered = self._registered(schema_id)
            size = len(registered.text) + sum(map(len, registered.references.values()))
            return self._compiled(registered).read, max(size, _LEAST_BYTES)
        except DecodeError as error:
            code, reason = error.code, f"schema {schema_id}: {error}"
            if code != ErrorCode.UNUSABLE_SCHEMA:
                if self._session is not None:
                    self._unknown[schema_id] = error
                raise

        def refuse(_value: bytes) -> Any:
            raise DecodeError(code, reason)

        return refuse, _LEAST_BYTES

    def _registered(self, schema_id: int | UUID) -> RegisteredSchema:
        # Outside a batch, a session for this request alone.
        with RegistrySession(self._registry) if self._session is None else nullcontext(self._session) as session:
            return session.by_id(schema_id)

    def _compiled(self, registered: RegisteredSchema) -> CompiledSchema:
        if registered.kind not in self._compilers:
            kinds = " or ".join(self._compilers)
            raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, f"its type is {registered.kind}, not {kinds}")
        try:
            compiled = self._compilers[registered.kind].compile_schema(registered, self._schema)
        except RecursionError:
            raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, "it is nested too deeply") from None
        names = self._schema.names
        texts = [names[attribute] for attribute in self._schema.texts]
        # A schema without text fields may be that of deletions, if it has a field for the operation. A key needs an id.
        needed = [*texts, *(names[key] for key in ("op", "deleted") if key in names)] or [names["id"]]
        if not any(name in compiled.names for name in needed):
            lacking = f"none of the text fields: {', '.join(texts)}" if texts else f"no field {names['id']}"
            raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, f"it has {lacking}")
        return compiled

    def missing_fields(self, subject: str) -> list[str] | None:
        """Return the fields that a subject's newest schema lacks; None if there is no subject. Raise as ``by_id``."""
        with RegistrySession(self._registry) as session:
            registered = session.latest(subject)
        if registered is None:
            return None
        names = self._compiled(registered).names
        return [name for name in self._schema.names.values() if name not in names]

    def writer(self, subject: str) -> Write | None:
        """Return a writer of framed values with a subject's newest schema. None and errors: as ``missing_fields``."""
        with RegistrySession(self._registry) as session:
            registered = session.latest(subject)
        if registered is None:
            return None
        self._compiled(registered)  # raises if the daemon could not read the values
        write = self._compilers[registered.kind].compile_writer(registered, self._schema)
        magic, id_bytes = _NUMBER
        frame = bytes([magic]) + registered.schema_id.to_bytes(id_bytes, "big")
        return lambda fields: frame + write(fields)


def nested(fields: Mapping[str, Any]) -> Any:
    """Return fields whose names are paths as nested objects; a field with an empty name as it is."""
    if "" in fields:
        return fields[""]
    whole: dict[str, Any] = {}
    for name, value in fields.items():
        inner = whole
        *outer, last = name.split(".")
        for step in outer:
            inner = inner.setdefault(step, {})
        inner[last] = value
    return whole


def split_frame(value: bytes, headers: Headers, id_header: str) -> tuple[int | UUID, bytes]:
    """Return the schema id of a value, from the record header or from the frame, and the value without the id.

    A path to a Protobuf message follows the id in the frame and in the header. The path is returned before the value.
    """
    for name, content in headers:
        if name == id_header and content is not None:
            schema_id, path = _split_id(content, id_header)
            return schema_id, path + value
    return _split_id(value, id_header)


def _split_id(framed: bytes, id_header: str) -> tuple[int | UUID, bytes]:
    for magic, length in (_NUMBER, _UUID):
        if framed[:1] == bytes([magic]) and len(framed) > length:
            content = framed[1 : 1 + length]
            return (UUID(bytes=content) if magic else int.from_bytes(content, "big")), framed[1 + length :]
    raise DecodeError(
        ErrorCode.NOT_FRAMED, f"no schema id is in front of the value or in the record header {id_header}"
    )
