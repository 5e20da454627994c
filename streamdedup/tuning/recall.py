"""How many pairs of a study a banding finds, for ``rows`` and ``results``."""

from typing import Final, NamedTuple

import numpy as np

from streamdedup.evaluation.rates import Rate
from streamdedup.similarity.lsh import Banding
from streamdedup.tuning.distinct import ALL_PAIRS
from streamdedup.tuning.study import Study

#: Parts of the signatures with which documents without an alert are counted, at most.
_MOST_PARTS: Final = 8


class Recall(NamedTuple):
    """A banding's recall on the sample, of the pairs from a similarity on.

    Attributes:
        edited: Pairs of different sets, so of edited texts, and how many of these are candidates. A set pair counts
            once, however many documents have the sets.
        measured: Share of the document pairs, equal sets included, that become candidates; None without pairs.
    """

    edited: Rate
    measured: float | None


def measured_recall(study: Study, banding: Banding, recall_from: float) -> Recall:
    """Return the share of the pairs from a similarity on that become candidates."""
    is_promised = study.pairs.similarities >= recall_from
    is_candidate = study.candidate_mask(banding)[is_promised]
    weights = study.counts[is_promised, ALL_PAIRS]
    copy_pairs = float(study.distinct.copy_pairs()[ALL_PAIRS])  # equal sets share all bands
    total = float(weights.sum()) + copy_pairs
    measured = (float(weights @ is_candidate) + copy_pairs) / total if total else None
    return Recall(Rate.of_items(is_candidate), measured)


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


def found_by_similarity(study: Study, banding: Banding, bins: int) -> list[tuple[float, Rate]]:
    """Return the middle of each similarity bin with kept pairs, and the rate at which these become candidates."""
    is_candidate = study.candidate_mask(banding)
    bin_of = np.minimum((study.pairs.similarities * bins).astype(np.int64), bins - 1)
    return [
        ((place + 0.5) / bins, Rate.of_items(is_candidate[bin_of == place])) for place in np.unique(bin_of).tolist()
    ]
