"""Documents: decodes the key and value of a record to a ``Document``, or raises a ``DecodeError``."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Final, Literal

import msgspec

from streamdedup.errors import DecodeError, DocumentTooLarge
from streamdedup.position import Position

Op = Literal["upsert", "append", "delete"]

#: Most UTF-8 bytes of an id, a source or a publication time: a message of 100 matches stays far below 1 MB.
MAX_ID_BYTES: Final = 1_024
#: Default limit on the text of a document in UTF-8 bytes; Kafka's default record limit is about the same.
DEFAULT_MAX_TEXT_BYTES: Final = 1_000_000
#: Most levels of nesting in a value: far above any sensible message and far below the stack of any interpreter, so that
#: a record has the same outcome on every Python.
MAX_DEPTH: Final = 256

_BOM = b"\xef\xbb\xbf"
# First bytes of an object in UTF-16, with a byte order mark or without.
_UTF16 = (b"\xff\xfe", b"\xfe\xff", b"{\0", b"\0{")
_OPS: dict[str | None, Op] = {None: "upsert", "upsert": "upsert", "append": "append", "delete": "delete"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
# One escape of a JSON string: a whole surrogate pair, half of one (group 1), or any other.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class ErrorCode(StrEnum):
    """Reason of a dead letter; stable names for headers, metric labels and ``docs/messages.md``."""

    NOT_UTF8 = "not_utf8"
    NOT_JSON = "not_json"
    NOT_AN_OBJECT = "not_an_object"
    TOO_DEEP = "too_deep"
    FOREIGN_FRAMING = "foreign_framing"
    INVALID_FIELD = "invalid_field"
    MISSING_TEXT = "missing_text"
    INVALID_ID = "invalid_id"
    UNKNOWN_OP = "unknown_op"
    NULL_WITHOUT_KEY = "null_without_key"
    TOO_LARGE = "too_large"
    #: An append to a document that is not in the index.
    UNKNOWN_DOCUMENT = "unknown_document"
    #: An append to a bag that is stored as a signature.
    BAG_TOO_LARGE = "bag_too_large"
    #: Two ids share one 64-bit document number.
    ID_COLLISION = "id_collision"
    #: The Kafka client could not read the record; only its position is known.
    UNREADABLE = "unreadable"
    #: A defect of this program that the record triggers.
    INTERNAL = "internal"


class Document(msgspec.Struct, frozen=True, gc=False):
    """One decoded record.

    Attributes:
        id: Document id; 1 to 1,024 bytes of UTF-8 without control characters.
        text: The text; empty for a deletion. Contains no half of a surrogate pair.
        position: Position of the record.
        time_ms: Record time in milliseconds since the epoch.
        op: Operation.
        source: Source of the document, as given.
        published_at: Time of publication, as given and not interpreted.
    """

    id: str
    text: str
    position: Position
    time_ms: int
    op: Op = "upsert"
    source: str | None = None
    published_at: str | None = None


def content_digest(text: str) -> bytes:
    """Return the content digest of a text: 16 bytes of BLAKE2b of its UTF-8 form, half surrogate pairs included."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


@dataclass(kw_only=True, eq=False)
class Decoder:
    """Decodes records to documents; deterministic, so that a replay has the same outcome.

    Other fields are skipped without validation. The last value of a repeated field counts.

    Args:
        id_field: Field with the id; without it the key of the record is the id.
        text_fields: Fields with the text; several are joined by a newline, missing ones are left out.
        published_at_field: Field with the time of publication.
        source_field: Field with the source.
        op_field: Field with the operation.
        max_text_bytes: Greatest length of a text in bytes of UTF-8.

    Raises:
        ValueError: No text field, a field used twice, or a name with quotes, backslashes or control characters.
    """

    id_field: str = "id"
    text_fields: Sequence[str] = ("text",)
    published_at_field: str = "published_at"
    source_field: str = "source"
    op_field: str = "op"
    max_text_bytes: int = DEFAULT_MAX_TEXT_BYTES

    def __post_init__(self) -> None:
        names = {
            "id": self.id_field,
            "op": self.op_field,
            "published_at": self.published_at_field,
            "source": self.source_field,
        }
        self._texts = tuple(f"text_{i}" for i in range(len(self.text_fields)))
        names.update(zip(self._texts, self.text_fields, strict=True))
        if not self.text_fields or len(set(names.values())) < len(names):
            raise ValueError(f"every field needs a name of its own, and a text at least one: {list(names.values())}")
        kinds: dict[str, Any] = dict.fromkeys(names, str | int | None) | dict.fromkeys((*self._texts, "op"), str | None)
        fields = [(attribute, kind, None) for attribute, kind in kinds.items()]
        # gc=False: strings and numbers form no reference cycles.
        struct: Any = msgspec.defstruct("Fields", fields, rename=names, gc=False)
        self._fields = msgspec.json.Decoder(struct)
        self._names = names

    def decode(self, position: Position, timestamp_ms: int, key: bytes | None, value: bytes | None) -> Document:
        """Decode one record.

        Args:
            position: Position of the record.
            timestamp_ms: Record time in milliseconds since the epoch.
            key: Key bytes; the id of a document whose value has none.
            value: Value bytes; None (a tombstone) deletes the document whose id is the key.

        Raises:
            DecodeError: The record is no document; ``code`` is an ``ErrorCode``.
            DocumentTooLarge: The text is longer than ``max_text_bytes``.
        """
        if value is None:
            if key is None:
                raise DecodeError(ErrorCode.NULL_WITHOUT_KEY, "the record has neither a key nor a value")
            return Document(self._id(None, key, position, "delete"), "", position, timestamp_ms, "delete")
        fields = self._parse(value)
        op = _OPS.get(fields.op)
        if op is None:
            wanted = "is none of `upsert`, `append`, `delete`"
            raise DecodeError(ErrorCode.UNKNOWN_OP, f"field `{self._names['op']}` {wanted}")
        document_id = self._id(fields.id, key, position, op)
        source, published_at = fields.source, fields.published_at
        if source is not None:
            source = self._short("source", source)
        if published_at is not None:
            published_at = self._short("published_at", published_at)
        text = "" if op == "delete" else self._text(fields, value)
        return Document(document_id, text, position, timestamp_ms, op, source, published_at)

    def _parse(self, value: bytes) -> Any:
        """Return the fields of a value; a byte order mark and half surrogate pairs are repaired first."""
        if is_too_deep(value):
            raise DecodeError(ErrorCode.TOO_DEEP, f"the value is nested deeper than {MAX_DEPTH} levels")
        try:
            return self._fields.decode(value)
        except msgspec.ValidationError as error:
            raise self._wrong_type(error) from None
        except ValueError as error:
            # No JSON begins with a zero byte, and the repair would change the schema id of a framed value.
            repaired = value if value[:1] == b"\0" else repair_json(value)
            if repaired == value:
                raise _malformed(value, error) from None
        fields, other = self._parse(repaired), self._parse(repair_json(value, b"u0000"))
        if fields.id != other.id:
            # The repair must not make two ids equal.
            raise self._bad_id("contains half of a surrogate pair")
        return fields

    def _id(self, given: str | int | None, key: bytes | None, position: Position, op: Op) -> str:
        if given is None and key is None:
            if op != "upsert":
                raise self._bad_id(f"is missing, and there is no key: nothing says what to {op}")
            return position.key
        try:
            document_id = str(given) if key is None or given is not None else key.decode()
            length = len(document_id.encode())
        except UnicodeDecodeError:
            raise self._bad_id("is missing, and the record's key is not UTF-8") from None
        mistake = id_mistake(document_id, length)
        if mistake is not None:
            raise self._bad_id(mistake)
        return document_id

    def _text(self, fields: Any, value: bytes) -> str:
        texts = [text for name in self._texts if (text := getattr(fields, name)) is not None]
        if not texts:
            names = ", ".join(f"`{self._names[name]}`" for name in self._texts)
            raise DecodeError(ErrorCode.MISSING_TEXT, f"no text: {names} missing or null")
        text = "\n".join(texts)
        # A text is never longer than its JSON, so most texts need not be encoded to be measured.
        if len(value) > self.max_text_bytes and (length := len(text.encode())) > self.max_text_bytes:
            limit = f"{self.max_text_bytes:,}"
            raise DocumentTooLarge(ErrorCode.TOO_LARGE, f"the text is {length:,} bytes long; the limit is {limit}")
        return text

    def _short(self, field: str, given: str | int) -> str:
        text = str(given)
        if len(text) * 4 > MAX_ID_BYTES and (length := len(text.encode())) > MAX_ID_BYTES:
            reason = f"is {length:,} bytes long; at most {MAX_ID_BYTES:,} are allowed"
            raise DecodeError(ErrorCode.INVALID_FIELD, f"field `{self._names[field]}` {reason}")
        return text

    def _bad_id(self, reason: str) -> DecodeError:
        return DecodeError(ErrorCode.INVALID_ID, f"the id (field `{self._names['id']}` or the key) {reason}")

    def _wrong_type(self, error: msgspec.ValidationError) -> DecodeError:
        """Name the field of a wrong type; the text of msgspec holds type names and a path, nothing of the value."""
        reason, _, path = str(error).partition(" - at `$.")
        if not path:
            return DecodeError(ErrorCode.NOT_AN_OBJECT, f"the value is no JSON object: {reason}")
        if path.removesuffix("`") == self._names["id"]:
            return self._bad_id(f"is of a wrong type: {reason}")
        return DecodeError(ErrorCode.INVALID_FIELD, f"field `{path.removesuffix('`')}`: {reason}")


def id_mistake(document_id: str, length: int) -> str | None:
    """Return why a text cannot be a document id, or None.

    Args:
        document_id: The text.
        length: Its length in bytes of UTF-8.
    """
    if not 1 <= length <= MAX_ID_BYTES:
        return f"is {length:,} bytes long; 1 to {MAX_ID_BYTES:,} are allowed"
    if not document_id.isprintable() and (control := _CONTROL.search(document_id)):
        return f"contains a control character at position {control.start()}"
    return None


def is_too_deep(value: bytes) -> bool:
    """Tell whether a JSON text is nested deeper than ``MAX_DEPTH``, well-formed or not."""
    return value.count(b"{") + value.count(b"[") > MAX_DEPTH and _depth(value) > MAX_DEPTH


def _depth(value: bytes) -> int:
    """Return the depth of nesting of a value, well-formed or not."""
    brackets = _STRING.sub(b"", value).translate(None, _NO_BRACKETS)
    return max(accumulate((1 if bracket in b"[{" else -1 for bracket in brackets), initial=0))


def repair_json(value: bytes, replacement: bytes = b"ufffd") -> bytes:
    """Blank a byte order mark and replace half surrogate pairs; all other bytes keep their positions.

    Args:
        value: JSON text.
        replacement: Escape without the backslash.
    """
    if value.startswith(_BOM):
        value = b"   " + value[len(_BOM) :]
    return _ESCAPE.sub(lambda escape: b"\\" + replacement if escape[1] else escape[0], value)


def _malformed(value: bytes, error: ValueError) -> DecodeError:
    """Return the most helpful error for malformed JSON; the text of msgspec holds a position, nothing of the value."""
    code, reason = ErrorCode.NOT_JSON, f"the value is not JSON: {error}" if value else "the value is empty"
    if value.startswith(_UTF16):
        code, reason = ErrorCode.NOT_UTF8, "the value is UTF-16; UTF-8 is wanted"
    elif value[:1] == b"\0" and len(value) >= 5:
        code = ErrorCode.FOREIGN_FRAMING
        reason = f"the value is framed for schema registry id {int.from_bytes(value[1:5], 'big')}; plain JSON is wanted"
    else:
        try:
            value.decode()
        except UnicodeDecodeError as undecodable:
            code = ErrorCode.NOT_UTF8
            reason = f"the value is not UTF-8: invalid byte at position {undecodable.start:,}"
    return DecodeError(code, reason)
