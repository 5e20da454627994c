"""``WantedFields``: which fields a value format reads from a value, and the form in which it returns them.

``WantedFields(id="id", texts=("title", "payload.body"))`` has a struct with the attributes ``id``, ``text_0`` and
``text_1``, each of which may be None. The text fields and ``op`` are texts, ``deleted`` is a text or a truth value,
``source`` and ``published_at`` may be anything, and all other fields are texts or whole numbers; ``msgspec`` checks.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from streamdedup.errors import DecodeError, DocumentTooLarge, MessageError
from streamdedup.wire.error_codes import ErrorCode

#: Name and value for each record header.
Headers = Sequence[tuple[str, bytes | None]]
#: Names from the whole value to a field: ``("payload", "body")``.
Path = tuple[str, ...]
#: In an error text from msgspec, the path of the field follows this text.
PATH_MARK: Final = " - at `$."


class WantedFields:
    """Field names and types, from keyword arguments ATTRIBUTE=NAME and the names of the text fields.

    Attributes:
        struct: Class whose instances hold the fields.
        texts: Attributes of the text fields.
        names, types: By attribute; an empty name is the whole value, such as a key.
        needed: Types of the attributes that a deletion needs.
        paths: Paths by field name, of which the first with a value counts: ``payload.body`` has the paths
            ``("payload.body",)`` and ``("payload", "body")``.

    Raises ``ValueError`` for a name used twice, or one that msgspec refuses.
    """

    def __init__(
        self,
        *,
        texts: Sequence[str] = (),
        max_text_bytes: int = sys.maxsize,
        is_deletion: Callable[[Any], bool] = lambda _fields: False,
        **field_names: str,
    ) -> None:
        self.max_text_bytes = max_text_bytes
        self._is_deletion = is_deletion
        self.texts = tuple(f"text_{number}" for number in range(len(texts)))
        self.names = field_names | dict(zip(self.texts, texts, strict=True))
        if len(set(self.names.values())) < len(self.names):
            raise ValueError(f"every field needs a name of its own: {list(self.names.values())}")
        types: dict[str, Any] = {"op": str | None, "deleted": bool | str | None, "source": Any, "published_at": Any}
        types |= dict.fromkeys(self.texts, str | None)
        self.types = {attribute: types.get(attribute, str | int | None) for attribute in self.names}
        self.needed = {name: type_ for name, type_ in self.types.items() if name in ("id", "op", "deleted")}
        self.paths = {name: _paths_of(name) for name in self.names.values()}
        fields = [(attribute, type_, None) for attribute, type_ in self.types.items()]
        self.struct: Any = msgspec.defstruct("Fields", fields, rename=self.names, gc=False)  # without reference cycles

    def from_mapping(self, fields: Mapping[str, Any]) -> Any:
        """Return the fields from contents by name; a text longer than ``max_text_bytes`` may be bytes."""
        try:
            for attribute in self.texts:
                content = fields.get(self.names[attribute])
                if isinstance(content, bytes) and len(content) > self.max_text_bytes:
                    raise self.too_large(len(content))
            return msgspec.convert(fields, self.struct)
        except (msgspec.ValidationError, DocumentTooLarge) as error:
            needed = {self.names[attribute]: fields.get(self.names[attribute]) for attribute in self.needed}
            return self.deletion_or_raise(error, lambda: msgspec.convert(needed, self.struct))

    def deletion_or_raise(
        self, error: msgspec.ValidationError | DocumentTooLarge, read_needed: Callable[[], Any]
    ) -> Any:
        """Return the fields from ``read_needed`` if they are a deletion, which needs no others; else raise."""
        with suppress(ValueError, MessageError):
            fields = read_needed()
            if self._is_deletion(fields):
                return fields
        raise error if isinstance(error, DocumentTooLarge) else self.wrong_type(error) from None

    def too_large(self, length: int) -> DocumentTooLarge:
        reason = f"the text is {length:,} bytes long; the limit is {self.max_text_bytes:,}"
        return DocumentTooLarge(ErrorCode.TOO_LARGE, reason)

    def bad_id(self, reason: str) -> DecodeError:
        place = f"field `{name}` or the key" if (name := self.names["id"]) else "the key"
        return DecodeError(ErrorCode.INVALID_ID, f"the id ({place}) {reason}")

    def wrong_type(self, error: msgspec.ValidationError) -> DecodeError:
        reason, _, path = str(error).partition(PATH_MARK)
        field = path.removesuffix("`")
        if field == self.names["id"]:  # also where both are empty: the key as a whole
            return self.bad_id(f"is of a wrong type: {reason}")
        if not path:
            return DecodeError(ErrorCode.NOT_AN_OBJECT, f"the value is no object: {reason}")
        return DecodeError(ErrorCode.INVALID_FIELD, f"field `{field}`: {reason}")


def _paths_of(name: str) -> tuple[Path, ...]:
    if not name:
        return ((),)
    return tuple(dict.fromkeys([(name,), tuple(name.split("."))]))  # one path for a name without a dot
