"""``miss_reasons`` says why a ``trial`` of the detector missed pairs; ``near_duplicates`` is the exact rule for pairs.

Called by ``scores`` and ``cli.evaluate``. A new reason is a member of ``Miss``, and a row of a table in docs/tuning.md.
"""

from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from streamdedup.detection.model import DetectorOptions
from streamdedup.evaluation.pairs import Pairs, ShingleSets, contained, similarities
from streamdedup.evaluation.trial import FoundPairs
from streamdedup.similarity.containment import drawn_overlaps
from streamdedup.similarity.lsh import shared_bands
from streamdedup.similarity.minhash import HashFamily
from streamdedup.similarity.sketch import Similarities, keeps_hashes
from streamdedup.text.runs import offsets_of

#: Pairs whose signatures are computed at once.
_BATCH_PAIRS = 512


class Miss(StrEnum):
    """Why a pair was missed; if several reasons apply, the first condition in ``_batch_reasons`` counts."""

    #: A document was skipped (no text, too short, too few words) or refused.
    SKIPPED = "document skipped or refused"
    #: Compared exactly, and no near-duplicate; only a file of true pairs has such pairs.
    DISSIMILAR = "similarity below the threshold"
    #: Fewer common band keys than ``min_shared_bands``: the pair is no candidate.
    NO_SHARED_BAND = "too few shared bands"
    #: At least one document is stored as a signature, and by the estimates the pair is no near-duplicate.
    ESTIMATE = "estimate below the threshold"
    #: A bucket was full, so that a document was not inserted or not compared.
    FULL_BUCKET = "full bucket"
    #: The later document has more candidates than are compared.
    CANDIDATE_CAP = "too many candidates"
    #: None of these.
    UNEXPLAINED = "unexplained"


def miss_reasons(missed: Pairs, options: DetectorOptions, sets: ShingleSets, found_pairs: FoundPairs) -> list[Miss]:
    """Return the reason for each missed pair; signatures and band keys are computed anew, as the detector does."""
    family = HashFamily(options.permutations, options.seed)
    reasons: list[Miss] = []
    for low in range(0, len(missed.left), _BATCH_PAIRS):
        reasons += _batch_reasons(missed.where(slice(low, low + _BATCH_PAIRS)), options, family, sets, found_pairs)
    return reasons


def _batch_reasons(
    pairs: Pairs, options: DetectorOptions, family: HashFamily, sets: ShingleSets, found_pairs: FoundPairs
) -> list[Miss]:
    left, right, _ = pairs  # ``right`` is the later document, whose look-up should have found the pair
    signatures = _signatures(family, sets, left), _signatures(family, sets, right)
    # Without the scope: both documents of a pair have the same, so it does not change which keys are equal.
    shared = shared_bands(*map(options.banding.band_keys, signatures))
    keeps = keeps_hashes(sets.sizes, options.exact_limit)
    is_exact = keeps[left] & keeps[right]
    # Computed anew, because a file of true pairs may have rounded similarities.
    recomputed = pairs._replace(similarities=similarities(sets, left, right, options.measure))
    is_near = near_duplicates(recomputed, options, sets)
    estimates = Similarities(
        options.measure.estimate(*signatures),
        np.zeros(len(left), np.bool_),  # none is exact
        drawn_overlaps(*signatures),
        np.minimum(sets.sizes[left], sets.sizes[right]),  # the containment rule needs a least size of the smaller side
    )
    conditions = [
        (Miss.SKIPPED, found_pairs.skipped[left] | found_pairs.skipped[right]),
        (Miss.DISSIMILAR, is_exact & ~is_near),
        (Miss.NO_SHARED_BAND, shared < options.min_shared_bands),
        (Miss.ESTIMATE, ~is_exact & ~options.near(estimates)),
        (Miss.FULL_BUCKET, found_pairs.full_bucket[right]),  # the later document did not see the whole bucket
        (Miss.CANDIDATE_CAP, found_pairs.over_candidates[right]),
        # The earlier document may not have been inserted. It met a full bucket, but perhaps another one: so last.
        (Miss.FULL_BUCKET, found_pairs.full_bucket[left]),
    ]
    reasons = [*(reason for reason, _ in conditions), Miss.UNEXPLAINED]
    places = np.select([condition for _, condition in conditions], range(len(conditions)), len(conditions))
    return [reasons[place] for place in places.tolist()]


def _signatures(family: HashFamily, sets: ShingleSets, documents: NDArray[np.int64]) -> NDArray[np.uint32]:
    hashes = [sets.shingles_of(document) for document in documents.tolist()]
    return family.sign(np.concatenate(hashes), offsets_of(sets.sizes[documents]))


def near_duplicates(pairs: Pairs, options: DetectorOptions, sets: ShingleSets) -> NDArray[np.bool_]:
    """Return which pairs are near-duplicates by ``pairs.similarities`` or by their exact containment, bool (n,)."""
    is_near: NDArray[np.bool_] = pairs.similarities >= options.threshold
    if options.containment is not None:
        below = np.flatnonzero(~is_near)  # containments are slow to compute
        is_near[below] = contained(sets, pairs.left[below], pairs.right[below], options.containment)
    return is_near
