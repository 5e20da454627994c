"""Kafka to Kafka: the daemon of this checkout beside that of another one, in turns, with default settings.

The other checkout has an environment of its own in ``.venv``. Both work on the same servers and
the same topic, each round on an empty index, and the best round of each counts. `benchmarks.world` defines a round.
"""

import subprocess
from pathlib import Path

from benchmarks import datasets, report
from benchmarks.world import Entry, World, in_turns, rates, setting_of

OURS, OTHER = "this checkout", "the other"


def main(*, quick: bool, other: Path) -> report.Report:
    """Measure."""
    count, rounds_count = (20_000, 1) if quick else (95_215, 3)
    texts = datasets.load(count)
    with World.started() as world:
        world.fill("all", texts.documents)
        entries = [
            Entry(OTHER, "all", lambda job: [world.daemon(job, checkout=other)]),
            Entry(OURS, "all", lambda job: [world.daemon(job)]),
        ]
        rounds = in_turns(world, "all", entries, rounds_count)
        commits = {OURS: commit_of(datasets.REPOSITORY), OTHER: commit_of(other)}
        setting = setting_of(world, f"{texts.name}: {count:,}", rounds) | commits
    return report.Report(setting, {"rates": rates(rounds, ratio="times the other")})


def commit_of(checkout: Path) -> str:
    """Return the commit of a checkout according to git."""
    command = ["git", "-C", str(checkout), "log", "-1", "--format=%h %cs %s"]
    log = subprocess.run(command, capture_output=True, text=True, check=False)
    return log.stdout.strip() or "no commit"
