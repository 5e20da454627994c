"""Run the experiments, one after the other; each prints its results and writes them to build/experiments.

    python -m experiments [NAME ...]
    python -m experiments.page

The second command then writes the tables and pictures of docs/experiments.md and docs/robustness.md anew. Open sets
are read from ../shared/data beside the repository, or from the folder EXPERIMENTS_DATA; an experiment without its texts
is reported, and the others run. Nothing depends on time or machine: two runs give the same octets.
"""

import argparse
import importlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from experiments.findings import Scale
from experiments.places import RESULTS, Absent, data_folder

#: Experiments of `make experiments`, in this order; each is a module with `run`.
NAMES = ("worked", "reuters", "curve", "estimates", "reviews", "unlucky")
#: Experiments that run by name only.
OTHERS = ("robustness", "confusables", "containment")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named experiments; return the number that could not run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES + OTHERS)}")
    parser.add_argument("--output", type=Path, default=RESULTS, metavar="FOLDER", help="where the figures go")
    given = parser.parse_args(arguments)
    if unknown := set(given.names) - {*NAMES, *OTHERS}:
        parser.error(f"no such experiment: {', '.join(sorted(unknown))}")
    return run(given.names or NAMES, Scale(data_folder()), given.output)


def run(names: Sequence[str], scale: Scale, folder: Path) -> int:
    """Run experiments; return the number of those without their texts."""
    absent = {}
    for name in names:
        module: ModuleType = importlib.import_module(f"experiments.{name}")
        started_s = time.monotonic()
        try:
            found = module.run(scale)
        except Absent as reason:
            absent[name] = reason
            print(f"## {name}\n\nnot run: {reason}\n", flush=True)
            continue
        found.write(folder)
        print(f"{found.text()}\n({time.monotonic() - started_s:.0f} s)\n", flush=True)
    for name, why in absent.items():
        print(f"not run: {name}: {why}", file=sys.stderr)
    return len(absent)


if __name__ == "__main__":
    sys.exit(main())
