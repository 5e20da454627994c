"""Pairs by containment on open sets: those that exist, those that the threshold finds, and those that the rule finds.

    python -m benchmarks.containment [--data FOLDER] [NAME ...]

The truth is brute force: every pair of texts of at least `MIN_SHINGLES` shingles of which the larger one has at least
`CONTAINMENT` of the smaller one, whatever its similarity, by an exact join on containment. Then a scan at the threshold
0.8, and one with the rule (containment 0.8, similarity 0.5), each on an index in memory. `make quality` has the table,
and the recall with a second seed.
"""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import open_sets
from benchmarks.open_sets import Set
from benchmarks.report import Table
from streamdedup.cli.collection import scan_profile, temporary_store
from streamdedup.cli.output import batches
from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.trial import Trial, document_at
from streamdedup.evaluation.truth import Pairs, ShingleSets, gathered, join, shingle_sets, similarities
from streamdedup.indexes import detector_options
from streamdedup.settings import Profile
from streamdedup.similarity.containment import Overlaps
from streamdedup.similarity.measures import MEASURES, Measure, OverlapBounds
from streamdedup.similarity.minhash import DEFAULT_SEED
from streamdedup.text.hashing import offsets_of, ranges
from streamdedup.text.shingles import Shingler

#: The rule, with the defaults of the profile for the other two keys.
CONTAINMENT = 0.8
MIN_SIMILARITY = 0.5
MIN_SHINGLES = 20
#: Documents of one batch.
BATCH = 500


def _containment(common: NDArray[np.int64], left: NDArray[np.int64], right: NDArray[np.int64]) -> NDArray[np.float64]:
    return Overlaps(common, left, right).containments()


#: Containment as a measure, for the exact join alone: no band finds a pair by it.
_MEASURE = Measure(
    bag=False,
    exact=_containment,
    estimate=MEASURES["set"].estimate,
    standard_error=MEASURES["set"].standard_error,
    bounds=lambda containment: OverlapBounds(0.0, 0.0, containment),
    least_jaccard=lambda _: 0.0,
)


class Scanned(NamedTuple):
    """Result of one scan: its pairs, the bands, and the processor time of a document in microseconds."""

    pairs: Pairs
    bands: str
    document_us: float


class Contained(NamedTuple):
    """Pairs by containment of one set.

    Attributes:
        name: Name of the set.
        profile: Name of the profile.
        existing: Pairs with a containment of at least ``CONTAINMENT``, of texts with enough shingles.
        within_reach: Those of them with a similarity of at least ``MIN_SIMILARITY``.
        by_threshold: Those that a scan at the threshold finds.
        by_rule: Those that a scan with the rule finds.
        more: Pairs that the scan with the rule finds below the threshold.
        right: Those of ``more`` that are ``within_reach``.
        recalls: Share that the rule finds of the pairs ``within_reach`` below the threshold, by seed.
        without: The scan at the threshold.
        with_rule: The scan with the rule.
    """

    name: str
    profile: str
    existing: int
    within_reach: int
    by_threshold: int
    by_rule: int
    more: int
    right: int
    recalls: Mapping[int, Rate]
    without: Scanned
    with_rule: Scanned

    def plain(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold."""
        counts = {name: getattr(self, name) for name in self._fields[: self._fields.index("recalls")]}
        scans = {"without": self.without, "with_rule": self.with_rule}
        return counts | {
            name: {"pairs": len(scan.pairs.left), "bands": scan.bands, "document_us": scan.document_us}
            for name, scan in scans.items()
        }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these sets")
    parser.add_argument("--data", type=Path, default=open_sets.DATA, metavar="FOLDER", help="where the sets are")
    arguments = parser.parse_args()
    found: list[Contained] = []
    for file in open_sets.files(arguments.data):
        if not arguments.names or file.name.partition(".")[0] in arguments.names:
            found += measure(open_sets.read(file))
            print(found[-1].plain(), file=sys.stderr, flush=True)
    print(table(found).markdown())


def measure(one: Set, seeds: Sequence[int] = (DEFAULT_SEED,)) -> list[Contained]:
    """Measure a set with each profile that suits its texts; all but the recalls is that of the first seed."""
    return [_measured(one, profile, seeds) for profile in one.profiles]


def _measured(one: Set, name: str, seeds: Sequence[int]) -> Contained:
    plain = scan_profile(None, name, {"seed": seeds[0]})
    rule = {"containment_threshold": CONTAINMENT}
    sets = shingle_sets(Shingler(plain.shingle_options()), [document.text for document in one.documents])
    existing = contained_pairs(sets)
    jaccards = similarities(sets, existing.left, existing.right)
    within_reach = existing.where(jaccards >= MIN_SIMILARITY)
    below = existing.where((jaccards >= MIN_SIMILARITY) & (jaccards < plain.threshold))
    without = scanned(one, name, plain)
    with_rule, *others = (scanned(one, name, scan_profile(None, name, {**rule, "seed": seed})) for seed in seeds)
    found, found_by_rule = _codes(without.pairs, sets), _codes(with_rule.pairs, sets)
    more = found_by_rule[with_rule.pairs.similarities < plain.threshold]
    return Contained(
        name=one.name,
        profile=name,
        existing=len(existing.left),
        within_reach=len(within_reach.left),
        by_threshold=int(np.isin(_codes(existing, sets), found).sum()),
        by_rule=int(np.isin(_codes(existing, sets), found_by_rule).sum()),
        more=len(more),
        right=int(np.isin(more, _codes(within_reach, sets)).sum()),
        recalls={
            seed: Rate.of_pairs(np.isin(_codes(below, sets), _codes(scan.pairs, sets)), below.left, below.right)
            for seed, scan in zip(seeds, (with_rule, *others), strict=True)
        },
        without=without,
        with_rule=with_rule,
    )


def contained_pairs(sets: ShingleSets) -> Pairs:
    """Return all pairs of texts with enough shingles of which one has enough of the other; no band is used."""
    large = np.flatnonzero(sets.sizes >= MIN_SHINGLES)
    hashes = sets.hashes[ranges(sets.offsets[large], sets.sizes[large])]
    found = gathered(join(hashes, offsets_of(sets.sizes[large]), CONTAINMENT, measure=_MEASURE))
    return found._replace(left=large[found.left], right=large[found.right])


def scanned(one: Set, name: str, profile: Profile) -> Scanned:
    """Find the pairs of a set by a profile, on an index in memory."""
    documents = (document_at(place, *document) for place, document in enumerate(one.documents))
    with temporary_store(None, profile, profile.bucket_cap) as store:
        trial = Trial(detector_options(name, profile), store)
        started = time.process_time()
        for batch in batches(documents, BATCH):
            trial.add(batch)
        document_us = (time.process_time() - started) / len(one.documents) * 1e6
    return Scanned(trial.findings().pairs, str(profile.banding()), document_us)


def _codes(pairs: Pairs, sets: ShingleSets) -> NDArray[np.int64]:
    """Return one number for each pair."""
    return pairs.left * len(sets.sizes) + pairs.right


def table(found: list[Contained]) -> Table:
    """Return the pairs of each set, and the price of the rule."""
    rows = [
        [
            one.name,
            one.profile,
            f"{one.existing:,}",
            f"{one.within_reach:,}",
            f"{one.by_threshold:,}",
            f"{one.by_rule:,}",
            f"{one.more:,}",
            f"{one.right / one.more:.4f}" if one.more else "",
            f"{one.without.document_us:,.0f}",
            f"{one.with_rule.document_us:,.0f}",
        ]
        for one in found
    ]
    head = ["set", "profile", f"contained from {CONTAINMENT:g}", f"similarity from {MIN_SIMILARITY:g}"]
    head += ["found at threshold 0.8", "found with the rule", "pairs below the threshold", "precision"]
    return Table([*head, "µs a document", "with the rule"], rows)


if __name__ == "__main__":
    main()
