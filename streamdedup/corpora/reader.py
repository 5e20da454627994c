"""The reader of a corpus: its files, in order, with the parser of each."""

import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

from streamdedup.corpora.archive import members
from streamdedup.corpora.entries import Entry
from streamdedup.corpora.formats import FORMATS, FileFormat, Format, detect_format
from streamdedup.corpora.reuters import is_reuters_name
from streamdedup.corpora.sources import STDIN, ByteStream, Lines, open_file, unzipped
from streamdedup.corpora.tables import Columns
from streamdedup.errors import CorpusError
from streamdedup.wire import Decoder

OnBad = Literal["raise", "pass"]

_NO_COLUMNS: Final = Columns()
#: Magic bytes in the first block of a tar archive, and their place.
_TAR_MAGIC: Final = (b"ustar", 257)


class CorpusReader:
    """Reads the entries of one corpus, in order; each iteration starts again (standard input can be read once).

    Args:
        path: A file, a folder of ``.sgm`` files, or "-" for standard input.
        format: Format of the files; "auto" detects it.
        on_bad: "raise" raises ``CorpusError`` for a malformed line; "pass" yields an entry with a ``problem``.
        decoder: Field names of documents, and the rules for a valid document, as in the daemon.
        columns: Columns of a table that are not named like the decoder's fields.

    Attributes:
        total_bytes: Size of the files as stored (compressed, if they are); None if unknown.
        bytes_read: Bytes read of these; grows during an iteration.

    Raises:
        CorpusError: There is no such file, or no ``.sgm`` file in the folder.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        format: Format = "auto",  # noqa: A002  the name of the command line option
        on_bad: OnBad = "raise",
        decoder: Decoder | None = None,
        columns: Columns = _NO_COLUMNS,
    ) -> None:
        self._files = corpus_files(str(path))
        self._format = _of_several(f"{path}: a folder", format) if Path(path).is_dir() else format
        self._on_bad = on_bad
        self._decoder = decoder or Decoder()
        self._columns = columns
        self.total_bytes = _total_bytes(self._files)
        self.bytes_read = 0

    def __iter__(self) -> Iterator[Entry]:
        """Yield the entries.

        Raises:
            CorpusError: A file cannot be read, is truncated or has another format; a line or an article is longer than
                ``MAX_LINE_BYTES``; with ``on_bad="raise"``, a line is malformed.
        """
        self.bytes_read = 0
        for file in self._files:
            for lines, form in self._parts(file):
                for entry in form.parse(lines, self._decoder, self._columns):
                    if entry.problem is not None and self._on_bad == "raise":
                        raise CorpusError(f"{entry.file}:{entry.line}: {entry.problem}")
                    yield entry

    def _parts(self, file: str) -> Iterator[tuple[Lines, FileFormat]]:
        """Yield the content of a file: one part, or one for each member of an archive."""
        with open_file(file) as stored:
            stream = unzipped(ByteStream(stored.read1, "stdin" if file == STDIN else file, self._count))
            is_archive = stream.head().startswith(*_TAR_MAGIC)
            wanted = _of_several(f"{stream.name}: a tar archive", self._format) if is_archive else self._format
            name = detect_format(stream, wanted)
            form = FORMATS[name]
            if self._columns and self._columns.tables_only and not form.is_table:
                raise CorpusError(f"{stream.name}: columns are named, but it is read as {name}; say what format it has")
            for part in members(stream) if is_archive else (stream,):
                yield Lines(part), form

    def _count(self, length: int) -> None:
        self.bytes_read += length


def _of_several(what: str, wanted: Format) -> Format:
    """Return the format of the files in a folder or an archive.

    Raises:
        CorpusError: Another format is wanted; ``what`` names the folder or the archive.
    """
    if wanted not in ("auto", "reuters"):
        raise CorpusError(f"{what}, of which only reuters is read, not {wanted}")
    return "reuters"


def corpus_files(path: str) -> list[str]:
    """Return the files of a corpus in reading order."""
    if path == STDIN or not Path(path).is_dir():
        return [path]
    try:
        files = sorted(str(file) for file in Path(path).iterdir() if is_reuters_name(file.name) and file.is_file())
    except OSError as error:
        raise CorpusError(f"{path}: {error.strerror}") from error
    if not files:
        raise CorpusError(f"{path}: a folder without .sgm files; name the files of other formats one by one")
    return files


def _total_bytes(files: list[str]) -> int | None:
    """Return the size of the files, or None if one is a stream."""
    if STDIN in files:
        return None
    try:
        stats = [Path(file).stat() for file in files]
    except OSError as error:
        raise CorpusError(f"{error.filename}: {error.strerror}") from error
    return sum(status.st_size for status in stats) if all(stat.S_ISREG(status.st_mode) for status in stats) else None
