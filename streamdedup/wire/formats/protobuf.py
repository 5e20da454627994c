"""Protobuf, framed for a schema registry. Needs the extra ``registry``.

Registries have the text of a schema, which protoc compiles (``grpc_tools``), or its descriptor. Schemas are not
trusted: protoc is a separate process with limits of time and memory, and takes no part of a schema for an option.

``payload.body`` in the settings names the field ``body`` of the message in the field ``payload``. Messages of
``google.protobuf.Timestamp`` become texts as in RFC 3339, wrappers their values, and enumerations their names. A time
that RFC 3339 cannot write becomes its seconds.
"""

import ast
import re
import signal
import subprocess
import sys
from base64 import b64decode
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import grpc_tools
from google.protobuf.descriptor import Descriptor, FieldDescriptor, FileDescriptor
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto, FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import DecodeError as DamagedError
from google.protobuf.message import EncodeError
from google.protobuf.message_factory import GetMessageClass

from streamdedup.errors import DecodeError, RegistryMisconfigured, RegistryUnavailable
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.fields import WantedFields
from streamdedup.wire.formats.protobuf_walk import FieldPath, Tree, read_message, read_varint, tree_of, value_at
from streamdedup.wire.formats.registry import CompiledSchema, Write, nested
from streamdedup.wire.schema_registry import RegisteredSchema

#: Time limit of protoc, in seconds; it compiles a file of 4 MB in less than two.
PROTOC_TIMEOUT_S: Final = 20.0
#: Limit of the address space of protoc, in bytes: enough for a file of 1 MB, which registries rarely exceed.
PROTOC_BYTES: Final = 256 * 2**20
# Sets the limit in the process itself: the daemon has threads, which forbid code between fork and exec. A service
# manager may forbid limits, or have set a lower one.
_PROTOC: Final = """
import contextlib, resource, sys
with contextlib.suppress(OSError, ValueError):
    resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]),) * 2)
from grpc_tools import protoc
sys.exit(protoc.main(["protoc", *sys.argv[2:]]))
"""
# Signals by which protoc ends itself where it has no memory, or a defect.
_OWN_SIGNALS = frozenset({signal.SIGABRT, signal.SIGSEGV, signal.SIGBUS})

# Longest file name, in bytes, and most characters of an error of protoc in the text of a ``DecodeError``.
_MAX_NAME_BYTES, _MAX_REASON_LENGTH = 200, 200
# How many messages of a file, from the first on, have a number that takes one byte as a zigzag varint.
_ONE_BYTE_MESSAGES = 64
_MAX_LEVELS = 32  # of nested messages: the limit of protoc
# Name for the file of the schema itself, which the registry does not name.
_MAIN_FILE = "streamdedup_value.proto"
_MAX_VARINT_BITS = 35  # five groups of seven bits hold a number of 32 bits
_MISFITS = re.compile(r"(?:Failed to parse (?=\w+ field: )|missing required fields: )([\w.,]+)")
# Files that protoc has: the types of google.protobuf.
_INCLUDED = Path(grpc_tools.__file__).parent / "_proto"
_INCLUDED_NAME = re.compile(r"google/protobuf/[a-z_]+\.proto")
# Modules with the other files that clients of registries have, by distribution.
_MODULES_WITH_FILES = {
    "googleapis-common-protos": re.compile(r"google/type/\w+_pb2\.py"),
    "confluent-kafka": re.compile(r"confluent_kafka/schema_registry/confluent/\w+(/\w+)?_pb2\.py"),
}


def compile_schema(registered: RegisteredSchema, wanted_fields: WantedFields) -> CompiledSchema:
    file = _compiled(registered)
    texts = {wanted_fields.names[attribute] for attribute in wanted_fields.texts}

    @cache
    def paths_of(message_path: tuple[int, ...]) -> tuple[Mapping[str, FieldPath], Tree]:
        paths = dict(_paths(_message(file, message_path), wanted_fields.names.values()))
        return paths, tree_of(paths.values())

    def fields(value: bytes) -> Any:
        try:
            message_path, start = _split_message_path(value)
            paths, tree = paths_of(message_path)
            contents = read_message(value, start, tree)
            read_fields = {
                name: value_at(contents, path, is_text=name in texts, max_bytes=wanted_fields.max_text_bytes)
                for name, path in paths.items()
            }
        except (LookupError, ValueError) as error:
            reason = f"the bytes do not fit the schema: {type(error).__name__}"
            raise DecodeError(ErrorCode.SCHEMA_MISMATCH, reason) from None
        return wanted_fields.from_mapping(read_fields)

    messages = _with_nested(file.message_types_by_name.values())
    names = {name for message in messages for name, _ in _paths(message, wanted_fields.names.values())}
    return CompiledSchema(fields, names)


def compile_writer(registered: RegisteredSchema, wanted_fields: WantedFields) -> Write:
    """Return a writer of the first message that has a text field, or the id of a key; else of the first message."""
    texts = [wanted_fields.names[attribute] for attribute in wanted_fields.texts or ("id",)]
    messages = list(_compiled(registered).message_types_by_name.values())[:_ONE_BYTE_MESSAGES]
    number = next((number for number, message in enumerate(messages) if any(_paths(message, texts))), 0)
    message_class = GetMessageClass(messages[number])
    # The path to the message in its file: length 1 and the number of the message, as zigzag varints.
    message_path = bytes([2 * 1, 2 * number])

    def write(fields: Mapping[str, Any]) -> bytes:
        try:
            message = ParseDict(nested(fields), message_class(), ignore_unknown_fields=True)
            return message_path + bytes(message.SerializeToString())
        except (ParseError, EncodeError, AttributeError, ArithmeticError) as error:
            # The text also quotes the value.
            names = ".".join(_MISFITS.findall(str(error)))  # the path, part by part
            reason = f"it does not fit the schema: {names or type(error).__name__}"
            raise DecodeError(ErrorCode.SCHEMA_MISMATCH, reason) from None

    return write


def _compiled(registered: RegisteredSchema) -> FileDescriptor:
    """Return the file of a schema; its text and its references are either all sources or all descriptors."""
    texts = {**registered.references, _MAIN_FILE: registered.text}
    _check_names(texts)
    try:
        described = [_descriptor(name, text) for name, text in texts.items()]
    except (ValueError, DamagedError):  # sources of schemas, not descriptors
        files = _run_protoc(texts, [_MAIN_FILE])
    else:
        files = [*_included(described, texts), *described]  # a file comes after those that it imports
    pool = DescriptorPool()
    try:
        for file in files:
            _drop_json_names(file.message_type)
            pool.Add(file)
        return pool.FindFileByName(_MAIN_FILE)
    except TypeError:
        raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, "its descriptor is incomplete") from None


def _included(files: Sequence[FileDescriptorProto], texts: Collection[str]) -> list[FileDescriptorProto]:
    """Return the files that some files import beside the references in ``texts``."""
    names = sorted({name for file in files for name in file.dependency} - set(texts))
    builtin = {file.name for file in _builtin_files().file}
    for name in names:
        if name not in builtin and not (_INCLUDED_NAME.fullmatch(name) and (_INCLUDED / name).is_file()):
            raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, "it imports a file that is neither a reference nor known")
    return _run_protoc({}, names) if names else []


def _drop_json_names(messages: Iterable[DescriptorProto]) -> None:
    """Replace JSON names by field names: protobuf, unlike protoc, refuses equal JSON names, and nothing reads them."""
    for message in messages:
        for field in message.field:
            field.json_name = field.name
        _drop_json_names(message.nested_type)


def _check_names(names: Collection[str]) -> None:
    """Raise ``DecodeError`` for names that are no paths of files in one folder, or that protoc takes for options."""
    folders = {name[:position] for name in names for position, letter in enumerate(name) if letter == "/"}
    for name in names:
        is_path = name.isprintable() and not {"", ".", ".."} & set(name.split("/"))
        if not is_path or name[0] in "-@" or name in folders or len(name.encode()) > _MAX_NAME_BYTES:
            raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, "a reference is no name of a file")
        if name.startswith("google/protobuf/"):
            raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, "a reference replaces a file of google.protobuf")


def _descriptor(name: str, text: str) -> FileDescriptorProto:
    """Return a file that Python registered as a descriptor in Base64; ``ValueError`` or ``DamagedError`` for others."""
    file: FileDescriptorProto = FileDescriptorProto.FromString(b64decode(text, validate=True))
    file.name = name
    return file


def _run_protoc(texts: Mapping[str, str], names: Sequence[str]) -> list[FileDescriptorProto]:
    """Return the descriptors of files of ``texts`` or of those that protoc has, and of those that they import.

    Raises ``DecodeError`` if they cannot be compiled within the limits of time and memory, ``RegistryUnavailable`` if
    another process ended protoc, and ``RegistryMisconfigured`` if it cannot run, or cannot write temporary files.
    """
    try:
        with TemporaryDirectory(prefix="streamdedup-protobuf-") as folder:
            return _compile_in(folder, texts, names)
    except OSError as error:
        raise RegistryMisconfigured(f"protoc cannot run, or use the folder of temporary files: {error}") from error
    except subprocess.TimeoutExpired:
        reason = f"protoc does not compile it within {PROTOC_TIMEOUT_S:g} s"
        raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, reason) from None


def _compile_in(folder: str, texts: Mapping[str, str], names: Sequence[str]) -> list[FileDescriptorProto]:
    files, builtin, output = (Path(folder, name) for name in ("files", "builtin", "descriptors"))
    files.mkdir()
    for name, text in texts.items():
        target = files / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8", errors="replace")
    builtin.write_bytes(_builtin_files().SerializeToString())
    sources = [f"-I{files}", f"-I{_INCLUDED}", f"--descriptor_set_in={builtin}"]
    options = [*sources, "--include_imports", f"--descriptor_set_out={output}"]
    # -P: a module of the working directory is not imported.
    command = [sys.executable, "-P", "-c", _PROTOC, str(PROTOC_BYTES), *options, *names]
    ended = subprocess.run(  # noqa: S603  no shell; ``_check_names`` and ``_INCLUDED_NAME`` admit no options as names
        command, stdin=subprocess.DEVNULL, capture_output=True, timeout=PROTOC_TIMEOUT_S, check=False
    )
    if ended.returncode < 0 and -ended.returncode not in _OWN_SIGNALS:
        raise RegistryUnavailable(f"protoc was ended by signal {-ended.returncode}")
    if ended.returncode:
        reason = " ".join(ended.stderr.decode(errors="replace").split())[:_MAX_REASON_LENGTH]
        raise DecodeError(ErrorCode.UNUSABLE_SCHEMA, f"it is no Protobuf file that protoc compiles: {reason}")
    return list(FileDescriptorSet.FromString(output.read_bytes()).file)


@cache
def _builtin_files() -> FileDescriptorSet:
    """Return the files that a schema may import without a reference, because clients of registries have them.

    The generated modules are parsed, not imported: an import would need more of confluent-kafka than its files.
    """
    files = FileDescriptorSet()
    for distribution, pattern in _MODULES_WITH_FILES.items():
        for module in metadata.files(distribution) or ():
            if pattern.fullmatch(module.as_posix()):
                for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
                    if isinstance(node, ast.Call) and ast.unparse(node.func).endswith(".AddSerializedFile"):
                        files.file.append(FileDescriptorProto.FromString(ast.literal_eval(node.args[0])))
    return files


def _split_message_path(value: bytes) -> tuple[tuple[int, ...], int]:
    count, position = _zigzag(value, 0)
    if count == 0:  # short form for the first message
        return (0,), position
    if not 0 < count <= _MAX_LEVELS:
        raise IndexError(count)
    path = []
    for _ in range(count):
        number, position = _zigzag(value, position)
        path.append(number)
    return tuple(path), position


def _zigzag(value: bytes, position: int) -> tuple[int, int]:
    number, position = read_varint(value, position, _MAX_VARINT_BITS)
    return (number >> 1) ^ -(number & 1), position


def _message(file: FileDescriptor, path: Sequence[int]) -> Descriptor:
    if min(path) < 0:  # a list would count from its end
        raise IndexError(path)
    first, *inner_path = path
    message: Descriptor = list(file.message_types_by_name.values())[first]
    for number in inner_path:
        message = message.nested_types[number]
    return message


def _with_nested(messages: Sequence[Descriptor]) -> Iterator[Descriptor]:
    for message in messages:
        yield message
        yield from _with_nested(message.nested_types)


def _paths(message: Descriptor, names: Iterable[str]) -> Iterator[tuple[str, FieldPath]]:
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
