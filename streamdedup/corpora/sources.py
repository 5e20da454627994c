"""Where the bytes of a corpus come from: files, standard input, gzip; as sources to look into and as bounded lines.

Every way in which reading can fail ends here as a ``CorpusError`` that names the file.
"""

import gzip
import io
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Final, cast

from streamdedup.errors import CorpusError

#: The path that stands for standard input.
STDIN: Final = "-"
#: Bytes of a line or an SGML article. Far beyond any document, and what one reader may take of memory.
MAX_LINE_BYTES: Final = 64 * 1024 * 1024
#: Bytes read at once, compressed or not.
CHUNK_BYTES: Final = 64 * 1024
#: Byte order mark of UTF-8, which some editors put in front.
BOM: Final = b"\xef\xbb\xbf"
#: Bytes that are enough to tell what a file is: one block of a tar archive.
_HEAD_BYTES: Final = tarfile.BLOCKSIZE
_GZIP_MAGIC: Final = b"\x1f\x8b"


def open_file(file: str) -> AbstractContextManager[io.BufferedReader]:
    """Open ``file``; standard input is borrowed and stays open."""
    if file == STDIN:
        return nullcontext(cast("io.BufferedReader", sys.stdin.buffer))
    try:
        return Path(file).open("rb")
    except OSError as error:
        raise CorpusError(f"{file}: {error.strerror}") from error


def unzipped(source: "Source") -> "Source":
    """Return what ``source`` holds: itself, or its content when its first bytes say that it is gzip-compressed."""
    if not source.head().startswith(_GZIP_MAGIC):
        return source
    return Source(gzip.GzipFile(fileobj=io.BufferedReader(source, CHUNK_BYTES)).read1, source.name)


class Source(io.RawIOBase):
    """Bytes from wherever, whose beginning can be looked at; every failure to read is a ``CorpusError``.

    Args:
        read: Returns up to so many bytes as soon as there are any; nothing at the end.
        name: What errors call it.
        count: Told the length of each piece that was read.
    """

    def __init__(self, read: Callable[[int], bytes], name: str, count: Callable[[int], None] | None = None) -> None:
        super().__init__()
        self._read = read
        self._count = count
        self._head: bytes | None = None
        self._pending = b""
        self.name = name

    def head(self) -> bytes:
        """Return the first bytes: those of a tar header, or fewer when a line or everything ends before."""
        if self._head is None:
            self._head = b""
            # A stream may deliver byte by byte; a line is enough to tell text, so that a slow sender is not waited for.
            while len(self._head) < _HEAD_BYTES and (b"\n" not in self._head or b"\0" in self._head):
                piece = self._take(CHUNK_BYTES)
                if not piece:
                    break
                self._head += piece
            self._pending = self._head
            self._head = self._head[:_HEAD_BYTES]
        return self._head

    def readable(self) -> bool:
        """Tell ``io`` that this can be read."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]  # the one kind of buffer that io passes
        """Fill ``buffer`` with what there is, at least a byte; return how many bytes, 0 at the end."""
        piece = self._pending[: len(buffer)] or self._take(len(buffer))
        self._pending = self._pending[len(piece) :]
        buffer[: len(piece)] = piece
        return len(piece)

    def read_exactly(self, size: int) -> bytes:
        """Return ``size`` bytes.

        Raises:
            CorpusError: There are fewer.
        """
        data = b""
        while len(data) < size:
            piece = self.read(size - len(data))
            if not piece:
                raise CorpusError(f"{self.name}: cut short: the archive ends before its last member does")
            data += piece
        return data

    def _take(self, size: int) -> bytes:
        try:
            piece = self._read(size)
        except EOFError:
            raise CorpusError(f"{self.name}: cut short: the compressed data ends too early") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise CorpusError(f"{self.name}: damaged compressed data: {error}") from error
        except OSError as error:
            raise CorpusError(f"{self.name}: {error.strerror or error}") from error
        if self._count is not None:
            self._count(len(piece))
        return piece


class Lines:
    """The lines of a source, numbered from 1, none longer than ``MAX_LINE_BYTES``."""

    def __init__(self, source: Source) -> None:
        self._stream = io.BufferedReader(source, CHUNK_BYTES)
        self.file = source.name
        self.number = 0

    def __iter__(self) -> Iterator[bytes]:
        while line := self._stream.readline(MAX_LINE_BYTES + 1):
            self.number += 1
            if len(line) > MAX_LINE_BYTES:
                raise self.error(f"longer than {MAX_LINE_BYTES:,} bytes")
            yield line.removeprefix(BOM) if self.number == 1 else line

    def documents(self) -> Iterator[tuple[str, bytes]]:
        """Yield a made-up id and the content of each line that is not blank."""
        name = Path(self.file).name
        for line in self:
            if not line.isspace():
                yield f"{name}:{self.number}", line.rstrip(b"\r\n")

    def error(self, reason: str) -> CorpusError:
        """Return an error that names the line read last."""
        return CorpusError(f"{self.file}:{self.number}: {reason}")
