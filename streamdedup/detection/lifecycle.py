"""Writes the index entries of a chunk: inserts, replaces, appends and deletes.

Called by ``detector``. A change here must pass ``tests/simulation``. A chunk has one content of each document, perhaps
with redeliveries (``chunks.split_documents``): a repeated number is a redelivery, or a collision of two ids.

An earlier version is removed from its buckets before its entry changes (rule 9 of ``index.contract``). ``InsertState``
in ``index.documents`` says how the index treats a version.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from streamdedup.detection.appending import Appender, InsertedVersion, collision, missing_at_first_attempt
from streamdedup.detection.model import (
    DetectionResult,
    DetectorOptions,
    InsertedBatch,
    Prepared,
    Skip,
    document_number,
    with_incarnation,
)
from streamdedup.detection.preparation import Preparer
from streamdedup.errors import MessageError
from streamdedup.index.contract import Index
from streamdedup.index.documents import IndexEntry, InsertResult, InsertState, decide_version, deletion_marker
from streamdedup.index.values import Fence
from streamdedup.position import Partition, Position
from streamdedup.wire import KEY_ADVICE, Document, ErrorCode

#: Message for a deletion whose id is unknown and doubtful (``Document.doubtful``: a key that does not look like an id).
_UNKNOWN_ID = f'the index knows no document whose id is the key as a text; {KEY_ADVICE}, to "text" if it is the id'
#: States in which a document is always looked up, unless it is skipped.
_LOOKED_UP_STATES = frozenset({InsertState.CREATED, InsertState.REPLACED, InsertState.REPLAYED})
#: States in which the index keeps another content than that of the version.
_NOT_STORED_STATES = frozenset({InsertState.SUPERSEDED, InsertState.COLLIDED})


class Lifecycle:
    """Writes index entries: ``insert`` is step 1 of ``Detector.index``, ``delete`` the whole of ``Detector.delete``."""

    def __init__(self, options: DetectorOptions, store: Index, preparer: Preparer) -> None:
        self._options = options
        self._store = store
        self._preparer = preparer
        self._appender = Appender(options.profile, store, preparer.shingler, preparer.sketcher)

    def insert(self, prepared: Prepared, fences: Mapping[Partition, Fence]) -> InsertedBatch:
        """Insert the entries of a chunk.

        First insert the entries of new documents. Then compute the entries after appends, which get further rows. Last
        remove replaced versions from their buckets, replace their entries and renew their clusters.
        """
        fence_list = list(fences.values())
        inserted = self._insert_entries(prepared, fence_list)
        appended = self._appender.append(prepared.appends, fences)
        band_keys, skips = self._with_appended(prepared, [version.entry for version in appended.versions])
        versions = [*inserted, *appended.versions]
        self._replace([version for version in versions if version.state is InsertState.REPLACED], fence_list)
        compares_redeliveries = self._options.compares_redeliveries
        collisions = [
            (version.document, collision(version.previous))
            for version in inserted
            if version.state is InsertState.COLLIDED and version.previous is not None  # always, in this state
        ]
        return InsertedBatch(
            documents=[version.document for version in versions],
            entries=[version.entry for version in versions],
            states=[version.state for version in versions],
            band_keys=band_keys,
            skips=skips,
            to_look_up=[
                row
                for row, version in enumerate(versions)
                if row not in skips
                and (version.state in _LOOKED_UP_STATES or _is_compared_again(version, compares_redeliveries))
            ],
            refused=[*appended.refused, *collisions],
            missing_positions=appended.missing_positions,
        )

    def _insert_entries(self, prepared: Prepared, fences: Sequence[Fence]) -> list[InsertedVersion]:
        """Insert an entry for each document of the chunk; return all versions (``_entry_to_compare``)."""
        entries, encoded = prepared.entries, prepared.encoded
        if not entries:
            return []
        first_rows: dict[int, int] = {}  # by document number
        for row, entry in enumerate(entries):
            first_rows.setdefault(entry.number, row)
        rows = list(first_rows.values())
        encoded_rows = None if encoded is None else [encoded[row] for row in rows]
        inserted = self._store.insert_entries([entries[row] for row in rows], fences, encoded_rows)
        results = dict(zip(rows, inserted, strict=True))
        versions: list[InsertedVersion] = []
        for row, (document, entry) in enumerate(zip(prepared.documents, entries, strict=True)):
            first_row = first_rows[entry.number]
            result = results[row] if row == first_row else _result_after(versions[first_row], entries[first_row], entry)
            version = InsertedVersion(document, entry, result.state, result.previous)
            if version.previous is not None:
                version = version._replace(entry=self._entry_to_compare(version, version.previous))
            versions.append(version)
        return versions

    def _entry_to_compare(self, version: InsertedVersion, stored: IndexEntry) -> IndexEntry:
        """Return the entry that is looked up and compared for a version, where the index had the entry ``stored``.

        - Replaced: the new version, with the document's incarnation; it is also stored.
        - Replayed: the entry with time and content from the first attempt. Kafka may set back a time in the future, and
          the window must be the same for all attempts.
        - Redelivered and compared again: the stored entry. Claims keep pairs from a second alert.
        - In the other states: the entry itself, which is not looked up.
        """
        if version.state is InsertState.REPLACED:
            return with_incarnation(version.entry, stored)
        if version.state is InsertState.REPLAYED:
            return structs.replace(version.entry, time_ms=stored.time_ms, content=stored.content)
        return stored if _is_compared_again(version, self._options.compares_redeliveries) else version.entry

    def _with_appended(
        self, prepared: Prepared, entries: Sequence[IndexEntry]
    ) -> tuple[NDArray[np.uint32], Mapping[int, Skip]]:
        """Return band keys and skips with further rows for the entries after appends."""
        if not entries:
            return prepared.band_keys, prepared.skips
        contents = [entry.content for entry in entries]
        band_keys = np.concatenate([prepared.band_keys, self._preparer.band_keys(contents)])
        first_row, reasons = len(prepared.band_keys), self._options.stored_skip_reasons(contents)
        return band_keys, {**prepared.skips, **{first_row + row: reason for row, reason in reasons.items()}}

    def _replace(self, versions: Sequence[InsertedVersion], fences: Sequence[Fence]) -> None:
        """Remove replaced versions from buckets and clusters, then replace their entries."""
        if not versions:
            return
        with_old = [(version, old) for version in versions if (old := version.previous) is not None and not old.deleted]
        self._remove_from_buckets([old for _, old in with_old], fences)
        # A new version belongs to no cluster at first; after an append the document stays in its cluster.
        self._leave_clusters([old for version, old in with_old if version.document.op != "append"], fences)
        self._store.replace_entries([version.entry for version in versions], fences)
        # Documents with appended text join their clusters again, so that the sets live as long as they do.
        appended = [version.entry for version in versions if version.document.op == "append"]
        joined = [(entry.number, entry.position, entry.cluster) for entry in appended if entry.cluster != entry.number]
        if joined:
            self._store.set_clusters(joined, fences)

    def delete(self, documents: Sequence[Document], fences: Mapping[Partition, Fence]) -> DetectionResult:
        """Delete documents: remove them from their buckets, then replace the entries by deletion markers.

        Claims stay until they expire (rule 9): they hold hashes and a position, nothing of the text.

        A document that is not in the index gets a marker, too, so that a delayed earlier version is not inserted; a
        deletion with a doubtful id is refused instead.
        """
        numbers = [document_number(self._options.profile, document.id) for document in documents]
        entries = self._store.get_entries(numbers)
        rows = [
            (document, deletion_marker(number, document.position, document.time_ms), entries.get(number))
            for document, number in zip(documents, numbers, strict=True)
        ]
        fence_list = list(fences.values())
        missing_now, undecided = _missing_and_undecided(rows)
        missing_at_first = missing_at_first_attempt(self._store, missing_now, undecided, fences)
        unknown = missing_now | missing_at_first
        markers, removed, refused = [], [], []
        for document, marker, stored in rows:
            if document.doubtful and document.position in unknown:
                refused.append((document, MessageError(ErrorCode.INVALID_ID, _UNKNOWN_ID)))
            elif not _is_foreign(document, stored):
                markers.append(marker)  # ``replace_entries`` keeps a stored version from a later position
                if stored and not stored.deleted and decide_version(stored, marker) is InsertState.REPLACED:
                    removed.append(stored)
        self._remove_from_buckets(removed, fence_list)
        self._leave_clusters(removed, fence_list)
        if markers:
            self._store.replace_entries(markers, fence_list)
        return DetectionResult(
            refused=tuple(refused),
            pending_positions=tuple(sorted(missing_at_first)),
            deleted_count=len(documents) - len(refused),
            deleted_unknown_count=len(unknown) - len(refused),  # all refused ones are unknown
        )

    def _remove_from_buckets(self, entries: Sequence[IndexEntry], fences: Sequence[Fence]) -> None:
        if not entries:
            return
        keys = self._preparer.band_keys([entry.content for entry in entries])
        self._store.remove_from_buckets([entry.number for entry in entries], keys, fences)
        self._store.remove_copies([(entry.number, entry.digest) for entry in entries], fences)

    def _leave_clusters(self, entries: Sequence[IndexEntry], fences: Sequence[Fence]) -> None:
        """Remove versions from the sets of the clusters that they joined, and of their own clusters."""
        members = [(entry.number, cluster) for entry in entries for cluster in {entry.cluster, entry.number}]
        if members:
            self._store.leave_clusters(members, fences)


def _result_after(first: InsertedVersion, first_entry: IndexEntry, entry: IndexEntry) -> InsertResult:
    """Return what the index would do with ``entry`` after ``first`` of the same number, inserted as ``first_entry``."""
    state = decide_version(first_entry, entry)
    if state is InsertState.REDELIVERED and first.state in _NOT_STORED_STATES:
        return InsertResult(first.state, first.previous)  # the index refuses the same content again
    return InsertResult(state, first.entry)


def _is_compared_again(version: InsertedVersion, compares_redeliveries: bool) -> bool:
    """Tell whether a redelivered document is looked up and compared all the same.

    - It was inserted by another partition, or by an earlier incarnation of its own. If the index was lost during the
      first attempt at this position, that insertion may have been silent (below the high-water mark).
    - ``DetectorOptions.compares_redeliveries``: the call that stored the entry may have ended before the buckets.
    """
    document, _, state, stored = version
    if state is not InsertState.REDELIVERED:
        return False
    return compares_redeliveries or (
        stored is not None and stored.position.partition_incarnation != document.position.partition_incarnation
    )


def _missing_and_undecided(
    rows: Sequence[tuple[Document, IndexEntry, IndexEntry | None]],
) -> tuple[set[Position], set[Position]]:
    """Return two sets for ``missing_at_first_attempt``; ``rows``: document to delete, its marker, stored entry.

    - Missing: the index has no entry of the document. A deletion marker counts as an entry, because a stream may delete
      each document twice.
    - Undecided: it has an entry from this position or a later one.
    - Neither: it has an entry from an earlier position, which the deletion replaces, or an earlier row deletes it.
    """
    missing_now, undecided = set(), set()
    marked: set[int] = set()  # by earlier rows
    for document, marker, stored in rows:
        if marker.number in marked:
            continue
        if stored is None or _is_foreign(document, stored):
            missing_now.add(document.position)
            if not document.doubtful:  # a doubtful deletion is refused, and writes no marker
                marked.add(marker.number)
        elif decide_version(stored, marker) is not InsertState.REPLACED:
            undecided.add(document.position)
    return missing_now, undecided


def _is_foreign(document: Document, stored: IndexEntry | None) -> bool:
    """Tell whether the entry with the number of a document belongs to another id."""
    return stored is not None and not stored.deleted and stored.id != document.id
