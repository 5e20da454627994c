"""Writing an index without Kafka. Called by ``library.Index``.

A program owns the only partition of its index, as a daemon owns the partitions of topics. docs/library.md describes it.
"""

import time
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import blake2b
from typing import NamedTuple, Self

from streamdedup import clock
from streamdedup.detection.chunks import CHUNK_CHARACTERS, CHUNK_DOCUMENTS, split_documents
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import DetectionResult, DetectorOptions
from streamdedup.errors import BatchRefused, IndexNotWritable
from streamdedup.index.contract import Index
from streamdedup.index.values import Fence, Fingerprint
from streamdedup.position import Partition, Position
from streamdedup.wire import Document, Match

#: The one partition of all documents.
_PARTITION = Partition("library", 0)
#: The generation of all programs. Of two programs the last one to set the fence owns the partition, because the index
#: also stores the fence's writer, and refuses another one (rule 7 of ``index.contract``).
_GENERATION = 1
#: Age at which a fence is renewed, in seconds; the fence lives for 7 days.
_RENEWAL_S = 86_400.0
#: Calls that are remembered, the present one included: threads that share an index may each have a failed one.
_MOST_UNFINISHED = 17
_TAKEN_OVER = (
    "another program has taken the right to write to this index, or this one has not written for 7 days. One program "
    "at a time writes to an index: let one process add all documents, or give each its own index with name=...; to "
    "take the right back, connect again"
)

#: Id, text, source and scope of a document.
Added = tuple[str, str, str | None, str | None]


class Matches(tuple[Match, ...]):  # noqa: SLOT001  slots would exclude ``complete``
    """The matches of a document or text, the most similar first; for programs."""

    #: False where a bucket was full, or candidates were beyond ``max_candidates``.
    complete: bool

    def __new__(cls, matches: Iterable[Match] = (), *, complete: bool = True) -> Self:
        self = super().__new__(cls, matches)
        self.complete = complete
        return self


class _UnfinishedCall(NamedTuple):
    """A call of ``add`` that has failed: the ids of its documents, and the position of each.

    ``positions`` change in place when another call writes one of the ids (``_postpone_unfinished``).
    """

    ids: list[str]
    positions: list[Position]


@contextmanager
def _raising_taken_over() -> Iterator[None]:
    """Raise ``IndexNotWritable`` when the store refuses the fence, which it does in all later calls too."""
    try:
        yield
    except BatchRefused as error:
        raise IndexNotWritable(_TAKEN_OVER) from error


class IndexWriter:
    """Writes an index as the owner of its only partition.

    A call's offsets are reserved in the high-water mark before the call writes, so that no later writer gives the
    same offsets to other documents. After a failed ``add`` the writer remembers the call with its positions, and
    the index the pending matches: a repeated call has the same positions, and returns the same pairs. Exception:
    documents that other calls have written since.

    A call that is repeated by another program, or is forgotten, has other positions. Its documents are looked up again
    (``compares_redeliveries``), because their first insertion may have ended between entry and buckets.
    """

    def __init__(self, options: DetectorOptions, store: Index, fingerprint: Fingerprint) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._detector = Detector(replace(options, compares_redeliveries=True), store)
        #: Fence of the first write, also for all later ones: a renewed one has a raised high-water mark, below which a
        #: repeated ``add`` emits no pairs. None before the first write.
        self._fence: Fence | None = None
        self._fenced_at_s = 0.0  # monotonic time of the last renewal
        self._next_offset = 0  # of the next document; begins at the high-water mark of the first fence
        #: The failed calls of ``add``, by a digest of their documents.
        self._unfinished: dict[bytes, _UnfinishedCall] = {}

    @_raising_taken_over()
    def add(self, added: Sequence[Added]) -> list[Matches]:
        """Insert documents; return the matches of each, also when a failed call is repeated."""
        if not added:
            return []
        fence = self._ensured_fence()
        ids, digest = [document_id for document_id, *_ in added], _digest(added)
        # A repeated call has the same positions.
        call = self._unfinished.get(digest) or _UnfinishedCall(ids, self._reserve_positions(len(ids), fence))
        self._postpone_unfinished(set(ids), fence, but=call)
        self._unfinished[digest] = call
        if len(self._unfinished) > _MOST_UNFINISHED:
            del self._unfinished[next(iter(self._unfinished))]
        now_ms = clock.now_ms()
        documents = [
            Document(document_id, text, position, now_ms, source=source, scope=scope)
            for (document_id, text, source, scope), position in zip(added, call.positions, strict=True)
        ]
        result = DetectionResult()
        for chunk in split_documents(documents, CHUNK_DOCUMENTS, CHUNK_CHARACTERS):
            result += self._detector.index(self._detector.prepare(chunk), {_PARTITION: fence})
        # Deletes pending matches; the high-water mark was raised before (``_reserve_positions``).
        self._store.finish({}, result.pending_positions, [fence])
        del self._unfinished[digest]
        if result.refused:
            # A document number that belongs to another id, which is rare. The other documents are indexed; their pairs
            # are claimed, and no later call returns them.
            _, error = result.refused[0]
            raise error
        matches = {detection.document.position: detection.matches for detection in result.detections}
        incomplete = {*result.full_bucket_positions, *result.over_candidates_positions}
        return [
            Matches(matches.get(document.position, ()), complete=document.position not in incomplete)
            for document in documents
        ]

    @_raising_taken_over()
    def remove(self, ids: Sequence[str]) -> None:
        if not ids:
            return
        fence = self._ensured_fence()
        positions, now_ms = self._reserve_positions(len(ids), fence), clock.now_ms()
        documents = [
            Document(document_id, "", position, now_ms, "delete")
            for document_id, position in zip(ids, positions, strict=True)
        ]
        self._postpone_unfinished(set(ids), fence)
        for chunk in split_documents(documents, CHUNK_DOCUMENTS, CHUNK_CHARACTERS):
            result = self._detector.delete(chunk, {_PARTITION: fence})
            self._store.finish({}, result.pending_positions, [fence])

    def _postpone_unfinished(self, ids: Collection[str], fence: Fence, but: _UnfinishedCall | None = None) -> None:
        """Move documents of other failed calls behind this call, so that their repetition replaces its versions."""
        for call in self._unfinished.values():
            rows = [row for row, document_id in enumerate(call.ids) if document_id in ids]
            if rows and call is not but:
                for row, position in zip(rows, self._reserve_positions(len(rows), fence), strict=True):
                    call.positions[row] = position

    def _ensured_fence(self) -> Fence:
        """Set the fence in the index before the first write, and again once a day; return the first one."""
        if self._fence is None:
            self._store.open(self._fingerprint)
            self._fence = self._set_fence()
            self._next_offset = self._fence.high_water_mark
            self._fenced_at_s = time.monotonic()
        elif time.monotonic() - self._fenced_at_s > _RENEWAL_S:
            # Refused where another program has taken the fence; otherwise nothing changes.
            self._store.finish({_PARTITION: self._next_offset}, [], [self._fence])
            # A program that takes the fence between these calls loses it again; its positions are below the mark.
            self._next_offset = max(self._next_offset, self._set_fence().high_water_mark)
            self._fenced_at_s = time.monotonic()
        return self._fence

    def _set_fence(self) -> Fence:
        """Take over the partition; ``start`` 0 leaves high-water mark and pending matches as they are."""
        fence = self._store.fence(_PARTITION, generation=_GENERATION, start=0)
        # Again, now that the fence is set: the index may have been begun anew with another profile meanwhile.
        self._store.open(self._fingerprint, create=False)
        return fence

    def _reserve_positions(self, count: int, fence: Fence) -> list[Position]:
        """Reserve positions in the index, so that no later call by any writer uses them."""
        start, end = self._next_offset, self._next_offset + count
        # Raises the mark in the index alone: that of ``fence`` stays lower, so the documents emit their pairs.
        self._store.finish({_PARTITION: end}, positions=[], fences=[fence])
        self._next_offset = end
        return [fence.position_at(offset) for offset in range(start, end)]


def _digest(added: Sequence[Added]) -> bytes:
    digest = blake2b(digest_size=16)
    for fields in added:
        digest.update(repr(fields).encode())
    return digest.digest()
