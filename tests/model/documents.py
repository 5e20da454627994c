"""Documents of the model: contents, band keys, similarity, and operations."""

import random
from typing import NamedTuple, Protocol

#: Number of bands, each in a slot of its own: a script is atomic for a bucket, not for a document.
BANDS = 2
#: Number of different band keys in a band.
KEYS = 3

#: Number of different sources.
SOURCES = 3

#: A text: the upserted part and the appended parts. A part is a number.
Content = tuple[int, ...]


class Position(NamedTuple):
    """Position of a Kafka record; ``topic`` is the incarnation of the topic."""

    partition: int
    offset: int
    topic: int = 0

    @property
    def partition_incarnation(self) -> tuple[int, int]:
        """The partition in one incarnation of the topic."""
        return self.partition, self.topic


#: Incarnation of a document that was inserted without a deletion before; the hash of None differs between processes.
NEVER_DELETED = Position(-1, -1)


class Operation(NamedTuple):
    """Operation of a Kafka record: ``kind`` is "upsert", "append" or "delete"; a deletion has no ``part``."""

    kind: str
    doc: int
    part: int | None
    time: int
    source: int | None = None


class Record(NamedTuple):
    """Index entry of a document.

    Version, incarnation and number name the document in claims. An append keeps the version and the source, every
    change keeps the incarnation: the position of the deletion before the first insertion.
    """

    doc: int
    version: int
    content: Content
    position: Position
    time: int
    source: int | None = None
    incarnation: Position = NEVER_DELETED


class Marker(NamedTuple):
    """Marker of a deleted document."""

    position: Position
    time: int


def with_incarnation(new: Record, old: Record | Marker | None) -> Record:
    """Return an entry with the incarnation of its document, where another entry or a marker is stored."""
    if old is None:
        return new
    return new._replace(incarnation=old.position if isinstance(old, Marker) else old.incarnation)


#: One side of a pair (document, version, incarnation), and a pair in canonical order.
Side = tuple[int, int, Position]
Pair = tuple[Side, Side]


def pair_key(a: Record, b: Record) -> Pair:
    """Return the pair of two versions, in canonical order."""
    one, other = (a.doc, a.version, a.incarnation), (b.doc, b.version, b.incarnation)
    return (one, other) if a.doc < b.doc else (other, one)


class Sourced(Protocol):
    """A document with its content and source."""

    @property
    def content(self) -> Content:
        """All parts of the text."""

    @property
    def source(self) -> int | None:
        """The source; None where it is not known."""


class Suppression(NamedTuple):
    """The rules of ``streamdedup.detection.suppression``: near-duplicates that are not alerted.

    Attributes:
        min_parts: Fewest parts of both contents.
        only_sources: Sources of which a pair needs at least one; empty for all.
        ignore_same_source: Whether pairs of one source are suppressed.
        ignore_sources: Pairs of sources whose pairs are suppressed.
    """

    min_parts: int = 0
    only_sources: frozenset[int] = frozenset()
    ignore_same_source: bool = False
    ignore_sources: frozenset[frozenset[int]] = frozenset()

    def suppresses(self, a: Sourced, b: Sourced, *, symmetric: bool = True) -> bool:
        """Tell whether a pair is suppressed; a source that is not known suppresses nothing.

        Args:
            a: The document that is looked up.
            b: The other document.
            symmetric: Whether ``only_sources`` regards both documents, not only ``a``.
        """
        if min(len(a.content), len(b.content)) < self.min_parts:
            return True
        if a.source is None or b.source is None:
            return False
        sources = {a.source, b.source} if symmetric else {a.source}
        if self.only_sources and not sources & self.only_sources:
            return True
        return (self.ignore_same_source and a.source == b.source) or {a.source, b.source} in self.ignore_sources


#: Without any rule.
NOTHING_SUPPRESSED = Suppression()


def draw_suppression(rng: random.Random) -> Suppression:
    """Draw rules about what is alerted."""
    sources = range(SOURCES)
    return Suppression(
        min_parts=rng.choice((0, 0, 2)),
        only_sources=frozenset(rng.sample(sources, rng.choice((0, 0, 1, 2)))),
        ignore_same_source=rng.random() < 0.5,
        ignore_sources=frozenset(frozenset(rng.sample(sources, 2)) for _ in range(rng.randrange(3))),
    )


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
