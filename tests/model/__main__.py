"""Run the model: ``python -m tests.model 1000000``, without a rule ``--without claim``, one run ``--show SEED``."""

import argparse
import os
import sys
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor

from tests.model.breaking import BREAKING
from tests.model.rules import ALL, RULES, Rules
from tests.model.simulation import Simulation

#: Seeds that one job runs.
_CHUNK = 2_000
#: Number of seeds that are printed for each kind of mistake.
_EXAMPLES = 5

#: Kind of mistake -> seeds.
Found = dict[str, list[int]]


def _check(seeds: range, rules: Rules, scenario: dict[str, object]) -> Found:
    found: Found = {}
    for seed in seeds:
        for kind in Simulation(seed, rules, **scenario).run().kinds():
            found.setdefault(kind, []).append(seed)
    return found


def _check_all(first: int, count: int, rules: Rules, scenario: dict[str, object]) -> Found:
    chunks = [range(at, min(at + _CHUNK, first + count)) for at in range(first, first + count, _CHUNK)]
    total: Found = {}
    with ProcessPoolExecutor(os.cpu_count()) as processes:
        done = 0
        jobs = [processes.submit(_check, chunk, rules, scenario) for chunk in chunks]
        for chunk, job in zip(chunks, jobs, strict=True):
            for kind, seeds in job.result().items():
                total.setdefault(kind, []).extend(seeds)
            done += len(chunk)
            if sys.stderr.isatty():
                print(f"\r{done:,} of {count:,} runs, {_counts(total)}", end="", file=sys.stderr, flush=True)
    return total


def _counts(found: Found) -> str:
    counts = Counter({kind: len(seeds) for kind, seeds in found.items()})
    return ", ".join(f"{kind} {count:,}" for kind, count in counts.most_common()) or "nothing wrong"


def _show(seed: int, rules: Rules, scenario: dict[str, object]) -> Iterable[str]:
    simulation = Simulation(seed, rules, **scenario)
    trace: list[str] = []
    simulation.index.trace = trace
    verdict = simulation.run()
    yield str(simulation.scenario)
    for partition, log in enumerate(simulation.kafka.log):
        for offset, operation in enumerate(log):
            yield f"partition {partition} offset {offset}: {operation}"
    yield from trace
    yield str(verdict)


def main() -> int:
    """Run, print the mistakes, and return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="?", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, metavar="SEED")
    parser.add_argument("--without", choices=RULES, action="append", default=[], metavar="RULE")
    parser.add_argument("--soon", action="store_true", help="in the kind of run that shows the lack of the rule soon")
    parser.add_argument("--show", type=int, metavar="SEED", help="print one run step by step")
    arguments = parser.parse_args()
    rules = ALL
    for name in arguments.without:
        rules = rules.without(name)
    scenario = BREAKING[arguments.without[0]].scenario if arguments.soon and arguments.without else {}
    if arguments.show is not None:
        print("\n".join(_show(arguments.show, rules, scenario)))
        return 0
    found = _check_all(arguments.first, arguments.runs, rules, scenario)
    print(f"\r{arguments.runs:,} runs from seed {arguments.first}: {_counts(found)}")
    for kind, seeds in found.items():
        print(f"  {kind}: seeds {', '.join(map(str, seeds[:_EXAMPLES]))}")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main())
