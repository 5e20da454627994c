"""Dead letters as ``dlq`` and ``demo`` read them, and the filter of ``dlq``."""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from streamdedup.errors import SettingsError
from streamdedup.kafka.protocols import Record
from streamdedup.position import Position
from streamdedup.settings.units import parse_duration
from streamdedup.wire.dead_letters import PREFIX, read_headers, whole_number

#: Code and topic of a record that the daemon did not write.
UNKNOWN = "?"


@dataclass(frozen=True)
class DeadLetter:
    """A record of the dead-letter topic; one that the daemon did not write has an unknown code and origin."""

    record: Record

    @cached_property
    def facts(self) -> Mapping[str, str]:
        """Headers ``streamdedup.dlq.*``, by name without the prefix."""
        return read_headers(self.record.headers)

    @property
    def code(self) -> str:
        """Error code."""
        return self.facts.get("error.code", UNKNOWN)

    @property
    def origin(self) -> Position | None:
        """Position of the failed record."""
        partition, offset = (whole_number(self.facts.get(name, "")) for name in ("partition", "offset"))
        topic = self.facts.get("topic")
        return None if topic is None or partition is None or offset is None else Position(topic, partition, offset)

    @property
    def topic(self) -> str:
        """Topic of the failed record."""
        return self.facts.get("topic", UNKNOWN)

    @property
    def attempts(self) -> int:
        """Number of failures of the record."""
        return whole_number(self.facts.get("attempts", "")) or 0

    @property
    def is_unread(self) -> bool:
        """Whether the Kafka client could not read the record, so that the dead letter has none of its bytes."""
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
        """Headers of the failed record."""
        return tuple((name, value) for name, value in self.record.headers if not name.startswith(PREFIX))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterFilter:
    """Conditions on dead letters; an empty condition accepts all.

    Attributes:
        codes: Error codes.
        topics: Topics of the failed records.
        partition: Partition of the failed records.
        offsets: First and last offset of the failed records.
        since_s: Earliest time of the failure, in seconds since the epoch.
    """

    codes: frozenset[str] = frozenset()
    topics: frozenset[str] = frozenset()
    partition: int | None = None
    offsets: tuple[int, int] | None = None
    since_s: float | None = None

    def accepts(self, letter: DeadLetter) -> bool:
        """Return whether all conditions hold for a dead letter."""
        if (self.codes and letter.code not in self.codes) or (self.topics and letter.topic not in self.topics):
            return False
        if self.since_s is not None and letter.time_s < self.since_s:
            return False
        origin = letter.origin
        if self.partition is not None and (origin is None or origin.partition != self.partition):
            return False
        return self.offsets is None or (origin is not None and self.offsets[0] <= origin.offset <= self.offsets[1])

    @property
    def names_positions(self) -> bool:
        """Whether the filter names single positions."""
        return self.partition is not None or self.offsets is not None


def parse_offsets(text: str | None) -> tuple[int, int] | None:
    """Parse ``1042``, ``1000-2000``, ``1000-`` or ``-2000`` as first and last offset.

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
    """Parse a time, such as ``2026-05-01T09:00``, or an age, such as ``2h``, as seconds since the epoch.

    A time without a zone is local time.

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
