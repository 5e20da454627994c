"""Dead letters as lines, as JSON and as counts. Their content is arbitrary, so all of it is escaped."""

import base64
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from rich.text import Text

from streamdedup.cli.dead_letters import UNKNOWN, DeadLetter
from streamdedup.cli.rendering.terminal import CLOCK_FORMAT, TIME_FORMAT, escaped, local_time
from streamdedup.position import Position
from streamdedup.settings.units import counted
from streamdedup.wire.dead_letters import whole_number

#: Characters of the value at the end of a line.
PREVIEW_CHARS = 80
#: Characters of any other part of a line.
_PART_CHARS = 300
#: Distinct codes, topics or hours that are counted separately; the others are counted together.
MAX_COUNTED = 1_000


def dead_letter_line(letter: DeadLetter) -> Text:
    """Return a dead letter as one line: time, code, position, attempts, reason, beginning of the value."""
    attempts = f"  (failed {letter.attempts} times)" if letter.attempts > 1 else ""
    return Text.assemble(
        (local_time(letter.time_s, TIME_FORMAT), "dim"),
        "  ",
        (escaped(letter.code, _PART_CHARS), "bold"),
        f"  {_position(letter)}{attempts}  {_reason(letter)}  ",
        (_preview(letter), "dim"),
    )


def dead_letter_notice(letter: DeadLetter) -> Text:
    """Return a dead letter as one line among alerts: time, "dead letter", position, code, reason."""
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
    value = letter.record.value
    return "(null)" if value is None else "(empty)" if not value else escaped(value, PREVIEW_CHARS)


def dead_letter_json(letter: DeadLetter) -> str:
    """Return a dead letter as one line of JSON in ASCII."""
    record, facts = letter.record, letter.facts
    fields: dict[str, Any] = {
        "dead_letter": _position_json(record.position),
        "time": facts.get("time"),
        "code": letter.code,
        "attempts": letter.attempts,
        "origin": None if letter.origin is None else _position_json(letter.origin),
        "timestamp": whole_number(facts.get("timestamp", "")),
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


class Summary:
    """Counts dead letters by code, topic of the failed record, and local hour of the failure; memory is bounded."""

    def __init__(self, letters: Iterable[DeadLetter]) -> None:
        self.total = 0
        self.codes, self.topics, self.hours = Counter[str](), Counter[str](), Counter[str]()
        for letter in letters:
            self.total += 1
            _count(self.codes, letter.code)
            _count(self.topics, letter.topic)
            _count(self.hours, local_time(letter.time_s, "%Y-%m-%d %H:00"))

    def lines(self) -> Iterator[str]:
        """Yield the lines of the three tables."""
        yield counted(self.total, "dead letter")
        for title, counts in (("code", self.codes), ("topic", self.topics), ("hour", self.hours)):
            yield f"by {title}"
            ordered = sorted(counts.items()) if title == "hour" else counts.most_common()
            yield from (f"  {count:>9,}  {escaped(name, _PART_CHARS)}" for name, count in ordered)

    def as_json(self) -> str:
        """Return all counts as one line of JSON."""
        return json.dumps(
            {"total": self.total, "codes": self.codes, "topics": self.topics, "hours": dict(sorted(self.hours.items()))}
        )


def _count(counts: Counter[str], name: str) -> None:
    counts[name if name in counts or len(counts) < MAX_COUNTED else "(others)"] += 1
