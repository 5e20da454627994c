"""Offsets that the Kafka client cannot parse; ``compat`` finds them, ``consumer.unpack`` makes positions of them."""

from dataclasses import dataclass, field, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class UnreadableRange:
    """Offsets from ``offset`` to ``last`` that the client cannot parse; takes a record's place in the poll result.

    Attributes:
        batch_header: Header of the record batch, with offset and checksum, by which a later fetch of it is recognised.
        value: None, and ``headers`` empty, for ``fresh_poll``, which measures all entries of a poll.
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
class UnreadableReports:
    """The unreadable ranges that the polls of one consumer report.

    Attributes:
        max_offsets: Most offsets that one poll reports; the rest waits for the next polls.
        ranges: Those of the present poll.
        rests: By partition, the part of a range that did not fit in a poll. If the next fetch begins with the same
            record batch, the rest is reported without parsing, which takes up to 15 seconds (6 million records).
        keeps_rests: False for a reader of single positions, which may ask for a readable record within a rest.
    """

    max_offsets: int
    keeps_rests: bool = True
    ranges: list[UnreadableRange] = field(default_factory=list)
    rests: dict[Any, UnreadableRange] = field(default_factory=dict)

    def report(self, partition: Any, unreadable: UnreadableRange) -> list[UnreadableRange]:
        """Add a range to those of the poll, up to ``max_offsets`` offsets in all; return the part that fits, if any."""
        free_count = self.max_offsets - sum(part.last + 1 - part.offset for part in self.ranges)
        rest_start = unreadable.offset + free_count
        if rest_start <= unreadable.last and self.keeps_rests:
            self.rests[partition] = replace(unreadable, offset=rest_start)
        parts = [replace(unreadable, last=min(unreadable.last, rest_start - 1))] if free_count > 0 else []
        self.ranges += parts
        return parts
