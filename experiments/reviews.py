"""Characters against words, sets against bags, with white space and without: on reviews in three languages.

For each way of making shingles all pairs from the threshold on are found by an exact join, beside those of
the default profile for reviews.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.exact import Pairs, all_pairs, as_set
from experiments.findings import Results, Scale, percent, table
from experiments.places import read
from experiments.profiles import profile
from streamdedup.similarity.lsh import shared_bands
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import ShingleBatch, ShingleOptions, Shingler

#: The sets: short English reviews, Chinese ones (no spaces, a token for each character), Arabic ones.
SETS = ("playstore_reviews", "zh_shopping_reviews", "ar_reviews")
THRESHOLD = profile("reviews").threshold
#: Ways of making shingles, the default of the profile first.
WAYS = {
    "characters 5": ShingleOptions(unit="char", size=5),
    "characters 5, bag": ShingleOptions(unit="char", size=5, bag=True),
    "characters 5, no white space": ShingleOptions(unit="char", size=5, keep_white_space=False),
    "words 3": ShingleOptions(size=3),
    "words 3, bag": ShingleOptions(size=3, bag=True),
    "words 2": ShingleOptions(size=2),
}
#: Ways compared by the pairs that only one finds: the default against every other one.
DEFAULT = "characters 5"


class Way(NamedTuple):
    """One way of making shingles on one set."""

    batch: ShingleBatch
    pairs: Pairs


def run(scale: Scale) -> Results:
    """Compare the ways on all sets.

    Raises:
        Absent: A set is not there.
    """
    found = Results("reviews")
    for name in SETS:
        texts = [entry.text for entry in read(scale.data, name) if entry.text]
        rows, default = [], None
        for title, options in WAYS.items():
            batch = Shingler(options).shingle(texts)
            way = Way(batch, all_pairs(batch.hashes, batch.offsets, THRESHOLD))
            default = default or way
            rows.append(row_of(title, options, way, default))
        columns = ("shingles", "a review", "one at most", "pairs from 0.8", "not equal", "found by the bands")
        found.tables[name] = table((*columns, "not by the default", "by the default only"), rows)
    return found


def row_of(title: str, options: ShingleOptions, way: Way, default: Way) -> list[object]:
    """Return the row of one way, beside the default."""
    own, others = as_set(way.pairs), as_set(default.pairs)
    counts = np.diff(way.batch.offsets)
    return [
        title,
        f"{counts.mean():.1f}",
        percent(float(np.mean(way.batch.element_counts <= options.size))),
        len(own),
        int(np.sum(way.pairs.similarities < 1)),
        percent(recall(way)),
        len(own - others),
        len(others - own),
    ]


def recall(way: Way) -> float | None:
    """Return the share of the pairs that share a band of the default banding."""
    banding = profile("reviews").banding()
    if not way.pairs.left.size:
        return None
    keys = banding.band_keys(HashFamily(banding.permutations).sign(way.batch.hashes, way.batch.offsets))
    return float(np.mean(shared_bands(keys[way.pairs.left], keys[way.pairs.right]) > 0))


def made(scale: Scale) -> Sequence[str]:
    """Return the sets that exist; the others are reported when they are read."""
    return list(itertools.filterfalse(lambda name: not scale.data.joinpath(name).exists(), SETS))
