"""32-bit shingle hashes for a batch, from element hashes.

A change of a formula needs a new `shingles.ALGORITHM`, and touches docs/format.md and tests/unit/reference_shingles.py.

    shingle         = finish(sum over j of COMBINER^j * hash of element j)
    finish(x)       = ((y ^ (y >> 32)) * FINISH_2 mod 2^64) >> 32, y = x * FINISH_1
    n-th repetition = finish(mix(shingle hash + n * REPETITION)): occurrence n + 1 of a shingle, n from 1 on, where
                      texts are compared as bags (multisets)

all modulo 2^64; `element_hashes` has mix. MinHash needs hashes that are not linear in the elements: `finish`.

`hashes` concatenates the documents, `counts[d]` is the number of hashes of document d (`runs`). The functions are the
steps that `shingles` takes: `sorted_hashes`, `without_stops`, `numbered_repetitions` in bags, `distinct`.
"""

import numpy as np

from streamdedup.text.element_hashes import Elements, mix, powers
from streamdedup.text.runs import UNCHECKED, Int64s, Mask, UInt32s, UInt64s, offsets_of, ranges

# Odd 64-bit constants without structure, as in `element_hashes`.
_COMBINER = 0x3C6EF372FE94F82B
_FINISH_1 = 0xA54FF53A5F1D36F1
_FINISH_2 = 0x510E527FADE682D1
_REPETITION = 0x9B05688C2B3E6C1F

#: Mean number of elements above which each document is sorted by itself, not the batch as a whole: NumPy 2.4 sorts long
#: arrays slowly. Texts of 64 words take 0.63 of the time of one sort with AVX-512, 0.97 with AVX2.
_SORTED_ALONE = 32
#: Elements whose shingles are hashed at once, so that the arrays stay in the second-level cache.
_BLOCK = 1 << 15
#: Sort key greater than those of all shingles.
_NO_SHINGLE = np.uint64(2**64 - 1)
#: Bits of a shingle hash in a sort key of document and shingle.
_HASH_BITS = np.uint64(32)
_HASH_MASK = np.uint64(2**32 - 1)


def sorted_hashes(elements: Elements, order: Int64s, size: int, *, whole: bool) -> tuple[UInt32s, Int64s]:
    """Return all shingle hashes, repetitions included, ascending within each document, and their counts.

    ``order``: the documents in the order of the result. ``whole``: a document shorter than ``size`` is one shingle.
    """
    hashes, element_counts, _ = elements
    starts = offsets_of(element_counts)[:-1]
    shingle_counts = np.maximum(element_counts - (size - 1), 0)
    shingles = _shingles_from(hashes, size)
    if whole:
        # Replaces the value without meaning at the first element of a short document.
        short = np.flatnonzero((element_counts > 0) & (element_counts < size))
        shingles[starts[short]] = _finish(_short_sums(hashes, starts[short], element_counts[short]))
        shingle_counts[short] = 1
    counts = shingle_counts[order]
    if shingles.size > _SORTED_ALONE * order.size:
        firsts = starts[order]
        runs = [shingles[first:end] for first, end in zip(firsts.tolist(), (firsts + counts).tolist(), strict=True)]
        for run in runs:
            run.sort()
        return np.concatenate(runs), counts
    # One sort for all documents, by row in the result and hash; elements where no shingle begins sort to the end.
    result_rows = np.empty(order.size, np.uint64)
    result_rows[order] = np.arange(order.size, dtype=np.uint64)  # by document
    keys = np.repeat(result_rows << _HASH_BITS, element_counts)
    keys |= shingles
    keys[ranges(starts + shingle_counts, element_counts - shingle_counts)] = _NO_SHINGLE
    keys.sort()
    return keys[: int(shingle_counts.sum())].astype(np.uint32), counts


def ordered_hashes(hashes: UInt64s, size: int) -> UInt32s:
    """Return the shingle hashes of one text in text order, from the hashes of at least `size` elements."""
    return _shingles_from(hashes, size)[: hashes.size - size + 1]


def _shingles_from(hashes: UInt64s, size: int) -> UInt32s:
    """Return for each element the hash of the shingle that begins with it; near the end of a document no meaning."""
    shingles = np.empty(hashes.size, np.uint32)
    for first in range(0, hashes.size, _BLOCK):
        block = _finish(_shingle_sums(hashes[first : first + _BLOCK + size - 1], size))
        shingles[first : first + block.size] = block
    return shingles


def _shingle_sums(hashes: UInt64s, size: int) -> UInt64s:
    """Return sum over j < size of COMBINER^j * hashes[i + j] for each i that has all of them.

    For each binary digit of `size` after the first, the sums become twice as long, and longer by one if the digit is 1.
    Size 5, 101 in binary: sums over 1, 2, 4 and 5 elements.
    """
    sums, length = hashes, 1
    for digit in f"{size:b}"[1:]:
        sums = _longer(sums, sums, length)
        length *= 2
        if digit == "1":
            sums = _longer(sums, hashes, length)
            length += 1
    return sums


def _longer(sums: UInt64s, following: UInt64s, shift: int) -> UInt64s:
    """Return sums[i] + COMBINER^shift * following[i + shift] for each i that has both."""
    longer = following[shift:] * np.uint64(pow(_COMBINER, shift, 2**64))
    longer += sums[: longer.size]
    return longer


def _short_sums(hashes: UInt64s, starts: Int64s, lengths: Int64s) -> UInt64s:
    if not starts.size:
        return np.empty(0, np.uint64)
    terms = hashes[ranges(starts, lengths)]
    terms *= powers(_COMBINER, int(lengths.max()))[ranges(np.zeros_like(lengths), lengths)]
    return np.add.reduceat(terms, offsets_of(lengths)[:-1])


def distinct(hashes: UInt32s, counts: Int64s) -> tuple[UInt32s, Int64s]:
    is_first = np.ones(hashes.size, np.bool_)
    np.not_equal(hashes[1:], hashes[:-1], out=is_first[1:])
    offsets = offsets_of(counts)
    # The first hash of a document may equal the last one of the document before.
    is_first[offsets[:-1][counts > 0]] = True
    firsts = np.flatnonzero(is_first)
    return hashes.take(firsts, mode=UNCHECKED), np.diff(np.searchsorted(firsts, offsets))


class HashSet:
    """A set of hashes, uint32 or uint64, with a table of their top bits as a quick first test."""

    def __init__(self, hashes: UInt32s | UInt64s, top_bits: int) -> None:
        self._hashes = hashes.copy()
        self._hashes.sort()
        self._shift = 8 * hashes.itemsize - top_bits
        self._has_top = np.zeros(1 << top_bits, np.bool_)
        self._has_top[self._hashes >> self._shift] = True

    def __bool__(self) -> bool:
        return bool(self._hashes.size)

    def contains(self, hashes: UInt32s | UInt64s) -> Mask:
        """Return a mask for the hashes that are in the set; the set must not be empty (``bool``)."""
        is_contained = self._has_top.take(hashes >> self._shift)
        places = np.flatnonzero(is_contained)
        suspects = hashes.take(places)
        # The place of a hash above all is behind the last one: "clip" makes it the last.
        nearest = np.searchsorted(self._hashes, suspects)
        is_contained[places] = self._hashes.take(nearest, mode="clip") == suspects
        return is_contained


def without_stops(hashes: UInt32s, counts: Int64s, stops: HashSet) -> tuple[UInt32s, Int64s, Mask]:
    """Leave out stop shingles, of which there is at least one; a document with nothing else keeps them all.

    Returns the remaining hashes, their counts, and whether a document has stop shingles only.
    """
    remains = ~stops.contains(hashes)
    offsets = offsets_of(counts)
    remaining_counts = np.diff(np.searchsorted(np.flatnonzero(remains), offsets))
    stop_only = (remaining_counts == 0) & (counts > 0)
    if stop_only.any():
        remains |= np.repeat(stop_only, counts)
        remaining_counts = np.where(stop_only, counts, remaining_counts)
    return hashes.take(np.flatnonzero(remains)), remaining_counts, stop_only


def numbered_repetitions(hashes: UInt32s, counts: Int64s) -> UInt32s:
    """Replace the second, third ... of equal hashes by repetition hashes; input and output ascend per document."""
    keys = np.repeat(np.arange(counts.size, dtype=np.uint64) << _HASH_BITS, counts)
    keys |= hashes
    is_first = np.ones(keys.size, np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    firsts = np.flatnonzero(is_first)
    run_lengths = np.diff(np.append(firsts, keys.size))
    numbers = np.arange(keys.size) - np.repeat(firsts, run_lengths)
    repeated = np.flatnonzero(~is_first)
    keys[repeated] = (keys[repeated] & ~_HASH_MASK) | repetitions(keys[repeated] & _HASH_MASK, numbers[repeated])
    keys.sort()
    return keys.astype(np.uint32)


def repetitions(hashes: UInt64s, numbers: Int64s) -> UInt64s:
    """Return repetition hashes, also for appends to bags (`detection.content`); number 0 is the shingle itself."""
    repeated: UInt64s = _finish(mix(hashes + numbers.astype(np.uint64) * np.uint64(_REPETITION)))
    return np.where(numbers == 0, hashes, repeated)


def _finish(sums: UInt64s) -> UInt64s:
    finished = sums * np.uint64(_FINISH_1)
    finished ^= finished >> 32
    finished *= np.uint64(_FINISH_2)
    finished >>= 32
    return finished
