"""Settings in which some values are wrong: what contradicts among the others.

The validator looks for contradictions in a section only when every value in it is right, and between sections only when
all of them are. Here the wrong values are left out and the checks are run over what remains, so that all mistakes are
told in one go.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pydantic_core import ErrorDetails

from streamdedup.settings.base import VALUES_ONLY, Section, key_of, keys_of
from streamdedup.settings.sources import Schema, Sources, Steps

#: Values for keys that have no default, so that the rest of a section can be read; they are taken out again.
_STAND_INS = {"bootstrap_servers": "localhost:9092", "topics": "topic"}


def overlooked(
    root: type[Section], errors: Iterable[ErrorDetails], schema: Schema, sources: Sources
) -> Iterator[tuple[Steps, str]]:
    """Yield where and what, for contradictions among the values that are right by themselves.

    Args:
        root: All sections together.
        errors: What the validator found.
        schema: The sections there are.
        sources: The values; of a file that could not be read nothing is known, and nothing is yielded.
    """
    if sources.is_unread:
        return
    wrong = {tuple(str(step) for step in error["loc"]) for error in errors}
    known: dict[str, Any] = {}
    mistaken = {*schema.sections, "profiles"}
    for above, model, values in _tables(schema, sources.tree):
        if above in wrong or (*above, "[key]") in wrong or not isinstance(values, Mapping):
            continue
        keys = {way[len(above)] for way in wrong if len(way) > len(above) and way[: len(above)] == above}
        section, missing = _without_mistakes(model, values, keys)
        mistaken |= missing
        yield from _found(section, missing, above, wrong)
        (known.setdefault("profiles", {}) if len(above) > 1 else known)[above[-1]] = section
    together = root.model_construct(None, **known)
    for name in root.model_fields.keys() - known.keys():
        together.__dict__.pop(name, None)
    yield from _found(together, mistaken, (), wrong)


def _found(section: Section, mistaken: set[str], above: Steps, wrong: set[Steps]) -> Iterator[tuple[Steps, str]]:
    """Yield what contradicts in a section; of a key that is wrong by itself nothing further is said."""
    for key, text in section.contradictions(mistaken):
        steps = (*above, *key.split("."))
        if steps not in wrong:
            yield steps, text


def _tables(schema: Schema, tree: Mapping[str, object]) -> Iterator[tuple[Steps, type[Any], object]]:
    """Yield the way to each table, its model and what it holds."""
    for name, model in schema.sections.items():
        yield (name,), model, tree.get(name)
    profiles = tree.get("profiles")
    for name, values in profiles.items() if isinstance(profiles, Mapping) else ():
        yield ("profiles", name), schema.profile, values


def _without_mistakes(model: type[Section], values: Mapping[str, object], keys: set[str]) -> tuple[Section, set[str]]:
    """Return a section that lacks the attributes of ``keys``, and their names."""
    kept = {key: value for key, value in values.items() if key not in keys}
    needed = {key: value for key, value in _STAND_INS.items() if key in keys & keys_of(model).keys()}
    section = model.model_validate(kept | needed, context=VALUES_ONLY)
    mistaken = {name for name, field in model.model_fields.items() if key_of(name, field) in keys}
    for name in mistaken:
        section.__dict__.pop(name, None)
    return section, mistaken
