"""Dead letters: records that can never be processed, unchanged, with the reason in headers.

Key, value, headers and record time stay as they were, so that the record can be replayed to a corrected daemon. The
headers ``streamdedup.dlq.*`` (*facts* in the code, named without the prefix) tell the reason, the position, and which
parts of the record were cut off. None of them contains document text. A new header also goes to docs/messages.md and
``schemas/dead-letter.schema.json``, and a header about the bytes of the record to ``_FACTS_OF_BYTES``.
"""

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import cached_property
from hashlib import sha256
from traceback import walk_tb
from typing import Final

from streamdedup.errors import MessageError
from streamdedup.position import Position
from streamdedup.wire.alerts import rfc_3339
from streamdedup.wire.copied_headers import RECORD_OVERHEAD_BYTES, SentHeaders, copied_headers, headers_bytes
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.records import Message, Record

#: Prefix of the names of the headers that the daemon adds to those of the record.
PREFIX: Final = "streamdedup.dlq."
#: Greatest value length of an added header, in UTF-8 bytes.
MAX_HEADER_BYTES: Final = 1_024
#: Default limit on a dead letter in bytes: Kafka's default limit of 1,048,576 less room for framing.
DEFAULT_MAX_BYTES: Final = 1_000_000
#: Smallest limit on a dead letter in bytes: the headers ``streamdedup.dlq.*`` fit it at their longest.
MIN_BYTES: Final = 24_576
#: Code and topic of a dead letter that the daemon did not write.
UNKNOWN: Final = "?"

# Facts about the bytes of the record, not about the failure: they are still true when a replayed dead letter fails.
_FACTS_OF_BYTES = (
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
    """Stage at which a record failed; of a record that failed at ``READ`` only the position is known."""

    READ = "read"
    DECODE = "decode"
    SIZE = "size"
    PROCESS = "process"


@dataclass(frozen=True, slots=True)
class DaemonInfo:
    group: str
    instance: str
    version: str


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a record cannot be processed: an ``ErrorCode`` as text, a message for the operator without document text."""

    stage: Stage
    code: str
    error_class: str
    message: str

    @classmethod
    def of(cls, error: Exception, stage: Stage) -> "Failure":
        """Describe an error; an unexpected one by its class and line, because its message may contain document text."""
        name = type(error).__name__
        if isinstance(error, MessageError):
            return cls(stage, str(error.code), name, str(error))
        calls = [(call.f_globals.get("__name__", "?"), line) for call, line in walk_tb(error.__traceback__)]
        innermost = " at line {1} of {0}".format(*calls[-1]) if calls else ""
        return cls(stage, str(ErrorCode.INTERNAL), name, f"unexpected {name}{innermost}")


def dead_letter(
    topic: str,
    record: Record,
    failure: Failure,
    daemon: DaemonInfo,
    *,
    time_ms: int,
    max_bytes: int = DEFAULT_MAX_BYTES,
    topic_id: str = "",
    copy_headers: Collection[str] = (),
) -> Message:
    """Return the dead letter for a record, to be published in ``topic``; its size is at most ``max_bytes``.

    If the record is a replayed dead letter, its headers ``streamdedup.dlq.*`` are replaced, and ``attempts`` is
    incremented. The headers about the bytes (such as ``truncated``) stay; a program that restores the bytes has to
    remove them. In any other record such headers are from a producer, and are dropped.

    Args:
        time_ms: Current time. A later record time is set back to it, because brokers refuse records from the future.
        max_bytes: Limit on key, value and headers with framing, at least ``MIN_BYTES``, which ``_fit`` keeps.
        topic_id: Kafka's id of the record's topic, for an unread record; empty if unknown.
        copy_headers: Names of the record headers that are dropped last.
    """
    if max_bytes < MIN_BYTES:
        raise ValueError(f"a dead letter needs {MIN_BYTES:,} bytes for its headers; the limit is {max_bytes:,}")
    earlier = _earlier(record)
    attempts = 1 + (whole_number(earlier.get("attempts", "")) or 0)
    facts = _facts(record, failure, daemon, time_ms) | {"attempts": str(attempts)}
    facts |= {name: earlier[name] for name in _FACTS_OF_BYTES if name in earlier}
    own_headers = DeadLetter(record).headers
    headers = tuple((name, value or b"") for name, value in own_headers)
    if nulls := [name for name, value in own_headers if value is None]:
        facts["null-headers"] = _name_list(nulls)
    value = record.value
    if failure.stage is Stage.READ:
        facts["unread"] = "true"
        if topic_id:
            facts["topic-id"] = topic_id
    elif value is None and record.key is None:
        facts["null-value"] = "true"
    if record.key is None:
        value = value or b""  # a record with neither key nor value cannot be sent
    header_sets = (headers, copied_headers(headers, copy_headers), ())
    key, value, headers = _fit(record.key, value, header_sets, facts, max_bytes)
    timestamp_ms = None if record.timestamp_ms < 0 else min(record.timestamp_ms, time_ms)
    return Message(topic, key, value, (*headers, *_encoded(facts)), timestamp_ms)


def read_headers(headers: Iterable[tuple[str, bytes | None]]) -> dict[str, str]:
    """Return the facts in headers; a repeated name has its last value."""
    return {
        name.removeprefix(PREFIX): (value or b"").decode(errors="replace")
        for name, value in headers
        if name.startswith(PREFIX)
    }


@dataclass(frozen=True)
class DeadLetter:
    """A record read from the dead-letter topic; its code and origin are unknown if the daemon did not write it."""

    record: Record

    @cached_property
    def facts(self) -> Mapping[str, str]:
        return read_headers(self.record.headers)

    @property
    def code(self) -> str:
        return self.facts.get("error.code", UNKNOWN)

    @property
    def origin(self) -> Position | None:
        partition, offset = (whole_number(self.facts.get(name, "")) for name in ("partition", "offset"))
        topic = self.facts.get("topic")
        return None if topic is None or partition is None or offset is None else Position(topic, partition, offset)

    @property
    def topic(self) -> str:
        return self.facts.get("topic", UNKNOWN)

    @property
    def attempts(self) -> int:
        """How often the record has failed; 0 if unknown."""
        return whole_number(self.facts.get("attempts", "")) or 0

    @property
    def is_unread(self) -> bool:
        return self.facts.get("unread") == "true"

    @property
    def time_s(self) -> float:
        """Time of the failure, else of the record, in seconds since the epoch."""
        try:
            return datetime.fromisoformat(self.facts["time"]).timestamp()
        except (KeyError, ValueError, OverflowError):
            return self.record.timestamp_ms / 1000

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        return tuple((name, value) for name, value in self.record.headers if not name.startswith(PREFIX))


def _facts(record: Record, failure: Failure, daemon: DaemonInfo, time_ms: int) -> dict[str, str]:
    topic, partition, offset, _incarnation = record.position
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
        "time": rfc_3339(time_ms),
    }


def _earlier(record: Record) -> dict[str, str]:
    """Return the facts of a record that is a replayed dead letter, else none.

    A replay goes to the partition of the failure, whose earlier offset its facts name. Other headers with these names
    are from a producer, and would make ``dlq replay`` leave the record out, as ``truncated`` or many ``attempts`` do.
    """
    earlier = read_headers(record.headers)
    topic, partition, offset, _incarnation = record.position
    failed_offset = whole_number(earlier.get("offset", ""))
    is_same_partition = (earlier.get("topic"), earlier.get("partition")) == (topic, str(partition))
    is_replay = is_same_partition and failed_offset is not None and failed_offset < offset
    return earlier if is_replay else {}


def whole_number(text: str) -> int | None:
    """Parse a whole number of at most 18 digits, which fits 63 bits; None for any other text."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


def _name_list(names: Sequence[str]) -> str:
    """Format header names as a JSON array; "..." stands for the last ones if they do not fit one header."""
    text, kept_count = json.dumps(names), len(names)  # ASCII
    while len(text) > MAX_HEADER_BYTES:
        kept_count //= 2
        text = json.dumps([*names[:kept_count], "..."])
    return text


def _encoded(facts: dict[str, str]) -> list[tuple[str, bytes]]:
    return [(PREFIX + name, _clipped(value)) for name, value in facts.items()]


def _clipped(text: str) -> bytes:
    return text.encode(errors="replace")[:MAX_HEADER_BYTES].decode(errors="ignore").encode()


def _size_bytes(key: bytes | None, value: bytes | None, headers: Iterable[tuple[str, bytes]]) -> int:
    return RECORD_OVERHEAD_BYTES + len(key or b"") + len(value or b"") + headers_bytes(headers)


def _fit(
    key: bytes | None, value: bytes | None, header_sets: Sequence[SentHeaders], facts: dict[str, str], max_bytes: int
) -> tuple[bytes | None, bytes | None, SentHeaders]:
    """Truncate the value, drop headers, truncate the key, in this order, until all fits; add each step to ``facts``.

    ``header_sets``: all record headers, those to copy, and none. Facts of an earlier truncation describe the original.
    """
    facts_of_cut = {}
    if value:
        facts_of_cut = {"truncated": "true", "original-length": str(len(value)), "sha256": sha256(value).hexdigest()}
    facts_of_cut = {name: facts.get(name, fact) for name, fact in facts_of_cut.items()}
    dropped_earlier = whole_number(facts.get("dropped-headers", "")) or 0
    for headers in header_sets:
        if dropped_count := len(header_sets[0]) - len(headers):
            facts["dropped-headers"] = str(dropped_earlier + dropped_count)
        if _size_bytes(key, value, [*headers, *_encoded(facts)]) <= max_bytes:
            return key, value, headers
        room = max_bytes - _size_bytes(key, None, [*headers, *_encoded(facts | facts_of_cut)])
        if room >= 0:
            facts |= facts_of_cut
            return key, None if value is None else value[:room], headers
    facts |= facts_of_cut
    assert key is not None, "the headers fit MIN_BYTES, so only a key can be too long"
    facts.setdefault("truncated-key", "true")
    facts.setdefault("original-key-length", str(len(key)))
    room = max_bytes - _size_bytes(None, None, _encoded(facts))
    return key[:room], None if value is None else b"", ()
