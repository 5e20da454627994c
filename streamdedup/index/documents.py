"""Index entries as values, and the rule that decides which of two versions of a document the index keeps."""

from dataclasses import dataclass
from enum import IntEnum

import msgspec
import numpy as np

from streamdedup.position import Position
from streamdedup.similarity.sketch import Sketch
from streamdedup.wire import Match

#: Time to live of a deletion marker where index entries never expire, in milliseconds: 30 days. When offsets are set
#: back further than that, a deleted document is in the index until its deletion is read again.
MARKER_LIFETIME_MS = 30 * 86_400_000


class InsertState(IntEnum):
    """What the index did with a version; the numbers are those of ``redis/lua/_entries.lua``."""

    #: The index had no entry of this number; the version was stored.
    CREATED = 0
    #: An earlier version or a deletion marker is stored. It is returned, and stays until ``replace_entries``.
    REPLACED = 1
    #: The same position with the same content is stored already. The stored entry is returned.
    REPLAYED = 2
    #: The same content is stored already, from another position. The stored entry is returned.
    REDELIVERED = 3
    #: A later version is stored already.
    SUPERSEDED = 4
    #: The number belongs to a document with another id. The stored entry is returned.
    COLLIDED = 5


#: States in which the stored entry is returned.
RETURNING_STATES = frozenset(
    {InsertState.REPLACED, InsertState.REPLAYED, InsertState.REDELIVERED, InsertState.COLLIDED}
)


#: Stored bytes of the hash of a source.
SOURCE_BYTES = 8


class Content(msgspec.Struct, frozen=True, gc=False):
    """The part of an index entry computed from text and source. The text itself is not stored.

    Attributes:
        sketch: Shingle hashes or signature, for comparing.
        token_count: Tokens of the text, at most ``MAX_COUNT``.
        element_count: Tokens or characters, whichever shingles consist of, at most ``MAX_COUNT``.
        tail: 64-bit hashes of the last elements, one fewer than the elements of a shingle; of all elements of a shorter
            text. An append makes the shingles across the seam from these hashes.
        stop_only: Whether all shingles of the text are stop shingles; the sketch then consists of these.
        version: Digest of the text before the first append, 16 bytes; None without an append. Pair keys contain this
            digest, so an append does not repeat alerts.
        incarnation: Names a document that was deleted and inserted again, 8 bytes; None for the first incarnation.
            Pair keys contain this name, so a new incarnation is alerted anew.
        source: Names the source of the document, ``SOURCE_BYTES`` of a hash; None where the source is not known, and in
            profiles that do not keep sources.
    """

    sketch: Sketch
    token_count: int
    element_count: int
    tail: tuple[int, ...] = ()
    stop_only: bool = False
    version: bytes | None = None
    incarnation: bytes | None = None
    source: bytes | None = None

    @property
    def size_bytes(self) -> int:
        """Size of the hashes in bytes: nearly all of a stored entry."""
        return self.sketch.size_bytes + 8 * len(self.tail)


#: Largest stored number of tokens and elements; a greater one is stored as this.
MAX_COUNT = 65_535
#: The content of an empty text, and of deletion markers.
EMPTY_CONTENT = Content(Sketch(0, hashes=np.empty(0, np.uint32)), 0, 0)


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    """The entry of one document in the index.

    Attributes:
        number: Document number, signed 64 bits; the members of buckets are document numbers.
        id: The full id, to distinguish documents with equal numbers.
        digest: Digest of the content, 16 bytes.
        position: Position of the record with this version.
        time_ms: Record time of this version, milliseconds since the epoch.
        cluster: Document number of the first document of the cluster; the own number in a cluster of one.
        content: The part computed from the text.
    """

    number: int
    id: str
    digest: bytes
    position: Position
    time_ms: int
    cluster: int
    content: Content

    @property
    def deleted(self) -> bool:
        """Whether this is a deletion marker: a number, a position and a time, without an id."""
        return not self.id

    @property
    def version(self) -> bytes:
        """The digest for pair keys, 16 bytes: the digest of the text before the first append."""
        return self.content.version or self.digest


class PendingMatches(msgspec.Struct, frozen=True):
    """Matches found for one position and not committed yet.

    Attributes:
        matches: Matches by pair key.
        digest: Digest of the document with these matches, 16 bytes, where the record is an append: the next append
            changes the digest of the index entry. None otherwise.
        document_missing: Whether the record is an append to a document missing from the index. A later record of the
            batch may insert the document, and a replay must not find it.
    """

    matches: dict[bytes, Match] = {}
    digest: bytes | None = None
    document_missing: bool = False

    def __bool__(self) -> bool:
        """Tell whether there is anything to store."""
        return bool(self.matches) or self.digest is not None or self.document_missing


def deletion_marker(number: int, position: Position, time_ms: int) -> IndexEntry:
    """Return the entry that replaces the one of a deleted document, for one lifetime of index entries.

    Where index entries never expire, the marker expires after ``MARKER_LIFETIME_MS``.
    """
    return IndexEntry(number, "", bytes(16), position, time_ms, number, EMPTY_CONTENT)


@dataclass(frozen=True, slots=True)
class InsertResult:
    """Result of inserting one version.

    Attributes:
        state: What the index did.
        previous: The stored entry, in ``RETURNING_STATES``; else None.
    """

    state: InsertState
    previous: IndexEntry | None = None


def decide_version(stored: IndexEntry | None, new: IndexEntry) -> InsertState:  # noqa: PLR0911  one return a case
    """Decide about the version ``new`` of a document whose entry in the index is ``stored`` (rule 3).

    Within a partition the greater offset is the later version. Across partitions the greater record time is the later
    version; this matters only if a topic was created again or producers do not key records by id.
    ``redis/lua/_entries.lua`` has the same rule; ``tests/versions.py`` has the cases that both must pass.
    """
    if stored is None:
        return InsertState.CREATED
    is_deletion = stored.deleted or new.deleted
    if not is_deletion and stored.id != new.id:
        return InsertState.COLLIDED
    same_content = stored.digest == new.digest
    if stored.position == new.position:
        return InsertState.REPLAYED if same_content else InsertState.REPLACED
    same_partition = stored.position.log == new.position.log
    if same_partition and new.position.offset < stored.position.offset:
        return InsertState.SUPERSEDED
    if same_content and not is_deletion:
        return InsertState.REDELIVERED
    if not same_partition and new.time_ms <= stored.time_ms:
        return InsertState.SUPERSEDED
    return InsertState.REPLACED
