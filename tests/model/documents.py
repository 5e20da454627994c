"""Documents of the model: contents, band keys, similarity, and what producers send."""

import random
from typing import NamedTuple

#: Bands, one by one in slots of their own: what is atomic per bucket is not atomic per document.
BANDS = 2
#: Different band keys of a band.
KEYS = 3

#: A text: the part that was upserted and those that were appended to it. A part is a number.
Content = tuple[int, ...]


class Position(NamedTuple):
    """Where a record of Kafka stands; ``topic`` counts how often the topic was deleted and created again before."""

    partition: int
    offset: int
    topic: int = 0

    @property
    def log(self) -> tuple[int, int]:
        """The partition in one incarnation of the topic."""
        return self.partition, self.topic


class Operation(NamedTuple):
    """What a record of Kafka says. ``kind`` is "upsert", "append" or "delete", ``part`` None for a deletion."""

    kind: str
    doc: int
    part: int | None
    time: int


class Record(NamedTuple):
    """What the index keeps of a document; ``version`` names it in claims and stays when something is appended."""

    doc: int
    version: int
    content: Content
    position: Position
    time: int


class Marker(NamedTuple):
    """What the index keeps of a deleted document."""

    position: Position
    time: int


#: One side of a pair, and a pair of them in canonical order.
Side = tuple[int, int]
Pair = tuple[Side, Side]


def pair_key(a: Record, b: Record) -> Pair:
    """Name a pair of versions, whichever is named first."""
    one, other = (a.doc, a.version), (b.doc, b.version)
    return (one, other) if a.doc < b.doc else (other, one)


class Texts:
    """Which contents are similar, drawn at random: similar ones share a band key, as in P."""

    def __init__(self, rng: random.Random, parts_count: int) -> None:
        self._keys = [[rng.randrange(KEYS) for _ in range(BANDS)] for _ in range(parts_count)]
        self._known: dict[Content, tuple[int, ...]] = {}

    def band_keys(self, content: Content) -> tuple[int, ...]:
        """Return a key for each band: minima over the parts, as of signatures."""
        keys = self._known.get(content)
        if keys is None:
            keys = tuple(min(self._keys[part][band] for part in content) for band in range(BANDS))
            self._known[content] = keys
        return keys

    def similar(self, a: Content, b: Content) -> bool:
        """Tell whether two contents are near-duplicates."""
        if a != b and (sum(a) + sum(b)) % 3 == 1:
            return False
        return any(x == y for x, y in zip(self.band_keys(a), self.band_keys(b), strict=True))
