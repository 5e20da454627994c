"""Clusters that were found against those that the truth gives.

Both are stars, for chains are no virtue: a document joins the cluster of its best earlier match if it is near enough to
that cluster's first document (`clusters`). The true ones follow the same rule, from the true pairs and similarities in
the order of arrival; so what differs is due to pairs that were missed or wrong, and not to another idea of a cluster.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamdedup.evaluation.truth import Pairs


class ClusterQuality(NamedTuple):
    """How clusters agree with the true ones; None where there is nothing to judge.

    Pairwise: of the pairs of documents in one cluster, which share (precision) is in one true cluster, and of the pairs
    in one true cluster, which share (recall) is in one cluster. B-cubed (A. Bagga, B. Baldwin, 1998): the same for each
    document's companions, itself included, as a mean over the documents that have a companion in either.

    Attributes:
        found_count: Clusters of at least two documents.
        true_count: The same of the true ones.
        pairwise_precision: See above.
        pairwise_recall: See above.
        b_cubed_precision: See above.
        b_cubed_recall: See above.
    """

    found_count: int
    true_count: int
    pairwise_precision: float | None
    pairwise_recall: float | None
    b_cubed_precision: float | None
    b_cubed_recall: float | None


def stars(pairs: Pairs, ids: list[str]) -> NDArray[np.int64]:
    """Return the place of the first document of each document's cluster; its own for one that is alone.

    Args:
        pairs: All pairs.
        ids: Of the documents, by place; of equally similar matches that with the lesser id is the best.
    """
    near = set(zip(pairs.left.tolist(), pairs.right.tolist(), strict=True))
    best: dict[int, tuple[float, str, int]] = {}
    for earlier, later, similarity in zip(*(column.tolist() for column in pairs), strict=True):
        match = (-similarity, ids[earlier], earlier)
        if later not in best or match < best[later]:
            best[later] = match
    first = np.arange(len(ids))
    for later in sorted(best):
        of_best = int(first[best[later][2]])
        if (of_best, later) in near:
            first[later] = of_best
    return first


def compare(found: NDArray[np.int64], true: NDArray[np.int64]) -> ClusterQuality:
    """Judge clusters.

    Args:
        found: int64 (n,); for each document a number of its cluster.
        true: int64 (n,); the same of the true clusters.
    """
    found_at, found_sizes = _sizes(found)
    true_at, true_sizes = _sizes(true)
    _, cell_at, cell_sizes = np.unique(np.stack((found, true)), axis=1, return_inverse=True, return_counts=True)
    together = (cell_sizes * (cell_sizes - 1)).sum()
    judged = (found_sizes[found_at] > 1) | (true_sizes[true_at] > 1)
    companions = cell_sizes[cell_at.reshape(-1)]
    return ClusterQuality(
        found_count=int(np.count_nonzero(found_sizes > 1)),
        true_count=int(np.count_nonzero(true_sizes > 1)),
        pairwise_precision=_share(together, (found_sizes * (found_sizes - 1)).sum()),
        pairwise_recall=_share(together, (true_sizes * (true_sizes - 1)).sum()),
        b_cubed_precision=_mean((companions / found_sizes[found_at])[judged]),
        b_cubed_recall=_mean((companions / true_sizes[true_at])[judged]),
    )


def _sizes(clusters: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return for each document which cluster it is in, counted from 0, and the size of each cluster."""
    _, at, sizes = np.unique(clusters, return_inverse=True, return_counts=True)
    return at, sizes


def _share(part: np.int64, whole: np.int64) -> float | None:
    return float(part / whole) if whole else None


def _mean(values: NDArray[np.float64]) -> float | None:
    return float(values.mean()) if values.size else None
