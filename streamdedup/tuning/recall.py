"""How many pairs of a study a banding finds, for ``rows`` and ``results``."""

from typing import NamedTuple

import numpy as np

from streamdedup.evaluation.rates import Rate
from streamdedup.similarity.lsh import Banding
from streamdedup.tuning.distinct import ALL_PAIRS
from streamdedup.tuning.study import Study


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


def found_by_similarity(study: Study, banding: Banding, bins: int) -> list[tuple[float, Rate]]:
    """Return the middle of each similarity bin with kept pairs, and the rate at which these become candidates."""
    is_candidate = study.candidate_mask(banding)
    bin_of = np.minimum((study.pairs.similarities * bins).astype(np.int64), bins - 1)
    return [
        ((place + 0.5) / bins, Rate.of_items(is_candidate[bin_of == place])) for place in np.unique(bin_of).tolist()
    ]
