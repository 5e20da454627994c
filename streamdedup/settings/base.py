"""The base class of all sections (immutable, strict, contradictions reported together), and their keys."""

import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Literal, Self, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationInfo, model_validator
from pydantic.fields import FieldInfo

from streamdedup.settings.units import WORD, Kind, write_text

#: Delimiter of a TOML string.
QUOTE = '"'
#: Suffixes of attributes that hold a time. Their keys have no suffix, because the value has a unit.
UNIT_SUFFIXES = ("_ms", "_s")

#: Yields key and text of each contradiction.
Check = Callable[[], Iterable[tuple[str, str]]]

#: Validation context that skips contradictions.
VALUES_ONLY = object()


def key_of(name: str) -> str:
    """Return the key of an attribute: its name without the unit."""
    for suffix in UNIT_SUFFIXES:
        name = name.removesuffix(suffix)
    return name


class Section(BaseModel):
    """One table of the settings file; immutable, unknown keys refused, values never repeated in errors.

    The docstring of an attribute is the description of its key in the documentation.
    """

    model_config = ConfigDict(
        alias_generator=key_of, frozen=True, extra="forbid", hide_input_in_errors=True, use_attribute_docstrings=True
    )

    def checks(self) -> tuple[Check, ...]:
        """Return the checks for values that are valid one by one and contradict each other; sections add more."""
        return (self._unread_secrets,)

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield key and text for each contradiction between valid values.

        A section that was read in part lacks the attributes of wrong values; a check that needs one of them ends there.
        """
        for check in self.checks():
            try:
                yield from check()
            except AttributeError as error:
                if not isinstance(error.obj, Section) or error.name not in type(error.obj).model_fields:
                    raise

    def _unread_secrets(self) -> Iterator[tuple[str, str]]:
        for name in secrets_of(type(self)):
            if getattr(self, f"{name}_file") is not None and getattr(self, name) is None:
                yield f"{name}_file", "is read by Settings.load; a section built in code takes the secret itself"

    @model_validator(mode="after")
    def _refuse_contradictions(self, info: ValidationInfo) -> Self:
        found = [] if info.context is VALUES_ONLY else list(self.contradictions())
        if found:
            raise ValueError("; ".join(f"{key}: {text}" for key, text in found))
        return self


def fields_of(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a section by attribute: those of its own class first, then the inherited ones."""
    return dict(sorted(section.model_fields.items(), key=lambda item: item[0] not in inspect.get_annotations(section)))


def keys_of(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a section by key, in the order of ``fields_of``."""
    return {key_of(name): field for name, field in fields_of(section).items()}


def secrets_of(section: type[BaseModel]) -> list[str]:
    """Return the secret keys of a section; each has a companion ``<key>_file``."""
    return [key for key, field in keys_of(section).items() if is_secret(field)]


def is_secret(field: FieldInfo) -> bool:
    """Return whether the value of a field is a secret, which is never shown."""
    return SecretStr in (field.annotation, *get_args(field.annotation))


def kind_of(field: FieldInfo) -> Kind:
    """Return the kind of a field; ``WORD``, a choice of words, if the field declares none."""
    return next((item for item in field.metadata if isinstance(item, Kind)), WORD)


def names_file(field: FieldInfo, value: object) -> bool:
    """Return whether a value of a field is the path of a file, and not one of the words allowed in its place."""
    kind = kind_of(field)
    return kind.is_path and bool(value) and value not in kind.words


def allowed(field: FieldInfo) -> str:
    """Describe the accepted values of a field, from its kind, its type and its bounds."""
    kind = kind_of(field)
    if kind is WORD:
        choices = [part for part in (field.annotation, *get_args(field.annotation)) if get_origin(part) is Literal]
        return " or ".join(write_text(word) for word in get_args(choices[0]))
    return " ".join([kind.noun, *_bounds(field, kind)]) + kind.hint


def _bounds(field: FieldInfo, kind: Kind) -> Iterator[str]:
    """Yield the bounds of a number in words, the lower one first."""
    for bound, name, word in ((Ge, "ge", "from"), (Gt, "gt", "above"), (Lt, "lt", "below"), (Le, "le", "up to")):
        for item in field.metadata:
            if isinstance(item, bound):
                yield f"{word} {kind.write(getattr(item, name)).strip(QUOTE).removesuffix('.0')}"
