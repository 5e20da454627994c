"""Cases of the rule "which version replaces which", which the contract suite runs against both indexes.

The index in memory uses ``index.documents.decide_version``; the one in Redis has the rule in Lua
(``redis/lua/_entries.lua``).
"""

from typing import NamedTuple

from streamdedup.index.documents import IndexEntry, InsertState, deletion_marker
from streamdedup.position import Position
from tests.entries import content_of

NUMBER = 7


class Version(NamedTuple):
    """One version of a document, or its deletion (``text`` None); several documents may have one number."""

    offset: int = 5
    text: bytes | None = b"a"
    partition: int = 0
    time_ms: int = 1_000
    incarnation: int = 0
    id: str = "doc"

    def entry(self) -> IndexEntry:
        position = Position("articles", self.partition, self.offset, self.incarnation)
        if self.text is None:
            return deletion_marker(NUMBER, position, self.time_ms)
        digest = self.text.ljust(16, b"\0")
        return IndexEntry(NUMBER, self.id, digest, position, self.time_ms, NUMBER, content_of(self.text))


STORED, DELETED = Version(), Version(text=None)

#: What is compared -> the stored version, the new one, and the state of the new one.
CASES: dict[str, tuple[Version | None, Version, InsertState]] = {
    "nothing is stored": (None, Version(), InsertState.CREATED),
    "nothing is stored to be deleted": (None, DELETED, InsertState.CREATED),
    # Within a partition
    "the same record": (STORED, Version(), InsertState.REPLAYED),
    "the same record with another time": (STORED, Version(time_ms=9), InsertState.REPLAYED),
    "the same record with another content": (STORED, Version(text=b"b"), InsertState.REPLACED),
    "a later version": (STORED, Version(6, b"b"), InsertState.REPLACED),
    "a later version with an earlier time": (STORED, Version(6, b"b", time_ms=9), InsertState.REPLACED),
    "an earlier version": (STORED, Version(4, b"b"), InsertState.SUPERSEDED),
    "an earlier version with a later time": (STORED, Version(4, b"b", time_ms=9_999), InsertState.SUPERSEDED),
    "the same content later": (STORED, Version(6), InsertState.REDELIVERED),
    "the same content earlier": (STORED, Version(4), InsertState.SUPERSEDED),
    "offsets of more than 32 bits": (Version(2**40), Version(2**40 + 1, b"b"), InsertState.REPLACED),
    # Across partitions
    "another partition, later": (STORED, Version(1, b"b", 1, 1_001), InsertState.REPLACED),
    "another partition, at the same time": (STORED, Version(9, b"b", 1), InsertState.SUPERSEDED),
    "another partition, earlier": (STORED, Version(9, b"b", 1, 999), InsertState.SUPERSEDED),
    "another partition, without a time": (Version(time_ms=0), Version(9, b"b", 1, -1), InsertState.SUPERSEDED),
    "another partition, over no time": (Version(time_ms=-1), Version(1, b"b", 1, 0), InsertState.REPLACED),
    "another partition, the same content later": (STORED, Version(9, b"a", 1, 1_001), InsertState.REDELIVERED),
    "another partition, the same content earlier": (STORED, Version(1, b"a", 1, 999), InsertState.REDELIVERED),
    "the same offset of another partition": (STORED, Version(5, b"b", 1, 1_001), InsertState.REPLACED),
    "partitions whose names begin alike": (Version(partition=1), Version(6, b"b", 10), InsertState.SUPERSEDED),
    # A topic that was created again is another partition.
    "the next incarnation, later": (STORED, Version(1, b"b", 0, 1_001, 1), InsertState.REPLACED),
    "the next incarnation, at the same time": (STORED, Version(9, b"b", 0, 1_000, 1), InsertState.SUPERSEDED),
    "the next incarnation, the same content": (STORED, Version(1, b"a", 0, 1_001, 1), InsertState.REDELIVERED),
    # Deletions
    "deleted later": (STORED, Version(6, None), InsertState.REPLACED),
    "deleted earlier": (STORED, Version(4, None), InsertState.SUPERSEDED),
    "deleted at the same position": (STORED, DELETED, InsertState.REPLACED),
    "deleted by another partition, later": (STORED, Version(1, None, 1, 1_001), InsertState.REPLACED),
    "deleted by another partition, at the same time": (STORED, Version(9, None, 1), InsertState.SUPERSEDED),
    "inserted after its deletion": (DELETED, Version(6), InsertState.REPLACED),
    "inserted before its deletion": (DELETED, Version(4), InsertState.SUPERSEDED),
    "inserted after its deletion by another partition": (DELETED, Version(1, b"a", 1, 1_001), InsertState.REPLACED),
    "inserted with its deletion by another partition": (DELETED, Version(9, b"a", 1), InsertState.SUPERSEDED),
    "deleted again": (DELETED, Version(6, None), InsertState.REPLACED),
    "deleted by the same record": (DELETED, DELETED, InsertState.REPLAYED),
    # Ids with one number
    "another id": (STORED, Version(6, b"b", id="other"), InsertState.COLLIDED),
    "another id with the same content": (STORED, Version(6, id="other"), InsertState.COLLIDED),
    "another id, earlier": (STORED, Version(4, b"b", id="other"), InsertState.COLLIDED),
    "another id after a deletion": (DELETED, Version(6, id="other"), InsertState.REPLACED),
}
