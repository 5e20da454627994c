"""Partitions, a consumer group and transactions.

A transaction commits the alerts, the dead letters and the offsets of a batch at once, and is refused when the group's
generation is another one than at the poll or the partitions belong to another member.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tests.model.detector import Outcome
from tests.model.documents import Operation, Pair, Position
from tests.model.index import Token


class Alert(NamedTuple):
    """A pair that was reported: by which position, and when that was committed."""

    pair: Pair
    position: Position
    committed_at: int


class Kafka:
    """The broker.

    Args:
        partitions_count: How many input partitions there are.
    """

    def __init__(self, partitions_count: int) -> None:
        self.log: list[list[Operation]] = [[] for _ in range(partitions_count)]
        #: How often the topic was deleted and created again, and the logs that it had before.
        self.topic = 0
        self.deleted: list[list[list[Operation]]] = []
        self.committed = [0] * partitions_count
        #: Metadata of the committed offsets: the attempt that committed them; None when they were set by hand.
        self.tokens: list[Token | None] = [None] * partitions_count
        #: Position -> when it was first committed.
        self.committed_at: dict[Position, int] = {}
        self.generation = 0
        #: Partition -> the member that it is assigned to.
        self.owners: list[object] = [None] * partitions_count
        self.alerts: list[Alert] = []
        self.dead_letters: list[Position] = []

    def rebalance(self, members: Sequence[object]) -> None:
        """Begin a new generation."""
        self.generation += 1
        self.owners = [members[partition % len(members)] for partition in range(len(self.log))]

    def rejoin(self) -> None:
        """A member joins anew: a new generation, in which everybody keeps what he has."""
        self.generation += 1

    def recreate(self) -> None:
        """Delete the topic, and with it what is committed, and create it again."""
        self.topic += 1
        self.deleted.append(self.log)
        self.log = [[] for _ in self.log]
        self.committed = [0] * len(self.log)
        self.tokens = [None] * len(self.log)

    def replace_member(self, old: object, new: object) -> None:
        """A static member comes back as another process: its partitions and the generation stay."""
        self.owners = [new if owner is old else owner for owner in self.owners]

    def partitions_of(self, member: object) -> list[int]:
        return [partition for partition, owner in enumerate(self.owners) if owner is member]

    def commit(
        self,
        member: object,
        generation: int,
        ends: Mapping[int, int],
        token: Token,
        outcome: Outcome,
        now: int,
    ) -> bool:
        """Commit a transaction; tell whether the group let it pass."""
        if generation != self.generation or any(self.owners[partition] is not member for partition in ends):
            return False
        for partition, end in ends.items():
            for offset in range(self.committed[partition], end):
                self.committed_at.setdefault(Position(partition, offset, self.topic), now)
            self.committed[partition] = end
            self.tokens[partition] = token
        self.alerts += [Alert(pair, position, now) for pair, position in outcome.alerts]
        self.dead_letters += outcome.dead_letters
        return True

    def is_set_back(self) -> bool:
        """Tell whether some partition has been further than it is."""
        present = [position for position in self.committed_at if position.topic == self.topic]
        return any(position.offset >= self.committed[position.partition] for position in present)

    def set_back(self, partition: int, offset: int) -> None:
        """Set the group's offset by hand; whatever tool does this knows nothing of our metadata."""
        self.committed[partition] = offset
        self.tokens[partition] = None

    def latest(self) -> int:
        """Return the time of the latest record of all."""
        return max((operation.time for log in self.log for operation in log), default=0)

    def all_done(self) -> bool:
        return all(end == len(log) for end, log in zip(self.committed, self.log, strict=True))
