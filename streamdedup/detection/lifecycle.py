"""The life of a document after it was placed: continued, replaced, deleted.

What stands in the index is read, the old version leaves its buckets, and only then is its record changed: after a crash
in between, the record still tells which buckets are to be left (rule 9 of ``index.contract``).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from streamdedup.detection.content import BagTooLarge, grown
from streamdedup.detection.model import DetectionResult, DetectorOptions, document_number
from streamdedup.errors import MessageError
from streamdedup.index.contract import Index
from streamdedup.index.documents import (
    Content,
    IndexEntry,
    InsertResult,
    InsertState,
    PendingMatches,
    decide_version,
    deletion_marker,
)
from streamdedup.index.values import Fence, Listed, ListedDocument
from streamdedup.similarity.sketch import Sketch, Sketcher
from streamdedup.text.shingles import Shingler
from streamdedup.wire import Document, ErrorCode, content_digest


@dataclass(slots=True)
class Continued:
    """What comes of documents that continue others; the lists are aligned.

    Attributes:
        documents: Those that continue a document that is there, or did so in an earlier attempt.
        records: Its record as it is to be.
        results: As if that record had been put.
    """

    documents: list[Document] = field(default_factory=list)
    records: list[IndexEntry] = field(default_factory=list)
    results: list[InsertResult] = field(default_factory=list)

    def add(self, document: Document, record: IndexEntry, result: InsertResult) -> None:
        """Add one."""
        self.documents.append(document)
        self.records.append(record)
        self.results.append(result)


class Changes:
    """Changes what is in the index of a profile.

    Args:
        options: Of the detector.
        store: The index.
        shingler: Makes shingles of what is appended.
        sketcher: Makes the sketches that come of it.
    """

    def __init__(self, options: DetectorOptions, store: Index, shingler: Shingler, sketcher: Sketcher) -> None:
        self._options = options
        self._store = store
        self._shingler = shingler
        self._sketcher = sketcher

    def band_keys(self, sketches: Sequence[Sketch]) -> NDArray[np.uint32]:
        """Return the band keys of sketches, shape (n, bands)."""
        banding = self._options.banding
        return banding.band_keys(self._sketcher.signatures(sketches, banding.permutations))

    # Continue

    def continued(self, appends: Sequence[Document], rights: Sequence[Fence], outcome: DetectionResult) -> Continued:
        """Continue documents, each at most once.

        Args:
            appends: What follows each.
            rights: Rights to write.
            outcome: Takes those that can never be processed.
        """
        numbers = [document_number(self._options.profile, document.id) for document in appends]
        found = self._store.get_entries(numbers)
        continued = Continued()
        growing: list[tuple[Document, IndexEntry]] = []
        unknown: list[Document] = []
        overtaken: list[tuple[Document, IndexEntry]] = []
        for document, number in zip(appends, numbers, strict=True):
            stored = found.get(number)
            state = _state(document, stored)
            if stored is None or (stored.deleted and state is InsertState.REPLACED):
                unknown.append(document)
            elif state is InsertState.COLLIDED:
                outcome.refused.append((document, collision(InsertResult(state, stored))))
            elif state is InsertState.REPLAYED:
                continued.add(document, stored, InsertResult(state, stored))
            elif state is InsertState.SUPERSEDED:
                overtaken.append((document, stored))
            else:
                growing.append((document, stored))
        refused = self._note_unknown(unknown, [document for document, _ in overtaken], rights)
        outcome.refused += [(document, _unknown()) for document in refused]
        outcome.pending_positions += [document.position for document in refused]
        for document, stored in overtaken:
            if document not in refused:
                continued.add(document, _at(document, stored), InsertResult(InsertState.SUPERSEDED))
        self._grow(growing, continued, outcome)
        return continued

    def _note_unknown(
        self, unknown: Sequence[Document], overtaken: Sequence[Document], rights: Sequence[Fence]
    ) -> list[Document]:
        """Note which additions met no document, before any later record of the batch can place one.

        Args:
            unknown: Those that meet none now.
            overtaken: Those that meet a later version, perhaps of a document that was not there at first.
            rights: Rights to write.

        Returns:
            Those that met none, now or in an earlier attempt.
        """
        documents = [*unknown, *overtaken]
        if not documents:
            return []
        notes = [PendingMatches(document_missing=True)] * len(unknown) + [PendingMatches()] * len(overtaken)
        positions = [document.position for document in documents]
        saved = self._store.save_pending_matches(list(zip(positions, notes, strict=True)), rights)
        return [document for document, pending in zip(documents, saved, strict=True) if pending.document_missing]

    def _grow(
        self, growing: Sequence[tuple[Document, IndexEntry]], continued: Continued, outcome: DetectionResult
    ) -> None:
        for document, stored in growing:
            try:
                (content,) = grown(self._shingler, self._sketcher, [stored.content], [document.text])
            except BagTooLarge as error:
                outcome.refused.append((document, MessageError(ErrorCode.BAG_TOO_LARGE, str(error))))
            else:
                record = _continued_record(document, stored, content)
                continued.add(document, record, InsertResult(InsertState.REPLACED, stored))

    # Take out

    def withdraw(self, records: Sequence[IndexEntry], rights: Sequence[Fence]) -> None:
        """Take versions out of their buckets.

        Args:
            records: The versions, as they stand.
            rights: Rights to write.

        """
        if not records:
            return
        keys = self.band_keys([record.content.sketch for record in records])
        self._store.remove_from_buckets([record.number for record in records], keys, rights)
        self._store.remove_copies([(record.number, record.digest) for record in records], rights)

    def evict(self, listed: Listed, fence: Fence) -> int:
        """Remove expired documents from the index: first from their buckets, then the index entries.

        Args:
            listed: Listed documents and claims; a document that has moved to another position is left alone.
            fence: Right to write for their partition.

        Returns:
            How many documents were still at the position that is listed.
        """
        found = self._store.get_entries([each.number for each in listed.documents])
        documents = set(listed.documents)
        old = [one for one in found.values() if ListedDocument(one.number, one.position, one.time_ms) in documents]
        self.withdraw([record for record in old if not record.deleted], [fence])
        self._store.evict(listed, fence)
        return len(old)

    def delete(self, documents: Sequence[Document], rights: Sequence[Fence]) -> None:
        """Take documents out of the index: first out of their buckets, then the record.

        Claims stay until their time is over; they hold hashes and a position. Without them a replay of the other
        document of a pair, whose partners are saved, would alert it a second time.

        Args:
            documents: What is to be deleted; one that is not there leaves a marker too, against a late attempt to place
                an earlier version.
            rights: Rights to write.
        """
        numbers = [document_number(self._options.profile, document.id) for document in documents]
        found = self._store.get_entries(numbers)
        markers, leaving = [], []
        for document, number in zip(documents, numbers, strict=True):
            stored = found.get(number)
            if stored is not None and not stored.deleted and stored.id != document.id:
                continue  # another document has this number, so this one was never placed
            marker = deletion_marker(number, document.position, document.time_ms)
            markers.append(marker)
            if stored is not None and not stored.deleted and decide_version(stored, marker) is InsertState.REPLACED:
                leaving.append(stored)
        self.withdraw(leaving, rights)
        if markers:
            self._store.replace_entries(markers, rights)


def in_its_incarnation(record: IndexEntry, before: IndexEntry) -> IndexEntry:
    """Return a record that names the life of its document.

    A document that is placed after it was deleted is another one, whose pairs are alerted anew; its later versions
    belong to the same life.

    Args:
        record: The record to be.
        before: What stands in its place: the version before, or the marker of the deletion.
    """
    if before.deleted:
        incarnation: bytes | None = blake2b(before.position.key.encode(), digest_size=8).digest()
    else:
        incarnation = before.content.incarnation
    if incarnation is None:
        return record
    return structs.replace(record, content=structs.replace(record.content, incarnation=incarnation))


def collision(result: InsertResult) -> MessageError:
    """Return the error of a document whose number belongs to another id."""
    other = "" if result.previous is None else result.previous.id
    text = f"the id shares its document number with the id {other!r}, which is indexed already"
    return MessageError(ErrorCode.ID_COLLISION, text)


def _unknown() -> MessageError:
    return MessageError(
        ErrorCode.UNKNOWN_DOCUMENT,
        "there is no document of this id to append to: it was never indexed, was deleted, or has expired",
    )


def _at(document: Document, stored: IndexEntry) -> IndexEntry:
    """Return a record in the place of a later one, by the position of the document that it was overtaken by."""
    return structs.replace(stored, id=document.id, position=document.position, time_ms=document.time_ms)


def _state(document: Document, stored: IndexEntry | None) -> InsertState:
    """Decide by position order what becomes of an addition; its content is always another."""
    if stored is None:
        return InsertState.CREATED
    if not stored.deleted and stored.position == document.position:
        return InsertState.COLLIDED if stored.id != document.id else InsertState.REPLAYED
    return decide_version(stored, structs.replace(_at(document, stored), digest=b""))


def _continued_record(document: Document, stored: IndexEntry, content: Content) -> IndexEntry:
    digest = blake2b(stored.digest + content_digest(document.text), digest_size=16).digest()
    return structs.replace(
        stored,
        digest=digest,
        position=document.position,
        time_ms=document.time_ms,
        content=structs.replace(content, version=stored.version),
    )
