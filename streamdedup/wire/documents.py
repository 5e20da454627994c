"""Documents: ``Decoder`` makes a ``Document`` of the key, value and headers of a record, or raises ``MessageError``.

A value format (``formats``) turns the value into fields, and ``Decoder`` the fields into a document. A new field of
documents also touches ``settings.profile``, ``formats.fields.WantedFields`` and docs/messages.md.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Final, Literal

import msgspec

from streamdedup.errors import DecodeError, MessageError
from streamdedup.position import Position
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats import make_format
from streamdedup.wire.formats.fields import Headers, WantedFields
from streamdedup.wire.formats.json_text import encode_fields
from streamdedup.wire.formats.registry import KEY_ID_HEADER, RegistryFormat, nested
from streamdedup.wire.identity import MAX_ID_BYTES, id_mistake, missing_scope
from streamdedup.wire.schema_registry import Registry

Op = Literal["upsert", "append", "delete"]
KeyFormat = Literal["text", "json", "registry"]
#: Mistakes that do not stop a document. ``key``: the id is in the value, and the key of the record is not this id.
#: ``source``, ``published_at``: left out of the document, because the field has a wrong type or is too long.
Flaw = Literal["key", "source", "published_at"]

#: Limit of a text in UTF-8 bytes where no profile gives one; Kafka's default record limit is about the same.
DEFAULT_MAX_TEXT_BYTES: Final = 1_000_000

_OPS: dict[str | None, Op] = {None: "upsert", "upsert": "upsert", "append": "append", "delete": "delete"}
#: Contents of ``deleted_field`` that make a record a deletion.
_TRUE = (True, "true")
_FALSE = (False, "false", None)
#: For each of these ``Decoder`` has a setting ``NAME_field``, and ``WantedFields`` an attribute ``NAME``.
_SINGLE_FIELDS = ("id", "op", "published_at", "source", "scope", "deleted")
#: Fields that alerts repeat.
_PASSED_ON: tuple[Flaw, ...] = ("source", "published_at")
#: First bytes of keys that are more likely JSON or framed for a schema registry than ids.
_OTHER_FORMS = (b"{", b'"', b"\0", b"\1")
KEY_ADVICE = "if the key has the id in another form, set key_format of the profile"
_PART_CHARACTERS = 65_536  # of a text, encoded at once by `_utf8_length`


class Document(msgspec.Struct, frozen=True, gc=False):  # gc=False: texts and numbers form no reference cycles
    """One decoded record.

    Attributes:
        text: Empty for a deletion. Contains no lone surrogate.
        source, published_at: As in the value, a whole number as text; the time is not interpreted.
        scope: None in a profile without scopes, and for appends and deletions, whose document keeps its own.
        left_out: Fields that are None because their content has a wrong type or is too long.
        doubtful: Whether a deletion has as its id a key that was read as text, but looks like JSON or a framed value.
    """

    id: str
    text: str
    position: Position
    time_ms: int
    op: Op = "upsert"
    source: str | None = None
    published_at: str | None = None
    scope: str | None = None
    left_out: tuple[Flaw, ...] = ()
    doubtful: bool = False


@dataclass(kw_only=True, eq=False)
class Decoder:
    """Decodes records to documents; deterministic, so that a replay has the same outcome.

    The arguments are settings of the profile; an ``id_field`` that is missing in a value means the record key. Without
    ``key_format`` keys are read as text, and a deletion whose key looks like another form is ``Document.doubtful``.

    Raises ``ModuleNotFoundError`` where the format needs the extra ``registry``, and ``ValueError`` for a field used
    twice, or a name with quotes, backslashes or control characters.
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
    key_format: KeyFormat | None = None
    key_field: str | None = None
    op_values: Iterable[tuple[str, Op]] = ()
    deleted_field: str | None = None

    def __post_init__(self) -> None:
        field_names = {name: getattr(self, f"{name}_field") for name in _SINGLE_FIELDS}
        self._ops = _OPS | dict(self.op_values)
        self._wanted = WantedFields(
            texts=self.text_fields,
            max_text_bytes=self.max_text_bytes,
            is_deletion=lambda fields: self._op(fields) == "delete",
            **{name: field for name, field in field_names.items() if field is not None},
        )
        self.value_format = make_format(self.format, self._wanted, self.registry)
        self._format_of_keys = None  # a key is the id itself, as text
        if self.key_format is not None and self.key_format != "text":
            wanted_fields = WantedFields(id=self.key_field or "")  # an empty path is the whole key
            self._format_of_keys = make_format(self.key_format, wanted_fields, self.registry, KEY_ID_HEADER)
        self._id_reader = make_format("json", WantedFields(id=self.id_field), None)

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Decode the records of one batch within this context: it shares requests to the registry."""
        batch_of_keys = nullcontext() if self._format_of_keys is None else self._format_of_keys.batch()
        with self.value_format.batch(), batch_of_keys:
            yield

    def decode(
        self, position: Position, timestamp_ms: int, key: bytes | None, value: bytes | None, headers: Headers = ()
    ) -> Document:
        """Decode one record; raise ``DecodeError`` or ``DocumentTooLarge`` for one that is no document.

        A record without a value (a tombstone) deletes the document whose id is the key. Where a value has no id, the
        key is the id. Without a key, the position is the id of an upsert; appends and deletions are refused. Errors of
        servers (``ValueFormat.fields``) pass through.
        """
        if value is None and key is None:
            raise DecodeError(ErrorCode.NULL_WITHOUT_KEY, "the record has neither a key nor a value")
        fields = self._wanted.struct() if value is None else self.value_format.fields(value, headers)
        op = "delete" if value is None else self._op(fields)
        document_id, is_doubtful = self._id(fields.id, key, position, headers, op)
        contents = {name: content for name in _PASSED_ON if (content := getattr(fields, name)) is not None}
        usable = {name: str(content) for name, content in contents.items() if _is_usable(content)}
        return Document(
            document_id,
            "" if op == "delete" else self._text(fields),
            position,
            timestamp_ms,
            op,
            scope=None if self.scope_field is None else self._scope(self.scope_field, fields.scope, op),
            left_out=tuple(name for name in contents if name not in usable),
            doubtful=is_doubtful,
            **usable,
        )

    def readable_id(self, value: bytes) -> str | None:
        """Return the id in a JSON value, even if ``decode`` refuses the value; None without a valid id."""
        try:
            content = self._id_reader.fields(value, ()).id
        except DecodeError:
            return None
        if content is None:
            return None
        document_id = str(content)
        return document_id if id_mistake(document_id, _utf8_length(document_id)) is None else None

    def flaws(self, document: Document, key: bytes | None, headers: Headers = ()) -> tuple[Flaw, ...]:
        """Return the flaws of a document that ``decode`` has returned; raises server errors as ``decode`` does."""
        try:
            key_differs = key is not None and self._id_in(key, headers) != document.id
        except DecodeError:
            key_differs = True
        return ("key", *document.left_out) if key_differs else document.left_out

    def key_writer(self, subject: str) -> Callable[[str], bytes] | None:
        """Return a function that writes an id as a key; None if the registry lacks ``subject``, the key's schema."""
        if self._format_of_keys is None:
            return str.encode
        name = self.key_field or ""  # without a name the id is the whole key (`nested`)
        if not isinstance(self._format_of_keys, RegistryFormat):
            return lambda document_id: msgspec.json.encode(nested({name: document_id}))
        write = self._format_of_keys.writer(subject)
        return None if write is None else lambda document_id: write({name: document_id})

    def shown_fields(self, value: bytes, headers: Headers = ()) -> bytes | None:
        """Return the fields of a value as JSON, for people; None if unreadable, or not in a ``RegistryFormat``."""
        if not isinstance(self.value_format, RegistryFormat):
            return None
        try:
            fields = self.value_format.fields(value, headers)
        except MessageError:
            return None
        contents = {name: getattr(fields, attribute) for attribute, name in self._wanted.names.items()}
        return encode_fields({name: content for name, content in contents.items() if isinstance(content, str | int)})

    def _op(self, fields: Any) -> Op:
        if self.deleted_field is not None:
            if fields.deleted in _TRUE:
                return "delete"
            if fields.deleted not in _FALSE:
                raise DecodeError(ErrorCode.INVALID_FIELD, f"field `{self.deleted_field}` is neither true nor false")
        op = self._ops.get(fields.op)
        if op is None:
            names = ", ".join(f"`{name}`" for name in self._ops if name is not None)
            raise DecodeError(ErrorCode.UNKNOWN_OP, f"field `{self.op_field}` is none of {names}")
        return op

    def _id(
        self, content: str | int | None, key: bytes | None, position: Position, headers: Headers, op: Op
    ) -> tuple[str, bool]:
        """Return the id and ``Document.doubtful``; the id is ``content``, else the key, else ``Position.key``."""
        has_other_form = False
        if content is not None:
            document_id = str(content)
        elif key is not None:
            document_id = self._id_in(key, headers)
            has_other_form = self.key_format is None and key.startswith(_OTHER_FORMS)
        elif op == "upsert":
            return position.key, False
        else:
            raise self._wanted.bad_id(f"is missing, and there is no key: nothing says what to {op}")
        mistake = id_mistake(document_id, _utf8_length(document_id))
        if mistake is not None:
            raise self._wanted.bad_id(f"{mistake}; {KEY_ADVICE}" if has_other_form else mistake)
        return document_id, has_other_form and op == "delete"

    def _id_in(self, key: bytes, headers: Headers) -> str:
        try:
            document_id = key.decode() if self._format_of_keys is None else self._format_of_keys.fields(key, headers).id
        except UnicodeDecodeError:
            raise DecodeError(ErrorCode.INVALID_ID, f"the record's key is not UTF-8; {KEY_ADVICE}") from None
        except DecodeError as error:
            reason = str(error).replace("the value", "it")  # formats call the key a value (`fields.wrong_type`)
            text = f"the record's key does not fit key_format and key_field: {reason}"
            raise DecodeError(ErrorCode.INVALID_ID, text) from None
        if document_id is None:
            raise DecodeError(ErrorCode.INVALID_ID, "the record's key has no id: key_field is missing or null")
        return str(document_id)

    def _text(self, fields: Any) -> str:
        texts = []
        for attribute in self._wanted.texts:
            if (text := getattr(fields, attribute)) is not None:
                texts.append(text)  # noqa: PERF401  a comprehension is a call of its own in Python 3.11
        if not texts:
            names = ", ".join(f"`{name}`" for name in self.text_fields)
            raise DecodeError(ErrorCode.MISSING_TEXT, f"no text: {names} missing or null")
        limit, breaks = self.max_text_bytes, len(texts) - 1  # line breaks between the texts
        # UTF-8 has at most four bytes for a character, so most texts need not be encoded to be measured.
        if sum(map(len, texts)) * 4 + breaks > limit:
            length = sum(map(_utf8_length, texts)) + breaks
            if length > limit:
                raise self._wanted.too_large(length)
        return "\n".join(texts)

    def _scope(self, field: str, content: str | int | None, op: Op) -> str | None:
        if op != "upsert":
            return None
        scope = self.default_scope if content is None or content == "" else content
        if scope is None:
            raise missing_scope(field)
        if _is_long(str(scope)):
            raise DecodeError(ErrorCode.INVALID_FIELD, f"field `{field}` is longer than {MAX_ID_BYTES:,} bytes")
        return str(scope)


def _is_usable(content: Any) -> bool:
    """Return whether a content can be passed on; a truth value, which is an ``int``, cannot."""
    return type(content) in (str, int) and not _is_long(str(content))


def _is_long(text: str) -> bool:
    """Return whether a text has more than ``MAX_ID_BYTES``; a short text is not encoded to be measured."""
    return len(text) * 4 > MAX_ID_BYTES and _utf8_length(text) > MAX_ID_BYTES


def _utf8_length(text: str) -> int:
    """Return the length of a text in UTF-8. Encoding the whole text would reserve four bytes for each character."""
    return sum(len(text[start : start + _PART_CHARACTERS].encode()) for start in range(0, len(text), _PART_CHARACTERS))
