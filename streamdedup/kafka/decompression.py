"""A bound for what a compressed record batch may grow to.

The client decompresses whole record batches, to whatever they grow: two megabytes of repetitions become gigabytes, and
the process that reads them is killed for want of memory, again and again. Brokers do not look: their limits count
compressed bytes. Here the client's decoders are replaced by ones that stop at a limit; such a batch is then one that
the client cannot parse.
"""

import gzip
import io
import struct
from collections.abc import Callable, Iterator
from functools import partial

import lz4.frame
import zstandard
from kafka.codec import snappy_decode
from kafka.record import default_records, legacy_records

#: Bytes that are decompressed at once.
_CHUNK_BYTES = 1 << 20
#: How snappy-java begins; its blocks follow, each after its length.
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16


class GrownTooLarge(ValueError):
    """A record batch decompresses to more than is allowed."""


def bound_decompression(max_bytes: int) -> None:
    """Let no client of this process decompress a record batch to more than ``max_bytes``.

    A client that meets a larger one raises ``GrownTooLarge`` while it parses.
    """
    decoders: dict[str, Callable[..., bytes]] = {
        "gzip_decode": ungzip,
        "lz4_decode": unlz4,
        "zstd_decode": unzstd,
        "snappy_decode": unsnappy,
    }
    for module in (default_records, legacy_records):
        for name, decoder in decoders.items():
            if hasattr(module, name):
                setattr(module, name, partial(decoder, max_bytes=max_bytes))


def ungzip(payload: bytes, max_bytes: int) -> bytes:
    """Return what was compressed with gzip.

    Raises:
        GrownTooLarge: It is more than ``max_bytes``.
    """
    with gzip.GzipFile(fileobj=io.BytesIO(payload)) as reader:
        return _joined(iter(partial(reader.read, _CHUNK_BYTES), b""), max_bytes)


def unzstd(payload: bytes, max_bytes: int) -> bytes:
    """Return what was compressed with zstd.

    Raises:
        GrownTooLarge: It is more than ``max_bytes``.
    """
    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(payload), read_across_frames=True) as reader:
        return _joined(iter(partial(reader.read, _CHUNK_BYTES), b""), max_bytes)


def unlz4(payload: bytes, max_bytes: int) -> bytes:
    """Return what was compressed with LZ4, in one frame.

    Raises:
        GrownTooLarge: It is more than ``max_bytes``.
        RuntimeError: It ends too early.
    """
    decompressor = lz4.frame.LZ4FrameDecompressor()

    def chunks() -> Iterator[bytes]:
        yield decompressor.decompress(payload, max_length=_CHUNK_BYTES)
        while not decompressor.eof:
            if decompressor.needs_input:
                raise RuntimeError("the LZ4 frame ends too early")
            yield decompressor.decompress(b"", max_length=_CHUNK_BYTES)

    return _joined(chunks(), max_bytes)


def unsnappy(payload: bytes, max_bytes: int) -> bytes:
    """Return what was compressed with snappy, in blocks as snappy-java frames them, or bare.

    Raises:
        GrownTooLarge: It is more than ``max_bytes``.
    """
    blocks = list(_snappy_blocks(payload))
    if sum(_snappy_bytes(block) for block in blocks) > max_bytes:
        raise _too_large(max_bytes)
    # kafka-python 3.0 takes a frame without blocks for a bare block, and cannot read it.
    return bytes(snappy_decode(payload)) if blocks else b""


def _snappy_blocks(payload: bytes) -> Iterator[bytes]:
    """Yield each block."""
    if not payload.startswith(_XERIAL_MAGIC):
        yield payload
        return
    start = _XERIAL_HEADER_BYTES
    while start < len(payload):
        (length,) = struct.unpack_from(">i", payload, start)
        if length < 0:
            raise ValueError("a snappy block has a negative length")
        yield payload[start + 4 : start + 4 + length]
        start += 4 + length


def _snappy_bytes(block: bytes) -> int:
    """Return how long a block says that it becomes: a varint at its beginning."""
    length = 0
    for place, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            break
    return length


def _joined(chunks: Iterator[bytes], max_bytes: int) -> bytes:
    found: list[bytes] = []
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > max_bytes:
            raise _too_large(max_bytes)
        found.append(chunk)
    return b"".join(found)


def _too_large(max_bytes: int) -> GrownTooLarge:
    return GrownTooLarge(f"the record batch decompresses to more than {max_bytes:,} bytes (kafka.max_batch_bytes)")
