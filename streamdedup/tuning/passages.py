"""The most frequent stop shingles of a sample as readable passages.

A passage is a sequence of stop shingles that are consecutive in a text and about equally frequent, such as one notice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.pairs import ShingleSets, shingle_sets
from streamdedup.text.shingles import ShingleOptions, Shingler

#: A passage ends at a shingle that is more than so many times rarer than its most frequent one.
_AS_FREQUENT: Final = 2


class Passage(NamedTuple):
    """A sequence of stop shingles.

    Attributes:
        text: Its words, or characters, normalised.
        documents: Documents with its most frequent shingle.
    """

    text: str
    documents: int


def frequent_passages(texts: Sequence[str], counts: Mapping[int, int], options: ShingleOptions) -> Iterator[Passage]:
    """Yield passages of stop shingles, the most frequent first; each shingle is in one passage.

    Args:
        texts: Texts in which the shingles are looked for.
        counts: Document count by stop shingle.
        options: Shingle options with which the stop shingles were learnt.
    """
    shingler = Shingler(replace(options, bag=False, stop_shingles=frozenset()))
    text_of = _texts_with(shingle_sets(shingler, texts), counts)
    shown: set[int] = set()
    for shingle, documents in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        if shingle in shown or shingle not in text_of:
            continue
        ordered = shingler.in_order(texts[text_of[shingle]])
        hashes: list[int] = ordered.hashes.tolist()
        low = high = hashes.index(shingle)
        frequent = {stop for stop in hashes if counts.get(stop, 0) * _AS_FREQUENT >= documents} - shown
        while low and hashes[low - 1] in frequent:
            low -= 1
        while high < len(hashes) and hashes[high] in frequent:
            high += 1
        shown.update(hashes[low:high])
        yield Passage(ordered.text(low, high), documents)


def _texts_with(sets: ShingleSets, counts: Mapping[int, int]) -> dict[int, int]:
    """Return the number of the first text with each stop shingle."""
    stops: NDArray[np.uint32] = np.array(list(counts), np.uint32)
    positions = np.flatnonzero(np.isin(sets.hashes, stops))
    shingles, first = np.unique(sets.hashes[positions], return_index=True)
    numbers = np.searchsorted(sets.offsets, positions[first], side="right") - 1
    return dict(zip(shingles.tolist(), numbers.tolist(), strict=True))
