"""The schema of the settings: the model of each table."""

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
#: Path in a settings tree: of a table, ``("kafka",)`` or ``("profiles", NAME)``, or of a key, with one part more.
KeyPath = tuple[str, ...]


def field_at(path: KeyPath) -> FieldInfo | None:
    """Return the field of the key at ``path``; None if there is no such key."""
    if len(path) == 3 and path[0] == "profiles":
        return keys_of(Profile).get(path[2])
    if len(path) == 2 and path[0] in SECTIONS:
        return keys_of(SECTIONS[path[0]]).get(path[1])
    return None


def tables(tree: Mapping[str, object]) -> Iterator[tuple[KeyPath, type[Section], object]]:
    """Yield path, model and content for each table in a settings tree; an absent section counts as an empty table."""
    for name, model in SECTIONS.items():
        yield (name,), model, tree.get(name, {})
    profiles = tree.get("profiles")
    if isinstance(profiles, Mapping):
        for name, content in profiles.items():
            yield ("profiles", name), Profile, content


def describe_unknown(path: KeyPath) -> str:
    """Describe an unknown key or section, with the most similar known one: of its table, or else of any table."""
    profile = path[1] if len(path) == 3 else "NAME"  # also in another section: ``redis.x.threshold``
    all_paths: list[KeyPath] = [(name,) for name in (*SECTIONS, "profiles")]
    all_paths += [(section, key) for section, model in SECTIONS.items() for key in keys_of(model)]
    all_paths += [("profiles", profile, key) for key in keys_of(Profile)]
    siblings = [key_path for key_path in all_paths if key_path[:-1] == path[:-1]]
    for key_paths, least_similarity in ((siblings, 0.6), (all_paths, 0.7)):
        names = [key_path[-1] for key_path in key_paths]
        if similar := get_close_matches(path[-1], names, n=1, cutoff=least_similarity):
            suggestions = " or ".join(".".join(key_path) for key_path in key_paths if key_path[-1] == similar[0])
            return f"unknown key; did you mean {suggestions}?"
    return "unknown key; the documentation of the settings lists all"
