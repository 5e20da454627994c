"""Protobuf, framed for a schema registry. Needs the extra ``registry``.

Registries have the text of a schema, which protoc compiles (``grpc_tools``), or its descriptor. protobuf reads messages
without generated code.
``payload.body`` names the field ``body`` of the message in the field ``payload``. Messages of
``google.protobuf.Timestamp`` become texts as in RFC 3339, and enumerations their names.
"""

from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any

import grpc_tools
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError as DamagedError
from google.protobuf.message_factory import GetMessageClass
from grpc_tools import protoc

from streamdedup.errors import DecodeError, RegistryMisconfigured
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.fields import Schema
from streamdedup.wire.formats.registry import CompiledSchema, RegisteredSchema, Write, nested

_MOST_NAME = 200
# Messages whose number in the file has one byte in the frame.
_MOST_WRITTEN = 64
_MAIN = "streamdedup_value.proto"
_MOST_VARINT_BITS = 35
_TIME = "google.protobuf.Timestamp"
# Files that protoc has: the types of google.protobuf.
_INCLUDED = str(Path(grpc_tools.__file__).parent / "_proto")

#: Field descriptors from a message to a value.
_Path = Sequence[FieldDescriptor]


def compile_schema(registered: RegisteredSchema, schema: Schema) -> CompiledSchema:
    """Return a reader for the messages of a Protobuf file.

    Raises:
        DecodeError: It is no Protobuf file.
        RegistryMisconfigured: protoc cannot write temporary files.
    """
    file = _compiled(registered)
    texts = {schema.names[attribute] for attribute in schema.texts}

    @cache
    def message_reader(indexes: Sequence[int]) -> Callable[[bytes], Any]:
        descriptor = _message(file, indexes)
        paths = dict(_paths(descriptor, schema.names.values()))
        message_class = GetMessageClass(descriptor)

        def read(value: bytes) -> Any:
            message = message_class.FromString(value)
            return schema.from_mapping({name: _value_at(message, path, name in texts) for name, path in paths.items()})

        return read

    def fields(value: bytes) -> Any:
        try:
            indexes, start = _split_indexes(value)
            return message_reader(indexes)(value[start:])
        except (DamagedError, IndexError, UnicodeDecodeError, ValueError) as error:
            reason = f"the bytes do not fit the schema: {type(error).__name__}"
            raise DecodeError(ErrorCode.SCHEMA_MISMATCH, reason) from None

    messages = _with_nested(file.message_types_by_name.values())
    names = {name for message in messages for name, _ in _paths(message, schema.names.values())}
    return CompiledSchema(fields, names)


def compile_writer(registered: RegisteredSchema, schema: Schema) -> Write:
    """Return a writer of the first message that has a text field."""
    texts = [schema.names[attribute] for attribute in schema.texts]
    messages = list(_compiled(registered).message_types_by_name.values())[:_MOST_WRITTEN]
    index = next((number for number, message in enumerate(messages) if any(_paths(message, texts))), 0)
    message_class, frame = GetMessageClass(messages[index]), bytes([2, 2 * index])

    def write(fields: Mapping[str, Any]) -> bytes:
        try:
            message = ParseDict(nested(fields), message_class(), ignore_unknown_fields=True)
        except ParseError as error:
            raise DecodeError(ErrorCode.SCHEMA_MISMATCH, f"it does not fit the schema: {error}") from None
        return frame + bytes(message.SerializeToString())

    return write


def _compiled(registered: RegisteredSchema) -> FileDescriptor:
    texts = {**registered.references, _MAIN: registered.text}
    try:
        files = [_descriptor(name, text) for name, text in texts.items()]
    except (ValueError, DamagedError):
        files = _run_protoc(texts, [_MAIN])
    else:
        included = {name for file in files for name in file.dependency} - texts.keys()
        # A file comes after those that it imports.
        files = [*(_run_protoc({}, sorted(included)) if included else []), *files]
    pool = DescriptorPool()
    try:
        for file in files:
            pool.Add(file)
        return pool.FindFileByName(_MAIN)
    except TypeError:
        raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, "its descriptor is incomplete") from None


def _descriptor(name: str, text: str) -> FileDescriptorProto:
    """Return a file that was registered as a descriptor in Base64, as serializers in Python do.

    Raises:
        ValueError: It is none.
        DamagedError: It is none.
    """
    file: FileDescriptorProto = FileDescriptorProto.FromString(b64decode(text, validate=True))
    file.name = name
    return file


def _run_protoc(texts: Mapping[str, str], names: Sequence[str]) -> list[FileDescriptorProto]:
    """Return the descriptors of some files, and of those that they import.

    Args:
        texts: Text by name of each file.
        names: Files to compile, of ``texts`` or of those that protoc has.

    Raises:
        DecodeError: They cannot be compiled.
        RegistryMisconfigured: protoc cannot write temporary files.
    """
    try:
        with TemporaryDirectory(prefix="streamdedup-protobuf-") as folder:
            return _compile_in(folder, texts, names)
    except OSError as error:
        raise RegistryMisconfigured(f"protoc cannot use the folder of temporary files: {error}") from error


def _compile_in(folder: str, texts: Mapping[str, str], names: Sequence[str]) -> list[FileDescriptorProto]:
    for name, text in texts.items():
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or not name.isprintable() or len(name) > _MOST_NAME:
            raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, "a reference is no name of a file")
        target = Path(folder, path)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    output = Path(folder, "descriptors")
    arguments = [f"-I{folder}", f"-I{_INCLUDED}", "--include_imports", f"--descriptor_set_out={output}"]
    if protoc.main(["protoc", *arguments, *names]):
        raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, "it is no Protobuf file that protoc compiles")
    return list(FileDescriptorSet.FromString(output.read_bytes()).file)


def _split_indexes(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return the path of the message in its file, and the position behind it."""
    count, position = _varint(value, 0)
    if count == 0:  # the first message, written shortly
        return (0,), position
    indexes = []
    for _ in range(count):
        index, position = _varint(value, position)
        indexes.append(index)
    return tuple(indexes), position


def _varint(value: bytes, position: int) -> tuple[int, int]:
    number = shift = 0
    while shift < _MOST_VARINT_BITS:
        byte = value[position]
        number |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), position  # zigzag
    raise IndexError(position)


def _message(file: FileDescriptor, indexes: Sequence[int]) -> Descriptor:
    first, *nested = indexes
    message: Descriptor = _at(list(file.message_types_by_name.values()), first)
    for index in nested:
        message = _at(message.nested_types, index)
    return message


def _at(messages: Sequence[Descriptor], index: int) -> Descriptor:
    if index < 0:
        raise IndexError(index)
    return messages[index]


def _with_nested(messages: Sequence[Descriptor]) -> Iterator[Descriptor]:
    for message in messages:
        yield message
        yield from _with_nested(message.nested_types)


def _paths(message: Descriptor, names: Iterable[str]) -> Iterator[tuple[str, _Path]]:
    """Yield name and path for each field that a message has; repeated ones have no single value."""
    for name in names:
        path: list[FieldDescriptor] = []
        inner: Descriptor | None = message
        for step in name.split("."):
            field = None if inner is None else inner.fields_by_name.get(step)
            if field is None or field.is_repeated:
                break
            path.append(field)
            inner = field.message_type
        else:
            yield name, path


def _value_at(message: Any, path: _Path, is_text: bool) -> Any:
    """Return the value at a path; None where it is absent.

    A field without presence that has its default counts as absent, and as empty where it is a text.
    """
    value = message
    for field in path:
        if field.has_presence and not value.HasField(field.name):
            return None
        value = getattr(value, field.name)
    if field.message_type is not None:
        return value.ToJsonString() if field.message_type.full_name == _TIME else value
    if not (value or field.has_presence or is_text):
        return None
    return _enumerated(field, value) if field.enum_type is not None else value


def _enumerated(field: FieldDescriptor, value: int) -> str | int:
    named: Mapping[int, Any] = field.enum_type.values_by_number
    return named[value].name if value in named else value
