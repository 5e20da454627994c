"""Characters against words, sets against bags, with white space and without: on reviews in three languages.

For each way of making shingles all pairs from the threshold on are found by an exact join, beside those of
the default profile for reviews.

``--quick`` takes the reviews of the project's sample.
"""

import numpy as np

from benchmarks import datasets, report
from benchmarks.report import percent
from benchmarks.scans import Pair, all_pairs, as_set
from streamdedup.evaluation.pairs import Pairs
from streamdedup.settings.presets import named_profile
from streamdedup.similarity.lsh import shared_bands
from streamdedup.similarity.minhash import HashFamily
from streamdedup.text.shingles import ShingleBatch, ShingleOptions, Shingler

#: The sets: short English reviews, Chinese ones (no spaces, a token for each character), Arabic ones.
SETS = ("playstore_reviews", "zh_shopping_reviews", "ar_reviews")
PROFILE = named_profile(None, "reviews", {})
#: Ways of making shingles, the default of the profile first.
WAYS = {
    "characters 5": ShingleOptions(unit="char", size=5),
    "characters 5, bag": ShingleOptions(unit="char", size=5, bag=True),
    "characters 5, no white space": ShingleOptions(unit="char", size=5, keep_white_space=False),
    "words 3": ShingleOptions(size=3),
    "words 3, bag": ShingleOptions(size=3, bag=True),
    "words 2": ShingleOptions(size=2),
}


def main(*, quick: bool) -> report.Report:
    sets = [datasets.sample("reviews")] if quick else [datasets.read(name) for name in SETS]
    columns = ("shingles", "a review", "one at most", "pairs from 0.8", "not equal", "found by the bands")
    tables = {}
    for documents in sets:
        rows = rows_of(documents.texts)
        tables[documents.name] = report.table((*columns, "not by the default", "by the default only"), rows)
    return report.Report({"profile": "reviews, by default"}, tables)


def rows_of(texts: list[str]) -> list[list[object]]:
    """Return the rows of all ways on one set."""
    rows: list[list[object]] = []
    default: set[Pair] | None = None
    for title, options in WAYS.items():
        batch = Shingler(options).shingle(texts)
        joined = all_pairs(batch.hashes, batch.offsets, PROFILE.threshold)
        pairs = as_set(joined)
        default = pairs if default is None else default
        rows.append(
            [
                title,
                f"{np.diff(batch.offsets).mean():.1f}",
                percent(float(np.mean(batch.element_counts <= options.size))),
                len(pairs),
                int(np.sum(joined.similarities < 1)),
                percent(recall(batch, joined)),
                len(pairs - default),
                len(default - pairs),
            ]
        )
    return rows


def recall(batch: ShingleBatch, pairs: Pairs) -> float | None:
    """Return the share of the pairs that share a band of the default banding."""
    if not pairs.left.size:
        return None
    banding = PROFILE.banding()
    keys = banding.band_keys(HashFamily(banding.permutations).sign(batch.hashes, batch.offsets))
    return float(np.mean(shared_bands(keys[pairs.left], keys[pairs.right]) > 0))
