"""Documents without repeated ids, and a temporary index, for the commands on files."""

import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from streamdedup.cli.output import counting, say, tell
from streamdedup.corpora import Entry
from streamdedup.index.contract import Index
from streamdedup.index.memory import MemoryIndex
from streamdedup.indexes import backend_at, index_parameters
from streamdedup.settings import Profile
from streamdedup.settings.units import counted
from streamdedup.wire import Document

#: A document of a file or of a topic.
Versioned = TypeVar("Versioned", Entry, Document)
#: Documents of one batch.
BATCH_DOCUMENTS = 500
#: Time to live of a temporary index whose command was killed before it could delete the index, in milliseconds.
LEFT_BEHIND_MS = 86_400_000


def first_versions(entries: Iterable[Versioned]) -> Iterator[Versioned]:
    """Yield the first document of each id; tell the number of the others on standard error."""
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


@contextmanager
def temporary_store(url: str | None, profile: Profile, bucket_cap: int | None) -> Iterator[Index]:
    """Open an empty index, and delete it afterwards.

    Args:
        url: Redis URL; None for this process's memory.
        profile: Index profile.
        bucket_cap: Most documents in a bucket; None for no limit.

    Raises:
        SettingsError: The URL cannot be used.
        StoreUnavailable: The server does not answer.
        StoreMisconfigured: The server is too old, or drops keys when it is full.
    """
    if url is None:
        memory = MemoryIndex(bucket_cap=bucket_cap)
        memory.open(profile.fingerprint())
        yield memory
        return
    name = secrets.token_hex(8)
    parameters = replace(index_parameters(profile), lifetime_ms=LEFT_BEHIND_MS, bucket_cap=bucket_cap)
    with backend_at(url, "streamdedup-temporary", {name: parameters}) as backend:
        for warning in backend.check():
            say(warning)
        index = backend.index(name)
        try:
            index.open(parameters.fingerprint)
            yield index
        finally:
            with counting("deleting the temporary index") as on_keys:
                backend.upkeep(name).drop(on_keys)
