"""Tables, CSV and TSV: rows with named columns become documents under the field names that the decoder reads.

Quotation marks follow RFC 4180: a field in them may hold separators, line breaks and, written twice, quotation marks.
A row that breaks these rules is one bad entry, and reading goes on with the next line.
"""

import csv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from streamdedup.corpora import sources
from streamdedup.corpora.sources import Lines
from streamdedup.errors import CorpusError
from streamdedup.wire import Decoder, ErrorCode

#: Columns that an error lists, and characters of each name: what is taken for a header may be somebody's text.
_LISTED_COLUMNS, _LISTED_CHARS = 20, 40
#: What the parser's errors mean; its own words name parameters of Python.
_MEANINGS: Final = (
    ("unexpected end of data", "a quotation mark is not closed before the end of the file"),
    ("expected after", "text behind a closing quotation mark; one inside a field is written twice"),
    ("new-line character", "a carriage return without a line feed, outside of quotation marks"),
)


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns hold what; what is not given is looked for under the decoder's field names.

    Attributes:
        id: Column of the id.
        text: Columns of the text; several are joined by a line break.
        source: Column of the source.
        published_at: Column of the time of publication.
        tables_only: Whether a file of another format, which has no columns, is an error when any is given.
    """

    id: str | None = None
    text: tuple[str, ...] = ()
    source: str | None = None
    published_at: str | None = None
    tables_only: bool = True

    def __bool__(self) -> bool:
        """Whether any is given."""
        return bool(self.text) or any(name is not None for name in (self.id, self.source, self.published_at))


@dataclass(frozen=True, slots=True)
class Layout:
    """How a file separates fields.

    Attributes:
        delimiter: Character between two fields.
        quoted: Whether a quotation mark at the beginning of a field encloses it; else it is text like any other.
    """

    delimiter: Literal[",", "\t"]
    quoted: bool = True


@dataclass(frozen=True, slots=True)
class Row:
    """One row of a table, or what should have been one.

    Attributes:
        line: Number of its first line in the file, from 1.
        value: Its document as JSON; of a bad row the bytes as they stand.
        problem: Why it is no row of this table; None for one that is.
        code: Stable name of the problem.
    """

    line: int
    value: bytes
    problem: str | None = None
    code: ErrorCode | None = None


class _Feed:
    """Hands lines to the parser and remembers those of the present row."""

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._iterator = iter(lines)
        self.begin()

    def begin(self) -> None:
        """Begin a new row."""
        self._pieces: list[bytes] = []
        self._size_bytes = 0
        self.line = self._lines.number + 1

    @property
    def raw(self) -> bytes:
        """The row so far, without its line end."""
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
            # What is no UTF-8 is found in the fields later, so that it spoils no more than its own row.
            yield line.decode("utf-8", "surrogateescape")

    def error(self, reason: str) -> CorpusError:
        """Return an error that names the first line of the row."""
        return CorpusError(f"{self._lines.file}:{self.line}: {reason}")


def read_table(lines: Lines, layout: Layout, columns: Columns, decoder: Decoder) -> Iterator[Row]:
    """Yield the rows of a table; blank lines are none. The first row names the columns.

    Args:
        lines: The file.
        layout: How it separates fields.
        columns: Which columns hold what.
        decoder: Names the fields of the documents, and the columns that are not named.

    Raises:
        CorpusError: There is no header, a column is missing or there twice, or a row is too long.
    """
    # The limit is the whole process's; it only has to be as high as what a row may have.
    csv.field_size_limit(sources.MAX_LINE_BYTES)
    feed = _Feed(lines)
    parser = csv.reader(
        iter(feed),
        delimiter=layout.delimiter,
        quoting=csv.QUOTE_MINIMAL if layout.quoted else csv.QUOTE_NONE,
        strict=True,
    )
    fields: _Fields | None = None
    while True:
        feed.begin()
        try:
            cells = next(parser)
            problem, code = _problem(cells, fields)
        except StopIteration:
            break
        except csv.Error as error:
            cells, problem, code = [], _meaning(error, layout), ErrorCode.NOT_JSON
        if problem is None and _is_blank(cells):
            continue
        if fields is None:
            fields = _header(feed, cells, problem, columns, decoder)
        elif problem is not None:
            yield Row(feed.line, feed.raw, problem, code)
        else:
            yield Row(feed.line, msgspec.json.encode(fields.document(cells)))
    if fields is None:
        raise CorpusError(f"{lines.file}: empty; a table begins with a row that names its columns")


@dataclass(frozen=True, slots=True)
class _Fields:
    """Where in a row each field of a document stands."""

    width: int
    single: Mapping[str, int]
    texts: Mapping[str, tuple[int, ...]]

    def document(self, cells: list[str]) -> dict[str, str]:
        """Return the fields of a row; empty ones are missing, but there is always a text."""
        found = {field: cells[at] for field, at in self.single.items() if cells[at]}
        texts = {field: "\n".join(cells[at] for at in places if cells[at]) for field, places in self.texts.items()}
        return found | ({field: text for field, text in texts.items() if text} or dict.fromkeys(list(texts)[:1], ""))


def _problem(cells: list[str], fields: _Fields | None) -> tuple[str | None, ErrorCode | None]:
    """Say what is wrong with a row that could be taken apart."""
    try:
        "".join(cells).encode()
    except UnicodeEncodeError:
        return "not UTF-8", ErrorCode.NOT_UTF8
    if fields is not None and not _is_blank(cells) and len(cells) != fields.width:
        return f"{_counted(len(cells))}, but the header has {_counted(fields.width)}", ErrorCode.NOT_JSON
    return None, None


def _is_blank(cells: list[str]) -> bool:
    return not any(cell.strip() for cell in cells)


def _counted(count: int) -> str:
    return f"{count} field" if count == 1 else f"{count} fields"


def _meaning(error: csv.Error, layout: Layout) -> str:
    meaning = next((meaning for words, meaning in _MEANINGS if words in str(error)), str(error))
    unquoted = layout.delimiter == "\t" and layout.quoted and "quotation" in meaning
    return f"{meaning} (where quotation marks are text like any other, say tsv-unquoted)" if unquoted else meaning


def _header(feed: _Feed, cells: list[str], problem: str | None, columns: Columns, decoder: Decoder) -> _Fields:
    """Find the columns in the first row."""
    if problem is not None:
        raise feed.error(f"the names of the columns cannot be read: {problem}")
    names = [cell.strip() for cell in cells]
    listed = _listed(names)

    def place(name: str, *, needed: bool) -> int | None:
        if names.count(name) > 1:
            raise feed.error(f"two columns are called `{name}`; the columns are {listed}")
        if name in names:
            return names.index(name)
        if needed:
            raise feed.error(f"there is no column `{name}`; the columns are {listed}")
        return None

    wanted = {
        decoder.id_field: columns.id,
        decoder.source_field: columns.source,
        decoder.published_at_field: columns.published_at,
    }
    places = {field: place(name or field, needed=name is not None) for field, name in wanted.items()}
    single = {field: at for field, at in places.items() if at is not None}
    if columns.text:
        joined = [at for name in columns.text if (at := place(name, needed=True)) is not None]
        return _Fields(len(names), single, {decoder.text_fields[0]: tuple(joined)})
    texts = {field: (at,) for field in decoder.text_fields if (at := place(field, needed=False)) is not None}
    if not texts:
        missing = " or ".join(f"`{field}`" for field in decoder.text_fields)
        raise feed.error(
            f"there is no column {missing}; the columns are {listed}; name those of the text (--text-column)"
        )
    return _Fields(len(names), single, texts)


def _listed(names: list[str]) -> str:
    """Write the names of columns so that they can be shown anywhere."""
    shown = ["".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in name) for name in names]
    clipped = [
        f"`{name[:_LISTED_CHARS]}{'…' if len(name) > _LISTED_CHARS else ''}`" for name in shown[:_LISTED_COLUMNS]
    ]
    more = len(names) - _LISTED_COLUMNS
    return ", ".join(clipped) + (f" and {more} more" if more > 0 else "")
