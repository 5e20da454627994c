"""What the sections of the settings have in common: frozen, strict, and every contradiction found at once."""

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, Self

from annotated_types import Ge, Gt, Le, Lt
from pydantic import BaseModel, ConfigDict, SecretStr, ValidationInfo, model_validator
from pydantic.fields import FieldInfo

from streamdedup.settings.units import FILE_NOUN, WORD, Kind, write_text

#: Words that keys take in the place of a path.
PATH_WORDS = frozenset({"none", "english"})
#: What TOML puts around a text.
QUOTE = '"'


#: Looks for contradictions; yields key and text of each.
Check = Callable[[], Iterable[tuple[str, str]]]

#: Context of a validation that looks at each value by itself.
VALUES_ONLY = object()


class Contradictions(ValueError):
    """Values that are right one by one and wrong together.

    Attributes:
        found: Key (relative to the section that raised) and what is wrong, for each.
    """

    def __init__(self, found: list[tuple[str, str]]) -> None:
        super().__init__("; ".join(f"{key}: {text}" for key, text in found))
        self.found = found


class WrongItem(ValueError):
    """One of several values in a list is wrong.

    Attributes:
        index: Which one, counted from 0.
        item: Its value.
    """

    def __init__(self, index: int, item: object) -> None:
        super().__init__("one of the values is wrong")
        self.index = index
        self.item = item


def check_items(items: Iterable[str], check: Callable[[str], object]) -> tuple[str, ...]:
    """Return ``items`` if ``check`` raises for none of them.

    Raises:
        WrongItem: It raises a ValueError for one.
    """
    items = tuple(items)
    for index, item in enumerate(items):
        try:
            check(item)
        except ValueError:
            raise WrongItem(index, item) from None
    return items


def check_different(items: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``items`` if none is there twice.

    Raises:
        WrongItem: One is.
    """
    for index, item in enumerate(items):
        if item in items[:index]:
            raise WrongItem(index, item)
    return items


class Section(BaseModel):
    """One table of the settings file; immutable, unknown keys refused, values never repeated in errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def checks(self) -> tuple[Check, ...]:
        """Return what looks for values that are right one by one and wrong together; sections add theirs."""
        return (self._unread_secrets,)

    def contradictions(self, mistaken: Collection[str] = ()) -> Iterator[tuple[str, str]]:
        """Yield key and text for everything that is wrong although each value is right.

        Args:
            mistaken: Names of attributes that are not there, because their values are wrong by themselves. A check
                ends where it comes upon one.
        """
        for check in self.checks():
            try:
                yield from check()
            except AttributeError as error:
                if error.name not in mistaken:
                    raise

    def _unread_secrets(self) -> Iterator[tuple[str, str]]:
        for name in secrets_of(type(self)):
            if getattr(self, f"{name}_file") is not None and getattr(self, name) is None:
                yield f"{name}_file", "is read by Settings.load; a section built in code takes the secret itself"

    @model_validator(mode="after")
    def _refuse_contradictions(self, info: ValidationInfo) -> Self:
        found = [] if info.context is VALUES_ONLY else list(self.contradictions())
        if found:
            raise Contradictions(found)
        return self


def key_of(name: str, field: FieldInfo) -> str:
    """Return the key under which a field is written; the field's own name may end in its unit."""
    return field.alias or name


def keys_of(section: type[BaseModel]) -> dict[str, FieldInfo]:
    """Return the fields of a section by the keys under which they are written."""
    return {key_of(name, field): field for name, field in section.model_fields.items()}


def secrets_of(section: type[BaseModel]) -> list[str]:
    """Return the keys of a section whose values are never shown; each has a companion ``<key>_file``."""
    return [key for key, field in keys_of(section).items() if is_secret(field)]


def is_secret(field: FieldInfo) -> bool:
    """Tell whether a field's value is never shown."""
    return SecretStr in (field.annotation, *getattr(field.annotation, "__args__", ()))


def note(field: FieldInfo, name: str) -> Any:
    """Return what a field declares beyond its type, by name: ``allowed``, ``default`` or ``path``; None if nothing."""
    extra = field.json_schema_extra
    return extra.get(name) if isinstance(extra, dict) else None


def names_file(field: FieldInfo, value: object) -> bool:
    """Tell whether a value of a field is the path of a file, and not a word that stands for none."""
    if not value:
        return False
    if note(field, "path"):
        return value not in PATH_WORDS
    return kind_of(field).noun == FILE_NOUN


def kind_of(field: FieldInfo) -> Kind:
    """Return the kind of a field's value; a choice of words if it declares none."""
    return next((item for item in field.metadata if isinstance(item, Kind)), WORD)


def allowed(field: FieldInfo) -> str:
    """Say what a key may hold, from its declaration, its type and its bounds."""
    declared = note(field, "allowed")
    if declared is not None:
        return str(declared)
    kind = kind_of(field)
    if kind is WORD:
        return " or ".join(write_text(word) for word in field.annotation.__args__)  # type: ignore[union-attr]
    return " ".join([kind.noun, *_bounds(field, kind)]) + kind.hint


def _bounds(field: FieldInfo, kind: Kind) -> Iterator[str]:
    """Yield the bounds of a number in words, the lower one first."""
    for bound, name, word in ((Ge, "ge", "from"), (Gt, "gt", "above"), (Lt, "lt", "below"), (Le, "le", "up to")):
        for item in field.metadata:
            if isinstance(item, bound):
                yield f"{word} {kind.write(getattr(item, name)).strip(QUOTE).removesuffix('.0')}"
