"""Members of a tar archive, read in place: nothing is ever extracted or written."""

import tarfile
from collections.abc import Iterator

from streamdedup.corpora.detection import SGML_NAME, is_reuters
from streamdedup.corpora.sources import CHUNK_BYTES, Source
from streamdedup.errors import CorpusError


class _Window:
    """The next ``size`` bytes of an archive: the content of one member."""

    def __init__(self, archive: Source, size: int) -> None:
        self._archive = archive
        self._left = size
        self._padding = -size % tarfile.BLOCKSIZE

    def read(self, size: int) -> bytes:
        """Return up to ``size`` bytes; nothing at the end of the member."""
        piece = self._archive.read_exactly(min(size, self._left))
        self._left -= len(piece)
        return piece

    def skip(self) -> None:
        """Go to the end of the member, padding included."""
        while self.read(CHUNK_BYTES):
            pass
        self._archive.read_exactly(self._padding)


def members(archive: Source) -> Iterator[Source]:
    """Yield the SGML files of a tar archive as sources, each to be read before the next.

    Only plain headers are looked at: extended ones (long names, sparse maps) are where a hostile archive could ask for
    memory, and they are not needed to tell what a member is.

    Raises:
        CorpusError: The archive is damaged, cut short, or holds no SGML file.
    """
    found = False
    while (header := _member_header(archive)) is not None:
        window = _Window(archive, header.size)
        member = Source(window.read, f"{archive.name}:{header.name}")
        if header.isreg() and (SGML_NAME.search(header.name) or is_reuters(member.head())):
            found = True
            yield member
        window.skip()
    # The check sum of compressed data comes last: an archive is whole only if it can be read to its end.
    while archive.read(CHUNK_BYTES):
        pass
    if not found:
        raise CorpusError(f"{archive.name}: an archive without .sgm files")


def _member_header(archive: Source) -> tarfile.TarInfo | None:
    """Return the header of the next member, or None at the end of the archive."""
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
