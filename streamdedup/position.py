"""Where a record stands in Kafka: the names that every layer shares, and nothing else."""

from functools import lru_cache
from typing import NamedTuple, Self


class Partition(NamedTuple):
    """One partition of one topic."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.number}"


class Log(NamedTuple):
    """The records of a partition in one incarnation of its topic: the identity of a partition in the index.

    A topic that is deleted and created again counts its offsets from 0 again. The index counts the incarnations that it
    has seen of each partition. Topic names contain neither a colon nor an at sign, so the text form can be read back.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition.
        incarnation: 0 for the first incarnation that the index has seen, and for everything outside an index.
    """

    topic: str
    partition: int
    incarnation: int = 0

    def __str__(self) -> str:
        number = f"@{self.incarnation}" if self.incarnation else ""
        return f"{self.topic}{number}:{self.partition}"

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the log of a text form.

        Raises:
            ValueError: The text is none.
        """
        name, _, partition = text.rpartition(":")
        topic, _, incarnation = name.partition("@")
        return cls(topic, int(partition), int(incarnation or 0))

    def at(self, offset: int) -> "Position":
        """Return the position of an offset."""
        return Position(self.topic, self.partition, offset, self.incarnation)


class Position(NamedTuple):
    """The place of one record; unique for ever, so it names the record in every retry and replay.

    Attributes:
        topic: Name of the topic.
        partition: Number of the partition.
        offset: Offset of the record.
        incarnation: Incarnation of the topic; see ``Log``.
    """

    topic: str
    partition: int
    offset: int
    incarnation: int = 0

    @property
    def of(self) -> Partition:
        """The partition that this position lies in."""
        return _partition(self.topic, self.partition)

    @property
    def log(self) -> Log:
        """The partition, and the incarnation of its topic."""
        return _log(self.topic, self.partition, self.incarnation)

    @property
    def key(self) -> str:
        """The text by which the index knows this position; Kafka knows it by ``str()``, without the incarnation."""
        return f"{self.log}:{self.offset}"

    def __str__(self) -> str:
        return f"{self.topic}:{self.partition}:{self.offset}"


# Each record asks for its partition several times; to make a named tuple takes five times as long as to look one up.
@lru_cache(maxsize=4096)
def _partition(topic: str, number: int) -> Partition:
    return Partition(topic, number)


@lru_cache(maxsize=4096)
def _log(topic: str, number: int, incarnation: int) -> Log:
    return Log(topic, number, incarnation)
