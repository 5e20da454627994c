"""Sends documents of files through the stages of the detector, and collects the pairs that the detector finds.

Without Kafka all documents are in one partition and have one record time. ``cli.scan`` writes the results of a
``DetectorRun`` as they come. A ``Trial``, for ``cli.evaluate``, keeps them: ``scores`` and ``misses`` compare its
``FoundPairs`` with a truth.
"""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.detector import Detector
from streamdedup.detection.limits import ReachedLimits
from streamdedup.detection.model import DetectionResult, DetectorOptions
from streamdedup.evaluation.pairs import Pairs
from streamdedup.index.contract import Index
from streamdedup.position import Partition, Position
from streamdedup.wire import Document

PARTITION = Partition("trial", 0)


def document_at(row: int, document_id: str, text: str, source: str | None = None, scope: str | None = None) -> Document:
    """Return a document with its row as offset; all have one record time, so that retention separates no pair."""
    return Document(document_id, text, Position(*PARTITION, row), time_ms=0, source=source, scope=scope)


class DetectorRun:
    """Indexes documents in one partition of an empty, open index, and counts results."""

    def __init__(self, options: DetectorOptions, index: Index) -> None:
        self._index = index
        # A document of a file has no record time that ``index_silently_until`` could mean.
        self._detector = Detector(replace(options, silent_until_ms=None), index)
        # The index takes writes under a fence only. No other process competes, so generation and offset may be 0.
        self._fence = index.fence(PARTITION, generation=0, start=0)
        self.documents_count = 0
        #: Documents skipped or refused, by reason or error code.
        self.skipped: Counter[str] = Counter()
        self.limits = ReachedLimits()
        self.suppressed: Counter[str] = Counter()
        self.candidates_count = 0
        self.seconds = 0.0

    def add(self, documents: Sequence[Document]) -> DetectionResult:
        """Index documents from ``document_at``, no two with the same id; may raise ``StoreUnavailable``."""
        started = time.perf_counter()
        result = self._detector.index(self._detector.prepare(documents), {PARTITION: self._fence})
        # Deletes the pending matches, which serve only a replay. Without a replay no high-water mark is needed.
        self._index.finish(ends={}, positions=result.pending_positions, fences=[self._fence])
        self.seconds += time.perf_counter() - started
        self.documents_count += len(documents)
        self.limits += ReachedLimits.of(result)
        self.skipped.update(reason.value for _, reason in result.skipped)
        self.skipped.update(error.code for _, error in result.refused)
        self.candidates_count += result.candidates_count
        self.suppressed.update({rule.value: count for rule, count in result.suppressed.items()})
        return result


class FoundPairs(NamedTuple):
    """The pairs found, each once, and three masks, bool (n_documents,).

    ``skipped`` is true for a document that was skipped or refused, so it is in no bucket; ``full_bucket`` for one that
    met a full bucket; ``over_candidates`` for any other with more than ``max_candidates`` candidates.
    """

    pairs: Pairs
    skipped: NDArray[np.bool_]
    full_bucket: NDArray[np.bool_]
    over_candidates: NDArray[np.bool_]


class Trial:
    """Runs documents with different ids, and rows from 0 on, through a detector; collects its pairs."""

    def __init__(self, options: DetectorOptions, index: Index) -> None:
        self.detector_run = DetectorRun(options, index)  # for the caller: counts and time
        self._pairs: list[tuple[int, int, float]] = []
        self._skipped: list[int] = []
        self._full_bucket: list[int] = []
        self._over_candidates: list[int] = []

    def add(self, documents: Sequence[Document]) -> None:
        result = self.detector_run.add(documents)
        for detection in result.detections:
            row = detection.document.position.offset  # as ``document_at`` sets it
            for match in detection.matches:
                left, right = sorted((row, match.position.offset))
                self._pairs.append((left, right, match.similarity))
        self._skipped += [document.position.offset for document, _ in (*result.skipped, *result.refused)]
        self._full_bucket += [position.offset for position in result.full_bucket_positions]
        self._over_candidates += [position.offset for position in result.over_candidates_positions]

    def found_pairs(self) -> FoundPairs:
        left, right, similarities = zip(*self._pairs, strict=True) if self._pairs else ((), (), ())
        return FoundPairs(
            pairs=Pairs(np.array(left, np.int64), np.array(right, np.int64), np.array(similarities, np.float64)),
            skipped=self._mask(self._skipped),
            full_bucket=self._mask(self._full_bucket),
            over_candidates=self._mask(self._over_candidates),
        )

    def _mask(self, rows: list[int]) -> NDArray[np.bool_]:
        mask = np.zeros(self.detector_run.documents_count, np.bool_)
        mask[rows] = True
        return mask
