"""Writes the tables of ``streamdedup plan`` into the pages for operators, from the measurement in this folder.

    python docs/plan_tables.py

A table is between ``<!-- plan: OPTIONS -->`` and ``<!-- end of plan -->``. To measure anew, on a quiet machine:

    streamdedup plan reuters21578.tar.gz --sample 20000 --table --save docs/measured-machine.json
"""  # noqa: INP001  a script beside the pages, no package

import re
import shlex
from pathlib import Path

from typer.testing import CliRunner

from streamdedup.cli.main import app

FOLDER = Path(__file__).parent
MACHINE = FOLDER / "measured-machine.json"
PAGES = (FOLDER / "deployment.md", FOLDER / "operating.md")
BLOCK = re.compile(r"(<!-- plan: ([^\n]*) -->\n).*?(<!-- end of plan -->)", re.DOTALL)


def render(page: str) -> str:
    """Return a page with the table of each block computed anew."""

    def block(match: re.Match[str]) -> str:
        result = CliRunner().invoke(app, ["plan", "--measured", str(MACHINE), *shlex.split(match[2])])
        if result.exit_code:
            raise ValueError(f"{match[2]}: {result.output}")
        text = result.stdout if "--table" in match[2] else f"```text\n{result.stdout}```\n"
        return f"{match[1]}\n{text}\n{match[3]}"

    return BLOCK.sub(block, page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(render(path.read_text(encoding="utf-8")), encoding="utf-8")
