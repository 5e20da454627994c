"""The kinds of values that settings have: how each is read, written and described; ``hosts`` has further ones.

Sections declare their keys with types such as ``Duration``: Python type, reader and ``Kind``. A value is typed (from
TOML) or text (from the environment or the command line). Readers (``parse_...``) accept both, never guess (no number
without its unit, no truth value for a number), and raise ``ValueError`` for anything else, without repeating the value.
Readers of optional keys accept None, which programs may pass.

Two types of pydantic 2.14 guess, so no key has them: ``ByteSize`` reads "1,5MiB" and ``True`` as 1 byte, "32.120kB" as
32,119 bytes; ``AwareDatetime`` reads "20260501" as seconds (August 1970), and not "20260501T060000Z".
"""

import contextlib
import json
import math
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

Parsed = TypeVar("Parsed")


def write_text(value: object) -> str:
    """Write a text as a TOML basic string; JSON escapes the same characters except U+007F."""
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


@dataclass(frozen=True, slots=True)
class Kind:
    """The kind of a key's value: how messages describe it, and how a settings file writes it.

    ``write`` makes TOML that reads as the same value. ``hint`` ends the description of the allowed values, after
    ``noun`` and the bounds. ``words`` are allowed in place of a path: ``"none"`` for the list of stop words.
    """

    noun: str
    write: Callable[[Any], str] = write_text
    hint: str = ""
    is_path: bool = False
    words: tuple[str, ...] = ()


NOT_EMPTY = Kind("a text that is not empty")
#: A text that may be absent but not empty.
OptionalText = Annotated[str | None, Field(min_length=1), NOT_EMPTY]
#: A text that is never shown.
Secret = Annotated[SecretStr | None, Field(min_length=1), NOT_EMPTY]
#: One word of a fixed list, declared as a Literal.
WORD = Kind("one of the words")


#: A number and its unit, white space between them allowed. ASCII digits only, few enough for a float to be finite.
_QUANTITY = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,9})?)\s*([A-Za-z]+)")
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
BYTES = {"B": 1, "kB": 1000, "MB": 1000**2, "GB": 1000**3, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}


def parse_duration(value: object) -> float:
    """Read ``"30d"``, ``"12h"``, ``"5m"``, ``"90s"`` or ``"500ms"`` as seconds; a number needs its unit."""
    match = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None or match[2] not in SECONDS:
        raise ValueError("not a duration")
    return float(match[1]) * SECONDS[match[2]]


def format_duration(seconds: float) -> str:
    """Write seconds in the largest unit that leaves a whole number, milliseconds otherwise."""
    for unit in ("d", "h", "m", "s"):
        count = seconds / SECONDS[unit]
        if count >= 1 and count == int(count):
            return f"{int(count)}{unit}"
    if seconds == 0:
        return "0s"
    milliseconds = f"{seconds * 1000:.9f}".rstrip("0").rstrip(".")  # ``_QUANTITY`` reads nine decimals
    return f"{milliseconds}ms"


Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    Kind(
        "a duration", lambda value: write_text(format_duration(value)), ', such as "500ms", "90s", "5m", "12h" or "30d"'
    ),
]


def parse_size(value: object) -> int:
    """Read ``"1MiB"``, ``"512KiB"``, ``"1MB"`` or a whole number as bytes; refuse a part of a byte."""
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value.strip())
        if match is not None and match[2] in BYTES:
            # Decimal, because a float holds no more than 15 digits.
            size = Decimal(match[1]) * BYTES[match[2]]
            if size == int(size):
                return int(size)
    return parse_whole(value)


def format_size(size_bytes: int) -> str:
    """Write bytes in the largest binary unit that leaves a whole number, plain bytes otherwise."""
    for unit in ("GiB", "MiB", "KiB"):
        if size_bytes and size_bytes % BYTES[unit] == 0:
            return f"{size_bytes // BYTES[unit]}{unit}"
    return f"{size_bytes}B"


Size = Annotated[
    int,
    BeforeValidator(parse_size),
    Kind("a size", lambda value: write_text(format_size(value)), ', such as "512KiB", "1MiB" or a number of bytes'),
]


#: A whole number as text, of at most 20 digits; the bound of whole numbers of any form.
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}")
_WHOLE_BOUND = 10**20


def parse_whole(value: object) -> int:
    """Read a whole number of at most 20 digits; ``true`` and ``1.0`` are refused."""
    # The bound: a hexadecimal number of TOML may have more digits than Python writes, 4,300.
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) < _WHOLE_BOUND:
        return value
    if isinstance(value, str) and _WHOLE.fullmatch(value.strip()):
        return int(value)
    raise ValueError("not a whole number")


def parse_number(value: object) -> float:
    if isinstance(value, int | float | str) and not isinstance(value, bool):
        try:
            number = float(value)
        except (ValueError, OverflowError):
            number = math.nan
        if math.isfinite(number):
            return number
    raise ValueError("not a number")


def parse_unless_none(parse: Callable[[object], Parsed]) -> Callable[[object], Parsed | None]:
    """Return a reader that also reads ``"none"`` and None, as None."""

    def read(value: object) -> Parsed | None:
        is_none = value is None or (isinstance(value, str) and value.strip().lower() == "none")
        return None if is_none else parse(value)

    return read


Whole = Annotated[int, BeforeValidator(parse_whole), Kind("a whole number", str)]
#: A whole number, or None, which a settings file does not have.
OptionalWhole = Annotated[int | None, BeforeValidator(parse_unless_none(parse_whole)), Kind("a whole number", str)]
#: A whole number, or None for no limit.
Limit = Annotated[
    int | None,
    BeforeValidator(parse_unless_none(parse_whole)),
    Kind("a whole number", lambda value: '"none"' if value is None else str(value), ', or "none" for no limit'),
]
Number = Annotated[float, BeforeValidator(parse_number), Kind("a number", repr)]
#: A finite number, or None for a rule that is off.
OptionalNumber = Annotated[
    float | None,
    BeforeValidator(parse_unless_none(parse_number)),
    Kind("a number", lambda value: '"none"' if value is None else repr(value), ', or "none"'),
]


def parse_flag(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in {"true", "false"}:
        return value.strip().lower() == "true"
    raise ValueError("not a truth value")


Flag = Annotated[bool, BeforeValidator(parse_flag), Kind("true or false", lambda value: str(value).lower())]
#: Forms of a list of texts, for messages and documentation.
LISTED = "as a list or with commas between them"


def parse_list(value: object) -> object:
    """Split a text at its commas; return any other value unchanged, which pydantic checks."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",")]
    return value


def parse_pairs(value: object) -> object:
    """Parse TOML text; turn the table of ``op_values`` into pairs, ``{c = "upsert"}`` into ``[("c", "upsert")]``."""
    if isinstance(value, str):
        try:
            (value,) = tomllib.loads(f"pairs = {value.strip()}").values()  # a further line would be another key
        except (ValueError, RecursionError):
            raise ValueError("not a list of pairs") from None
    return list(value.items()) if isinstance(value, Mapping) else value


def write_list(value: Iterable[str]) -> str:
    return f"[{', '.join(write_text(item) for item in value)}]"


def write_pairs(value: Iterable[Iterable[str]]) -> str:
    return f"[{', '.join(write_list(pair) for pair in value)}]"


#: A version of Kafka, and the oldest one that knows zstd (KIP-110), by which alerts are compressed.
_VERSION = re.compile(r"[0-9]{1,3}(\.[0-9]{1,3}){1,3}")
_ZSTD_SINCE = (2, 1)


def parse_version(value: object) -> tuple[int, ...] | None:
    """Read the version ``"2.3"`` as ``(2, 3)``; it must be text, because as a number 2.10 would be 2.1."""
    if value is None:
        return None
    version = tuple(map(int, value.split("."))) if isinstance(value, str) and _VERSION.fullmatch(value) else (0,)
    if version < _ZSTD_SINCE:
        raise ValueError("not a version")
    return version


Version = Annotated[
    tuple[int, ...] | None,
    BeforeValidator(parse_version),
    Kind("a version from 2.1 on as text", lambda value: write_text(".".join(map(str, value))), ', such as "2.8"'),
]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def parse_moment(value: object) -> int | None:
    """Read a time with its zone, such as ``"2026-05-01T06:00:00Z"``, as milliseconds since the epoch."""
    if value is None:
        return None
    moment = value
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            moment = datetime.fromisoformat(value)
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise ValueError("not a time with a time zone")
    time_ms = round((moment - _EPOCH) / _MILLISECOND)
    try:
        format_moment(time_ms)  # the zone or the rounding may lead out of the years that Python can write
    except OverflowError:
        raise ValueError("not a time of the years 1 to 9999 in UTC") from None
    return time_ms


def format_moment(time_ms: int) -> str:
    """Write milliseconds since the epoch as a time in UTC."""
    text = (_EPOCH + time_ms * _MILLISECOND).isoformat(timespec="milliseconds")
    return text.removesuffix("+00:00").removesuffix(".000") + "Z"


#: A time, in milliseconds since the epoch.
Moment = Annotated[
    int | None,
    BeforeValidator(parse_moment),
    Kind("a time", lambda value: write_text(format_moment(value)), ', such as "2026-05-01T06:00:00Z"'),
]


def _possible_path(path: Path | None) -> Path | None:
    """Return a path; ``ValueError`` for a NUL character or a lone surrogate, which no path has."""
    if path is not None and b"\0" in os.fsencode(path):
        raise ValueError("not a path")
    return path


File = Annotated[Path | None, AfterValidator(_possible_path), Kind("the path of a file", is_path=True)]
