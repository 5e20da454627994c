"""How many pairs of a study a banding finds, for ``rows`` and ``results``."""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.rates import Rate
from streamdedup.similarity.lsh import Banding
from streamdedup.tuning.distinct import ALL_PAIRS
from streamdedup.tuning.study import Study

_MOST_PARTS: Final = 8  # parts of the signatures with which documents without an alert are counted, at most


class Recall(NamedTuple):
    """A banding's recall on the sample, of the pairs from a similarity on; shares are None without pairs."""

    #: Candidates among the pairs of different sets, so of edited texts; a set pair counts once, whatever its copies.
    edited: Rate
    measured: float | None  # share of the document pairs, equal sets included, that become candidates
    #: The same share in theory: the mean of P(s), the chance that a pair of similarity s becomes a candidate.
    expected: float | None


def measured_recall(study: Study, banding: Banding, recall_from: float) -> Recall:
    """Return the share of the pairs from a similarity on that become candidates, without limits for storms."""
    is_promised = study.pairs.similarities >= recall_from
    is_candidate = study.candidate_mask(banding)[is_promised]
    weights = study.counts[is_promised, ALL_PAIRS]
    chances = 1.0 - (1.0 - study.pairs.similarities[is_promised] ** banding.rows) ** banding.bands  # P(s)
    copy_pairs = float(study.distinct.copy_pairs()[ALL_PAIRS])  # equal sets share all bands
    total = float(weights.sum()) + copy_pairs
    edited = Rate.of_items(is_candidate)
    if not total:
        return Recall(edited, None, None)
    measured = (float(weights @ is_candidate) + copy_pairs) / total
    expected = (float(weights @ chances) + copy_pairs) / total
    return Recall(edited, measured, expected)


def share_without_alert(study: Study, banding: Banding, recall_from: float) -> float | None:
    """Return the share of documents without an alert: the banding finds none of their pairs from a similarity on.

    The share is of the documents with such pairs; None without pairs. All pairs of a document depend on one signature
    and are missed together, which gives a coarse share, so the result is a mean over parts: 512 values are cut into 4
    for a banding that needs 128, at most ``_MOST_PARTS``.
    """
    pairs, copies = study.pairs.where(study.pairs.similarities >= recall_from), study.distinct.copies
    width = banding.permutations
    is_paired = copies > 1  # a document and its copy are a pair
    is_paired[pairs.left] = is_paired[pairs.right] = True
    part_count = min(_MOST_PARTS, study.signatures.shape[1] // width)
    missed_count = 0
    for part in range(part_count):
        is_found = np.zeros(len(pairs.left), np.bool_)
        # Without the scopes: the documents of a kept pair have one scope, which changes their keys alike.
        for column in banding.band_keys(study.signatures[:, part * width : (part + 1) * width]).T:
            is_found |= column[pairs.left] == column[pairs.right]
        is_alerted = copies > 1  # copies of a text always find each other
        is_alerted[pairs.left[is_found]] = is_alerted[pairs.right[is_found]] = True
        missed_count += int(copies[is_paired & ~is_alerted].sum())
    paired_count = int(copies[is_paired].sum())
    return missed_count / part_count / paired_count if paired_count else None


def found_share(study: Study, banding: Banding, recall_from: float, shares: NDArray[np.float64]) -> float | None:
    """Return the share of the pairs from a similarity on that are candidates and compared; None without pairs.

    ``shares``: float64 (n_sets, bands + 1), from ``compared_shares``.
    """
    is_promised = study.pairs.similarities >= recall_from
    promised, weights = study.pairs.where(is_promised), study.counts[is_promised, ALL_PAIRS]
    keys, shared = study.band_keys(banding), np.zeros(len(promised.left), np.int64)
    for column in keys.T:
        shared += column[promised.left] == column[promised.right]
    # Either document may be the later one, which looks the other one up. A pair that shares no band is not found.
    compared = (shares[promised.left, shared] + shares[promised.right, shared]) / 2 * (shared > 0)
    copy_pairs = study.distinct.copy_pairs_of_each
    total = float(weights.sum() + copy_pairs.sum())
    # Copies share all bands, the last column.
    return float(weights @ compared + copy_pairs @ shares[:, -1]) / total if total else None


def found_by_similarity(study: Study, banding: Banding, bins: int) -> list[tuple[float, Rate]]:
    """Return the middle of each similarity bin with kept pairs, and the rate at which these become candidates."""
    is_candidate = study.candidate_mask(banding)
    bin_of = np.minimum((study.pairs.similarities * bins).astype(np.int64), bins - 1)
    return [
        ((place + 0.5) / bins, Rate.of_items(is_candidate[bin_of == place])) for place in np.unique(bin_of).tolist()
    ]
