"""A trial: documents go through the detector as the daemon would send them, and what it finds is noted."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.detector import Detector
from streamdedup.detection.model import DetectionResult, DetectorOptions
from streamdedup.index.contract import BucketStore
from streamdedup.position import Partition, Position
from streamdedup.wire import Document

#: The one partition that all documents of a trial stand in.
PARTITION = Partition("trial", 0)


class FoundPairs(NamedTuple):
    """Pairs that were found, each once; left[n] < right[n].

    Attributes:
        left: int64 (n,); places of documents.
        right: int64 (n,).
        similarities: float64 (n,); as the method says.
        exact: bool (n,); whether the method calls it exact.
    """

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    similarities: NDArray[np.float64]
    exact: NDArray[np.bool_]


class Findings(NamedTuple):
    """What a trial found.

    Attributes:
        pairs: The near-duplicates.
        clusters: int64 (n_documents,); place of the first document of each document's cluster, its own if it is alone.
        skipped: bool (n_documents,); documents that are not in the index.
        met_full: bool (n_documents,); documents that met a full bucket.
        over_candidates: bool (n_documents,); documents that met more candidates than are compared.
        skipped_counts: By reason.
        candidates_count: Candidates met.
        seconds: Spent by the detector and its store; reading is not in it.
    """

    pairs: FoundPairs
    clusters: NDArray[np.int64]
    skipped: NDArray[np.bool_]
    met_full: NDArray[np.bool_]
    over_candidates: NDArray[np.bool_]
    skipped_counts: Mapping[str, int]
    candidates_count: int
    seconds: float


def document_at(place: int, document_id: str, text: str, time_ms: int = 0) -> Document:
    """Return a document as a trial takes it.

    Args:
        place: How many documents stand before it.
        document_id: Its id, which no other document of the trial has.
        text: Its text.
        time_ms: Its record time, milliseconds since the epoch.
    """
    return Document(document_id, text, Position(*PARTITION, place), time_ms)


class Trial:
    """Runs documents through a detector.

    Args:
        options: What decides.
        store: An empty index, open.
    """

    def __init__(self, options: DetectorOptions, store: BucketStore) -> None:
        self._store = store
        self._detector = Detector(options, store)
        self._fence = store.fence(PARTITION, 0, 0)
        self._ids: dict[str, int] = {}
        self._pairs: list[tuple[int, int, float, bool]] = []
        self._clusters: dict[int, str] = {}
        self._skipped: list[int] = []
        self._met_full: list[int] = []
        self._over_candidates: list[int] = []
        self._skipped_counts: Counter[str] = Counter()
        self._candidates_count = 0
        self._seconds = 0.0

    def add(self, documents: Sequence[Document]) -> None:
        """Index a batch of documents, made by ``document_at``, their places following those before.

        Raises:
            StoreUnavailable: The server of the store does not answer.
        """
        started = time.perf_counter()
        outcome = self._detector.index(self._detector.prepare(documents), {PARTITION: self._fence})
        # Nothing is replayed here, so what was saved for a replay can go.
        self._store.finish({}, outcome.pending_positions, [self._fence])
        self._seconds += time.perf_counter() - started
        self._ids.update((document.id, document.position.offset) for document in documents)
        self._note(outcome)

    def _note(self, outcome: DetectionResult) -> None:
        for detection in outcome.detections:
            place = detection.document.position.offset
            self._clusters[place] = detection.cluster_id
            self._pairs += [
                (place, match.position.offset, match.similarity, match.method == "exact") for match in detection.matches
            ]
        passed_over = [*outcome.skipped, *((document, error.code) for document, error in outcome.refused)]
        self._skipped += [document.position.offset for document, _ in passed_over]
        self._skipped_counts.update(str(reason) for _, reason in passed_over)
        self._met_full += [position.offset for position in outcome.before_full_buckets]
        self._over_candidates += [position.offset for position in outcome.over_candidates]
        self._candidates_count += outcome.candidates_count

    def findings(self) -> Findings:
        """Return what was found so far."""
        clusters = np.arange(len(self._ids))
        for place, first in self._clusters.items():
            clusters[place] = self._ids[first]
        return Findings(
            pairs=_arrays(self._pairs),
            clusters=clusters,
            skipped=self._marked(self._skipped),
            met_full=self._marked(self._met_full),
            over_candidates=self._marked(self._over_candidates),
            skipped_counts=dict(self._skipped_counts),
            candidates_count=self._candidates_count,
            seconds=self._seconds,
        )

    def _marked(self, places: list[int]) -> NDArray[np.bool_]:
        marked = np.zeros(len(self._ids), np.bool_)
        marked[places] = True
        return marked


def _arrays(pairs: list[tuple[int, int, float, bool]]) -> FoundPairs:
    ends = np.array([pair[:2] for pair in pairs], np.int64).reshape(-1, 2)
    return FoundPairs(
        ends.min(axis=1),
        ends.max(axis=1),
        np.array([pair[2] for pair in pairs], np.float64),
        np.array([pair[3] for pair in pairs], np.bool_),
    )
