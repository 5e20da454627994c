"""The entries of files, documents without repeated ids, and an empty index in memory, for the commands on files."""

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

import typer

from streamdedup.cli.output import MistakeReports, read_with_progress
from streamdedup.corpora import CorpusReader, Entry, shown_name
from streamdedup.counts import counted
from streamdedup.errors import CorpusError
from streamdedup.index.contract import Index
from streamdedup.index.memory import MemoryIndex
from streamdedup.settings import Profile
from streamdedup.wire import Document

Item = TypeVar("Item")
#: A document of a file or of a topic.
Versioned = TypeVar("Versioned", Entry, Document)
#: Documents that the commands compare at once.
BATCH_DOCUMENTS = 500


class FileEntries:
    """Reads the files of a command; reports malformed lines, counted in ``malformed``."""

    def __init__(self) -> None:
        self.malformed = MistakeReports("no document")
        self._document_count = 0

    def read(self, file: str, reader: CorpusReader) -> Iterator[Entry]:
        for entry in read_with_progress(reader, shown_name(file)):
            if entry.problem is not None:
                self.malformed.report(f"{entry.file}:{entry.line}", entry.problem)
            else:
                self._document_count += 1
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
        typer.echo(f"passed over: {counted(repeated_count, 'document')} whose id occurred before", err=True)


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
