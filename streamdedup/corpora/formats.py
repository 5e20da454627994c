"""The table of file formats, the detection of a file's format, and the parsers for JSON lines and plain text.

``CorpusReader`` detects the format of each file and calls its parser. A format is one parser and one row in
``FORMATS``. Detection uses a file's first bytes, then its name.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from streamdedup.corpora.entries import Entry, decode_entry, line_id
from streamdedup.corpora.reuters import REUTERS_STARTS, REUTERS_SUFFIXES, read_reuters
from streamdedup.corpora.sources import ByteStream, Lines, starts_with
from streamdedup.corpora.tables import Columns, read_table
from streamdedup.errors import CorpusError
from streamdedup.wire import Decoder, ErrorCode

Format = Literal["auto", "jsonl", "csv", "tsv", "tsv-unquoted", "text", "reuters"]
#: Turns a file into entries. The decoder has the names of fields; ``Columns`` has the names of columns in a table.
Parser = Callable[[ByteStream, Decoder, Columns], Iterator[Entry]]


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One file format.

    Attributes:
        parse: Parser for a file's bytes.
        title: Name in help texts; empty for "tsv-unquoted", a variant of TSV.
        suffixes: File name suffixes that select the format, in lower case.
        starts: First bytes that select the format before the file name does, in lower case. A binary file is selected
            by its first bytes only.
        is_table: Whether the first row of the file names columns.
    """

    parse: Parser
    title: str = ""
    suffixes: tuple[str, ...] = ()
    starts: tuple[bytes, ...] = ()
    is_table: bool = False


def _read_jsonl(stream: ByteStream, decoder: Decoder, _: Columns) -> Iterator[Entry]:
    """Yield the documents in JSON lines."""
    for number, raw in Lines(stream).filled():
        yield decode_entry(decoder, stream.name, number, raw)


def _read_text(stream: ByteStream, _: Decoder, __: Columns) -> Iterator[Entry]:
    """Yield one document per line."""
    for number, raw in Lines(stream).filled():
        default_id = line_id(stream.name, number)
        try:
            yield Entry(default_id, raw.decode(), stream.name, number)
        except UnicodeDecodeError as error:
            problem = f"not UTF-8: invalid byte at position {error.start:,}"
            yield Entry(default_id, "", stream.name, number, raw, problem=problem, code=ErrorCode.NOT_UTF8)


FORMATS: Final[dict[Format, FileFormat]] = {
    "jsonl": FileFormat(_read_jsonl, "JSON lines", (".jsonl", ".ndjson", ".json")),
    "csv": FileFormat(partial(read_table, delimiter=","), "CSV", (".csv",), is_table=True),
    "tsv": FileFormat(partial(read_table, delimiter="\t"), "TSV", (".tsv", ".tab"), is_table=True),
    "tsv-unquoted": FileFormat(partial(read_table, delimiter="\t", quoted=False), is_table=True),
    "text": FileFormat(_read_text, "plain text", (".txt",)),
    "reuters": FileFormat(read_reuters, "Reuters-21578", REUTERS_SUFFIXES, REUTERS_STARTS),
}
#: All formats, for help texts.
FORMAT_TITLES: Final = ", ".join(form.title for form in FORMATS.values() if form.title)

#: First bytes in files that cannot be read, with advice. UTF-32 precedes UTF-16, because the byte order mark of
#: little-endian UTF-32 begins with that of UTF-16.
_FOREIGN: Final = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; only gzip is read",
    b"\xfd7zXZ\x00": "compressed with xz; only gzip is read",
    b"BZh91AY&SY": "compressed with bzip2; only gzip is read",
    b"\xff\xfe\x00\x00": "UTF-32 text; convert it to UTF-8",
    b"\x00\x00\xfe\xff": "UTF-32 text; convert it to UTF-8",
    b"\xff\xfe": "UTF-16 text; convert it to UTF-8",
    b"\xfe\xff": "UTF-16 text; convert it to UTF-8",
}


def detect_format(stream: ByteStream, requested: Format) -> Format:
    """Return a file's format: the requested one, or the detected one for "auto".

    Raises:
        CorpusError: The first bytes are those of an unsupported format, or, for "auto", of an unknown binary file.
    """
    head = stream.head()
    for magic, advice in _FOREIGN.items():
        if head.startswith(magic):
            raise CorpusError(f"{stream.name}: {advice}")
    if requested != "auto":
        return requested
    for name, form in FORMATS.items():
        if starts_with(head, form.starts):
            return name
    if b"\0" in head:
        raise CorpusError(f"{stream.name}: a binary file, neither text nor gzip-compressed text")
    suffix = Path(stream.name.lower().removesuffix(".gz")).suffix
    for name, form in FORMATS.items():
        if suffix in form.suffixes:
            return name
    return "jsonl" if starts_with(head, (b"{",)) else "text"  # an unknown suffix, or none
