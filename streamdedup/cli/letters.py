"""What a dead letter says about itself, which ones are wanted, and how one is shown on a line.

Dead letters hold whatever somebody sent, headers included, so nothing of them gets to a terminal as it stands.
"""

import base64
import json
import time
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from functools import cached_property
from typing import Any

from rich.text import Text

from streamdedup.cli.show import TIME_FORMAT
from streamdedup.errors import SettingsError
from streamdedup.kafka.protocols import Record
from streamdedup.position import Position
from streamdedup.settings.units import counted, parse_duration
from streamdedup.wire.dead_letters import PREFIX, read_headers, whole_number

#: Characters of the value, as they are shown, at the end of a line.
PREVIEW_CHARS = 80
#: Characters of any other part of a line.
_PART_CHARS = 300
#: Different codes, topics or hours that are counted one by one; the rest together.
MAX_COUNTED = 1_000
#: What a dead letter is called of which something is not known.
UNKNOWN = "?"
#: Categories of characters that are shown by their numbers: control and format characters (which could steer a terminal
#: or turn the direction of writing), halves of surrogate pairs, line and paragraph separators, unassigned ones.
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_SHORT_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(text: str | bytes, limit: int) -> str:
    r"""Return the beginning of ``text`` with every character that is not to be seen written as its number.

    Args:
        text: Anything; bytes are taken for UTF-8, and those that are not are written as ``\\xff``.
        limit: Greatest length of the result in characters, the sign of omission apart.
    """
    # A character has at most four bytes, so no more of a large value is looked at than can be shown.
    head = text[: limit * 4].decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text[: limit + 1]
    shown = ""
    for character in head:
        piece = _escape(character) if unicodedata.category(character) in _HIDDEN else character
        if len(shown) + len(piece) > limit:
            return f"{shown}…"
        shown += piece
    return shown if isinstance(text, str) or len(text) <= limit * 4 else f"{shown}…"


def _escape(character: str) -> str:
    code = ord(character)
    short = _SHORT_ESCAPES.get(character)
    return short or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}")


@dataclass(frozen=True)
class Letter:
    """A record of the dead-letter topic; one that somebody else wrote there has an unknown code and origin.

    Attributes:
        record: As it stands in the dead-letter topic.
    """

    record: Record

    @cached_property
    def facts(self) -> Mapping[str, str]:
        """Our headers, by name without the prefix."""
        return read_headers(self.record.headers)

    @property
    def code(self) -> str:
        """Why it is here."""
        return self.facts.get("error.code", UNKNOWN)

    @property
    def origin(self) -> Position | None:
        """Where the record stood that failed."""
        numbers = [whole_number(self.facts.get(name, "")) for name in ("partition", "offset")]
        topic = self.facts.get("topic")
        if topic is None or numbers[0] is None or numbers[1] is None:
            return None
        return Position(topic, numbers[0], numbers[1])

    @property
    def topic(self) -> str:
        """Topic of the record that failed."""
        return self.facts.get("topic", UNKNOWN)

    @property
    def attempts(self) -> int:
        """How often the record has failed."""
        return whole_number(self.facts.get("attempts", "")) or 0

    @property
    def is_unread(self) -> bool:
        """Whether the Kafka client could not read the record, so that the letter has none of its bytes."""
        return self.facts.get("unread") == "true"

    @property
    def time_s(self) -> float:
        """When it failed, in seconds since the epoch; of a foreign record its own time."""
        try:
            return datetime.fromisoformat(self.facts["time"]).timestamp()
        except (KeyError, ValueError, OverflowError):
            return self.record.timestamp_ms / 1000

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        """The headers that the record brought along."""
        return tuple((name, value) for name, value in self.record.headers if not name.startswith(PREFIX))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which dead letters are meant; what is not given takes all.

    Attributes:
        codes: Reasons.
        topics: Topics of the records that failed.
        partition: Partition in which they stood.
        offsets: First and last offset at which they stood.
        since_s: They failed at this time, in seconds since the epoch, or later.
    """

    codes: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    partition: int | None = None
    offsets: tuple[int, int] | None = None
    since_s: float | None = None

    def takes(self, letter: Letter) -> bool:
        """Tell whether ``letter`` is meant."""
        if (self.codes and letter.code not in self.codes) or (self.topics and letter.topic not in self.topics):
            return False
        if self.since_s is not None and letter.time_s < self.since_s:
            return False
        origin = letter.origin
        if self.partition is not None and (origin is None or origin.partition != self.partition):
            return False
        return self.offsets is None or (origin is not None and self.offsets[0] <= origin.offset <= self.offsets[1])

    @property
    def names_places(self) -> bool:
        """Whether single places are meant, not whole kinds."""
        return self.partition is not None or self.offsets is not None


def parse_offsets(text: str | None) -> tuple[int, int] | None:
    """Read ``1042``, ``1000-2000``, ``1000-`` or ``-2000`` as first and last offset.

    Raises:
        SettingsError: Anything else.
    """
    if text is None:
        return None
    first, dash, last = text.strip().partition("-")
    low = whole_number(first) if first else 0
    high = (whole_number(last) if last else 2**63 - 1) if dash else low
    if low is None or high is None or low > high or not (first or last):
        raise SettingsError(f"--offsets {text}: must be one offset or a range, such as 1042, 1000-2000 or 1000-")
    return low, high


def parse_since(text: str | None) -> float | None:
    """Read a time, such as ``2026-05-01T09:00``, or how long ago, such as ``2h``, as seconds since the epoch.

    A time without a zone is one of the user's own.

    Raises:
        SettingsError: Anything else.
    """
    if text is None:
        return None
    try:
        return time.time() - parse_duration(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text.strip()).timestamp()
    except (ValueError, OverflowError):
        raise SettingsError(
            f"--since {text}: must be a time, such as 2026-05-01T09:00, or how long ago, such as 2h"
        ) from None


def letter_line(letter: Letter) -> Text:
    """Return a dead letter as one line: time, code, origin, how often, why, beginning of the value."""
    attempts = f"  (failed {letter.attempts} times)" if letter.attempts > 1 else ""
    return Text.assemble(
        (_local(letter.time_s, TIME_FORMAT), "dim"),
        "  ",
        (escaped(letter.code, _PART_CHARS), "bold"),
        f"  {place_of(letter)}{attempts}  {escaped(letter.facts.get('error.message', ''), _PART_CHARS)}  ",
        (_preview(letter), "dim"),
    )


def place_of(letter: Letter) -> str:
    """Return where the record stood that failed, fit to be shown."""
    return escaped(str(letter.origin), _PART_CHARS) if letter.origin is not None else UNKNOWN


def _preview(letter: Letter) -> str:
    if letter.is_unread:
        return "(unread)"
    value = letter.record.value
    return "(null)" if value is None else "(empty)" if not value else escaped(value, PREVIEW_CHARS)


def _local(time_s: float, form: str) -> str:
    try:
        return datetime.fromtimestamp(time_s).astimezone().strftime(form)
    except (ValueError, OverflowError, OSError):
        return UNKNOWN  # beyond what the calendar knows


def letter_json(letter: Letter) -> str:
    """Return a dead letter as one line of JSON, pure ASCII so that it is safe anywhere."""
    record, facts = letter.record, letter.facts
    fields: dict[str, Any] = {
        "dead_letter": _place(record.position),
        "time": facts.get("time"),
        "code": letter.code,
        "attempts": letter.attempts,
        "origin": None if letter.origin is None else _place(letter.origin),
        "timestamp": whole_number(facts.get("timestamp", "")),
        "facts": dict(facts),
        **_content("key", record.key),
        **_content("value", record.value),
        "headers": [{"name": name, **_content("value", value)} for name, value in letter.headers],
    }
    return json.dumps(fields)


def _place(position: Position) -> dict[str, str | int]:
    """Return topic, partition and offset, as a reader of Kafka knows them."""
    return {"topic": position.topic, "partition": position.partition, "offset": position.offset}


def _content(name: str, content: bytes | None) -> dict[str, str | None]:
    """Return bytes as text under ``name``, or in base64 under a name that says so."""
    if content is None:
        return {name: None}
    try:
        return {name: content.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(content).decode()}


@dataclass(slots=True)
class Summary:
    """Counts of dead letters by code, topic and hour; memory is bounded whatever they say.

    Attributes:
        total: All of them.
        codes: By code.
        topics: By topic of the record that failed.
        hours: By hour of the failure, in the user's own time zone.
    """

    total: int = 0
    codes: Counter[str] = field(default_factory=Counter)
    topics: Counter[str] = field(default_factory=Counter)
    hours: Counter[str] = field(default_factory=Counter)

    def add(self, letter: Letter) -> None:
        """Count one."""
        self.total += 1
        _count(self.codes, letter.code)
        _count(self.topics, letter.topic)
        _count(self.hours, _local(letter.time_s, "%Y-%m-%d %H:00"))

    def lines(self) -> Iterable[str]:
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
