"""Bounded decoders for the codecs of record batches; ``batch_limits.limit_batches`` installs them in the client.

Each raises ``DecompressedTooLarge`` above ``max_bytes``, and some other exception, of its library or its own, for a
payload that is cut or damaged; ``unzstd`` returns the part before a cut, and the client then raises. Libraries are
imported on first use; without the library the client does not call the decoder (``errors.codec_missing``).
"""

import gzip
import io
import struct
from collections.abc import Iterator
from functools import partial

#: Bytes that are decompressed at once. The LZ4 library allocates them in advance: with 64 MiB, an 800 kB batch took
#: three times as long.
_CHUNK_BYTES = 1 << 20
#: First bytes of a snappy-java (xerial) frame. The header has these and two version numbers of four bytes. Blocks
#: follow, each after its length, a number of four bytes.
_XERIAL_MAGIC = b"\x82SNAPPY\0"
_XERIAL_HEADER_BYTES = 16


class DecompressedTooLarge(ValueError):
    """A record batch decompresses to more than ``max_bytes``."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"decompressed, the record batch has more than {max_bytes:,} bytes")


def ungzip(payload: bytes, max_bytes: int) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(payload)) as reader:
        return _join_within_limit(iter(partial(reader.read, _CHUNK_BYTES), b""), max_bytes)  # until an empty read


def unzstd(payload: bytes, max_bytes: int) -> bytes:
    import zstandard  # noqa: PLC0415  every command starts without it

    with zstandard.ZstdDecompressor().stream_reader(io.BytesIO(payload), read_across_frames=True) as reader:
        return _join_within_limit(iter(partial(reader.read, _CHUNK_BYTES), b""), max_bytes)


def unlz4(payload: bytes, max_bytes: int) -> bytes:
    """Decompress one LZ4 frame; raise ``RuntimeError`` if it is cut."""
    import lz4.frame  # noqa: PLC0415  every command starts without it

    decompressor = lz4.frame.LZ4FrameDecompressor()

    def chunks() -> Iterator[bytes]:
        yield decompressor.decompress(payload, max_length=_CHUNK_BYTES)
        while not decompressor.eof:
            if decompressor.needs_input:
                raise RuntimeError("the LZ4 frame ends too early")
            yield decompressor.decompress(b"", max_length=_CHUNK_BYTES)

    return _join_within_limit(chunks(), max_bytes)


def unsnappy(payload: bytes, max_bytes: int) -> bytes:
    """Decompress snappy, bare or in the blocks of snappy-java."""
    import cramjam  # noqa: PLC0415  as below; python-snappy rests on it
    import snappy  # noqa: PLC0415  every command starts without it

    blocks = list(_snappy_blocks(payload))
    # The library has no limit, but each block declares its size, which the library checks.
    if sum(map(cramjam.snappy.decompress_raw_len, blocks)) > max_bytes:
        raise DecompressedTooLarge(max_bytes)
    return b"".join(map(snappy.decompress, blocks))


def _snappy_blocks(payload: bytes) -> Iterator[bytes]:
    """Yield the compressed blocks of a snappy-java frame; of a bare payload, the whole."""
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


def _join_within_limit(chunks: Iterator[bytes], max_bytes: int) -> bytes:
    parts: list[bytes] = []
    total_bytes = 0
    for chunk in chunks:
        total_bytes += len(chunk)
        if total_bytes > max_bytes:
            raise DecompressedTooLarge(max_bytes)
        parts.append(chunk)
    return b"".join(parts)
