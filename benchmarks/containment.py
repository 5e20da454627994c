"""Pairs by containment on open sets: those that exist, those that the threshold finds, and those that the rule finds.

    python -m benchmarks.containment [--quick] [NAME ...]

The truth is every pair of texts of at least `MIN_SHINGLES` shingles of which the larger text has at least `CONTAINMENT`
of the smaller one, whatever its similarity, by an exact join on containment. Then a scan at the threshold 0.8, and one
with the rule of containment from 0.8, each on an index in memory with the default bands. ``--quick`` takes the
project's sample.
"""

import time
from dataclasses import astuple, dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import datasets, report
from benchmarks.datasets import Corpus
from streamdedup.cli.collection import empty_index
from streamdedup.cli.output import batches
from streamdedup.evaluation.join import join
from streamdedup.evaluation.pairs import Pairs, ShingleSets, gathered, shingle_sets, similarities
from streamdedup.evaluation.trial import Trial, document_at
from streamdedup.indexes import detector_options
from streamdedup.settings import Profile
from streamdedup.settings.presets import named_profile
from streamdedup.similarity.containment import Overlaps
from streamdedup.similarity.measures import MEASURES, Measure, OverlapBounds
from streamdedup.text.runs import offsets_of, ranges
from streamdedup.text.shingles import Shingler

#: The rule, and a similarity from which its pairs are counted apart.
CONTAINMENT = 0.8
COUNTED_FROM = 0.5
MIN_SHINGLES = 20
#: Columns of the table, and their formats.
COLUMNS = {
    "set": "",
    "profile": "",
    f"contained from {CONTAINMENT:g}": "",
    f"similarity from {COUNTED_FROM:g}": "",
    "found at threshold 0.8": "",
    "found with the rule": "",
    "pairs below the threshold": "",
    "precision": ".4f",
    "µs a document": ",.0f",
    "with the rule": ",.0f",
}
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
    """Result of one scan: its pairs, and the processor time of a document in microseconds."""

    pairs: Pairs
    document_us: float


@dataclass(frozen=True)
class Contained:
    """Pairs by containment of one set.

    Attributes:
        name: Name of the set.
        profile: Name of the profile.
        existing: Pairs with a containment of at least ``CONTAINMENT``, of texts with enough shingles.
        similar: Those of them with a similarity of at least ``COUNTED_FROM``.
        by_threshold: Existing pairs that the threshold finds.
        by_rule: Existing pairs that the rule finds.
        below: Pairs below the threshold that the rule alerts.
        precision: Share of ``below`` that exists; empty without any.
        without_us: Processor time of a document without the rule.
        with_us: Processor time of a document with the rule.
    """

    name: str
    profile: str
    existing: int
    similar: int
    by_threshold: int
    by_rule: int
    below: int
    precision: float | str
    without_us: float
    with_us: float


def main() -> None:
    """Measure, print, write."""
    parser = report.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these sets")
    arguments = parser.parse_args()
    contained = []
    sets = [datasets.sample("articles")] if arguments.quick else datasets.selected(arguments.names)
    for documents in sets:
        for profile in documents.profiles:
            contained.append(measure(documents, profile))
            print(contained[-1], flush=True)
    setting = {"rule": f"containment from {CONTAINMENT}"}
    tables = {"pairs": report.table(COLUMNS, map(astuple, contained))}
    report.Report("containment", arguments.quick, setting, contained, tables).show(arguments.output)


def measure(documents: Corpus, name: str) -> Contained:
    """Measure a set with a profile."""
    plain = named_profile(None, name, {"containment_threshold": "none"})
    sets = shingle_sets(Shingler(plain.shingle_options()), documents.texts)
    existing = contained_pairs(sets)
    similar = similarities(sets, existing.left, existing.right) >= COUNTED_FROM
    without = scanned(documents, name, plain)
    with_rule = scanned(documents, name, named_profile(None, name, {"containment_threshold": CONTAINMENT}))
    by_threshold, by_rule = _codes(without.pairs, sets), _codes(with_rule.pairs, sets)
    below = by_rule[with_rule.pairs.similarities < plain.threshold]
    return Contained(
        name=documents.name,
        profile=name,
        existing=len(existing.left),
        similar=int(similar.sum()),
        by_threshold=int(np.isin(_codes(existing, sets), by_threshold).sum()),
        by_rule=int(np.isin(_codes(existing, sets), by_rule).sum()),
        below=len(below),
        precision=float(np.isin(below, _codes(existing, sets)).mean()) if below.size else "",
        without_us=without.document_us,
        with_us=with_rule.document_us,
    )


def contained_pairs(sets: ShingleSets) -> Pairs:
    """Return all pairs of texts with enough shingles of which one has enough of the other; no band is used."""
    large = np.flatnonzero(sets.sizes >= MIN_SHINGLES)
    hashes = sets.hashes[ranges(sets.offsets[large], sets.sizes[large])]
    pairs = gathered(join(hashes, offsets_of(sets.sizes[large]), CONTAINMENT, measure=_MEASURE))
    return pairs._replace(left=large[pairs.left], right=large[pairs.right])


def scanned(documents: Corpus, name: str, profile: Profile) -> Scanned:
    """Find the pairs of a set by a profile, on an index in memory."""
    made = (document_at(number, *document) for number, document in enumerate(documents.documents))
    trial = Trial(detector_options(name, profile), empty_index(profile))
    started = time.process_time()
    for batch in batches(made, BATCH):
        trial.add(batch)
    document_us = (time.process_time() - started) / len(documents.documents) * 1e6
    return Scanned(trial.findings().pairs, document_us)


def _codes(pairs: Pairs, sets: ShingleSets) -> NDArray[np.int64]:
    """Return a number that identifies each pair."""
    return pairs.left * len(sets.sizes) + pairs.right


if __name__ == "__main__":
    main()
