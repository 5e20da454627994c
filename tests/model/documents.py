"""Documents of the model: contents, band keys, similarity, and operations."""

import random
from typing import NamedTuple

#: Number of bands, each in a slot of its own: a script is atomic for a bucket, not for a document.
BANDS = 2
#: Number of different band keys in a band.
KEYS = 3

#: A text: the upserted part and the appended parts. A part is a number.
Content = tuple[int, ...]


class Position(NamedTuple):
    """Position of a Kafka record; ``topic`` is the incarnation of the topic."""

    partition: int
    offset: int
    topic: int = 0

    @property
    def log(self) -> tuple[int, int]:
        """The partition in one incarnation of the topic."""
        return self.partition, self.topic


class Operation(NamedTuple):
    """Operation of a Kafka record: ``kind`` is "upsert", "append" or "delete"; a deletion has no ``part``."""

    kind: str
    doc: int
    part: int | None
    time: int


class Record(NamedTuple):
    """Index entry of a document; ``version`` is its version in claims, which an append keeps."""

    doc: int
    version: int
    content: Content
    position: Position
    time: int


class Marker(NamedTuple):
    """Marker of a deleted document."""

    position: Position
    time: int


#: One side of a pair, and a pair in canonical order.
Side = tuple[int, int]
Pair = tuple[Side, Side]


def pair_key(a: Record, b: Record) -> Pair:
    """Return the pair of two versions, in canonical order."""
    one, other = (a.doc, a.version), (b.doc, b.version)
    return (one, other) if a.doc < b.doc else (other, one)


class Texts:
    """Near-duplicates, drawn at random, of which two contents share a band key.

    Args:
        rng: Draws the band keys.
        parts_count: Number of different parts.
        by_containment: Whether contents of which one has all parts of the other are near-duplicates, however
            dissimilar.
    """

    def __init__(self, rng: random.Random, parts_count: int, *, by_containment: bool = False) -> None:
        self._by_containment = by_containment
        self._keys = [[rng.randrange(KEYS) for _ in range(BANDS)] for _ in range(parts_count)]
        self._known: dict[Content, tuple[int, ...]] = {}

    def band_keys(self, content: Content) -> tuple[int, ...]:
        """Return a key for each band: the minimum of the parts, as for signatures."""
        keys = self._known.get(content)
        if keys is None:
            keys = tuple(min(self._keys[part][band] for part in content) for band in range(BANDS))
            self._known[content] = keys
        return keys

    def similar(self, a: Content, b: Content, *, symmetric: bool = True) -> bool:
        """Tell whether two contents are near-duplicates, by similarity or by containment.

        Args:
            a: Content of the document that is looked up.
            b: Content of the other document.
            symmetric: Whether either may be contained in the other, not only ``a`` in ``b``.
        """
        if a != b and (sum(a) + sum(b)) % 3 == 1 and not self._contained(a, b, symmetric=symmetric):
            return False
        return any(x == y for x, y in zip(self.band_keys(a), self.band_keys(b), strict=True))

    def _contained(self, a: Content, b: Content, *, symmetric: bool) -> bool:
        return self._by_containment and (set(a) <= set(b) or (symmetric and set(b) <= set(a)))
