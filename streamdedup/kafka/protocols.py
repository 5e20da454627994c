"""The message system as the daemon knows it: plain data and Protocols.

A ``Transport`` opens a ``Source`` of batches and a ``Sink`` that publishes each batch as a whole; only the thread of
the loop uses source and sink. A rebuild reads topics by ``History``, without a group. ``consumer``, ``producer`` and
``history`` implement the Protocols on Kafka, ``tests/simulation/transport.py`` in memory; a change of a Protocol
touches both implementations, and ``tests/contract/test_transport.py``.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import msgspec

from streamdedup.position import Partition, Position
from streamdedup.wire.records import Message, Record

#: Record time to begin at, in milliseconds, for all partitions or by partition; None or absent: the oldest record.
Since = Mapping[Partition, int | None] | int | None


@dataclass(frozen=True, slots=True)
class UnreadableRecord:
    """A record that the client of the message system cannot parse; ``reason`` is one line for the operator."""

    position: Position
    reason: str


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset of a partition; if another program committed it, without topic id and incarnation.

    ``metadata`` is the attempt id, without the incarnation and topic id that follow it in Kafka (``offsets``); or the
    metadata of another program. At most 4,096 bytes, the usual limit of brokers.
    """

    offset: int
    metadata: str = ""
    topic_id: str = ""
    incarnation: int = 0


def offsets_in(
    committed_offsets: Mapping[Partition, CommittedOffset], topics: Collection[str]
) -> dict[Partition, CommittedOffset]:
    return {partition: offset for partition, offset in committed_offsets.items() if partition.topic in topics}


@dataclass(frozen=True)
class Batch:
    """The result of one poll, with the membership under which it was fetched.

    Records are in order within each partition. Unreadable records become dead letters with their positions; a commit of
    the batch also moves past these records.

    Attributes:
        membership: For the commit; opaque to the loop.
        metadata: Attempt id, committed with each offset. Empty in a polled batch; the loop publishes a copy with it.
        topic_ids: Kafka's topic ids at the poll, as far as known. The commit appends the incarnation of the positions
            and the topic id to ``metadata``.
    """

    records: tuple[Record, ...] = ()
    unreadable: tuple[UnreadableRecord, ...] = ()
    generation: int = 0
    membership: Any = None
    metadata: str = ""
    topic_ids: Mapping[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.records or self.unreadable)

    def positions(self) -> Iterator[Position]:
        """Return the positions of all records, also unreadable ones, in order within each partition."""
        positions = [record.position for record in self.records]
        if not self.unreadable:
            return iter(positions)
        return iter(sorted([*positions, *(record.position for record in self.unreadable)]))

    def in_incarnations(self, incarnations: Mapping[Partition, int]) -> "Batch":
        """Return the batch with the given incarnations, by partition, in its positions."""
        if not any(incarnations.values()):
            return self  # 0, the first incarnation, is the default

        def renewed(position: Position) -> Position:
            return position._replace(incarnation=incarnations[position.topic_partition])

        records = [msgspec.structs.replace(record, position=renewed(record.position)) for record in self.records]
        unreadable = [replace(entry, position=renewed(entry.position)) for entry in self.unreadable]
        return replace(self, records=tuple(records), unreadable=tuple(unreadable))

    @cached_property
    def incarnations(self) -> Mapping[Partition, int]:
        return {position.topic_partition: position.incarnation for position in self.positions()}

    @cached_property
    def starts(self) -> Mapping[Partition, int]:
        starts: dict[Partition, int] = {}
        for position in self.positions():
            starts.setdefault(position.topic_partition, position.offset)
        return starts

    @cached_property
    def next_offsets(self) -> Mapping[Partition, int]:
        """The offset to commit by partition: that of the last record, plus one."""
        return {position.topic_partition: position.offset + 1 for position in self.positions()}


@dataclass(slots=True)
class SourceStats:
    """Numbers for the metrics; ``lags`` are records not yet read, by partition."""

    rebalances_count: int = 0
    lags: dict[Partition, int] = field(default_factory=dict)


class Source(Protocol):
    """Batches of records for one member of a consumer group, delivered at least once from the committed offset on.

    Errors are those of the package ``kafka``. ``BrokerUnavailable`` from ``poll``, ``keep_membership``, ``confirm`` or
    ``commit``, except its kind ``BrokerSilent``, ends this source: close it and open a new one.
    """

    def poll(self, timeout_s: float, max_records: int | None = None) -> Batch:
        """Return the next records, or an empty batch after ``timeout_s``.

        Between two calls at most ``max_poll_interval`` may pass. A batch without a valid membership is rewound, and an
        empty one returned. The poll may join a later generation of the group, in which an earlier batch cannot be
        committed any more.

        Raises ``BrokerSilent`` if Kafka has stopped answering: poll again, the source goes on by itself; ``Rejoin`` if
        a topic was deleted and created again: close the source and open a new one.
        """

    def poll_ahead(self, max_records: int) -> Batch:
        """As ``poll``, while an earlier batch is at work; waits a short time only, because that batch waits too."""

    def rewind(self, batch: Batch) -> None:
        """Make the next poll start again at ``batch``, for the partitions that are still assigned. Never blocks.

        Only for a batch whose publishing has not begun: after a failed ``publish`` only a new source is correct.
        """

    def first_since(self, times_ms: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return the offset of each partition's first record since the time, else the end of committed records."""

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Make the next poll start at offsets, for the partitions that are still assigned. Never blocks."""

    def keep_membership(self, timeout_s: float) -> None:
        """Wait ``timeout_s`` and keep the membership; fetch nothing until ``poll``, not even from new partitions."""

    def committed_offset(self, partition: Partition) -> CommittedOffset | None:
        """Return the group's committed offset for ``partition``, or None if there is none.

        One of an earlier incarnation of the topic does not count, neither here nor as the starting position.
        """

    def committed_offsets(self, *, stable: bool = True) -> dict[Partition, CommittedOffset]:
        """Return all committed offsets in the existing topics, by partition, assigned or not.

        With ``stable`` wait for the end of transactions that commit offsets, also of a dead daemon; else return the
        offsets from before the open transactions.
        """

    def request_ends(self) -> None:
        """Fetch the ends of the assigned partitions, for ``end`` and ``stats``; ``keep_membership`` updates none."""

    def confirm(self) -> None:
        """Check that the group counts this process among its members at this moment.

        Only a static member sends a request: another process may have its instance id, with the same generation.
        """

    def commit(self, batch: Batch) -> None:
        """Commit ``batch`` outside any transaction; for at-least-once delivery. After an error the outcome is unknown.

        Raises ``MembershipEnded`` if the membership has changed; close the source, open a new one.
        """

    # The next six send no request.

    def end(self, partition: Partition) -> int | None:
        """Return the last known offset behind the last record of a partition; None if unknown."""

    def assigned(self) -> frozenset[Partition]: ...

    def partitions(self) -> frozenset[Partition]:
        """Return all known partitions of the input topics."""

    def missing_topics(self) -> frozenset[str]:
        """Return the input topics that do not exist. May be called from any thread."""

    def generation(self) -> int | None:
        """Return the generation of the group under which the partitions are assigned, or None without membership."""

    def stats(self) -> SourceStats: ...

    def close(self) -> None:
        """Leave the group and close the client; never raises, may be called twice."""


class Sink(Protocol):
    def publish(self, messages: Sequence[Message], batch: Batch) -> None:
        """Publish all ``messages`` and commit ``batch``; with exactly-once delivery in one transaction.

        After a normal return everything is durable. After an error the outcome is unknown: close sink *and* source,
        open new ones, and go on from the committed offset. Raises ``MembershipEnded`` if the membership of the batch
        has ended, ``ProducerFenced`` if another live producer took over the transactional id.
        """

    def close(self) -> None:
        """Close the client without waiting for unsent messages; never raises, may be called twice."""


@dataclass(frozen=True, slots=True)
class ReadProgress:
    """How far a group has read a partition that holds records; ``is_read``: all of them.

    ``time_ms`` is the record time of the next record to read, or of the last record if ``is_read``. A time in the
    future counts as now. None where the records have no times.
    """

    is_read: bool
    time_ms: int | None


class Span(AbstractContextManager["Span"], Protocol):
    """A bounded read of topics; ``total_count`` is the number of offsets to read, some without a record."""

    total_count: int

    def batches(self) -> Iterator[Batch]:
        """Yield all records, in order within each partition; empty batches during a wait for a transaction to end."""

    def done_count(self) -> int:
        """Return how many of ``total_count`` are read."""


class History(Protocol):
    """Reads topics outside any group; raises as ``Source``, and ``FatalError`` also if a topic does not exist."""

    def progress(
        self, topics: Sequence[str], offsets: Mapping[Partition, int], now_ms: int, tick: Callable[[], None]
    ) -> dict[Partition, ReadProgress]:
        """Return the ``ReadProgress`` of a group with these offsets, by partition.

        ``offsets`` are the next offsets to read; a partition without one begins at its oldest record. In place of a
        record that is gone (retention, compaction, an aborted transaction) or has no time, the next record with a time
        counts. ``tick`` is called for each poll.
        """

    def keeps_all(self, starts: Mapping[Partition, int]) -> bool:
        """Return whether the topics are not compacted and still have all records from ``starts`` on."""

    def open(
        self,
        topics: Sequence[str],
        since_ms: Since,
        ends: Mapping[Partition, int] | None,
        starts: Mapping[Partition, int] | None = None,
    ) -> Span:
        """Read each partition from its first record since a time, with all records behind it, also earlier ones.

        ``ends`` are the offsets to stop at; partitions without one are not read. None for the present ends:
        transactions that are open below them are waited for. ``starts`` are the offsets to begin at, instead of a
        time; only together with ``ends``.
        """


class Transport(Protocol):
    def open(self) -> tuple[Source, Sink]:
        """Open a source, and a sink that commits its batches; after a failure the loop opens new ones."""
