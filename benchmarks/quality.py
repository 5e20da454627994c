"""Recall and precision on open sets with default profiles, and whether the daemon finds the pairs that scan finds.

    python -m benchmarks.quality [--quick] [--data FOLDER] [--no-daemon] [NAME ...]

Every set of the folder is compared at the thresholds 0.8 and 0.5; the truth is an exact join. Then a daemon on
private servers processes the same documents, and its pairs are compared with those found in memory. Pairs by
containment are counted beside those by similarity (`benchmarks.containment`). `--quick` takes the project's sample
instead, at one threshold.
"""

import argparse
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks import containment, open_sets, quality_tables, report
from benchmarks.containment import Contained
from benchmarks.open_sets import Set
from benchmarks.quality_tables import Limited, Measured
from benchmarks.world import World
from streamdedup.cli.collection import scan_profile, temporary_store
from streamdedup.cli.evaluate import evaluate_documents
from streamdedup.evaluation.trial import document_at
from streamdedup.indexes import detector_options
from streamdedup.settings import Profile
from streamdedup.wire import decode_alert

THRESHOLDS = (0.8, 0.5)
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
    measured: list[Measured] = []
    limited: list[Limited] = []
    contained: list[Contained] = []
    with ExitStack() as stack:
        world = None if arguments.no_daemon else World(stack, arguments.redis)
        for file in files:
            one = open_sets.read(file)
            found = _measure(one, world, THRESHOLDS[: 1 if arguments.quick else None])
            measured += found
            limited += _with_limits(one, found)
            contained += containment.measure(one)
        setting = {
            "sets": "the project's sample" if arguments.quick else f"{len(files)} in {arguments.data.name}",
            "profiles": "as they are by default: word 3-shingles (articles), character 5-shingles (reviews)",
            "servers": world.servers() if world else "none: pairs of the daemon were not asked for",
        }
    results = {
        "sets": [one.plain() for one in measured],
        "limits": [{"exact_limit": one.limit, **one.measured.plain()} for one in limited],
        "containment": [one.plain() for one in contained],
    }
    tables = quality_tables.all_tables(measured) | {
        "limits": quality_tables.limits(limited),
        "containment": containment.table(contained),
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
