"""Templates: runs of words that many documents share.

A shingle that stands in many documents is looked up in one of them, and extended to both sides as long as the next one
is about as frequent. Only words are looked at, whatever shingles the index has: they can be read.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.sets import ShingleSets
from streamdedup.text.shingles import ShingleOptions, Shingler, normalise

#: Least share of the documents, and least number, that make a template of a run of words.
_LEAST_SHARE: Final = 0.01
_LEAST_DOCUMENTS: Final = 5
#: A neighbour belongs to the run while it is at least so frequent as the shingle that the run began with.
_AS_FREQUENT: Final = 0.5
#: Shingles that a run has at least, unless it is a whole text: single frequent ones are turns of phrase.
_LEAST_RUN: Final = 4
#: Words of a document that are looked at, and frequent shingles.
_MOST_WORDS: Final = 5_000
_MOST_SHINGLES: Final = 500


class Template(NamedTuple):
    """A run of words.

    Attributes:
        words: The words, normalised.
        documents: In how many documents its most frequent shingle stands.
        share: The same of all that were looked at.
    """

    words: tuple[str, ...]
    documents: int
    share: float


def templates(sets: ShingleSets, texts: Sequence[str], options: ShingleOptions, count: int) -> list[Template]:
    """Return the most frequent templates, each shingle in one of them only.

    Args:
        sets: Sets of word shingles, not of bags.
        texts: The texts that they were made of.
        options: How.
        count: How many to return, at most.
    """
    distinct, place, frequency = np.unique(sets.hashes, return_index=True, return_counts=True)
    least = max(_LEAST_DOCUMENTS, _LEAST_SHARE * len(texts))
    often = np.flatnonzero(frequency >= least)
    often = often[np.argsort(-frequency[often], kind="stable")][:_MOST_SHINGLES]
    of_hash = dict(zip(distinct[frequency >= least].tolist(), frequency[frequency >= least].tolist(), strict=True))
    document_of = np.searchsorted(sets.offsets, place[often], side="right") - 1
    found: list[Template] = []
    explained: set[int] = set()
    for shingle, document in zip(distinct[often].tolist(), document_of.tolist(), strict=True):
        if shingle in explained:
            continue
        words, hashes = _windows(texts[document], options)
        low, high = _run(hashes, shingle, of_hash)
        explained.update(hashes[low:high])
        if high - low >= _LEAST_RUN or (high - low == len(hashes)):
            documents = of_hash[shingle]
            run = tuple(words[low : high - 1 + options.size])
            found.append(Template(run, documents, documents / len(texts)))
            if len(found) == count:
                break
    return found


def _windows(text: str, options: ShingleOptions) -> tuple[list[str], list[int]]:
    """Return the words of a text, and the hash of the shingle that begins at each but the last ones."""
    words = normalise(text, letters_only=options.letters_only).split(" ")[:_MOST_WORDS]
    words = [word for word in words if word not in options.stop_words]
    windows = [" ".join(words[at : at + options.size]) for at in range(max(1, len(words) - options.size + 1))]
    batch = Shingler(options).shingle(windows)
    return words, [_only(batch.hashes[low:high]) for low, high in zip(batch.offsets, batch.offsets[1:], strict=False)]


def _only(hashes: NDArray[np.uint32]) -> int:
    """Return the one hash; -1, which no shingle has, where there is none or another number."""
    return int(hashes[0]) if len(hashes) == 1 else -1


def _run(hashes: list[int], shingle: int, frequency: dict[int, int]) -> tuple[int, int]:
    """Return where the run around a shingle begins and ends; nothing where the shingle is not."""
    if shingle not in hashes:
        return 0, 0
    low = hashes.index(shingle)
    high = low + 1
    least = _AS_FREQUENT * frequency[shingle]
    while low and frequency.get(hashes[low - 1], 0) >= least:
        low -= 1
    while high < len(hashes) and frequency.get(hashes[high], 0) >= least:
        high += 1
    return low, high
