"""The report of a benchmark: its setting and its tables, on the screen and as JSON for the pages."""

import importlib
import importlib.metadata
import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.datasets import REPOSITORY
from streamdedup import __version__

#: Results of the benchmarks, as NAME.json.
RESULTS = REPOSITORY / "build" / "bench"
#: Packages whose versions affect a measurement.
PACKAGES = ("numpy", "kafka-python", "redis", "hiredis", "msgspec", "litestar", "uvicorn", "datasketch")


@dataclass(frozen=True)
class Table:
    """Rows of texts; the first column is a name, the others are numbers."""

    columns: list[str]
    rows: list[list[str]]

    def text(self) -> str:
        lines = [self.columns, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join([name.ljust(widths[0]), *map(str.rjust, rest, widths[1:])]) for name, *rest in lines)

    def markdown(self) -> str:
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


def run(name: str, folder: Path, *, quick: bool, **more: Any) -> None:
    """Run a benchmark, print its report and write it into a folder; the process fails by a fault of the report."""
    report: Report = importlib.import_module(f"benchmarks.{name}").main(quick=quick, **more)
    print(f"\n## {name}{' (quick: these numbers say little)' if quick else ''}\n")
    print("\n".join(f"{key}: {value}" for key, value in report.setting.items()))
    for title, content in report.tables.items():
        print(f"\n{title}\n\n{content.text()}")
    path = report.write(name, folder, quick=quick)
    print(f"\nwritten: {path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path}", flush=True)
    sys.exit(report.fault)


@dataclass(frozen=True)
class Report:
    """Result of a benchmark; ``fault`` says why it is wrong, None if nothing contradicts it."""

    setting: Mapping[str, Any]
    tables: Mapping[str, Table]
    fault: str | None = None

    def write(self, name: str, folder: Path, *, quick: bool) -> Path:
        """Write setting and tables into a folder as NAME.json; return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{name}.json"
        content = {"name": name, "quick": quick, "setting": {**self.setting, **environment()}, "tables": self.tables}
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
    result = {"streamdedup": __version__, "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            result[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            result[package] = "absent"
    return result
