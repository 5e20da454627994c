"""Checks the arguments of ``library``: documents, ids, sources and scopes as programs pass them.

Valid values are returned as the decoder would make them from a record. Errors name the argument and the item, such as
``texts[2]``; a ``DecodeError`` says what is wrong with an id, source or scope.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from streamdedup.errors import DecodeError
from streamdedup.wire import MAX_ID_BYTES, ErrorCode, id_mistake

#: Id, source or scope of a document.
Field = str | int


class DocumentArgument(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A document as a program passes it, a tuple; id, source and scope may be integers, as in a record."""

    id: Field
    text: str
    source: Field | None = None
    scope: Field | None = None


def converted_items(argument: str, values: Iterable[object], kind: Any) -> Iterator[Any]:
    """Yield the items as ``kind``, a type for ``msgspec.convert``; an error names the argument and the wrong item."""
    if isinstance(values, (str, bytes)):  # would be taken as the list of its characters
        raise TypeError(f"{argument}: a list of texts is needed, not one text")
    for row, value in enumerate(values):
        yield converted_item(f"{argument}[{row}]", value, kind)


def converted_item(subject: str, value: object, kind: Any) -> Any:
    """Return a value as ``kind``; ``TypeError`` or ``ValueError`` begins with ``subject``."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        # "Expected `str`, got `null` - at `$[1]`" becomes "the text of documents[3] (id 'x'): Expected `str`, got
        # `None`". The number in `path` is the place of the field in ``DocumentArgument``.
        reason, _, path = str(error).replace("null", "None").replace("`array`", "tuple").partition(" - at `$")
        reason = reason.replace("`object`", f"`{type(value).__name__}`")  # msgspec calls a dict so
        if path and isinstance(value, (tuple, list)):
            id_text = "" if path[1] == "0" else f" (id {value[0]!r:.40})"
            subject = f"the {DocumentArgument.__struct_fields__[int(path[1])]} of {subject}{id_text}"
        raise (ValueError if "length" in reason else TypeError)(f"{subject}: {reason}") from None


def optional_column(noun: str, values: Iterable[Field | None] | None, texts: Sequence[str]) -> Iterable[str | None]:
    """Return the source or scope of each text; without ``values`` None for each."""
    if values is None:
        return [None] * len(texts)
    contents = [valid_field(noun, value) for value in converted_items(f"{noun}s", values, Field | None)]
    if len(contents) != len(texts):
        raise ValueError(
            f"{noun}s: {len(contents):,} in place of {len(texts):,}; each text needs one, which may be None"
        )
    return contents


def valid_id(value: Field) -> str:
    """Return an id as text; raise ``DecodeError`` for one that no document may have."""
    document_id = _as_text("document id", value, ErrorCode.INVALID_ID)
    try:
        mistake = id_mistake(document_id, len(document_id.encode()))
    except UnicodeEncodeError:
        mistake = "contains half of a surrogate pair"
    if mistake is not None:
        raise DecodeError(ErrorCode.INVALID_ID, f"a document id {mistake}")
    return document_id


def _as_text(noun: str, value: Field, code: ErrorCode = ErrorCode.INVALID_FIELD) -> str:
    try:
        return str(value)
    except ValueError:  # Python writes no integer of more than 4,300 digits
        reason = f"a {noun} has too many digits; at most {MAX_ID_BYTES:,} bytes are allowed"
        raise DecodeError(code, reason) from None


def valid_field(noun: str, value: Field | None) -> str | None:
    """Return a source or a scope, repaired as in a record."""
    if value is None:
        return None
    text, length = without_lone_surrogates(_as_text(noun, value))
    if length > MAX_ID_BYTES:
        limit = f"at most {MAX_ID_BYTES:,} are allowed"
        raise DecodeError(ErrorCode.INVALID_FIELD, f"a {noun} is {length:,} bytes long; {limit}")
    return text


def without_lone_surrogates(text: str) -> tuple[str, int]:
    """Return a text with U+FFFD for each half of a surrogate pair, as in a record, and its length in bytes."""
    try:
        return text, len(text.encode())
    except UnicodeEncodeError:
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        return text, len(text.encode())
