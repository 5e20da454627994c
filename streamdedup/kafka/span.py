"""Reading topics from chosen offsets up to the ends that they have at the start, and remembering how far one came."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import KafkaError, NoError
from kafka.structs import OffsetAndMetadata, TopicPartition

from streamdedup.errors import BrokerUnavailable
from streamdedup.kafka.client import build, close_quietly
from streamdedup.kafka.errors import CLIENT_ERRORS, translated
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch, Bookmark
from streamdedup.kafka.reader import RETRY_PAUSE_S, TopicReader
from streamdedup.position import Partition

Answer = TypeVar("Answer")

#: Longest wait for one batch, in seconds: how late the end of a topic is noticed that ends in something invisible
#: (aborted records, a commit marker).
STEP_S = 0.2


class SpanReader(TopicReader):
    """Reads all committed records that the topics hold when it is made, as often as wished, and then what follows.

    Args:
        options: Where Kafka is; ``topics`` are those to read. Group, delivery and transactional id are not used.

    Attributes:
        beginnings: First offset of each partition when it was made.
        ends: Offset behind the last committed record of each partition when it was made.

    Raises:
        BrokerUnavailable: Nothing answers.
        FatalError: The broker refuses us for good, or a topic does not exist.
    """

    def __init__(self, options: KafkaOptions) -> None:
        super().__init__(options, from_beginning=True)
        try:
            partitions = sorted(self._consumer.assignment())
            self.beginnings = _by_partition(self._consumer.beginning_offsets(partitions))
            self.ends = _by_partition(self._consumer.end_offsets(partitions))
        except CLIENT_ERRORS as error:
            self.close()
            raise self._failure(error, "find the ends of the topics") from error
        except BaseException:
            self.close()
            raise

    def start_at(self, starts: Mapping[Partition, int]) -> None:
        """Make the next batch begin at ``starts``; partitions that are not named begin at their oldest record."""
        for partition, beginning in self.beginnings.items():
            self._consumer.seek(TopicPartition(*partition), starts.get(partition, beginning))

    def batches(self) -> Iterator[Batch]:
        """Yield what stands before the ends, in order within each partition, and stop.

        Raises:
            BrokerUnavailable: Kafka did not answer, or sent nothing more, within ``fetch_timeout_s``.
            FatalError: The broker refuses us for good.
        """
        positions, moved_at = self._positions(), time.monotonic()
        while any(positions[partition] < end for partition, end in self.ends.items()):
            batch = self._before_ends(self.poll(STEP_S))
            if batch:
                yield batch
            before, positions = positions, self._positions()
            if positions != before or batch:
                moved_at = time.monotonic()
            elif time.monotonic() - moved_at > self._options.fetch_timeout_s:
                raise BrokerUnavailable(
                    f"cannot read {', '.join(self._options.topics)} to the end: Kafka sent nothing for "
                    f"{self._options.fetch_timeout_s:g} s"
                )

    def _before_ends(self, batch: Batch) -> Batch:
        """Leave out what was written after this reader was made."""
        return replace(
            batch,
            records=tuple(r for r in batch.records if r.position.offset < self.ends[r.position.of]),
            unreadable=tuple(u for u in batch.unreadable if u.position.offset < self.ends[u.position.of]),
        )

    def _positions(self) -> dict[Partition, int]:
        """Next offset of each partition; the one before when the client does not know it at the moment."""
        timeout_ms = round(self._options.fetch_timeout_s * 1000)
        try:
            return {each: self._consumer.position(TopicPartition(*each), timeout_ms=timeout_ms) for each in self.ends}
        except CLIENT_ERRORS as error:
            raise self._failure(error, "read topics") from error


class Bookmarks:
    """Offsets of a consumer group that has no members. Used from one thread; a context manager.

    Args:
        options: Where Kafka is. Its group is not used.
        group: Name of the group that remembers.

    Raises:
        BrokerUnavailable: Nothing answers.
        FatalError: The broker refuses us for good.
    """

    def __init__(self, options: KafkaOptions, group: str) -> None:
        self._options = options
        self._group = group
        self._admin = build(KafkaAdminClient, options.admin(), options)

    def read(self, partitions: Iterable[Partition]) -> dict[Partition, Bookmark]:
        """Return the bookmarks of those partitions that have one.

        Raises:
            BrokerUnavailable: Kafka did not answer.
            FatalError: The broker refuses us for good.
        """
        wanted = [TopicPartition(*partition) for partition in partitions]
        found = self._asked("read", lambda: self._admin.list_group_offsets({self._group: wanted})[self._group])
        return {
            Partition(*partition): Bookmark(place.offset, place.metadata or "")
            for partition, place in found.items()
            if place.offset >= 0
        }

    def write(self, bookmarks: Mapping[Partition, Bookmark]) -> None:
        """Remember; bookmarks of other partitions stay.

        Raises:
            BrokerUnavailable: Kafka did not answer, or the group has members.
            FatalError: The broker refuses us for good.
        """
        wanted = {
            TopicPartition(*each): OffsetAndMetadata(mark.offset, mark.note, -1) for each, mark in bookmarks.items()
        }

        def write() -> None:
            for kind in self._admin.alter_group_offsets(self._group, wanted).values():
                if kind is not NoError:
                    raise kind(kind.description)

        self._asked("write", write)

    def close(self) -> None:
        """Free everything; never raises."""
        close_quietly("close the admin client", self._admin.close, self._options.close_timeout_s)

    def _asked(self, doing: str, ask: Callable[[], Answer]) -> Answer:
        """Return what ``ask`` returns; a coordinator that is not ready is waited for, at most ``connect_timeout_s``."""
        deadline = time.monotonic() + self._options.connect_timeout_s
        while True:
            try:
                return ask()
            except CLIENT_ERRORS as error:
                retriable = isinstance(error, KafkaError) and error.retriable
                if not retriable or time.monotonic() > deadline:
                    text = f"{doing} the offsets of the consumer group {self._group}"
                    raise translated(error, text, self._options.secrets()) from error
            time.sleep(RETRY_PAUSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _by_partition(offsets: Mapping[Any, int]) -> dict[Partition, int]:
    return {Partition(*partition): offset for partition, offset in offsets.items()}
