"""What a file is: told by its first bytes, then by its name."""

import re
from pathlib import Path
from typing import Final, Literal

from streamdedup.corpora.sources import BOM, Source
from streamdedup.errors import CorpusError

Format = Literal["auto", "jsonl", "csv", "tsv", "tsv-unquoted", "text", "reuters"]

#: The formats whose files name their columns.
TABLES: Final = frozenset[Format]({"csv", "tsv", "tsv-unquoted"})

#: First bytes of what is often given by mistake, and what to say about it; the first that fits counts, and the mark of
#: UTF-32 begins with that of UTF-16.
_FOREIGN: Final = {
    b"PK\x03\x04": "a zip archive; unpack it first",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; only gzip is read",
    b"\xfd7zXZ\x00": "compressed with xz; only gzip is read",
    b"BZh91AY&SY": "compressed with bzip2; only gzip is read",
    b"\xff\xfe\x00\x00": "UTF-32 text; convert it to UTF-8",
    b"\x00\x00\xfe\xff": "UTF-32 text; convert it to UTF-8",
    b"\xff\xfe": "UTF-16 text; convert it to UTF-8",
    b"\xfe\xff": "UTF-16 text; convert it to UTF-8",
}
_SUFFIXES: Final[dict[str, Format]] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".txt": "text",
    ".sgm": "reuters",
    ".sgml": "reuters",
}
#: Names of SGML files, compressed ones included.
SGML_NAME: Final = re.compile(r"\.sgml?(\.gz)?$", re.IGNORECASE)


def detect_format(source: Source, wanted: Format) -> Format:
    """Return the format of ``source``.

    Raises:
        CorpusError: It is known to be something else.
    """
    head = source.head()
    for magic, description in _FOREIGN.items():
        if head.startswith(magic):
            raise CorpusError(f"{source.name}: {description}")
    if wanted != "auto":
        return wanted
    if b"\0" in head:
        raise CorpusError(f"{source.name}: a binary file, neither text nor gzip-compressed text")
    if is_reuters(head):
        return "reuters"
    suffixes = [suffix.lower() for suffix in Path(source.name).suffixes if suffix.lower() != ".gz"]
    suffix = suffixes[-1] if suffixes else ""
    return _SUFFIXES.get(suffix) or ("jsonl" if head.removeprefix(BOM).lstrip().startswith(b"{") else "text")


def is_reuters(head: bytes) -> bool:
    """Tell whether a file that begins so holds Reuters-21578 articles."""
    return head.removeprefix(BOM).lstrip().lower().startswith((b"<!doctype lewis", b"<reuters"))
