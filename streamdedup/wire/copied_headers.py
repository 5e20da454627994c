"""Copied headers: record headers that the setting ``kafka.copy_headers`` names, in the alerts of a record."""

from collections.abc import Collection, Iterable
from typing import Final

#: Largest number of bytes of the copied headers, framing included: enough for a W3C trace context with baggage.
MAX_COPIED_BYTES: Final = 8_192
#: Bytes that a record needs beside key, value and headers: lengths, time, offset and the batch header.
RECORD_OVERHEAD_BYTES: Final = 96
#: Largest number of bytes that a header needs beside its name and value: two lengths, as variable-length numbers.
_HEADER_OVERHEAD_BYTES = 10

#: Names and values of headers; the Kafka client can send no null value.
SentHeaders = tuple[tuple[str, bytes], ...]


def copied_headers(headers: Iterable[tuple[str, bytes | None]], names: Collection[str]) -> SentHeaders:
    """Return the record headers that have one of these names, in order; the same when the record is read again.

    A header that would exceed ``MAX_COPIED_BYTES`` together with those before is left out. A null value becomes empty.
    """
    copied: list[tuple[str, bytes]] = []
    room_bytes = MAX_COPIED_BYTES
    for name, value in headers:
        if name in names and (needed_bytes := headers_bytes([(name, value or b"")])) <= room_bytes:
            copied.append((name, value or b""))
            room_bytes -= needed_bytes
    return tuple(copied)


def headers_bytes(headers: Iterable[tuple[str, bytes]]) -> int:
    """Return an upper bound for the bytes of headers in a record."""
    return sum(len(name.encode()) + len(value) + _HEADER_OVERHEAD_BYTES for name, value in headers)
