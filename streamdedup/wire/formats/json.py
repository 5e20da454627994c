"""JSON: an object with the document fields; other fields are skipped without validation.

``payload.body`` in the settings names the field ``payload.body``; where it is missing or null, the field ``body`` of
the object in the field ``payload``. A repeated field has its last value. A byte order mark is blanked, and a lone
surrogate becomes U+FFFD; an id with a lone surrogate is refused, and so is a value with many.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from streamdedup.errors import DecodeError, DocumentTooLarge
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.fields import PATH_MARK, Headers, Path, WantedFields
from streamdedup.wire.formats.json_text import MAX_DEPTH, is_too_deep, repair_json

# First bytes of an object in UTF-16, with a byte order mark or without.
_UTF16 = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{")
_DECODE_PLAIN = msgspec.json.Decoder(str | int | None).decode
# Most bytes of JSON for a byte of UTF-8: those of an escape.
_ESCAPE_BYTES = 6


class JsonFormat:
    """Reads all fields at once, of a long value the raw texts first; after a failure only the fields of a deletion."""

    def __init__(self, wanted_fields: WantedFields) -> None:
        self._wanted = wanted_fields
        # Fields that alerts repeat: a wrong type is no error, so they are read as raw JSON, and decoded by `_plain`.
        self._passed_on = [attribute for attribute, type_ in wanted_fields.types.items() if type_ is Any]
        self._read = _reader(wanted_fields, wanted_fields.types | dict.fromkeys(self._passed_on, msgspec.Raw))
        self._read_texts = _reader(wanted_fields, dict.fromkeys(wanted_fields.texts, msgspec.Raw))
        self._read_needed = _reader(wanted_fields, wanted_fields.needed)
        if "" in wanted_fields.paths:  # the whole value is the id, as in keys
            self._read = lambda value: wanted_fields.struct(_DECODE_PLAIN(value))

    def batch(self) -> AbstractContextManager[None]:
        return nullcontext()

    def fields(self, value: bytes, _headers: Headers = ()) -> Any:
        if is_too_deep(value):
            raise DecodeError(ErrorCode.TOO_DEEP, f"the value is nested deeper than {MAX_DEPTH} levels")
        try:
            if len(value) > _ESCAPE_BYTES * self._wanted.max_text_bytes:
                self._check_texts(value)
            fields = self._read(value)
        except (msgspec.ValidationError, DocumentTooLarge) as error:
            return self._wanted.deletion_or_raise(error, lambda: self._needed_fields(value))
        except ValueError as error:  # of msgspec, for a byte order mark, lone surrogates, and what is no JSON
            return self._repaired_fields(value, error)
        for attribute in self._passed_on:
            setattr(fields, attribute, _plain(getattr(fields, attribute)))
        return fields

    def _check_texts(self, value: bytes) -> None:
        """Refuse long texts before they are decoded, to four bytes for a character."""
        texts = self._read_texts(value)
        limit = _ESCAPE_BYTES * self._wanted.max_text_bytes + 2  # the quotes
        for attribute in self._wanted.texts:
            raw = getattr(texts, attribute)
            if raw is not None and (length := memoryview(raw).nbytes) > limit:
                raise self._wanted.too_large(length)

    def _needed_fields(self, value: bytes) -> Any:
        needed = self._read_needed(repair_json(value, b"u0000"))
        return self._wanted.struct(**msgspec.structs.asdict(needed))

    def _repaired_fields(self, value: bytes, error: ValueError) -> Any:
        """Return the fields of a value after its repair; raise if there is nothing to repair: it is no JSON."""
        # A value that begins with a zero byte is no JSON, but framed: its schema id is reported unchanged.
        repaired = value if value[:1] == b"\0" else repair_json(value)
        if repaired == value:
            raise _malformed_error(value, error) from None
        # Two ids that differ in lone surrogates would become equal, so such an id is refused: it gets a NUL here, which
        # no id may have. ``fields`` does not come here again, because a repaired value needs no repair.
        with_nulls = self.fields(repair_json(value, b"u0000")).id
        if isinstance(with_nulls, str) and "\0" in with_nulls:
            raise self._wanted.bad_id("contains half of a surrogate pair, or a control character")
        return self.fields(repaired)


value_format = JsonFormat  # for `FORMATS`


def _plain(raw: Any) -> Any:
    """Return the text or number in a field that alerts repeat; anything else as it is: ``Decoder`` leaves it out."""
    if raw is None:
        return None
    try:
        return _DECODE_PLAIN(raw)
    except ValueError:
        return raw


def _malformed_error(value: bytes, error: ValueError) -> DecodeError:
    if value.startswith(_UTF16):
        return DecodeError(ErrorCode.NOT_UTF8, "the value is UTF-16; UTF-8 is wanted")
    if value[:1] == b"\0" and len(value) >= 5:  # as in `registry`: a zero byte, and a schema id of four bytes
        schema_id = int.from_bytes(value[1:5], "big")
        reason = f"the value is framed for schema registry id {schema_id}; plain JSON is wanted"
        return DecodeError(ErrorCode.FOREIGN_FRAMING, reason)
    try:
        value.decode()
    except UnicodeDecodeError as undecodable:
        reason = f"the value is not UTF-8: invalid byte at position {undecodable.start:,}"
        return DecodeError(ErrorCode.NOT_UTF8, reason)
    return DecodeError(ErrorCode.NOT_JSON, f"the value is not JSON: {error}" if value else "the value is empty")


def _reader(wanted_fields: WantedFields, types: Mapping[str, Any]) -> Callable[[bytes], Any]:
    """Return a function that reads the attributes in ``types`` from a JSON object; an absent one is None."""
    names = {attribute: wanted_fields.names[attribute] for attribute in types}
    decode = _flat_reader(types, names)
    # The first path of a name is the name itself.
    nested_paths = {attribute: path for attribute, name in names.items() for path in wanted_fields.paths[name][1:]}
    fill = _filler(types, nested_paths)

    def read(value: bytes) -> Any:
        decoded = decode(value)
        fill(decoded, value)
        return decoded

    return read if nested_paths else decode


def _flat_reader(types: Mapping[str, Any], names: Mapping[str, str]) -> Callable[[Any], Any]:
    fields = [(attribute, types[attribute], None) for attribute in names]
    return msgspec.json.Decoder(msgspec.defstruct("Fields", fields, rename=names)).decode


def _filler(types: Mapping[str, Any], paths: Mapping[str, Path], path_prefix: str = "") -> Callable[[Any, Any], None]:
    """Return a function that gets fields and a JSON object, and sets the fields that are None from the object.

    With the paths ``{"id": ("payload", "id")}`` and the object ``{"payload": {"id": 7}}`` the field ``id`` becomes 7.
    Where a path leads to nothing, or through another type than an object, the field stays None. ``path_prefix``, of an
    inner object, is for errors.
    """
    leaves = {attribute: path[0] for attribute, path in paths.items() if len(path) == 1}
    inner_paths: dict[str, dict[str, Path]] = {}  # by the name of an inner object
    for attribute, (name, *inner_path) in paths.items():
        if inner_path:
            inner_paths.setdefault(name, {})[attribute] = tuple(inner_path)
    # Attributes whose names Python allows.
    objects = {f"object_{number}": name for number, name in enumerate(inner_paths)}
    read_leaves = _flat_reader(types, leaves)
    read_objects = _flat_reader(dict.fromkeys(objects, msgspec.Raw), objects)
    fillers = {key: _filler(types, inner_paths[name], f"{path_prefix}{name}.") for key, name in objects.items()}

    def fill(fields: Any, value: Any) -> None:
        try:
            leaf_values = read_leaves(value) if leaves else None
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(str(error).replace(PATH_MARK, f"{PATH_MARK}{path_prefix}")) from None
        for attribute in leaves:
            if _is_null(getattr(fields, attribute)):
                setattr(fields, attribute, getattr(leaf_values, attribute))
        inner = read_objects(value) if fillers else None
        for attribute, fill_inner in fillers.items():
            raw = getattr(inner, attribute)
            if raw is not None and bytes(memoryview(raw)[:1]) == b"{":
                fill_inner(fields, raw)

    return fill


def _is_null(content: Any) -> bool:
    return content is None or (isinstance(content, msgspec.Raw) and bytes(memoryview(content)[:1]) == b"n")
