"""JSON: an object with the document fields; other fields are skipped without validation.

``payload.body`` in the settings names the field ``payload.body``; where it is missing or null, the field ``body`` of
the object in the field ``payload``. A repeated field has its last value. A byte order mark is blanked, and a lone
surrogate becomes U+FFFD; an id with a lone surrogate is refused, and so is a value with many.

``formats.make_format`` calls ``value_format``, and ``json_schema`` uses ``JsonFormat``. ``serve`` checks and repairs
bodies with ``is_too_deep`` and ``repair_json``; ``alerts`` uses ``is_too_deep``, ``corpora`` ``encode_fields``.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate, chain
from typing import Any, Final

import msgspec

from streamdedup.errors import DecodeError, DocumentTooLarge
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.fields import PLACE, Headers, Path, WantedFields

#: Limit of nesting levels in a value: far above any sensible message and far below any interpreter's stack, so that the
#: outcome is the same on every Python.
MAX_DEPTH: Final = 256

_BOM = b"\xef\xbb\xbf"
# First bytes of an object in UTF-16, with a byte order mark or without.
_UTF16 = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{")
# A text up to and with its first lone surrogate; whole surrogate pairs and all other escapes are passed over.
_LONE_SURROGATE = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?!u[dD][89a-fA-F][0-9a-fA-F]{2}).)*+"
    rb"(\\u[dD][89a-fA-F][0-9a-fA-F]{2})",
    re.DOTALL,
)
# A JSON string, also one without its end; possessive, so that the time of a search is linear.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
# Up to 1,000 strings and the text between them: all strings of a value at once could take fourteen times its bytes.
_SOME_STRINGS = re.compile(rb'(?:"(?:[^"\\]++|\\.)*+"?|[^"]++){1,1000}+', re.DOTALL)
_DECODE_PLAIN = msgspec.json.Decoder(str | int | None).decode
# Limit of lone surrogates in a value: each takes two microseconds, so that those of a large value would take a minute.
_MAX_LONE_SURROGATES: Final = 10_000
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))  # all bytes but brackets


class JsonFormat:
    """Reads JSON objects: the ``ValueFormat`` of files, and of records without a registry."""

    def __init__(self, wanted: WantedFields) -> None:
        self._wanted = wanted
        # Fields that alerts repeat: a wrong type is no error, so they are read as bytes, and decoded by `_plain`.
        self._passed_on = [attribute for attribute, type_ in wanted.types.items() if type_ is Any]
        self._read = _reader(wanted, wanted.types | dict.fromkeys(self._passed_on, msgspec.Raw))
        self._read_texts = _reader(wanted, dict.fromkeys(wanted.texts, msgspec.Raw))
        self._read_needed = _reader(wanted, wanted.needed)
        if "" in wanted.paths:  # the whole value is the id, as in keys
            self._read = lambda value: wanted.struct(_DECODE_PLAIN(value))

    def batch(self) -> AbstractContextManager[None]:
        return nullcontext()

    def fields(self, value: bytes, headers: Headers = ()) -> Any:
        if is_too_deep(value):
            raise DecodeError(ErrorCode.TOO_DEEP, f"the value is nested deeper than {MAX_DEPTH} levels")
        try:
            # Refuse long texts before they are decoded, to four bytes for a character. JSON has at most six bytes,
            # those of an escape, for a byte of UTF-8.
            if len(value) > 6 * self._wanted.max_text_bytes:
                self._check_texts(value)
            fields = self._read(value)
        except (msgspec.ValidationError, DocumentTooLarge) as error:
            struct, asdict = self._wanted.struct, msgspec.structs.asdict
            return self._wanted.deletion(
                error, lambda: struct(**asdict(self._read_needed(repair_json(value, b"u0000"))))
            )
        except ValueError as error:  # of msgspec, which refuses a byte order mark and lone surrogates
            # A value that begins with a zero byte is no JSON, but framed: `_malformed` reports its schema id unchanged.
            repaired = value if value[:1] == b"\0" else repair_json(value)
            if repaired == value:
                raise _malformed(value, error) from None
        else:
            for attribute in self._passed_on:
                setattr(fields, attribute, _plain(getattr(fields, attribute)))
            return fields
        # Two ids that differ in lone surrogates would become equal, so such an id is refused: it gets a NUL here, which
        # no id may have. These calls do not come here again, because a repaired value needs no repair.
        with_nulls = self.fields(repair_json(value, b"u0000"), headers).id
        if isinstance(with_nulls, str) and "\0" in with_nulls:
            raise self._wanted.bad_id("contains half of a surrogate pair, or a control character")
        return self.fields(repaired, headers)

    def _check_texts(self, value: bytes) -> None:
        texts = self._read_texts(value)
        for attribute in self._wanted.texts:
            raw = getattr(texts, attribute)
            if raw is not None and (length := memoryview(raw).nbytes) > 6 * self._wanted.max_text_bytes + len(b'""'):
                raise self._wanted.too_large(length)


def value_format(wanted: WantedFields) -> JsonFormat:
    return JsonFormat(wanted)


def encode_fields(fields: Mapping[str, str | int | None]) -> bytes:
    """Return the fields that are not None as a JSON object."""
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not None})


def is_too_deep(value: bytes) -> bool:
    """Return whether a JSON text is nested deeper than ``MAX_DEPTH``, well-formed or not."""
    return value.count(b"{") + value.count(b"[") > MAX_DEPTH and _depth(value) > MAX_DEPTH


def _depth(value: bytes) -> int:
    """Return the nesting depth of brackets outside strings, well-formed or not."""
    parts = (_STRING.sub(b"", part[0]).translate(None, _NO_BRACKETS) for part in _SOME_STRINGS.finditer(value))
    brackets = chain.from_iterable(parts)
    return max(accumulate((1 if bracket in b"[{" else -1 for bracket in brackets), initial=0))


def repair_json(value: bytes, replacement: bytes = b"ufffd") -> bytes:
    """Blank a byte order mark, replace lone surrogates by the escape ``replacement``; other bytes keep their places.

    A value with more than ``_MAX_LONE_SURROGATES`` is returned unchanged.
    """
    repaired = bytearray(value)
    if value.startswith(_BOM):
        repaired[: len(_BOM)] = b"   "
    position, count = 0, 0
    while surrogate := _LONE_SURROGATE.match(value, position):  # a search would begin anew at each byte
        if (count := count + 1) > _MAX_LONE_SURROGATES:
            return value
        repaired[slice(*surrogate.span(1))] = b"\\" + replacement
        position = surrogate.end()
    return bytes(repaired)


def _reader(wanted: WantedFields, types: Mapping[str, Any]) -> Callable[[bytes], Any]:
    """Return a function that reads the attributes in ``types`` from a JSON object; an absent one is None."""
    fields = [(attribute, type_, None) for attribute, type_ in types.items()]
    names = {attribute: wanted.names[attribute] for attribute in types}
    decode = msgspec.json.Decoder(msgspec.defstruct("Fields", fields, rename=names)).decode
    nested_paths = {attribute: path for attribute, name in names.items() for path in wanted.paths[name][1:]}
    fill = _filler(types, nested_paths)

    def read(value: bytes) -> Any:
        decoded = decode(value)
        fill(decoded, value)
        return decoded

    return read if nested_paths else decode


def _plain(raw: Any) -> Any:
    """Return the text or number in a field that alerts repeat; anything else as it is: ``Decoder`` leaves it out."""
    if raw is None:
        return None
    try:
        return _DECODE_PLAIN(raw)
    except ValueError:
        return raw


def _is_null(content: Any) -> bool:
    return content is None or (isinstance(content, msgspec.Raw) and bytes(memoryview(content)[:1]) == b"n")


def _filler(types: Mapping[str, Any], paths: Mapping[str, Path], path_prefix: str = "") -> Callable[[Any, Any], None]:
    """Return a function that gets fields and a JSON object, and sets the fields that are None from the object.

    With the paths ``{"id": ("payload", "id")}`` and the object ``{"payload": {"id": 7}}`` the field ``id`` becomes 7.
    Where a path leads to nothing, or through another type than an object, the field stays None. ``path_prefix`` is the
    path of the object itself, for errors, with a dot behind each name.
    """
    leaves = {attribute: path[0] for attribute, path in paths.items() if len(path) == 1}
    longer: dict[str, dict[str, Path]] = {}
    for attribute, (name, *inner_path) in paths.items():
        if inner_path:
            longer.setdefault(name, {})[attribute] = tuple(inner_path)
    objects = {f"object_{i}": name for i, name in enumerate(longer)}
    fillers = {attribute: _filler(types, longer[name], f"{path_prefix}{name}.") for attribute, name in objects.items()}
    leaf_types = [(attribute, types[attribute], None) for attribute in leaves]
    read_leaves = msgspec.json.Decoder(msgspec.defstruct("Leaves", leaf_types, rename=leaves)).decode
    raw_types = [(attribute, msgspec.Raw, None) for attribute in objects]
    read_objects = msgspec.json.Decoder(msgspec.defstruct("Objects", raw_types, rename=objects)).decode

    def fill(fields: Any, value: Any) -> None:
        try:
            leaf_values = read_leaves(value) if leaves else None
        except msgspec.ValidationError as error:
            raise msgspec.ValidationError(str(error).replace(PLACE, f"{PLACE}{path_prefix}")) from None
        for attribute in leaves:
            if _is_null(getattr(fields, attribute)):
                setattr(fields, attribute, getattr(leaf_values, attribute))
        inner = read_objects(value) if fillers else None
        for attribute, fill_inner in fillers.items():
            raw = getattr(inner, attribute)
            if raw is not None and bytes(memoryview(raw)[:1]) == b"{":
                fill_inner(fields, raw)

    return fill


def _malformed(value: bytes, error: ValueError) -> DecodeError:
    """Return the most helpful error for malformed JSON; the text of msgspec quotes nothing of the value."""
    code, reason = ErrorCode.NOT_JSON, f"the value is not JSON: {error}" if value else "the value is empty"
    if value.startswith(_UTF16):
        code, reason = ErrorCode.NOT_UTF8, "the value is UTF-16; UTF-8 is wanted"
    elif value[:1] == b"\0" and len(value) >= 5:  # as in `registry`: a zero byte, and a schema id of four bytes
        code = ErrorCode.FOREIGN_FRAMING
        reason = f"the value is framed for schema registry id {int.from_bytes(value[1:5], 'big')}; plain JSON is wanted"
    else:
        try:
            value.decode()
        except UnicodeDecodeError as undecodable:
            code = ErrorCode.NOT_UTF8
            reason = f"the value is not UTF-8: invalid byte at position {undecodable.start:,}"
    return DecodeError(code, reason)
