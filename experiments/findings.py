"""Scale and results of an experiment: tables, and pictures as SVG."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.report import Table

__all__ = ["Results", "Scale", "Table", "percent", "table"]


@dataclass(frozen=True)
class Scale:
    """Size of an experiment.

    Attributes:
        data: Folder of the texts.
        trials: Constructed pairs of each similarity, and texts of each set that edits are tried on.
        seeds: Families of hash functions for averages.
        sizes: Shingle sizes of the Reuters experiment.
    """

    data: Path
    trials: int = 2_000
    seeds: int = 100
    sizes: Sequence[int] = (1, 2, 3, 4, 5, 6, 7)


@dataclass
class Results:
    """Results of an experiment.

    Attributes:
        name: Name of the experiment and of its file.
        tables: Tables, by the name that pages use.
        pictures: SVG, by the name of their file without its ending.
    """

    name: str
    tables: dict[str, Table] = field(default_factory=dict)
    pictures: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        """Return everything for a screen."""
        parts = [f"## {self.name}"]
        parts += [f"{name}\n\n{one.text()}" for name, one in self.tables.items()]
        parts += [f"picture: {name}.svg" for name in self.pictures]
        return "\n\n".join(parts) + "\n"

    def write(self, folder: Path) -> None:
        """Write NAME.json and the pictures into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {name: {"columns": one.columns, "rows": one.rows} for name, one in self.tables.items()}
        (folder / f"{self.name}.json").write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
        for name, picture in self.pictures.items():
            (folder / f"{name}.svg").write_text(picture, "utf-8")


def table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """Return a table of numbers and texts; whole numbers get commas."""
    return Table(list(columns), [[_cell(value) for value in row] for row in rows])


def percent(share: float | None, digits: int = 1) -> str:
    """Return a share as a percentage; a dash for a share of nothing."""
    return "-" if share is None else f"{100 * share:.{digits}f} %"


def _cell(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else str(value)
