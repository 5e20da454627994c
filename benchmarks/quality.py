"""Recall and precision on open sets with default profiles, and whether the daemon finds the pairs that scan finds.

    python -m benchmarks.quality [--quick] [--no-daemon] [--redis PROGRAM] [NAME ...]

Every open set is compared at the thresholds 0.8 and 0.5, and at 0.8 with a second seed of the hash functions; the truth
is an exact join. Then a daemon on private servers processes the same documents, and its pairs are compared with those
found in memory. ``--quick`` takes the project's sample instead, at one threshold.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from benchmarks import datasets, report
from benchmarks.datasets import Corpus
from benchmarks.world import World
from streamdedup.cli.collection import empty_index
from streamdedup.cli.evaluate import evaluate_documents
from streamdedup.evaluation.rates import Rate
from streamdedup.evaluation.scores import Evaluation
from streamdedup.evaluation.trial import document_at
from streamdedup.indexes import detector_options
from streamdedup.settings.presets import named_profile
from streamdedup.similarity.minhash import DEFAULT_SEED
from streamdedup.wire import decode_alert

THRESHOLDS = (0.8, 0.5)
#: Seed of the hash functions beside the default one.
OTHER_SEED = 2
#: Keys of each profile in a settings file.
KEYS = {"articles": {}, "reviews": {"shingle_unit": "char"}}


@dataclass(frozen=True)
class Measured:
    """One set, compared by one profile at one threshold.

    Attributes:
        name: Name of the set.
        profile: Name of the profile.
        threshold: The threshold.
        evaluation: Pairs and scores with the default seed.
        other_recall: Recall with the other seed, measured at the first threshold.
        daemon_pairs: Pairs alerted by the daemon, repetitions included; None without a daemon.
        differing: Pairs that only daemon or scan found, or that were alerted twice.
    """

    name: str
    profile: str
    threshold: float
    evaluation: Evaluation
    other_recall: Rate | None = None
    daemon_pairs: int | None = None
    differing: int = 0

    def plain(self) -> dict[str, Any]:
        """Return the measurement as plain values that JSON can hold."""
        scores = self.evaluation.scores
        rates = {"recall": scores.recall, "precision": scores.precision}
        return {
            "set": self.name,
            "profile": self.profile,
            "threshold": self.threshold,
            **{name: (rate.hits, rate.total) for name, rate in rates.items()},
            "daemon_pairs": self.daemon_pairs,
            "daemon_differs_in": self.differing,
        }


def main() -> None:
    """Measure, print, write."""
    parser = report.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these sets")
    parser.add_argument("--no-daemon", action="store_true", help="leave out the daemon and its servers")
    arguments = report.arguments_of(parser, {}, {})
    sample = ("articles", "reviews")
    sets = list(map(datasets.sample, sample)) if arguments.quick else datasets.selected(arguments.names)
    measured: list[Measured] = []
    with nullcontext() if arguments.no_daemon else World.started(arguments.redis) as world:
        for documents in sets:
            measured += _measure(documents, world, THRESHOLDS[: 1 if arguments.quick else None])
        setting = {
            "sets": "the project's sample" if arguments.quick else f"{len(sets)} open sets",
            "profiles": "as they are by default: word 3-shingles (articles), character 5-shingles (reviews)",
            "servers": world.servers() if world else "none: pairs of the daemon were not asked for",
        }
    tables = {"sets": _sets_table(measured)}
    results = [entry.plain() for entry in measured]
    report.Report("quality", arguments.quick, setting, results, tables).show(arguments.output)
    if any(entry.differing for entry in measured):
        sys.exit("the daemon's pairs differ from those of scan")


def _measure(documents: Corpus, world: World | None, thresholds: tuple[float, ...]) -> list[Measured]:
    """Measure a set with each profile at each threshold."""
    measured = []
    if world is not None:
        world.fill(documents.name, documents.documents)
    for profile in documents.profiles:
        for threshold in thresholds:
            made = _evaluated(documents, profile, threshold)
            if threshold == THRESHOLDS[0]:
                second = _evaluated(documents, profile, threshold, seed=OTHER_SEED)
                made = replace(made, other_recall=second.evaluation.scores.recall)
            if world is not None:
                made = _with_daemon(world, documents, made)
            print(made.plain(), flush=True)
            measured.append(made)
    return measured


def _evaluated(documents: Corpus, name: str, threshold: float, seed: int = DEFAULT_SEED) -> Measured:
    """Find the pairs in memory and score them."""
    profile = named_profile(None, name, {"threshold": threshold, "recall_from": threshold})
    made = (document_at(number, *document) for number, document in enumerate(documents.documents))
    options = replace(detector_options(name, profile), seed=seed)
    return Measured(documents.name, name, threshold, evaluate_documents(made, options, empty_index(profile)))


def _with_daemon(world: World, documents: Corpus, measured: Measured) -> Measured:
    """Run a daemon over the set, and compare its pairs with those found in memory."""
    keys = KEYS[measured.profile] | dict.fromkeys(("threshold", "recall_from"), measured.threshold)
    alerted: Counter[tuple[str, ...]] = Counter()
    for value in world.alerts(documents.name, lambda job: [world.daemon(job, profile=keys)]):
        alert = decode_alert(value)
        alerted.update(tuple(sorted((alert.document.id, match.id))) for match in alert.matches)
    ids, pairs = measured.evaluation.ids, measured.evaluation.findings.pairs
    scanned = Counter(
        tuple(sorted((ids[left], ids[right])))
        for left, right in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)
    )
    differing = ((alerted - scanned) + (scanned - alerted)).total()
    return replace(measured, daemon_pairs=alerted.total(), differing=differing)


def _share(rate: Rate | None) -> str:
    return "" if rate is None or rate.share is None else f"{rate.share:.4f}"


def _daemon_cell(measured: Measured) -> str:
    if measured.daemon_pairs is None:
        return ""
    return f"{measured.differing:,} differ" if measured.differing else "equal"


def _sets_table(measured: Sequence[Measured]) -> report.Table:
    """Return recall and precision of all pairs, and whether the daemon finds the same pairs."""
    rows = []
    for entry in measured:
        scores = entry.evaluation.scores
        counts = [len(entry.evaluation.ids), scores.recall.total]
        shares = [_share(scores.recall), _share(entry.other_recall), _share(scores.precision)]
        rows.append([entry.name, entry.profile, entry.threshold, *counts, *shares, _daemon_cell(entry)])
    head = ["set", "profile", "threshold", "documents", "pairs", "recall"]
    return report.table([*head, f"recall, seed {OTHER_SEED}", "precision", "daemon beside scan"], rows)


if __name__ == "__main__":
    main()
