"""Run every benchmark, one after the other, each in a process of its own.

    python -m benchmarks [--quick] [--large] [--against DIR] [NAME ...]

Prints the tables and writes build/bench/NAME.json. `python -m benchmarks.page` then renews the tables of
docs/performance.md. With ``--against`` and no names only the comparison with the other checkout runs.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks import report
from benchmarks.places import REPOSITORY

#: In this order; each is a module.
NAMES = (
    "text_to_keys",
    "scripts",
    "store",
    "memory",
    "growth",
    "end_to_end",
    "latency",
    "serve",
    "scale",
    "tuning",
    "storm",
    "library",
)


def main() -> int:
    """Run the benchmarks; return the number of failures."""
    arguments = parse_arguments()
    for facts in (report.machine(), report.versions()):
        print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    started_s = time.monotonic()
    failed = []
    for name, more in runs(arguments):
        begun_s = time.monotonic()
        command = [sys.executable, "-m", f"benchmarks.{name}", *more, "--output", str(arguments.output.resolve())]
        command += ["--quick"] if arguments.quick else []
        if subprocess.run(command, cwd=REPOSITORY, check=False).returncode:
            failed.append(name)
        print(f"{name}: {time.monotonic() - begun_s:.0f} s", flush=True)
    print(f"\n{time.monotonic() - started_s:.0f} s in all" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return len(failed)


def parse_arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = report.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all of them unless named")
    parser.add_argument("--against", type=Path, metavar="DIR", help="compare with another checkout, with its own .venv")
    parser.add_argument("--large", action="store_true", help="growth of the index to 10,000,000 documents")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    return arguments


def runs(arguments: argparse.Namespace) -> Iterator[tuple[str, list[str]]]:
    """Yield the benchmarks to run, with their own arguments."""
    for name in arguments.names or ([] if arguments.against else NAMES):
        yield name, ["--large"] if name == "growth" and arguments.large else []
    if arguments.against:
        yield "against", [str(arguments.against.resolve())]


if __name__ == "__main__":
    sys.exit(main())
