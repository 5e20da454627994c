"""The entries of files, documents without repeated ids, and an empty index in memory, for the commands on files."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

from streamdedup.cli.output import MistakeReports, read_with_progress, tell
from streamdedup.cli.rendering.safe_text import printable
from streamdedup.corpora import CorpusReader, Entry, shown_name
from streamdedup.counts import counted
from streamdedup.errors import CorpusError
from streamdedup.index.contract import Index
from streamdedup.index.memory import MemoryIndex
from streamdedup.settings import Profile
from streamdedup.wire import Document

Item = TypeVar("Item")
Versioned = TypeVar("Versioned", Entry, Document)  # a document of a file or of a topic
BATCH_DOCUMENTS = 500  # documents that the commands compare at once
#: Lines at the beginning of each file whose ids are compared with those of other files; the limit bounds the memory.
_COMPARED_LINES = 1_000


class FileEntries:
    """Reads the files of a command; reports malformed lines, counted in ``malformed``, and ids that two files share."""

    def __init__(self) -> None:
        self.malformed = MistakeReports("no document")
        self._shared_ids = MistakeReports("same id")
        self._document_count = 0
        self._file_by_id: dict[str, str] = {}

    def read(self, file: str, reader: CorpusReader) -> Iterator[Entry]:
        shown = shown_name(file)
        for row, entry in enumerate(read_with_progress(reader, shown)):
            if entry.problem is not None:
                self.malformed.report(f"{entry.file}:{entry.line}", entry.problem)
            else:
                self._document_count += 1
                if row < _COMPARED_LINES and (first := self._file_by_id.setdefault(entry.id, shown)) != shown:
                    text = f"{printable(entry.id)} is an id in {first} too, so both are one document"
                    self._shared_ids.report(f"{shown}:{entry.line}", text)
            yield entry

    def require_document(self) -> None:
        """Raise ``CorpusError`` if all lines are malformed."""
        if self.malformed.count and not self._document_count:
            raise CorpusError(f"no document is left: {counted(self.malformed.count, 'line')}, all malformed")


def first_of_each_id(entries: Iterable[Versioned]) -> Iterator[Versioned]:
    """Yield the first document of each id; print the number of dropped documents on standard error."""
    seen_ids: set[str] = set()
    repeated_count = 0
    for entry in entries:
        if entry.id in seen_ids:
            repeated_count += 1
        else:
            seen_ids.add(entry.id)
            yield entry
    if repeated_count:
        tell(f"passed over: {counted(repeated_count, 'document')} whose id occurred before", err=True)


def up_to_limit(values: Iterable[Item], limit: int | None) -> Iterator[Item]:
    return islice(values, None if limit is None else min(limit, sys.maxsize))  # `islice` refuses greater numbers


def batches(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while batch := list(islice(iterator, BATCH_DOCUMENTS)):
        yield batch


def empty_index(profile: Profile) -> Index:
    index = MemoryIndex(bucket_cap=profile.bucket_cap)
    index.open(profile.fingerprint())
    return index
