"""Rewrite the tables and pictures of the pages from the results in build/experiments.

    python -m experiments.page

A table is between `<!-- experiment: NAME.TABLE -->` and `<!-- end of experiment -->`; a picture is shown as
`images/NAME.svg` and copied beside the page.
"""

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.report import Table
from experiments.places import DOCS, REPOSITORY, RESULTS

#: The pages.
PAGES = (DOCS / "experiments.md", DOCS / "robustness.md")
BLOCK = re.compile(r"(<!-- experiment: (\w+)\.(\w+) -->\n).*?(<!-- end of experiment -->)", re.DOTALL)
PICTURE = re.compile(r"\]\(images/([\w-]+\.svg)\)")


def render(page: str, tables_of: Callable[[str], Mapping[str, Any]]) -> str:
    """Return a page with every table rewritten.

    Args:
        page: The page.
        tables_of: Returns the tables of an experiment by its name.

    Raises:
        KeyError: A block names a table that the experiment does not have.
    """

    def block(match: re.Match[str]) -> str:
        return f"{match[1]}\n{Table(**tables_of(match[2])[match[3]]).markdown()}\n{match[4]}"

    return BLOCK.sub(block, page)


def main(results: Path = RESULTS) -> None:
    """Rewrite the pages."""

    def tables_of(name: str) -> Mapping[str, Any]:
        tables: Mapping[str, Any] = json.loads((results / f"{name}.json").read_text("utf-8"))
        return tables

    for path in PAGES:
        try:
            page = render(path.read_text("utf-8"), tables_of)
            for picture in PICTURE.findall(page):
                shutil.copyfile(results / picture, DOCS / "images" / picture)
        except (OSError, KeyError) as error:
            sys.exit(f"cannot renew {path.relative_to(REPOSITORY)}: {error}; run the experiments first")
        path.write_text(page, "utf-8")


if __name__ == "__main__":
    main()
