"""The SGML files in a tar archive, read in place: nothing is extracted or written.

``tarfile.open`` reads extended headers into memory at the size that the archive declares. Here only plain headers are
parsed, and extended ones are skipped, so a member with a long name has the truncated name of its plain header.
"""

import tarfile
from collections.abc import Iterator
from typing import Final

from streamdedup.corpora.reuters import REUTERS_STARTS, is_reuters_name
from streamdedup.corpora.sources import CHUNK_BYTES, ByteStream, text_start, unzipped
from streamdedup.errors import CorpusError

#: Links, directories, devices and pipes: some programs write the size of the target into the header of a link.
_WITHOUT_CONTENT: Final = frozenset(tarfile.SUPPORTED_TYPES) - set(tarfile.REGULAR_TYPES) - set(tarfile.GNU_TYPES)


def sgml_members(archive: ByteStream) -> Iterator[ByteStream]:
    """Yield the SGML files, by name or first bytes, decompressed; each is valid until the next is yielded."""
    has_sgml = False
    while (header := _next_header(archive)) is not None:
        member = _Member(archive, 0 if header.type in _WITHOUT_CONTENT else header.size)
        stream = ByteStream(member.read, f"{archive.name}:{header.name}")
        if header.isreg() and (is_reuters_name(header.name) or text_start(stream.head()).startswith(REUTERS_STARTS)):
            has_sgml = True
            yield unzipped(stream)
        member.skip()
    # gzip verifies its checksum at the end, so the archive is read to the end.
    while archive.read(CHUNK_BYTES):
        pass
    if not has_sgml:
        raise CorpusError(f"{archive.name}: an archive without .sgm files")


class _Member:
    """The content of a member: the next ``size`` bytes in the archive."""

    def __init__(self, archive: ByteStream, size: int) -> None:
        self._archive = archive
        self._left = size
        self._padding = -size % tarfile.BLOCKSIZE  # bytes that fill the last block up

    def read(self, size: int) -> bytes:
        piece = _read_exactly(self._archive, min(size, self._left))
        self._left -= len(piece)
        return piece

    def skip(self) -> None:
        """Read the unread content and the padding, so that the next header follows."""
        while self.read(CHUNK_BYTES):
            pass
        _read_exactly(self._archive, self._padding)


def _next_header(archive: ByteStream) -> tarfile.TarInfo | None:
    """Return the next member's header; None at the end, which a block of zeros marks."""
    block = _read_exactly(archive, tarfile.BLOCKSIZE)
    if not any(block):
        return None
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "replace")
    except tarfile.TarError as error:
        raise CorpusError(f"{archive.name}: damaged archive: {error}") from error
    # Sizes of 8 GiB and more are stored as signed binary numbers.
    if header.size < 0:
        raise CorpusError(f"{archive.name}: damaged archive: a member of negative size")
    return header


def _read_exactly(archive: ByteStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = archive.read(size - len(data))
        if not piece:
            raise CorpusError(f"{archive.name}: cut short: the archive ends in a member, or has no end mark")
        data += piece
    return data
