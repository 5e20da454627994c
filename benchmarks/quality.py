"""Recall and precision on open sets with default profiles, and whether the daemon finds the pairs that scan finds.

Every open set is compared at the thresholds 0.8 and 0.5, and at 0.8 with a second seed of the hash functions; the truth
is an exact join. Then a daemon on private servers processes the same documents, and its pairs are compared with those
found in memory. ``--quick`` takes the project's sample instead, at one threshold.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    """One set, compared by one profile at one threshold; ``differing`` pairs only daemon or scan found, or twice."""

    name: str
    profile: str
    threshold: float
    evaluation: Evaluation
    other_recall: Rate | None = None
    differing: int = 0


def main(*, quick: bool) -> report.Report:
    names = datasets.names() or [datasets.REUTERS]
    sets = list(map(datasets.sample, ("articles", "reviews")) if quick else map(datasets.read, names))
    measured: list[Measured] = []
    with World.started() as world:
        for documents in sets:
            measured += _measure(documents, world, THRESHOLDS[: 1 if quick else None])
        setting = {
            "sets": "the project's sample" if quick else f"{len(sets)} open sets",
            "profiles": "as they are by default: word 3-shingles (articles), character 5-shingles (reviews)",
            "servers": world.servers(),
        }
    differing = [f"{entry.name}, {entry.profile}, {entry.threshold}" for entry in measured if entry.differing]
    setting["daemon"] = "other pairs than scan" if differing else "the pairs of scan everywhere"
    fault = f"the daemon's pairs differ from those of scan: {'; '.join(differing)}" if differing else None
    return report.Report(setting, {"sets": _sets_table(measured)}, fault)


def _measure(documents: Corpus, world: World, thresholds: tuple[float, ...]) -> list[Measured]:
    """Measure a set with each profile at each threshold."""
    measured = []
    world.fill(documents.name, documents.documents)
    for profile in documents.profiles:
        for threshold in thresholds:
            made = _evaluated(documents, profile, threshold)
            if threshold == THRESHOLDS[0]:
                second = _evaluated(documents, profile, threshold, seed=OTHER_SEED)
                made = replace(made, other_recall=second.evaluation.scores.recall)
            measured.append(_with_daemon(world, documents, made))
            print(documents.name, profile, threshold, file=sys.stderr, flush=True)
    return measured


def _evaluated(documents: Corpus, name: str, threshold: float, seed: int = DEFAULT_SEED) -> Measured:
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
    ids, pairs = measured.evaluation.ids, measured.evaluation.found_pairs.pairs
    scanned = Counter(
        tuple(sorted((ids[left], ids[right])))
        for left, right in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)
    )
    return replace(measured, differing=((alerted - scanned) + (scanned - alerted)).total())


def _share(rate: Rate | None) -> str:
    return "" if rate is None or rate.share is None else f"{rate.share:.4f}"


def _sets_table(measured: Sequence[Measured]) -> report.Table:
    """Return recall and precision of all pairs."""
    rows = []
    for entry in measured:
        scores = entry.evaluation.scores
        counts = [len(entry.evaluation.ids), scores.recall.total]
        shares = [_share(scores.recall), _share(entry.other_recall), _share(scores.precision)]
        rows.append([entry.name, entry.profile, entry.threshold, *counts, *shares])
    head = ["set", "profile", "threshold", "documents", "pairs", "recall"]
    return report.table([*head, f"recall, seed {OTHER_SEED}", "precision"], rows)
