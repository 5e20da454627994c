"""Share of boilerplate among the pairs that are alerted on an open set, before and after stop shingles.

Boilerplate are the stop shingles that `streamdedup tune` learns by default: those in 5 % of all documents or of the
documents of one source, here learnt from all documents of the set. An alerted pair is *of boilerplate* if its documents
are no pair without these shingles, as in `tuning.pair_change`. Before: the pairs of a scan with the defaults. After:
those of a scan with stop shingles that were learnt from every second document only, as a file is learnt from a sample.
"""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

from benchmarks.containment import scanned
from benchmarks.open_sets import Set
from benchmarks.report import Table
from streamdedup.cli.collection import scan_profile
from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.truth import Pairs, ShingleSets, shingle_sets, similarities
from streamdedup.settings import Profile
from streamdedup.text.shingles import Shingler
from streamdedup.text.stop_shingles import DEFAULT_SHARE, StopShingles, learn_stop_shingles
from streamdedup.tuning.boilerplate import BoilerplateStudy, study_boilerplate

#: Profile of the pairs: boilerplate is looked for in words.
PROFILE = "articles"


class Shares(NamedTuple):
    """Pairs of boilerplate among the alerted pairs: before and after stop shingles."""

    before: Rate
    after: Rate


class BoilerplateShare(NamedTuple):
    """Boilerplate of one set.

    Attributes:
        name: Name of the set.
        sources: Sources with enough documents to learn from.
        stop_shingles: Stop shingles of all documents.
        study: Templates, and pairs with and without all stop shingles, by exact joins.
        shares: Pairs of boilerplate among the alerted pairs, by seed.
    """

    name: str
    sources: int
    stop_shingles: int
    study: BoilerplateStudy
    shares: Mapping[int, Shares]

    @property
    def causes(self) -> list[int]:
        """Pairs of each template that causes any, the most first."""
        return [one.pairs for one in self.study.found if one.pairs]

    def plain(self) -> dict[str, Any]:
        """Return everything as plain values that JSON can hold, without texts."""
        return {
            "set": self.name,
            "sources": self.sources,
            "stop_shingles": self.stop_shingles,
            "removed_share": self.study.removed_share,
            **{f"pairs_{name}": count for name, count in self.study.change._asdict().items()},
            "templates": self.causes,
            "alerted": [
                {"seed": seed, "before": before.total, "boilerplate_before": before.hits}
                | {"after": after.total, "boilerplate_after": after.hits}
                for seed, (before, after) in self.shares.items()
            ],
        }


def measure(one: Set, alerted: Mapping[int, Pairs]) -> BoilerplateShare:
    """Measure the share of boilerplate in a set.

    Args:
        one: The set.
        alerted: By seed, the pairs of a scan by the default profile ``PROFILE``.
    """
    profile = scan_profile(None, PROFILE, {})
    options, texts = profile.shingle_options(), [document.text for document in one.documents]
    documents = list(zip(texts, one.sources, strict=True))
    learnt = learn_stop_shingles(documents, options, DEFAULT_SHARE)
    half = learn_stop_shingles(itertools.islice(documents, 0, None, 2), options, DEFAULT_SHARE).stops

    def without(stops: frozenset[int]) -> ShingleSets:
        return shingle_sets(Shingler(replace(options, stop_shingles=stops)), texts)

    plain, of_file = without(learnt.stops.hashes), without(learnt.stops.hashes | half.hashes)
    shares = {}
    for seed, pairs in alerted.items():
        after = _scanned_without(one, half, seed) if half.counts else pairs
        shares[seed] = Shares(
            _of_boilerplate(pairs, plain, profile.threshold), _of_boilerplate(after, of_file, profile.threshold)
        )
    study = study_boilerplate(texts, learnt, options, profile.threshold)
    return BoilerplateShare(one.name, len(learnt.groups) - 1, len(learnt.stops.counts), study, shares)


def _scanned_without(one: Set, stops: StopShingles, seed: int) -> Pairs:
    """Return the pairs of a scan with a file of stop shingles."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "stop_shingles.txt"
        file.write_text(stops.encoded(), encoding="utf-8")
        profile: Profile = scan_profile(None, PROFILE, {"seed": seed, "stop_shingles": str(file)})
        return scanned(one, PROFILE, profile).pairs


def _of_boilerplate(pairs: Pairs, without: ShingleSets, threshold: float) -> Rate:
    return Rate.of(similarities(without, pairs.left, pairs.right) < threshold)


def table(found: list[BoilerplateShare]) -> Table:
    """Return the templates of each set, and the pairs with and without stop shingles."""
    rows = [
        [
            one.name,
            f"{one.sources:,}" if one.sources else "",
            f"{one.stop_shingles:,}",
            f"{one.study.removed_share:.1%}",
            *(f"{count:,}" for count in one.study.change),
            f"{len(one.causes):,}",
            f"{one.causes[0]:,}" if one.causes else "",
        ]
        for one in found
    ]
    head = ["set", "sources", "stop shingles", "of all shingles", "pairs", "pairs without them", "fewer", "more"]
    return Table([*head, "templates that cause pairs", "pairs of the first"], rows)
