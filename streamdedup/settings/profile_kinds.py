"""Kinds of values of a profile: names of fields, topics and sources, stop words, stop shingles."""

import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from streamdedup.settings.kafka import Topic
from streamdedup.settings.units import LISTED, Kind, parse_list, parse_pairs, write_list, write_pairs

#: Names of fields, in words and as an expression: texts that JSON writes without escapes.
_NAME_ALLOWED = "without quotes, backslashes and control characters"
_NAME = re.compile(r'[^"\\\x00-\x1f\ud800-\udfff]+')
#: Stop-word lists without a file.
NO_STOP_WORDS, ENGLISH = "none", "english"
#: Value of ``stop_shingles`` without a file.
NO_STOP_SHINGLES = "none"


def _check_field(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise ValueError("not the name of a field")
    return name


#: The name of a field of the input.
FieldName = Annotated[str, AfterValidator(_check_field), Kind(f"the name of a field, {_NAME_ALLOWED}")]
#: The names of some fields.
FieldNames = Annotated[
    tuple[FieldName, ...],
    BeforeValidator(parse_list),
    Field(min_length=1),
    Kind(f"one or more names of fields {_NAME_ALLOWED}, none twice, {LISTED}", write_list),
]
#: The names of some topics.
Topics = Annotated[
    tuple[Topic, ...],
    BeforeValidator(parse_list),
    Field(min_length=1),
    Kind(f"one or more names of topics, none twice, {LISTED}", write_list),
]
#: The name of a source.
SourceName = Annotated[str, Field(min_length=1)]
#: The names of some sources.
SourceNames = Annotated[
    tuple[SourceName, ...],
    BeforeValidator(parse_list),
    Kind(f"names of sources, none twice, {LISTED}", write_list),
]
#: Pairs of names of sources.
SourcePairs = Annotated[
    tuple[tuple[SourceName, SourceName], ...],
    BeforeValidator(parse_pairs),
    Kind("a list of pairs of sources, none twice", write_pairs, ', such as [["a", "b"], ["a", "c"]]'),
]
#: A list of stop words: part of the project, or a file.
StopWords = Annotated[
    str,
    Field(min_length=1),
    Kind('"none", "english" or the path of a file', is_path=True, words=(NO_STOP_WORDS, ENGLISH)),
]
#: A file of stop shingles.
StopShingles = Annotated[
    str, Field(min_length=1), Kind('"none" or the path of a file', is_path=True, words=(NO_STOP_SHINGLES,))
]
