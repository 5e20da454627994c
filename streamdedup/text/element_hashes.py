"""64-bit hashes of tokens and characters, the elements of shingles, for a batch.

A change of a formula needs a new `shingles.ALGORITHM`, and touches docs/format.md and tests/unit/reference_shingles.py.

    token           = hash64(ASCII bytes); for a token beyond ASCII hash64(UTF-16, little-endian) + WIDE
    character       = mix(mix(code point)), mixed twice because x >> 32 is 0 in the first mix
    hash64(bytes)   = sum over j of MULTIPLIER^j * mix(w_j), where w_j are the bytes as 8-byte little-endian words,
                      the last one padded with zeros (no token contains a NUL, so padding is unambiguous)
    mix(x)          = y ^ (y >> 29), y = (x ^ (x >> 32)) * MIX

all modulo 2^64. Multiplication carries upwards only and the shifts carry downwards, so that every input bit reaches
every output bit. Worked example: "shingled" is one word, w_0 = 0x64656C676E696873, and its hash is mix(w_0).

Tokens lie anywhere in the bytes, so words are read unaligned: word i begins at byte or UTF-16 unit i.
"""

import functools
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.text.runs import UNCHECKED, Int64s, UInt32s, UInt64s, offsets_of, ranges

# Odd 64-bit constants without structure: fractional parts of square roots of small primes, times 2^64.
_MIX = 0x6A09E667F3BCC909
_MULTIPLIER = 0xBB67AE8584CAA73B
_WIDE = 0x1F83D9ABFB41BD6B

#: Words of a token, after the first, that are hashed one by one; further words, of few tokens, are hashed together.
_WORD_STEPS = 4
#: Largest share of tokens with several UTF-16 units for which the hashes of the others are looked up in a table. Where
#: more tokens have several units, as in Thai, it is faster to compute the hashes of all tokens.
_MOST_SEVERAL_UNITS = 0.2
#: Last code point that is one unit of UTF-16.
LAST_UNIT = 0xFFFF
#: First code point beyond ASCII.
_BEYOND_ASCII = 0x80
#: Zero bytes behind the last slice, so that a word can be read at every position.
PADDING = bytes(16)
#: Mask of the first n bytes of a little-endian word; all 8 of them for n from 8 to 128.
_MASKS = np.array([(1 << 8 * min(n, 8)) - 1 for n in range(129)], np.uint64)


class Elements(NamedTuple):
    """The elements (tokens or characters) of a document batch, one document behind the other; counts by document."""

    hashes: UInt64s
    counts: Int64s
    token_counts: Int64s


def mix(words: UInt64s) -> UInt64s:
    """Mix words in place, and return them."""
    words ^= words >> 32
    words *= np.uint64(_MIX)
    words ^= words >> 29
    return words


def powers(base: int, count: int) -> UInt64s:
    """Return base^0 ... base^(count - 1) modulo 2^64."""
    values = np.full(count, base, np.uint64)
    values[:1] = 1
    return np.multiply.accumulate(values)


def hash64(data: bytes | NDArray[np.uint16], starts: Int64s, lengths: Int64s) -> UInt64s:
    """Return hash64 for slices of bytes or UTF-16 with PADDING behind them.

    ``starts`` and ``lengths``: int64 (n,), in bytes or UTF-16 units; no length is 0.
    """
    size = 1 if isinstance(data, bytes) else data.itemsize
    per_word = 8 // size
    # Word i: the 8 bytes from unit i on.
    count = (len(data) * size - 8) // size + 1
    words = np.ascontiguousarray(np.ndarray((count,), "<u8", data, strides=(size,)))
    masks = _MASKS[::size]  # by length in units
    hashes = words.take(starts, mode=UNCHECKED)
    long = np.flatnonzero(lengths > per_word)
    # A length beyond the table must take the last mask, of all bytes; "clip" does so, but is slower.
    mode: Literal["clip", "wrap"] = "clip" if long.size and int(lengths.max()) >= masks.size else UNCHECKED
    hashes &= masks.take(lengths, mode=mode)
    mix(hashes)
    # The next word of the longer tokens in each step, multiplied by the next power.
    step, power = 0, 1
    while long.size and step < _WORD_STEPS:
        step, power = step + 1, power * _MULTIPLIER & (1 << 64) - 1
        remaining = lengths.take(long, mode=UNCHECKED) - per_word * step
        word = words.take(starts.take(long, mode=UNCHECKED) + per_word * step, mode=UNCHECKED)
        word &= masks.take(remaining, mode=mode)
        mix(word)
        word *= np.uint64(power)
        word += hashes.take(long, mode=UNCHECKED)
        hashes[long] = word
        long = long.take(np.flatnonzero(remaining > per_word), mode=UNCHECKED)
    if long.size:
        hashes[long] += _further_words(words, per_word, starts.take(long), lengths.take(long))
    return hashes


def _further_words(words: UInt64s, per_word: int, starts: Int64s, lengths: Int64s) -> UInt64s:
    """Return by token the sum over the words after the first 1 + `_WORD_STEPS`; a word has `per_word` units."""
    counts = (lengths - 1) // per_word - _WORD_STEPS
    numbers = ranges(np.full_like(counts, _WORD_STEPS + 1), counts)
    terms = words.take(np.repeat(starts, counts) + per_word * numbers)
    terms &= _MASKS[:: 8 // per_word].take(np.repeat(lengths, counts) - per_word * numbers, mode="clip")  # as in hash64
    mix(terms)
    terms *= powers(_MULTIPLIER, int(numbers.max()) + 1)[numbers]
    return np.add.reduceat(terms, offsets_of(counts)[:-1])


def token_hashes(points: NDArray[np.uint16] | UInt32s, starts: Int64s, lengths: Int64s | NDArray[np.int8]) -> UInt64s:
    """Return the token hashes for any script; for ASCII texts as bytes `hash64` returns the same.

    Args:
        points: Code points, NUL for separators, one before the first token; uint16 where all fit `LAST_UNIT`.
        starts: Token starts, ascending.
        lengths: Token lengths in code points. The separators behind a token may count too: zeros add nothing to a hash.
    """
    has_several_units = lengths > 1
    if points.itemsize > 2:
        has_several_units |= points.take(starts, mode=UNCHECKED) > LAST_UNIT
    count = np.count_nonzero(has_several_units)
    if count > _MOST_SEVERAL_UNITS * lengths.size:
        return _computed_hashes(points, starts, lengths.astype(np.int64, copy=False))
    # A code point beyond the table takes any entry, by wrapping: its token has two units, and is hashed below.
    hashes = _single_unit_hashes().take(points.take(starts, mode=UNCHECKED), mode="wrap")
    if count:
        several = np.flatnonzero(has_several_units)
        # Only these tokens, each with the code point before it, which becomes a separator.
        spaced = lengths.take(several).astype(np.int64) + 1
        first = offsets_of(spaced)[:-1]
        separated = points.take(ranges(starts.take(several) - 1, spaced))
        separated[first] = 0
        hashes[several] = _computed_hashes(separated, first + 1, spaced - 1)
    return hashes


def _computed_hashes(points: NDArray[np.uint16] | UInt32s, starts: Int64s, lengths: Int64s) -> UInt64s:
    """Return the token hashes without the table; arguments as for `token_hashes`."""
    # NUL minus 1 wraps to the greatest number, so separators are not ASCII here.
    is_ascii = points - points.dtype.type(1) < _BEYOND_ASCII - 1
    if not is_ascii.any():
        return _utf16_token_hashes(points, starts, lengths)
    wide_counts = np.cumsum(points >= _BEYOND_ASCII, dtype=np.int32)
    is_wide = wide_counts.take(starts + lengths - 1) != wide_counts.take(starts - 1)
    hashes = np.empty(starts.size, np.uint64)
    narrow, wide = np.flatnonzero(~is_wide), np.flatnonzero(is_wide)
    octets = points.astype(np.uint8).tobytes() + PADDING  # truncated beyond ASCII, which no narrow token has
    hashes[narrow] = hash64(octets, starts.take(narrow), lengths.take(narrow))
    hashes[wide] = _utf16_token_hashes(points, starts.take(wide), lengths.take(wide))
    return hashes


def _utf16_token_hashes(points: NDArray[np.uint16] | UInt32s, starts: Int64s, lengths: Int64s) -> UInt64s:
    if points.itemsize > 2:
        # A code point beyond LAST_UNIT is two units, which moves all that follows.
        shift = np.cumsum(points > LAST_UNIT)
        lengths = lengths + shift.take(starts + lengths - 1) - shift.take(starts - 1)
        starts = starts + shift.take(starts - 1)
        text = str(points.astype("<u4", copy=False).data, "utf-32-le")
        units = np.frombuffer(text.encode("utf-16-le") + PADDING, "<u2")
    else:
        units = np.concatenate((points, np.zeros(len(PADDING) // 2, "<u2")))
    hashes = hash64(units, starts, lengths)
    hashes += np.uint64(_WIDE)
    return hashes


@functools.cache
def _single_unit_hashes() -> UInt64s:
    hashes = mix(np.arange(LAST_UNIT + 1, dtype=np.uint64))
    hashes[_BEYOND_ASCII:] += np.uint64(_WIDE)
    return hashes


def character_hashes(points: UInt32s) -> UInt64s:
    return mix(mix(points.astype(np.uint64)))
