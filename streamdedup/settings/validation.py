"""Validates the settings, one table after the other, and reports every mistake to the ``Sources`` of the values.

In each table pydantic checks the single values. Wrong values are reported and removed; then the remaining values are
checked for contradictions (``Section.contradictions``). So a wrong value hides only the checks that read it; a
validator of the pydantic model would not run at all while any value is wrong. No text repeats a secret, the value of an
unknown key, or a secret in an address. A new required key also touches ``_PLACEHOLDERS``.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any, TypeVar

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from streamdedup.errors import SettingsError
from streamdedup.settings.base import Section, describe_allowed, is_secret, key_of, keys_of, kind_of
from streamdedup.settings.kinds import write_text
from streamdedup.settings.profile import Profile
from streamdedup.settings.schema import KeyPath, describe_unknown, tables
from streamdedup.settings.sources import Sources

#: Values for required keys that are absent or wrong, with which pydantic builds the section; later removed again, but
#: ``read_profile`` keeps that of ``topics``.
_PLACEHOLDERS = {"bootstrap_servers": "localhost:9092", "topics": "topic"}
#: Longest part of a wrong value that a message repeats.
_SHOWN_CHARACTERS = 60
#: Parts of an address that may be secret. Of ``redis://user:p@host/0?x`` is shown ``redis://***@host/0?***``.
_SECRET_PARTS = re.compile(
    r"""
    ^([\w+.-]+://)?      # the scheme is shown
    (?: .*[?\#].*@.*     # with an @ behind ? or #, all the rest is secret: a password may have any character
      | .*(?=@)          # else user and password
    )
    | (?<=[?\#]).+       # query or fragment
    """,
    re.DOTALL | re.VERBOSE,
)

_AnySection = TypeVar("_AnySection", bound=Section)


def read_sections(sources: Sources) -> dict[str, Any]:
    """Return the sections by name, ``profiles`` as a dict by profile name; mistakes are reported to ``sources``."""
    profiles: dict[str, Section] = {}
    sections: dict[str, Any] = {"profiles": profiles}
    for path, model, content in tables(sources.tree):  # all sections: an absent one as an empty table
        section = _read_section(sources, path, model, content)
        if path[0] == "profiles":
            profiles[path[-1]] = section
        else:
            sections[path[-1]] = section
    tree_profiles = sources.tree.get("profiles", {})
    if tree_profiles == {}:
        sources.report_missing(("profiles",), "a table [profiles.NAME] with its topics")
    elif not isinstance(tree_profiles, Mapping):
        sources.report(("profiles",), f"is {shown(tree_profiles)}, not a table; needed: keys under [profiles.NAME]")
    for name in sources.tree:
        if name not in sections:
            sources.report((name,), describe_unknown((name,)))
    return sections


def _read_section(sources: Sources, path: KeyPath, model: type[_AnySection], content: object) -> _AnySection:
    """Report the mistakes of a table; return it as a section without the attributes whose value is wrong."""
    if not isinstance(content, Mapping):
        sources.report(path, f"is {shown(content)}, not a table; needed: keys under [{'.'.join(path)}]")
        return _section_without(model, {}, set(keys_of(model)))
    try:
        section = model.model_validate(content)
    except ValidationError as error:
        section = _section_without(model, content, _report_mistakes(sources, path, model, error))
    report_contradictions(sources, section, path)
    return section


def report_contradictions(sources: Sources, section: Section, path: KeyPath = ()) -> None:
    """Report the contradictions in the section at ``path``, or between sections for (), if ``sources`` checks it."""
    if sources.is_checked(path):
        for key, text in section.contradictions():
            # A section names a key, such as `url`; `Settings` names section and key, such as `redis.url`.
            sources.report((*path, *key.split(".")), text)


def _report_mistakes(sources: Sources, path: KeyPath, model: type[Section], failed: ValidationError) -> set[str]:
    """Report a table's wrong, unknown and missing keys, and return them."""
    fields = keys_of(model)
    keys: set[str] = set()
    for error in failed.errors(include_url=False):
        key, *inside = map(str, error["loc"])
        # Missing inside a value, as in a pair of `ignore_sources` with one source, is a wrong value, not a missing key.
        if error["type"] == "missing" and not inside:
            sources.report_missing((*path, key), describe_allowed(fields[key]))
        elif key not in fields:
            sources.report((*path, key), describe_unknown((*path, key)))
        elif error["type"] == "default_factory_not_called":
            pass  # the default depends on a wrong value, which is reported
        elif inside or key not in keys:  # else a list that is too short only without its wrong items
            text, item = _describe_value(fields[key], error)
            sources.report((*path, key), text, item)
        keys.add(key)
    # A contradiction would be a second mistake about such a key: ``report`` leaves out settled keys.
    sources.settled.update((*path, key) for key in keys)
    return keys


def _describe_value(declared: FieldInfo, error: ErrorDetails) -> tuple[str, str]:
    """Return the mistake, and the place of the wrong item in a list, such as ``[2]``, or an empty text."""
    item = next((f"[{step}]" for step in error["loc"][1:] if isinstance(step, int)), "")
    value = error["input"]
    if isinstance(value, list) and not value:
        return f"is empty; needed: {describe_allowed(declared)}", item
    if not is_secret(declared):
        # A number out of bounds was parsed before the check of the bounds: `write` gives it its unit again.
        is_out_of_bounds = error["type"].startswith(("greater_than", "less_than"))
        text = kind_of(declared).write(value) if is_out_of_bounds else shown(value)
        return f"{text} is not valid; allowed: {describe_allowed(declared)}", item
    reason = f": {error['ctx']['error']}" if error["type"] == "value_error" else ""
    return f"the value (not shown) is not valid{reason}; allowed: {describe_allowed(declared)}", item


def _section_without(model: type[_AnySection], content: Mapping[str, object], keys: set[str]) -> _AnySection:
    """Return a section without the attributes of ``keys``; ``Section.contradictions`` skips checks that need them."""
    valid = {key: value for key, value in content.items() if key not in keys}
    # ``keys`` may hold unknown keys, too, which the model refuses.
    placeholders = {key: value for key, value in _PLACEHOLDERS.items() if key in keys & keys_of(model).keys()}
    section = model.model_validate(valid | placeholders)
    for name in model.model_fields:
        if key_of(name) in keys:
            section.__dict__.pop(name, None)
    return section


def read_profile(keywords: Mapping[str, object], allowed_keys: Collection[str]) -> Profile:
    """Return a profile that a program defines; ``SettingsError`` names every mistake, and keys for Kafka's records."""
    path = ("profiles", "NAME")
    sources = Sources()
    refused = [key for key in keywords if key in keys_of(Profile) and key not in allowed_keys]
    for key in refused:
        sources.report((*path, key), "is about records of Kafka; a program gives ids and texts itself")
    content = {key: value for key, value in keywords.items() if key not in refused}
    profile = _read_section(sources, path, Profile, {"topics": _PLACEHOLDERS["topics"], **content})
    if sources.mistakes:
        # A keyword has neither section nor profile.
        raise SettingsError("\n".join(sources.mistakes).replace("profiles.NAME.", ""))
    return profile


def shown(value: Any) -> str:
    """Return a wrong value for a message: short, without the secret parts of an address."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and abs(value) >= 10**_SHOWN_CHARACTERS:  # Python writes no number of over 4,300 digits
        return f"a number of more than {_SHOWN_CHARACTERS} digits"
    if isinstance(value, int | float):
        return str(value)
    if isinstance(value, str):
        text = write_text(_SECRET_PARTS.sub(r"\1***", value))
        return text if len(text) <= _SHOWN_CHARACTERS else f'{text[:_SHOWN_CHARACTERS]}..."'
    return {dict: "a table", list: "a list", tuple: "a list", type(None): "nothing"}.get(type(value), "the value")
