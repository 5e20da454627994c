"""Writes the tables of ``docs/settings.md`` from the declarations of the settings.

    python docs/settings_tables.py

A table is between ``<!-- settings: SECTION -->`` and ``<!-- end of settings -->``.
"""  # noqa: INP001  a script beside the pages, no package

import ast
import inspect
import re
from itertools import pairwise
from pathlib import Path

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from streamdedup.settings import Profile
from streamdedup.settings.base import Section, describe_allowed, key_of, keys_of, kind_of
from streamdedup.settings.schema import SECTIONS
from streamdedup.settings.tls import TlsSection

PAGE = Path(__file__).parent / "settings.md"
TABLE = re.compile(r"(<!-- settings: ([a-z_.]+) -->\n).*?(<!-- end of settings -->)", re.DOTALL)

#: Phrases of the messages about a value, and their short form in a table.
SHORTER = (
    (r"^a (?:duration|size|number) (.*?)(?:, such as .*)?$", r"\1"),
    (r"^a whole number ", ""),
    (r"^a topic's name: .*$", "a topic's name"),
    (r"^the path of a file$", "a file"),
    (r'", or "none" for no limit$', r'" or "none"'),
    (r', or "none" for no limit$', ' or "none"'),
    (r"^a text that is not empty$", "a text"),
    (r", (?:as a list or )?with commas between them$", ""),
    (r"^the name of a field[, ].*$", "a field"),
    (r"^one or more names of fields[, ].*$", "one or more fields"),
    (r"^(a host name or address|a URL) without .*$", r"\1"),
    (r'" or "(?!none")', '", "'),
    (r"^true or false$", "true, false"),
    (r"^from (\S+) up to (\S+)$", r"\1 to \2"),
)


def render(page: str) -> str:
    """Return a page with a new table for each section.

    Raises:
        ValueError: A comment names no section, or a section has no comment.
    """
    sections: dict[str, type[Section]] = {**SECTIONS, "tls": TlsSection, "profiles.name": Profile}
    named = [match[2] for match in TABLE.finditer(page)]
    if sorted(named) != sorted(sections):
        raise ValueError(f"the page has tables for {', '.join(named) or 'nothing'}; needed: {', '.join(sections)}")
    return TABLE.sub(lambda match: f"{match[1]}{table(sections[match[2]])}{match[3]}", page)


def table(section: type[Section]) -> str:
    """Return the table of one section, in Markdown; the keys of TLS have a table of their own."""
    rows = ["| key | default | allowed | meaning |", "|---|---|---|---|"]
    meanings = descriptions(section)
    shared = keys_of(TlsSection) if issubclass(section, TlsSection) and section is not TlsSection else {}
    for key, field in keys_of(section).items():
        if key in shared:
            continue
        cells = [f"`{key}`", default(field), short(describe_allowed(field)), " ".join(meanings[key].split())]
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows) + "\n"


def descriptions(section: type[Section]) -> dict[str, str]:
    """Return the docstring of each attribute by key."""
    meanings = {}
    for part in section.__mro__:
        if issubclass(part, Section):
            (declaration,) = ast.parse(inspect.getsource(part)).body
            for attribute, text in pairwise(declaration.body):
                if isinstance(attribute, ast.AnnAssign) and isinstance(text, ast.Expr):
                    meanings[key_of(ast.unparse(attribute.target))] = ast.literal_eval(text.value)
    return meanings


def short(values: str) -> str:
    """Return the accepted values without the words that ``Values`` of the page explains once."""
    for words, replacement in SHORTER:
        values = re.sub(words, replacement, values)
    return values


def default(field: FieldInfo) -> str:
    """Return the default of a key, or its declared description."""
    if isinstance(field.json_schema_extra, dict):
        return str(field.json_schema_extra["default"])
    if field.default is PydanticUndefined:
        return "*required*"
    if field.default is None and '"none"' not in describe_allowed(field):
        return "absent"
    return f"`{kind_of(field).write(field.default)}`"


if __name__ == "__main__":
    PAGE.write_text(render(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
