"""JSON: an object with the document fields; other fields are skipped without validation.

A repeated field has its last value. A byte order mark is blanked, and a lone surrogate becomes U+FFFD, except in the
id, which is refused. ``json_schema`` uses ``JsonFormat`` with ``decode``; ``serve`` and ``corpora`` use the functions.
"""

import re
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from itertools import accumulate
from typing import Any, Final

import msgspec

from streamdedup.errors import DecodeError
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.fields import Headers, Schema

#: Limit of nesting levels in a value: far above any sensible message and far below any interpreter's stack, so that the
#: outcome is the same on every Python.
MAX_DEPTH: Final = 256

_BOM = b"\xef\xbb\xbf"
# First bytes of an object in UTF-16, with a byte order mark or without.
_UTF16 = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{")
# One escape of a JSON string: a whole surrogate pair, half of one (group 1), or any other.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
# A JSON string, also one without its end; possessive, so that the time of a search is linear.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))  # all bytes but brackets


class JsonFormat:
    """Reads JSON objects; see ``ValueFormat``.

    Args:
        schema: Fields to return.
        decode: Returns an instance of ``schema.struct``, raises as ``msgspec`` does. None where all fields are at the
            top level; of ``json_schema`` for nested fields.
    """

    def __init__(self, schema: Schema, decode: Callable[[bytes], Any] | None = None) -> None:
        self._schema = schema
        self._decode = decode or msgspec.json.Decoder(schema.struct).decode

    def batch(self) -> AbstractContextManager[None]:
        """See ``ValueFormat.batch``."""
        return nullcontext()

    def fields(self, value: bytes, headers: Headers = ()) -> Any:
        """See ``ValueFormat.fields``."""
        if is_too_deep(value):
            raise DecodeError(ErrorCode.TOO_DEEP, f"the value is nested deeper than {MAX_DEPTH} levels")
        try:
            return self._decode(value)
        except msgspec.ValidationError as error:
            raise self._schema.wrong_type(error) from None
        except ValueError as error:  # of msgspec, which refuses a byte order mark and lone surrogates
            # A value that begins with a zero byte is no JSON, but framed: `_malformed` reports its schema id unchanged.
            repaired = value if value[:1] == b"\0" else repair_json(value)
            if repaired == value:
                raise _malformed(value, error) from None
        # Ids that differ after two different replacements have a lone surrogate. After the repair two such ids could be
        # equal. These calls go no deeper: a repaired value is its own repair.
        fields, control = self.fields(repaired, headers), self.fields(repair_json(value, b"u0000"), headers)
        if fields.id != control.id:
            raise self._schema.bad_id("contains half of a surrogate pair")
        return fields


def value_format(schema: Schema) -> JsonFormat:
    """Return the format of a profile."""
    return JsonFormat(schema)


def encode_fields(fields: Mapping[str, str | int | None]) -> bytes:
    """Return the fields that are not None as a JSON object."""
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not None})


def is_too_deep(value: bytes) -> bool:
    """Tell whether a JSON text is nested deeper than ``MAX_DEPTH``, well-formed or not."""
    return value.count(b"{") + value.count(b"[") > MAX_DEPTH and _depth(value) > MAX_DEPTH


def _depth(value: bytes) -> int:
    """Return the nesting depth of brackets outside strings, well-formed or not."""
    brackets = _STRING.sub(b"", value).translate(None, _NO_BRACKETS)
    return max(accumulate((1 if bracket in b"[{" else -1 for bracket in brackets), initial=0))


def repair_json(value: bytes, replacement: bytes = b"ufffd") -> bytes:
    """Blank a byte order mark, and replace lone surrogates by another escape; all other bytes keep their positions."""
    if value.startswith(_BOM):
        value = b"   " + value[len(_BOM) :]
    return _ESCAPE.sub(lambda escape: b"\\" + replacement if escape[1] else escape[0], value)


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
