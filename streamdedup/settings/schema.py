"""The schema of the settings: the model of each table.

``sources``, ``validation`` and ``cli.settings_options`` look keys up here; ``describe`` and ``docs/settings_tables.py``
list the sections. A new section is a row of ``SECTIONS`` and an attribute of ``root.Settings``.
"""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches

from pydantic.fields import FieldInfo

from streamdedup.settings.api import Api
from streamdedup.settings.base import Section, keys_of
from streamdedup.settings.kafka import Kafka
from streamdedup.settings.profile import Profile
from streamdedup.settings.redis import Redis
from streamdedup.settings.schema_registry import SchemaRegistry
from streamdedup.settings.service import Service

#: Prefix of the environment variables of the project.
PREFIX = "STREAMDEDUP_"
#: Separator of section, profile and key in a variable's name.
SEPARATOR = "__"
#: Model of each section except ``profiles``, which has a table for each profile.
SECTIONS: Mapping[str, type[Section]] = {
    "kafka": Kafka,
    "redis": Redis,
    "schema_registry": SchemaRegistry,
    "service": Service,
    "api": Api,
}
#: Path to a value: section and key, or ``profiles``, profile and key.
KeyPath = tuple[str, ...]


def section_at(path: KeyPath) -> type[Section] | None:
    if len(path) == 3 and path[0] == "profiles":
        return Profile
    return SECTIONS.get(path[0]) if len(path) == 2 else None


def field_at(path: KeyPath) -> FieldInfo | None:
    section = section_at(path)
    return None if section is None else keys_of(section).get(path[-1])


def tables(tree: Mapping[str, object]) -> Iterator[tuple[KeyPath, type[Section], object]]:
    """Yield path, model and content for each table in a settings tree; an absent section counts as an empty table."""
    for name, model in SECTIONS.items():
        yield (name,), model, tree.get(name, {})
    profiles = tree.get("profiles")
    for name, content in profiles.items() if isinstance(profiles, Mapping) else ():
        yield ("profiles", name), Profile, content


def describe_unknown(path: KeyPath) -> str:
    """Describe an unknown key, with similar known keys: those of its table, or else of all tables."""
    profile = path[1] if len(path) == 3 else "NAME"
    models: dict[str, type[Section]] = {**SECTIONS, f"profiles.{profile}": Profile}
    all_keys = [("", name) for name in (*SECTIONS, "profiles")]
    all_keys += [(f"{table}.", key) for table, model in models.items() for key in keys_of(model)]
    siblings = [(table, key) for table, key in all_keys if table == "".join(f"{step}." for step in path[:-1])]
    for keys, cutoff in ((siblings, 0.6), (all_keys, 0.7)):
        close = get_close_matches(path[-1], [key for _, key in keys], n=1, cutoff=cutoff)
        if close:
            return f"unknown key; did you mean {' or '.join(table + key for table, key in keys if key == close[0])}?"
    return "unknown key; the documentation of the settings lists all"
