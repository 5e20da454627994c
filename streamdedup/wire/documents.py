"""Documents: ``Decoder`` makes a ``Document`` of the key, value and headers of a record, or raises ``DecodeError``.

A value format (``formats``) turns the value into fields, and ``Decoder`` the fields into a document. ``daemon.batch``
decodes the records of the daemon; commands and ``serve`` use the same class. ``serve`` and ``library`` check ids with
``id_mistake``.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final, Literal

import msgspec

from streamdedup.errors import DecodeError, DocumentTooLarge
from streamdedup.position import Position
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats import make_format
from streamdedup.wire.formats.fields import Headers, Schema
from streamdedup.wire.formats.json import encode_fields
from streamdedup.wire.formats.registry import Registry, RegistryFormat

Op = Literal["upsert", "append", "delete"]

#: Limit of UTF-8 bytes in an id, a source, a publication time or a scope: an alert with 100 matches stays far below
#: Kafka's default limit of 1 MB.
MAX_ID_BYTES: Final = 1_024
#: Bytes in the stored form of a scope. Two of 100,000 scopes have the same form with a probability of 3 in 10^10.
SCOPE_BYTES: Final = 8
#: Default text limit in UTF-8 bytes; Kafka's default record limit is about the same.
DEFAULT_MAX_TEXT_BYTES: Final = 1_000_000

_OPS: dict[str | None, Op] = {None: "upsert", "upsert": "upsert", "append": "append", "delete": "delete"}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


class Document(msgspec.Struct, frozen=True, gc=False):  # gc=False: texts and numbers form no reference cycles
    """One decoded record.

    Attributes:
        id: Document id; 1 to 1,024 UTF-8 bytes without control characters.
        text: The text; empty for a deletion. Contains no lone surrogate.
        position: Record position.
        time_ms: Record time in milliseconds since the epoch.
        op: Operation.
        source: Document source, unchanged.
        published_at: Publication time, unchanged and not interpreted.
        scope: Scope; None in a profile without scopes, and for appends and deletions, whose document keeps its own.
    """

    id: str
    text: str
    position: Position
    time_ms: int
    op: Op = "upsert"
    source: str | None = None
    published_at: str | None = None
    scope: str | None = None


@lru_cache(maxsize=4096)
def scope_key(scope: str | None) -> bytes:
    """Return the stored form of a scope: ``SCOPE_BYTES``, or none without a scope."""
    return b"" if scope is None else blake2b(scope.encode("utf-8", "surrogatepass"), digest_size=SCOPE_BYTES).digest()


def content_digest(text: str, scope: str | None = None) -> bytes:
    """Return the content digest: 16 bytes, BLAKE2b of the text in UTF-8, lone surrogates included; then ``in_scope``.

    So equal texts in two scopes are different contents, and a changed scope is a new version.
    """
    return in_scope(blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest(), scope_key(scope))


def in_scope(digest: bytes, scope: bytes | None) -> bytes:
    """Return the digest of a text in a scope (``scope_key``), or from that digest the one without a scope: by XOR."""
    if not scope:
        return digest
    return (int.from_bytes(digest) ^ int.from_bytes(scope + scope)).to_bytes(len(digest))


@dataclass(kw_only=True, eq=False)
class Decoder:
    """Decodes records to documents; deterministic, so that a replay has the same outcome.

    Args:
        id_field: Field with the id; without it the record key is the id.
        text_fields: Fields with the text; several are joined by a newline, missing ones are left out.
        published_at_field, source_field, op_field: Fields with the publication time, the source and the operation.
        max_text_bytes: Text limit in UTF-8 bytes.
        scope_field: Field with the scope; None without scopes.
        default_scope: Scope where the field is missing, null or empty; None for an error.
        format: Value format, as in the settings.
        registry: Schema registry of the format; None for ``json``.

    Attributes:
        value_format: Turns values into fields.

    Raises:
        ModuleNotFoundError: The format needs a library of the extra ``registry``.
        ValueError: No text field, a field used twice, or a name with quotes, backslashes or control characters.
    """

    id_field: str = "id"
    text_fields: Sequence[str] = ("text",)
    published_at_field: str = "published_at"
    source_field: str = "source"
    op_field: str = "op"
    max_text_bytes: int = DEFAULT_MAX_TEXT_BYTES
    scope_field: str | None = None
    default_scope: str | None = None
    format: str = "json"
    registry: Registry | None = None

    def __post_init__(self) -> None:
        self._schema = Schema(
            id=self.id_field,
            op=self.op_field,
            published_at=self.published_at_field,
            source=self.source_field,
            texts=self.text_fields,
            **({} if self.scope_field is None else {"scope": self.scope_field}),
        )
        self.value_format = make_format(self.format, self._schema, self.registry)

    def decode(
        self, position: Position, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Document:
        """Decode one record.

        Args:
            position: Record position.
            timestamp_ms: Record time in milliseconds since the epoch.
            key: Key bytes; the id where the value has none.
            value: Value bytes; None (a tombstone) deletes the document whose id is the key.
            headers: Name and value for each header.

        Raises:
            DecodeError: The record is no document; ``code`` is an ``ErrorCode``.
            DocumentTooLarge: The text is longer than ``max_text_bytes``.
            TransientError: A server that a value format needs does not answer.
            FatalError: A value format needs an operator.
        """
        if value is None:
            if key is None:
                raise DecodeError(ErrorCode.NULL_WITHOUT_KEY, "the record has neither a key nor a value")
            return Document(self._id(None, key, position, "delete"), "", position, timestamp_ms, "delete")
        fields = self.value_format.fields(value, headers)
        op = _OPS.get(fields.op)
        if op is None:
            reason = "is none of `upsert`, `append`, `delete`"
            raise DecodeError(ErrorCode.UNKNOWN_OP, f"field `{self.op_field}` {reason}")
        document_id = self._id(fields.id, key, position, op)
        source, published_at = fields.source, fields.published_at
        if source is not None:
            source = self._limited(self.source_field, source)
        if published_at is not None:
            published_at = self._limited(self.published_at_field, published_at)
        text = "" if op == "delete" else self._text(fields)
        scope = None if self.scope_field is None else self._scope(self.scope_field, fields.scope, op)
        return Document(document_id, text, position, timestamp_ms, op, source, published_at, scope)

    def shown_fields(self, value: bytes, headers: Headers = ()) -> bytes | None:
        """Return the fields of a framed value as JSON, for people; None if no schema reads it.

        Raises ``TransientError`` and ``FatalError`` as ``decode``.
        """
        if not isinstance(self.value_format, RegistryFormat):
            return None
        try:
            fields = self.value_format.fields(value, headers)
        except DecodeError:
            return None
        return encode_fields({name: getattr(fields, attribute) for attribute, name in self._schema.names.items()})

    def _id(self, field: str | int | None, key: bytes | None, position: Position, op: Op) -> str:
        """Return the id from the field, else from the key; a document without both is named by its position."""
        if field is None and key is None:
            if op != "upsert":
                raise self._schema.bad_id(f"is missing, and there is no key: nothing says what to {op}")
            return position.key
        try:
            document_id = key.decode() if field is None and key is not None else str(field)
            length = len(document_id.encode())
        except UnicodeDecodeError:
            raise self._schema.bad_id("is missing, and the record's key is not UTF-8") from None
        mistake = id_mistake(document_id, length)
        if mistake is not None:
            raise self._schema.bad_id(mistake)
        return document_id

    def _text(self, fields: Any) -> str:
        texts = []
        for attribute in self._schema.texts:
            if (text := getattr(fields, attribute)) is not None:
                texts.append(text)  # noqa: PERF401  a comprehension is a call of its own in Python 3.11
        if not texts:
            names = ", ".join(f"`{name}`" for name in self.text_fields)
            raise DecodeError(ErrorCode.MISSING_TEXT, f"no text: {names} missing or null")
        text = "\n".join(texts)
        limit = self.max_text_bytes
        # UTF-8 has at most four bytes for a character, so most texts need not be encoded to be measured.
        if len(text) * 4 > limit and (length := len(text.encode())) > limit:
            reason = f"the text is {length:,} bytes long; the limit is {limit:,}"
            raise DocumentTooLarge(ErrorCode.TOO_LARGE, reason)
        return text

    def _scope(self, name: str, field: str | int | None, op: Op) -> str | None:
        if op != "upsert":
            return None
        scope = self.default_scope if field is None or field == "" else field
        if scope is None:
            raise missing_scope(name)
        return self._limited(name, scope)

    def _limited(self, name: str, field: str | int) -> str:
        """Return a field as text; raise ``DecodeError`` above ``MAX_ID_BYTES``, measured as in ``_text``."""
        text = str(field)
        if len(text) * 4 > MAX_ID_BYTES and (length := len(text.encode())) > MAX_ID_BYTES:
            reason = f"is {length:,} bytes long; at most {MAX_ID_BYTES:,} are allowed"
            raise DecodeError(ErrorCode.INVALID_FIELD, f"field `{name}` {reason}")
        return text


def missing_scope(scope_field: str) -> DecodeError:
    """Return the error for a document without a scope."""
    reason = f"the scope (field `{scope_field}`) is missing, null or empty, and the profile has no default_scope"
    return DecodeError(ErrorCode.MISSING_SCOPE, reason)


def id_mistake(document_id: str, length: int) -> str | None:
    """Return why a text, whose ``length`` is in UTF-8 bytes, cannot be a document id; None if it can."""
    if not 1 <= length <= MAX_ID_BYTES:
        return f"is {length:,} bytes long; 1 to {MAX_ID_BYTES:,} are allowed"
    # `isprintable`, which is faster, spares most ids the search.
    if not document_id.isprintable() and (control := _CONTROL.search(document_id)):
        return f"contains a control character at position {control.start()}"
    return None
