"""The formats: from the lines of a file to the entries in it.

A new format is one function and one row in ``PARSERS`` (and a way to tell it, in ``detection``).
"""

import re
import sys
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

import msgspec

from streamdedup.corpora import sources
from streamdedup.corpora.detection import Format
from streamdedup.corpora.sources import Lines
from streamdedup.corpora.tables import Columns, Layout, read_table
from streamdedup.errors import CorpusError, MessageError
from streamdedup.position import Position
from streamdedup.wire import Decoder, ErrorCode, Op

ReutersId = Literal["OLDID", "NEWID"]

#: What ``Entry.source`` says of a Reuters article.
_REUTERS_SOURCE: Final = "Reuters-21578"
_ENTITY: Final = re.compile(r"&(?:#([0-9]{1,7})|(lt|gt|amp|quot|apos));")
#: The field names that documents have unless somebody gave them others.
_DEFAULT_NAMES: Final = Decoder()
_NAMED_ENTITIES: Final = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}


@dataclass(frozen=True, slots=True)
class Entry:
    """One document of a corpus, or one line that should have been one.

    Attributes:
        id: Its id in the corpus; made up as ``<file name>:<line>`` where the corpus gives none.
        text: What is compared; may be empty.
        file: The file that it stands in; ``archive:member`` inside an archive.
        line: Number of its first line there, from 1.
        raw: The line as it stood, without its line end, or the JSON object made of a table's row; None where it is no
            JSON (unless it is unreadable).
        source: Name of its source, as given.
        published_at: Time of publication, as given and not interpreted.
        op: What to do with it; only JSON lines can say anything but "upsert".
        problem: Why it is no document; ``text`` is empty then. None for a document.
        code: The problem's stable name, the one that its dead letter will bear.
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

    @property
    def key(self) -> bytes | None:
        """The record key to send it with, so that all versions of an id share a partition; None if unreadable."""
        return None if self.problem is not None else self.id.encode()

    def value(self, names: Decoder = _DEFAULT_NAMES) -> bytes:
        """Return the record value to send: the line untouched where there is one, else a JSON object of the fields.

        Args:
            names: Whose field names to use.
        """
        if self.raw is not None:
            return self.raw
        fields = {
            names.id_field: self.id,
            names.text_fields[0]: self.text,
            names.source_field: self.source,
            names.published_at_field: self.published_at,
            names.op_field: None if self.op == "upsert" else self.op,
        }
        return msgspec.json.encode({name: value for name, value in fields.items() if value is not None})


@dataclass(frozen=True, slots=True)
class Options:
    """What parsers need to know; the names are those of ``CorpusReader``."""

    decoder: Decoder
    reuters_id: ReutersId
    reuters_title: bool
    columns: Columns


Parser = Callable[[Lines, Options], Iterator[Entry]]


def _jsonl(lines: Lines, options: Options) -> Iterator[Entry]:
    """Yield the documents of JSON lines; blank lines are none."""
    for made_up_id, raw in lines.documents():
        yield _decoded(options.decoder, lines.file, lines.number, made_up_id, raw)


def _decoded(decoder: Decoder, file: str, line: int, made_up_id: str, raw: bytes) -> Entry:
    """Return the document in a JSON object."""
    try:
        # The made-up id goes where the record key will: it counts only if the object has none of its own.
        document = decoder.decode(Position(file, 0, line), 0, made_up_id.encode(), raw)
    except MessageError as error:
        return Entry(made_up_id, "", file, line, raw, problem=str(error), code=error.code)
    return Entry(document.id, document.text, file, line, raw, document.source, document.published_at, document.op)


def _table(layout: Layout) -> Parser:
    """Return a parser of tables of that layout."""

    def parse(lines: Lines, options: Options) -> Iterator[Entry]:
        for row in read_table(lines, layout, options.columns, options.decoder):
            name = f"{Path(lines.file).name}:{row.line}"
            if row.problem is None:
                yield _decoded(options.decoder, lines.file, row.line, name, row.value)
            else:
                yield Entry(name, "", lines.file, row.line, row.value, problem=row.problem, code=row.code)

    return parse


def _text(lines: Lines, _: Options) -> Iterator[Entry]:
    """Yield each line that is not blank as a document."""
    for made_up_id, raw in lines.documents():
        try:
            yield Entry(made_up_id, raw.decode(), lines.file, lines.number)
        except UnicodeDecodeError as error:
            problem = f"not UTF-8: invalid byte at position {error.start:,}"
            yield Entry(made_up_id, "", lines.file, lines.number, raw, problem=problem, code=ErrorCode.NOT_UTF8)


def _reuters(lines: Lines, options: Options) -> Iterator[Entry]:
    """Yield the articles of one SGML file.

    An article begins and ends on lines of its own, as the collection guarantees; what stands between two is ignored.
    Bytes that are no UTF-8 (file 017 has one) become U+FFFD, which separates words.

    Raises:
        CorpusError: An article is cut short or too long, or there is none.
    """
    start, size, article = 0, 0, list[bytes]()
    for line in lines:
        if line.lstrip().startswith(b"<REUTERS"):
            if article:
                raise lines.error(f"an article begins inside the one that begins on line {start}")
            start, size = lines.number, 0
        elif not article:
            continue
        article.append(line)
        size += len(line)
        if size > sources.MAX_LINE_BYTES:
            raise lines.error(
                f"the article that begins on line {start} is longer than {sources.MAX_LINE_BYTES:,} bytes"
            )
        if b"</REUTERS>" in line:
            yield _article(b"".join(article).decode(errors="replace"), lines.file, start, options)
            article.clear()
    if article:
        raise lines.error(f"cut short: the article that begins on line {start} does not end")
    if not start:
        raise CorpusError(f"{lines.file}: no Reuters-21578 article (<REUTERS ...>) in it")


def _article(sgml: str, file: str, line: int, options: Options) -> Entry:
    tag = sgml[: sgml.find(">")]
    number = re.search(rf'\b{options.reuters_id}="([^"]+)"', tag)
    parts = [_element(sgml, "TITLE"), _element(sgml, "BODY")] if options.reuters_title else [_element(sgml, "BODY")]
    return Entry(
        number[1] if number else f"{Path(file).name}:{line}",
        "\n".join(part for part in parts if part),
        file,
        line,
        source=_REUTERS_SOURCE,
        published_at=_element(sgml, "DATE") or None,
    )


def _element(sgml: str, name: str) -> str:
    """Return the content of the first element of that name as text, without surrounding blanks; empty if absent."""
    content = sgml.partition(f"<{name}>")[2].partition(f"</{name}>")[0]
    return _ENTITY.sub(_character, content).strip()


def _character(entity: re.Match[str]) -> str:
    """Return what an entity stands for.

    Control characters, which the wire service used as marks, become blanks, so that they never join two words.
    """
    if entity[2]:
        return _NAMED_ENTITIES[entity[2]]
    code = int(entity[1])
    if code > sys.maxunicode or 0xD800 <= code <= 0xDFFF:
        return "\N{REPLACEMENT CHARACTER}"
    return " " if unicodedata.category(chr(code)) == "Cc" else chr(code)


PARSERS: Final[dict[Format, Parser]] = {
    "jsonl": _jsonl,
    "csv": _table(Layout(",")),
    "tsv": _table(Layout("\t")),
    "tsv-unquoted": _table(Layout("\t", quoted=False)),
    "text": _text,
    "reuters": _reuters,
}
