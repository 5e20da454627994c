"""Input and output values of detection, and the names of documents and pairs."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.suppression import Suppression, SuppressionRule
from streamdedup.errors import MessageError
from streamdedup.index.documents import IndexEntry, InsertState
from streamdedup.position import Position
from streamdedup.similarity.containment import ContainmentRule
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.measures import MEASURES, Measure
from streamdedup.similarity.sketch import Similarities
from streamdedup.text.shingles import ShingleOptions
from streamdedup.wire import Alert, Document, Match


class Skip(StrEnum):
    """Reason why a document is skipped without an error; a metric label."""

    #: No letter and no digit.
    EMPTY = "empty"
    #: Fewer tokens than one shingle has, in a profile that skips such texts.
    TOO_SHORT = "too_short"
    #: Fewer words than the profile asks for.
    TOO_FEW_WORDS = "too_few_words"
    #: The same version was delivered before.
    REDELIVERED = "redelivered"
    #: A later version is in the index.
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class DetectorOptions:
    """Definition of a near-duplicate in one profile.

    Attributes:
        profile: Name of the profile; part of the document numbers.
        shingles: Definition of a shingle.
        banding: Bands and rows.
        permutations: Length of a signature; at least bands times rows.
        seed: Seed of the hash family.
        threshold: Least similarity of a reported pair, in (0, 1].
        containment: Rule by which other pairs are reported; None for no rule.
        measure: Measure of similarity.
        min_shared_bands: Least number of shared band keys of a reported pair.
        min_words: Documents with fewer tokens are skipped.
        exact_limit: Documents of at most so many shingles are stored as sets and compared exactly; None for all.
        window_ms: Greatest difference of the record times of a pair, in milliseconds; None for no limit.
        silent_until_ms: Documents with earlier record times, in milliseconds since the epoch, form no pairs among
            themselves; None for no such time.
        max_candidates: Most verified candidates of a document; None for no limit.
        suppression: Rules by which near-duplicates are not alerted; None for no rule.
        keep_sources: Whether index entries have the sources of their documents; needed by rules about sources.
    """

    profile: str
    shingles: ShingleOptions
    banding: Banding
    permutations: int
    seed: int
    threshold: float
    containment: ContainmentRule | None = None
    measure: Measure = MEASURES["set"]
    min_shared_bands: int = 1
    min_words: int = 0
    exact_limit: int | None = 8192
    window_ms: int | None = None
    silent_until_ms: int | None = None
    max_candidates: int | None = None
    suppression: Suppression | None = None
    keep_sources: bool = False

    def recall(self, similarity: float) -> float:
        """Return the probability of finding a pair of a similarity; for some measures a lower bound."""
        return self.banding.probability(self.measure.least_jaccard(similarity), self.min_shared_bands)

    @property
    def least_similarity(self) -> float:
        """Least similarity of a reported pair, by similarity or by containment."""
        return self.threshold if self.containment is None else self.containment.min_similarity

    def near(self, found: Similarities) -> NDArray[np.bool_]:
        """Return which pairs are near-duplicates, bool (n,)."""
        return (found.values >= self.threshold) | self.contained(found)

    def contained(self, found: Similarities) -> NDArray[np.bool_]:
        """Return the pairs for which the rule of containment holds, bool (n,)."""
        if self.containment is None:
            return np.zeros(len(found.values), np.bool_)
        return self.containment.holds(found.values, found.overlaps.containments(), found.smaller_counts)

    def skips(self, token_counts: NDArray[np.int64], shingle_counts: NDArray[np.int64]) -> dict[int, Skip]:
        """Return the documents that are not inserted in buckets, with the reason, by row.

        Args:
            token_counts: Tokens of each document, int64 (n,).
            shingle_counts: Shingles of each document, int64 (n,).
        """
        rows = np.flatnonzero((shingle_counts == 0) | (token_counts < self.min_words)).tolist()
        return {row: self._skip(int(token_counts[row])) for row in rows}

    def _skip(self, token_count: int) -> Skip:
        if not token_count:
            return Skip.EMPTY
        return Skip.TOO_FEW_WORDS if token_count < self.min_words else Skip.TOO_SHORT


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch of documents with all values computed without the index.

    Attributes:
        documents: Documents with their whole text, in order. One row for each in ``entries`` and ``band_keys``.
        entries: Index entries.
        band_keys: Band keys, (n, bands).
        skips: Reason by row of each document that is not inserted in buckets.
        appends: Documents whose text is appended to a document in the index.
        encoded: Result of ``EntryStore.encode_entries`` for the entries; None where it was not computed ahead.
    """

    documents: Sequence[Document]
    entries: Sequence[IndexEntry]
    band_keys: NDArray[np.uint32]
    skips: Mapping[int, Skip]
    appends: Sequence[Document] = ()
    encoded: Sequence[bytes] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InsertedBatch(Prepared):
    """A prepared batch whose entries are in the index, with a row for each append.

    The entries are those to go on with: with time and content of the first attempt where the insertion is a replay, and
    the stored entry where another partition has inserted the same content.

    Attributes:
        states: Result of the insertion, by row.
        looked_up: Rows to insert in buckets.
        refused: Documents that can never be processed, with the reason.
        missing_positions: Positions of appends to documents missing from the index.
    """

    states: Sequence[InsertState]
    looked_up: Sequence[int]
    refused: Sequence[tuple[Document, MessageError]]
    missing_positions: Sequence[Position]


@dataclass(frozen=True, slots=True)
class Detection:
    """A document with near-duplicates.

    Attributes:
        document: The document.
        digest: Content digest of the document.
        matches: Near-duplicates for the alert, the most similar first, then by id.
        cluster_id: Id of the first document of the cluster.
        complete: Whether all candidates were compared; not where a bucket was full or there were too many candidates.
        suppressed: Number of further near-duplicates that are not alerted, by rule.
    """

    document: Document
    digest: bytes
    matches: tuple[Match, ...]
    cluster_id: str
    complete: bool = True
    suppressed: Mapping[SuppressionRule, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DetectionResult:
    """Result of indexing documents.

    Attributes:
        detections: One for each document with at least one new pair.
        skipped: Skipped documents with the reason.
        refused: Documents that can never be processed, with the reason.
        claims: Pairs whose claims were made or extended, each with the position that asked for the claim.
        pending_positions: Positions with pending matches in the index, to be deleted after the commit.
        indexed_count: Documents whose version is in the index.
        replayed_count: Of the indexed documents, those already inserted by an earlier attempt.
        silent_count: Of the indexed documents, those that may emit nothing: committed before, or with a record time
            before ``silent_until_ms``.
        unexplained_count: Of the documents committed before, those of partitions without a committed offset now: no
            operator has set an offset back.
        deleted_count: Requests to delete a document, in the index or not.
        candidates_count: Candidates found in buckets.
        dropped_candidates_count: Candidates beyond ``max_candidates``, not compared.
        verified_count: Candidates compared and found near-duplicates, suppressed ones included.
        suppressed: Near-duplicates that are not alerted, by rule.
        rejected_count: Candidates compared and found different, outside the window, or gone.
        full_buckets_count: Number of refused insertions into full buckets.
        full_bucket_positions: Positions of documents with a full bucket.
        over_candidates_positions: Positions of documents with more than ``max_candidates`` candidates and no full
            bucket.
    """

    detections: tuple[Detection, ...] = ()
    skipped: tuple[tuple[Document, Skip], ...] = ()
    refused: tuple[tuple[Document, MessageError], ...] = ()
    claims: tuple[tuple[bytes, Position], ...] = ()
    pending_positions: tuple[Position, ...] = ()
    indexed_count: int = 0
    replayed_count: int = 0
    silent_count: int = 0
    unexplained_count: int = 0
    deleted_count: int = 0
    candidates_count: int = 0
    dropped_candidates_count: int = 0
    verified_count: int = 0
    suppressed: Counter[SuppressionRule] = field(default_factory=Counter)
    rejected_count: int = 0
    full_buckets_count: int = 0
    full_bucket_positions: tuple[Position, ...] = ()
    over_candidates_positions: tuple[Position, ...] = ()

    def __add__(self, other: "DetectionResult") -> "DetectionResult":
        """Return the result of both: of two steps, or of two chunks of a batch."""
        return DetectionResult(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))


def document_number(profile: str, document_id: str) -> int:
    """Return the number of a document in buckets: BLAKE2b of profile and id, signed 64 bits."""
    name = f"{profile}\0{document_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big", signed=True)


def pair_side(entry: IndexEntry) -> bytes:
    """Return the part of a document in its pair keys: number and version, and the incarnation after a deletion.

    Appends do not change the version: it names the text before the first append.
    """
    return entry.number.to_bytes(8, "big", signed=True) + entry.version + (entry.content.incarnation or b"")


def pair_key(a: bytes, b: bytes) -> bytes:
    """Return the name of a pair of versions, 16 bytes, the same for either order of the sides."""
    return blake2b(a + b if a < b else b + a, digest_size=16).digest()


def published_pair_key(profile: str, alert: Alert, match: Match) -> bytes:
    """Return the pair key of a match in a published alert."""
    if match.pair:
        return bytes.fromhex(match.pair)
    # Alerts of earlier versions name no pair; the version of a document was the digest of its content.
    a, b = (
        document_number(profile, document_id).to_bytes(8, "big", signed=True) + bytes.fromhex(digest)
        for document_id, digest in ((alert.document_id, alert.digest), (match.id, match.digest))
    )
    return pair_key(a, b)
