"""The table of file formats, the detection of a file's format, and the parsers for JSON lines and plain text.

First bytes decide, then the name of the file; where neither does, a text that is empty or begins like JSON is JSON
lines. A refusal with advice is one row in ``_BINARY``, ``_TEXTS`` or ``_JSON``.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal

from streamdedup.corpora.entries import Entry, decode_entry, line_id
from streamdedup.corpora.reuters import REUTERS_STARTS, REUTERS_SUFFIXES, read_reuters
from streamdedup.corpora.sources import ByteStream, Lines, text_start
from streamdedup.corpora.tables import Columns, read_table
from streamdedup.errors import UnknownFormat
from streamdedup.wire import Decoder, ErrorCode

Format = Literal["auto", "jsonl", "csv", "tsv", "tsv-unquoted", "text", "reuters"]
#: Turns a file into entries. The decoder has the names of fields; ``Columns`` has the names of columns in a table.
Parser = Callable[[ByteStream, Decoder, Columns], Iterator[Entry]]


@dataclass(frozen=True, slots=True)
class FileFormat:
    """One file format; ``title`` is empty for a variant.

    First bytes (``starts``) select it, else the end of the name (``suffixes``) if the file is not binary.
    """

    parse: Parser
    title: str = ""
    suffixes: tuple[str, ...] = ()
    starts: tuple[bytes, ...] = ()
    is_table: bool = False


def _read_jsonl(stream: ByteStream, decoder: Decoder, _: Columns) -> Iterator[Entry]:
    for line_number, raw in Lines(stream).filled():
        yield decode_entry(decoder, stream.name, line_number, raw)


def _read_text(stream: ByteStream, _: Decoder, __: Columns) -> Iterator[Entry]:
    for line_number, raw in Lines(stream).filled():
        default_id = line_id(stream.name, line_number)
        try:
            yield Entry(default_id, raw.decode(), stream.name, line_number)
        except UnicodeDecodeError as error:
            problem = f"not UTF-8: invalid byte at position {error.start:,}"
            yield Entry(default_id, "", stream.name, line_number, raw, problem=problem, code=ErrorCode.NOT_UTF8)


FORMATS: Final[dict[Format, FileFormat]] = {
    "jsonl": FileFormat(_read_jsonl, "JSON lines", (".jsonl", ".ndjson", ".json")),
    "csv": FileFormat(read_table, "CSV", (".csv",), is_table=True),
    "tsv": FileFormat(partial(read_table, delimiter="\t"), "TSV", (".tsv", ".tab"), is_table=True),
    "tsv-unquoted": FileFormat(partial(read_table, delimiter="\t", quoted=False), is_table=True),
    "text": FileFormat(_read_text, "plain text", (".txt",)),
    "reuters": FileFormat(read_reuters, "Reuters-21578", REUTERS_SUFFIXES, REUTERS_STARTS),
}
#: All formats, for help texts.
FORMAT_TITLES: Final = ", ".join(form.title for form in FORMATS.values() if form.title)

_AS_ONE_DOCUMENT: Final = """write its text as a line of JSON: pandoc -t plain FILE | jq -Rsc '{id: "FILE", text: .}'"""
_AS_ITEMS: Final = "as a line of JSON: xq -c '.rss.channel.item[] | {id: .link, text: .description}' FILE"
#: Patterns of the first bytes of binary files that are not read, with their names and a way to convert them.
_BINARY: Final = {
    rb"PK\x03\x04|\xd0\xcf\x11\xe0": "a zip archive or an office document; unpack it, or save it as CSV or text",
    rb"\x28\xb5\x2f\xfd": "compressed with zstd; only gzip is read: zstd -dc FILE | gzip > FILE.gz",
    rb"\xfd7zXZ\x00": "compressed with xz; only gzip is read: xz -dc FILE | gzip > FILE.gz",
    rb"BZh91AY&SY": "compressed with bzip2; only gzip is read: bzip2 -dc FILE | gzip > FILE.gz",
    rb"\xff\xfe\x00\x00|\x00\x00\xfe\xff": "UTF-32 text; convert it to UTF-8: iconv -f UTF-32 -t UTF-8 FILE",
    rb"\xff\xfe|\xfe\xff": "UTF-16 text; convert it to UTF-8: iconv -f UTF-16 -t UTF-8 FILE",
    rb"SQLite format 3": "SQLite; export a query as CSV: sqlite3 -csv -header FILE 'SELECT id, text FROM ...'",
    rb"Obj\x01": "Avro; write its records as JSON lines: fastavro FILE",
    rb"PAR1": "Parquet; convert it in DuckDB: COPY (FROM 'FILE') TO 'FILE.jsonl' (FORMAT json)",
}
#: The same for text, matched against `text_start`, which is in lower case; the first row that matches counts.
_TEXTS: Final = {
    rb"<(\?xml.*<)?rss\b": f"an RSS feed; write each item {_AS_ITEMS}",
    rb"<(\?xml.*<)?feed\b": "an Atom feed; write each entry so: xq -c '.feed.entry[] | {id, text: .summary}' FILE",
    rb"<(\?xml.*<)?(!doctype )?html\b": f"HTML; {_AS_ONE_DOCUMENT}",
    rb"<[?!a-z]": f"XML or other markup; write each item, as here of a feed, {_AS_ITEMS}",
    rb"warc/\d": "a web archive (WARC); write the text of each page as a line of JSON, for instance with warcio",
    rb"from \S+ [^\n]*\d\d:\d\d": "mails (mbox); write each as a line of JSON, for instance with Python's mailbox",
    rb"--\s|/\*|(create|drop) (table|data)|insert into |pragma ": "SQL; load it, and export a query as CSV",
    rb"%yaml|---\s|- ?\w+:\s": "YAML; write its list as JSON lines: yq -c '.[]' FILE",
    rb"%pdf-": """PDF; write its text as a line of JSON: pdftotext FILE - | jq -Rsc '{id: "FILE", text: .}'""",
    rb"\{\\rtf": f"RTF; {_AS_ONE_DOCUMENT}",
}
#: The same for a JSON array, and for an object that does not end in its first line; also matched against `text_start`.
_JSON: Final = {
    rb"\[": "a JSON array; write one object on each line: jq -c '.[]' FILE",
    rb"\{([^\n]*[{\[,:])?\s*\n": "JSON over several lines; write each object on one: jq -c . FILE (a list: '.NAME[]')",
}


def detect_format(stream: ByteStream, requested: Format) -> Format:
    """Return a file's format: the requested format, or for "auto" the detected one, never "auto".

    Raises ``UnknownFormat`` for content that no parser reads, with a way to convert the file if its kind is known.
    """
    head = stream.head()
    _refuse(stream.name, head, _BINARY)
    name = _detected(stream.name, head) if requested == "auto" else requested
    if name == "jsonl":
        _refuse(stream.name, text_start(head), _JSON)
    return name


def _detected(file: str, head: bytes) -> Format:
    by_start = next((name for name, form in FORMATS.items() if text_start(head).startswith(form.starts)), None)
    if by_start is not None:
        return by_start
    if b"\0" in head:
        raise UnknownFormat(f"{file}: a binary file, neither text nor gzip-compressed text")
    suffix = Path(file.lower().removesuffix(".gz")).suffix
    by_name = next((name for name, form in FORMATS.items() if suffix in form.suffixes), None)
    # A `.txt` file is read as plain text, also if it looks like another format; Reuters files are markup.
    if by_name not in ("text", "reuters"):
        _refuse(file, text_start(head), _TEXTS)
    if by_name is not None:
        return by_name
    if not head.strip() or text_start(head).startswith((b"{", b"[")):  # `detect_format` refuses an array, with advice
        return "jsonl"
    advice = "say it with --format, such as --format csv, or --format text for a document in each line"
    raise UnknownFormat(f"{file}: its format is not recognised by name or first bytes; {advice}")


def _refuse(file: str, head: bytes, patterns: Mapping[bytes, str]) -> None:
    for pattern, advice in patterns.items():
        if re.match(pattern, head, re.DOTALL):
            raise UnknownFormat(f"{file}: {advice}")
