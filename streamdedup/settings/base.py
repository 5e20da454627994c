"""The common part of all sections: immutable, strict, contradictions reported together; and their keys."""

from collections.abc import Callable, Iterable, Iterator
from typing import Literal, Self, get_args, get_origin

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationInfo, model_validator
from pydantic.fields import FieldInfo

from streamdedup.settings.units import WORD, Kind, write_text

#: Delimiter of a TOML text.
QUOTE = '"'
#: Ends of the names of attributes that hold a time; their keys take the unit with the value instead.
UNIT_SUFFIXES = ("_ms", "_s")

#: Looks for contradictions; yields key and text of each.
Check = Callable[[], Iterable[tuple[str, str]]]

#: Context of a validation that leaves contradictions out.
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
        """Return the checks for values that are right one by one and wrong together; sections add theirs."""
        return (self._unread_secrets,)

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield key and text for each contradiction between right values.

        A section that was read in part lacks the attributes of wrong values; a check that needs one ends there.
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


def keys_of(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a section by key."""
    return {key_of(name): field for name, field in section.model_fields.items()}


def secrets_of(section: type[BaseModel]) -> list[str]:
    """Return the keys of a section whose values are never shown; each has a companion ``<key>_file``."""
    return [key for key, field in keys_of(section).items() if is_secret(field)]


def is_secret(field: FieldInfo) -> bool:
    """Tell whether a field's value is never shown."""
    return SecretStr in (field.annotation, *get_args(field.annotation))


def kind_of(field: FieldInfo) -> Kind:
    """Return the kind of a field's value; a choice of words if it declares none."""
    return next((item for item in field.metadata if isinstance(item, Kind)), WORD)


def names_file(field: FieldInfo, value: object) -> bool:
    """Tell whether a value of a field is the path of a file, and not a word in its place."""
    kind = kind_of(field)
    return kind.is_path and bool(value) and value not in kind.words


def declared_default(field: FieldInfo) -> str | None:
    """Return the text that describes a field's default, or None if the default describes itself."""
    extra = field.json_schema_extra
    return str(extra["default"]) if isinstance(extra, dict) else None


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
