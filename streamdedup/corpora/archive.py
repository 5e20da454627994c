"""The SGML files in a tar archive, read in place: nothing is extracted or written."""

import io
import tarfile
from collections.abc import Iterator

from streamdedup.corpora.reuters import REUTERS_STARTS, is_reuters_name
from streamdedup.corpora.sources import CHUNK_BYTES, ByteStream, text_start, unzipped
from streamdedup.errors import CorpusError


def sgml_members(archive: ByteStream) -> Iterator[ByteStream]:
    """Yield the SGML files, by name or first bytes, decompressed; each is valid until the next is asked for."""
    has_sgml = False
    try:
        with tarfile.open(fileobj=io.BufferedReader(archive), mode="r|") as members:
            for member in members:
                content = members.extractfile(member) if member.isreg() else None
                if content is None:
                    continue
                stream = ByteStream(content.read, f"{archive.name}:{member.name}")
                if is_reuters_name(member.name) or text_start(stream.head()).startswith(REUTERS_STARTS):
                    has_sgml = True
                    yield unzipped(stream)
    except tarfile.TarError as error:
        raise CorpusError(f"{archive.name}: damaged archive, or cut short: {error}") from error
    # `tarfile` takes a damaged header for the end. gzip verifies its checksum at the end, so all is read.
    while rest := archive.read(CHUNK_BYTES):
        if rest.strip(b"\0"):
            raise CorpusError(f"{archive.name}: damaged archive: members behind its end")
    if not has_sgml:
        raise CorpusError(f"{archive.name}: an archive without .sgm files")
