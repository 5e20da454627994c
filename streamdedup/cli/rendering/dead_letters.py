"""Dead letters as lines and as JSON; their arbitrary content is escaped."""

import base64
import json
from typing import Any

from rich.text import Text

from streamdedup.cli.rendering.safe_text import escaped
from streamdedup.cli.rendering.terminal import CLOCK_FORMAT, TIME_FORMAT, local_time
from streamdedup.position import Position
from streamdedup.wire.dead_letters import UNKNOWN, DeadLetter, whole_number

PREVIEW_CHARS = 80  # most characters of the value at the end of a line
_PART_CHARS = 300  # most characters of any other part of a line


def dead_letter_line(letter: DeadLetter, fields_json: bytes | None = None) -> Text:
    """Return the line for ``dlq inspect``; it ends with the decoded fields of the value, or without them its bytes."""
    attempts = f"  (failed {letter.attempts} times)" if letter.attempts > 1 else ""
    return Text.assemble(
        (local_time(letter.time_s, TIME_FORMAT), "dim"),
        "  ",
        (escaped(letter.code, _PART_CHARS), "bold"),
        f"  {_position(letter)}{attempts}  {_reason(letter)}  ",
        (_preview(letter) if fields_json is None else escaped(fields_json, PREVIEW_CHARS), "dim"),
    )


def dead_letter_notice(letter: DeadLetter) -> Text:
    """Return the line for ``demo``: without the value."""
    return Text.assemble(
        (local_time(letter.time_s, CLOCK_FORMAT), "dim"),
        "  ",
        ("dead letter", "yellow"),
        f"  {_position(letter)}  ",
        (escaped(letter.code, _PART_CHARS), "bold"),
        f"  {_reason(letter)}",
    )


def _position(letter: DeadLetter) -> str:
    return UNKNOWN if letter.origin is None else escaped(str(letter.origin), _PART_CHARS)


def _reason(letter: DeadLetter) -> str:
    return escaped(letter.facts.get("error.message", ""), _PART_CHARS)


def _preview(letter: DeadLetter) -> str:
    if letter.is_unread:
        return "(unread)"
    if letter.record.value is None:
        return "(null)"
    return escaped(letter.record.value, PREVIEW_CHARS) or "(empty)"


def dead_letter_json(letter: DeadLetter) -> str:
    """Return a dead letter as one JSON line in ASCII."""
    record, facts = letter.record, letter.facts  # facts: the headers that the daemon added, without their prefix
    fields: dict[str, Any] = {
        "dead_letter": _position_json(record.position),
        "time": facts.get("time"),  # of the failure
        "code": letter.code,
        "attempts": letter.attempts,
        "origin": None if letter.origin is None else _position_json(letter.origin),
        "timestamp": whole_number(facts.get("timestamp", "")),  # of the record; the dead letter's may be earlier
        "facts": dict(facts),
        **_content_json("key", record.key),
        **_content_json("value", record.value),
        "headers": [{"name": name, **_content_json("value", value)} for name, value in letter.headers],
    }
    return json.dumps(fields)


def _position_json(position: Position) -> dict[str, str | int]:
    return {"topic": position.topic, "partition": position.partition, "offset": position.offset}


def _content_json(name: str, content: bytes | None) -> dict[str, str | None]:
    """Return bytes as text under ``name``, or in base64 under ``name_base64``."""
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}
