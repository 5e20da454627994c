"""Kafka to Kafka: the daemon of this checkout beside that of another one, in turns, with default settings.

    python -m benchmarks.against DIR [--quick] [--documents 95215] [--rounds 3] [--redis PROGRAM]

DIR is another checkout of the project with an environment of its own in ``.venv``. Both work on the same servers and
the same topic, each round on an empty index, and the best round of each counts. `benchmarks.world` defines a round.
"""

import argparse
import subprocess
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks import corpus, report
from benchmarks.places import REPOSITORY
from benchmarks.world import Entry, Round, World, arguments_of, best_of, in_turns, others

OURS, OTHER = "this checkout", "the other"


def main() -> None:
    """Measure, print, write."""
    parser = report.parser(__doc__)
    parser.add_argument("other", type=Path, metavar="DIR", help="another checkout, with its own .venv")
    quick, usual = {"documents": 20_000, "rounds": 1}, {"documents": 95_215, "rounds": 3}
    arguments = arguments_of(parser, quick, usual)
    if not (arguments.other / ".venv" / "bin" / "python").exists():
        parser.error(f"{arguments.other} has no .venv; make one there with the project installed")
    texts = corpus.load(arguments.documents)
    with ExitStack() as stack:
        world = World(stack, arguments.redis)
        world.fill("all", texts.documents)
        entries = [
            Entry(OTHER, "all", lambda job: [world.daemon(job, checkout=arguments.other)]),
            Entry(OURS, "all", lambda job: [world.daemon(job)]),
        ]
        rounds = in_turns(world, "all", entries, arguments.rounds)
        setting = {
            "documents": f"{texts.name}: {arguments.documents:,}",
            OURS: commit_of(REPOSITORY),
            OTHER: commit_of(arguments.other),
            "servers": world.servers(),
            "rounds": arguments.rounds,
            "other programs": others(best_of(rounds)),
        }
    show(arguments, setting, rounds)


def commit_of(checkout: Path) -> str:
    """Return the commit of a checkout according to git."""
    command = ["git", "-C", str(checkout), "log", "-1", "--format=%h %cs %s"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "no commit"


def show(arguments: argparse.Namespace, setting: dict[str, Any], rounds: list[list[Round]]) -> None:
    """Print and write everything."""
    best = best_of(rounds)
    first = best[0].documents_per_s
    results = [
        {
            "name": name,
            "ratio": one.documents_per_s / first,
            "best": asdict(one),
            "rounds": [asdict(each) for each in own],
        }
        for name, one, own in zip((OTHER, OURS), best, rounds, strict=True)
    ]
    tables = {"rates": rates(best)}
    report.Report("against", arguments.quick, setting, results, tables).show(arguments.output)


def rates(best: list[Round]) -> report.Table:
    """Return the table of both checkouts."""
    rows = []
    for name, one in zip((OTHER, OURS), best, strict=True):
        used = [f"{us:,.0f}" for us in one.cpu_us.values()]
        ratio = one.documents_per_s / best[0].documents_per_s
        rows.append([name, f"{one.documents_per_s:,.0f}", f"{ratio:.2f}", *used])
    columns = ["", "documents/s", "times the other", *(f"{name}, µs" for name in best[0].cpu_us)]
    return report.Table(columns, rows)


if __name__ == "__main__":
    main()
