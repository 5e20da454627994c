"""What is wrong with settings, in one line each: the key's full name, what was given, what is allowed.

No line repeats the value of a secret, of an unknown key, or a password inside an address.
"""

import re
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from itertools import chain
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from streamdedup.settings.base import Contradictions, WrongItem, allowed, is_secret, keys_of
from streamdedup.settings.sources import CONFIG_VARIABLE, Schema, Sources, Steps
from streamdedup.settings.units import write_text

#: Longest part of a wrong value that a message repeats.
_SHOWN_CHARACTERS = 60
#: User and password inside an address.
_USERINFO = re.compile(r"[^/\s]*@")
#: What would break a line, or write into a terminal.
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]+")
#: Errors that follow from another one, which is reported.
_CONSEQUENCES = {"default_factory_not_called"}
#: How a text begins that says what is not there. In a file that could not be read everything may be.
_ABSENT = "is missing"


def describe_mistakes(
    errors: Iterable[ErrorDetails], schema: Schema, sources: Sources, further: Iterable[tuple[Steps, str]] = ()
) -> list[str]:
    """Return one line for each mistake, those of the sources first.

    Args:
        errors: What the validator found.
        schema: The sections there are.
        sources: Where the values came from.
        further: Where and what, for contradictions that the validator did not come to.
    """
    lines: dict[tuple[Steps, str], str] = {}
    errors = list(errors)
    if not sources.has_file and any(error["type"] == "missing" for error in errors):
        lines[(), ""] = f"no settings file; name one with --config or {CONFIG_VARIABLE}"
    found = [_explain(error, schema) for error in errors if error["type"] not in _CONSEQUENCES]
    for steps, text in chain(*found, further):
        if steps not in sources.settled and not (sources.is_unread and text.startswith(_ABSENT)):
            lines[steps, text] = f"{_name(steps, sources)}: {text}"
    return [_CONTROLS.sub(" ", line) for line in (*sources.mistakes, *lines.values())]


def _explain(error: ErrorDetails, schema: Schema) -> Iterator[tuple[Steps, str]]:
    """Yield where and what; several for contradictions."""
    steps = tuple(str(step) for step in error["loc"])
    cause = error.get("ctx", {}).get("error")
    if isinstance(cause, Contradictions):
        for key, text in cause.found:
            yield (*steps, *key.split(".")), text
        return
    inside, (steps, declared) = steps, _locate(steps, schema)
    if error["type"] == "missing":
        needed = "a table [profiles.NAME] with its topics" if declared is None else allowed(declared)
        yield steps, f"is missing; needed: {needed}"
    elif error["type"] == "extra_forbidden":
        yield steps, _unknown(steps, schema)
    elif steps[-1] == "[key]":
        yield steps[:-2], f"{shown(steps[-2])} is not a profile's name; allowed: 1 to 32 of a-z, 0-9, _ and -"
    elif declared is None:
        what = "is empty" if error["type"] == "too_short" else f"is {shown(error['input'])}, not a table"
        example = "[profiles.NAME]" if steps == ("profiles",) else f"[{'.'.join(steps)}]"
        yield steps, f"{what}; needed: keys under {example}"
    else:
        item, value = _item(inside[len(steps) :], cause, error["input"])
        given = "the value (not shown)" if is_secret(declared) else shown(value)
        text = f"{given} is not valid; allowed: {allowed(declared)}"
        yield (*steps[:-1], steps[-1] + item), f"is empty; needed: {allowed(declared)}" if value == [] else text


def _item(inside: Steps, cause: object, value: object) -> tuple[str, object]:
    """Return which item of a list is wrong, as it follows the key, and its value; nothing for what is no list."""
    if isinstance(cause, WrongItem):
        return f"[{cause.index}]", cause.item
    return (f"[{inside[0]}]" if inside and inside[0].isdigit() else ""), value


def _locate(steps: Steps, schema: Schema) -> tuple[Steps, FieldInfo | None]:
    """Return the way to the key, without what lies inside its value, and the key's declaration."""
    for way in (steps[:2], steps[:3]):
        section = schema.section_at(way)
        declared = keys_of(section).get(way[-1]) if section is not None else None
        if declared is not None:
            return way, declared
    return steps, None


def _name(steps: Steps, sources: Sources) -> str:
    """Return the variable that a value came from, else the key's dotted name."""
    key, bracket, rest = steps[-1].partition("[")
    if (*steps[:-1], key) in sources.origins:
        return sources.origins[*steps[:-1], key] + bracket + rest
    name = ".".join(steps)
    named_by = [
        variable for way, variable in sources.origins.items() if way[:2] == steps[:2] and steps[0] == "profiles"
    ]
    table = sources.tree.get("profiles")
    node = table.get(steps[1]) if isinstance(table, dict) and len(steps) > 1 else None
    if named_by and isinstance(node, dict) and len(named_by) == len(node):
        # The whole profile stems from variables, so a misspelt one may be all there is to it.
        return f"{name} (profile of {named_by[0]})"
    return name


def _unknown(steps: Steps, schema: Schema) -> str:
    """Say that a key is unknown and which one may have been meant."""
    section = schema.section_at(steps)
    siblings = [*schema.sections, "profiles"] if section is None else list(keys_of(section))
    close = get_close_matches(steps[-1], siblings, n=1, cutoff=0.6)
    if close:
        return f"unknown key; did you mean {close[0]}?"
    elsewhere = [f"{name}.{steps[-1]}" for name, model in schema.sections.items() if steps[-1] in keys_of(model)]
    elsewhere += ["profiles.NAME." + steps[-1]] if steps[-1] in keys_of(schema.profile) else []
    if elsewhere:
        return f"unknown key here; did you mean {' or '.join(elsewhere)}?"
    return f"unknown key; allowed: {', '.join(sorted(siblings))}"


def shown(value: Any) -> str:
    """Return a wrong value as a message may repeat it: short, on one line, without passwords inside addresses."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        text = write_text(_USERINFO.sub("***@", value))
        return text if len(text) <= _SHOWN_CHARACTERS else f'{text[:_SHOWN_CHARACTERS]}..."'
    return {dict: "a table", list: "a list", tuple: "a list", type(None): "nothing"}.get(type(value), "the value")
