"""Texts of mistakes: the given value, the accepted ones, and the key that an unknown one may mean.

No text repeats the value of a secret, of an unknown key, or a password inside an address.
"""

import re
from difflib import get_close_matches
from typing import Any

from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from streamdedup.settings.base import Section, allowed, is_secret, keys_of
from streamdedup.settings.profile import Profile
from streamdedup.settings.schema import SECTIONS, Steps, section_at
from streamdedup.settings.units import write_text

#: Longest part of a wrong value that a message repeats.
_SHOWN_CHARACTERS = 60
#: User and password inside an address.
_USERINFO = re.compile(r"[^/\s]*@")


def describe_value(declared: FieldInfo, error: ErrorDetails) -> tuple[str, str]:
    """Describe a wrong value.

    Args:
        declared: The key.
        error: The finding of the validator.

    Returns:
        The wrong item's place if the value is a list, as it follows the key's name, and the text.
    """
    place = next((f"[{step}]" for step in error["loc"][1:] if isinstance(step, int)), "")
    value = error["input"]
    if value == []:
        return place, f"is empty; needed: {allowed(declared)}"
    given = "the value (not shown)" if is_secret(declared) else shown(value)
    return place, f"{given} is not valid; allowed: {allowed(declared)}"


def describe_unknown(path: Steps) -> str:
    """Describe an unknown key, with a known one that it may mean."""
    section = section_at(path)
    siblings = [*SECTIONS, "profiles"] if section is None else list(keys_of(section))
    close = get_close_matches(path[-1], siblings, n=1, cutoff=0.6)
    if close:
        return f"unknown key; did you mean {close[0]}?"
    tables: dict[str, type[Section]] = {**SECTIONS, "profiles.NAME": Profile}
    elsewhere = [f"{name}.{path[-1]}" for name, model in tables.items() if path[-1] in keys_of(model)]
    if elsewhere:
        return f"unknown key here; did you mean {' or '.join(elsewhere)}?"
    return f"unknown key; allowed: {', '.join(sorted(siblings))}"


def shown(value: Any) -> str:
    """Return a wrong value in the form that a message may repeat: short, without passwords inside addresses."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        text = write_text(_USERINFO.sub("***@", value))
        return text if len(text) <= _SHOWN_CHARACTERS else f'{text[:_SHOWN_CHARACTERS]}..."'
    return {dict: "a table", list: "a list", tuple: "a list", type(None): "nothing"}.get(type(value), "the value")
