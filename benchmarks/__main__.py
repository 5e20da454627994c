"""Run benchmarks, one after the other, each in a process of its own.

    python -m benchmarks [--quick] [--group GROUP] [--against DIR] [--output FOLDER] [NAME ...]

prints the tables and writes build/bench/NAME.json. `python -m benchmarks.page` then writes docs/measurements/NAME.md
and renews the tables of the pages. Without names or group all benchmarks run. ``--against`` runs the comparison with
another checkout, alone unless names are given. A benchmark whose open set is absent is reported, and the others run.
"""

import argparse
import sys
import time
from collections.abc import Iterator
from multiprocessing import get_context
from pathlib import Path

from benchmarks import report
from benchmarks.datasets import EXIT_ABSENT

#: Benchmarks by group, in the order in which they run; each is a module, each group a target of make.
GROUPS = {
    "bench": (
        "stages",
        "memory",
        "growth",
        "steady",
        "end_to_end",
        "formats",
        "latency",
        "serve",
        "storm",
        "gap",
        "against",
    ),
    "quality": ("quality", "adviser"),
    "experiments": ("worked", "reuters", "reviews"),
    "robustness": ("robustness",),
}
#: The benchmark that needs another checkout.
AGAINST = "against"


def names_of(group: str | None = None) -> list[str]:
    """Return the names of the benchmarks of a group; of all groups without a name."""
    groups = [group] if group else list(GROUPS)
    return [name for group in groups for name in GROUPS[group]]


def main() -> int:
    arguments = parse_arguments()
    print("\n".join(f"{name}: {value}" for name, value in report.environment().items()), flush=True)
    failed: list[str] = []
    absent: list[str] = []
    for name, more in runs(arguments):
        begun_s = time.monotonic()
        keywords = {"quick": arguments.quick, **more}
        process = get_context("spawn").Process(target=report.run, args=(name, arguments.output), kwargs=keywords)
        process.start()
        process.join()
        if process.exitcode:
            (absent if process.exitcode == EXIT_ABSENT else failed).append(name)
        print(f"{name}: {time.monotonic() - begun_s:.0f} s", flush=True)
    for title, names in (("without their open sets", absent), ("failed", failed)):
        if names:
            print(f"{title}: {', '.join(names)}", file=sys.stderr)
    return len(failed)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(names_of())}; all unless named")
    parser.add_argument("--group", choices=GROUPS, help="run the benchmarks of a group")
    parser.add_argument("--quick", action="store_true", help="short, to see that everything works")
    parser.add_argument("--output", type=Path, default=report.RESULTS, metavar="FOLDER", help="where the JSON goes")
    parser.add_argument("--against", type=Path, metavar="DIR", help="compare with another checkout, with its own .venv")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(names_of()):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    if arguments.against and not (arguments.against / ".venv" / "bin" / "python").exists():
        parser.error(f"{arguments.against} has no .venv; make one there with the project installed")
    return arguments


def runs(arguments: argparse.Namespace) -> Iterator[tuple[str, dict[str, Path]]]:
    """Yield the benchmarks to run, with their own arguments."""
    names = arguments.names or ([] if arguments.against else names_of(arguments.group))
    for name in names:
        if name != AGAINST:
            yield name, {}
    if arguments.against:
        yield AGAINST, {"other": arguments.against}


if __name__ == "__main__":
    sys.exit(main())
