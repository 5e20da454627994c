"""Offsets that the Kafka client cannot parse; ``compat`` finds them, ``consumer.unpack`` makes positions of them."""

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class UnreadableRange:
    """Consecutive offsets that the client cannot parse; takes a record's place in the poll result.

    Attributes:
        offset: First offset of the range; named as in a record, because callers treat both alike.
        batch_header: Header of the record batch, with offset and checksum, by which a later fetch of it is recognised.
        value: Always None, as in a tombstone, and ``headers`` empty; for callers that measure the records of a poll.
    """

    topic: str
    partition: int
    offset: int
    last: int
    reason: str
    batch_header: bytes = b""
    value: None = None
    headers: tuple[()] = ()


@dataclass
class UnreadableOffsets:
    """The unreadable ranges of one consumer.

    Attributes:
        ranges: Those of the present poll.
        rests: By partition, the range that the limit has left for the next fetch, which must begin with the same record
            batch. Without it each fetch would decompress the record batch again, and step over earlier records (6
            million in 15 seconds), for ``max_offsets`` offsets. A reader of single positions (``max_offsets`` 1) has
            none: the next position may be readable.
    """

    max_offsets: int
    ranges: list[UnreadableRange] = field(default_factory=list)
    rests: dict[Any, UnreadableRange] = field(default_factory=dict)

    def report(self, partition: Any, unreadable: UnreadableRange) -> list[UnreadableRange]:
        """Add a range to those of the poll, up to ``max_offsets`` offsets in all; return the part that fits, if any."""
        left_count = self.max_offsets - sum(part.last + 1 - part.offset for part in self.ranges)
        end = unreadable.offset + left_count
        if end <= unreadable.last and self.max_offsets > 1:
            self.rests[partition] = replace(unreadable, offset=end)
        parts = [replace(unreadable, last=min(unreadable.last, end - 1))] if left_count > 0 else []
        self.ranges += parts
        return parts
