"""Validation of one table after the other, so that no mistake hides another one.

The validator of all settings would look for contradictions in a section only when every value in it is right, and
between sections only when all of them are. Here wrong values are reported and left out, and the checks run over the
rest.
"""

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from streamdedup.settings.base import VALUES_ONLY, Section, allowed, key_of, keys_of
from streamdedup.settings.mistakes import describe_unknown, describe_value, shown
from streamdedup.settings.schema import Steps, tables
from streamdedup.settings.sources import Sources

#: Values for absent keys without default, so that the rest of a table can be read; they are taken out again.
_STAND_INS = {"bootstrap_servers": "localhost:9092", "topics": "topic"}


def read_sections(sources: Sources) -> dict[str, Any]:
    """Return the sections by name, and the profiles by theirs; mistakes are reported to ``sources``."""
    profiles: dict[str, Section] = {}
    sections: dict[str, Any] = {"profiles": profiles}
    for path, model, content in tables(sources.tree):
        (profiles if path[0] == "profiles" else sections)[path[-1]] = _read_section(sources, path, model, content)
    given = sources.tree.get("profiles", {})
    if given == {}:
        sources.report_missing(("profiles",), "a table [profiles.NAME] with its topics")
    elif not isinstance(given, Mapping):
        sources.report(("profiles",), f"is {shown(given)}, not a table; needed: keys under [profiles.NAME]")
    for name in sources.tree:
        if name not in sections:
            sources.report((name,), describe_unknown((name,)))
    return sections


def report_contradictions(sources: Sources, section: Section, above: Steps = ()) -> None:
    """Report the contradictions within a section; those with an unread file are unknown."""
    if not sources.is_unread:
        for key, text in section.contradictions():
            sources.report((*above, *key.split(".")), text)


def _read_section(sources: Sources, path: Steps, model: type[Section], content: object) -> Section:
    """Return a section that lacks the attributes of its wrong values."""
    if not isinstance(content, Mapping):
        sources.report(path, f"is {shown(content)}, not a table; needed: keys under [{'.'.join(path)}]")
        return _without(model, {}, set(keys_of(model)))
    try:
        section = model.model_validate(content, context=VALUES_ONLY)
    except ValidationError as error:
        section = _without(model, content, _report_values(sources, path, model, error))
    report_contradictions(sources, section, path)
    return section


def _report_values(sources: Sources, path: Steps, model: type[Section], found: ValidationError) -> set[str]:
    """Report the wrong, unknown and absent keys of a table; return them."""
    fields = keys_of(model)
    keys: set[str] = set()
    for error in found.errors(include_url=False):
        key, *inside = map(str, error["loc"])
        if error["type"] == "missing":
            sources.report_missing((*path, key), allowed(fields[key]))
        elif key not in fields:
            sources.report((*path, key), describe_unknown((*path, key)))
        elif inside or (key not in keys and error["type"] != "default_factory_not_called"):
            # Not for a default that would follow from a wrong value, nor for the length of a list with wrong items.
            place, text = describe_value(fields[key], error)
            sources.report((*path, key), text, place)
        keys.add(key)
    sources.settled.update((*path, key) for key in keys)
    return keys


def _without(model: type[Section], content: Mapping[str, object], keys: set[str]) -> Section:
    """Return a section that lacks the attributes of ``keys``."""
    kept = {key: value for key, value in content.items() if key not in keys}
    needed = {key: value for key, value in _STAND_INS.items() if key in keys & keys_of(model).keys()}
    section = model.model_validate(kept | needed, context=VALUES_ONLY)
    for name in model.model_fields:
        if key_of(name) in keys:
            section.__dict__.pop(name, None)
    return section
