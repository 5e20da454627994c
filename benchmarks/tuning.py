"""Effect of single settings on the speed of the daemon, Kafka to Kafka.

    python -m benchmarks.tuning [--quick] [--documents 38086] [--rounds 2] [--redis PROGRAM]

Each row differs from the first in the named settings; `benchmarks.world` defines a round. Rows take turns, and the best
round of each counts.
"""

from collections.abc import Mapping
from typing import Any

from benchmarks import datasets, report
from benchmarks.world import Entry, Make, World, in_turns, rates, results_of, setting_of

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
    "`label_bytes = 0`": ({}, {"label_bytes": 0}),
}
#: Rows of a quick run.
QUICK = ("the defaults", "`batch_records = 500`")


def main() -> None:
    """Measure, print, write."""
    quick, usual = {"documents": 20_000, "rounds": 1}, {"documents": 38_086, "rounds": 2}
    arguments = report.arguments_of(report.parser(__doc__), quick, usual)
    texts = datasets.load(arguments.documents)
    with World.started(arguments.redis) as world:
        world.fill("all", texts.documents)
        entries = [Entry(name, "all", daemon(world, *keys)) for name, keys in ROWS.items()]
        entries = [entry for entry in entries if not arguments.quick or entry.name in QUICK]
        rounds = in_turns(world, "all", entries, arguments.rounds)
        setting = setting_of(world, f"{texts.name}: {arguments.documents:,}", rounds)
    tables = {"rates": rates(rounds)}
    report.Report("tuning", arguments.quick, setting, results_of(rounds), tables).show(arguments.output)


def daemon(world: World, kafka: Mapping[str, Any], profile: Mapping[str, Any]) -> Make:
    """Return a factory of one daemon with these keys."""
    return lambda job: [world.daemon(job, kafka, profile)]


if __name__ == "__main__":
    main()
