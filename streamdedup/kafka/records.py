"""The client's records and offsets as ours, and ours as the client takes them."""

from collections.abc import Iterable, Mapping
from typing import Any

from kafka.structs import OffsetAndMetadata, TopicPartition

from streamdedup.kafka.incarnations import metadata_of
from streamdedup.kafka.protocols import Batch, Record, Unreadable
from streamdedup.kafka.unreadable import UnreadableRange
from streamdedup.position import Partition, Position


def offsets_of(batch: Batch) -> dict[Any, Any]:
    """The offsets to commit for ``batch``, as the client takes them."""
    return {
        TopicPartition(*partition): OffsetAndMetadata(
            offset, metadata_of(batch.note, batch.topic_ids.get(partition.topic, "")), -1
        )
        for partition, offset in batch.ends().items()
    }


def records_of(polled: Mapping[Any, Iterable[Any]]) -> Iterable[Record]:
    """The client's records as ours."""
    for records in polled.values():
        for record in records:
            yield Record(
                Position(record.topic, record.partition, record.offset),
                record.timestamp,
                record.key,
                record.value,
                tuple(record.headers),
            )


def unreadable_of(found: Mapping[Partition, UnreadableRange]) -> Iterable[Unreadable]:
    """Each offset of the ranges, in order."""
    for partition, range_ in found.items():
        for offset in range(range_.first, range_.last + 1):
            yield Unreadable(Position(*partition, offset), range_.reason)


def places(found: Mapping[Partition, UnreadableRange]) -> Iterable[tuple[Position, UnreadableRange]]:
    """Where each range starts."""
    return ((Position(*partition, range_.first), range_) for partition, range_ in found.items())


def named(offsets: Mapping[Partition, int]) -> dict[str, int]:
    """Offsets under names that a log can print."""
    return {str(partition): offset for partition, offset in offsets.items()}
