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
        rests: By partition, the rest of a range that has more than ``max_offsets`` offsets. The next fetch reports it
            without parsing, if it begins with the same record batch: parsing takes up to 15 seconds (6 million records)
            for each ``max_offsets`` offsets.
        keeps_rests: False for a reader of single positions: a record behind an unreadable one may be readable.
    """

    max_offsets: int
    keeps_rests: bool = True
    ranges: list[UnreadableRange] = field(default_factory=list)
    rests: dict[Any, UnreadableRange] = field(default_factory=dict)

    def report(self, partition: Any, unreadable: UnreadableRange) -> list[UnreadableRange]:
        """Add a range to those of the poll, up to ``max_offsets`` offsets in all; return the part that fits, if any."""
        left_count = self.max_offsets - sum(part.last + 1 - part.offset for part in self.ranges)
        end = unreadable.offset + left_count
        if end <= unreadable.last and self.keeps_rests:
            self.rests[partition] = replace(unreadable, offset=end)
        parts = [replace(unreadable, last=min(unreadable.last, end - 1))] if left_count > 0 else []
        self.ranges += parts
        return parts
