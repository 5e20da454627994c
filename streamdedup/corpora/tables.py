"""The parser for tables, CSV and TSV: each row becomes a JSON object with the decoder's field names, and an entry.

Quoting follows RFC 4180. A malformed row is one entry with a problem; reading continues with the next line.
"""

import csv
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from streamdedup.corpora import sources
from streamdedup.corpora.entries import Entry, decode_entry, line_id
from streamdedup.corpora.sources import ByteStream, Lines
from streamdedup.counts import counted
from streamdedup.errors import CorpusError
from streamdedup.wire import Decoder, ErrorCode, encode_fields

#: Columns that an error lists, and characters of each name: the first row may be text instead of a header.
_LISTED_COLUMNS, _LISTED_CHARS = 20, 40
#: Explanations of the errors of ``csv``, which name parameters of Python.
_EXPLANATIONS: Final = (
    ("unexpected end of data", "a quotation mark is not closed before the end of the file"),
    ("expected after", "text behind a closing quotation mark; one inside a field is written twice"),
    ("new-line character", "a carriage return without a line feed, outside of quotation marks"),
)
#: Delimiters that are tried on a header.
_DELIMITERS: Final = (",", ";", "\t", "|")
#: A line before the header, by which some programs name the delimiter.
_SEPARATOR_LINE: Final = re.compile(rb'"?sep=([^"\r\n])"?', re.IGNORECASE)
#: Where more further lines of a row than this have the delimiters of a row, a quotation mark may be unclosed.
_SWALLOWED_LINES: Final = 10
#: Digits of an id; ids that differ in them alone are alike, such as ``wire-7`` and ``wire-902``.
_DIGITS: Final = re.compile(r"[0-9]+")
#: Error code of a malformed row, as the daemon gives it: `produce` sends the bytes of the row, which are no JSON.
_MALFORMED: Final = ErrorCode.NOT_JSON


@dataclass(frozen=True, slots=True)
class Columns:
    """Names of columns in a table; a field without a name here has the column with the decoder's field name.

    ``text`` columns are joined by line breaks. ``tables_only``: ``CorpusReader`` refuses these names for a file that is
    no table; False where they also name fields of JSON.
    """

    id: str | None = None
    text: tuple[str, ...] = ()
    source: str | None = None
    published_at: str | None = None
    tables_only: bool = True

    def __bool__(self) -> bool:
        return bool(self.text) or any(name is not None for name in (self.id, self.source, self.published_at))


def read_table(
    stream: ByteStream, decoder: Decoder, columns: Columns, *, delimiter: str | None = None, quoted: bool = True
) -> Iterator[Entry]:
    """Yield the rows except blank ones; a ``delimiter`` of None is the character that fits the header."""
    # ``csv`` refuses cells above 128 KiB by default; the limit applies to the whole process.
    csv.field_size_limit(sources.MAX_LINE_BYTES)
    delimiter = delimiter or _delimiter(stream.head(), decoder, columns)
    lines = _RowLines(Lines(stream))
    rows = _rows(lines, delimiter, quoted=quoted)
    first = next((row for row in rows if not _SEPARATOR_LINE.fullmatch(lines.current_row)), None)
    if first is None:
        raise CorpusError(f"{stream.name}: empty; a table begins with a row that names its columns")
    header = _read_header(lines, first, columns, decoder)
    for read in rows:
        row = _checked(read, lines.current_row, header, delimiter, decoder.id_field)
        if row.problem is None:
            yield decode_entry(decoder, stream.name, lines.line, encode_fields(header.fields(row.cells)))
        else:
            default_id = line_id(stream.name, lines.line)
            yield Entry(default_id, "", stream.name, lines.line, lines.current_row, problem=row.problem, code=row.code)


def _delimiter(head: bytes, decoder: Decoder, columns: Columns) -> str:
    """Return the delimiter of a line ``sep=``, else the one that finds most columns, of id and text first, then all."""
    first = next(iter(head.removeprefix(sources.BOM).lstrip().splitlines()), b"")
    if line := _SEPARATOR_LINE.fullmatch(first):
        return line[1].decode("ascii", "replace")
    wanted_names = {columns.id or decoder.id_field, *(columns.text or decoder.text_fields)}

    def fit(delimiter: str) -> tuple[int, int]:
        names = next(csv.reader([first.decode(errors="replace")], delimiter=delimiter), [])
        return len(wanted_names.intersection(name.strip() for name in names)), len(names)

    return max(_DELIMITERS, key=fit)  # the first of several that fit equally


class _RowLines:
    """Passes lines to ``csv``, and keeps the bytes of the current row for the entry of a malformed one."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._iterator = iter(lines)
        self.begin_row()

    def begin_row(self) -> None:
        self._pieces: list[bytes] = []
        self._size_bytes = 0
        self.line = self._lines.line_number + 1

    @property
    def current_row(self) -> bytes:
        return b"".join(self._pieces).rstrip(b"\r\n")

    def __iter__(self) -> Iterator[str]:
        for line in self._iterator:
            self._pieces.append(line)
            self._size_bytes += len(line)
            if self._size_bytes > sources.MAX_LINE_BYTES:
                raise self.error(
                    f"the row that begins here is longer than {sources.MAX_LINE_BYTES:,} bytes; "
                    "is a quotation mark not closed?"
                )
            # Invalid UTF-8 is detected in the cells, so that it affects one row only.
            yield line.decode("utf-8", "surrogateescape")

    def error(self, reason: str) -> CorpusError:
        return CorpusError(f"{self._lines.file}:{self.line}: {reason}")


class _Row(NamedTuple):
    cells: list[str]
    problem: str | None = None
    code: ErrorCode | None = None


def _rows(lines: _RowLines, delimiter: str, *, quoted: bool) -> Iterator[_Row]:
    """Yield the rows except blank ones; ``lines`` has the bytes of the last yielded row."""
    # ``strict``: a malformed row raises an error; otherwise ``csv`` guesses its cells.
    parser = csv.reader(
        iter(lines), delimiter=delimiter, quoting=csv.QUOTE_MINIMAL if quoted else csv.QUOTE_NONE, strict=True
    )
    while True:
        lines.begin_row()
        try:
            cells = next(parser)  # reads as many lines as the row has
            # Invalid UTF-8 was decoded to lone surrogates, which cannot be encoded.
            "".join(cells).encode()
        except StopIteration:
            return
        except UnicodeEncodeError:
            yield _Row([], "not UTF-8", ErrorCode.NOT_UTF8)
        except csv.Error as error:
            yield _Row([], _explanation(error, advise_unquoted=quoted and delimiter == "\t"), _MALFORMED)
        else:
            if any(cell.strip() for cell in cells):
                yield _Row(cells)


@dataclass(frozen=True, slots=True)
class _Header:
    """Columns, from 0, by the decoder's field names; a text field has several where ``Columns`` names them."""

    width: int
    single: Mapping[str, int]
    texts: Mapping[str, tuple[int, ...]]

    def fields(self, cells: list[str]) -> dict[str, str]:
        """Return the fields in a row without empty ones; there is at least one text field."""
        fields = {field: cells[column] for field, column in self.single.items() if cells[column]}
        joined = {field: "\n".join(cells[at] for at in places if cells[at]) for field, places in self.texts.items()}
        texts = {field: text for field, text in joined.items() if text}
        # The decoder skips an empty text, and refuses a missing one.
        return fields | (texts or {next(iter(self.texts)): ""})


def _checked(row: _Row, raw: bytes, header: _Header, delimiter: str, id_field: str) -> _Row:
    """Return a row, or its problem if it lacks fields of the header, has more, or swallows the rows below it."""
    if row.problem is None and len(row.cells) != header.width:
        fields, columns = counted(len(row.cells), "field"), counted(header.width, "field")
        row = _Row([], f"{fields}, but the header has {columns}", _MALFORMED)
    swallowed = _swallowed_lines(raw, delimiter, header.width)
    # A row without a problem may hold a list, such as cities with their countries: its ids must be alike too.
    if swallowed and (row.problem or _have_ids_alike(row.cells, swallowed, delimiter, header.single.get(id_field))):
        reason = f"swallows the {len(swallowed):,} rows below it; close it, or write it twice"
        return _Row([], f"a quotation mark that opens here {reason}", _MALFORMED)
    return row


def _swallowed_lines(row: bytes, delimiter: str, width: int) -> list[bytes]:
    """Return a row's further lines if they are many and each has the delimiters of a row; else an empty list."""
    lines, separator = row.split(b"\n")[1:], delimiter.encode()
    # Not the last line, which ends with the field or the file. A delimiter before a blank is punctuation.
    are_like_rows = width > 1 and all(
        line.count(separator) == width - 1 and separator + b" " not in line for line in lines[:-1]
    )
    return lines if are_like_rows and len(lines) > _SWALLOWED_LINES else []


def _have_ids_alike(cells: list[str], lines: Sequence[bytes], delimiter: str, id_column: int | None) -> bool:
    """Tell whether the ids of a row and of its further lines, except the last, differ in digits alone."""
    if id_column is None:
        return False
    ids = [cells[id_column], *(line.decode(errors="replace").split(delimiter)[id_column] for line in lines[:-1])]
    return len({_DIGITS.sub("0", document_id.strip()) for document_id in ids}) == 1


def _explanation(error: csv.Error, *, advise_unquoted: bool) -> str:
    text = next((text for words, text in _EXPLANATIONS if words in str(error)), str(error))
    if advise_unquoted and "quotation" in text:
        return f"{text} (where quotation marks are text like any other, say tsv-unquoted)"
    return text


def _read_header(lines: _RowLines, row: _Row, columns: Columns, decoder: Decoder) -> _Header:
    """Find the columns in the first row; raise if it is malformed, or lacks or repeats a column."""
    if row.problem is not None:
        raise lines.error(f"the names of the columns cannot be read: {row.problem}")
    names = [cell.strip() for cell in row.cells]
    listed = _listed(names)

    def column_of(name: str) -> int:
        if names.count(name) != 1:
            reason = f"two columns are called `{name}`" if name in names else f"there is no column `{name}`"
            raise lines.error(f"{reason}; the columns are {listed}")
        return names.index(name)

    named = {
        decoder.id_field: columns.id,
        decoder.source_field: columns.source,
        decoder.published_at_field: columns.published_at,
    }
    needed = {field for field, name in named.items() if name is not None}
    if decoder.scope_field is not None:
        named[decoder.scope_field] = None
        if decoder.default_scope is None:  # without the column every row would be malformed
            needed.add(decoder.scope_field)
    single = {field: column_of(name or field) for field, name in named.items() if field in needed or field in names}
    texts: dict[str, tuple[str, ...]] = {field: (field,) for field in decoder.text_fields if field in names}
    if columns.text:
        texts = {decoder.text_fields[0]: columns.text}  # the decoder joins its fields, so one of them takes all
    if not texts:
        missing = " or ".join(f"`{field}`" for field in decoder.text_fields)
        raise lines.error(
            f"there is no column {missing}; the columns are {listed}; name those of the text (--text-column)"
        )
    return _Header(len(names), single, {field: tuple(map(column_of, titles)) for field, titles in texts.items()})


def _listed(names: list[str]) -> str:
    shown = ["".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name) for name in names]
    clipped = [
        f"`{name[:_LISTED_CHARS]}{'…' if len(name) > _LISTED_CHARS else ''}`" for name in shown[:_LISTED_COLUMNS]
    ]
    more = len(names) - _LISTED_COLUMNS
    return ", ".join(clipped) + (f" and {more} more" if more > 0 else "")
