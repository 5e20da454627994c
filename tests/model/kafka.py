"""Partitions, a consumer group and transactions.

A transaction commits the alerts, the dead letters and the offsets of a batch at once, and is refused when the group's
generation is another one than at the poll or the partitions belong to another member. Its alerts are in the duplicates
topic before: consumers see them, and all records behind them, when the broker has marked the end of the transaction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.detector import Publication
from tests.model.documents import Operation, Pair, Position
from tests.model.index import AttemptId


class Alert(NamedTuple):
    """A published pair: its position and the time of the commit."""

    pair: Pair
    position: Position
    committed_at: int


@dataclass(slots=True)
class Transaction:
    """The alerts of a batch in the duplicates topic.

    Attributes:
        alerts: Each pair with the position that publishes it.
        at: Time of the alerts.
        ended: Whether the end is marked in the topic.
        committed: Whether the transaction was committed; if not, and without a mark, it is open.
    """

    alerts: Sequence[tuple[Pair, Position]]
    at: int
    ended: bool = False
    committed: bool = False


class Kafka:
    """The broker.

    Args:
        partitions_count: How many input partitions there are.
        retention: How long a rebuild finds records; None for ever.
    """

    def __init__(self, partitions_count: int, retention: int | None = None) -> None:
        self.retention = retention
        self.log: list[list[Operation]] = [[] for _ in range(partitions_count)]
        #: Number of times that the topic was created again, and its earlier logs.
        self.topic = 0
        self.deleted: list[list[list[Operation]]] = []
        self.committed = [0] * partitions_count
        #: Attempt id committed with each offset; None when an operator set the offset.
        self.attempt_ids: list[AttemptId | None] = [None] * partitions_count
        #: Position -> time of its first commit.
        self.committed_at: dict[Position, int] = {}
        self.generation = 0
        #: Partition -> its member.
        self.owners: list[object] = [None] * partitions_count
        self.alerts: list[Alert] = []
        self.dead_letters: list[Position] = []
        #: The duplicates topic: transactions in the order of their alerts.
        self.duplicates: list[Transaction] = []

    def begin(self, publication: Publication, now: int) -> Transaction:
        """Begin a transaction, and write its alerts to the duplicates topic."""
        transaction = Transaction(publication.alerts, now)
        if publication.alerts:
            self.duplicates.append(transaction)
        return transaction

    def unmarked(self) -> list[Transaction]:
        """Return the transactions whose end is not marked in the duplicates topic."""
        return [transaction for transaction in self.duplicates if not transaction.ended]

    def rebalance(self, members: Sequence[object]) -> None:
        """Begin a new generation."""
        self.generation += 1
        self.owners = [members[partition % len(members)] for partition in range(len(self.log))]

    def rejoin(self) -> None:
        """Begin a new generation with the same assignment, because a member joins anew."""
        self.generation += 1

    def recreate(self) -> None:
        """Delete the topic with its committed offsets, and create it again."""
        self.topic += 1
        self.deleted.append(self.log)
        self.log = [[] for _ in self.log]
        self.committed = [0] * len(self.log)
        self.attempt_ids = [None] * len(self.log)

    def replace_member(self, old: object, new: object) -> None:
        """Replace the process of a static member; assignment and generation stay."""
        self.owners = [new if owner is old else owner for owner in self.owners]

    def partitions_of(self, member: object) -> list[int]:
        return [partition for partition, owner in enumerate(self.owners) if owner is member]

    def commit(
        self,
        member: object,
        generation: int,
        ends: Mapping[int, int],
        attempt_id: AttemptId,
        publication: Publication,
        transaction: Transaction,
        now: int,
    ) -> bool:
        """Commit a transaction; tell whether the group accepted it. The end is marked later (``Simulation``)."""
        is_stale = generation != self.generation or any(self.owners[partition] is not member for partition in ends)
        if transaction.ended or is_stale:
            transaction.ended = True
            return False
        transaction.committed = True
        for partition, end in ends.items():
            for offset in range(self.committed[partition], end):
                self.committed_at.setdefault(Position(partition, offset, self.topic), now)
            self.committed[partition] = end
            self.attempt_ids[partition] = attempt_id
        self.alerts += [Alert(pair, position, now) for pair, position in publication.alerts]
        self.dead_letters += publication.dead_letters
        return True

    def is_set_back(self) -> bool:
        """Tell whether an offset was set back and not yet passed again."""
        present = [position for position in self.committed_at if position.topic == self.topic]
        return any(position.offset >= self.committed[position.partition] for position in present)

    def set_back(self, partition: int, offset: int) -> None:
        """Set the offset of the group, as an operator does; there is no attempt id."""
        self.committed[partition] = offset
        self.attempt_ids[partition] = None

    def all_done(self) -> bool:
        return all(end == len(log) for end, log in zip(self.committed, self.log, strict=True))
