"""Reading topics outside any consumer group: following one to see what arrives, and fetching single records.

Nothing is committed and nobody's partitions are taken, so any number of readers may look on. Only committed records are
seen.
"""

import time
from types import TracebackType
from typing import Any, Self

from kafka import KafkaConsumer
from kafka.errors import KafkaError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from kafka.structs import TopicPartition

from streamdedup.errors import BrokerUnavailable, DecodeError, StreamdedupError
from streamdedup.kafka.client import build, close_quietly
from streamdedup.kafka.errors import CLIENT_ERRORS, cap_client_logging, translated
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch, Record, Unreadable
from streamdedup.kafka.records import records_of
from streamdedup.kafka.topics import check_topics
from streamdedup.kafka.unreadable import find_unreadable, may_be_unreadable
from streamdedup.position import Partition, Position

#: Pause after a poll that failed with an error that the client calls retriable, in seconds.
RETRY_PAUSE_S = 0.1

#: How long a fetch of a single record may wait at the broker, in milliseconds. The record is there or is not; a longer
#: wait would only hold up the next fetch from the same broker.
FETCH_ONE_WAIT_MS = 10

#: Bytes of one fetch for a single record. A larger record still comes, alone; more would be records nobody asked for.
FETCH_ONE_BYTES = 65_536

#: Longest single wait while fetching a record, in seconds.
FETCH_STEP_S = 0.1


class _GroupLess:
    """What both readers share: a consumer without a group, and closing it."""

    def __init__(self, options: KafkaOptions, **config: Any) -> None:
        cap_client_logging()
        self._options = options
        self._closed = False
        self._consumer = build(KafkaConsumer, _consumer_config(options) | config, options)

    def close(self) -> None:
        """Free everything; takes at most ``close_timeout_s``, never raises, may be called twice."""
        if not self._closed:
            self._closed = True
            close_quietly("close the reader", self._consumer.close, self._options.close_timeout_s)

    def _failure(self, error: Exception, doing: str) -> StreamdedupError:
        return translated(error, doing, self._options.secrets())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


class TopicReader(_GroupLess):
    """Follows all partitions that the topics have when it is made.

    Once made, it misses nothing: its starting points are fixed then, not at the first poll. While Kafka is away it
    waits and goes on by itself. Used from one thread.

    Args:
        options: Where Kafka is; ``topics`` are those to read. Group, delivery and transactional id are not used.
        from_beginning: Start at the oldest records; else behind the newest ones.

    Raises:
        BrokerUnavailable: Nothing answers.
        FatalError: The broker refuses us for good, or a topic does not exist.
    """

    def __init__(self, options: KafkaOptions, *, from_beginning: bool = False) -> None:
        counts = check_topics(options, ())
        super().__init__(options, auto_offset_reset="earliest")
        partitions = [TopicPartition(topic, number) for topic, count in counts.items() for number in range(count)]
        try:
            self._consumer.assign(partitions)
            (self._consumer.seek_to_beginning if from_beginning else self._consumer.seek_to_end)()
            for partition in partitions:
                self._consumer.position(partition, timeout_ms=round(options.fetch_timeout_s * 1000))
        except CLIENT_ERRORS as error:
            self.close()
            raise self._failure(error, "find the ends of the topics") from error
        except BaseException:
            self.close()
            raise

    def poll(self, timeout_s: float) -> Batch:
        """Return the next records; an empty batch when none came within ``timeout_s``.

        Records that the client cannot parse come as a batch of their own, and are stepped past.

        Raises:
            BrokerUnavailable: This reader is unusable; close it.
            FatalError: The broker refuses us for good.
        """
        try:
            polled = self._consumer.poll(timeout_ms=round(timeout_s * 1000))
        except Exception as error:  # noqa: BLE001  a parser may raise anything
            return self._after_failed_poll(error)
        return Batch(tuple(records_of(polled)))

    def _after_failed_poll(self, error: Exception) -> Batch:
        """An empty batch, the unreadable records, or an exception."""
        if isinstance(error, KafkaError) and error.retriable:
            time.sleep(RETRY_PAUSE_S)
            return Batch()
        # What was fetched and not yet parsed must go: the client would poll its exhausted parser for ever.
        self._consumer._fetcher.close()  # noqa: SLF001  no public method drops it
        try:
            positions = {Partition(*each): self._consumer.position(each) for each in self._consumer.assignment()}
            found = find_unreadable(self._options, positions)
        except CLIENT_ERRORS as failure:
            raise self._failure(failure, "look for an unreadable record") from failure
        if not found:
            raise self._failure(error, "read topics") from error
        for partition, extent in found.items():
            self._consumer.seek(TopicPartition(*partition), extent.last + 1)
        return Batch(
            unreadable=tuple(
                Unreadable(Position(*partition, offset), extent.reason)
                for partition, extent in found.items()
                for offset in range(extent.first, extent.last + 1)
            )
        )


class RecordFetcher(_GroupLess):
    """Fetches single records by their positions, as far as Kafka still has them. Used from one thread.

    Args:
        options: Where Kafka is; topics, group, delivery and transactional id are not used.

    Raises:
        BrokerUnavailable: Nothing answers.
        FatalError: The broker refuses us for good.
    """

    def __init__(self, options: KafkaOptions) -> None:
        super().__init__(
            options,
            # Not "earliest": what has expired must be said to be gone, and not be replaced by another record.
            auto_offset_reset="none",
            fetch_max_wait_ms=FETCH_ONE_WAIT_MS,
            fetch_max_bytes=FETCH_ONE_BYTES,
            max_partition_fetch_bytes=FETCH_ONE_BYTES,
            max_poll_records=1,
        )

    def fetch(self, position: Position) -> Record | None:
        """Return the record at ``position``; None when it has expired, was compacted away, or never was.

        Raises:
            BrokerUnavailable: Kafka did not answer within ``fetch_timeout_s``.
            DecodeError: The client cannot parse the record.
            FatalError: The broker refuses us for good, or the library of a codec is not installed.
        """
        partition = TopicPartition(position.topic, position.partition)
        try:
            if position.partition not in self._consumer.partitions_for_topic(position.topic):
                return None
            self._consumer.assign([partition])
            self._consumer.seek(partition, position.offset)
            self._consumer.resume(partition)  # assigned again, it would still be paused
            return self._await(partition, position)
        except (OffsetOutOfRangeError, UnknownTopicOrPartitionError):
            return None
        except StreamdedupError:
            raise
        except Exception as error:
            # A parser may raise anything, and what was fetched must go before the next poll.
            self._consumer._fetcher.close()  # noqa: SLF001  no public method drops it
            if may_be_unreadable(error):
                self._refuse_unreadable(position)
            raise self._failure(error, f"fetch {position}") from error

    def _refuse_unreadable(self, position: Position) -> None:
        """Raise when the record batch at ``position`` cannot be parsed; other errors are the caller's."""
        try:
            found = find_unreadable(self._options, {position.of: position.offset})
        except CLIENT_ERRORS as failure:
            raise self._failure(failure, f"fetch {position}") from failure
        if (extent := found.get(position.of)) is not None and extent.first <= position.offset:
            raise DecodeError("unreadable", f"cannot read {position}: {extent.reason}")

    def _await(self, partition: Any, position: Position) -> Record | None:
        """Poll until the record, or a later one, or the end of the partition has come."""
        deadline = time.monotonic() + self._options.fetch_timeout_s
        while True:
            for record in records_of(self._consumer.poll(timeout_ms=round(FETCH_STEP_S * 1000))):
                # Nothing more is wanted from here; a fetch on its way would hold up the next one.
                self._consumer.pause(partition)
                return record if record.position == position else None
            end = self._consumer.highwater(partition)
            if end is not None and (position.offset >= end or self._consumer.position(partition) > position.offset):
                return None
            if time.monotonic() > deadline:
                raise BrokerUnavailable(f"cannot fetch {position}: Kafka did not answer in time")


def _consumer_config(options: KafkaOptions) -> dict[str, Any]:
    """Configuration of a consumer that belongs to no group."""
    needless = {
        "group_instance_id",
        "partition_assignment_strategy",
        "max_poll_interval_ms",
        "session_timeout_ms",
        "heartbeat_interval_ms",
    }
    config = {name: value for name, value in options.consumer().items() if name not in needless}
    return config | {"group_id": None}
