"""Boilerplate: runs of words that many documents share.

A shingle that occurs in many documents is located in one of them and extended to both sides as long as the next shingle
is about as frequent. Shingles are always those of words, which can be read.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from streamdedup.evaluation.truth import shingle_sets
from streamdedup.text.shingles import ShingleOptions, Shingler, normalise

_OPTIONS: Final = ShingleOptions("word", 3)
#: Least share and least number of the documents that share boilerplate.
_LEAST_SHARE: Final = 0.01
_LEAST_DOCUMENTS: Final = 5
#: A run ends at a shingle that is less than so many times as frequent as its first one.
_AS_FREQUENT: Final = 0.5
#: Fewest shingles of a run that is not a whole text; shorter ones are turns of phrase.
_LEAST_RUN: Final = 4
#: Words of a document, and frequent shingles, that are used at most.
_MOST_WORDS: Final = 5_000
_MOST_SHINGLES: Final = 500


class Boilerplate(NamedTuple):
    """A run of normalised words, with the number and share of the documents that have its most frequent shingle."""

    words: tuple[str, ...]
    documents: int
    share: float


def find_boilerplate(texts: Sequence[str], most: int) -> list[Boilerplate]:
    """Return at most so many runs, the most frequent first, each shingle in one of them only."""
    shingler = Shingler(_OPTIONS)
    sets = shingle_sets(shingler, texts)
    hashes, place, counts = np.unique(sets.hashes, return_index=True, return_counts=True)
    frequent = np.flatnonzero(counts >= max(_LEAST_DOCUMENTS, _LEAST_SHARE * len(texts)))
    frequency = dict(zip(hashes[frequent].tolist(), counts[frequent].tolist(), strict=True))
    first = frequent[np.argsort(-counts[frequent], kind="stable")][:_MOST_SHINGLES]
    documents = np.searchsorted(sets.offsets, place[first], side="right") - 1
    found: list[Boilerplate] = []
    explained: set[int] = set()
    for shingle, document in zip(hashes[first].tolist(), documents.tolist(), strict=True):
        if shingle in explained or len(found) == most:
            continue
        words = normalise(texts[document]).split(" ")[:_MOST_WORDS]
        windows = _windows(shingler, words)
        low, high = _run(windows, shingle, frequency)
        explained.update(windows[low:high])
        if high - low >= _LEAST_RUN or high - low == len(windows):
            run = tuple(words[low : high - 1 + _OPTIONS.size])
            found.append(Boilerplate(run, frequency[shingle], frequency[shingle] / len(texts)))
    return found


def _windows(shingler: Shingler, words: Sequence[str]) -> list[int]:
    """Return the hash of the shingle at each word; -1, which no shingle has, where there is not exactly one."""
    starts = range(max(1, len(words) - _OPTIONS.size + 1))
    batch = shingler.shingle([" ".join(words[at : at + _OPTIONS.size]) for at in starts])
    bounds = zip(batch.offsets.tolist(), batch.offsets[1:].tolist(), strict=False)
    return [int(batch.hashes[low]) if high == low + 1 else -1 for low, high in bounds]


def _run(windows: list[int], shingle: int, frequency: dict[int, int]) -> tuple[int, int]:
    """Return start and end of the run around a shingle; an empty run where the shingle is missing."""
    if shingle not in windows:
        return 0, 0
    low = windows.index(shingle)
    high = low + 1
    least = _AS_FREQUENT * frequency[shingle]
    while low and frequency.get(windows[low - 1], 0) >= least:
        low -= 1
    while high < len(windows) and frequency.get(windows[high], 0) >= least:
        high += 1
    return low, high
