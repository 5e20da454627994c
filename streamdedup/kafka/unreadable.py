"""Which records the client cannot parse: an unknown codec, a broken checksum, a header name that is not UTF-8.

A codec that Kafka knows and whose library is not installed is no property of the record but a mistake in the
installation: it raises ``CodecMissing`` and nothing is stepped past.

The consumer reports such a record with an exception that names no place, and parses whole record batches as they were
written, so one bad record also hides those behind it in its batch. This module fetches the raw bytes at each position
once more, over a connection of its own, asks the client's own parser, and reads the extent from the batch header.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from kafka.consumer.fetcher import Fetcher
from kafka.errors import CorruptRecordError, KafkaError, UnsupportedCodecError, for_code
from kafka.net.compat import KafkaNetClient
from kafka.protocol.consumer import FetchRequest, IsolationLevel
from kafka.record import MemoryRecords
from kafka.structs import TopicPartition

from streamdedup.kafka.client import close_quietly
from streamdedup.kafka.errors import codec_missing, described
from streamdedup.kafka.options import FETCH_MAX_WAIT_MS, KafkaOptions
from streamdedup.position import Partition

#: Newest version of the fetch request that names topics by their name.
FETCH_VERSION_MAX = 12

#: Longest reason that is passed on, in characters.
MAX_REASON_CHARS = 200


@dataclass(frozen=True, slots=True)
class UnreadableRange:
    """Offsets that the client cannot parse.

    Attributes:
        first: First such offset.
        last: Last offset of the record batch that it lies in.
        reason: What the parser said.
    """

    first: int
    last: int
    reason: str


def may_be_unreadable(error: Exception) -> bool:
    """Whether ``error`` may come from parsing: the client's own names for it, or whatever a codec raises."""
    return isinstance(error, (CorruptRecordError, UnsupportedCodecError)) or not isinstance(error, KafkaError)


def find_unreadable(options: KafkaOptions, positions: Mapping[Partition, int]) -> dict[Partition, UnreadableRange]:
    """Return, of those partitions whose records at ``positions`` cannot be parsed, the range to step past.

    Args:
        options: Where Kafka is.
        positions: Next offset to read, by partition.

    Raises:
        KafkaError: Kafka did not answer.
        OSError: The same.
        CodecMissing: The library for a codec is not installed; such records can be read once it is.
    """
    net = KafkaNetClient(**options.connection(), request_timeout_ms=round(options.fetch_timeout_s * 1000))
    try:
        return _ranges(net, options, positions)
    finally:
        close_quietly("close the connection of the search for unreadable records", net.close, options.close_timeout_s)


def _ranges(
    net: KafkaNetClient, options: KafkaOptions, positions: Mapping[Partition, int]
) -> dict[Partition, UnreadableRange]:
    """Ask the parser about each partition."""
    timeout_ms = round(options.connect_timeout_s * 1000)
    net.check_version(timeout_ms=timeout_ms)
    net.poll(timeout_ms=timeout_ms, future=net.cluster.set_topics({partition.topic for partition in positions}))
    found: dict[Partition, UnreadableRange] = {}
    for partition, offset in positions.items():
        leader = net.cluster.leader_for_partition(TopicPartition(*partition))
        if leader is None or leader < 0:
            raise KafkaError(f"no leader for {partition}")
        data = net.send_and_receive(leader, _request(options, partition, offset), timeout_ms=timeout_ms)
        extent = _range(partition, offset, data.responses[0].partitions[0])
        if extent is not None:
            found[partition] = extent
    return found


def _request(options: KafkaOptions, partition: Partition, offset: int) -> Any:
    """A fetch outside any session, so that the consumer's own fetches are left alone."""
    wanted = FetchRequest.FetchTopic.FetchPartition(
        partition=partition.number,
        current_leader_epoch=-1,
        fetch_offset=offset,
        last_fetched_epoch=-1,
        log_start_offset=-1,
        partition_max_bytes=options.max_partition_fetch_bytes,
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=FETCH_MAX_WAIT_MS,
        min_bytes=1,
        max_bytes=options.fetch_max_bytes,
        isolation_level=IsolationLevel.READ_COMMITTED,
        session_id=0,
        session_epoch=-1,
        topics=[FetchRequest.FetchTopic(topic=partition.topic, partitions=[wanted])],
        forgotten_topics_data=[],
        rack_id="",
        min_version=FetchRequest.min_version_for_isolation_level(IsolationLevel.READ_COMMITTED),
        max_version=FETCH_VERSION_MAX,
    )


def _range(partition: Partition, offset: int, data: Any) -> UnreadableRange | None:
    """What the parser cannot read at ``offset``, or None when it can.

    Raises:
        CodecMissing: It could with a library that is not installed.
    """
    if data.error_code:
        raise for_code(data.error_code)(f"fetching {partition} at {offset}")
    parser = Fetcher.PartitionRecords(
        offset,
        TopicPartition(*partition),
        MemoryRecords(data.records or b""),
        isolation_level=IsolationLevel.READ_COMMITTED,
        aborted_transactions=data.aborted_transactions,
    )
    try:
        parser.take(1)
    except Exception as error:
        missing = codec_missing(error, f"cannot read {partition} from offset {parser.next_fetch_offset} on")
        if missing is not None:
            raise missing from error
        return _extent(data.records, parser.next_fetch_offset, described(error)[:MAX_REASON_CHARS])
    return None


def _extent(raw: bytes, offset: int, reason: str) -> UnreadableRange | None:
    """The offsets from ``offset`` to the end of its record batch; None when not even the batch header can be read."""
    for batch in _batches(MemoryRecords(raw)):
        if batch.last_offset >= offset:
            return UnreadableRange(max(offset, batch.base_offset), batch.last_offset, reason)
    return None


def _batches(records: Any) -> Iterable[Any]:
    """The record batches of the current format, in order; headers only."""
    while (batch := records.next_batch()) is not None:
        if batch.magic < 2:  # an older format has no header from which the extent could be read
            return
        yield batch
