"""Rewrite the tables of the documentation: ``python -m streamdedup.settings docs/settings.md``."""

import sys
from pathlib import Path

from streamdedup.settings import render_tables

if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m streamdedup.settings docs/settings.md")
    page = Path(sys.argv[1])
    page.write_text(render_tables(page.read_text(encoding="utf-8")), encoding="utf-8")
