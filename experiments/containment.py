"""Containment as a second score: the share of the smaller text of a pair that lies in the other one.

    containment = |A and B| / |A|,    A the smaller set (A. Broder, "On the resemblance and containment of documents")

Two measurements: the containment of pairs that are alerted by their similarity, and the share of contained texts that
the bands find at all.
"""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from experiments.exact import Pairs, all_pairs
from experiments.findings import Results, Scale, percent, table
from experiments.places import read
from experiments.profiles import profile
from streamdedup.similarity.lsh import shared_bands
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import ShingleBatch, Shingler

#: The sets, news and pages that quote each other, and the profile that they are read with.
SETS = ("reuters21578", "bbc_news", "fnc1_bodies", "spdx_licenses")
KIND = "articles"
#: Thresholds of the alerts: the default, and a low one.
THRESHOLDS = (profile(KIND).threshold, 0.5)
#: From this containment on the smaller text lies in the other one.
CONTAINED = 0.9
#: Similarities by which contained pairs are counted; below the first of them they are not looked for.
BINS = ((0.05, 0.2), (0.2, 0.4), (0.4, 0.6), (0.6, 0.8), (0.8, 1.0))


def run(scale: Scale) -> Results:
    """Count contained pairs, by similarity.

    Raises:
        Absent: A set is not there.
    """
    found = Results("containment")
    alerted, contained = [], []
    for name in SETS:
        texts = [entry.text for entry in read(scale.data, name) if entry.text]
        batch = Shingler(profile(KIND).shingle_options()).shingle(texts)
        pairs = all_pairs(batch.hashes, batch.offsets, BINS[0][0])
        alerted += [[name, *above(batch, pairs, threshold)] for threshold in THRESHOLDS]
        contained += [[name, *row] for row in by_similarity(batch, pairs)]
    columns = ("threshold", "pairs, not equal", "mean J", "mean containment", "least", "smaller one wholly contained")
    found.tables["alerted"] = table(("set", *columns, "correlation with J"), alerted)
    found.tables["met"] = table(("set", "J", f"pairs with containment from {CONTAINED:g}", "share a band"), contained)
    return found


def containment(batch: ShingleBatch, pairs: Pairs) -> NDArray[np.float64]:
    """Return the share of the smaller text of each pair that lies in the other, 0 .. 1, shape (n,)."""
    sizes = np.diff(batch.offsets)
    left, right = sizes[pairs.left], sizes[pairs.right]
    common = np.rint(pairs.similarities / (1 + pairs.similarities) * (left + right))
    shares: NDArray[np.float64] = common / np.minimum(left, right)
    return shares


def above(batch: ShingleBatch, pairs: Pairs, threshold: float) -> Sequence[object]:
    """Return the containment of alerted pairs, without equal ones."""
    near = pairs.where((pairs.similarities >= threshold) & (pairs.similarities < 1))
    if not near.left.size:
        return (f"{threshold:g}", 0, None, None, None, None, None)
    shares = containment(batch, near)
    related = float(np.corrcoef(near.similarities, shares)[0, 1]) if near.left.size > 1 else math.nan
    return (
        f"{threshold:g}",
        len(near.left),
        f"{near.similarities.mean():.3f}",
        f"{shares.mean():.3f}",
        f"{shares.min():.3f}",
        percent(float(np.mean(shares == 1))),
        f"{related:.2f}",
    )


def by_similarity(batch: ShingleBatch, pairs: Pairs) -> list[list[object]]:
    """Return the number of contained pairs by similarity, and the share of them with a common band."""
    banding = profile(KIND).banding()
    keys = banding.band_keys(HashFamily(banding.permutations).sign(batch.hashes, batch.offsets))
    shares = containment(batch, pairs)
    rows: list[list[object]] = []
    for low, high in BINS:
        own = pairs.where((shares >= CONTAINED) & (pairs.similarities >= low) & (pairs.similarities < high))
        found = shared_bands(keys[own.left], keys[own.right]) > 0
        rows.append([f"{low:g} - {high:g}", len(own.left), percent(float(found.mean()) if found.size else None)])
    return rows
