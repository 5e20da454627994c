"""What is kept of a document, and which of two versions of it stands: plain data and the rule of position order."""

from dataclasses import dataclass
from enum import IntEnum

import msgspec

from streamdedup.position import Position

#: How long the marker of a deletion stands where records live for ever, in milliseconds: 30 days. Offsets set back
#: further than that may bring a deleted document back for a while, until its deletion is read again too.
MARKER_LIFETIME_MS = 30 * 86_400_000


class InsertState(IntEnum):
    """What became of a record that was put."""

    #: There was none of this number.
    CREATED = 0
    #: A later version of what stands there, or of what was deleted; that is returned and stands until
    #: ``replace_entries``.
    REPLACED = 1
    #: The same position with the same content stands there already; it is returned, with the time first stored.
    REPLAYED = 2
    #: The same content stands there from another position; nothing was changed, and its record is returned.
    REDELIVERED = 3
    #: A later version stands there already; nothing was changed.
    SUPERSEDED = 4
    #: A document with another id has this number; nothing was changed, and its record is returned.
    COLLIDED = 5


#: States in which the record that stands or stood there is returned.
RETURNING_STATES = frozenset(
    {InsertState.REPLACED, InsertState.REPLAYED, InsertState.REDELIVERED, InsertState.COLLIDED}
)


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    """What is kept of one document; never its text.

    Attributes:
        number: Document number, the signed 64-bit name by which buckets know it.
        id: The full id, which tells two documents with one number apart.
        digest: Digest of the content, 16 bytes.
        position: Where this version came from.
        time_ms: Record time of this version, milliseconds since the epoch.
        cluster: Number of the first document of its cluster; its own number when it starts one.
        content: What is kept of the content, encoded.
    """

    number: int
    id: str
    digest: bytes
    position: Position
    time_ms: int
    cluster: int
    content: bytes

    @property
    def deleted(self) -> bool:
        """Whether this is only a marker of a deletion: a number, a position and a time, without an id."""
        return not self.id


def deletion_marker(number: int, position: Position, time_ms: int) -> IndexEntry:
    """Return what stands in the place of a document that was deleted, for as long as its record would have.

    Where records live for ever it stands for ``MARKER_LIFETIME_MS``.
    """
    return IndexEntry(number, "", bytes(16), position, time_ms, number, b"")


@dataclass(frozen=True, slots=True)
class InsertResult:
    """Outcome of one put.

    Attributes:
        state: What happened.
        previous: The record that is to be replaced or was met, in ``RETURNING_STATES``; else None.
    """

    state: InsertState
    previous: IndexEntry | None = None


def decide_version(stored: IndexEntry | None, new: IndexEntry) -> InsertState:  # noqa: PLR0911  one return a case
    """Decide by the rule of position order what becomes of ``new`` where ``stored`` stands.

    Within a partition the later offset is the later version. Across partitions the greater record time is: a producer
    that keys its records by id needs that only where a topic was created again.
    """
    if stored is None:
        return InsertState.CREATED
    marks = stored.deleted or new.deleted
    if not marks and stored.id != new.id:
        return InsertState.COLLIDED
    same_content = stored.digest == new.digest
    if stored.position == new.position:
        return InsertState.REPLAYED if same_content else InsertState.REPLACED
    same_partition = stored.position.log == new.position.log
    if same_partition and new.position.offset < stored.position.offset:
        return InsertState.SUPERSEDED
    if same_content and not marks:
        return InsertState.REDELIVERED
    if not same_partition and new.time_ms <= stored.time_ms:
        return InsertState.SUPERSEDED
    return InsertState.REPLACED
