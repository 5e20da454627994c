"""The stored form of sketches, the last and largest part of an index entry; called by ``index.entries``.

A change of the form raises ``entries.LAYOUT``, and touches docs/format.md and tests/format_vectors.py.

*Plain*, 4 bytes for each value, are signatures and up to 63 shingle hashes. From 64 hashes on they are *coded* by
Elias-Fano (P. Elias, "Efficient storage and retrieval by content and address of static files", Journal of the ACM 21,
1974): the low parts of n ascending hashes take 24 bits each, whole bytes, so that a batch is encoded by few array
operations; the high parts take n + 255 bits together. A hash takes 3.45 bytes where a document has 100.

A code of n hashes has their low parts, little-endian, then (n + 262) // 8 bytes of bits, the highest of a byte first:
bit i + h is set for the i-th hash with the high part h, both counted from 0.

Worked example: 0x00000007, 0x00000009, 0x02000001 have the low parts 7, 9 and 1, and the high parts 0, 0 and 2. Bits
0 + 0, 1 + 0 and 2 + 2 are set: 0b11001000, then 32 bytes of zeros.
"""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.similarity.sketch import Sketch

#: One hash or signature value.
_VALUE = np.dtype("<u4")
#: Smallest number of hashes that are coded: 64 hashes take 232 bytes as a code, and 256 without.
_FEWEST_CODED: Final = 64
#: Bytes of a low part, and greatest high part.
_LOW_BYTES, _MOST_HIGH = 3, 255
_LOW_BITS, _LOW_MASK = np.uint32(24), np.uint32(0xFFFFFF)


class StoredSketch(NamedTuple):
    """The bytes of a sketch, and what other fields of the entry say of it."""

    data: bytes
    shingles_count: int
    is_signature: bool


def encode_sketches(sketches: Sequence[Sketch]) -> list[bytes]:
    coded = [hashes for sketch in sketches if (hashes := sketch.hashes) is not None and len(hashes) >= _FEWEST_CODED]
    codes = iter(_encode_hashes(coded))
    stored = []
    for sketch in sketches:
        plain = sketch.signature if sketch.hashes is None else sketch.hashes
        assert plain is not None
        is_coded = sketch.hashes is not None and len(plain) >= _FEWEST_CODED
        stored.append(next(codes) if is_coded else plain.astype(_VALUE, copy=False).tobytes())
    return stored


def decode_sketches(stored: Sequence[StoredSketch]) -> list[Sketch]:
    """Decode sketches, which share no memory with the bytes; raise ``ValueError`` with the reason for a damaged one."""
    plain = [sketch for sketch in stored if not sketch.is_signature and sketch.shingles_count < _FEWEST_CODED]
    coded = [sketch for sketch in stored if not sketch.is_signature and sketch.shingles_count >= _FEWEST_CODED]
    plain_hashes = _split_and_check(_decode_plain(plain), plain) if plain else iter(())
    coded_hashes = _split_and_check(_decode_hashes(coded), coded) if coded else iter(())
    sketches = []
    for data, count, is_signature in stored:
        if is_signature:
            sketches.append(Sketch(count, signature=_decode_signature(data)))
        else:
            sketches.append(Sketch(count, hashes=next(plain_hashes if count < _FEWEST_CODED else coded_hashes)))
    return sketches


def _split_and_check(hashes: NDArray[np.uint32], stored: Sequence[StoredSketch]) -> Iterator[NDArray[np.uint32]]:
    """Return the joined hashes by document; raise unless those of each ascend strictly, as comparisons require."""
    ends = list(accumulate(sketch.shingles_count for sketch in stored))
    descends = hashes[1:] <= hashes[:-1]
    if len(ends) > 1:
        # The first hash of a document may be less than the last one of the document before.
        descends[[end - 1 for end in ends if 0 < end < len(hashes)]] = False
    if np.count_nonzero(descends):
        raise ValueError("shingle hashes out of order")
    if len(ends) == 1:
        return iter((hashes,))  # no copy: no other document shares the array
    return (hashes[end - sketch.shingles_count : end].copy() for end, sketch in zip(ends, stored, strict=True))


def _decode_signature(data: bytes) -> NDArray[np.uint32]:
    if not data:
        raise ValueError("a signature without values")
    if len(data) % _VALUE.itemsize:
        raise ValueError(f"a signature of {len(data)} bytes, cut off or too long")
    return np.frombuffer(data, _VALUE).astype(np.uint32)


def _decode_plain(stored: Sequence[StoredSketch]) -> NDArray[np.uint32]:
    for data, count, _ in stored:
        _check_length(data, count, _VALUE.itemsize * count)
    return np.frombuffer(b"".join([sketch.data for sketch in stored]), _VALUE).astype(np.uint32)


def _check_length(data: bytes, count: int, length: int) -> None:
    if len(data) != length:
        raise ValueError(f"{len(data)} bytes for {count} shingle hashes, cut off or too long")


# Elias-Fano codes


def _encode_hashes(hashes: Sequence[NDArray[np.uint32]]) -> list[bytes]:
    if not hashes:
        return []
    joined = np.concatenate(hashes).astype(_VALUE, copy=False)
    counts = [len(document_hashes) for document_hashes in hashes]
    low = np.empty((len(joined), _LOW_BYTES), np.uint8)
    for byte in range(_LOW_BYTES):
        low[:, byte] = joined.view(np.uint8)[byte :: _VALUE.itemsize]
    high = np.zeros(8 * sum(map(_high_length, counts)), np.bool_)
    high[(joined >> _LOW_BITS) + _first_bits(counts)] = True
    low_bytes, high_bytes = low.tobytes(), np.packbits(high).tobytes()
    codes = []
    low_start = high_start = 0
    for count in counts:
        low_end, high_end = low_start + _LOW_BYTES * count, high_start + _high_length(count)
        codes.append(low_bytes[low_start:low_end] + high_bytes[high_start:high_end])
        low_start, high_start = low_end, high_end
    return codes


def _decode_hashes(stored: Sequence[StoredSketch]) -> NDArray[np.uint32]:
    """Return the hashes of all codes, joined; those of a damaged code may not ascend."""
    low, high = [], []
    for data, count, _ in stored:
        _check_length(data, count, _LOW_BYTES * count + _high_length(count))
        low.append(data[: _LOW_BYTES * count])
        high.append(data[_LOW_BYTES * count :])
    first_bits = _first_bits([sketch.shingles_count for sketch in stored])
    bits = np.unpackbits(np.frombuffer(b"".join(high), np.uint8)).view(np.bool_).nonzero()[0]
    if len(bits) != len(first_bits):
        raise ValueError("damaged high parts of shingle hashes")
    bits -= first_bits
    # If one code has a bit too many and another one too few, a hash between them takes a bit of another code, so that
    # its high part is outside 0 .. 255. A negative one, read as unsigned, is large.
    if bits.view(np.uintp).max() > _MOST_HIGH:
        raise ValueError("damaged high parts of shingle hashes")
    hashes = bits.astype(np.uint32)
    hashes <<= _LOW_BITS
    # Low parts are read as overlapping values of 4 bytes, 3 bytes apart; the mask removes the fourth byte.
    low.append(b"\0")
    hashes |= np.ndarray(len(bits), _VALUE, b"".join(low), strides=(_LOW_BYTES,)) & _LOW_MASK
    return hashes


def _high_length(count: Any) -> Any:
    """Return the bytes for the high parts of so many hashes, an int or an array: count + 255 bits, rounded up."""
    return (count + 262) // 8


def _first_bits(counts: Sequence[int]) -> NDArray[np.intp]:
    """Return for each hash the place of its bit if its high part were 0, counted over the codes of all documents.

    The bits of each document begin at a whole byte: two hashes take 33 bytes, so the counts (2, 1) give 0, 1, 264.
    """
    numbers = np.arange(sum(counts))
    if len(counts) > 1:
        hash_counts = np.array(counts)
        bit_counts = 8 * _high_length(hash_counts)
        # The bits before each document less the hashes before it.
        shifts = (bit_counts.cumsum() - bit_counts) - (hash_counts.cumsum() - hash_counts)
        numbers += np.repeat(shifts, hash_counts)
    return numbers
