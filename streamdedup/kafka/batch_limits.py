"""Limits on the memory of a record batch and of a poll; a record batch above a limit is unreadable (``unreadable``).

The Kafka client (kafka-python 3.0.12) decompresses a record batch to any size: two megabytes of repetitions become
gigabytes, and the process is killed for want of memory, again after each restart. A header of two bytes needs up to
``HEADER_BYTES``. Brokers limit compressed bytes only. A new codec is a row in ``limit_batches`` and in ``_LIBRARIES``
of ``errors``.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from kafka.errors import CorruptRecordError
from kafka.record import default_records, legacy_records, memory_records
from kafka.record.util import decode_varint

from streamdedup.kafka.decoders import DecompressedTooLarge, ungzip, unlz4, unsnappy, unzstd

#: Most decompressed bytes of a readable record batch: 64 times the default limit of a broker on the compressed bytes.
MAX_BATCH_BYTES = 64 * 2**20
#: Most headers in a readable record, and in the records of a record batch that one fetch parses.
MAX_HEADERS = 250_000
#: Memory that a parsed header needs beside its text, at most, in bytes.
HEADER_BYTES = 200
#: Decompressed bytes after which a poll begins no further record batch: those of 2,000 records of 16 kB.
POLL_BYTES = 32 * 2**20


def content_bytes(records: Iterable[Any]) -> int:
    """Return the bytes of values, and of headers in memory, of records; an ``UnreadableRange`` has none."""
    return sum(len(record.value or b"") + HEADER_BYTES * len(record.headers) for record in records)


def limit_batches(max_bytes: int = MAX_BATCH_BYTES) -> None:
    """Make the client raise ``DecompressedTooLarge`` above ``max_bytes``, and limit headers by ``BoundedBatch``."""
    memory_records.DefaultRecordBatch = BoundedBatch
    BoundedBatch.max_bytes = max_bytes
    decoders: dict[str, Callable[..., bytes]] = {
        "gzip_decode": ungzip,
        "lz4_decode": unlz4,
        "zstd_decode": unzstd,
        "snappy_decode": unsnappy,
    }
    for module in (default_records, legacy_records):
        for name, decoder in decoders.items():
            if hasattr(module, name):  # the legacy formats have no zstd
                setattr(module, name, partial(decoder, max_bytes=max_bytes))


class BoundedBatch(default_records.DefaultRecordBatch):  # type: ignore[misc]  # the client is untyped
    """The client's record batch, refused as a whole above ``max_bytes``, whether it is compressed or not.

    The record that exceeds ``MAX_HEADERS`` is refused, too. Records before ``first_offset``, where the fetch begins,
    are stepped over. The client parses them, because a broker sends whole record batches: one of some kilobytes may
    have 134 records of 250,000 headers and need 134 fetches, which would parse 2 billion headers together, the last
    ones for minutes without a tick of the watchdog.
    """

    headers_count = 0
    first_offset = 0
    max_bytes: int
    _pos: int

    def _maybe_uncompress(self) -> None:
        if len(self._buffer) > self.max_bytes:
            raise DecompressedTooLarge(self.max_bytes)
        super()._maybe_uncompress()

    def _read_msg(self) -> Any:
        if self.first_offset:
            self._step_over_earlier()
            self.first_offset = 0
        allowed_count = MAX_HEADERS - self.headers_count
        # A header has at least two bytes, so most batches are too small for too many headers.
        if len(self._buffer) - self._pos > 2 * allowed_count and self._next_headers_count() > allowed_count:
            raise CorruptRecordError(f"the record has more than {MAX_HEADERS:,} headers")
        record = super()._read_msg()
        self.headers_count += len(record.headers)
        return record

    def _step_over_earlier(self) -> None:
        """Move to the record at ``first_offset`` or behind it, or to the last one: the client drops an earlier one."""
        while self._next_record_index < self._num_records - 1:
            length, start = decode_varint(self._buffer, self._pos)
            next_byte = start
            for _ in range(3):  # attributes, time, offset
                offset_delta, next_byte = decode_varint(self._buffer, next_byte)
            is_damaged = start + length < next_byte
            if is_damaged or self.base_offset + offset_delta >= self.first_offset:
                return
            self._pos = start + length
            self._next_record_index += 1

    def _next_headers_count(self) -> int:
        next_byte = self._pos
        for _ in range(4):  # length, attributes, time, offset
            _, next_byte = decode_varint(self._buffer, next_byte)
        for _ in range(2):  # key, value
            size, next_byte = decode_varint(self._buffer, next_byte)
            next_byte += max(0, size)
        return int(decode_varint(self._buffer, next_byte)[0])


@dataclass(slots=True)
class PollBudget:
    """Bytes that the present poll may still parse; renewed by each poll, lowered by ``RecordBatches``."""

    left_bytes: int = 0

    def renew(self) -> None:
        self.left_bytes = POLL_BYTES


class RecordBatches:
    """The record batches of one fetch, with the one that is being parsed as ``current``.

    The client limits a poll by the number of records only, and one fetch may have hundreds of record batches that
    decompress from some kilobytes to 64 MiB. After ``POLL_BYTES`` in one poll ``next_batch`` returns None, as at the
    end of the fetch, and the next fetch begins behind the last parsed record batch.
    """

    def __init__(self, records: Any, budget: PollBudget, first_offset: int) -> None:
        self._records, self._budget = records, budget
        self._first_offset = first_offset
        self.current: Any = None

    def next_header(self) -> bytes:
        """Return the header of the record batch that ``next_batch`` is to return; empty at the end of the fetch."""
        return bytes((self._records._next_slice or b"")[: BoundedBatch.HEADER_STRUCT.size])

    def next_batch(self) -> Any:
        if self.current is not None:
            self._charge()
        self.current = self._records.next_batch() if self._budget.left_bytes > 0 else None
        if isinstance(self.current, BoundedBatch):
            self.current.first_offset = self._first_offset
        return self.current

    def charge_unreadable(self) -> None:
        """Charge the present batch, which has raised an error; spend the budget if its decompression did not end."""
        if self.current is None or not self.current._decompressed:
            self._budget.left_bytes = 0  # perhaps 64 MiB were decompressed before the error
        else:
            self._charge()

    def _charge(self) -> None:
        headers_count = getattr(self.current, "headers_count", 0)  # earlier formats have no headers
        batch_bytes = len(self.current._buffer)  # decompressed by now
        self._budget.left_bytes -= batch_bytes + HEADER_BYTES * headers_count
