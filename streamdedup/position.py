"""Where a record stands in Kafka: the names that every layer shares, and nothing else."""

from typing import NamedTuple


class Partition(NamedTuple):
    """One partition of one topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.number}"


class Position(NamedTuple):
    """The place of one record; unique for ever, so it names the record in every retry and replay.

    Topic names never contain a colon, so the text form can be read back.
    """

    topic: str
    partition: int
    offset: int

    @property
    def of(self) -> Partition:
        """The partition that this position lies in."""
        return Partition(self.topic, self.partition)

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"
