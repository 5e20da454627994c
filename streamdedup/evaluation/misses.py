"""The miss classifier: for each missed pair the first reason that explains it alone."""

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.model import DetectorOptions
from streamdedup.evaluation.trial import Findings
from streamdedup.evaluation.truth import ShingleSets, contained, similarities
from streamdedup.similarity.containment import sampled_overlaps
from streamdedup.similarity.lsh import shared_bands
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import Similarities, keeps_hashes
from streamdedup.text.hashing import offsets_of

#: Pairs whose signatures are computed at once.
_BATCH_PAIRS = 512


class Miss(StrEnum):
    """Why a pair was missed, in the order in which the reasons are checked."""

    #: A document was skipped: no text, too short, too few words.
    SKIPPED = "document passed over"
    #: Both are compared exactly, and their similarity is below the threshold; occurs for a given truth only.
    DISSIMILAR = "similarity below the threshold"
    #: Fewer common band keys than ``min_shared_bands``: the pair is no candidate.
    NO_SHARED_BAND = "too few shared bands"
    #: At least one of them is stored as a signature, and the estimate is below the threshold.
    ESTIMATE = "estimate below the threshold"
    #: A bucket was full, so that a document was not inserted or not compared.
    FULL_BUCKET = "full bucket"
    #: The later document has more candidates than are compared.
    CANDIDATE_CAP = "too many candidates"
    #: None of these.
    UNEXPLAINED = "unexplained"


class MissClassifier:
    """Explains missed pairs.

    Args:
        options: Options of the detector.
        sets: Shingles of all documents.
        findings: Findings of the trial.
    """

    def __init__(self, options: DetectorOptions, sets: ShingleSets, findings: Findings) -> None:
        self._options = options
        self._family = HashFamily(options.permutations, options.seed)
        self._sets = sets
        self._findings = findings

    def reasons(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> list[Miss]:
        """Return one reason for each missed pair; ``left`` and ``right``: int64 (n,), numbers of documents."""
        steps = range(0, len(left), _BATCH_PAIRS)
        batches = (self._batch(left[low : low + _BATCH_PAIRS], right[low : low + _BATCH_PAIRS]) for low in steps)
        return [reason for batch in batches for reason in batch]

    def _batch(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> list[Miss]:
        found, options = self._findings, self._options
        signed_left, signed_right = self._signatures(left), self._signatures(right)
        shared = shared_bands(options.banding.band_keys(signed_left), options.banding.band_keys(signed_right))
        exact = compared_exactly(self._sets, options, left, right)
        near = similarities(self._sets, left, right, options.measure) >= options.threshold
        if options.containment is not None:
            near |= contained(self._sets, left, right, options.containment, options.measure)
        conditions = {
            Miss.SKIPPED: found.skipped[left] | found.skipped[right],
            Miss.DISSIMILAR: exact & ~near,
            Miss.NO_SHARED_BAND: shared < options.min_shared_bands,
            Miss.ESTIMATE: ~exact & ~options.near(self._estimates(left, right, signed_left, signed_right)),
            Miss.FULL_BUCKET: found.full_bucket[right] | (found.full_bucket[left] & ~found.over_candidates[right]),
            Miss.CANDIDATE_CAP: found.over_candidates[right],
        }
        reason = np.select(list(conditions.values()), range(len(conditions)), len(conditions))
        names = [*conditions, Miss.UNEXPLAINED]
        return [names[at] for at in reason.tolist()]

    def _estimates(
        self,
        left: NDArray[np.int64],
        right: NDArray[np.int64],
        signed_left: NDArray[np.uint32],
        signed_right: NDArray[np.uint32],
    ) -> Similarities:
        """Return the estimates of pairs, with their signatures."""
        return Similarities(
            self._options.measure.estimate(signed_left, signed_right),
            np.zeros(len(left), np.bool_),
            sampled_overlaps(signed_left, signed_right),
            np.minimum(self._sets.sizes[left], self._sets.sizes[right]),
        )

    def _signatures(self, documents: NDArray[np.int64]) -> NDArray[np.uint32]:
        sets = [self._sets.of(document) for document in documents.tolist()]
        return self._family.sign(np.concatenate(sets), offsets_of(self._sets.sizes[documents]))


def compared_exactly(
    sets: ShingleSets, options: DetectorOptions, left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return the pairs that the detector compares exactly because the shingles of both documents are stored, bool (n,).

    Args:
        sets: Shingles of all documents.
        options: Options of the detector, with the greatest number of shingles that are stored.
        left: int64 (n,); numbers of documents.
        right: int64 (n,); the other document of each pair.
    """
    stored = keeps_hashes(sets.sizes, options.exact_limit)
    return stored[left] & stored[right]
