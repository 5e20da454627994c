"""A bounded sample of a stream of texts."""

import itertools
import random
from collections.abc import Iterable
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: How to draw a sample: each text with the same chance, or the first ones.
Sampling = Literal["random", "first"]
#: Seed: the same collection gives the same sample.
_SEED: Final = 1
#: Runs of neighbouring texts in an excerpt.
_EXCERPT_RUNS: Final = 10


class Sample(NamedTuple):
    """Some texts of a collection, in the order of arrival.

    Attributes:
        ids: Document ids.
        texts: Their texts.
        read_count: Documents that were read.
        method: How the sample was drawn.
    """

    ids: list[str]
    texts: list[str]
    read_count: int
    method: Sampling

    @property
    def share(self) -> float:
        """Share of the documents read that is in the sample; 1 for the first texts, which have all their neighbours."""
        return len(self.ids) / self.read_count if self.method == "random" and self.read_count else 1.0


def draw_sample(documents: Iterable[tuple[str, str]], size: int, method: Sampling) -> Sample:
    """Draw a sample from a stream; memory holds the sample only.

    "random" reads the whole stream and keeps a reservoir (J. S. Vitter, 1985, algorithm R): document number i replaces
    a random one with the chance size / i. "first" stops reading after ``size`` documents.

    Args:
        documents: Ids and texts.
        size: Most documents to keep, at least 1.
        method: How to draw.
    """
    chance = random.Random(_SEED)  # noqa: S311  no secret depends on it
    kept: list[tuple[int, str, str]] = []
    count = 0
    for count, (document_id, text) in enumerate(documents, start=1):
        if len(kept) < size:
            kept.append((count, document_id, text))
        elif (place := chance.randrange(count)) < size:
            kept[place] = (count, document_id, text)
        if method == "first" and count == size:
            break
    kept.sort()
    return Sample([document_id for _, document_id, _ in kept], [text for _, _, text in kept], count, method)


def excerpt(lengths: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Choose texts with about ``most`` characters in all: all texts, or ten runs of neighbours, evenly spread.

    Args:
        lengths: int64 (n,); characters of each text.
        most: Characters of the excerpt.

    Returns:
        int64, ascending; numbers of the chosen texts.
    """
    part = most / max(int(lengths.sum()), 1)
    if part >= 1.0:
        return np.arange(len(lengths))
    edges = np.linspace(0, len(lengths), _EXCERPT_RUNS + 1).astype(np.int64).tolist()
    runs = [np.arange(low, low + max(1, int((high - low) * part))) for low, high in itertools.pairwise(edges)]
    return np.unique(np.concatenate(runs).clip(max=len(lengths) - 1))
