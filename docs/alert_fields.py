"""Writes the example and the tables of the fields of an alert in ``docs/messages.md`` from ``alert.schema.json``.

python docs/alert_fields.py
"""  # noqa: INP001  a script beside the pages, no package

import json
import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from streamdedup.wire import schema

PAGE = Path(__file__).parent / "messages.md"
EXAMPLE = re.compile(r"(```json alert\n).*?(```)", re.DOTALL)
TABLES = re.compile(r"(<!-- alert fields -->\n).*?(<!-- end of alert fields -->)", re.DOTALL)


def render(page: str) -> str:
    """Return a page with a new example and new tables."""
    alert = json.loads(schema("alert"))
    parts = {name: alert["$defs"][name]["properties"] for name in ("place", "document", "match")}
    # The same fields in both have one definition.
    both = {name: field for name, field in parts["match"].items() if parts["document"].get(name) == field}
    groups = {
        "An alert": alert["properties"],
        "`document` and each match": parts["place"] | both,
        "`document`": _without(parts["document"], both),
        "each match": _without(parts["match"], both),
    }
    text = "\n".join(_table(title, fields, alert["$defs"]) for title, fields in groups.items())
    example = json.dumps(alert["examples"][0], indent=2)
    page = EXAMPLE.sub(lambda match: f"{match[1]}{example}\n{match[2]}", page)
    return TABLES.sub(lambda match: f"{match[1]}\n{text}\n{match[2]}", page)


def _without(fields: Mapping[str, Any], left_out: Mapping[str, Any]) -> dict[str, Any]:
    return {name: field for name, field in fields.items() if name not in left_out}


def _table(title: str, fields: Mapping[str, Any], definitions: Mapping[str, Any]) -> str:
    def meaning(name: str) -> str:
        referred = definitions.get(fields[name].get("$ref", "").rpartition("/")[2], {})
        return str(({**referred, **fields[name]})["description"])

    rows = [f"| {title} | |", "|---|---|"]
    for text, names in groupby(fields, meaning):  # fields with the same description share a row
        rows.append(f"| {', '.join(f'`{name}`' for name in names)} | {text} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
