"""Kinds and defaults of values that only profiles have; the checks of ``profile`` enforce "none twice"."""

from typing import Annotated, Any, Final, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field

from streamdedup.settings.kafka import Topic
from streamdedup.settings.kinds import LISTED, Kind, parse_list, parse_pairs, write_list, write_pairs
from streamdedup.wire import Op
from streamdedup.wire.formats import FORMATS


class UnitDefaults(NamedTuple):
    """Defaults of a profile that depend on its ``shingle_unit``."""

    shingle_size: int
    threshold: float
    containment_threshold: float | None


UNIT_DEFAULTS: Final = {"word": UnitDefaults(3, 0.8, 0.8), "char": UnitDefaults(5, 0.8, None)}
#: Pattern of field names: those that JSON writes without escapes.
_NAME = r'^[^"\\\x00-\x1f]+$'
#: The same in messages.
_NAME_ALLOWED = "without quotes, backslashes and control characters"
#: In place of a file of stop words or stop shingles.
NO_STOPS = "none"
#: In place of a file of stop words: the project's list.
ENGLISH = "english"


def default_by_unit(key: str, *, le: float, gt: float | None = None, ge: float | None = None) -> Any:
    """Return a field whose default depends on ``shingle_unit``, which ``Profile`` must declare above it."""
    values = [getattr(UNIT_DEFAULTS[unit], key) for unit in ("word", "char")]
    word, char = ('`"none"`' if value is None else f"`{value}`" for value in values)  # for docs/settings.md
    return Field(
        default_factory=lambda values: getattr(UNIT_DEFAULTS[values["shingle_unit"]], key),
        le=le,
        gt=gt,
        ge=ge,
        json_schema_extra={"default": word if word == char else f"{word} words, {char} characters"},
    )


def _valid_format(name: str) -> str:
    if name not in FORMATS:
        raise ValueError("not a format")
    return name


FieldName = Annotated[str, Field(pattern=_NAME), Kind(f"the name of a field, {_NAME_ALLOWED}")]
FormatName = Annotated[str, AfterValidator(_valid_format), Kind(" or ".join(f'"{name}"' for name in FORMATS))]
#: As ``FieldName``, or None: not all profiles use this field.
OptionalFieldName = Annotated[str | None, Field(pattern=_NAME), Kind(f"the name of a field, {_NAME_ALLOWED}")]
FieldNames = Annotated[
    tuple[FieldName, ...],
    BeforeValidator(parse_list),
    Field(min_length=1),
    Kind(f"one or more names of fields {_NAME_ALLOWED}, none twice, {LISTED}", write_list),
]
Topics = Annotated[
    tuple[Topic, ...],
    BeforeValidator(parse_list),
    Field(min_length=1),
    Kind(f"one or more names of topics, none twice, {LISTED}", write_list),
]
SourceName = Annotated[str, Field(min_length=1)]
SourceNames = Annotated[
    tuple[SourceName, ...], BeforeValidator(parse_list), Kind(f"names of sources, none twice, {LISTED}", write_list)
]
SourcePairs = Annotated[
    tuple[tuple[SourceName, SourceName], ...],
    BeforeValidator(parse_pairs),
    Kind("a list of pairs of sources, none twice", write_pairs, hint=', such as [["a", "b"], ["a", "c"]]'),
]
#: Words in ``op_field``, each with its operation.
OpValues = Annotated[
    tuple[tuple[str, Op], ...],
    BeforeValidator(parse_pairs),
    Kind("a table of words and operations", write_pairs, hint=', such as {c = "upsert", d = "delete"}'),
]
#: A list of stop words: part of the project, or a file.
StopWords = Annotated[
    str, Field(min_length=1), Kind('"none", "english" or the path of a file', is_path=True, words=(NO_STOPS, ENGLISH))
]
#: A file of stop shingles.
StopShingles = Annotated[
    str, Field(min_length=1), Kind('"none" or the path of a file', is_path=True, words=(NO_STOPS,))
]
