"""Dead letters: a record that can never be processed, as it came, with headers that say why.

Key, value, headers and record time stay as they were, so that a mended daemon can be given the record again; the
headers ``streamdedup.dlq.*`` name the reason and the place. What could not be kept is said there too. Nothing here
decides what becomes of a record, and no text of a document gets into a header. Promised in ``docs/messages.md``.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from hashlib import sha256
from traceback import walk_tb
from typing import Final, Protocol

from streamdedup.errors import MessageError
from streamdedup.position import Position

#: Start of the name of every header of ours.
PREFIX: Final = "streamdedup.dlq."
#: Greatest length of the value of one header of ours, in bytes of UTF-8.
MAX_HEADER_BYTES: Final = 1_024
#: Bytes of one dead letter unless the caller says otherwise: Kafka's default limit of 1,048,576 less room for framing.
DEFAULT_MAX_BYTES: Final = 1_000_000
#: Smallest limit: our own headers fit it at their longest.
MIN_BYTES: Final = 24_576
#: Error code of an exception that is not one of the project's own: a mistake of ours.
INTERNAL: Final = "internal"

# What a record and each of its headers take beside their bytes: lengths, time and offset as variable-length numbers.
_RECORD_FRAME_BYTES = 96
_HEADER_FRAME_BYTES = 10
# Facts about the bytes, not about the failure: they stay true when a dead letter is replayed and fails again.
_LASTING = (
    "null-headers",
    "null-value",
    "unread",
    "truncated",
    "original-length",
    "sha256",
    "dropped-headers",
    "truncated-key",
    "original-key-length",
)


class Stage(StrEnum):
    """How far the record came."""

    READ = "read"
    DECODE = "decode"
    SIZE = "size"
    PROCESS = "process"


class Origin(Protocol):
    """A record as it came in; ``kafka.protocols.Record`` is one."""

    @property
    def position(self) -> Position:
        """Where it stands."""

    @property
    def timestamp_ms(self) -> int:
        """Record time in milliseconds since the epoch; negative when it has none."""

    @property
    def key(self) -> bytes | None:
        """Key bytes."""

    @property
    def value(self) -> bytes | None:
        """Value bytes; None is a tombstone."""

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """Name and value of each header, in order."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """Who writes the dead letter.

    Attributes:
        group: Consumer group.
        instance: Name of the process within the group.
        version: Of the software.
    """

    group: str
    instance: str
    version: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a record cannot be processed.

    Attributes:
        stage: How far it came.
        code: Stable name of the reason, an ``ErrorCode`` of ``messages``.
        error_class: Name of the exception's class.
        message: For the operator; never contains the text of a document.
    """

    stage: Stage
    code: str
    error_class: str
    message: str

    @classmethod
    def of(cls, error: Exception, stage: Stage) -> "Failure":
        """Describe ``error``; of an unexpected one only the place is told, for its message may quote the document."""
        name = type(error).__name__
        if isinstance(error, MessageError):
            return cls(stage, str(error.code), name, str(error))
        frames = [(frame.f_globals.get("__name__", "?"), line) for frame, line in walk_tb(error.__traceback__)]
        place = " at line {1} of {0}".format(*frames[-1]) if frames else ""
        return cls(stage, INTERNAL, name, f"unexpected {name}{place}")


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record for the dead-letter topic.

    Attributes:
        key: Key bytes, or None.
        value: Value bytes; None (a tombstone) only together with a key.
        headers: The record's own headers, then ours.
        timestamp_ms: Record time to set, in milliseconds since the epoch; None for the time of sending.
    """

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]
    timestamp_ms: int | None


def dead_letter(
    record: Origin,
    failure: Failure,
    daemon: Daemon,
    *,
    time_ms: int,
    max_bytes: int = DEFAULT_MAX_BYTES,
    unread: bool = False,
) -> DeadLetter:
    """Make the dead letter of ``record``; it always fits ``max_bytes``.

    Headers of an earlier dead letter of the same record are replaced and ``attempts`` counts on. Its facts about the
    bytes (a value that was cut, say) are kept: they have to be removed when the bytes are restored. Headers of these
    names that name no earlier place in the partition of the record are a producer's own and say nothing.

    Args:
        record: The record, or of one that could not be read its coordinates with everything else empty.
        failure: Why.
        daemon: Who says so.
        time_ms: Now, in milliseconds since the epoch. A record time beyond it is set back to it, because brokers refuse
            records from the future; the header ``timestamp`` keeps the original.
        max_bytes: Limit on key, value and headers with their framing; at least ``MIN_BYTES``. Beyond it the value is
            cut, then the record's own headers are dropped, then the key is cut, as far as needed and always said.
        unread: The Kafka client itself could not read the record.

    Raises:
        ValueError: ``max_bytes`` is below ``MIN_BYTES``.
    """
    if max_bytes < MIN_BYTES:
        raise ValueError(f"a dead letter needs {MIN_BYTES:,} bytes for its headers; the limit is {max_bytes:,}")
    earlier = _earlier(record)
    own = _reason(record, failure, daemon, time_ms) | {"attempts": str(_attempts(earlier) + 1)}
    own |= {name: earlier[name] for name in _LASTING if name in earlier}
    kept = [(name, value or b"") for name, value in record.headers if not name.startswith(PREFIX)]
    if nulls := [name for name, value in record.headers if value is None and not name.startswith(PREFIX)]:
        own["null-headers"] = _name_list(nulls)
    value = record.value
    if unread:
        own["unread"] = "true"
    elif value is None and record.key is None:
        own["null-value"] = "true"
    if record.key is None:
        # A record with neither key nor value cannot be sent.
        value = value or b""
    key, value, kept = _fit(record.key, value, kept, own, max_bytes)
    timestamp_ms = None if record.timestamp_ms < 0 else min(record.timestamp_ms, time_ms)
    return DeadLetter(key, value, (*kept, *_encoded(own)), timestamp_ms)


def read_headers(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    """Return our headers of a dead letter, by name without the prefix; of a repeated name the last value counts."""
    return {
        name.removeprefix(PREFIX): (value or b"").decode(errors="replace")
        for name, value in headers
        if name.startswith(PREFIX)
    }


def _reason(record: Origin, failure: Failure, daemon: Daemon, time_ms: int) -> dict[str, str]:
    topic, partition, offset, _ = record.position
    time = datetime.fromtimestamp(time_ms // 1_000, UTC).replace(microsecond=time_ms % 1_000 * 1_000, tzinfo=None)
    return {
        "topic": topic,
        "partition": str(partition),
        "offset": str(offset),
        "timestamp": str(record.timestamp_ms),
        "group": daemon.group,
        "instance": daemon.instance,
        "version": daemon.version,
        "stage": failure.stage,
        "error.code": failure.code,
        "error.class": failure.error_class,
        "error.message": failure.message,
        "time": time.isoformat(timespec="milliseconds") + "Z",
    }


def _earlier(record: Origin) -> dict[str, str]:
    """Return our headers of a record that is a replayed dead letter, and nothing for any other record.

    A replay goes to the partition in which the record failed, so its headers name an earlier place in that partition. A
    producer may write headers of any name: believed, they would keep the record from being replayed.
    """
    earlier, (topic, partition, offset, _) = read_headers(record.headers), record.position
    place = (earlier.get("topic"), earlier.get("partition"))
    failed_at = whole_number(earlier.get("offset", ""))
    is_replay = place == (topic, str(partition)) and failed_at is not None and failed_at < offset
    return earlier if is_replay else {}


def whole_number(text: str) -> int | None:
    """Read a whole number that is not negative and fits 63 bits; None for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def _attempts(earlier: dict[str, str]) -> int:
    """Return how often the record failed before; what is no sensible number counts as never."""
    text = earlier.get("attempts", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def _name_list(names: Sequence[str]) -> str:
    """Write header names as a JSON array; the last ones are left out when they do not fit one header."""
    while len((text := json.dumps(names)).encode()) > MAX_HEADER_BYTES:
        names = [*names[: len(names) // 2], "..."]
    return text


def _encoded(own: dict[str, str]) -> list[tuple[str, bytes]]:
    return [(PREFIX + name, _clipped(value)) for name, value in own.items()]


def _clipped(text: str) -> bytes:
    """Encode ``text``, cut between two characters where it is too long."""
    return text.encode(errors="replace")[:MAX_HEADER_BYTES].decode(errors="ignore").encode()


def _size_bytes(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes]]) -> int:
    """Return an upper bound of what a record takes in a batch."""
    header_bytes = sum(len(name.encode()) + len(content) + _HEADER_FRAME_BYTES for name, content in headers)
    return _RECORD_FRAME_BYTES + len(key or b"") + len(value or b"") + header_bytes


def _fit(
    key: bytes | None, value: bytes | None, kept: list[tuple[str, bytes]], own: dict[str, str], max_bytes: int
) -> tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]:
    """Cut value, headers and key, in this order, until all fits; what was cut is written into ``own``."""
    if _size_bytes(key, value, [*kept, *_encoded(own)]) <= max_bytes:
        return key, value, kept
    whole = value or b""
    for headers in (kept, []):
        if len(headers) < len(kept):
            own["dropped-headers"] = str(len(kept))
        if whole:
            # An earlier cut knows the original better than this one.
            own.setdefault("truncated", "true")
            own.setdefault("original-length", str(len(whole)))
            own.setdefault("sha256", sha256(whole).hexdigest())
        room = max_bytes - _size_bytes(key, None, [*headers, *_encoded(own)])
        if room >= 0:
            return key, value and value[:room], headers
    assert key is not None, "our own headers fit MIN_BYTES, so only a key can be in the way"
    own["truncated-key"] = "true"
    own.setdefault("original-key-length", str(len(key)))
    room = max_bytes - _size_bytes(None, None, _encoded(own))
    return key[:room], value and b"", []
