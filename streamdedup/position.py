"""Partitions, their incarnations, and positions: the coordinates of Kafka records, used by all layers.

The text forms of ``PartitionIncarnation`` and ``Position.key`` are stored in the index.
"""

from functools import lru_cache
from typing import NamedTuple, Self


class Partition(NamedTuple):
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}"


class PartitionIncarnation(NamedTuple):
    """A partition in one incarnation of its topic: the identity of a partition in the index.

    A topic that is deleted and created again begins at offset 0 again, so the index counts the incarnations of each
    partition, from 0. Positions outside an index have incarnation 0. Topic names contain neither a colon nor an at
    sign, so the text form can be parsed.
    """

    topic: str
    partition: int
    incarnation: int = 0

    def __str__(self) -> str:
        suffix = f"@{self.incarnation}" if self.incarnation else ""
        return f"{self.topic}{suffix}:{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text form; raise ``ValueError`` if partition or incarnation is no number."""
        name, _, partition = text.rpartition(":")
        topic, _, incarnation = name.partition("@")
        return cls(topic, int(partition), int(incarnation or 0))  # ``__str__`` leaves incarnation 0 out

    def position_at(self, offset: int) -> "Position":
        return Position(self.topic, self.partition, offset, self.incarnation)


class Position(NamedTuple):
    """The position of one record; unique for ever, so it identifies the record in every retry and replay.

    Compare positions of one incarnation only: tuples do not sort by it first.
    """

    topic: str
    partition: int
    offset: int
    incarnation: int = 0

    @property
    def topic_partition(self) -> Partition:
        return _partition(self.topic, self.partition)

    @property
    def partition_incarnation(self) -> PartitionIncarnation:
        return _partition_incarnation(self.topic, self.partition, self.incarnation)

    @property
    def key(self) -> str:
        """Text form in the index, with the incarnation; ``str()`` is the form for people, without it."""
        return f"{self.partition_incarnation}:{self.offset}"

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


# Called several times for each record; constructing a named tuple takes five times as long as a look-up here.
@lru_cache(maxsize=4096)
def _partition(topic: str, partition: int) -> Partition:
    return Partition(topic, partition)


@lru_cache(maxsize=4096)
def _partition_incarnation(topic: str, partition: int, incarnation: int) -> PartitionIncarnation:
    return PartitionIncarnation(topic, partition, incarnation)
