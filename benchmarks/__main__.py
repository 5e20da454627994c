"""Run every benchmark, one after the other, each in a process of its own.

    python -m benchmarks [--quick] [NAME ...]

Prints the tables and writes build/bench/NAME.json. `python -m benchmarks.page` then renews the tables of
docs/performance.md.
"""

import subprocess
import sys
import time

from benchmarks import report
from benchmarks.places import REPOSITORY

#: In this order; each is a module.
NAMES = ("text_to_keys", "scripts", "store", "memory", "end_to_end", "tuning", "storm")


def main() -> int:
    """Run them; return how many failed."""
    parser = report.parser(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(NAMES)}; all of them unless named")
    arguments = parser.parse_args()
    if unknown := set(arguments.names) - set(NAMES):
        parser.error(f"no such benchmark: {', '.join(sorted(unknown))}")
    for facts in (report.machine(), report.versions()):
        print(", ".join(f"{name} {value}" for name, value in facts.items()), flush=True)
    started_s = time.monotonic()
    failed = []
    for name in arguments.names or NAMES:
        command = [sys.executable, "-m", f"benchmarks.{name}", "--output", str(arguments.output.resolve())]
        command += ["--quick"] if arguments.quick else []
        if subprocess.run(command, cwd=REPOSITORY, check=False).returncode:
            failed.append(name)
    print(f"\n{time.monotonic() - started_s:.0f} s in all" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
