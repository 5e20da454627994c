"""The ``streamdedup evaluate`` result."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.model import DetectorOptions
from streamdedup.evaluation.scores import Scores
from streamdedup.evaluation.trial import Findings


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Evaluation result.

    Attributes:
        options: Detector options.
        ids: Ids of the documents.
        findings: Trial findings.
        truth: Truth origin, in words.
        truth_seconds: Time for the truth.
        unknown_count: True pairs with a document that is in no file.
        suppressed_count: Pairs of the truth that the rules of the profile suppress; not part of the scores.
        shingle_counts: int64 (n_documents,); distinct shingles per document.
        scores: The scores.
    """

    options: DetectorOptions
    ids: Sequence[str]
    findings: Findings
    truth: str
    truth_seconds: float
    unknown_count: int
    suppressed_count: int
    shingle_counts: NDArray[np.int64]
    scores: Scores

    @property
    def documents_per_second(self) -> float | None:
        """Detector and store speed; None without documents."""
        return len(self.ids) / self.findings.seconds if self.ids and self.findings.seconds else None

    @property
    def candidates_per_document(self) -> float | None:
        """Mean candidate count; None without documents."""
        return self.findings.candidates_count / len(self.ids) if self.ids else None
