"""Value formats: value and headers become document fields. A new format is a module and a row in ``FORMATS``."""

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any, Final, Protocol

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


#: By name, as in the settings: the module of the format, and the type of its schemas in a registry. The module is a
#: ``registry.SchemaCompiler``; of the format without schemas it has a function ``value_format`` instead.
FORMATS: Final[dict[str, tuple[str, str | None]]] = {
    "json": ("streamdedup.wire.formats.json", None),
    "avro": ("streamdedup.wire.formats.avro", "AVRO"),
    "json-schema": ("streamdedup.wire.formats.json_schema", "JSON"),
    "protobuf": ("streamdedup.wire.formats.protobuf", "PROTOBUF"),
}


def make_format(
    name: str, wanted_fields: WantedFields, registry: Registry | None, id_header: str = VALUE_ID_HEADER
) -> ValueFormat:
    """Return the format with a name in ``FORMATS``; for the name ``registry``, one that reads schemas of all types.

    Raises ``ModuleNotFoundError`` where the extra ``registry`` is missing, and ``ValueError`` where a registry is.
    """
    formats = FORMATS.values() if name == "registry" else [FORMATS[name]]
    # Imported here, because most formats need libraries of an extra.
    compilers = {schema_type: import_module(module) for module, schema_type in formats if schema_type is not None}
    if not compilers:
        value_format: ValueFormat = import_module(FORMATS[name][0]).value_format(wanted_fields)
        return value_format
    if registry is None:
        raise ValueError(f"the format {name} needs a schema registry")
    return RegistryFormat(wanted_fields, registry, compilers, id_header)
