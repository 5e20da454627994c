"""Values of detection: the options of a detector, documents between its steps, its results; numbers and pair keys.

A *row* is the place of a document in a batch. ``indexes`` makes the options from settings. A new field of ``Detection``
also touches ``daemon.publisher``, a new count ``daemon.statistics``.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from hashlib import blake2b
from operator import add, attrgetter
from typing import NamedTuple

import numpy as np
from msgspec import structs
from numpy.typing import NDArray

from streamdedup.detection.suppression import Suppression, SuppressionRule
from streamdedup.errors import MessageError
from streamdedup.index.documents import Content, IndexEntry, InsertState
from streamdedup.position import Position
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.measures import MEASURES, Measure
from streamdedup.similarity.sketch import Similarities
from streamdedup.text.shingles import ShingleOptions
from streamdedup.wire import Document, Match


class Skip(StrEnum):
    """Reason why a document is skipped without an error; a metric label.

    The first three come from the text: the document gets an index entry, but is in no bucket. The last two come from
    the insertion (``InsertState``): this version is not stored.
    """

    #: No letters and digits, apart from those that the profile leaves out (stop words, ``letters_only``).
    EMPTY = "empty"
    #: Shorter than a shingle, in a profile that skips such texts.
    TOO_SHORT = "too_short"
    TOO_FEW_WORDS = "too_few_words"
    #: The index has the document with the same content, from another position.
    REDELIVERED = "redelivered"
    #: A later version is in the index.
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class DetectorOptions:
    """Rules and limits of one profile, mostly as in its settings; None stands for no limit, no rule or no such time.

    Attributes:
        permutations: Signature length; at least bands times rows.
        recall_from: Similarity from which pairs are promised; the detector does not read it.
        window_ms: Greatest difference between the record times in a pair.
        silent_until_ms: Documents with earlier record times form no pairs among themselves.
        label_bytes: Most UTF-8 bytes in a label; 0 for no captions (``captions``).
        default_scope: Scope for documents without one; None where each needs one.
        compares_redeliveries: Whether a document that the index has with the same text is compared again. True in an
            index that a program writes: a call that failed between entries and buckets is repeated at new positions.
            False for Kafka, where a record returns at its own position and counts as a replay.
    """

    profile: str
    shingles: ShingleOptions
    banding: Banding
    permutations: int
    seed: int
    threshold: float
    containment: ContainmentRule | None = None
    recall_from: float = 0.8
    measure: Measure = MEASURES["set"]
    min_shared_bands: int = 1
    min_words: int = 0
    exact_limit: int | None = 8192
    window_ms: int | None = None
    silent_until_ms: int | None = None
    max_candidates: int | None = None
    suppression: Suppression | None = None
    label_bytes: int = 0
    scope_field: str | None = None
    default_scope: str | None = None
    compares_redeliveries: bool = False

    def recall(self, similarity: float) -> float:
        """Return the least probability that a pair with this similarity (by ``measure``) is found."""
        return self.banding.probability(self.measure.least_jaccard(similarity), self.min_shared_bands)

    def near(self, similarities: Similarities) -> NDArray[np.bool_]:
        """Return which pairs are near-duplicates, by the threshold or the containment rule, bool (n,)."""
        return (similarities.values >= self.threshold) | self.containment_holds(similarities)

    def containment_holds(self, similarities: Similarities) -> NDArray[np.bool_]:
        """Return for which pairs the containment rule holds, independent of their similarity, bool (n,)."""
        if self.containment is None:
            return np.zeros(len(similarities.values), np.bool_)
        return self.containment.holds(similarities.overlaps.containments(), similarities.smaller_counts)

    def times_allow_pair(self, a_ms: int, b_ms: int) -> bool:
        """Tell whether record times allow a pair: within the window, and not both before ``silent_until_ms``."""
        if self.silent_until_ms is not None and max(a_ms, b_ms) < self.silent_until_ms:
            return False
        return self.window_ms is None or abs(a_ms - b_ms) <= self.window_ms

    def skip_reasons(self, token_counts: NDArray[np.int64], shingle_counts: NDArray[np.int64]) -> dict[int, Skip]:
        """Return the reason by row, for documents whose text keeps them out of the buckets; counts: int64 (n,)."""
        rows = np.flatnonzero((shingle_counts == 0) | (token_counts < self.min_words)).tolist()
        return {row: self._skip_reason(int(token_counts[row])) for row in rows}

    def stored_skip_reasons(self, contents: Sequence[Content]) -> dict[int, Skip]:
        """Return the reason by row, as ``skip_reasons``, for contents in the index."""
        token_counts = np.array([content.token_count for content in contents], np.int64)
        return self.skip_reasons(token_counts, np.array([content.sketch.count for content in contents], np.int64))

    def _skip_reason(self, token_count: int) -> Skip:
        if not token_count:
            return Skip.EMPTY
        # With enough tokens, `skip_reasons` has chosen the row because it has no shingles.
        return Skip.TOO_FEW_WORDS if token_count < self.min_words else Skip.TOO_SHORT


@dataclass(frozen=True, slots=True)
class Prepared:
    """Documents with all values that are computed without the index.

    Attributes:
        documents: Documents with their whole text, in order; each has a row in ``entries`` and ``band_keys``.
        skips: Reason for each document that is not inserted in buckets, by row.
        appends: Documents whose text is appended to a document in the index; they have no rows.
        encoded: Result of ``DocumentStore.encode_entries`` for the entries; None where it was not computed ahead.
    """

    documents: Sequence[Document]
    entries: Sequence[IndexEntry]
    band_keys: NDArray[np.uint32]
    skips: Mapping[int, Skip]
    appends: Sequence[Document] = ()
    encoded: Sequence[bytes] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertedBatch:
    """Documents whose entries are in the index: a row for each of ``Prepared``, then one for each append.

    Attributes:
        entries: The entries to compare; some differ from the prepared ones (``lifecycle``).
        to_look_up: Rows to insert in buckets and to look up.
        refused: Appends that can never be processed, and documents whose number belongs to another id.
        missing_positions: Positions of the refused appends whose document was missing at the first attempt. Pending
            matches there say so (``missing_at_first_attempt``), and are deleted after the commit.
    """

    documents: Sequence[Document]
    entries: Sequence[IndexEntry]
    states: Sequence[InsertState]
    band_keys: NDArray[np.uint32]
    skips: Mapping[int, Skip]
    to_look_up: Sequence[int]
    refused: Sequence[tuple[Document, MessageError]]
    missing_positions: Sequence[Position]


class Spread(NamedTuple):
    """Source count, first and last time, and earliest document of a cluster with sources, in a profile with labels.

    ``earliest_id`` is None where the earliest document left the index or has another scope.
    """

    sources: int
    since_ms: int
    until_ms: int
    earliest_id: str | None = None
    earliest_source: str | None = None


@dataclass(frozen=True, slots=True)
class Detection:
    """A document with at least one pair to publish; fields of the cluster are those of ``wire.alerts.Alert``.

    Attributes:
        digest: Content digest of the document as of this record, 16 bytes. A replay takes the saved digest, because a
            later append may have changed the one in the entry.
        matches: Near-duplicates whose pair this position owns (claimed), the most similar first, then by id.
        incarnation: Incarnation of the document, 8 bytes; empty for the first.
        complete: Whether all candidates were compared; not where a bucket was full or there were too many candidates.
        suppressed: Further near-duplicates that are not alerted.
    """

    document: Document
    digest: bytes
    matches: tuple[Match, ...]
    cluster_id: str
    label: str = ""
    cluster_label: str = ""
    incarnation: bytes = b""
    cluster_size: int | None = None
    spread: Spread | None = None
    complete: bool = True
    suppressed: Mapping[SuppressionRule, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DetectionResult:
    """Result of ``Detector.index`` or ``Detector.delete``, or of one step of ``index``, for a batch or a chunk.

    Attributes:
        pending_positions: Positions whose pending matches in the index are to be deleted after the commit.
        indexed_count: Documents neither skipped nor refused.
        replayed_count: Indexed documents at or above the high-water mark that an earlier attempt inserted.
        silent_count: Indexed documents that emit nothing (below the high-water mark), and warm-up documents (record
            time before ``silent_until_ms``), which form no pairs among themselves.
        unexplained_count: Of the silent_count, those below the high-water mark in partitions without a committed
            offset. Kafka has lost the offset: an operator who sets an offset back leaves one.
        deleted_count: Requests to delete a document, in the index or not, that are not refused.
        deleted_unknown_count: Of the deleted_count, requests for a document without an entry or marker in the index.
        candidates_count: For documents at or above the high-water mark: candidates from buckets, and exact copies that
            come from no bucket but are compared.
        dropped_candidates_count: Of these candidates, those that are not compared (``candidates``).
        accepted_count: Candidates compared and found near-duplicates, suppressed ones included.
        rejected_count: Candidates compared and found different, outside the scope or the window, or gone.
        full_buckets_count: Full buckets into which a document was not inserted, counted for each document.
        over_candidates_positions: Positions of documents with more than ``max_candidates`` candidates and no full
            bucket.
        hidden: Documents at or above the high-water mark that have no match, and full buckets in all bands. They are in
            no ordinary bucket, so later near-duplicates, exact copies apart, miss them too.
    """

    detections: tuple[Detection, ...] = ()
    skipped: tuple[tuple[Document, Skip], ...] = ()
    refused: tuple[tuple[Document, MessageError], ...] = ()
    pending_positions: tuple[Position, ...] = ()
    indexed_count: int = 0
    replayed_count: int = 0
    silent_count: int = 0
    unexplained_count: int = 0
    deleted_count: int = 0
    deleted_unknown_count: int = 0
    candidates_count: int = 0
    dropped_candidates_count: int = 0
    accepted_count: int = 0
    suppressed: Counter[SuppressionRule] = field(default_factory=Counter)
    rejected_count: int = 0
    full_buckets_count: int = 0
    full_bucket_positions: tuple[Position, ...] = ()
    over_candidates_positions: tuple[Position, ...] = ()
    hidden: tuple[Document, ...] = ()

    def __add__(self, added: "DetectionResult") -> "DetectionResult":
        """Return the result of two steps, or of two chunks: numbers and counters are added, tuples joined."""
        return DetectionResult(*map(add, _field_values(self), _field_values(added)))


#: Getter of all field values of a result, as a tuple in field order.
_field_values = attrgetter(*(each.name for each in fields(DetectionResult)))  # `astuple` would copy deeply


def document_number(profile: str, document_id: str) -> int:
    """Return the document number for buckets: BLAKE2b over profile and id, signed 64 bits."""
    name = f"{profile}\0{document_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big", signed=True)


def pair_side(entry: IndexEntry) -> bytes:
    """Return a document's part in its pair keys: number and digest, and the incarnation after a deletion.

    The digest is that of the text before the first append, so that an append repeats no alert.
    """
    return entry.number.to_bytes(8, "big", signed=True) + entry.pair_digest + (entry.content.incarnation or b"")


def incarnation_after(deletion: Position) -> bytes:
    """Return the name of the incarnation of a document after a deletion; each deletion begins another one."""
    return blake2b(deletion.key.encode(), digest_size=8).digest()


def with_incarnation(entry: IndexEntry, stored: IndexEntry) -> IndexEntry:
    """Return a version with the incarnation of its document; ``stored`` is an earlier version or a deletion marker.

    A document that is inserted after its deletion begins a new incarnation, whose pairs are alerted anew; its later
    versions belong to the same incarnation.
    """
    incarnation = incarnation_after(stored.position) if stored.deleted else stored.content.incarnation
    if incarnation is None:
        return entry
    return structs.replace(entry, content=structs.replace(entry.content, incarnation=incarnation))


def pair_key(a: bytes, b: bytes) -> bytes:
    """Return the name for a pair of versions, 16 bytes, the same for either order of the sides."""
    return blake2b(a + b if a < b else b + a, digest_size=16).digest()


def alert_order(match: Match) -> tuple[float, str]:
    """Return the sort key of matches: the most similar first, then by id."""
    return -match.similarity, match.id
