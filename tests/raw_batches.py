"""Record batches built byte by byte and sent with a Produce request, for what no client would write.

The layout is that of the message format's version 2:
https://kafka.apache.org/documentation/#recordbatch
"""

import contextlib
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kafka.errors import for_code
from kafka.net.compat import KafkaNetClient
from kafka.protocol.producer import ProduceRequest
from kafka.record.util import calc_crc32c
from kafka.structs import TopicPartition

#: Codes of two codecs in a batch's attributes.
NO_CODEC, SNAPPY = 0, 2
#: Newest version of the request that names topics by their names.
PRODUCE_VERSION_MAX = 9
#: How long the broker may take, in milliseconds.
TIMEOUT_MS = 120_000


@dataclass(frozen=True)
class RawRecord:
    """A record as bytes; header names too, so that they need not be UTF-8.

    Attributes:
        value: Value bytes or None.
        key: Key bytes or None.
        headers: Name and value of each header.
        timestamp_ms: Record time in milliseconds since the epoch; -1 is none.
    """

    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[bytes, bytes | None], ...] = ()
    timestamp_ms: int = -1


def record_batch(records: Sequence[RawRecord], codec: int = NO_CODEC) -> bytes:
    """Return the bytes of one record batch."""
    first_ms = records[0].timestamp_ms
    body = b"".join(_record(record, offset, record.timestamp_ms - first_ms) for offset, record in enumerate(records))
    if codec == SNAPPY:
        body = stored_as_snappy(body)
    last_ms = max(record.timestamp_ms for record in records)
    # Attributes, last offset, first and greatest time, no producer (id, epoch, sequence), number of records.
    tail = struct.pack(">hiqqqhii", codec, len(records) - 1, first_ms, last_ms, -1, -1, -1, len(records)) + body
    # Epoch of the leader and version of the format come before the checksum, which covers all that follows it.
    rest = struct.pack(">ibI", -1, 2, calc_crc32c(tail)) + tail
    return struct.pack(">qi", 0, len(rest)) + rest


def send_batch(bootstrap: str, topic: str, partition: int, batch: bytes) -> int:
    """Append a batch and return the offset of its first record."""
    net = KafkaNetClient(bootstrap_servers=bootstrap.split(","), request_timeout_ms=TIMEOUT_MS)
    with contextlib.closing(net):
        net.check_version(timeout_ms=TIMEOUT_MS)
        net.poll(timeout_ms=TIMEOUT_MS, future=net.cluster.set_topics({topic}))
        leader = net.cluster.leader_for_partition(TopicPartition(topic, partition))
        data = ProduceRequest.TopicProduceData
        request = ProduceRequest(
            transactional_id=None,
            acks=-1,
            timeout_ms=TIMEOUT_MS,
            topic_data=[
                data(name=topic, partition_data=[data.PartitionProduceData(index=partition, records=batch)]),
            ],
            max_version=PRODUCE_VERSION_MAX,
        )
        answer = net.send_and_receive(leader, request, timeout_ms=TIMEOUT_MS).responses[0].partition_responses[0]
    if answer.error_code:
        raise for_code(answer.error_code)(f"{topic}:{partition} refuses the batch: {answer.error_message}")
    return answer.base_offset


def _record(record: RawRecord, offset: int, time_delta_ms: int) -> bytes:
    parts = [b"\0", _varint(time_delta_ms), _varint(offset), _bytes(record.key), _bytes(record.value)]
    parts += [_varint(len(record.headers)), *_headers(record.headers)]
    body = b"".join(parts)
    return _varint(len(body)) + body


def _headers(headers: Iterable[tuple[bytes, bytes | None]]) -> Iterable[bytes]:
    for name, value in headers:
        yield _bytes(name)
        yield _bytes(value)


def _bytes(content: bytes | None) -> bytes:
    return _varint(-1) if content is None else _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Zigzag, then seven bits a byte, the least ones first."""
    rest = (number << 1) ^ (number >> 63)
    out = bytearray()
    while rest > 0x7F:
        out.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*out, rest])


def stored_as_snappy(body: bytes) -> bytes:
    """Frame ``body`` as snappy-java does, with one block that holds it uncompressed; no codec is needed for that."""
    if not 60 < len(body) <= 1 << 16:
        raise ValueError(f"{len(body)} bytes do not go into a literal with a length of two bytes")
    length = bytearray()
    rest = len(body)
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    block = bytes([*length, rest]) + bytes([61 << 2]) + struct.pack("<H", len(body) - 1) + body
    return b"\x82SNAPPY\0" + struct.pack(">iii", 1, 1, len(block)) + block
