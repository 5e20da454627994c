"""Copied headers: record headers that ``kafka.copy_headers`` names, in the record's alert or dead letter."""

from collections.abc import Collection, Iterable
from typing import Final

#: Limit of bytes of copied headers in one message, framing included: room for a W3C trace context with baggage.
MAX_COPIED_BYTES: Final = 8_192
#: Largest number of bytes that a header needs beside its name and value: two lengths, as variable-length numbers.
HEADER_OVERHEAD_BYTES: Final = 10

#: Names and values that can be sent.
SentHeaders = tuple[tuple[str, bytes], ...]


def copied_headers(headers: Iterable[tuple[str, bytes | None]], names: Collection[str]) -> SentHeaders:
    """Return the record headers that have one of these names, in order; the same when the record is read again.

    A header that would exceed ``MAX_COPIED_BYTES`` together with the headers copied before is left out. A null value
    becomes an empty one, because the Kafka client cannot send null.
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
    return sum(len(name.encode()) + len(value) + HEADER_OVERHEAD_BYTES for name, value in headers)
