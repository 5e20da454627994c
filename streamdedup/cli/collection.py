"""Documents without repeated ids, and an empty index in memory, for the commands on files or on a part of a topic."""

from collections.abc import Iterable, Iterator
from typing import TypeVar

from streamdedup.cli.output import tell
from streamdedup.corpora import Entry
from streamdedup.index.contract import Index
from streamdedup.index.memory import MemoryIndex
from streamdedup.settings import Profile
from streamdedup.settings.units import counted
from streamdedup.wire import Document

#: A document of a file or of a topic.
Versioned = TypeVar("Versioned", Entry, Document)
#: Documents that the commands compare at once.
BATCH_DOCUMENTS = 500


def first_versions(entries: Iterable[Versioned]) -> Iterator[Versioned]:
    """Yield the first document of each id; print the number of dropped ones on standard error."""
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


def empty_index(profile: Profile) -> Index:
    """Return an empty index of a profile in the memory of this process, open."""
    index = MemoryIndex(bucket_cap=profile.bucket_cap)
    index.open(profile.fingerprint())
    return index
