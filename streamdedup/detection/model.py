"""What goes into the detector and what comes out: plain data, and the names of documents and pairs."""

from dataclasses import dataclass, field, fields
from enum import StrEnum
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from streamdedup.errors import MessageError
from streamdedup.index.documents import IndexEntry
from streamdedup.position import Position
from streamdedup.similarity.lsh import Banding
from streamdedup.similarity.measures import MEASURES, Measure
from streamdedup.text.shingles import ShingleOptions
from streamdedup.wire import Alert, Document, Match


class Skip(StrEnum):
    """Why a document was passed over without being a mistake; metric labels."""

    #: No letter, no digit: nothing to compare.
    EMPTY = "empty"
    #: Fewer tokens than one shingle needs, where the profile skips such texts.
    TOO_SHORT = "too_short"
    #: Fewer words than the profile asks for.
    TOO_FEW_WORDS = "too_few_words"
    #: The same version was delivered before.
    REDELIVERED = "redelivered"
    #: A later version was indexed before.
    SUPERSEDED = "superseded"


@dataclass(frozen=True, slots=True)
class DetectorOptions:
    """What decides which pairs are near-duplicates.

    Attributes:
        profile: Name of the profile; part of the document numbers.
        shingles: How texts become shingles.
        banding: Bands and rows.
        permutations: Length of a signature; at least bands times rows.
        seed: Seed of the hash family.
        threshold: Least similarity of a pair that is reported, in (0, 1].
        measure: Measure of similarity.
        min_shared_bands: Least number of band keys that a reported pair has in common.
        min_words: Documents with fewer tokens are skipped.
        exact_limit: Documents of at most so many shingles are kept as sets and compared exactly; None for all.
        window_ms: Greatest difference of the record times of a pair, in milliseconds; None for no limit.
        silent_until_ms: Documents of record times before this, in milliseconds since the epoch, are no pairs among
            themselves; None for any time.
        max_candidates: Most candidates of a document that are verified; None for no limit.
    """

    profile: str
    shingles: ShingleOptions
    banding: Banding
    permutations: int
    seed: int
    threshold: float
    measure: Measure = MEASURES["set"]
    min_shared_bands: int = 1
    min_words: int = 0
    exact_limit: int | None = 8192
    window_ms: int | None = None
    silent_until_ms: int | None = None
    max_candidates: int | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A batch of documents, computed and not yet indexed.

    Attributes:
        documents: The documents that come with their whole text, in order; the following are aligned with it.
        records: What the store is to keep of each.
        band_keys: (documents, bands) their band keys.
        skips: By place in ``documents``, why that one enters no bucket.
        appends: Those that continue a document; what comes of them is known once it is.
    """

    documents: list[Document]
    records: list[IndexEntry]
    band_keys: NDArray[np.uint32]
    skips: dict[int, Skip]
    appends: list[Document] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Detection:
    """A document that resembles others.

    Attributes:
        document: The document.
        digest: Its content digest.
        matches: Its near-duplicates that belong to this document's alert: most similar first, then by id.
        cluster_id: Id of the first document of its cluster.
    """

    document: Document
    digest: bytes
    matches: tuple[Match, ...]
    cluster_id: str


@dataclass(slots=True)
class DetectionResult:
    """What became of a batch.

    Attributes:
        detections: One for each document with at least one new pair.
        skipped: Documents passed over, with the reason.
        refused: Documents that can never be processed, with the reason.
        asked: Pairs that were asked for or met again, each with the position that did so.
        pending_positions: Positions for which partners were saved, to be forgotten after the commit.
        indexed_count: Documents that are in the index now because of this batch.
        replayed_count: Of them, those that an attempt before this one had placed there.
        silent_count: Of them, those committed before, which emit nothing.
        unexplained_count: Of these, those of partitions whose committed offset is gone: nobody has set it back.
        deleted_count: Requests that a document be deleted, whether it was there or not.
        candidates_count: Candidates met in buckets.
        dropped_candidates_count: Candidates beyond ``max_candidates``, never compared.
        verified_count: Candidates compared and found near-duplicates.
        rejected_count: Candidates compared and found different, too far apart in time, or gone.
        full_buckets_count: How often a bucket was full.
        before_full_buckets: Documents that met a full bucket, by position.
        over_candidates: Documents that met more candidates than ``max_candidates``, and no full bucket, by position.
    """

    detections: list[Detection] = field(default_factory=list)
    skipped: list[tuple[Document, Skip]] = field(default_factory=list)
    refused: list[tuple[Document, MessageError]] = field(default_factory=list)
    asked: list[tuple[bytes, Position]] = field(default_factory=list)
    pending_positions: list[Position] = field(default_factory=list)
    indexed_count: int = 0
    replayed_count: int = 0
    silent_count: int = 0
    unexplained_count: int = 0
    deleted_count: int = 0
    candidates_count: int = 0
    dropped_candidates_count: int = 0
    verified_count: int = 0
    rejected_count: int = 0
    full_buckets_count: int = 0
    before_full_buckets: list[Position] = field(default_factory=list)
    over_candidates: list[Position] = field(default_factory=list)

    def add(self, other: "DetectionResult") -> None:
        """Take in what became of a further part of the batch."""
        for attribute in fields(self):
            setattr(self, attribute.name, getattr(self, attribute.name) + getattr(other, attribute.name))


def document_number(profile: str, document_id: str) -> int:
    """Return the signed 64-bit number by which buckets know a document: BLAKE2b of profile and id."""
    name = f"{profile}\0{document_id}".encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(name, digest_size=8).digest(), "big", signed=True)


def pair_side(record: IndexEntry) -> bytes:
    """Return the part of a pair key that one document contributes: its number, version and incarnation.

    The version is that of the text before the first append; the first incarnation has no name.
    """
    return record.number.to_bytes(8, "big", signed=True) + record.version + (record.content.incarnation or b"")


def pair_key(a: bytes, b: bytes) -> bytes:
    """Return the 16 bytes that name a pair of versions, whichever of its two sides is named first."""
    return blake2b(a + b if a < b else b + a, digest_size=16).digest()


def published_pair_key(profile: str, alert: Alert, match: Match) -> bytes:
    """Return the pair key of a match in an alert that was published."""
    if match.pair:
        return bytes.fromhex(match.pair)
    # Alerts of earlier versions did not name it, and their documents had no other versions than their contents.
    a, b = (
        document_number(profile, document_id).to_bytes(8, "big", signed=True) + bytes.fromhex(digest)
        for document_id, digest in ((alert.document_id, alert.digest), (match.id, match.digest))
    )
    return pair_key(a, b)
