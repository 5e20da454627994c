"""Effect of single settings on the speed of the daemon, Kafka to Kafka.

    python -m benchmarks.tuning [--quick] [--documents 38086] [--rounds 2] [--redis PROGRAM]

Each row differs from the first in the named settings; `benchmarks.world` defines a round. Rows take turns, and the best
round of each counts.
"""

import argparse
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

from benchmarks import corpus, report
from benchmarks.world import Entry, Make, Round, World, arguments_of, best_of, in_turns, others

#: Name of the row -> keys of `[kafka]`, keys of the profile.
ROWS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "the defaults": ({}, {}),
    "`batch_records = 100`": ({"batch_records": 100}, {}),
    "`batch_records = 500`": ({"batch_records": 500}, {}),
    "`batch_records = 5000`": ({"batch_records": 5_000}, {}),
    '`delivery = "at-least-once"`': ({"delivery": "at-least-once"}, {}),
    "`bands = 12`, `rows = 5`": ({}, {"bands": 12, "rows": 5}),
    "`bands = 16`, `rows = 6`": ({}, {"bands": 16, "rows": 6}),
    "`exact_limit = 0`": ({}, {"exact_limit": 0}),
    '`exact_limit = "none"`': ({}, {"exact_limit": "none"}),
    '`shingle_unit = "char"`': ({}, {"shingle_unit": "char"}),
}
#: Rows of a quick run.
QUICK = ("the defaults", "`batch_records = 500`")


def main() -> None:
    """Measure, print, write."""
    quick, usual = {"documents": 20_000, "rounds": 1}, {"documents": 38_086, "rounds": 2}
    arguments = arguments_of(report.parser(__doc__), quick, usual)
    texts = corpus.load(arguments.documents)
    with ExitStack() as stack:
        world = World(stack, arguments.redis)
        world.fill("all", texts.documents)
        entries = [Entry(name, "all", daemon(world, *keys)) for name, keys in ROWS.items()]
        entries = [entry for entry in entries if not arguments.quick or entry.name in QUICK]
        rounds = in_turns(world, "all", entries, arguments.rounds)
        setting = {
            "documents": f"{texts.name}: {arguments.documents:,}",
            "servers": world.servers(),
            "rounds": arguments.rounds,
            "other programs": others(best_of(rounds)),
        }
    show(arguments, setting, entries, rounds)


def daemon(world: World, kafka: Mapping[str, Any], profile: Mapping[str, Any]) -> Make:
    """Return a factory of one daemon with these keys."""
    return lambda job: [world.daemon(job, kafka, profile)]


def show(
    arguments: argparse.Namespace, setting: dict[str, Any], entries: list[Entry], rounds: list[list[Round]]
) -> None:
    """Print and write everything."""
    best = best_of(rounds)
    rows, results = [], []
    for entry, one, own in zip(entries, best, rounds, strict=True):
        ratio = one.documents_per_s / best[0].documents_per_s
        used = [f"{us:,.0f}" for us in one.cpu_us.values()]
        rows.append([entry.name, f"{one.documents_per_s:,.0f}", f"{ratio:.2f}", *used])
        results.append(
            {"name": entry.name, "ratio": ratio, "best": asdict(one), "rounds": [asdict(each) for each in own]}
        )
    columns = ["", "documents/s", "times the first", *(f"{name}, µs" for name in best[0].cpu_us)]
    tables = {"rates": report.Table(columns, rows)}
    report.Report("tuning", arguments.quick, setting, results, tables).show(arguments.output)


if __name__ == "__main__":
    main()
