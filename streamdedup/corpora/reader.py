"""The reader of a corpus: which files, in which order, read as what."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from streamdedup.corpora.archive import members
from streamdedup.corpora.detection import SGML_NAME, TABLES, Format, detect_format
from streamdedup.corpora.formats import PARSERS, Entry, Options, Parser, ReutersId
from streamdedup.corpora.sources import STDIN, Lines, Source, open_file, unzipped
from streamdedup.corpora.tables import Columns
from streamdedup.errors import CorpusError
from streamdedup.wire import Decoder

OnBad = Literal["raise", "pass"]

#: Nothing is said about columns.
NO_COLUMNS: Final = Columns()


class CorpusReader:
    """Reads the entries of one corpus, in order; each iteration starts again (standard input can be read once).

    Args:
        path: A file, a folder of ``.sgm`` files, or "-" for standard input.
        format: What the files hold; "auto" asks their first bytes, then their names, and takes the rest for text.
        on_bad: A line that is no document is raised as ``CorpusError``, or passed on as an entry with a ``problem``.
        decoder: How to read JSON lines; decides on field names and on what is a document, as in the daemon.
        reuters_id: Which number identifies a Reuters article. Both are unique; OLDID (1 to 22,173) is the
            default, NEWID (1 to 21,578) is what most publications print.
        reuters_title: Begin the text with the title (a line of its own), also when there is no BODY.
        columns: Which columns of a table hold what, where they are not called like the decoder's fields.

    Attributes:
        total_bytes: Size of the files as they are stored (compressed, if they are); None when it cannot be known.
        bytes_read: How many of these were read; never goes back during an iteration.
        unreadable_count: Entries with a problem so far.

    Raises:
        CorpusError: There is no such file, or no ``.sgm`` file in the folder.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        format: Format = "auto",  # noqa: A002  the word that users know from the command line
        on_bad: OnBad = "raise",
        decoder: Decoder | None = None,
        reuters_id: ReutersId = "OLDID",
        reuters_title: bool = False,
        columns: Columns = NO_COLUMNS,
    ) -> None:
        self._files = _files(str(path))
        self._format: Format = "reuters" if len(self._files) > 1 or Path(path).is_dir() else format
        self._on_bad = on_bad
        self._options = Options(decoder or Decoder(), reuters_id, reuters_title, columns)
        self.total_bytes = _total_bytes(self._files)
        self.bytes_read = 0
        self.unreadable_count = 0

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries.

        Raises:
            CorpusError: A file cannot be read, is cut short or is none of the formats; a line or an article is longer
                than ``MAX_LINE_BYTES``; with ``on_bad="raise"``, a line is no document.
        """
        self.bytes_read = self.unreadable_count = 0
        for file in self._files:
            for lines, parse in self._parts(file):
                for entry in parse(lines, self._options):
                    if entry.problem is not None:
                        if self._on_bad == "raise":
                            raise CorpusError(f"{entry.file}:{entry.line}: {entry.problem}")
                        self.unreadable_count += 1
                    yield entry

    def _parts(self, file: str) -> Iterator[tuple[Lines, Parser]]:
        """Yield what ``file`` consists of: itself, or the members of the archive that it is."""
        with open_file(file) as stored:
            source = unzipped(Source(stored.read1, "stdin" if file == STDIN else file, self._count))
            is_archive = source.head()[257:262] == b"ustar"
            found: Format = "reuters" if is_archive else detect_format(source, self._format)
            columns = self._options.columns
            if columns and columns.tables_only and found not in TABLES:
                raise CorpusError(
                    f"{source.name}: columns are named, but it is read as {found}; say what format it has"
                )
            if is_archive:
                for member in members(source):
                    yield Lines(member), PARSERS[found]
            else:
                yield Lines(source), PARSERS[found]

    def _count(self, length: int) -> None:
        self.bytes_read += length


def read_corpus(
    path: str | Path,
    *,
    format: Format = "auto",  # noqa: A002  the word that users know from the command line
    on_bad: OnBad = "raise",
    decoder: Decoder | None = None,
) -> Iterator[Entry]:
    """Yield the entries of a corpus; arguments and errors are those of ``CorpusReader``."""
    return iter(CorpusReader(path, format=format, on_bad=on_bad, decoder=decoder))


def _files(path: str) -> list[str]:
    """Return the files of a corpus in the order in which they are read."""
    if path == STDIN or not Path(path).is_dir():
        return [path]
    try:
        files = sorted(str(file) for file in Path(path).iterdir() if SGML_NAME.search(file.name) and file.is_file())
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}") from error
    if not files:
        raise CorpusError(f"{path}: a folder without .sgm files; name the files of other formats one by one")
    return files


def _total_bytes(files: list[str]) -> int | None:
    """Return the size of ``files``, or None when one of them is a stream."""
    if STDIN in files:
        return None
    try:
        stats = [Path(file).stat() for file in files]
    except OSError as error:
        raise CorpusError(f"{error.filename}: {error.strerror}") from error
    return sum(status.st_size for status in stats) if all(stat.S_ISREG(status.st_mode) for status in stats) else None
