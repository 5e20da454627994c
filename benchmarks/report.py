"""The report of a benchmark: its setting, its tables on the screen, and its results as JSON."""

import argparse
import importlib.metadata
import json
import os
import platform
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.places import REPOSITORY, RESULTS
from streamdedup import __version__

#: Packages whose versions affect a measurement.
PACKAGES = (
    "numpy",
    "kafka-python",
    "redis",
    "hiredis",
    "crc32c",
    "msgspec",
    "litestar",
    "uvicorn",
    "datasketch",
    "rensa",
)


def parser(description: str) -> argparse.ArgumentParser:
    """Return a command line with the options of all benchmarks.

    Args:
        description: The benchmark's docstring, of which the first line is shown.
    """
    made = argparse.ArgumentParser(description=description.partition("\n")[0])
    made.add_argument("--quick", action="store_true", help="short, to see that everything works")
    made.add_argument("--output", type=Path, default=RESULTS, metavar="FOLDER", help="where the results go, as JSON")
    return made


@dataclass(frozen=True)
class Table:
    """Rows of texts; the first column is a name, the others are numbers."""

    columns: list[str]
    rows: list[list[str]]

    def text(self) -> str:
        """Return the table for a screen."""
        lines = [self.columns, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join(
            "  ".join(
                [name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True))]
            )
            for name, *rest in lines
        )

    def markdown(self) -> str:
        """Return the table for a page."""
        rule = ["---", *["--:"] * (len(self.columns) - 1)]
        return "\n".join(f"| {' | '.join(line)} |" for line in [self.columns, rule, *self.rows]) + "\n"


@dataclass
class Report:
    """Result of a benchmark.

    Attributes:
        name: Name of the benchmark and of its file.
        quick: The short form was run, whose numbers say little.
        setting: Machine, servers and parameters.
        results: The numbers, as measured.
        tables: The numbers as tables, by the name that pages use.
    """

    name: str
    quick: bool
    setting: dict[str, Any]
    results: Any = None
    tables: dict[str, Table] = field(default_factory=dict)

    def show(self, folder: Path) -> None:
        """Print everything, and write it into a folder."""
        print(f"\n## {self.name}{' (quick: these figures are worth little)' if self.quick else ''}\n")
        print("\n".join(f"{key}: {value}" for key, value in self.setting.items()))
        for table in self.tables.values():
            print(f"\n{table.text()}")
        path = self.write(folder)
        print(f"\nwritten: {path.relative_to(REPOSITORY) if path.is_relative_to(REPOSITORY) else path}", flush=True)

    def write(self, folder: Path) -> Path:
        """Write NAME.json into a folder; return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.json"
        content = {
            "name": self.name,
            "quick": self.quick,
            "measured_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine(),
            "versions": versions(),
            "setting": self.setting,
            "results": self.results,
            "tables": {name: {"columns": one.columns, "rows": one.rows} for name, one in self.tables.items()},
        }
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        return path


def machine() -> dict[str, Any]:
    """Return a description of the machine; the load is that of the last minute, the benchmark included."""
    return {
        "processor": _first_after("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory": _memory(),
        "system": f"{platform.system()} {platform.release()}",
        "load": round(os.getloadavg()[0], 2),
    }


def _memory() -> str | None:
    """Return the memory of the machine."""
    total = _first_after("/proc/meminfo", "MemTotal")
    return total and f"{int(total.split()[0]) / 2**20:.0f} GiB"


def _first_after(path: str, name: str) -> str | None:
    """Return the value of the first line `name : value` of a file of the system, if there is one."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)


def versions() -> dict[str, str]:
    """Return the versions of everything in Python."""
    found = {"streamdedup": __version__, "Python": platform.python_version()}
    for package in PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            found[package] = "absent"
    return found
