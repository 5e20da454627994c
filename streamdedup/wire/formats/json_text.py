"""JSON texts, also of alerts, requests and files: their depth, their repair, and the encoding of fields."""

import re
from collections.abc import Mapping
from itertools import accumulate, chain
from typing import Final

import msgspec

#: Limit of nesting levels in a value: far below any interpreter's stack, so that the outcome is always the same.
MAX_DEPTH: Final = 256

_LINE_END = re.compile(rb"[\r\n]")
_BOM = b"\xef\xbb\xbf"
# A text up to and with its first lone surrogate; whole surrogate pairs and all other escapes are passed over.
_LONE_SURROGATE = re.compile(
    rb"(?:[^\\]++|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\(?!u[dD][89a-fA-F][0-9a-fA-F]{2}).)*+"
    rb"(\\u[dD][89a-fA-F][0-9a-fA-F]{2})",
    re.DOTALL,
)
# Limit of lone surrogates in a value: each takes two microseconds, so that those of a large value would take a minute.
_MAX_LONE_SURROGATES: Final = 10_000
# A JSON string, also one without its end; possessive, so that the time of a search is linear.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
# Up to 1,000 strings and the text between them: all strings of a value at once could take fourteen times its bytes.
_SOME_STRINGS = re.compile(rb'(?:"(?:[^"\\]++|\\.)*+"?|[^"]++){1,1000}+', re.DOTALL)
_ALL_BUT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def is_too_deep(value: bytes) -> bool:
    """Return whether a JSON text is nested deeper than ``MAX_DEPTH``, well-formed or not."""
    return value.count(b"{") + value.count(b"[") > MAX_DEPTH and _depth(value) > MAX_DEPTH


def _depth(value: bytes) -> int:
    """Return the nesting depth of brackets outside strings, well-formed or not."""
    parts = (_STRING.sub(b"", part[0]).translate(None, _ALL_BUT_BRACKETS) for part in _SOME_STRINGS.finditer(value))
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


def one_line(value: bytes) -> bytes:
    """Return JSON without line ends, which would divide an event or a line of ``tail --json``; else unchanged."""
    return value if _LINE_END.search(value) is None else msgspec.json.format(value, indent=-1)


def encode_fields(fields: Mapping[str, str | int | None]) -> bytes:
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not None})
