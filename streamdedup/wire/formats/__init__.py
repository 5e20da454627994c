"""Value formats: value and headers become document fields.

A format is a module and a row in ``FORMATS``. A profile has one format; files of documents are read as JSON.
"""

from importlib import import_module
from typing import Any, Final, Protocol

from streamdedup.wire.formats.fields import Headers, Schema
from streamdedup.wire.formats.json import JsonFormat
from streamdedup.wire.formats.registry import Registry, RegistryFormat


class ValueFormat(Protocol):
    """One value format."""

    def fields(self, value: bytes, headers: Headers) -> Any:
        """Return the fields in a value, an instance of ``Schema.struct``.

        Raises:
            DecodeError: The value cannot be read, in this or any later attempt; the record becomes a dead letter.
            TransientError: A server that is needed does not answer; the batch is undone and read again.
            FatalError: An operator must help; the daemon ends.
        """


#: Formats with a schema registry: the type of their schemas there, and the module (``SchemaCompiler``).
FORMATS: Final = {
    "avro": ("AVRO", "streamdedup.wire.formats.avro"),
    "json-schema": ("JSON", "streamdedup.wire.formats.json_schema"),
    "protobuf": ("PROTOBUF", "streamdedup.wire.formats.protobuf"),
}


def make_format(name: str, schema: Schema, registry: Registry | None) -> ValueFormat:
    """Return a format.

    Args:
        name: ``json`` or a key of ``FORMATS``.
        schema: The fields.
        registry: The schema registry; not for ``json``.

    Raises:
        ModuleNotFoundError: The format needs a library of the extra ``registry``.
    """
    if name == "json" or registry is None:
        return JsonFormat(schema)
    kind, module = FORMATS[name]
    return RegistryFormat(schema, registry, kind, import_module(module))
