"""The message system as the daemon knows it: a source of batches, and a sink that publishes each batch as a whole.

Plain data and Protocols. Implementations: this package (Kafka) and ``testing.memory_transport`` (in memory, for tests).
Sources and sinks are used from the thread of the loop only.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, Self

import msgspec

from streamdedup.position import Partition, Position


class Record(msgspec.Struct, frozen=True, gc=False):
    """One input record; bytes are unchanged.

    Attributes:
        position: Topic, partition and offset.
        timestamp_ms: Record time in milliseconds since the epoch.
        key: Key bytes, or None.
        value: Value bytes, or None (a tombstone).
        headers: Name and value of each header, in order; a value may be None.
    """

    position: Position
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Message:
    """One record to publish.

    Attributes:
        topic: Topic.
        key: Key bytes, or None.
        value: Value bytes; None is a tombstone.
        headers: Name and value of each header.
        timestamp_ms: Record time to set, or None for the time of sending.
    """

    topic: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record that the client of the message system cannot parse; only its position is known.

    Attributes:
        position: Topic, partition and offset.
        reason: Error of the client, for the operator; one line.
    """

    position: Position
    reason: str


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset of a partition.

    Attributes:
        offset: Next offset to read.
        metadata: Text committed with the offset; at most 4,096 bytes, the usual limit of brokers.
    """

    offset: int
    metadata: str = ""


@dataclass(frozen=True)
class Batch:
    """The result of one poll, with the membership under which it was fetched.

    Unreadable records become dead letters with their positions, and are passed when the batch is committed.

    Attributes:
        records: Records, in order within each partition.
        unreadable: Unreadable records, in order within each partition.
        generation: Generation of the consumer group at the poll; never negative.
        membership: Membership for the commit; opaque to the loop.
        metadata: Text to commit with each offset.
        topic_ids: Kafka's id of each topic at the poll, as far as known; committed with the offsets too.
    """

    records: tuple[Record, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    generation: int = 0
    membership: Any = None
    metadata: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is anything to process and to commit."""
        return bool(self.records or self.unreadable)

    def positions(self) -> Iterator[Position]:
        """Return every position that committing the batch passes, in order within each partition."""
        positions = [record.position for record in self.records]
        if not self.unreadable:
            return iter(positions)
        return iter(sorted([*positions, *(record.position for record in self.unreadable)]))

    def in_incarnations(self, incarnations: Mapping[Partition, int]) -> "Batch":
        """Return the batch with the incarnation of each partition in its positions."""
        if not any(incarnations.values()):
            return self

        def moved(position: Position) -> Position:
            return position._replace(incarnation=incarnations[position.of])

        return replace(
            self,
            records=tuple(msgspec.structs.replace(each, position=moved(each.position)) for each in self.records),
            unreadable=tuple(replace(each, position=moved(each.position)) for each in self.unreadable),
        )

    @cached_property
    def starts(self) -> Mapping[Partition, int]:
        """The first offset of each partition in the batch."""
        starts: dict[Partition, int] = {}
        for position in self.positions():
            starts.setdefault(position.of, position.offset)
        return starts

    @cached_property
    def ends(self) -> Mapping[Partition, int]:
        """The offset to commit for each partition: that of its last record, plus one."""
        return {position.of: position.offset + 1 for position in self.positions()}


@dataclass(slots=True)
class SourceStats:
    """Counters that a source keeps for the metrics.

    Attributes:
        rebalances_count: Assignments and revocations of partitions.
        lags: Records not yet read, by partition.
    """

    rebalances_count: int = 0
    lags: dict[Partition, int] = field(default_factory=dict)


class Source(Protocol):
    """Batches of records of a consumer group, delivered at least once from the committed offset on."""

    def poll(self, timeout_s: float, most: int | None = None) -> Batch:
        """Return the next records, or an empty batch after ``timeout_s``.

        Between two calls at most ``max_poll_interval`` may pass. A batch without a valid membership is never returned:
        the source rewinds it and returns an empty batch.

        Args:
            timeout_s: Longest wait in seconds.
            most: Most records of this batch, at least 1, where fewer than usual are wanted.

        Raises:
            BrokerSilent: The message system has stopped answering; poll or hold again, the source goes on by itself.
            BrokerUnavailable: This source is unusable; close it and open a new one.
            Rejoin: A topic was deleted and created again; close the source and open a new one.
            FatalError: The broker refuses the client permanently.
        """

    def poll_ahead(self, timeout_s: float, most: int) -> Batch:
        """Poll while the last batch is not committed yet; otherwise as ``poll``.

        The poll may join a later generation of the group, in which the last batch cannot be committed any more.

        Raises:
            StreamdedupError: As ``poll``.
        """

    def rewind(self, batch: Batch) -> None:
        """Make the next poll start again at ``batch``, for the partitions that are still assigned. Never blocks.

        Only for a batch whose publishing has not begun. After a failed ``publish`` the outcome is unknown, and only a
        new source, which starts at the committed offset, is correct.
        """

    def hold(self, timeout_s: float) -> None:
        """Wait for ``timeout_s``, keep the group membership, and fetch nothing, also from newly assigned partitions.

        The next ``poll`` fetches again.

        Raises:
            BrokerUnavailable: This source is unusable; close it and open a new one.
        """

    def committed(self, partition: Partition) -> CommittedOffset | None:
        """Return the committed offset of the group for ``partition``, or None if there is none.

        An offset that was committed for an earlier incarnation of the topic does not count, neither here nor as the
        starting position.

        Raises:
            BrokerUnavailable: Kafka did not answer in time.
        """

    def all_committed(self) -> dict[Partition, CommittedOffset]:
        """Return the committed offset of every partition of the topics that has one, assigned or not.

        Raises:
            BrokerUnavailable: Kafka did not answer in time.
        """

    def end(self, partition: Partition) -> int | None:
        """Return the last known offset behind the last record of a partition; None if unknown. Sends no request."""

    def confirm(self) -> None:
        """Return if the group counts this process among its members at this moment.

        A dynamic member begins a new generation when it joins, and has nothing to ask. A static member may be a process
        that was frozen, and whose place and generation another process has taken over.

        Raises:
            BrokerUnavailable: The process is no member, or the group did not answer; open a new source.
            FatalError: Another process holds the membership.
        """

    def commit(self, batch: Batch) -> None:
        """Commit ``batch`` outside any transaction; only for at-least-once delivery.

        Raises:
            BrokerUnavailable: Outcome unknown, or the membership has changed; close the source, open a new one.
        """

    def assigned(self) -> frozenset[Partition]:
        """Return the assigned partitions."""

    def partitions(self) -> frozenset[Partition]:
        """Return all known partitions of the topics; no request is sent."""

    def generation(self) -> int | None:
        """Return the generation of the group under which the partitions are assigned, or None without membership."""

    def stats(self) -> SourceStats:
        """Return counters and lags; no request is sent."""

    def close(self) -> None:
        """Leave the group and close the client; never raises, may be called twice."""


class Sink(Protocol):
    """Publishes the result of a batch."""

    def publish(self, messages: Sequence[Message], batch: Batch) -> None:
        """Publish all ``messages`` and commit ``batch``; with exactly-once delivery in one transaction.

        After a normal return everything is durable. After an error the outcome is unknown: close sink *and* source,
        open new ones, and go on from the committed offset.

        Raises:
            BrokerUnavailable: Any failure that new clients may solve.
            ProducerFenced: Another live producer took over the transactional id.
            FatalError: The broker refuses the client permanently.
        """

    def close(self) -> None:
        """Close the client without waiting for unsent messages; never raises, may be called twice."""


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """How far a group has read a partition that holds records.

    Attributes:
        is_read: Whether the group has read all records.
        time_ms: Record time of the next record to read, in milliseconds since the epoch; of the last record if all are
            read. A time in the future counts as now. None where the records have no times.
    """

    is_read: bool
    time_ms: int | None


class Span(Protocol):
    """The records that topics held when it was opened, from given times on; a context manager.

    Attributes:
        total_count: Number of offsets.
    """

    total_count: int

    def batches(self) -> Iterator[Batch]:
        """Yield all records, in order within each partition.

        Raises:
            BrokerUnavailable: Kafka sent nothing more.
        """

    def done_count(self) -> int:
        """Return the number of offsets read."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(self, *_error: object) -> None:
        """Close the client."""


class History(Protocol):
    """Reads topics outside any group."""

    def progress(
        self, topics: Sequence[str], offsets: Mapping[Partition, int], now_ms: int
    ) -> dict[Partition, ReadProgress]:
        """Return how far a group has read, by the times of records.

        In place of a record that is gone (retention, compaction, an aborted transaction) or has no time, the next
        record with a time counts.

        Args:
            topics: Names of the topics.
            offsets: Next offset to read of each partition; the oldest record where absent.
            now_ms: Present time in milliseconds since the epoch.

        Returns:
            The progress of each partition that holds records.

        Raises:
            BrokerUnavailable: No broker answers.
            FatalError: The broker refuses the client permanently, or a topic does not exist.
        """

    def open(
        self,
        topics: Sequence[str],
        since_ms: Mapping[Partition, int | None] | int | None,
        ends: Mapping[Partition, int] | None,
    ) -> Span:
        """Read topics.

        Each partition is read from its first record of the given time or later. Later records with earlier times are
        read too, so that no record since that time is left out in any order of times.

        Args:
            topics: Names of the topics.
            since_ms: Record time to begin at, in milliseconds since the epoch, for all or by partition; None or absent
                for the oldest record.
            ends: Offset to stop at, by partition; partitions without one are not read. None for the present ends.

        Raises:
            BrokerUnavailable: No broker answers.
            FatalError: The broker refuses the client permanently, or a topic does not exist.
        """


class TopicFollower(Protocol):
    """Reads the committed records of all partitions of topics outside any group, without end.

    Attributes:
        beginnings: First offset of each partition at construction.
        ends: Offset behind the last committed record of each partition at construction.
    """

    beginnings: dict[Partition, int]
    ends: dict[Partition, int]

    def start_at(self, starts: Mapping[Partition, int]) -> None:
        """Make the next poll begin at ``starts``, and at the oldest record of other partitions."""

    def poll(self, timeout_s: float) -> Batch:
        """Return the next records; an empty batch if none arrives within ``timeout_s``.

        Raises:
            BrokerUnavailable: This reader is unusable; close it.
            FatalError: The broker refuses the client permanently, or the library of a codec is not installed.
        """

    def positions(self) -> dict[Partition, int]:
        """Return the next offset of each partition: all committed records before it were returned.

        Raises:
            BrokerUnavailable: This reader is unusable; close it.
        """

    def has_new_partitions(self) -> bool:
        """Return whether the topics have partitions that are not read; sends no request."""

    def close(self) -> None:
        """Close the client; never raises, may be called twice."""


class Transport(Protocol):
    """Opens a source and a sink; the loop opens new ones after a failure."""

    def open(self) -> tuple[Source, Sink]:
        """Connect both ends.

        Raises:
            BrokerUnavailable: No broker answers; try again later.
            FatalError: The broker refuses the client permanently.
        """
