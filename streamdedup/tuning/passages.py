"""The most frequent stop shingles as readable passages, for ``cli.stop_shingles`` and ``meter``.

A passage is a sequence of stop shingles that are consecutive in a text and about equally frequent, such as one notice.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.pairs import ShingleSets, shingle_sets
from streamdedup.text.shingles import ShingleOptions, Shingler

#: A passage has shingles of at least 1 / this as many documents as its most frequent shingle.
_LARGEST_FREQUENCY_RATIO: Final = 2


class Passage(NamedTuple):
    """A sequence of stop shingles; ``documents``: how many documents have the most frequent one."""

    text: str
    documents: int
    shingles: int


def frequent_passages(texts: Sequence[str], counts: Mapping[int, int], options: ShingleOptions) -> Iterator[Passage]:
    """Yield passages of stop shingles, the most frequent first; each shingle that is in a text is in one passage.

    ``counts``: document count by stop shingle; ``options``: those with which they were learnt.
    """
    # As they were learnt: no bag, which would number repetitions and hash them differently; and no stop shingles, which
    # the shingler would leave out.
    shingler = Shingler(replace(options, bag=False, stop_shingles=frozenset()))
    text_rows = _first_texts(shingle_sets(shingler, texts), counts)
    shown: set[int] = set()
    for shingle, documents in sorted(counts.items(), key=lambda counted: (-counted[1], counted[0])):
        if shingle in shown or shingle not in text_rows:
            continue
        ordered = shingler.in_order(texts[text_rows[shingle]])
        hashes: list[int] = ordered.hashes.tolist()
        frequent = {value for value in hashes if counts.get(value, 0) * _LARGEST_FREQUENCY_RATIO >= documents} - shown
        # The passage, hashes[low:high], grows from the shingle, which is frequent itself, in both directions.
        low = high = hashes.index(shingle)
        while low and hashes[low - 1] in frequent:
            low -= 1
        while high < len(hashes) and hashes[high] in frequent:
            high += 1
        shown.update(hashes[low:high])
        yield Passage(ordered.text(low, high), documents, high - low)


def _first_texts(sets: ShingleSets, counts: Mapping[int, int]) -> dict[int, int]:
    """Return the row of the first text with each stop shingle, for those that are in a text."""
    stops: NDArray[np.uint32] = np.array(list(counts), np.uint32)
    positions = np.flatnonzero(np.isin(sets.hashes, stops))
    shingles, firsts = np.unique(sets.hashes[positions], return_index=True)
    # A position p belongs to the last text whose offset is at most p; ``side`` is for p equal to an offset.
    rows = np.searchsorted(sets.offsets, positions[firsts], side="right") - 1
    return dict(zip(shingles.tolist(), rows.tolist(), strict=True))
