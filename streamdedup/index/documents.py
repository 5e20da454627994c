"""Index entries, pending matches, and the rule that decides between two versions of a document.

A new field touches ``index.entries`` and docs/format.md. Rule and states are also in ``redis/lua/_entries.lua``.
"""

from dataclasses import dataclass
from enum import IntEnum

import msgspec
import numpy as np

from streamdedup.position import Position
from streamdedup.similarity.sketch import Sketch
from streamdedup.wire import Match, toggle_scope


class InsertState(IntEnum):
    """What the index did with a version of a document."""

    #: The index had no entry with this number; the version was stored.
    CREATED = 0
    #: An earlier version or a deletion marker is stored, and stays until ``replace_entries``.
    REPLACED = 1
    #: The same content is stored from the same position.
    REPLAYED = 2
    #: The same content is stored from another position.
    REDELIVERED = 3
    #: A later version is stored.
    SUPERSEDED = 4
    #: The number belongs to a document with another id.
    COLLIDED = 5


#: States with which ``insert_entries`` returns the stored entry.
RETURNING_STATES = frozenset(
    {InsertState.REPLACED, InsertState.REPLAYED, InsertState.REDELIVERED, InsertState.COLLIDED}
)


#: Stored bytes per source hash.
SOURCE_BYTES = 8


class Content(msgspec.Struct, frozen=True, gc=False):
    """The part of an index entry computed from the document's fields.

    Attributes:
        token_count: At most ``MAX_COUNT``.
        element_count: Elements of the shingles, tokens or characters, at most ``MAX_COUNT``.
        tail: 64-bit hashes of the last k - 1 elements, or fewer in a short text, where k is the shingle length. From
            these hashes an append computes the shingles that reach over the present end of the text.
        stop_only: Whether all shingles are stop shingles; the sketch then consists of these.
        first_digest: Text digest before the first append, without a scope, 16 bytes; None without. In pair keys, so
            that an append repeats no alert.
        incarnation: Name of the incarnation of a document, 8 bytes; None for the first. Pair keys contain this name, so
            that a document that was deleted and inserted again is alerted again.
        source: Hash of the document's source, ``SOURCE_BYTES`` long; None where the source is not known.
        scope: Stored form of the document's scope, ``SCOPE_BYTES`` long; None in profiles without scopes.
        caption: Label, source and publication time for people, at most 255 bytes; None without. No comparison reads it.
    """

    sketch: Sketch
    token_count: int
    element_count: int
    tail: tuple[int, ...] = ()
    stop_only: bool = False
    first_digest: bytes | None = None
    incarnation: bytes | None = None
    source: bytes | None = None
    scope: bytes | None = None
    caption: bytes | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the hashes: nearly the whole stored entry."""
        return self.sketch.size_bytes + 8 * len(self.tail)


#: Largest stored number of tokens and elements; a greater one is stored as this.
MAX_COUNT = 65_535
#: The digest in deletion markers.
MARKER_DIGEST = bytes(16)
#: The content of a deletion marker, and of a document whose content is not known; its sketch also stands for a stored
#: text of which an append keeps nothing (``detection.content``).
EMPTY_CONTENT = Content(Sketch(0, hashes=np.empty(0, np.uint32)), 0, 0)


class IndexEntry(msgspec.Struct, frozen=True, gc=False):
    """A document's entry in the index.

    Attributes:
        number: Document number, signed 64 bits; ``id`` distinguishes documents with equal numbers.
        digest: Content digest, 16 bytes.
        cluster: Document number that names the cluster; the document's own number where it is alone.
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
    def pair_digest(self) -> bytes:
        """The digest in pair keys, of the text before the first append, without the scope, which may change later."""
        return self.content.first_digest or toggle_scope(self.digest, self.content.scope)

    @property
    def version_digest(self) -> bytes:
        """The content digest before the first append."""
        return toggle_scope(self.pair_digest, self.content.scope)


class PendingMatches(msgspec.Struct, frozen=True):
    """Matches found for one position and not committed yet.

    Attributes:
        digest: Of the document at the record, if that is an append with matches: the next append changes the entry.
        document_missing: Whether the record is an append to, or a deletion of, a document that the index lacks. A later
            record in the batch may insert the document; a replay of this record must still miss it.
    """

    matches: dict[bytes, Match] = {}
    digest: bytes | None = None
    document_missing: bool = False

    def __bool__(self) -> bool:
        return bool(self.matches) or self.document_missing


def deletion_marker(number: int, position: Position, time_ms: int) -> IndexEntry:
    """Return the entry that replaces a deleted document's entry, for ``values.marker_lifetime``."""
    return IndexEntry(number, "", MARKER_DIGEST, position, time_ms, number, EMPTY_CONTENT)


@dataclass(frozen=True, slots=True)
class InsertResult:
    """What the index did with a version; in ``RETURNING_STATES`` with the stored entry."""

    state: InsertState
    previous: IndexEntry | None = None


def decide_version(stored: IndexEntry | None, new: IndexEntry) -> InsertState:  # noqa: PLR0911  one return a case
    """Return what to do with the version ``new`` where the index has the entry ``stored`` (rule 3).

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
    # The same record may have another content, for example after the settings that select the text were changed.
    if stored.position == new.position:
        return InsertState.REPLAYED if same_content else InsertState.REPLACED
    same_partition = stored.position.partition_incarnation == new.position.partition_incarnation
    if same_partition and new.position.offset < stored.position.offset:
        return InsertState.SUPERSEDED
    if same_content and not is_deletion:
        return InsertState.REDELIVERED
    if not same_partition and new.time_ms <= stored.time_ms:
        return InsertState.SUPERSEDED
    return InsertState.REPLACED
