"""A second reading of a message, by the JSON module of Python's library: what must, and what must not be a dead letter.

It shares no code with ``wire.Decoder``. About what it cannot judge plainly it says nothing.
"""

import json
import re
from typing import Any, Literal, NoReturn

#: What must become of a message as far as this reading can tell.
Verdict = Literal["dead letter", "no dead letter", "either"]

_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f]")
#: Beyond so many brackets a value may be nested too deep.
_FEW_BRACKETS = 200
_MOST_ID_BYTES = 1_024


class _Number(str):
    """A number as it is spelt: Python refuses to read the longest ones."""

    __slots__ = ()


def read(key: bytes | None, value: bytes | None, text_fields: tuple[str, ...], max_text_bytes: int) -> Verdict:
    """Judge one message of a profile with these text fields."""
    if value is None:
        return "either" if key else "dead letter"
    try:
        text = value.decode().removeprefix("\ufeff")
    except UnicodeDecodeError:
        return "either"  # a field that is skipped may hold anything
    if text.count("{") + text.count("[") > _FEW_BRACKETS:
        return "either"
    try:
        fields = json.loads(
            text, parse_int=_Number, parse_float=_Number, parse_constant=_refuse, object_pairs_hook=_without_repetition
        )
    except _Repeated:
        return "either"
    except ValueError:
        return "dead letter"
    if not isinstance(fields, dict):
        return "dead letter"
    return _judge(fields, key, text_fields, max_text_bytes)


class _Repeated(Exception):
    """A name occurs twice."""


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _Repeated
    return fields


def _judge(fields: dict[str, Any], key: bytes | None, text_fields: tuple[str, ...], max_text_bytes: int) -> Verdict:
    op = fields.get("op")
    if op not in (None, "upsert"):
        return "either" if op in ("append", "delete") else "dead letter"
    texts = [fields[name] for name in text_fields if fields.get(name) is not None]
    if not texts or not all(_is_text(text) for text in texts):
        return "dead letter"
    if not _is_id(fields.get("id"), key):
        return "either" if _has_half(fields.get("id")) else "dead letter"
    if len("\n".join(texts).encode("utf-8", "surrogatepass")) > max_text_bytes:
        return "dead letter"
    return "no dead letter"


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and not isinstance(value, _Number)


def _has_half(value: Any) -> bool:
    return isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value)


def _is_id(given: Any, key: bytes | None) -> bool:
    if given is None:
        if key is None:
            return True
        try:
            given = key.decode()
        except UnicodeDecodeError:
            return False
    if isinstance(given, _Number):
        return re.fullmatch("-?[0-9]{1,1000}", given) is not None
    if not isinstance(given, str) or _has_half(given):
        return False
    return 1 <= len(given.encode()) <= _MOST_ID_BYTES and not _CONTROL.search(given)
