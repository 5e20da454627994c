"""Run histories on all cores, and shrink those that fail.

python -m tests.simulation --histories 10000 --seed 1     # histories of the seeds from 1 on
python -m tests.simulation --play 17                      # one history, by seed or as a story, with its trace
python -m tests.simulation --shrink 17                    # the shortest history that fails in the same way
"""

import argparse
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path

from tests.simulation.generate import random_story
from tests.simulation.rules import BRANCHES, RULES, without
from tests.simulation.shrink import shrunk
from tests.simulation.simulation import simulated
from tests.simulation.story import parse
from tests.simulation.verdict import judged, kinds

#: Histories that a process takes at a time.
_PART = 50


def part(seeds: range) -> tuple[list[tuple[int, list[str]]], Counter[str], float]:
    """Return the failures of some seeds, the exceptions that were needed, and the processor time."""
    failures: list[tuple[int, list[str]]] = []
    excused: Counter[str] = Counter()
    began = time.process_time()
    with simulated():
        for seed in seeds:
            wrong, simulation = judged(random_story(seed))
            excused += simulation.excused
            if wrong:
                failures.append((seed, wrong))
    return failures, excused, time.process_time() - began


def run(histories: int, seed: int) -> int:
    end = seed + histories
    parts = [range(first, min(first + _PART, end)) for first in range(seed, end, _PART)]
    excused: Counter[str] = Counter()
    count, seconds = 0, 0.0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for failures, of_part, took_s in pool.map(part, parts):
            excused += of_part
            seconds += took_s
            count += len(failures)
            for failed, wrong in failures:
                print(f"seed {failed}: {', '.join(wrong)}", flush=True)
    print(f"{histories} histories, {count} wrong; {1000 * seconds / histories:.0f} ms of processor time each")
    for name, times in sorted(excused.items()):
        print(f"  {name}: {times}")
    return int(count > 0)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--histories", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--play", metavar="SEED or FILE")
    parser.add_argument("--shrink", metavar="SEED or FILE")
    parser.add_argument(
        "--without", choices=sorted({**RULES, **BRANCHES}), help="switch a rule off, or the branch of a story"
    )
    options = parser.parse_args()
    name = options.play or options.shrink
    if name is None:
        return run(options.histories, options.seed)
    story = random_story(int(name)) if name.isdigit() else parse(Path(name).read_text())
    with simulated(), without(options.without) if options.without else nullcontext():
        if options.shrink:
            wanted = kinds(story)
            story = shrunk(story, lambda candidate: bool(wanted & kinds(candidate)))
        wrong, simulation = judged(story)
    print(story.text(), *(simulation.trace if options.play else ()), "; ".join(wrong) or "nothing is wrong", sep="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
