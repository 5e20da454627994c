"""From elements (tokens or characters) to 32-bit shingle hashes: the arithmetic behind `text`.

    hash64(bytes)   = sum over j of MULTIPLIER^j * mix(w_j), where w_j are the bytes' 8-byte little-endian words, the
                      last one padded with zeros (no token contains a NUL, so padding is unambiguous)
    token           = hash64(its UTF-8)
    character       = mix(mix(its code point))
    shingle         = finish(sum over j of COMBINER^j * hash of its element j)
    mix(x)          = y ^ (y >> 29), y = (x ^ (x >> 32)) * MIX
    finish(x)       = ((y ^ (y >> 32)) * FINISH_2 mod 2^64) >> 32, y = x * FINISH_1

all modulo 2^64. Multiplication carries upwards only and the shifts carry downwards, so that every input bit reaches
every output bit; a sum of element hashes alone would be linear, which MinHash does not forgive.

Nothing here knows what a text is. A change to any formula needs a new `text.ALGORITHM`.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# Odd 64-bit constants without structure: fractional parts of square roots of small primes, times 2^64.
_MIX = 0x6A09E667F3BCC909
_MULTIPLIER = 0xBB67AE8584CAA73B
_COMBINER = 0x3C6EF372FE94F82B
_FINISH_1 = 0xA54FF53A5F1D36F1
_FINISH_2 = 0x510E527FADE682D1
_REPETITION = 0x9B05688C2B3E6C1F

#: Zero bytes that must follow the last slice, so that a word can be read at every position.
PADDING = bytes(16)
#: Mask of the first n bytes of a little-endian word, by n from 0 to 8.
_MASKS = np.array([(1 << 8 * n) - 1 for n in range(9)], np.uint64)
#: Sorts behind every key of a document.
_NO_SHINGLE = np.uint64(2**64 - 1)


class Elements(NamedTuple):
    """The elements of some documents, one document behind the other.

    Attributes:
        hashes: uint64 (sum of stored,).
        stored: int64 (n_docs,); elements of each document in `hashes`.
        used: int64 (n_docs,); how many of them, the first ones, are part of the text.
        token_counts: int64 (n_docs,); tokens of each document.
    """

    hashes: NDArray[np.uint64]
    stored: NDArray[np.int64]
    used: NDArray[np.int64]
    token_counts: NDArray[np.int64]


def offsets_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each of some runs starts, and where the last one ends."""
    offsets = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def ranges(first: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return first[0], first[0] + 1, ... (length[0] of them), first[1], ... as one int64 array."""
    ends = np.cumsum(length)
    total = int(ends[-1]) if ends.size else 0
    return np.arange(total) + np.repeat(first - ends + length, length)


def token_hashes(data: bytes | bytearray, starts: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return hash64 of slices of bytes.

    Args:
        data: The bytes, PADDING behind them.
        starts: int64 (n,); where each slice starts.
        lengths: int64 (n,); bytes of each slice, at least 1.
    """
    words = np.ndarray((len(data) - 7,), "<u8", data, strides=(1,))
    hashes = words.take(starts)
    hashes &= _MASKS.take(lengths, mode="clip")
    _mix(hashes)
    long = np.flatnonzero(lengths > 8)
    if not long.size:
        return hashes
    more = (lengths[long] - 1) >> 3
    nth = ranges(np.ones_like(more), more)
    rest = words.take(np.repeat(starts[long], more) + 8 * nth)
    rest &= _MASKS.take(np.repeat(lengths[long], more) - 8 * nth, mode="clip")
    _mix(rest)
    rest *= _powers(_MULTIPLIER, int(more.max()) + 1)[nth]
    hashes[long] += np.add.reduceat(rest, offsets_of(more)[:-1])
    return hashes


def character_hashes(points: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return the hash of each code point."""
    return _mix(_mix(points.astype(np.uint64)))


def shingle_keys(elements: Elements, documents: NDArray[np.int64], size: int, *, whole: bool) -> NDArray[np.uint64]:
    """Return document << 32 | shingle hash of every shingle, ascending, repetitions included.

    Args:
        elements: The elements of all documents.
        documents: int64 (n_docs,); the number of each document, below 2^31.
        size: Elements of one shingle, at least 1.
        whole: A document with fewer elements is one shingle of all of them; otherwise it has none.
    """
    hashes, stored, used, _ = elements
    first = offsets_of(stored)[:-1]
    valid = np.maximum(used - (size - 1), 0)
    keys = _window_sums(hashes, size)
    if whole:
        short = np.flatnonzero((used > 0) & (used < size))
        keys[first[short]] = _short_sums(hashes, first[short], used[short])
        valid[short] = 1
    _finish(keys)
    keys |= np.repeat(documents.astype(np.uint64) << 32, stored)
    keys[ranges(first + valid, stored - valid)] = _NO_SHINGLE
    keys.sort()
    return keys[: int(valid.sum())]


def numbered_repetitions(keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return sorted keys in which the second, third ... of equal ones have hashes of their own, ascending again."""
    first = first_of_equals(keys)
    at = np.flatnonzero(first)
    number = np.arange(keys.size) - np.repeat(at, np.diff(np.append(at, keys.size)))
    again = np.flatnonzero(~first)
    keys[again] = (keys[again] >> 32 << 32) | repetitions(keys[again] & np.uint64(0xFFFFFFFF), number[again])
    keys.sort()
    return keys


def repetitions(hashes: NDArray[np.uint64], numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hashes of the second (1), third (2) ... occurrences of shingles; the first has the shingle's own."""
    again: NDArray[np.uint64] = _finish(_mix(hashes + numbers.astype(np.uint64) * np.uint64(_REPETITION)))
    return np.where(numbers == 0, hashes, again)


def first_of_equals(keys: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Return which sorted keys differ from the one before."""
    first = np.ones(keys.size, np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return first


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix in place."""
    words ^= words >> 32
    words *= np.uint64(_MIX)
    words ^= words >> 29
    return words


def _finish(sums: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Mix in place and keep the 32 bits of the shingle hash."""
    sums *= np.uint64(_FINISH_1)
    sums ^= sums >> 32
    sums *= np.uint64(_FINISH_2)
    sums >>= np.uint64(32)
    return sums


def _powers(base: int, count: int) -> NDArray[np.uint64]:
    """Return base^0 ... base^(count - 1) modulo 2^64."""
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.multiply.accumulate(powers)


def _window_sums(hashes: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Return sum over j < size of COMBINER^j * hashes[i + j] for each i, in log2(size) steps.

    Binary method: `block` holds the sums over runs of `length` elements, `sums` those over the `done` first ones of
    each window. Sums that would reach beyond the end lack what lies there; no shingle uses them.
    """
    sums, done = np.zeros_like(hashes), 0
    block, length = hashes, 1
    while True:
        if size & length:
            _add_shifted(sums, block, done)
            done += length
        if done == size or length >= hashes.size:
            return sums
        longer = block.copy()
        _add_shifted(longer, block, length)
        block, length = longer, 2 * length


def _add_shifted(sums: NDArray[np.uint64], block: NDArray[np.uint64], shift: int) -> None:
    """Add COMBINER^shift * block[i + shift] to sums[i], in place."""
    if shift < block.size:
        sums[: block.size - shift] += block[shift:] * np.uint64(pow(_COMBINER, shift, 2**64))


def _short_sums(hashes: NDArray[np.uint64], first: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the sums over whole documents that are shorter than a window."""
    if not first.size:
        return np.empty(0, np.uint64)
    terms = hashes[ranges(first, lengths)]
    terms *= _powers(_COMBINER, int(lengths.max()))[ranges(np.zeros_like(lengths), lengths)]
    return np.add.reduceat(terms, offsets_of(lengths)[:-1])
