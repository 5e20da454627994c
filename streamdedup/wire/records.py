"""Records of Kafka, as read and to be published."""

from dataclasses import dataclass

import msgspec

from streamdedup.position import Position


class Record(msgspec.Struct, frozen=True, gc=False):  # gc=False: bytes and numbers form no reference cycles
    """One record of a topic. A value of None is a tombstone; the time is negative where a record has none."""

    position: Position
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """One record to publish. A value of None is a tombstone; a time of None is the time of sending."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None
