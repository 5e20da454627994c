"""A message broker inside one process, for tests: small, with the traps of Kafka.

The broker models the properties of Kafka that a wrong loop would violate:

- A topic that is created again has another id, and its committed offsets may be deleted later.
- A failed publish has an unknown outcome: ``publish_failures`` makes a publish fail before or after the commit.
- A rebalance moves no position of a retained partition, and a new owner starts at the committed offset.
- The commit of a batch of an earlier generation is refused.
- Opening a sink aborts the open transaction of its transactional id and fences the earlier sink.
- Readers wait at an open transaction and do not see an aborted one, and transaction markers take up offsets.
- A sink or source that failed is unusable.

Two differences: while the broker is away, a source raises at once; the source of Kafka raises after some polls that
return nothing. Lags count an aborted transaction until a record behind it is read; those of Kafka, until it is passed.
Not thread-safe: a test calls the broker step by step. Sources and sinks are in ``tests.simulation.transport``.
"""

import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, cycle
from typing import Literal

from streamdedup.errors import BrokerUnavailable, MembershipEnded, ProducerFenced
from streamdedup.kafka.protocols import Batch, CommittedOffset, Message, Record
from streamdedup.position import Partition, Position

#: When a publish fails: before or after it takes effect.
FailurePoint = Literal["before commit", "after commit"]


@dataclass(slots=True)
class Transaction:
    """Records that become visible together, or never."""

    state: Literal["open", "committed", "aborted"] = "open"
    partitions: set[Partition] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One offset of a partition: a record, or without a record the marker that ends a transaction."""

    record: Record | None
    transaction: Transaction


@dataclass(frozen=True, slots=True)
class Membership:
    """Member that polled a batch, and the generation of its group."""

    member: int
    generation: int


@dataclass(slots=True)
class Group:
    """A consumer group; members have numbers, and are in order of joining."""

    topics: tuple[str, ...]
    generation: int = 0
    members: list[int] = field(default_factory=list)
    owners: dict[Partition, int] = field(default_factory=dict)
    committed_offsets: dict[Partition, CommittedOffset] = field(default_factory=dict)
    outdated: set[Partition] = field(default_factory=set)  # committed offsets of deleted topics
    statics: dict[str, int] = field(default_factory=dict)  # holder of each static membership
    index_names: dict[int, str] = field(default_factory=dict)  # by member


class MemoryBroker:
    """Topics, consumer groups and transactions.

    Attributes:
        away: While true, polls raise BrokerSilent and all other calls raise BrokerUnavailable.
        on_idle: Called with the timeout of a poll or hold without records, instead of waiting.
        publish_failures: Failures of the next publishes, in order; each is used once, as are ``poll_failures``.
        tells_topic_ids: Whether sources receive the ids of topics; false models a broker before Kafka 2.8.
    """

    def __init__(self, topics: Mapping[str, int], on_idle: Callable[[float], None] = lambda _timeout_s: None) -> None:
        self.away = False
        self.tells_topic_ids = True
        self.on_idle = on_idle
        self.groups: dict[str, Group] = {}
        self.member_numbers = count(1)
        self.publish_failures: list[FailurePoint] = []
        self.poll_failures: list[Exception] = []
        self.unreadable: set[Position] = set()
        self.compacted: set[str] = set()
        self.beginnings: dict[Partition, int] = {}
        self._topics = dict(topics)
        self._topic_ids = dict.fromkeys(topics, "1")
        self._missing: set[str] = set()
        self._logs: dict[Partition, list[LogEntry]] = {
            Partition(topic, number): [] for topic, partitions in topics.items() for number in range(partitions)
        }
        self._epochs: dict[str, int] = {}
        self._open: dict[str, Transaction] = {}

    def produce(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = None,
        timestamp_ms: int = 0,
        readable: bool = True,
        headers: tuple[tuple[str, bytes], ...] = (),
    ) -> Position:
        """Append one record outside any transaction; the key decides the partition unless its number is given."""
        message = Message(topic, key, value, headers, timestamp_ms)
        position = self.append(message, Transaction("committed"), partition)
        self.unreadable |= set() if readable else {position}
        return position

    def compact(self, partition: Partition, *offsets: int) -> None:
        """Delete records, as the compaction of the topic does, or the retention of its tombstones."""
        self.compacted.add(partition.topic)
        self._delete(partition, offsets)

    def truncate(self, partition: Partition, beginning: int) -> None:
        self.beginnings[partition] = beginning
        self._delete(partition, range(beginning))

    def _delete(self, partition: Partition, offsets: Iterable[int]) -> None:
        log = self._logs[partition]
        for offset in offsets:
            log[offset] = replace(log[offset], record=None)

    def records(self, topic: str) -> list[Record]:
        return [record for partition in self.partitions(topic) for record in self.visible(partition)]

    def offsets_of(self, group: str) -> dict[Partition, int]:
        state = self.groups.get(group)
        return {} if state is None else {partition: each.offset for partition, each in state.committed_offsets.items()}

    def commit(self, group: str, offsets: Mapping[Partition, int]) -> None:
        """Set offsets, as an operator can while the group is stopped."""
        self.groups[group].committed_offsets |= {
            partition: CommittedOffset(offset) for partition, offset in offsets.items()
        }

    def recreate(self, topic: str, partitions: int | None = None, *, offsets_deleted: bool = True) -> None:
        """Delete a topic and create it again, empty; its committed offsets are deleted now or later."""
        count = len(self.partitions(topic))
        self._remove(topic, offsets_deleted=offsets_deleted)
        self.create(topic, partitions or count)

    def delete(self, topic: str, *, offsets_deleted: bool = True) -> None:
        """Delete a topic, and its committed offsets now or later (``delete_offsets``)."""
        self._remove(topic, offsets_deleted=offsets_deleted)
        self._rebalance_readers(topic)

    def _remove(self, topic: str, *, offsets_deleted: bool) -> None:
        for partition in self.partitions(topic):
            del self._logs[partition]
            self.beginnings.pop(partition, None)
        self.compacted.discard(topic)
        if offsets_deleted:
            self.delete_offsets(topic)
        for state in self.groups.values():
            state.outdated.update(each for each in state.committed_offsets if each.topic == topic)
        self._topics[topic] = 0
        self._missing.add(topic)

    def create(self, topic: str, partitions: int) -> None:
        """Create a deleted topic again, empty and with another id."""
        self._missing.remove(topic)
        self._topic_ids[topic] = str(int(self._topic_ids[topic]) + 1)
        self.add_partitions(topic, partitions)

    def missing(self, topics: Iterable[str]) -> frozenset[str]:
        return self._missing.intersection(topics)

    def add_partitions(self, topic: str, partitions: int) -> None:
        self._logs |= {Partition(topic, number): [] for number in range(self._topics[topic], partitions)}
        self._topics[topic] = partitions
        self._rebalance_readers(topic)

    def _rebalance_readers(self, topic: str) -> None:
        for group in [name for name, state in self.groups.items() if topic in state.topics]:
            self.rebalance(group)

    def expire(self, group: str, member: int) -> None:
        state = self.groups[group]
        if member in state.members:
            state.members.remove(member)
            state.statics = {name: number for name, number in state.statics.items() if number != member}
            self.rebalance(group)

    def replace_static(self, group: str, instance_id: str, member: int) -> bool:
        """Give a static membership to a new process, in the same generation; tell whether there was one."""
        state = self.groups[group]
        before = state.statics.get(instance_id)
        state.statics[instance_id] = member
        if before is None:
            return False
        state.members[state.members.index(before)] = member
        state.owners = {each: member if owner == before else owner for each, owner in state.owners.items()}
        return True

    def delete_group(self, group: str) -> None:
        """Delete a group without members, as Kafka does with a group whose offsets have expired."""
        state = self.groups[group]
        assert not state.members, "only a group without members can be deleted"
        state.generation = 0
        state.owners.clear()
        state.committed_offsets.clear()

    def delete_offsets(self, topic: str) -> None:
        for state in self.groups.values():
            state.committed_offsets = {
                each: offset for each, offset in state.committed_offsets.items() if each.topic != topic
            }

    def delete_outdated(self, group: str) -> None:
        """Delete the offsets of deleted topics that were left."""
        state = self.groups[group]
        for partition in state.outdated:
            state.committed_offsets.pop(partition, None)
        state.outdated.clear()

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        return {
            topic: self._topic_ids[topic] for topic in topics if self.tells_topic_ids and topic not in self._missing
        }

    def committed_offset(self, group: str, partition: Partition) -> CommittedOffset | None:
        committed_offset = self.groups[group].committed_offsets.get(partition)
        if committed_offset is None or committed_offset.topic_id not in {"", self._topic_ids[partition.topic]}:
            return None
        return committed_offset

    def committed_offsets(self, group: str) -> dict[Partition, CommittedOffset]:
        partitions = [each for each in self.groups[group].committed_offsets if each.topic not in self._missing]
        return {each: offset for each in partitions if (offset := self.committed_offset(group, each)) is not None}

    def has_committed(self, group: str, ends: Mapping[Partition, int]) -> bool:
        """Tell whether a group has committed these offsets; one beyond the end belongs to a deleted topic."""
        offsets = {partition: self.committed_offset(group, partition) for partition in ends}
        return all(
            (mark := offsets[partition]) is not None and end <= mark.offset <= self.end_of(partition)
            for partition, end in ends.items()
        )

    def start(self, group: str, partition: Partition) -> int:
        """Offset at which a member of a group starts to read a partition."""
        committed_offset = self.committed_offset(group, partition)
        offset = 0 if committed_offset is None else committed_offset.offset
        return 0 if offset > self.end_of(partition) else offset

    def rebalance(self, group: str) -> None:
        """Assign each partition to another member, if there are several; members notice at their next poll."""
        state = self.groups[group]
        state.generation += 1
        partitions = sorted(partition for topic in state.topics for partition in self.partitions(topic))
        shift = state.generation % len(state.members) if state.members else 0
        members = cycle(state.members[shift:] + state.members[:shift])
        state.owners = dict(zip(partitions, members, strict=False))

    def time_out_transactions(self, partition: Partition | None = None, end: int = 0) -> None:
        """Abort all open transactions, or those with a record of a partition before an offset: they time out."""
        entries = () if partition is None else self._logs[partition][:end]
        for transactional_id, transaction in list(self._open.items()):
            if partition is None or any(entry.transaction is transaction for entry in entries):
                self.end(transactional_id, "aborted")

    def refuse_if_away(self) -> None:
        if self.away:
            raise BrokerUnavailable("the broker is away")

    def append(self, message: Message, transaction: Transaction, partition: int | None = None) -> Position:
        number = zlib.crc32(message.key or b"") % self._topics[message.topic] if partition is None else partition
        log = self._logs[Partition(message.topic, number)]
        position = Position(message.topic, number, len(log))
        time_ms = time.time_ns() // 1_000_000 if message.timestamp_ms is None else message.timestamp_ms
        record = Record(position, time_ms, message.key, message.value, message.headers)
        log.append(LogEntry(record, transaction))
        transaction.partitions.add(position.topic_partition)
        return position

    def visible(self, partition: Partition, start: int = 0) -> Iterator[Record]:
        """Committed records from ``start`` on, up to the first open transaction."""
        for entry in self._logs[partition][start:]:
            if entry.transaction.state == "open":
                return
            if entry.transaction.state == "committed" and entry.record is not None:
                yield entry.record

    def first_since(self, partition: Partition, time_ms: int | None) -> int:
        """Offset of the first record of a time or later; without one, of the first open transaction or the end."""
        if time_ms is None:
            return 0
        for offset, entry in enumerate(self._logs[partition]):
            state = entry.transaction.state
            is_late = entry.record is not None and entry.record.timestamp_ms >= time_ms
            if state == "open" or (state == "committed" and is_late):
                return offset
        return self.end_of(partition)

    def has_open_transaction(self, partition: Partition, end: int) -> bool:
        return any(entry.transaction.state == "open" for entry in self._logs[partition][:end])

    def end_of(self, partition: Partition) -> int:
        return len(self._logs.get(partition, ()))

    def register(self, transactional_id: str) -> int:
        """Fence the earlier producer, abort its open transaction, and return the epoch of the new producer."""
        self.end(transactional_id, "aborted")
        self._epochs[transactional_id] = self._epochs.get(transactional_id, 0) + 1
        return self._epochs[transactional_id]

    def begin(self, transactional_id: str, epoch: int) -> Transaction:
        if self._epochs[transactional_id] != epoch:
            raise ProducerFenced(f"another producer took over {transactional_id}")
        self._open[transactional_id] = Transaction()
        return self._open[transactional_id]

    def end(self, transactional_id: str, state: Literal["committed", "aborted"]) -> None:
        """End the open transaction, if any; its markers take up one offset of each partition."""
        transaction = self._open.pop(transactional_id, Transaction())
        transaction.state = state
        for partition in transaction.partitions:
            self._logs[partition].append(LogEntry(None, transaction))

    def commit_batch(self, group: str, batch: Batch, transaction: Transaction | None = None) -> None:
        if transaction is not None and transaction.state != "open":
            raise ProducerFenced("the transaction was aborted")
        state = self.groups[group]
        membership: Membership = batch.membership
        if membership.generation != state.generation or membership.member not in state.members:
            raise MembershipEnded("the group moved on while the batch was processed")
        state.outdated.difference_update(batch.next_offsets)
        for each, offset in batch.next_offsets.items():
            topic_id, incarnation = batch.topic_ids.get(each.topic, ""), batch.incarnations.get(each, 0)
            state.committed_offsets[each] = CommittedOffset(offset, batch.metadata, topic_id, incarnation)

    def partitions(self, topic: str) -> list[Partition]:
        return [Partition(topic, number) for number in range(self._topics[topic])]
