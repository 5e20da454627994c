"""Byte streams and lines of corpus files; every read error is a ``CorpusError`` that names the file.

``corpora.reader`` makes a ``ByteStream`` of an open file and decompresses it; parsers of formats read its ``Lines``.
"""

import gzip
import io
import re
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, cast

from streamdedup.errors import CorpusError

STDIN: Final = "-"
#: Limit of a line, a table row or an SGML article, in bytes; ``sources.MAX_LINE_BYTES`` elsewhere: tests replace it.
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
CHUNK_BYTES: Final = 64 * 1024
#: Byte order mark of UTF-8, which some editors write.
BOM: Final = b"\xef\xbb\xbf"
#: First bytes that identify a file: one block of a tar archive.
_HEAD_BYTES: Final = tarfile.BLOCKSIZE
_GZIP_MAGIC: Final = b"\x1f\x8b"
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def shown_name(file: str) -> str:
    """Return a file name with escapes for bytes that no JSON text can have, and for control characters."""
    name = file.encode(errors="backslashreplace").decode()
    return _CONTROL.sub(lambda control: repr(control[0])[1:-1], name)


def open_file(file: str) -> AbstractContextManager[io.BufferedReader]:
    """Open a file, or standard input for ``-``, which stays open afterwards."""
    if file == STDIN:
        if sys.stdin is None:
            raise CorpusError("stdin: closed, so there is nothing to read")
        return nullcontext(cast("io.BufferedReader", sys.stdin.buffer))
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise CorpusError(f"{shown_name(file)}: {error.strerror}") from error


def unzipped(stream: "ByteStream") -> "ByteStream":
    """Return the stream, decompressed if its first bytes are those of gzip."""
    if not stream.head().startswith(_GZIP_MAGIC):
        return stream
    # Without `on_read`: the inner stream counts the bytes as stored.
    return ByteStream(gzip.GzipFile(fileobj=io.BufferedReader(stream, CHUNK_BYTES)).read1, stream.name)


def text_start(head: bytes) -> bytes:
    """Return the first bytes of a text in lower case, without a byte order mark and blanks before them."""
    return head.removeprefix(BOM).lstrip().lower()


class ByteStream(io.RawIOBase):
    """A byte stream whose beginning can be examined before it is read.

    ``read_some`` returns the bytes that are available, as the ``read1`` of a file does; ``on_read`` gets their number.
    """

    def __init__(
        self, read_some: Callable[[int], bytes], name: str, on_read: Callable[[int], None] | None = None
    ) -> None:
        super().__init__()
        self._read_some = read_some
        self._on_read = on_read
        self._head: bytes | None = None
        self._pending = b""  # bytes that ``head`` took, and that ``readinto`` has not returned yet
        self.name = shown_name(name)

    def head(self) -> bytes:
        """Return the first 512 bytes, or fewer of a short stream, or of a text whose first line has arrived."""
        if self._head is None:
            data = b""
            # A slow stream may deliver byte by byte, and one line is enough to detect text. Binary data has NUL bytes
            # and may have a line end anywhere, so its first 512 bytes are read as a whole.
            while len(data) < _HEAD_BYTES and (b"\n" not in data or b"\0" in data):
                piece = self._take(CHUNK_BYTES)
                if not piece:
                    break
                data += piece
            self._pending, self._head = data, data[:_HEAD_BYTES]
        return self._head

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the one kind of buffer that io passes
        piece = self._pending[: len(buffer)] or self._take(len(buffer))
        self._pending = self._pending[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)

    def _take(self, size: int) -> bytes:
        try:
            piece = self._read_some(size)
        except EOFError:
            raise CorpusError(f"{self.name}: cut short: the compressed data ends too early") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise CorpusError(f"{self.name}: damaged compressed data: {error}") from error
        except OSError as error:
            raise CorpusError(f"{self.name}: {error.strerror or error}") from error
        if self._on_read is not None:
            self._on_read(len(piece))
        return piece


class Lines:
    """The lines in a stream, numbered from 1, limited to ``MAX_LINE_BYTES``."""

    def __init__(self, stream: ByteStream) -> None:
        self._stream = io.BufferedReader(stream, CHUNK_BYTES)
        self.file = stream.name
        self.line_number = 0  # of the last line that was read; 0 before the first

    def __iter__(self) -> Iterator[bytes]:
        # One byte more than the limit tells a longer line, which ``readline`` cuts, from one that just fits.
        while line := self._stream.readline(MAX_LINE_BYTES + 1):
            self.line_number += 1
            if len(line) > MAX_LINE_BYTES:
                raise self.error(f"longer than {MAX_LINE_BYTES:,} bytes")
            yield line.removeprefix(BOM) if self.line_number == 1 else line

    def filled(self) -> Iterator[tuple[int, bytes]]:
        """Yield number and content, without the line end, for each line that is not blank."""
        for line in self:
            if line.strip():  # the first line may be a byte order mark alone
                yield self.line_number, line.rstrip(b"\r\n")

    def error(self, reason: str) -> CorpusError:
        return CorpusError(f"{self.file}:{self.line_number}: {reason}")
