"""Rewrite the tables of docs/performance.md, docs/quality.md and docs/library.md from the results in build/bench.

    python -m benchmarks.page [performance] [quality] [library]

All unless some are named.

A table is between `<!-- bench: NAME.TABLE -->` and `<!-- end of bench -->`; `NAME.setting` describes machine, servers
and parameters. Results of a quick run are refused: they say little.
"""

import json
import re
import sys
from collections.abc import Callable
from typing import Any

from benchmarks.places import LIBRARY_PAGE, PAGE, QUALITY_PAGE, REPOSITORY, RESULTS
from benchmarks.report import Table

BLOCK = re.compile(r"(<!-- bench: (\w+)\.(\w+) -->\n).*?(<!-- end of bench -->)", re.DOTALL)


def render(page: str, result_of: Callable[[str], dict[str, Any]]) -> str:
    """Return a page with every block written anew.

    Args:
        page: The page.
        result_of: Gives the results of a benchmark by its name.

    Raises:
        KeyError: A block names a table that the benchmark does not have.
        ValueError: The results are those of a quick run.
    """

    def block(match: re.Match[str]) -> str:
        result = result_of(match[2])
        if result["quick"]:
            raise ValueError(f"{match[2]}: measured with --quick; run it in full")
        content = setting(result) if match[3] == "setting" else Table(**result["tables"][match[3]]).markdown()
        return f"{match[1]}\n{content}\n{match[4]}"

    return BLOCK.sub(block, page)


def setting(result: dict[str, Any]) -> str:
    """Return what a benchmark was measured on, and how."""
    machine, versions = result["machine"], result["versions"]
    lines = {
        **result["setting"],
        "machine": f"{machine['processor']}, {machine['cores']} cores, {machine['memory']}, {machine['system']}",
        "versions": ", ".join(f"{name} {version}" for name, version in versions.items()),
        "measured": f"{result['measured_at']}",
    }
    return "".join(f"- {name}: {value}\n" for name, value in lines.items())


def main() -> None:
    """Write the pages anew."""
    pages = {"performance": PAGE, "quality": QUALITY_PAGE, "library": LIBRARY_PAGE}
    if unknown := set(sys.argv[1:]) - pages.keys():
        sys.exit(f"no such page: {', '.join(sorted(unknown))}; there are {', '.join(pages)}")

    def result_of(name: str) -> dict[str, Any]:
        result: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
        return result

    for page in [pages[name] for name in sys.argv[1:] or pages]:
        try:
            text = render(page.read_text(encoding="utf-8"), result_of)
        except (OSError, KeyError, ValueError) as error:
            sys.exit(f"cannot renew {page.relative_to(REPOSITORY)}: {error}")
        page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
