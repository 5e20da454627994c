"""What the loop needs of a message system: a source of batches and a sink that publishes them whole.

Plain data and Protocols; implementations are ``kafka`` (real) and ``testing.memory_transport`` (in process, for tests).
Both ends are used from one thread only, the loop's.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Protocol, Self

import msgspec

from streamdedup.position import Partition, Position


class Record(msgspec.Struct, frozen=True, gc=False):
    """One record as it came in: bytes, untouched.

    Attributes:
        position: Where it stands.
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
        topic: Where to.
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
    """A record that the client of the message system cannot parse; nothing but its place is known.

    Attributes:
        position: Where it stands.
        reason: What the client said about it, for the operator; one line.
    """

    position: Position
    reason: str


@dataclass(frozen=True, slots=True)
class Bookmark:
    """How far one came in a partition.

    Attributes:
        offset: Next offset to read.
        note: What else is to be remembered; at most 4,096 bytes, the usual limit of brokers.
    """

    offset: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class Batch:
    """What one poll returned, together with the membership under which it was fetched.

    A batch holds records or unreadable ones, never both. Either way it is published like any other (a notice of their
    places instead of alerts), and committing it steps past them.

    Attributes:
        records: In order within each partition.
        unreadable: Stepped over, in order within each partition.
        generation: Generation of the consumer group when the records were polled; never negative.
        membership: What the sink needs to commit under that membership; opaque to the loop.
        note: What is to be remembered along with each offset when the batch is committed.
        topic_ids: Kafka's id of each topic when the records were polled, remembered along with the offsets too; without
            those that are not known.
    """

    records: tuple[Record, ...] = ()
    unreadable: tuple[Unreadable, ...] = ()
    generation: int = 0
    membership: Any = None
    note: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is anything to do and to commit."""
        return bool(self.records or self.unreadable)

    def positions(self) -> Iterator[Position]:
        """Every position that committing the batch passes, in order within each partition."""
        yield from (record.position for record in self.records)
        yield from (record.position for record in self.unreadable)

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

    def starts(self) -> dict[Partition, int]:
        """First offset of each partition in the batch."""
        starts: dict[Partition, int] = {}
        for position in self.positions():
            starts.setdefault(position.of, position.offset)
        return starts

    def ends(self) -> dict[Partition, int]:
        """Offset to commit for each partition: that of its last record, plus one."""
        return {position.of: position.offset + 1 for position in self.positions()}


@dataclass(slots=True)
class SourceStats:
    """Counters that a source keeps for the metrics.

    Attributes:
        rebalances_count: How often partitions were assigned or taken away.
        lags: Records still to read, by partition.
    """

    rebalances_count: int = 0
    lags: dict[Partition, int] = field(default_factory=dict)


class Source(Protocol):
    """Batches of records of a consumer group, delivered at least once from the committed offset on."""

    def poll(self, timeout_s: float, most: int | None = None) -> Batch:
        """Return the next records, or an empty batch after ``timeout_s``.

        ``most`` lowers the number of records in this one batch, at least 1.

        Called again and again; between two calls at most ``max_poll_interval`` may pass. A batch without a valid
        membership is never returned: the source rewinds it and returns an empty one.

        Raises:
            BrokerSilent: The message system has stopped answering; poll or hold again, the source goes on by itself.
            BrokerUnavailable: This source is unusable; close it and open a new one.
            Rejoin: A topic was deleted and created again; close the source and open a new one.
            FatalError: The broker refuses us for good.
        """

    def poll_ahead(self, timeout_s: float, most: int) -> Batch:
        """Poll while the last batch is not committed yet; otherwise as ``poll``.

        The poll may join a later generation of the group, in which the last batch cannot be committed any more.

        Raises:
            StreamdedupError: As ``poll``.
        """

    def rewind(self, batch: Batch) -> None:
        """Make the next poll start again at ``batch``; partitions no longer ours are left alone.

        Only for a batch whose publishing was never begun: after a failed ``publish`` the outcome is unknown, and a new
        source, which goes on from the committed offset, is the only way back. Never blocks.
        """

    def hold(self, timeout_s: float) -> None:
        """Wait up to ``timeout_s`` while keeping the group membership and fetching nothing.

        The next ``poll`` fetches again. Partitions that arrive meanwhile are held too.

        Raises:
            BrokerUnavailable: This source is unusable; close it and open a new one.
        """

    def committed(self, partition: Partition) -> Bookmark | None:
        """Return what the group has committed for ``partition``, or None when it has never committed anything.

        What was committed for an earlier incarnation of the topic counts for nothing, neither here nor as the place to
        begin.

        Raises:
            BrokerUnavailable: Kafka did not answer in time.
        """

    def all_committed(self) -> dict[Partition, Bookmark]:
        """Return what the group has committed, for every partition of its topics, ours or not.

        Raises:
            BrokerUnavailable: Kafka did not answer in time.
        """

    def end(self, partition: Partition) -> int | None:
        """Return the offset behind the last record of a partition as last heard; None when unknown. Sends nothing."""

    def confirm(self) -> None:
        """Return if the group counts us among its members at this moment.

        Where each process that joins begins a new generation there is nothing to ask. A static member does not: until
        it asks, it may be a process that was frozen, whose place and generation another one has by now.

        Raises:
            BrokerUnavailable: It does not, or did not answer; close the source, open a new one.
            FatalError: Another process has our place.
        """

    def commit(self, batch: Batch) -> None:
        """Commit ``batch`` outside any transaction; only for at-least-once delivery.

        Raises:
            BrokerUnavailable: Outcome unknown, or the membership has changed; close the source, open a new one.
        """

    def assigned(self) -> frozenset[Partition]:
        """Return the partitions that are ours at this moment."""

    def partitions(self) -> frozenset[Partition]:
        """Return all partitions of the topics, as far as they are known; no request is sent."""

    def generation(self) -> int | None:
        """Return the generation of the group under which the partitions are ours, or None while we are no member."""

    def stats(self) -> SourceStats:
        """Return counters and lags; cheap, no request is sent."""

    def close(self) -> None:
        """Leave the group and free everything; never raises, may be called twice."""


class Sink(Protocol):
    """Publishes the outcome of a batch."""

    def publish(self, messages: Sequence[Message], batch: Batch) -> None:
        """Publish all ``messages`` and commit ``batch``; under exactly-once delivery in one transaction.

        When it returns, all is durable. When it raises, the outcome is unknown: close sink *and* source, open new ones,
        and go on from the committed offset.

        Raises:
            BrokerUnavailable: Any failure that new clients may cure.
            ProducerFenced: Another live producer took over the transactional id.
            FatalError: The broker refuses us for good.
        """

    def close(self) -> None:
        """Free everything without waiting for unsent messages; never raises, may be called twice."""


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """How far a group has read a partition that holds records.

    Attributes:
        is_read: Whether nothing is left to read.
        time_ms: Record time of the next record to read, in milliseconds since the epoch; of a partition that is read to
            its end, that of its last record. A time in the future counts as the present. None where the records there
            have no times.
    """

    is_read: bool
    time_ms: int | None


class Span(Protocol):
    """What stood in topics when it was opened, from given times on; a context manager.

    Attributes:
        total_count: How many offsets it has.
    """

    total_count: int

    def batches(self) -> Iterator[Batch]:
        """Yield all of it, in order within each partition, and stop.

        Raises:
            BrokerUnavailable: Kafka sent nothing more.
        """

    def done_count(self) -> int:
        """Return how many offsets are read."""

    def __enter__(self) -> Self:
        """Begin."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Free everything."""


class History(Protocol):
    """Reads topics outside any group."""

    def progress(
        self, topics: Sequence[str], offsets: Mapping[Partition, int], now_ms: int
    ) -> dict[Partition, ReadProgress]:
        """Return how far a group has read, by the times of records.

        Where a record is gone (retention, compaction, an aborted transaction) or has no time, the first one behind it
        that is there and has one counts.

        Args:
            topics: Their names.
            offsets: Next offset to read of each partition; of one that is not named that is the oldest record.
            now_ms: The present, in milliseconds since the epoch.

        Returns:
            The progress of each partition that holds records.

        Raises:
            BrokerUnavailable: Nothing answers.
            FatalError: The broker refuses us for good, or a topic does not exist.
        """

    def open(
        self,
        topics: Sequence[str],
        since_ms: Mapping[Partition, int | None] | int | None,
        ends: Mapping[Partition, int] | None,
    ) -> Span:
        """Read topics.

        Each partition is read from its first record of that time or later, so that none of these is left out in any
        order of times; records of earlier times behind it are read too.

        Args:
            topics: Their names.
            since_ms: Record time to begin at, in milliseconds since the epoch, for all or by partition; None, or not
                named, for the oldest record.
            ends: Where to stop; of a partition that is not named nothing is read. None for all that is there now.

        Raises:
            BrokerUnavailable: Nothing answers.
            FatalError: The broker refuses us for good, or a topic does not exist.
        """


class Transport(Protocol):
    """Opens sources and sinks; the loop asks for new ones after a failure."""

    def open(self) -> tuple[Source, Sink]:
        """Connect both ends.

        Raises:
            BrokerUnavailable: Nothing answers; try again later.
            FatalError: The broker refuses us for good.
        """
