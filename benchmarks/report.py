"""The report of a benchmark: its setting, its tables on the screen, and its results as JSON for the pages."""

import argparse
import importlib.metadata
import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.datasets import REPOSITORY
from streamdedup import __version__

#: Results of the benchmarks, as NAME.json.
RESULTS = REPOSITORY / "build" / "bench"
#: Packages whose versions affect a measurement.
PACKAGES = ("numpy", "kafka-python", "redis", "hiredis", "msgspec", "litestar", "uvicorn", "datasketch")


def parser(description: str | None) -> argparse.ArgumentParser:
    """Return a command line with the options of all benchmarks.

    Args:
        description: The benchmark's docstring, of which the first line is shown.
    """
    made = argparse.ArgumentParser(description=(description or "").partition("\n")[0])
    made.add_argument("--quick", action="store_true", help="short, to see that everything works")
    made.add_argument("--output", type=Path, default=RESULTS, metavar="FOLDER", help="where the results go, as JSON")
    return made


def arguments_of(
    parser: argparse.ArgumentParser, quick: Mapping[str, Any], usual: Mapping[str, Any]
) -> argparse.Namespace:
    """Read a command line whose numbers, or tuples of numbers, depend on ``--quick`` unless they are given."""
    parser.add_argument("--redis", metavar="PROGRAM", help="Redis server program")
    for name, value in usual.items():
        numbers, nargs = (value, "+") if isinstance(value, tuple) else ((value,), None)
        shown = " ".join(f"{number:,}" for number in numbers)
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=type(numbers[0]), nargs=nargs, help=f"{shown} unless --quick")
    arguments = parser.parse_args()
    for name, number in (quick if arguments.quick else usual).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, number)
    return arguments


@dataclass(frozen=True)
class Table:
    """Rows of texts; the first column is a name, the others are numbers."""

    columns: list[str]
    rows: list[list[str]]

    def text(self) -> str:
        """Return the table for a screen."""
        lines = [self.columns, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join([name.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]) for name, *rest in lines)

    def markdown(self) -> str:
        """Return the table for a page."""
        rule = ["---", *["--:"] * (len(self.columns) - 1)]
        return "\n".join(f"| {' | '.join(line)} |" for line in [self.columns, rule, *self.rows]) + "\n"


def table(columns: Sequence[str] | Mapping[str, str], rows: Iterable[Iterable[object]]) -> Table:
    """Return a table of numbers and texts; None becomes a dash.

    Args:
        columns: The titles, or by title the format of the column's numbers. Whole numbers without a format get commas.
        rows: Values in the order of the columns.
    """
    formats = columns.values() if isinstance(columns, Mapping) else [""] * len(columns)
    return Table(list(columns), [[_cell(*cell) for cell in zip(row, formats, strict=True)] for row in rows])


def _cell(value: object, number_format: str) -> str:
    if value is None or isinstance(value, str):
        return "-" if value is None else value
    return format(value, number_format or ("," if isinstance(value, int) else ""))


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share as a percentage; a dash for a share of nothing."""
    return "-" if share is None else f"{100 * share:.{digits}f} %"


@dataclass
class Report:
    """Result of a benchmark.

    Attributes:
        name: Name of the benchmark and of its file.
        quick: The short form was run, whose numbers say little.
        setting: Documents, servers and parameters.
        results: The numbers, as measured; dataclasses among them are written field by field.
        tables: The numbers as tables, by the name that pages use.
    """

    name: str
    quick: bool
    setting: dict[str, Any]
    results: Any = None
    tables: dict[str, Table] = field(default_factory=dict)

    def show(self, folder: Path) -> None:
        """Print everything, and write it into a folder."""
        print(f"\n## {self.name}{' (quick: these numbers say little)' if self.quick else ''}\n")
        print("\n".join(f"{key}: {value}" for key, value in self.setting.items()))
        for name, content in self.tables.items():
            print(f"\n{name}\n\n{content.text()}")
        path = self.write(folder)
        print(f"\nwritten: {path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path}", flush=True)

    def write(self, folder: Path) -> Path:
        """Write NAME.json into a folder; return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        content = vars(self) | {"setting": self.setting | environment()}
        path.write_text(json.dumps(content, default=asdict, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        return path


def environment() -> dict[str, str]:
    """Return machine, versions and time of a measurement."""
    processor = first_after("/proc/cpuinfo", "model name") or platform.processor() or platform.machine()
    memory = first_after("/proc/meminfo", "MemTotal")
    gibibytes = f", {int(memory.split()[0]) / 2**20:.0f} GiB" if memory else ""
    return {
        "machine": f"{processor}, {os.cpu_count()} cores{gibibytes}, {platform.system()} {platform.release()}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions().items()),
        "measured": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def first_after(path: str, name: str) -> str | None:
    """Return the value of the first line ``name : value`` of a system file, None without such a line."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)


def versions() -> dict[str, str]:
    """Return the versions of Python, the project and its packages."""
    result = {"streamdedup": __version__, "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            result[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            result[package] = "absent"
    return result
