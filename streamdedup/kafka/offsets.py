"""The committed offsets of the group, their metadata, and topic ids; first offsets since a time.

The metadata of a committed offset are the attempt id (``daemon.attempts``), the topic incarnation and the topic id,
with blanks between them. The topic id shows offsets that a deleted topic has left to a new topic of the same name; a
broker before Kafka 2.8 gives none. The incarnation is for a lost index: the new index would count from 0 again. A
change of this form touches docs/delivery.md.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from kafka.structs import OffsetAndMetadata, TopicPartition

from streamdedup.errors import BrokerUnavailable
from streamdedup.kafka import compat
from streamdedup.kafka.errors import CLIENT_ERRORS, translated
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch, CommittedOffset
from streamdedup.position import Partition

#: How much longer than its timeout a transaction may be open, in seconds: Kafka looks for expired ones every 10 s.
ABORT_MARGIN_S = 15.0
#: Metadata of an offset that the daemon has committed; ``text`` is the attempt id.
_METADATA = re.compile(
    r"(?P<text>.*?) ?(?P<incarnation>[0-9]+) (?P<topic_id>[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})"
)
#: Topic id that Kafka names for a topic that does not exist; committed where the topic id is unknown.
_NO_ID = str(UUID(int=0))


def topic_id_text(topic_id: UUID | str | None) -> str:
    """Return a topic id as text; empty for a topic that does not exist, and from a broker before Kafka 2.8."""
    text = "" if topic_id is None else str(topic_id)
    return "" if text == _NO_ID else text


class CommittedOffsets(NamedTuple):
    """The group's committed offsets in existing topics; ``outdated`` are partitions with an offset of a deleted topic.

    Kafka deletes such an offset, but perhaps late; and a batch that was polled before may be committed afterwards.
    """

    present: dict[Partition, CommittedOffset]
    outdated: frozenset[Partition]


def partitions_of(consumer: Any, topics: Collection[str]) -> list[Partition]:
    """Return all partitions of topics that exist; raise ``BrokerUnavailable`` where the client does not know them."""
    by_topic = {topic: compat.known_partitions(consumer, topic) for topic in topics}
    if unknown := [topic for topic in topics if not by_topic[topic]]:
        # Otherwise their offsets would count as never committed.
        raise BrokerUnavailable(f"Kafka does not say at the moment which partitions {', '.join(unknown)} has")
    return [Partition(topic, partition) for topic in topics for partition in by_topic[topic]]


def fetch_committed(
    consumer: Any,
    options: KafkaOptions,
    topic_ids: Mapping[str, str],
    partitions: Sequence[Partition],
    *,
    stable: bool = True,
) -> CommittedOffsets:
    """Return the group's committed offsets; ``topic_ids`` are the present ones, as far as known."""
    client_partitions = [TopicPartition(*partition) for partition in partitions]
    limit_s = options.fetch_timeout_s
    if stable:  # Kafka answers when open transactions end; after a time-out new clients would wait for them again
        limit_s = max(limit_s, options.transaction_timeout_s + ABORT_MARGIN_S)
    try:
        fetched = compat.fetch_committed_offsets(consumer, client_partitions, round(limit_s * 1000), stable=stable)
    except CLIENT_ERRORS as error:
        subject = partitions[0] if len(partitions) == 1 else "all partitions"
        raise translated(error, f"read the committed offset of {subject}", options) from error
    offsets, outdated = {}, set()
    for client_partition, fetched_offset in fetched.items():
        partition = Partition(*client_partition)
        offset = committed_offset_of(fetched_offset)
        if is_outdated(offset.topic_id, topic_ids.get(partition.topic, "")):
            outdated.add(partition)
        else:
            offsets[partition] = offset
    return CommittedOffsets(offsets, frozenset(outdated))


def first_offsets(
    consumer: Any, times_ms: Mapping[Partition, int], ends: Mapping[Partition, int], timeout_ms: int
) -> dict[Partition, int]:
    """Return the offset of each partition's first record since a time; the end where no record is so late."""
    times = {TopicPartition(*partition): time_ms for partition, time_ms in times_ms.items()}
    firsts = consumer.offsets_for_times(times, timeout_ms=timeout_ms)
    # kafka-python 3 returns no offset for a time behind the last record.
    found = {Partition(*partition): first.offset for partition, first in firsts.items() if first is not None}
    return {partition: found.get(partition, ends[partition]) for partition in times_ms}


def offsets_to_commit(batch: Batch) -> dict[Any, Any]:
    offsets = {}
    for partition, offset in batch.next_offsets.items():
        metadata, topic_id = batch.metadata, batch.topic_ids.get(partition.topic, "")
        incarnation = batch.incarnations[partition]
        if topic_id or incarnation:
            metadata = f"{metadata} {incarnation} {topic_id or _NO_ID}".lstrip()  # in the form of `_METADATA`
        offsets[TopicPartition(*partition)] = client_offset(offset, metadata)
    return offsets


def is_outdated(topic_id: str, present_id: str) -> bool:
    """Return whether an offset was committed for another topic id; unknown (empty) ids count as equal."""
    return bool(topic_id and present_id) and topic_id != present_id


def client_offset(offset: int, metadata: str) -> Any:
    return OffsetAndMetadata(offset, metadata, leader_epoch=-1)  # the epoch is unknown


def committed_offset_of(fetched: Any) -> CommittedOffset:
    """Return an offset of the client with parsed metadata; those of other programs have no incarnation and topic id."""
    metadata = fetched.metadata or ""
    match = _METADATA.fullmatch(metadata)
    if match is None:
        return CommittedOffset(fetched.offset, metadata)
    return CommittedOffset(fetched.offset, match["text"], topic_id_text(match["topic_id"]), int(match["incarnation"]))
