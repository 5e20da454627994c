"""The base class of all sections, and functions that describe a section's keys from their declarations.

An attribute has the name of its key, except that a time has the suffix of its unit: ``timeout_s`` for ``timeout``.
A check of several keys is a method ``_check_...`` of their section; one of several sections, of ``root.Settings``.
"""

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, SecretStr
from pydantic.fields import FieldInfo

from streamdedup.settings.files import read_secret
from streamdedup.settings.kinds import WORD, Kind, write_text

#: Key and text of each mistake, or of each hint, in a section.
Mistakes = Iterator[tuple[str, str]]
#: Suffixes of attributes that hold a time. Keys have none, because in a file the value has a unit.
_UNIT_SUFFIXES = ("_ms", "_s")


def key_of(name: str) -> str:
    for suffix in _UNIT_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


class Section(BaseModel):
    """One table in the settings file; an attribute's docstring is the key's description in ``docs/settings.md``."""

    model_config = ConfigDict(alias_generator=key_of, frozen=True, extra="forbid", hide_input_in_errors=True)

    def contradictions(self) -> Mistakes:
        """Yield the mistakes from all methods named ``_check_...``: contradictions between valid values.

        A check ends where it reads an attribute that ``validation`` removed because its value is wrong.
        """
        # ``vars``: in the order of the file, those of base classes first. No check may override another.
        sections = [model for model in reversed(type(self).__mro__) if issubclass(model, Section)]
        for name in (name for model in sections for name in vars(model) if name.startswith("_check_")):
            try:
                yield from getattr(self, name)()
            except AttributeError as error:  # any other AttributeError is a defect
                if not isinstance(error.obj, Section) or error.name not in type(error.obj).model_fields:
                    raise

    def hints(self) -> Mistakes:
        """Yield key and text for each allowed but doubtful value."""
        return iter(())

    def secret(self, key: str) -> str | None:
        """Return a secret, or None. A secret's file is read at each call; raises as ``read_secret``."""
        path: Path | None = getattr(self, f"{key}_file")
        if path is not None:
            return read_secret(path)
        secret: SecretStr | None = getattr(self, key)
        return None if secret is None else secret.get_secret_value()


def fields_of(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return a section's fields by attribute, its own before inherited ones: the order in docs/settings.md."""
    own = inspect.get_annotations(section)
    names = sorted(section.model_fields, key=lambda name: name not in own)  # False first; stable
    return {name: section.model_fields[name] for name in names}


def keys_of(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return a section's fields by key, in the same order as ``fields_of``."""
    return {key_of(name): field for name, field in fields_of(section).items()}


def secrets_of(section: type[BaseModel]) -> list[str]:
    """Return a section's secret keys; each has a companion ``<key>_file``."""
    return [key for key, field in keys_of(section).items() if is_secret(field)]


def is_secret(field: FieldInfo) -> bool:
    return SecretStr in (field.annotation, *get_args(field.annotation))


def kind_of(field: FieldInfo) -> Kind:
    """Return how a field's value is described and written; ``WORD`` for a field without a Kind, a Literal of words."""
    return next((item for item in field.metadata if isinstance(item, Kind)), WORD)


def is_file_path(field: FieldInfo, value: object) -> bool:
    """Return whether a field's value is a file path, and not a word that is allowed instead of one."""
    kind = kind_of(field)
    return kind.is_path and value not in (None, "", *kind.words)


def describe_allowed(field: FieldInfo) -> str:
    """Return the allowed values of a field as text, such as ``a whole number from 1 up to 64``."""
    kind = kind_of(field)
    if kind is WORD:
        # The annotation is a Literal, or ``Literal[...] | None``.
        parts = (field.annotation, *get_args(field.annotation))
        words = next(get_args(part) for part in parts if get_origin(part) is Literal)
        return " or ".join(write_text(word) for word in words)
    return " ".join([kind.noun, *_bounds(field, kind)]) + kind.hint


def _bounds(field: FieldInfo, kind: Kind) -> Iterator[str]:
    for bound, name, word in ((Ge, "ge", "from"), (Gt, "gt", "above"), (Lt, "lt", "below"), (Le, "le", "up to")):
        for item in field.metadata:
            if isinstance(item, bound):
                # As in a settings file, but "1s" without quotes, and 1 for 1.0.
                text = kind.write(getattr(item, name)).strip('"')
                yield f"{word} {text.removesuffix('.0')}"
