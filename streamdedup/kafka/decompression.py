"""Decoders for Kafka's codecs with a size limit; ``compat.bound_decompression`` gives them to the client.

Each decoder imports its library itself. Without the library the client refuses the record batch before it calls the
decoder, and the daemon names the package (``errors.codec_missing``).
"""

import gzip
import io
import struct
from collections.abc import Iterator
from functools import partial

#: Bytes that are decompressed at once. One call with the whole limit (64 MiB) took three times as long for a batch of
#: 800 kB of LZ4, because the library allocates that much.
_CHUNK_BYTES = 1 << 20
#: First bytes of a snappy-java frame; blocks follow, each after its length.
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16


class GrownTooLarge(ValueError):
    """A record batch decompresses to more than is allowed."""


def ungzip(payload: bytes, max_bytes: int) -> bytes:
    """Decompress gzip; raise ``GrownTooLarge`` above ``max_bytes``."""
    with gzip.GzipFile(fileobj=io.BytesIO(payload)) as reader:
        return _joined(iter(partial(reader.read, _CHUNK_BYTES), b""), max_bytes)


def unzstd(payload: bytes, max_bytes: int) -> bytes:
    """Decompress zstd; raise ``GrownTooLarge`` above ``max_bytes``."""
    import zstandard  # noqa: PLC0415  every command starts without it

    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(payload), read_across_frames=True) as reader:
        return _joined(iter(partial(reader.read, _CHUNK_BYTES), b""), max_bytes)


def unlz4(payload: bytes, max_bytes: int) -> bytes:
    """Decompress one LZ4 frame; raise ``GrownTooLarge`` above ``max_bytes``, ``RuntimeError`` for a cut frame."""
    import lz4.frame  # noqa: PLC0415  every command starts without it

    decompressor = lz4.frame.LZ4FrameDecompressor()

    def chunks() -> Iterator[bytes]:
        yield decompressor.decompress(payload, max_length=_CHUNK_BYTES)
        while not decompressor.eof:
            if decompressor.needs_input:
                raise RuntimeError("the LZ4 frame ends too early")
            yield decompressor.decompress(b"", max_length=_CHUNK_BYTES)

    return _joined(chunks(), max_bytes)


def unsnappy(payload: bytes, max_bytes: int) -> bytes:
    """Decompress snappy, bare or in the blocks of snappy-java; raise ``GrownTooLarge`` above ``max_bytes``."""
    import snappy  # noqa: PLC0415  every command starts without it

    blocks = list(_snappy_blocks(payload))
    if sum(map(_snappy_bytes, blocks)) > max_bytes:
        raise _too_large(max_bytes)
    return b"".join(map(snappy.decompress, blocks))


def _snappy_blocks(payload: bytes) -> Iterator[bytes]:
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
    """Return the decompressed length that a block declares: a varint at its beginning."""
    length = 0
    for index, byte in enumerate(block[:5]):
        length |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            break
    return length


def _joined(chunks: Iterator[bytes], max_bytes: int) -> bytes:
    parts: list[bytes] = []
    total = 0
    for chunk in chunks:
        total += len(chunk)
        if total > max_bytes:
            raise _too_large(max_bytes)
        parts.append(chunk)
    return b"".join(parts)


def _too_large(max_bytes: int) -> GrownTooLarge:
    return GrownTooLarge(f"the record batch decompresses to more than {max_bytes:,} bytes")
