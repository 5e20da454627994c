"""Appends: texts that continue a document in the index.

An append yields the content of the whole text (``content.grown``). Its digest depends on the digest before and on the
appended text. Pairs keep the version of the text before the first append.
"""

from collections.abc import Sequence
from hashlib import blake2b
from typing import NamedTuple

from msgspec import structs

from streamdedup.detection.content import BagTooLarge, grown
from streamdedup.detection.model import document_number
from streamdedup.errors import MessageError
from streamdedup.index.contract import DocumentStore
from streamdedup.index.documents import IndexEntry, InsertResult, InsertState, PendingMatches, decide_version
from streamdedup.index.values import Fence
from streamdedup.position import Position
from streamdedup.similarity.sketch import Sketcher
from streamdedup.text.shingles import Shingler
from streamdedup.wire import Document, ErrorCode, content_digest


class Appended(NamedTuple):
    """Result of appends.

    Attributes:
        rows: Appends to a document in the index, also those of an earlier attempt, each with the index entry after the
            append and the result of an insertion of this entry; a new entry replaces the stored one.
        refused: Appends that can never be processed, with the reason.
        missing_positions: Positions of appends to documents that are not in the index.
    """

    rows: Sequence[tuple[Document, IndexEntry, InsertResult]] = ()
    refused: Sequence[tuple[Document, MessageError]] = ()
    missing_positions: Sequence[Position] = ()


class Appender:
    """Computes the entries of appends.

    Args:
        profile: Name of the profile.
        store: The index.
        shingler: Makes the shingles of the appended texts.
        sketcher: Makes the sketches of the whole texts.
    """

    def __init__(self, profile: str, store: DocumentStore, shingler: Shingler, sketcher: Sketcher) -> None:
        self._profile = profile
        self._store = store
        self._shingler = shingler
        self._sketcher = sketcher

    def append(self, appends: Sequence[Document], fences: Sequence[Fence]) -> Appended:
        """Append texts to documents, at most one to each.

        The entries are not stored yet, because the stored ones have to be removed from their buckets first.

        Args:
            appends: The texts.
            fences: Fences of the partitions of the batch.
        """
        if not appends:
            return Appended()
        numbers = [document_number(self._profile, document.id) for document in appends]
        found = self._store.get_entries(numbers)
        stored = [found.get(number) for number in numbers]
        states = [_state(document, entry) for document, entry in zip(appends, stored, strict=True)]
        missing = self._missing(appends, stored, states, fences)
        rows: list[tuple[Document, IndexEntry, InsertResult]] = []
        refused: list[tuple[Document, MessageError]] = []
        for document, entry, state in zip(appends, stored, states, strict=True):
            if entry is None or document.position in missing:
                refused.append((document, _unknown_document()))
            elif state is InsertState.COLLIDED:
                refused.append((document, collision(entry)))
            elif state is InsertState.REPLAYED:
                rows.append((document, entry, InsertResult(state, entry)))
            elif state is InsertState.SUPERSEDED:
                rows.append((document, _at(document, entry), InsertResult(state)))
            else:
                try:
                    rows.append((document, self._grown(document, entry), InsertResult(InsertState.REPLACED, entry)))
                except BagTooLarge as error:
                    refused.append((document, MessageError(ErrorCode.BAG_TOO_LARGE, str(error))))
        return Appended(rows, refused, sorted(missing))

    def _missing(
        self,
        appends: Sequence[Document],
        stored: Sequence[IndexEntry | None],
        states: Sequence[InsertState],
        fences: Sequence[Fence],
    ) -> frozenset[Position]:
        """Return the positions of appends whose document was missing in the first attempt.

        The result of the first attempt is stored with the pending matches, before a later record of the batch can
        insert the document. It is looked up for an append that a later version has superseded: the document may have
        been inserted after the first attempt.
        """
        pending: list[tuple[Position, PendingMatches]] = []
        for document, entry, state in zip(appends, stored, states, strict=True):
            if entry is None or (entry.deleted and state is InsertState.REPLACED):
                pending.append((document.position, PendingMatches(document_missing=True)))
            elif state is InsertState.SUPERSEDED:
                pending.append((document.position, PendingMatches()))
        if not pending:
            return frozenset()
        saved = self._store.save_pending_matches(pending, fences)
        return frozenset(position for (position, _), one in zip(pending, saved, strict=True) if one.document_missing)

    def _grown(self, document: Document, entry: IndexEntry) -> IndexEntry:
        """Return the entry after an append.

        Raises:
            BagTooLarge: The document is a bag beyond ``exact_limit``.
        """
        (content,) = grown(self._shingler, self._sketcher, [entry.content], [document.text])
        return structs.replace(
            entry,
            digest=blake2b(entry.digest + content_digest(document.text), digest_size=16).digest(),
            position=document.position,
            time_ms=document.time_ms,
            content=structs.replace(content, version=entry.version),
        )


def collision(stored: IndexEntry | None) -> MessageError:
    """Return the error of a document whose number belongs to another id."""
    other = "" if stored is None else stored.id
    text = f"the id shares its document number with the id {other!r}, which is indexed already"
    return MessageError(ErrorCode.ID_COLLISION, text)


def _unknown_document() -> MessageError:
    return MessageError(
        ErrorCode.UNKNOWN_DOCUMENT,
        "there is no document of this id to append to: it was never indexed, was deleted, or has expired",
    )


def _at(document: Document, entry: IndexEntry) -> IndexEntry:
    """Return a stored entry with id, position and time of an append."""
    return structs.replace(entry, id=document.id, position=document.position, time_ms=document.time_ms)


def _state(document: Document, entry: IndexEntry | None) -> InsertState:
    """Return the state of an append by position order; its content always differs from the stored one."""
    if entry is None:
        return InsertState.CREATED
    if not entry.deleted and entry.position == document.position:
        return InsertState.COLLIDED if entry.id != document.id else InsertState.REPLAYED
    return decide_version(entry, structs.replace(_at(document, entry), digest=b""))
