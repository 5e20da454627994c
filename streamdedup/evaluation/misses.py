"""Why a pair was missed: for each one the first reason that is enough by itself."""

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.model import DetectorOptions
from streamdedup.evaluation.sets import ShingleSets, similarities
from streamdedup.evaluation.trial import Findings
from streamdedup.similarity.lsh import shared_bands
from streamdedup.similarity.minhash import HashFamily

#: Pairs whose signatures are made at once.
_PAIRS_AT_ONCE = 1 << 9


class Miss(StrEnum):
    """Why a pair was not found, in the order in which the reasons are asked for."""

    #: One of the documents was passed over: no text, too short, too few words.
    SKIPPED = "document passed over"
    #: Both are compared exactly, and their similarity lies below the threshold; for a truth that comes from elsewhere.
    DISSIMILAR = "similarity below the threshold"
    #: The record times lie too far apart.
    OUTSIDE_WINDOW = "outside the window"
    #: They have fewer band keys in common than asked for, as a rule none: they never met.
    NO_SHARED_BAND = "too few shared bands"
    #: A signature stands for at least one of them, and says less than the threshold.
    ESTIMATE = "estimate below the threshold"
    #: A bucket was full, so that they did not meet or were not compared.
    FULL_BUCKET = "full bucket"
    #: The later one met more candidates than are compared.
    CANDIDATE_CAP = "too many candidates"
    #: None of these.
    UNEXPLAINED = "unexplained"


class MissClassifier:
    """Tells why pairs were missed.

    Args:
        options: What decided.
        sets: The shingles of all documents.
        findings: What was found.
        times_ms: int64 (n_documents,); record times, for the window.
    """

    def __init__(
        self, options: DetectorOptions, sets: ShingleSets, findings: Findings, times_ms: NDArray[np.int64]
    ) -> None:
        self._options = options
        self._family = HashFamily(options.permutations, options.seed)
        self._sets = sets
        self._findings = findings
        self._times_ms = times_ms

    def reasons(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> list[Miss]:
        """Return one reason for each missed pair.

        Args:
            left: int64 (n,); places of documents.
            right: int64 (n,); of their partners, each the greater place.
        """
        reasons: list[Miss] = []
        for low in range(0, len(left), _PAIRS_AT_ONCE):
            reasons += self._some(left[low : low + _PAIRS_AT_ONCE], right[low : low + _PAIRS_AT_ONCE])
        return reasons

    def _some(self, left: NDArray[np.int64], right: NDArray[np.int64]) -> list[Miss]:
        found, options = self._findings, self._options
        ours, theirs = self._signatures(left), self._signatures(right)
        shared = shared_bands(options.banding.band_keys(ours), options.banding.band_keys(theirs))
        exact = compared_exactly(self._sets, options, left, right)
        true = similarities(self._sets, left, right, options.measure)
        window = np.inf if options.window_ms is None else options.window_ms
        full = found.met_full[right] | (found.met_full[left] & ~found.over_candidates[right])
        conditions = (
            (found.skipped[left] | found.skipped[right], Miss.SKIPPED),
            (exact & (true < options.threshold), Miss.DISSIMILAR),
            (np.abs(self._times_ms[left] - self._times_ms[right]) > window, Miss.OUTSIDE_WINDOW),
            (shared < options.min_shared_bands, Miss.NO_SHARED_BAND),
            (~exact & (options.measure.estimate(ours, theirs) < options.threshold), Miss.ESTIMATE),
            (full, Miss.FULL_BUCKET),
            (found.over_candidates[right], Miss.CANDIDATE_CAP),
        )
        reason = np.select([condition for condition, _ in conditions], range(len(conditions)), len(conditions))
        names = [*(name for _, name in conditions), Miss.UNEXPLAINED]
        return [names[at] for at in reason.tolist()]

    def _signatures(self, documents: NDArray[np.int64]) -> NDArray[np.uint32]:
        """Return the signatures of documents; of one without shingles zeros, which no condition comes to."""
        sets = [self._sets.of(document) for document in documents.tolist()]
        filled = [at for at, one in enumerate(sets) if one.size]
        signatures = np.zeros((len(sets), self._options.permutations), np.uint32)
        if filled:
            offsets = np.append(0, np.cumsum([sets[at].size for at in filled]))
            signatures[filled] = self._family.sign(np.concatenate([sets[at] for at in filled]), offsets)
        return signatures


def compared_exactly(
    sets: ShingleSets, options: DetectorOptions, left: NDArray[np.int64], right: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Return which pairs the method compares exactly, because it keeps the shingles of both.

    Args:
        sets: The shingles of all documents.
        options: With the greatest number of shingles that are kept.
        left: int64 (n,); places of documents.
        right: int64 (n,); of their partners.
    """
    if options.exact_limit is None:
        return np.ones(len(left), np.bool_)
    kept = sets.sizes <= options.exact_limit
    if options.exact_limit == 0:
        kept[:] = False
    exact: NDArray[np.bool_] = kept[left] & kept[right]
    return exact
