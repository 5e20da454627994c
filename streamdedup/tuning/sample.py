"""A bounded sample of a stream of texts."""

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

#: How to draw a sample: each text with the same chance, or the first ones.
Sampling = Literal["random", "first"]
#: Seed: the same collection gives the same sample.
_SEED: Final = 1
#: Characters of the texts that are used, by unit of the shingles: some millions of shingles, joined in seconds.
MOST_CHARACTERS: Final = {"word": 15_000_000, "char": 8_000_000}
#: Runs of neighbouring texts in an excerpt.
_EXCERPT_RUNS: Final = 10


class Sample(NamedTuple):
    """Some texts of a collection, in the order of arrival.

    Attributes:
        ids: Document ids.
        texts: Their texts.
        sources: Their sources; None without one.
        read_count: Documents that were read.
        method: How the sample was drawn.
    """

    ids: list[str]
    texts: list[str]
    sources: list[str | None]
    read_count: int
    method: Sampling

    @property
    def share(self) -> float:
        """Share of the documents read that is in the sample; 1 for the first texts, which have all their neighbours."""
        return len(self.ids) / self.read_count if self.method == "random" and self.read_count else 1.0


def draw_sample(documents: Iterable[tuple[str, str, str | None]], size: int, method: Sampling) -> Sample:
    """Draw a sample from a stream; memory holds the sample only.

    "random" reads the whole stream and keeps a reservoir (J. S. Vitter, 1985, algorithm R): document number i replaces
    a random one with the chance size / i. "first" stops reading after ``size`` documents.

    Args:
        documents: Ids, texts and sources.
        size: Most documents to keep, at least 1.
        method: How to draw.
    """
    chance = random.Random(_SEED)  # noqa: S311  no secret depends on it
    kept: list[tuple[int, str, str, str | None]] = []
    count = 0
    for count, document in enumerate(documents, start=1):
        if len(kept) < size:
            kept.append((count, *document))
        elif (place := chance.randrange(count)) < size:
            kept[place] = (count, *document)
        if method == "first" and count == size:
            break
    kept.sort(key=lambda one: one[0])
    ids, texts, sources = [one[1] for one in kept], [one[2] for one in kept], [one[3] for one in kept]
    return Sample(ids, texts, sources, count, method)


class BoundedTexts:
    """Keeps texts of a stream, each with the same chance, as many as a number of characters allows.

    With too many characters, each text is dropped with a chance of one half, and so is each later one.

    Args:
        most_characters: Characters of all kept texts.

    Attributes:
        texts: The kept texts, in the order of arrival.
        read_count: Texts that were offered.
    """

    def __init__(self, most_characters: int) -> None:
        self.texts: list[str] = []
        self.read_count = 0
        self._most = most_characters
        self._characters = 0
        self._share = 1.0
        self._chance = random.Random(_SEED)  # noqa: S311  no secret depends on it

    def add(self, text: str) -> None:
        """Offer a text."""
        self.read_count += 1
        if self._share < 1.0 and self._chance.random() >= self._share:
            return
        self.texts.append(text)
        self._characters += len(text)
        while self._characters > self._most and len(self.texts) > 1:
            self.texts = [kept for kept in self.texts if self._chance.random() < 0.5]
            self._characters = sum(map(len, self.texts))
            self._share /= 2


def chosen_documents(texts: Sequence[str], units: Iterable[str]) -> NDArray[np.int64]:
    """Return the numbers of the texts that all kinds of shingles use, int64 (n,), ascending, see ``MOST_CHARACTERS``.

    All texts, or ten runs of neighbours, evenly spread.

    Args:
        texts: The sample.
        units: Units of the kinds of shingles; the kinds of one table use the same texts.
    """
    part = min(MOST_CHARACTERS[unit] for unit in units) / max(sum(map(len, texts)), 1)
    if part >= 1.0:
        return np.arange(len(texts))
    edges = np.linspace(0, len(texts), _EXCERPT_RUNS + 1).astype(np.int64).tolist()
    runs = [np.arange(low, low + max(1, int((high - low) * part))) for low, high in itertools.pairwise(edges)]
    return np.unique(np.concatenate(runs).clip(max=len(texts) - 1))
