"""The parser for Reuters-21578 (articles in SGML), which ``formats`` lists, and the names of the collection's files."""

import re
import sys
import unicodedata
from collections.abc import Iterator
from typing import Final

from streamdedup.corpora import sources
from streamdedup.corpora.entries import Entry, line_id
from streamdedup.corpora.sources import ByteStream, Lines
from streamdedup.corpora.tables import Columns
from streamdedup.errors import CorpusError
from streamdedup.wire import Decoder

REUTERS_SUFFIXES: Final = (".sgm", ".sgml")
#: First bytes of the files, in lower case.
REUTERS_STARTS: Final = (b"<!doctype lewis", b"<reuters")

#: A numeric or a named entity: group 1 is the number, group 2 the name.
_ENTITY: Final = re.compile(r"&(?:#([0-9]{1,7})|(lt|gt|amp|quot|apos));")
_NAMED_ENTITIES: Final = {"lt": "<", "gt": ">", "amp": "&", "quot": '"', "apos": "'"}


def is_reuters_name(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith(REUTERS_SUFFIXES)


def read_reuters(stream: ByteStream, _: Decoder, __: Columns) -> Iterator[Entry]:
    """Yield the articles in an SGML file, which begin and end on lines of their own; lines between them are ignored.

    Invalid UTF-8 (one byte in file 017) becomes U+FFFD, which separates words.
    """
    lines = Lines(stream)
    article: list[bytes] = []
    start = 0  # the line on which the last article begins; 0 before the first article
    size = 0  # bytes of the article so far
    for line in lines:
        if line.lstrip().startswith(b"<REUTERS"):
            if article:
                raise lines.error(f"an article begins inside the one that begins on line {start}")
            start, size = lines.line_number, 0
        elif not article:
            continue
        article.append(line)
        size += len(line)
        if size > sources.MAX_LINE_BYTES:
            raise lines.error(
                f"the article that begins on line {start} is longer than {sources.MAX_LINE_BYTES:,} bytes"
            )
        if b"</REUTERS>" in line:
            yield _article(b"".join(article).decode(errors="replace"), lines.file, start)
            article.clear()
    if article:
        raise lines.error(f"cut short: the article that begins on line {start} does not end")
    if not start:
        raise CorpusError(f"{lines.file}: no Reuters-21578 article (<REUTERS ...>) in it")


def _article(sgml: str, file: str, line: int) -> Entry:
    """Return an article: OLDID (1 to 22,173, unique) as id, BODY as text; an OLDID that is no number counts as none."""
    old_id = re.search(r'\bOLDID="([0-9]{1,9})"', sgml[: sgml.find(">")])  # in the tag that begins the article
    return Entry(
        old_id[1] if old_id else line_id(file, line),
        _element(sgml, "BODY"),
        file,
        line,
        source="Reuters-21578",
        published_at=_element(sgml, "DATE") or None,
    )


def _element(sgml: str, name: str) -> str:
    content = sgml.partition(f"<{name}>")[2].partition(f"</{name}>")[0]
    return _ENTITY.sub(_character, content).strip()


def _character(entity: re.Match[str]) -> str:
    """Return the character for an entity; control characters, which the wire service used as marks, become blanks."""
    if entity[2]:
        return _NAMED_ENTITIES[entity[2]]
    code = int(entity[1])
    if code > sys.maxunicode or 0xD800 <= code <= 0xDFFF:
        return "\N{REPLACEMENT CHARACTER}"
    return " " if unicodedata.category(chr(code)) == "Cc" else chr(code)
