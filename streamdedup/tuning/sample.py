"""Bounded samples of a stream of texts.

For ``tune``, ``draw_sample`` bounds the documents, and ``used_text_rows`` (called by ``comparison``) the studied texts;
for ``stop-shingles``, ``BoundedTexts`` bounds the characters.
"""

import itertools
import random
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

_SEED: Final = 1  # the same collection gives the same sample
#: Most characters of the studied texts, by unit of the shingles, so that the exact join of ``study`` takes seconds.
MOST_CHARACTERS: Final = {"word": 30_000_000, "char": 16_000_000}
#: An excerpt of a sample has this many runs of neighbouring texts, because copies are often neighbours in time.
#: Copies that are farther apart than a run are rarely both in the excerpt, so forecasts count too few of them.
_EXCERPT_RUNS: Final = 10


class Sample(NamedTuple):
    """Some documents of a stream, in the order of arrival; ``read_count``: number of documents in the stream."""

    ids: list[str]
    texts: list[str]
    sources: list[str | None]
    scopes: list[str | None]
    read_count: int

    def sources_of(self, rows: NDArray[np.int64]) -> list[str | None]:
        """Return the sources of some documents; an empty source counts as none."""
        return [self.sources[row] or None for row in rows.tolist()]

    @property
    def sampled_share(self) -> float:
        return len(self.ids) / self.read_count if self.read_count else 1.0


def draw_sample(documents: Iterable[tuple[str, str, str | None, str | None]], size: int) -> Sample:
    """Draw a random sample of at most ``size`` documents: ids, texts, sources and scopes."""
    # A reservoir (J. S. Vitter, 1985, algorithm R): document i (from 1) enters the full reservoir with the chance
    # size / i, and replaces a random member.
    generator = random.Random(_SEED)  # noqa: S311  no secret depends on it
    reservoir: list[tuple[int, str, str, str | None, str | None]] = []
    count = 0  # of an empty stream
    for count, document in enumerate(documents, start=1):
        if len(reservoir) < size:
            reservoir.append((count, *document))
        elif (drawn := generator.randrange(count)) < size:
            reservoir[drawn] = (count, *document)
    reservoir.sort(key=lambda numbered: numbered[0])  # the order of arrival
    _, ids, texts, sources, scopes = zip(*reservoir, strict=True) if reservoir else ((), (), (), (), ())
    return Sample(list(ids), list(texts), list(sources), list(scopes), count)


class BoundedTexts:
    """Keeps texts from a stream, each with the same chance; ``texts`` has them in the order of arrival.

    Whenever the kept texts have more than ``most_characters``, each of them is dropped with a chance of one half, and
    later texts are kept with half the chance. A single kept text may have more characters.
    """

    def __init__(self, most_characters: int) -> None:
        self.texts: list[str] = []
        self._most_characters = most_characters
        self._characters = 0
        self._share = 1.0
        self._generator = random.Random(_SEED)  # noqa: S311  no secret depends on it

    def add(self, text: str) -> None:
        if self._share < 1.0 and self._generator.random() >= self._share:
            return
        self.texts.append(text)
        self._characters += len(text)
        while self._characters > self._most_characters and len(self.texts) > 1:
            self.texts = [text for text in self.texts if self._generator.random() < 0.5]
            self._characters = sum(map(len, self.texts))
            self._share /= 2


def usable_characters(texts: Sequence[str], units: Iterable[str]) -> int:
    """Return the number of characters of the texts, at most the smallest limit (``MOST_CHARACTERS``) of the units."""
    return min(sum(map(len, texts)), *(MOST_CHARACTERS[unit] for unit in units))


def used_text_rows(texts: Sequence[str], units: Iterable[str], share: float = 1.0) -> NDArray[np.int64]:
    """Return the rows of the texts to study, int64 (n,), ascending: all, or an excerpt of evenly spread runs.

    ``units``: units of all shingle kinds to compare, which use the same texts. ``share``: share of the usable
    characters (``usable_characters``), above 0, at most 1. ``texts``: at least one.
    """
    # A share of the characters, taken as one of the rows.
    excerpt_share = share * usable_characters(texts, units) / max(sum(map(len, texts)), 1)
    if excerpt_share >= 1.0:
        return np.arange(len(texts))
    edges = np.linspace(0, len(texts), _EXCERPT_RUNS + 1).astype(np.int64).tolist()
    # Each run has at least one text. With fewer texts than runs, several runs have the same text.
    runs = [np.arange(low, low + max(1, int((high - low) * excerpt_share))) for low, high in itertools.pairwise(edges)]
    return np.unique(np.concatenate(runs))
