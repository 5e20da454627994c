"""Arrays of consecutive runs: concatenated documents, each with a start and a length.

counts     3  0  2          run lengths
offsets    0  3  3  5       run starts, and the end after the last
"""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

# Arrays by the type of their values; a mask selects values of another array.
Int64s = NDArray[np.int64]
UInt32s = NDArray[np.uint32]
UInt64s = NDArray[np.uint64]
Mask = NDArray[np.bool_]

#: Mode of ``take`` without a check of the places: a quarter faster in NumPy 2.4. Invalid places wrap silently.
UNCHECKED: Final = "wrap"
#: ``spliced`` is cheaper than a mask if fewer than one in so many values changes.
VALUES_PER_CHANGE: Final = 100


def offsets_of(counts: Int64s) -> Int64s:
    """Return the starts of n consecutive runs and the end after the last, int64 (n + 1,)."""
    offsets = np.zeros(counts.size + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def joined_offsets(parts: Iterable[Int64s]) -> Int64s:
    """Return the offsets of at least one part as if the parts were concatenated; each part has offsets from 0."""
    return offsets_of(np.concatenate([np.diff(part) for part in parts]))


def ranges(firsts: Int64s, lengths: Int64s) -> Int64s:
    """Return firsts[0], ..., firsts[0] + lengths[0] - 1, firsts[1], ... as one int64 array."""
    ends = np.cumsum(lengths)
    total = int(ends[-1]) if ends.size else 0
    # In the result a run starts at ends - lengths; each value is its place plus (first value - start).
    return np.arange(total) + np.repeat(firsts - ends + lengths, lengths)


def without(values: UInt32s, places: Int64s) -> UInt32s:
    """Return ``values`` without those at some ascending places."""
    if places.size * VALUES_PER_CHANGE < values.size:
        return spliced(values, places, [values[:0]] * places.size)  # empty pieces
    remains = np.ones(values.size, np.bool_)
    remains[places] = False
    return values.take(np.flatnonzero(remains), mode=UNCHECKED)


def spliced(values: UInt32s, places: Int64s, pieces: Sequence[UInt32s]) -> UInt32s:
    """Return ``values`` with the value at each place replaced by its piece; for few places, ascending."""
    parts, end = [], 0
    for place, piece in zip(places.tolist(), pieces, strict=True):
        parts += [values[end:place], piece]
        end = place + 1
    return np.concatenate([*parts, values[end:]])
