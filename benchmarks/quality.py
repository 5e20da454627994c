"""Recall and precision on open sets with default profiles, and whether the daemon finds the pairs that scan finds.

    python -m benchmarks.quality [--quick] [--data FOLDER] [--no-daemon] [NAME ...]

Every set of the folder is compared at the thresholds 0.8 and 0.5; the truth is an exact join. Then a daemon on
private servers processes the same documents, and its pairs are compared with those found in memory. Pairs by
containment are counted beside those by similarity (`benchmarks.containment`), and so are pairs of boilerplate
(`benchmarks.boilerplate_share`), also for the news with a paywall notice of `benchmarks.paywall`; a summary has all of
them for two seeds. `--quick` takes the project's sample instead, at one threshold.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from benchmarks import boilerplate_share, containment, open_sets, paywall, quality_summary, quality_tables, report
from benchmarks.boilerplate_share import BoilerplateShare
from benchmarks.containment import Contained
from benchmarks.open_sets import Set
from benchmarks.quality_summary import Summary
from benchmarks.quality_tables import Limited, Measured
from benchmarks.world import World
from streamdedup.cli.collection import scan_profile, temporary_store
from streamdedup.cli.evaluate import evaluate_documents
from streamdedup.evaluation.trial import document_at
from streamdedup.indexes import detector_options
from streamdedup.settings import Profile
from streamdedup.similarity.minhash import DEFAULT_SEED
from streamdedup.wire import decode_alert

THRESHOLDS = (0.8, 0.5)
#: Seeds of the summary, the default one first.
SEEDS = (DEFAULT_SEED, 2)
#: Values of `exact_limit` to compare, for sets in which the first leaves many pairs to estimates.
EXACT_LIMITS = ("512", "2048", "8192", "none")
#: Keys of each profile in a settings file.
KEYS = {"articles": {}, "reviews": {"shingle_unit": "char"}}


def main() -> None:
    """Measure, print, write."""
    arguments = _arguments()
    files = open_sets.sample_files() if arguments.quick else open_sets.files(arguments.data)
    files = [file for file in files if not arguments.names or file.name.partition(".")[0] in arguments.names]
    if not files:
        sys.exit(
            f"no sets (NAME.jsonl.gz, reuters21578.tar.gz) in {arguments.data}; name a folder: QUALITY_DATA=FOLDER"
        )
    thresholds = THRESHOLDS[: 1 if arguments.quick else None]
    with ExitStack() as stack:
        world = None if arguments.no_daemon else World(stack, arguments.redis)
        found = [_of_set(open_sets.read(file), world, thresholds) for file in files]
        found += [_by_seed(paywall.as_set(file)) for file in files if file.name == paywall.FILE.name]
        setting = {
            "sets": "the project's sample" if arguments.quick else f"{len(files)} in {arguments.data.name}",
            "profiles": "as they are by default: word 3-shingles (articles), character 5-shingles (reviews)",
            "seeds": f"the default one and {SEEDS[1]}",
            "servers": world.servers() if world else "none: pairs of the daemon were not asked for",
        }
    measured = [each for one in found for each in one.measured]
    limited = [each for one in found for each in one.limited]
    contained = [each for one in found for each in one.contained]
    summaries = [each for one in found for each in one.summaries]
    boilerplate = [one.boilerplate for one in found]
    results = {
        "sets": [one.plain() for one in measured],
        "limits": [{"exact_limit": one.limit, **one.measured.plain()} for one in limited],
        "containment": [one.plain() for one in contained],
        "boilerplate": [one.plain() for one in boilerplate],
        "summary": [one.plain() for one in summaries],
    }
    tables = quality_tables.all_tables(measured) | {
        "limits": quality_tables.limits(limited),
        "containment": containment.table(contained),
        "boilerplate": boilerplate_share.table(boilerplate),
        "summary": quality_summary.table(summaries),
    }
    report.Report("quality", arguments.quick, setting, results, tables).show(arguments.output)
    if any(one.differing for one in measured):
        sys.exit("the daemon's pairs differ from those of scan")


def _arguments() -> argparse.Namespace:
    parser = report.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="only these sets")
    parser.add_argument("--data", type=Path, default=open_sets.DATA, metavar="FOLDER", help="where the sets are")
    parser.add_argument("--no-daemon", action="store_true", help="leave out the daemon and its servers")
    parser.add_argument("--redis", metavar="PROGRAM", help="Redis server program")
    return parser.parse_args()


class Found(NamedTuple):
    """All measurements of one set."""

    measured: Sequence[Measured]
    limited: Sequence[Limited]
    contained: Sequence[Contained]
    boilerplate: BoilerplateShare
    summaries: Sequence[Summary]


def _of_set(one: Set, world: World | None, thresholds: tuple[float, ...]) -> Found:
    measured = _measure(one, world, thresholds)
    by_seed = _by_seed(one, [each for each in measured if each.threshold == THRESHOLDS[0]])
    return by_seed._replace(measured=measured, limited=_with_limits(one, measured))


def _by_seed(one: Set, of_first_seed: Sequence[Measured] | None = None) -> Found:
    """Measure a set with all seeds, at the first threshold.

    Args:
        one: The set.
        of_first_seed: The measurements with the first seed, one for each profile, where they are known.
    """
    measured = {
        seed: [_evaluated(one, profile, THRESHOLDS[0], seed=seed) for profile in one.profiles]
        for seed in SEEDS[0 if of_first_seed is None else 1 :]
    }
    if of_first_seed is not None:
        measured = {SEEDS[0]: list(of_first_seed), **measured}
    contained = containment.measure(one, SEEDS)
    alerted = {
        seed: each.evaluation.findings.pairs
        for seed, of_seed in measured.items()
        for each in of_seed
        if each.profile == boilerplate_share.PROFILE
    }
    boilerplate = boilerplate_share.measure(one, alerted)
    summaries = quality_summary.summaries(measured, contained, boilerplate)
    print(f"{one.name}: {boilerplate.plain()}", flush=True)
    return Found([], [], contained, boilerplate, summaries)


def _measure(one: Set, world: World | None, thresholds: tuple[float, ...]) -> list[Measured]:
    """Measure one set in every way."""
    measured = []
    if world is not None:
        world.fill(one.name, one.documents)
    for profile in one.profiles:
        for threshold in thresholds:
            found = _evaluated(one, profile, threshold)
            if world is not None:
                found = _with_daemon(world, one, found)
            scores = found.evaluation.scores
            shown = f"recall {scores.recall.hits:,}/{scores.recall.total:,}, daemon {found.daemon_pairs}"
            print(f"{one.name}, {profile}, {threshold}: {shown}", flush=True)
            measured.append(found)
    return measured


def _with_limits(one: Set, measured: list[Measured]) -> list[Limited]:
    """Measure a set with all limits, at the first threshold, if the lowest leaves enough pairs to estimates."""
    first = measured[0]
    found = []
    for limit in EXACT_LIMITS:
        found.append(Limited(limit, _evaluated(one, first.profile, first.threshold, exact_limit=limit)))
        if found[0].measured.evaluation.scores.estimated_recall.total < quality_tables.ENOUGH_PAIRS:
            return []
    return found


def _evaluated(one: Set, name: str, threshold: float, **keys: object) -> Measured:
    """Find the pairs in memory and score them; ``keys`` are further ones of the profile."""
    profile: Profile = scan_profile(None, name, {"threshold": threshold, **keys})
    documents = (document_at(place, *document) for place, document in enumerate(one.documents))
    with temporary_store(None, profile, profile.bucket_cap) as store:
        options = detector_options(name, profile)
        return Measured(one.name, name, threshold, evaluate_documents(documents, options, store))


def _with_daemon(world: World, one: Set, found: Measured) -> Measured:
    """Run a daemon over the set, and compare its pairs with those found in memory."""
    keys = KEYS[found.profile] | {"threshold": found.threshold}
    alerts = world.alerts(one.name, lambda job: [world.daemon(job, profile=keys)])
    alerted: Counter[tuple[str, ...]] = Counter()
    for value in alerts:
        alert = decode_alert(value).alert
        alerted.update(tuple(sorted((alert.document_id, match.id))) for match in alert.matches)
    ids, pairs = found.evaluation.ids, found.evaluation.findings.pairs
    scanned = Counter(
        tuple(sorted((ids[left], ids[right])))
        for left, right in zip(pairs.left.tolist(), pairs.right.tolist(), strict=True)
    )
    differing = ((alerted - scanned) + (scanned - alerted)).total()
    return replace(found, daemon_pairs=alerted.total(), differing=differing)


if __name__ == "__main__":
    main()
