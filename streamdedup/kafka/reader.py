"""Readers of topics outside any consumer group: they commit nothing, and take no partition from a group.

    TopicReader       reads to the ends, and on
    RecordFetcher     fetches single records by position

Only committed records are returned. Opening a ``TopicReader`` raises ``FatalError`` if a topic does not exist. Group,
delivery and transactional id of ``KafkaOptions`` are not used.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, Self

from kafka import KafkaConsumer
from kafka.errors import OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kafka.structs import TopicPartition

from streamdedup.errors import BrokerUnavailable, DecodeError
from streamdedup.kafka import compat
from streamdedup.kafka.admin import require_topics
from streamdedup.kafka.consumer import RETRY_PAUSE_S
from streamdedup.kafka.errors import CLIENT_ERRORS, call_within, close_quietly, is_retriable, translated
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch, Record, UnreadableRecord
from streamdedup.kafka.unreadable import guard_parsing, unpack
from streamdedup.position import Partition, Position

#: Longest wait for a batch while reading to the ends, in seconds: short, because the last offsets may be invisible.
STEP_S = 0.2
#: How long a fetch of one record may wait at the broker, in milliseconds: longer would delay the next fetch.
FETCH_ONE_WAIT_MS = 10
#: Bytes of one fetch for a single record. The broker also sends a larger record, alone.
FETCH_ONE_BYTES = 65_536
#: Longest wait of one poll while a single record is fetched, in seconds.
FETCH_STEP_S = 0.1


class _Reader:
    """A client without a group, closed at the end of a ``with`` block; ``changes`` override its configuration."""

    def __init__(self, options: KafkaOptions, *, keeps_rests: bool = True, **changes: Any) -> None:
        self._options = options
        config = options.reader() | changes
        self._consumer = compat.build(KafkaConsumer, config, options)
        self._unreadable = guard_parsing(self._consumer, config["max_poll_records"], keeps_rests=keeps_rests)

    def close(self) -> None:
        """Close the client; never raises, may be called twice."""
        close_quietly("close the reader", self._consumer.close)

    @contextmanager
    def _closed_on_error(self, doing: str) -> Iterator[None]:
        """Close the client if a step of the construction fails; errors of the client are translated."""
        try:
            yield
        except BaseException as error:
            self.close()
            if isinstance(error, CLIENT_ERRORS):
                raise translated(error, doing, self._options) from error
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class TopicReader(_Reader):
    """Reads topics from the oldest records, or from ``start_at``, on: ``batches`` to the ends, ``poll`` also beyond.

    Reads the partitions that the topics have at the construction, later ones after ``add_new_partitions``.
    ``beginnings`` and ``ends`` have, by partition, the first offset and the offset behind the last committed record, at
    the construction. While Kafka is away the reader waits and goes on by itself. Used from one thread.
    """

    def __init__(self, options: KafkaOptions) -> None:
        counts = require_topics(options)
        # If records expire before they are read, the reader goes on behind them; `on_out_of_range` is for the daemon.
        super().__init__(options, auto_offset_reset="earliest")
        partitions = sorted(TopicPartition(topic, number) for topic, count in counts.items() for number in range(count))
        self._opening_s = options.opening_timeout_s or options.fetch_timeout_s
        timeout_ms = round(1000 * self._opening_s)
        topics = ", ".join(options.topics)
        with self._closed_on_error(f"find the ends of {topics}, of which a partition may have no leader"):
            self._consumer.assign(partitions)
            beginnings = self._consumer.beginning_offsets(partitions, timeout_ms)
            ends = self._consumer.end_offsets(partitions, timeout_ms)
        self.beginnings = {Partition(*partition): int(offset) for partition, offset in beginnings.items()}
        self.ends = {Partition(*partition): int(offset) for partition, offset in ends.items()}
        self.start_at({})

    def add_new_partitions(self) -> None:
        """Also read the partitions that the topics have got meanwhile, from their beginnings."""
        partitions = {
            TopicPartition(topic, number)
            for topic in self._options.topics
            for number in compat.known_partitions(self._consumer, topic)
        }
        # The client keeps the positions of assigned partitions; a new one begins by `auto_offset_reset`.
        self._consumer.assign(self._consumer.assignment() | partitions)

    def poll(self, timeout_s: float) -> Batch:
        """Return the next records; an empty batch if none arrives within ``timeout_s``."""
        self._unreadable.clear()
        try:
            polled = self._consumer.poll(timeout_ms=round(timeout_s * 1000))
        except CLIENT_ERRORS as error:
            if not is_retriable(error):
                raise translated(error, "read topics", self._options) from error
            time.sleep(RETRY_PAUSE_S)
            return Batch()
        return Batch(*unpack(polled, has_unreadable=bool(self._unreadable)))

    def existing_offsets(self, offsets: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return ``offsets``; the oldest record where a partition is absent, or no longer has the offset."""
        return {partition: max(first, offsets.get(partition, first)) for partition, first in self.beginnings.items()}

    def start_at(self, starts: Mapping[Partition, int]) -> None:
        """Make the next poll begin at ``starts``, and at the oldest record of other partitions."""
        for partition, beginning in self.beginnings.items():
            self._consumer.seek(TopicPartition(*partition), starts.get(partition, beginning))

    def batches(self) -> Iterator[Batch]:
        timeout_s = self._options.fetch_timeout_s
        return self._read(timeout_s, f"Kafka has sent nothing for {timeout_s:g} s")

    def _read(self, longest_wait_s: float, reason: str, *, yields_empty_batches: bool = False) -> Iterator[Batch]:
        """Yield the records before the ends; raise with ``reason`` if no position moves for ``longest_wait_s``."""
        positions, moved_at = self.positions(), time.monotonic()
        while any(positions[partition] < end for partition, end in self.ends.items()):
            batch = self._before_ends(self.poll(STEP_S))
            if batch or yields_empty_batches:
                yield batch
            positions_before, positions = positions, self.positions()
            if positions != positions_before:  # positions also move over invisible records
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > longest_wait_s:
                raise BrokerUnavailable(f"cannot read {', '.join(self._options.topics)} to the end: {reason}")

    def _before_ends(self, batch: Batch) -> Batch:
        """Drop the records at and behind the ends, such as those that were written after construction."""

        def is_before(entry: Record | UnreadableRecord) -> bool:
            return entry.position.offset < self.ends[entry.position.topic_partition]

        records, unreadable = filter(is_before, batch.records), filter(is_before, batch.unreadable)
        return replace(batch, records=tuple(records), unreadable=tuple(unreadable))

    def has_new_partitions(self) -> bool:
        """Return whether the client knows partitions of the topics that are not read; sends no request."""
        known_counts = [len(compat.known_partitions(self._consumer, topic)) for topic in self._options.topics]
        return sum(known_counts) > len(self.ends)

    def positions(self) -> dict[Partition, int]:
        """Return the next offset by partition: all committed records before it were returned.

        Raises ``BrokerUnavailable`` where a position, lost with expired records, is unknown for a time limit.
        """
        deadline = time.monotonic() + self._opening_s
        states, positions = compat.assigned_states(self._consumer), {}
        for partition in self.ends:
            client_partition = TopicPartition(*partition)
            # `position` of the client walks over all partitions, so it is only called for an unknown position.
            position = states[client_partition].position
            left_ms = max(1, round(1000 * (deadline - time.monotonic())))
            try:
                offset = self._consumer.position(client_partition, left_ms) if position is None else position.offset
            except CLIENT_ERRORS as error:
                raise translated(error, "read topics", self._options) from error
            if offset is None:
                raise BrokerUnavailable(f"Kafka names no offset of {partition}: the partition may have no leader")
            positions[partition] = offset
        return positions


class RecordFetcher(_Reader):
    """Fetches single records by position; uses only the options of the connection. Used from one thread."""

    def __init__(self, options: KafkaOptions) -> None:
        super().__init__(
            options,
            keeps_rests=False,  # a record behind an unreadable one may be readable
            # Not "earliest": an expired record is reported as gone, and not replaced by another record.
            auto_offset_reset="none",
            fetch_max_wait_ms=FETCH_ONE_WAIT_MS,
            fetch_max_bytes=FETCH_ONE_BYTES,
            max_partition_fetch_bytes=FETCH_ONE_BYTES,
            max_poll_records=1,
        )

    def fetch(self, position: Position) -> Record | None:
        """Return the record at ``position``; None when it or its topic is gone, or never existed.

        Raises ``DecodeError`` for a record that the client cannot parse.
        """
        partition = TopicPartition(position.topic, position.partition)
        try:
            partitions = compat.known_partitions(self._consumer, position.topic)
            if position.partition not in (partitions or self._request_partitions(position.topic)):
                return None
            self._consumer.assign([partition])
            self._consumer.seek(partition, position.offset)
            self._consumer.resume(partition)  # assigning the partition again does not end its pause
            return self._await(partition, position)
        except (OffsetOutOfRangeError, UnknownTopicOrPartitionError):
            return None
        except CLIENT_ERRORS as error:
            raise translated(error, f"fetch {position}", self._options) from error

    def _request_partitions(self, topic: str) -> set[int]:
        """Return the partition numbers of a topic that the client does not know; the client asks Kafka."""
        look_up = partial(self._consumer.partitions_for_topic, topic)  # without a time limit in kafka-python 3.0.12
        return call_within(self._options.fetch_timeout_s, f"look up the partitions of {topic}", look_up)

    def _await(self, partition: Any, position: Position) -> Record | None:
        """Poll until the record arrives, or a later record or the end of the partition shows that it is gone."""
        deadline = time.monotonic() + self._options.fetch_timeout_s
        while True:
            self._unreadable.clear()
            polled = self._consumer.poll(timeout_ms=round(FETCH_STEP_S * 1000))
            records, unreadable = unpack(polled, has_unreadable=bool(self._unreadable))
            if records or unreadable:
                # The client would send the next fetch at once, and that would delay the fetch of another record.
                self._consumer.pause(partition)
                first = unreadable[0] if unreadable else records[0]
                if first.position != position:
                    return None  # a later record: the one at `position` is gone
                if isinstance(first, UnreadableRecord):
                    raise DecodeError("unreadable", f"cannot read {position}: {first.reason}")
                return first
            end = self._consumer.highwater(partition)
            if end is not None and position.offset >= end:  # perhaps the end at an earlier fetch, so ask
                end = self._consumer.end_offsets([partition])[partition]
            if end is not None and (position.offset >= end or self._consumer.position(partition) > position.offset):
                return None  # behind the end, or among invisible records
            if time.monotonic() > deadline:
                raise BrokerUnavailable(f"cannot fetch {position}: Kafka did not answer in time")
