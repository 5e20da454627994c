"""What a second score would add: how much of the smaller text of a pair lies in the other one.

    containment = |A and B| / |A|,    A the smaller set (A. Broder, "On the resemblance and containment of documents")

Two figures decide whether it is worth a place in alerts: what it says of pairs that are alerted anyhow, and how many
texts that lie in others the bands meet at all.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from experiments.exact import Pairs, all_pairs
from experiments.findings import Findings, Scale, percent, table
from experiments.places import read
from experiments.profiles import profile
from streamdedup.similarity.lsh import shared_bands
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import ShingleBatch, Shingler

#: The sets, news and pages that quote each other, and the profile that they are read with.
SETS = ("reuters21578", "bbc_news", "fnc1_bodies", "spdx_licenses")
KIND = "articles"
#: Thresholds whose alerts are looked at: the default, and a low one.
THRESHOLDS = (profile(KIND).threshold, 0.5)
#: From this containment on the smaller text lies in the other one.
CONTAINED = 0.9
#: Similarities by which contained pairs are counted; below the first of them they are not looked for.
BINS = ((0.05, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0))


def run(scale: Scale) -> Findings:
    """Count contained pairs, by similarity.

    Raises:
        Absent: A set is not there.
    """
    found = Findings("containment")
    alerted, met = [], []
    for name in SETS:
        texts = [entry.text for entry in read(scale.data, name) if entry.text]
        batch = Shingler(profile(KIND).shingle_options()).shingle(texts)
        pairs = all_pairs(batch.hashes, batch.offsets, BINS[0][0])
        alerted += [[name, *above(batch, pairs, threshold)] for threshold in THRESHOLDS]
        met += [[name, *row] for row in by_similarity(batch, pairs)]
    columns = ("threshold", "pairs, not equal", "mean J", "mean containment", "least", "smaller one wholly contained")
    found.tables["alerted"] = table(("set", *columns, "correlation with J"), alerted)
    found.tables["met"] = table(("set", "J", f"pairs with containment from {CONTAINED:g}", "share a band"), met)
    return found


def containment(batch: ShingleBatch, pairs: Pairs) -> NDArray[np.float64]:
    """Return how much of the smaller text of each pair lies in the other, 0 .. 1, shape (n,)."""
    sizes = np.diff(batch.offsets)
    shares: NDArray[np.float64] = pairs.common / np.minimum(sizes[pairs.first], sizes[pairs.second])
    return shares


def above(batch: ShingleBatch, pairs: Pairs, threshold: float) -> Sequence[object]:
    """Return what containment says of pairs that are alerted, equal ones left out."""
    near = pairs.only((pairs.similarity >= threshold) & (pairs.similarity < 1))
    if not near.first.size:
        return (f"{threshold:g}", 0, None, None, None, None, None)
    shares = containment(batch, near)
    related = float(np.corrcoef(near.similarity, shares)[0, 1]) if near.first.size > 1 else math.nan
    return (
        f"{threshold:g}",
        len(near.first),
        f"{near.similarity.mean():.3f}",
        f"{shares.mean():.3f}",
        f"{shares.min():.3f}",
        percent(float(np.mean(shares == 1))),
        f"{related:.2f}",
    )


def by_similarity(batch: ShingleBatch, pairs: Pairs) -> list[list[object]]:
    """Return how many contained pairs there are by similarity, and how many of them share a band."""
    banding = profile(KIND).banding()
    keys = banding.band_keys(HashFamily(banding.permutations).sign(batch.hashes, batch.offsets))
    shares = containment(batch, pairs)
    rows: list[list[object]] = []
    for low, high in BINS:
        own = pairs.only((shares >= CONTAINED) & (pairs.similarity >= low) & (pairs.similarity < high))
        met = shared_bands(keys[own.first], keys[own.second]) > 0
        rows.append([f"{low:g} - {high:g}", len(own.first), percent(float(met.mean()) if met.size else None)])
    return rows
