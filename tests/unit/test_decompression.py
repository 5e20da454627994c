"""The decoders that stop at a limit: the same bytes as the client's own below it, and an error beyond."""

import gzip
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec
from kafka.record import default_records, legacy_records

from streamdedup.kafka import decompression
from streamdedup.kafka.decompression import GrownTooLarge, bound_decompression, ungzip, unlz4, unsnappy, unzstd
from tests.raw_batches import stored_as_snappy

CODECS = {
    "gzip": (codec.gzip_encode, ungzip),
    "lz4": (codec.lz4_encode, unlz4),
    "zstd": (codec.zstd_encode, unzstd),
    "snappy": (codec.snappy_encode, unsnappy),
}
#: What it becomes, and what it is allowed to, in bytes.
BOMB_BYTES, LIMIT_BYTES = 100_000_000, 4_000_000


@pytest.mark.parametrize("name", CODECS)
@given(content=st.binary(max_size=300), times=st.sampled_from([1, 20_000]))
def test_what_was_compressed_comes_back_up_to_the_limit_and_not_beyond(name, content, times):
    compress, decompress = CODECS[name]
    content *= times
    assert decompress(compress(content), len(content)) == content
    if content:
        with pytest.raises(GrownTooLarge, match=r"more than .* bytes \(kafka\.max_batch_bytes\)"):
            decompress(compress(content), len(content) - 1)


@pytest.mark.parametrize("name", CODECS)
def test_a_few_bytes_that_would_grow_to_many_cost_little_memory(name):
    compress, decompress = CODECS[name]
    bomb = compress(bytes(BOMB_BYTES))
    tracemalloc.start()
    try:
        with pytest.raises(GrownTooLarge):
            decompress(bomb, LIMIT_BYTES)
        assert tracemalloc.get_traced_memory()[1] < 3 * LIMIT_BYTES
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["gzip", "lz4"])
def test_a_cut_is_an_error_and_no_shorter_text(name):
    compress, decompress = CODECS[name]
    whole = compress(b"some text that is compressed " * 100)
    with pytest.raises((EOFError, RuntimeError)):
        decompress(whole[: len(whole) // 2], LIMIT_BYTES)


def test_several_members_of_gzip_are_one_text():
    assert ungzip(gzip.compress(b"one ") + gzip.compress(b"two"), 7) == b"one two"


def test_snappy_is_measured_before_anything_is_decompressed(monkeypatch):
    monkeypatch.setattr(decompression, "snappy_decode", lambda payload: payload)
    block = stored_as_snappy(b"x" * 100)
    assert unsnappy(block, 100) == block
    with pytest.raises(GrownTooLarge):
        unsnappy(block, 99)
    bare = bytes([0x80, 0x80, 0x80, 0x80, 0x04, 0])  # says that it becomes a gigabyte
    with pytest.raises(GrownTooLarge):
        unsnappy(bare, 1 << 29)
    with pytest.raises(ValueError, match="negative"):
        unsnappy(block[:16] + struct.pack(">i", -4) + block[20:], 1000)


def test_the_clients_parsers_use_them(monkeypatch):
    for module in (default_records, legacy_records):
        for name in ("gzip_decode", "lz4_decode", "snappy_decode", "zstd_decode"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, getattr(module, name))
    bound_decompression(1000)
    assert legacy_records.gzip_decode(codec.gzip_encode(b"x" * 1000)) == b"x" * 1000
    for name in CODECS:
        with pytest.raises(GrownTooLarge):
            getattr(default_records, f"{name}_decode")(CODECS[name][0](b"x" * 1001))
