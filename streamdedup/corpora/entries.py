"""The corpus entry: one document, or one unreadable line or row of a file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from streamdedup.errors import MessageError
from streamdedup.position import Position
from streamdedup.wire import Decoder, Op, encode_fields

#: Has the default field names of documents.
_DEFAULT_DECODER: Final = Decoder()


@dataclass(frozen=True, slots=True)
class Entry:
    """A document in a corpus, or a line or row that could not be read as one; no entry of the index.

    Attributes:
        id: From the corpus, also of a line that is no document if its id can be read; else ``line_id``.
        text: Empty for a deletion or a problem.
        file: Path as given; ``archive:member`` inside an archive.
        raw: Value of the record that ``produce`` sends, where the file determines it.
        problem: Why the line is not a document; None for a document.
        code: Error code that the dead letter of an unreadable line would have.
    """

    id: str
    text: str
    file: str
    line: int
    raw: bytes | None = None
    source: str | None = None
    published_at: str | None = None
    op: Op = "upsert"
    problem: str | None = None
    code: str | None = None
    scope: str | None = None

    @property
    def has_id(self) -> bool:
        return self.id != line_id(self.file, self.line)

    @property
    def key(self) -> bytes | None:
        """The record key: the id, so that all versions share a partition; None for a problem without an id."""
        return self.id.encode() if self.problem is None or self.has_id else None

    def value(self, decoder: Decoder = _DEFAULT_DECODER) -> bytes:
        """Return the record value: ``raw``, or a JSON object with the field names of a decoder."""
        if self.raw is not None:
            return self.raw
        # Without ``op``: an entry without ``raw`` is an upsert, the default.
        fields = {
            decoder.id_field: self.id,
            # The decoder joins its text fields, so the whole text fits into the first.
            decoder.text_fields[0]: self.text,
            decoder.source_field: self.source,
            decoder.published_at_field: self.published_at,
        }
        if decoder.scope_field is not None:
            fields[decoder.scope_field] = self.scope
        return encode_fields(fields)


def line_id(file: str, line: int) -> str:
    """Return the id for a document to which the corpus gives none; ``file`` is from ``sources.shown_name``."""
    return f"{Path(file).name}:{line}"


def decode_entry(decoder: Decoder, file: str, line: int, raw: bytes) -> Entry:
    default_id = line_id(file, line)
    # The decoder reads Kafka records: file and line take the place of topic and offset, the default id that of the key.
    position = Position(file, partition=0, offset=line)
    try:
        document = decoder.decode(position, timestamp_ms=0, key=default_id.encode(), value=raw)
    except MessageError as error:
        known_id = decoder.readable_id(raw) or default_id
        return Entry(known_id, text="", file=file, line=line, raw=raw, problem=str(error), code=error.code)
    return Entry(
        id=document.id,
        text=document.text,
        file=file,
        line=line,
        raw=raw,
        source=document.source,
        published_at=document.published_at,
        op=document.op,
        scope=document.scope,
    )
