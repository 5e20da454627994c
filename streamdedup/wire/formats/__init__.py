"""Value formats: value and headers become document fields. A new format is a module and a row in ``FORMATS``."""

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Final, NamedTuple, Protocol

from streamdedup.wire.formats.fields import Headers, WantedFields
from streamdedup.wire.formats.registry import VALUE_ID_HEADER, RegistryFormat
from streamdedup.wire.schema_registry import Registry


class ValueFormat(Protocol):
    def fields(self, value: bytes, headers: Headers) -> Any:
        """Return the fields in a value, an instance of ``WantedFields.struct``.

        Raises:
            DecodeError: The value cannot be read, in this or any later attempt.
            DocumentTooLarge: A text is longer than ``WantedFields.max_text_bytes``, and the record is no deletion.
            TransientError: A server that is needed does not answer; the batch is undone and read again.
            FatalError: An operator must help.
        """

    def batch(self) -> AbstractContextManager[None]:
        """Return a context in which one thread decodes a batch."""


class FormatRow(NamedTuple):
    """A format: its module, a ``registry.SchemaCompiler``, and the type of its schemas in a registry.

    Without schemas (None) the module has a function ``value_format`` instead.
    """

    module: str
    schema_type: str | None = None


#: All formats by name, as in the settings.
FORMATS: Final = {
    "json": FormatRow("streamdedup.wire.formats.json"),
    "avro": FormatRow("streamdedup.wire.formats.avro", "AVRO"),
    "json-schema": FormatRow("streamdedup.wire.formats.json_schema", "JSON"),
    "protobuf": FormatRow("streamdedup.wire.formats.protobuf", "PROTOBUF"),
}


def make_format(
    name: str, wanted_fields: WantedFields, registry: Registry | None, id_header: str = VALUE_ID_HEADER
) -> ValueFormat:
    """Return the format with a name in ``FORMATS``; for the name ``registry``, one that reads schemas of all types.

    Raises ``ModuleNotFoundError`` where the extra ``registry`` is missing, and ``ValueError`` where a registry is.
    """
    rows = FORMATS.values() if name == "registry" else [FORMATS[name]]
    # Imported here, because most formats need libraries of an extra.
    compilers = {row.schema_type: import_module(row.module) for row in rows if row.schema_type is not None}
    if not compilers:
        value_format: ValueFormat = import_module(FORMATS[name].module).value_format(wanted_fields)
        return value_format
    if registry is None:
        raise ValueError(f"the format {name} needs a schema registry")
    return RegistryFormat(wanted_fields, registry, compilers, id_header)
