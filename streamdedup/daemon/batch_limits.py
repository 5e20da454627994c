"""Halves the batch size after a process that ended in the middle of a batch, as after an out-of-memory kill.

A killed process leaves no message, and the next process reads the same records. The index therefore keeps a *read
start* for each partition: the offset at which its owner began to read, how often the owner had halved the batch size by
then, and the name of the process. A read start costs a round trip when a partition is fenced, and none per batch. A
process that finds the read start of another process reads the first records in smaller batches:

- Reading begins at the same offset: the other process committed nothing. The batch size is half of that of the other
  process.
- Reading begins at a later offset: the other process may have ended in a later batch. The batch size is at most half of
  the configured one.

Each ``batch_records`` records that are committed double the batch size, up to the configured one. A rebalance without a
kill leaves the same read starts, at the cost of a few smaller batches.
"""

import secrets
from typing import NamedTuple

import structlog

from streamdedup.position import Partition

#: Batches of the configured size to commit after a halving before a batch is read ahead.
CAREFUL_BATCHES = 50

log = structlog.get_logger("streamdedup.loop")


class ReadStart(NamedTuple):
    """Where a process began to read a partition.

    Attributes:
        offset: First offset.
        halvings: How often the batch size was halved, 0 or more.
        process: Name of the process.
    """

    offset: int
    halvings: int
    process: str

    def __str__(self) -> str:
        return f"{self.offset} {self.halvings} {self.process}"

    @classmethod
    def parse(cls, text: str) -> "ReadStart | None":
        """Return the read start that a text describes; None for any other text."""
        offset, _, rest = text.partition(" ")
        halvings, _, process = rest.partition(" ")
        if not (offset.isdecimal() and halvings.isdecimal()):
            return None
        return cls(int(offset), int(halvings), process)


class BatchLimits:
    """Limits the number of records in a batch.

    Args:
        batch_records: Configured batch size, at least 1.
        process: Name of this process; drawn when empty.
    """

    def __init__(self, batch_records: int, process: str = "") -> None:
        self._batch_records = batch_records
        self._process = process or secrets.token_hex(8)
        self._halvings = 0
        #: Records to commit before the next batch is read ahead.
        self._until_ahead_count = 1
        #: Records committed since the batch size changed last.
        self._committed_count = 0

    def begin(self, partition: Partition, offset: int, earlier: str) -> str:
        """Begin to read a partition.

        Args:
            partition: The partition.
            offset: First offset.
            earlier: Read start of the last owner; empty when there is none.

        Returns:
            Read start of this process.
        """
        self._until_ahead_count = max(self._until_ahead_count, 1)
        before = ReadStart.parse(earlier)
        if before is not None and before.process != self._process:
            halvings = min(self._halvings_after(before, offset), self._batch_records.bit_length() - 1)
            if halvings > self._halvings:
                self._halvings, self._committed_count = halvings, 0
                self._until_ahead_count = CAREFUL_BATCHES * self._batch_records
                if before.offset == offset:
                    log.warning("batches_halved", partition=str(partition), offset=offset, records=self.limit())
        return str(ReadStart(offset, self._halvings, self._process))

    def _halvings_after(self, before: ReadStart, offset: int) -> int:
        """Return how often the batch size is halved behind the read start of another process."""
        if before.offset == offset:
            return before.halvings + 1
        return max(1, before.halvings - max(0, offset - before.offset) // self._batch_records)

    def committed(self, count: int) -> None:
        """Count committed records; enough of them double the batch size.

        Args:
            count: Records of a batch that was committed.
        """
        self._until_ahead_count -= count
        self._committed_count += count
        if self._halvings and self._committed_count >= self._batch_records:
            self._halvings, self._committed_count = self._halvings - 1, 0

    def may_read_ahead(self) -> bool:
        """Tell whether the next batch may be read while a batch is at work, so that memory holds both.

        Reading ahead starts once a batch was committed since the last takeover of a partition; after a halving, once
        ``CAREFUL_BATCHES`` batches were committed, because two batches may have been too much for the memory.
        """
        return self._until_ahead_count <= 0 and not self._halvings

    def limit(self) -> int:
        """Return the largest number of records that the next batch may have, at least 1."""
        return max(1, self._batch_records >> self._halvings)
