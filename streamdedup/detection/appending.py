"""Appends: texts that continue a document in the index.

Called by ``lifecycle``, which stores the computed entries, and asks ``missing_at_first_attempt`` for deletions, too.

An append yields the content that the whole text has (``content.content_after_append``). The entry's digest becomes a
hash of the stored digest and the appended text, because the whole text is not stored. ``Content.first_digest`` stays
the digest before the first append: pair keys contain it, so that an append repeats no alert.
"""

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

from msgspec import structs

from streamdedup.detection.content import content_after_append
from streamdedup.detection.model import document_number
from streamdedup.errors import MessageError
from streamdedup.index.contract import DocumentStore
from streamdedup.index.documents import EMPTY_CONTENT, IndexEntry, InsertState, PendingMatches, decide_version
from streamdedup.index.values import Fence
from streamdedup.position import Partition, Position
from streamdedup.similarity.sketch import Sketcher
from streamdedup.text.shingles import Shingler
from streamdedup.wire import Document, ErrorCode, content_digest

_UNKNOWN_DOCUMENT = "there is no document of this id to append to: it was never indexed, was deleted, or has expired"


class InsertedVersion(NamedTuple):
    """A version of a document, its entry, and what the index did with it, as in ``InsertResult``."""

    document: Document
    entry: IndexEntry
    state: InsertState
    previous: IndexEntry | None = None


class Appended(NamedTuple):
    """The result of appends.

    Attributes:
        versions: A version for each append to a document that exists. A replayed append has the stored entry, a
            superseded one an entry without digest and content.
        refused: Appends that can never be processed.
        missing_positions: Positions of the appends that found no document at the first attempt
            (``missing_at_first_attempt``).
    """

    versions: Sequence[InsertedVersion] = ()
    refused: Sequence[tuple[Document, MessageError]] = ()
    missing_positions: Sequence[Position] = ()


class Appender:
    """Computes the entries after appends, in the index of one profile."""

    def __init__(self, profile: str, store: DocumentStore, shingler: Shingler, sketcher: Sketcher) -> None:
        self._profile = profile
        self._store = store
        self._shingler = shingler
        self._sketcher = sketcher

    def append(self, appends: Sequence[Document], fences: Mapping[Partition, Fence]) -> Appended:
        """Compute the entries after appends; ``appends`` has at most one for each document (``split_documents``).

        The entries are stored later, because the stored versions have to be removed from their buckets first.
        """
        if not appends:
            return Appended()
        numbers = [document_number(self._profile, document.id) for document in appends]
        entries = self._store.get_entries(numbers)
        stored = [entries.get(number) for number in numbers]
        states = [_state(document, entry) for document, entry in zip(appends, stored, strict=True)]
        by_state = list(zip(appends, states, strict=True))
        missing_now = {document.position for document, state in by_state if state is None}
        undecided = {document.position for document, state in by_state if state is InsertState.SUPERSEDED}
        missing_at_first = missing_at_first_attempt(self._store, missing_now, undecided, fences)
        versions: list[InsertedVersion] = []
        refused: list[tuple[Document, MessageError]] = []
        for document, entry, state in zip(appends, stored, states, strict=True):
            # The first attempt decides, not the index now. Without an entry the position is in ``missing_now``, too.
            if entry is None or document.position in missing_now or document.position in missing_at_first:
                refused.append((document, MessageError(ErrorCode.UNKNOWN_DOCUMENT, _UNKNOWN_DOCUMENT)))
                continue
            try:
                versions.append(self._version(document, entry, state))
            except MessageError as error:
                refused.append((document, error))
        return Appended(versions, refused, sorted(missing_at_first))

    def _version(self, document: Document, entry: IndexEntry, state: InsertState | None) -> InsertedVersion:
        """Return the version of an append; raise MessageError to refuse it."""
        if state is InsertState.COLLIDED:
            raise collision(entry)
        if state is InsertState.REPLAYED:
            return InsertedVersion(document, entry, state, entry)
        if state is InsertState.SUPERSEDED:
            # Nothing is stored or looked up. The version is needed to alert matches that an earlier attempt saved.
            return InsertedVersion(document, _without_content(document, entry), state)
        return InsertedVersion(document, self._entry_after_append(document, entry), InsertState.REPLACED, entry)

    def _entry_after_append(self, document: Document, entry: IndexEntry) -> IndexEntry:
        content = content_after_append(self._shingler, self._sketcher, entry.content, document.text)
        return structs.replace(
            entry,
            digest=blake2b(entry.digest + content_digest(document.text), digest_size=16).digest(),
            position=document.position,
            time_ms=document.time_ms,
            content=structs.replace(content, first_digest=entry.pair_digest),
        )


def missing_at_first_attempt(
    store: DocumentStore, missing_now: set[Position], undecided: set[Position], fences: Mapping[Partition, Fence]
) -> frozenset[Position]:
    """Return the positions whose document was missing in the first attempt; save them if this is the first one.

    The first attempt saves the fact with the pending matches, before the index can have an entry from the position or a
    later one. Below the high-water mark nothing is emitted, so nothing is saved: no commit after a rebuild would
    delete it.

    ``missing_now``: the document is missing in the index. ``undecided``: the index has an entry from the position or a
    later one, so that only the saved fact tells.
    """
    # With ``document_missing=False`` nothing is saved; the call returns what the first attempt saved.
    pending = [
        (position, PendingMatches(document_missing=position in missing_now))
        for position in sorted(missing_now | undecided)
        if position.offset >= fences[position.topic_partition].high_water_mark
    ]
    saved = store.save_pending_matches(pending, list(fences.values())) if pending else ()
    return frozenset(
        position for (position, _), matches in zip(pending, saved, strict=True) if matches.document_missing
    )


def collision(stored: IndexEntry) -> MessageError:
    """Return the error for a document whose number belongs to another id, that of ``stored``."""
    text = f"the id shares its document number with the id {stored.id!r}, which is indexed already"
    return MessageError(ErrorCode.ID_COLLISION, text)


def _without_content(document: Document, entry: IndexEntry) -> IndexEntry:
    """Return an entry for an append without content: for ``decide_version``, or where ``entry`` is a later version.

    The later version may be another text in another scope, of which the alert must show nothing. No entry has the empty
    digest, so no comparison takes the empty content for that of another document.
    """
    return structs.replace(
        entry, id=document.id, digest=b"", position=document.position, time_ms=document.time_ms, content=EMPTY_CONTENT
    )


def _state(document: Document, entry: IndexEntry | None) -> InsertState | None:
    """Return the append's state; None where there is no document to append to: no entry, or a deletion marker.

    REPLAYED: the entry has this append. COLLIDED: the entry is of another id. SUPERSEDED: the entry, or the deletion
    marker, is later. REPLACED: the entry after the append is to be stored.
    """
    if entry is None:
        return None
    if (entry.id, entry.position) == (document.id, document.position):
        return InsertState.REPLAYED
    # Never REDELIVERED, because no entry has its digest: an append changes the content.
    state = decide_version(entry, _without_content(document, entry))
    return None if entry.deleted and state is not InsertState.SUPERSEDED else state
