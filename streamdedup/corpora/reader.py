"""The corpus reader: opens each file, finds its format, and yields the entries of the format's parser."""

import re
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from streamdedup.corpora.archive import sgml_members
from streamdedup.corpora.entries import Entry
from streamdedup.corpora.formats import FORMATS, FileFormat, Format, detect_format
from streamdedup.corpora.reuters import is_reuters_name
from streamdedup.corpora.sources import STDIN, ByteStream, open_file, shown_name, unzipped
from streamdedup.corpora.tables import Columns
from streamdedup.errors import CorpusError
from streamdedup.wire import Decoder

_NO_COLUMNS: Final = Columns()
#: Magic bytes in the first block of a tar archive, and their offset.
_TAR_MAGIC, _TAR_MAGIC_OFFSET = b"ustar", 257


class CorpusReader:
    """Reads the entries in a corpus, in order; each iteration starts again, except of standard input.

    ``total_bytes`` and ``bytes_read`` count bytes as stored, for a progress bar; the total of a stream is None.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        format: Format = "auto",  # noqa: A002  the name of the command line option
        decoder: Decoder | None = None,
        columns: Columns = _NO_COLUMNS,
    ) -> None:
        self._files = corpus_files(str(path))
        is_folder = str(path) != STDIN and Path(path).is_dir()
        self._format = _require_reuters(f"{shown_name(str(path))}: a folder", format) if is_folder else format
        self._decoder = decoder or Decoder()
        self._columns = columns
        self.total_bytes = _total_bytes(self._files)
        self.bytes_read = 0

    def __iter__(self) -> Iterator[Entry]:
        self.bytes_read = 0
        for file in self._files:
            for stream, file_format in self._parts(file):
                yield from file_format.parse(stream, self._decoder, self._columns)

    def _parts(self, file: str) -> Iterator[tuple[ByteStream, FileFormat]]:
        """Yield a file's content: one part, or one for each SGML file of an archive."""
        with open_file(file) as stored:
            stream = unzipped(ByteStream(stored.read1, "stdin" if file == STDIN else file, self._count_bytes))
            is_archive = stream.head().startswith(_TAR_MAGIC, _TAR_MAGIC_OFFSET)
            requested = _require_reuters(f"{stream.name}: a tar archive", self._format) if is_archive else self._format
            format_name = detect_format(stream, requested)
            file_format = FORMATS[format_name]
            if self._columns and self._columns.tables_only and not file_format.is_table:
                text = f"columns are named, but it is read as {format_name}; say what format it has"
                raise CorpusError(f"{stream.name}: {text}")
            for part in sgml_members(stream) if is_archive else (stream,):
                yield part, file_format

    def _count_bytes(self, length: int) -> None:
        self.bytes_read += length


def _require_reuters(subject: str, requested: Format) -> Format:
    """Return "reuters", the only format of folders and archives; raise if another one is requested."""
    if requested not in ("auto", "reuters"):
        raise CorpusError(f"{subject}, of which only reuters is read, not {requested}")
    return "reuters"


def corpus_files(path: str) -> list[str]:
    """Return the file, or the ``.sgm`` files of a folder in order; raise for a URL, or a folder without any."""
    if url := re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path):
        # Without the rest: a URL may have a login or a token.
        raise CorpusError(f"{url[0]}...: a URL; only files are read: download it, or pipe it into - (standard input)")
    if path == STDIN or not Path(path).is_dir():
        return [path]
    try:
        files = sorted(str(file) for file in Path(path).iterdir() if is_reuters_name(file.name) and file.is_file())
    except OSError as error:
        raise CorpusError(f"{shown_name(path)}: {error.strerror}") from error
    if not files:
        raise CorpusError(
            f"{shown_name(path)}: a folder without .sgm files; name the files of other formats one by one"
        )
    return files


def _total_bytes(files: list[str]) -> int | None:
    """Return the summed file size, or None if one is a stream, such as a named pipe."""
    if STDIN in files:
        return None
    try:
        stats = [Path(file).stat() for file in files]
    except OSError as error:
        raise CorpusError(f"{shown_name(str(error.filename))}: {error.strerror}") from error
    return sum(status.st_size for status in stats) if all(stat.S_ISREG(status.st_mode) for status in stats) else None
