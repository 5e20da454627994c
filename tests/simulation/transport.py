"""Sources, sinks and histories of the memory broker (``tests.simulation.broker``); see ``kafka.protocols``.

All calls raise BrokerUnavailable while the broker is away; a poll raises BrokerSilent.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from itertools import chain, groupby, islice

from streamdedup.errors import BrokerMisconfigured, BrokerSilent, BrokerUnavailable, GroupHasOtherIndex, Rejoin
from streamdedup.kafka.consumer import AHEAD_POLL_S
from streamdedup.kafka.protocols import Batch, CommittedOffset, Message, ReadProgress, SourceStats, UnreadableRecord
from streamdedup.position import Partition
from tests.simulation.broker import Group, Membership, MemoryBroker, Transaction

__all__ = ["MemoryBroker", "MemoryHistory", "MemorySink", "MemorySource", "MemoryTransport"]


#: Waits of a reader for the end of a transaction, after which the transaction has timed out.
_TRANSACTION_WAITS = 5


@dataclass
class MemoryTransport:
    """Opens sources and sinks of one member of a group.

    Without a transactional id delivery is at least once; ``instance_id`` names a static membership; a member whose
    index has another name than that of the others is refused.
    """

    broker: MemoryBroker
    group: str
    topics: Sequence[str]
    transactional_id: str | None = field(default="only", kw_only=True)
    max_poll_records: int = field(default=2_000, kw_only=True)
    instance_id: str | None = field(default=None, kw_only=True)
    index_name: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        self.broker.groups.setdefault(self.group, Group(tuple(self.topics)))

    def open(self) -> "tuple[MemorySource, MemorySink]":
        self.broker.refuse_if_away()
        self.refuse_other_indexes()
        return MemorySource(self), MemorySink(self.broker, self.group, self.transactional_id)

    def refuse_other_indexes(self) -> None:
        group = self.broker.groups[self.group]
        if others := {group.index_names[member] for member in group.members} - {self.index_name}:
            raise GroupHasOtherIndex(f"members of the group have another index: {others}")


class MemorySource:
    """Member of a consumer group; joins at its first poll."""

    def __init__(self, transport: MemoryTransport) -> None:
        self._transport = transport
        self._instance_id = transport.instance_id
        self._broker = transport.broker
        self._name = transport.group
        self._group = self._broker.groups[self._name]
        self._member = next(self._broker.member_numbers)
        self._generation = -1
        self._positions: dict[Partition, int] = {}
        self._rebalances_count = 0
        self._has_joined = False
        self._broken: str | None = None
        self._topic_ids = self._broker.topic_ids(self._group.topics)
        self._ends: dict[Partition, int] = {}  # as of the last fetch or request

    def poll(self, timeout_s: float, max_records: int | None = None) -> Batch:
        self._refuse_if_broken()
        present = self._broker.topic_ids(self._group.topics)
        self._topic_ids = present | self._topic_ids
        if any(self._topic_ids[topic] != topic_id for topic, topic_id in present.items()):
            self._broken = "a topic was deleted and created again"
            raise Rejoin(self._broken)
        if self._broker.poll_failures:
            self._broken = "a poll failed"
            raise self._broker.poll_failures.pop(0)
        if self._broker.away:
            self._broker.on_idle(timeout_s)
            raise BrokerSilent("the broker is away")
        self._catch_up()
        most = self._transport.max_poll_records
        batch = self._fetch(most if max_records is None else min(max_records, most))
        if not batch:
            self._broker.on_idle(timeout_s)
        return batch

    def poll_ahead(self, max_records: int) -> Batch:
        return self.poll(AHEAD_POLL_S, max_records)

    def rewind(self, batch: Batch) -> None:
        self.seek(batch.starts)

    def first_since(self, times_ms: Mapping[Partition, int]) -> dict[Partition, int]:
        self._broker.refuse_if_away()
        return {partition: self._broker.first_since(partition, time_ms) for partition, time_ms in times_ms.items()}

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Set the next offset of those partitions that are assigned."""
        self._positions.update((p, offset) for p, offset in offsets.items() if p in self._positions)

    def keep_membership(self, timeout_s: float) -> None:
        self._refuse_if_broken()
        if not self._broker.away:
            self._catch_up()
        self._broker.on_idle(timeout_s)

    def committed_offset(self, partition: Partition) -> CommittedOffset | None:
        self._broker.refuse_if_away()
        return self._broker.committed_offset(self._name, partition)

    def committed_offsets(self, *, stable: bool = True) -> dict[Partition, CommittedOffset]:
        self._broker.refuse_if_away()
        return self._broker.committed_offsets(self._name)

    def end(self, partition: Partition) -> int | None:
        return self._broker.end_of(partition)

    def request_ends(self) -> None:
        self._broker.refuse_if_away()
        self._ends = {partition: self._broker.end_of(partition) for partition in self._positions}

    def confirm(self) -> None:
        """Check a static membership; any other member begins a new generation when it joins."""
        if self._instance_id is not None:
            self._broker.refuse_if_away()
            self._refuse_if_replaced()
            if self._member not in self._group.members:
                raise BrokerUnavailable("the session has ended")

    def commit(self, batch: Batch) -> None:
        self._broker.refuse_if_away()
        self._broker.commit_batch(self._name, batch)

    def assigned(self) -> frozenset[Partition]:
        return frozenset(self._positions)

    def partitions(self) -> frozenset[Partition]:
        return frozenset(each for topic in self._group.topics for each in self._broker.partitions(topic))

    def missing_topics(self) -> frozenset[str]:
        return self._broker.missing(self._group.topics)

    def generation(self) -> int | None:
        return self._generation if self._member in self._group.members and self._generation >= 0 else None

    def stats(self) -> SourceStats:
        ends = {partition: end for partition, end in self._ends.items() if partition in self._positions}
        lags = {partition: end - self._positions[partition] for partition, end in ends.items()}
        return SourceStats(self._rebalances_count, lags)

    def close(self) -> None:
        """Leave the group; a static member stays until its session ends."""
        self._broken = "closed"
        self._positions.clear()
        if self._instance_id is None:
            self.leave()

    def leave(self) -> None:
        """Leave the group, as after a session timeout; the next poll joins again."""
        self._broker.expire(self._name, self._member)

    def _refuse_if_replaced(self) -> None:
        holder = self._group.statics.get(self._instance_id or "", self._member)
        if self._has_joined and holder != self._member:
            raise BrokerMisconfigured(f"another process holds the static membership {self._instance_id}")

    def _catch_up(self) -> None:
        """Join the group if necessary, and adopt the assignment of its generation."""
        self._refuse_if_replaced()
        if self._member not in self._group.members:
            self._positions.clear()
            self._has_joined, self._generation = True, -1
            self._group.index_names[self._member] = self._transport.index_name
            if self._instance_id is None or not self._broker.replace_static(
                self._name, self._instance_id, self._member
            ):
                self._group.members.append(self._member)
                self._broker.rebalance(self._name)
            self._transport.refuse_other_indexes()
        if self._generation == self._group.generation:
            return
        self._generation = self._group.generation
        self._rebalances_count += 1
        assigned = [partition for partition, member in self._group.owners.items() if member == self._member]
        self._positions = {p: self._positions.get(p, self._broker.start(self._name, p)) for p in assigned}

    def _fetch(self, limit: int) -> Batch:
        """The next records of the assigned partitions; unreadable records come in a batch of their own."""
        self.request_ends()
        # Out of range, as for a topic that was created again: start at the oldest record.
        self.seek({p: 0 for p, offset in self._positions.items() if offset > self._broker.end_of(p)})
        records = chain.from_iterable(self._broker.visible(p, offset) for p, offset in self._positions.items())
        kinds = groupby(islice(records, limit), lambda record: record.position in self._broker.unreadable)
        is_unreadable, fetched = next(((kind, tuple(same)) for kind, same in kinds), (False, ()))
        batch = Batch(
            () if is_unreadable else fetched,
            tuple(UnreadableRecord(record.position, "made unreadable") for record in fetched if is_unreadable),
            max(0, self._generation),
            Membership(self._member, self._generation),
            topic_ids=self._topic_ids,
        )
        self.seek(batch.next_offsets)
        return batch

    def _refuse_if_broken(self) -> None:
        if self._broken is not None:
            raise BrokerUnavailable(f"this source is unusable ({self._broken}); open a new one")


class MemorySink:
    """Publishes in transactions; without a transactional id, first the messages and then the offsets."""

    def __init__(self, broker: MemoryBroker, group: str, transactional_id: str | None) -> None:
        broker.refuse_if_away()
        self._broker = broker
        self._group = group
        self._id = transactional_id
        self._epoch = broker.register(transactional_id) if transactional_id is not None else 0
        self._spent: str | None = None

    def publish(self, messages: Sequence[Message], batch: Batch) -> None:
        if self._spent is not None:
            raise BrokerUnavailable(f"this sink is unusable ({self._spent}); open a new one")
        self._spent = "publishing failed"
        self._broker.refuse_if_away()
        failure = self._broker.publish_failures.pop(0) if self._broker.publish_failures else None
        transaction = Transaction("committed") if self._id is None else self._broker.begin(self._id, self._epoch)
        for message in messages:
            self._broker.append(message, transaction)
        if failure == "before commit":
            raise BrokerUnavailable("made to fail before the commit")
        if batch:
            self._broker.commit_batch(self._group, batch, None if self._id is None else transaction)
        if self._id is not None:
            self._broker.end(self._id, "committed")
        if failure == "after commit":
            raise BrokerUnavailable("made to fail after the commit")
        self._spent = None

    def close(self) -> None:
        """Make the sink unusable; an open transaction stays open."""
        self._spent = "closed"


@dataclass
class MemorySpan(AbstractContextManager["MemorySpan"]):
    """A range of offsets of topics, which may await the ends of open transactions in it."""

    _broker: MemoryBroker
    _starts: Mapping[Partition, int]
    _ends: Mapping[Partition, int]
    _size: int
    _awaits_transactions: bool
    _done_count: int = 0

    def __post_init__(self) -> None:
        self.total_count = sum(max(0, end - self._starts[partition]) for partition, end in self._ends.items())

    def batches(self) -> Iterator[Batch]:
        self._broker.refuse_if_away()
        for partition, end in self._ends.items():
            start = self._starts[partition]
            for _ in range(_TRANSACTION_WAITS):
                if self._awaits_transactions and self._broker.has_open_transaction(partition, end):
                    self._broker.on_idle(0.2)
                    yield Batch()
            if self._awaits_transactions:
                self._broker.time_out_transactions(partition, end)
            records = [record for record in self._broker.visible(partition, start) if record.position.offset < end]
            for first in range(0, len(records), self._size):
                part = records[first : first + self._size]
                unreadable = {record.position for record in part} & self._broker.unreadable
                yield Batch(
                    tuple(record for record in part if record.position not in unreadable),
                    tuple(UnreadableRecord(position, "made unreadable") for position in sorted(unreadable)),
                )
            self._done_count += max(0, end - start)

    def done_count(self) -> int:
        return self._done_count

    def __exit__(self, *_error: object) -> None:
        """Do nothing: there is nothing to free."""


class MemoryHistory:
    """Reads topics, in batches of at most ``size`` records."""

    def __init__(self, broker: MemoryBroker, size: int = 500) -> None:
        self._broker = broker
        self._size = size

    def progress(
        self,
        topics: Sequence[str],
        offsets: Mapping[Partition, int],
        now_ms: int,
        tick: Callable[[], None],
    ) -> dict[Partition, ReadProgress]:
        self._broker.refuse_if_away()
        self._refuse_missing(topics)
        found: dict[Partition, ReadProgress] = {}
        for partition in (partition for topic in topics for partition in self._broker.partitions(topic)):
            tick()
            records = list(self._broker.visible(partition))
            left = [record for record in records if record.position.offset >= offsets.get(partition, 0)]
            times = [record.timestamp_ms for record in left or records[::-1] if record.timestamp_ms >= 0]
            sane = (time for time in times if time <= now_ms)
            if records:
                found[partition] = ReadProgress(not left, next(sane, now_ms if times else None))
        return found

    def keeps_all(self, starts: Mapping[Partition, int]) -> bool:
        self._broker.refuse_if_away()
        if any(partition.topic in self._broker.compacted for partition in starts):
            return False
        return all(self._broker.beginnings.get(partition, 0) <= start for partition, start in starts.items())

    def open(
        self,
        topics: Sequence[str],
        since_ms: Mapping[Partition, int | None] | int | None,
        ends: Mapping[Partition, int] | None,
        starts: Mapping[Partition, int] | None = None,
    ) -> MemorySpan:
        assert topics, "KafkaOptions refuses to have none"
        self._broker.refuse_if_away()
        self._refuse_missing(topics)
        partitions = [partition for topic in topics for partition in self._broker.partitions(topic)]
        here = {partition: self._broker.end_of(partition) for partition in partitions}
        since = since_ms if isinstance(since_ms, Mapping) else dict.fromkeys(partitions, since_ms)
        first = {partition: self._broker.first_since(partition, since.get(partition)) for partition in partitions}
        if starts is not None:
            first = {partition: starts.get(partition, 0) for partition in partitions}
        until = here if ends is None else {each: min(end, ends.get(each, 0)) for each, end in here.items()}
        return MemorySpan(self._broker, first, until, self._size, ends is None)

    def _refuse_missing(self, topics: Sequence[str]) -> None:
        if missing := self._broker.missing(topics):
            raise BrokerMisconfigured(f"no such topic: {', '.join(sorted(missing))}")
