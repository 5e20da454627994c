"""Members of a tar archive, read in place: nothing is extracted or written.

``tarfile`` reads extended headers (long names, sparse maps) into memory at the size that the archive declares. Only
plain headers are parsed here, so that a hostile archive cannot exhaust memory.
"""

import tarfile
from collections.abc import Iterator

from streamdedup.corpora.reuters import REUTERS_STARTS, is_reuters_name
from streamdedup.corpora.sources import CHUNK_BYTES, ByteStream, starts_with
from streamdedup.errors import CorpusError


def members(archive: ByteStream) -> Iterator[ByteStream]:
    """Yield the SGML files in a tar archive; each has to be read before the next.

    Raises:
        CorpusError: The archive is damaged or truncated, or has no SGML file.
    """
    is_empty = True
    while (header := _next_header(archive)) is not None:
        content = _Member(archive, header.size)
        member = ByteStream(content.read, f"{archive.name}:{header.name}")
        if header.isreg() and (is_reuters_name(header.name) or starts_with(member.head(), REUTERS_STARTS)):
            is_empty = False
            yield member
        content.skip()
    # gzip verifies its checksum at the end, so the archive is read to the end.
    while archive.read(CHUNK_BYTES):
        pass
    if is_empty:
        raise CorpusError(f"{archive.name}: an archive without .sgm files")


class _Member:
    """One member's content: the next ``size`` bytes in the archive."""

    def __init__(self, archive: ByteStream, size: int) -> None:
        self._archive = archive
        self._left = size
        self._padding = -size % tarfile.BLOCKSIZE

    def read(self, size: int) -> bytes:
        piece = self._archive.read_exactly(min(size, self._left))
        self._left -= len(piece)
        return piece

    def skip(self) -> None:
        while self.read(CHUNK_BYTES):
            pass
        self._archive.read_exactly(self._padding)


def _next_header(archive: ByteStream) -> tarfile.TarInfo | None:
    """Return the next member's header, or None at the end."""
    block = archive.read_exactly(tarfile.BLOCKSIZE)
    if not any(block):
        return None
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
    except tarfile.TarError as error:
        raise CorpusError(f"{archive.name}: damaged archive: {error}") from error
    if header.size < 0:
        raise CorpusError(f"{archive.name}: damaged archive: a member of negative size")
    return header
