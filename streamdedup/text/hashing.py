"""Hashes of tokens, characters and shingles.

    hash64(bytes)   = sum over j of MULTIPLIER^j * mix(w_j), where w_j are the 8-byte little-endian words of the bytes,
                      the last one padded with zeros (no token contains a NUL, so padding is unambiguous)
    token           = hash64(ASCII bytes); for a token beyond ASCII hash64(UTF-16, little-endian) + WIDE
    character       = mix(mix(code point))
    shingle         = finish(sum over j of COMBINER^j * hash of element j)
    mix(x)          = y ^ (y >> 29), y = (x ^ (x >> 32)) * MIX
    finish(x)       = ((y ^ (y >> 32)) * FINISH_2 mod 2^64) >> 32, y = x * FINISH_1

all modulo 2^64. Multiplication carries upwards only and the shifts carry downwards, so that every input bit reaches
every output bit; a sum of element hashes alone would be linear, and MinHash needs hashes without structure.

A change to any formula needs a new `shingles.ALGORITHM`.
"""

import functools
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

# Odd 64-bit constants without structure: fractional parts of square roots of small primes, times 2^64.
_MIX = 0x6A09E667F3BCC909
_MULTIPLIER = 0xBB67AE8584CAA73B
_COMBINER = 0x3C6EF372FE94F82B
_FINISH_1 = 0xA54FF53A5F1D36F1
_FINISH_2 = 0x510E527FADE682D1
_REPETITION = 0x9B05688C2B3E6C1F
_WIDE = 0x1F83D9ABFB41BD6B

#: Words of a token beyond the first that are hashed word by word for all tokens at once; further words of the few
#: longer tokens are hashed together.
_WORD_STEPS = 4
#: Mean number of elements of a document above which each document is sorted by itself, not the batch as a whole.
#: NumPy 2.4 with AVX-512 on Zen 4 sorts long arrays five times as slowly as with AVX2. With 32 in place of 128, texts
#: of 64 words are shingled there in 0.63 of the time, with AVX2 in 0.97; of 32 words in 0.76 and 1.11.
_SORTED_ALONE = 32

#: Mode of `take` for indexes that are all valid: a quarter faster than the default (measured, NumPy 2.4).
VALID: Final = "wrap"
#: Tokens of one unit are looked up in a table if at most one token in so many has more units. With more, as in Thai,
#: hashing all of them is faster.
_MANY_LONG = 5
#: Elements whose shingles are hashed at once, so that the arrays stay in the second-level cache.
_BLOCK = 1 << 15
#: Last code point that is one unit of UTF-16.
LAST_UNIT = 0xFFFF
#: Zero bytes behind the last slice, so that a word can be read at every position.
PADDING = bytes(16)
#: Mask of the first n bytes of a little-endian word; all 8 of them for n from 8 to 128.
_MASKS = np.array([(1 << 8 * min(n, 8)) - 1 for n in range(129)], np.uint64)
#: Sort key greater than those of all shingles.
_NO_SHINGLE = np.uint64(2**64 - 1)


class Elements(NamedTuple):
    """The elements (tokens or characters) of a batch of documents.

    Attributes:
        hashes: uint64 (sum of stored,); hash of each element, one document behind the other.
        stored: int64 (n_docs,); elements of each document in `hashes`.
        used: int64 (n_docs,); the first so many of them belong to the text. The character unit stores one separator
            more at the end.
        token_counts: int64 (n_docs,); tokens of each document.
    """

    hashes: NDArray[np.uint64]
    stored: NDArray[np.int64]
    used: NDArray[np.int64]
    token_counts: NDArray[np.int64]


def offsets_of(counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the start of each of n consecutive runs and the end of the last one, int64 (n + 1,)."""
    offsets = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def ranges(first: NDArray[np.int64], length: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return first[0], first[0] + 1, ... (length[0] of them), first[1], ... as one int64 array."""
    ends = np.cumsum(length)
    total = int(ends[-1]) if ends.size else 0
    return np.arange(total) + np.repeat(first - ends + length, length)


def token_hashes(
    data: bytes | NDArray[np.uint16], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return hash64 of slices of bytes or of UTF-16.

    Args:
        data: The bytes or units, PADDING behind them.
        starts: int64 (n,); start of each slice, in units.
        lengths: int64 (n,); units of each slice, at least 1.
    """
    size = 1 if isinstance(data, bytes) else data.itemsize
    per_word = 8 // size
    count = (len(data) * size - 8) // size + 1
    words = np.ascontiguousarray(np.ndarray((count,), "<u8", data, strides=(size,)))
    masks = _MASKS[::size]
    hashes = words.take(starts, mode=VALID)
    long = np.flatnonzero(lengths > per_word)
    # "clip" is slower: only for tokens beyond the table.
    mode: Literal["clip", "wrap"] = "clip" if long.size and int(lengths.max()) >= masks.size else VALID
    hashes &= masks.take(lengths, mode=mode)
    _mix(hashes)
    nth, power = 0, 1
    while long.size and nth < _WORD_STEPS:
        nth, power = nth + 1, power * _MULTIPLIER & (1 << 64) - 1
        left = lengths.take(long, mode=VALID) - per_word * nth
        word = words.take(starts.take(long, mode=VALID) + per_word * nth, mode=VALID)
        word &= masks.take(left, mode=mode)
        _mix(word)
        word *= np.uint64(power)
        word += hashes.take(long, mode=VALID)
        hashes[long] = word
        long = long.take(np.flatnonzero(left > per_word), mode=VALID)
    if long.size:
        hashes[long] += _further_words(words, per_word, starts.take(long), lengths.take(long))
    return hashes


def _further_words(
    words: NDArray[np.uint64], per_word: int, starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return the terms of long tokens, `per_word` units in a word, for the words after the first `_WORD_STEPS` + 1."""
    more = (lengths - 1) // per_word - _WORD_STEPS
    nth = ranges(np.full_like(more, _WORD_STEPS + 1), more)
    rest = words.take(np.repeat(starts, more) + per_word * nth)
    rest &= _MASKS[:: 8 // per_word].take(np.repeat(lengths, more) - per_word * nth, mode="clip")
    _mix(rest)
    rest *= _powers(_MULTIPLIER, int(nth.max()) + 1)[nth]
    return np.add.reduceat(rest, offsets_of(more)[:-1])


def wide_token_hashes(
    points: NDArray[np.uint16] | NDArray[np.uint32],
    starts: NDArray[np.int64],
    lengths: NDArray[np.int64] | NDArray[np.int8],
) -> NDArray[np.uint64]:
    """Return the hashes of tokens in any script.

    Args:
        points: Code points, NUL for separators, one before the first token; uint16 where all fit `LAST_UNIT`.
        starts: int64 (n,), ascending; start of each token.
        lengths: int64 or int8 (n,); code points of each token, at least 1. The separators behind a token may count
            too: words of zeros add nothing to a hash.
    """
    is_long = lengths > 1
    if points.itemsize > 2:
        is_long |= points.take(starts, mode=VALID) > LAST_UNIT
    count = np.count_nonzero(is_long)
    if count * _MANY_LONG > lengths.size:
        return _long_token_hashes(points, starts, lengths.astype(np.int64, copy=False))
    # A code point beyond the table begins a long token, whose hash is written afterwards: any entry will do.
    hashes = _single_hashes().take(points.take(starts, mode=VALID), mode="wrap")
    if count:
        long = np.flatnonzero(is_long)
        # The long tokens alone, each with the code point before it, which becomes a separator.
        spaced = lengths.take(long).astype(np.int64) + 1
        first = offsets_of(spaced)[:-1]
        points = points.take(ranges(starts.take(long) - 1, spaced))
        points[first] = 0
        hashes[long] = _long_token_hashes(points, first + 1, spaced - 1)
    return hashes


def _long_token_hashes(
    points: NDArray[np.uint16] | NDArray[np.uint32], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return the hashes of tokens of any length; arguments as for `wide_token_hashes`."""
    # Separators become the greatest number.
    narrow = points - points.dtype.type(1) < 0x80 - 1
    if not narrow.any():
        return _utf16_token_hashes(points, starts, lengths)
    before = np.cumsum(points >= 0x80, dtype=np.int32)
    is_wide = before.take(starts + lengths - 1) != before.take(starts - 1)
    at = np.flatnonzero(~is_wide)
    hashes = np.empty(starts.size, np.uint64)
    hashes[at] = token_hashes(points.astype(np.uint8).tobytes() + PADDING, starts.take(at), lengths.take(at))
    at = np.flatnonzero(is_wide)
    hashes[at] = _utf16_token_hashes(points, starts.take(at), lengths.take(at))
    return hashes


def _utf16_token_hashes(
    points: NDArray[np.uint16] | NDArray[np.uint32], starts: NDArray[np.int64], lengths: NDArray[np.int64]
) -> NDArray[np.uint64]:
    """Return the hashes of tokens that are not ASCII; arguments as for `wide_token_hashes`."""
    if points.itemsize > 2:
        shift = np.cumsum(points > LAST_UNIT)
        lengths = lengths + shift.take(starts + lengths - 1) - shift.take(starts - 1)
        starts = starts + shift.take(starts - 1)
    hashes = token_hashes(_utf16(points), starts, lengths)
    hashes += np.uint64(_WIDE)
    return hashes


def _utf16(points: NDArray[np.uint16] | NDArray[np.uint32]) -> NDArray[np.uint16]:
    """Return code points as UTF-16, PADDING behind them."""
    if points.itemsize == 2:
        return np.concatenate((points, np.zeros(len(PADDING) // 2, "<u2")))
    text = str(points.astype("<u4", copy=False).data, "utf-32-le")
    return np.frombuffer(text.encode("utf-16-le") + PADDING, "<u2")


@functools.cache
def _single_hashes() -> NDArray[np.uint64]:
    """Return the hash of the token of each single code point that is one unit of UTF-16."""
    hashes = _mix(np.arange(LAST_UNIT + 1, dtype=np.uint64))
    hashes[0x80:] += np.uint64(_WIDE)
    return hashes


def character_hashes(points: NDArray[np.uint32]) -> NDArray[np.uint64]:
    """Return the hash of each code point."""
    return _mix(_mix(points.astype(np.uint64)))


def sorted_hashes(
    elements: Elements, documents: NDArray[np.int64], size: int, *, whole: bool
) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the hashes of all shingles, repetitions included, ascending within each document, and their counts.

    Args:
        elements: The elements of all documents.
        documents: int64 (n_docs,); place of each document in the result, a permutation of 0 ... n_docs - 1.
        size: Elements of one shingle, at least 1.
        whole: A document with fewer elements is one shingle of all of them; otherwise it has none.

    Returns:
        Hashes, uint32 (n_total,), and their number in each document of the result, int64 (n_docs,).
    """
    hashes, stored, used, _ = elements
    first = offsets_of(stored)[:-1]
    valid = np.maximum(used - (size - 1), 0)
    shingles = _window_hashes(hashes, size)
    if whole:
        short = np.flatnonzero((used > 0) & (used < size))
        shingles[first[short]] = _finish(_short_sums(hashes, first[short], used[short]))
        valid[short] = 1
    order = np.empty_like(documents)
    order[documents] = np.arange(documents.size)
    counts = valid[order]
    if shingles.size > _SORTED_ALONE * documents.size:
        return _sorted_alone(shingles, first[order], counts), counts
    keys = np.repeat(documents.astype(np.uint64) << 32, stored)
    keys |= shingles
    keys[ranges(first + valid, stored - valid)] = _NO_SHINGLE
    keys.sort()
    return keys[: int(valid.sum())].astype(np.uint32), counts


def _sorted_alone(
    hashes: NDArray[np.uint32], first: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.uint32]:
    """Sort runs of hashes that start at `first`, in place; return them one behind the other."""
    runs = [hashes[start:end] for start, end in zip(first.tolist(), (first + counts).tolist(), strict=True)]
    for run in runs:
        run.sort()
    return np.concatenate(runs)


def distinct(hashes: NDArray[np.uint32], counts: NDArray[np.int64]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return ascending runs of hashes without repetitions, and the length of each run."""
    first = np.ones(hashes.size, np.bool_)
    np.not_equal(hashes[1:], hashes[:-1], out=first[1:])
    offsets = offsets_of(counts)
    first[offsets[:-1][counts > 0]] = True
    at = np.flatnonzero(first)
    return hashes.take(at, mode=VALID), np.diff(np.searchsorted(at, offsets))


def without_stops(
    hashes: NDArray[np.uint32], counts: NDArray[np.int64], stops: NDArray[np.uint32], maybe: NDArray[np.bool_]
) -> tuple[NDArray[np.uint32], NDArray[np.int64], NDArray[np.bool_]]:
    """Leave stop shingles out of runs of hashes; a document of stop shingles only keeps them all.

    Args:
        hashes: uint32 (n_total,); one document behind the other.
        counts: int64 (n_docs,); hashes of each document.
        stops: uint32 (n_stops,), ascending, at least one.
        maybe: bool (a power of two,); whether a stop shingle begins with these top bits, a quick first test.

    Returns:
        The hashes that are left; their number in each document; a mask of documents of stop shingles only.
    """
    bits = maybe.size.bit_length() - 1
    keep = ~maybe.take(hashes >> np.uint32(32 - bits))
    at = np.flatnonzero(~keep)
    nearest = np.searchsorted(stops, hashes.take(at))
    keep[at] = stops.take(nearest, mode="clip") != hashes.take(at)
    offsets = offsets_of(counts)
    left = np.diff(np.searchsorted(np.flatnonzero(keep), offsets))
    stop_only = (left == 0) & (counts > 0)
    if stop_only.any():
        keep |= np.repeat(stop_only, counts)
        left = np.where(stop_only, counts, left)
    return hashes.take(np.flatnonzero(keep)), left, stop_only


def numbered_repetitions(hashes: NDArray[np.uint32], counts: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Replace the second, third ... of equal hashes by hashes of their own, in ascending runs that ascend again."""
    keys = np.repeat(np.arange(counts.size, dtype=np.uint64) << np.uint64(32), counts)
    keys |= hashes
    first = np.ones(keys.size, np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    at = np.flatnonzero(first)
    number = np.arange(keys.size) - np.repeat(at, np.diff(np.append(at, keys.size)))
    again = np.flatnonzero(~first)
    keys[again] = (keys[again] >> 32 << 32) | repetitions(keys[again] & np.uint64(0xFFFFFFFF), number[again])
    keys.sort()
    return keys.astype(np.uint32)


def repetitions(hashes: NDArray[np.uint64], numbers: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the hashes of occurrences of shingles: 0 is the first, whose hash is that of the shingle; 1 the second."""
    again: NDArray[np.uint64] = _finish(_mix(hashes + numbers.astype(np.uint64) * np.uint64(_REPETITION)))
    return np.where(numbers == 0, hashes, again)


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Apply `mix` in place."""
    words ^= words >> 32
    words *= np.uint64(_MIX)
    words ^= words >> 29
    return words


def _finish(sums: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return `finish` of each sum; the results fit 32 bits."""
    finished = sums * np.uint64(_FINISH_1)
    finished ^= finished >> 32
    finished *= np.uint64(_FINISH_2)
    finished >>= np.uint64(32)
    return finished


def _powers(base: int, count: int) -> NDArray[np.uint64]:
    """Return base^0 ... base^(count - 1) modulo 2^64."""
    powers = np.full(count, base, np.uint64)
    powers[:1] = 1
    return np.multiply.accumulate(powers)


def _window_hashes(hashes: NDArray[np.uint64], size: int) -> NDArray[np.uint32]:
    """Return the hash of the shingle that begins at each element; those that reach beyond the end mean nothing."""
    shingles = np.empty(hashes.size, np.uint32)
    for first in range(0, hashes.size, _BLOCK):
        of_block = _finish(_window_sums(hashes[first : first + _BLOCK + size - 1], size))
        shingles[first : first + of_block.size] = of_block
    return shingles


def _window_sums(hashes: NDArray[np.uint64], size: int) -> NDArray[np.uint64]:
    """Return sum over j < size of COMBINER^j * hashes[i + j] for each window of `size` elements, in log2(size) steps.

    Binary method: for each binary digit of `size` after the first, the windows of `length` elements become twice as
    long, and longer by one if the digit is 1.
    """
    sums, length = hashes, 1
    for digit in f"{size:b}"[1:]:
        sums = _longer(sums, sums, length)
        length *= 2
        if digit == "1":
            sums = _longer(sums, hashes, length)
            length += 1
    return sums


def _longer(sums: NDArray[np.uint64], following: NDArray[np.uint64], shift: int) -> NDArray[np.uint64]:
    """Return sums[i] + COMBINER^shift * following[i + shift] for each i that has both."""
    longer = following[shift:] * np.uint64(pow(_COMBINER, shift, 2**64))
    longer += sums[: longer.size]
    return longer


def _short_sums(hashes: NDArray[np.uint64], first: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Return the sums over whole documents that are shorter than a window."""
    if not first.size:
        return np.empty(0, np.uint64)
    terms = hashes[ranges(first, lengths)]
    terms *= _powers(_COMBINER, int(lengths.max()))[ranges(np.zeros_like(lengths), lengths)]
    return np.add.reduceat(terms, offsets_of(lengths)[:-1])
