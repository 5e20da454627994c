"""Kafka to Kafka: the daemon of this checkout beside that of another one, in turns, with default settings.

    python -m benchmarks.against DIR [--quick] [--documents 95215] [--rounds 3] [--redis PROGRAM]

DIR is another checkout of the project with an environment of its own in ``.venv``. Both work on the same servers and
the same topic, each round on an empty index, and the best round of each counts. `benchmarks.world` defines a round.
"""

import subprocess
from pathlib import Path

from benchmarks import datasets, report
from benchmarks.world import Entry, World, in_turns, rates, results_of, setting_of

OURS, OTHER = "this checkout", "the other"


def main() -> None:
    """Measure, print, write."""
    parser = report.parser(__doc__)
    parser.add_argument("other", type=Path, metavar="DIR", help="another checkout, with its own .venv")
    quick, usual = {"documents": 20_000, "rounds": 1}, {"documents": 95_215, "rounds": 3}
    arguments = report.arguments_of(parser, quick, usual)
    if not (arguments.other / ".venv" / "bin" / "python").exists():
        parser.error(f"{arguments.other} has no .venv; make one there with the project installed")
    texts = datasets.load(arguments.documents)
    with World.started(arguments.redis) as world:
        world.fill("all", texts.documents)
        entries = [
            Entry(OTHER, "all", lambda job: [world.daemon(job, checkout=arguments.other)]),
            Entry(OURS, "all", lambda job: [world.daemon(job)]),
        ]
        rounds = in_turns(world, "all", entries, arguments.rounds)
        commits = {OURS: commit_of(datasets.REPOSITORY), OTHER: commit_of(arguments.other)}
        setting = setting_of(world, f"{texts.name}: {arguments.documents:,}", rounds) | commits
    tables = {"rates": rates(rounds, ratio="times the other")}
    report.Report("against", arguments.quick, setting, results_of(rounds), tables).show(arguments.output)


def commit_of(checkout: Path) -> str:
    """Return the commit of a checkout according to git."""
    command = ["git", "-C", str(checkout), "log", "-1", "--format=%h %cs %s"]
    log = subprocess.run(command, capture_output=True, text=True, check=False)
    return log.stdout.strip() or "no commit"


if __name__ == "__main__":
    main()
