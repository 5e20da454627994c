"""The true pairs that have to be alerted: those that no rule of the profile suppresses."""

from collections.abc import Sequence

import numpy as np

from streamdedup.detection.suppression import Suppression, source_key
from streamdedup.evaluation.truth import Pairs, ShingleSets


def without_suppressed(
    pairs: Pairs, suppression: Suppression | None, sources: Sequence[str | None], sets: ShingleSets
) -> Pairs:
    """Return the pairs that are alerted.

    Args:
        pairs: Pairs of documents.
        suppression: Rules of the profile; None for no rule.
        sources: Source of each document.
        sets: Shingles of all documents.
    """
    if suppression is None or not len(pairs.left):
        return pairs
    shingle_counts = np.where(sets.stop_only, 0, sets.sizes)
    is_short = np.minimum(shingle_counts[pairs.left], shingle_counts[pairs.right]) < suppression.min_shingles
    keys = [source_key(source) if source else None for source in sources]
    distinct = {key: at for at, key in enumerate(dict.fromkeys(keys))}
    source_at = np.array([distinct[key] for key in keys], np.int64)
    # The rules are asked once for each combination of sources.
    combinations, place = np.unique(
        np.stack((source_at[pairs.left], source_at[pairs.right])), axis=1, return_inverse=True
    )
    names = list(distinct)
    is_ignored = np.array(
        [suppression.source_rule(names[a], names[b]) is not None for a, b in combinations.T.tolist()], np.bool_
    )
    return pairs.where(~(is_short | is_ignored[place.reshape(-1)]))
