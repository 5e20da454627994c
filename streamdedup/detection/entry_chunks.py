"""Reads index entries in chunks with a bounded weight, so that memory does not grow with the candidate count."""

from collections.abc import Iterable, Iterator, Mapping

from streamdedup.index.contract import EntryReading
from streamdedup.index.documents import IndexEntry

#: Weight of the index entries that are held at once, in bytes of their hashes. An entry is held twice for a moment: in
#: the reply and decoded. The candidates of an ordinary chunk of 1,000 documents weigh less than 2 MB, so that they are
#: read in one round trip; 3,000 candidates of 24 kB are read in nine.
BUDGET_BYTES = 8 * 2**20
#: Largest number of entries in a request. A reply ends where the budget is used up, and the next request repeats the
#: numbers that did not fit. Without this limit, every request would name all numbers that are still to be read.
_REQUEST_ENTRIES = 2_000


def read_chunks(
    store: EntryReading, numbers: Iterable[int], read_before: Mapping[int, IndexEntry] | None = None
) -> Iterator[dict[int, IndexEntry]]:
    """Yield the entries that exist, in chunks of at most ``BUDGET_BYTES``; a single entry may weigh more.

    ``read_before``: entries that the caller has already, by number; the first chunk, not read again.
    """
    distinct = dict.fromkeys(numbers)
    if read_before:
        yield {number: read_before[number] for number in distinct if number in read_before}
    pending = [number for number in distinct if not read_before or number not in read_before]
    while pending:
        requested = pending[:_REQUEST_ENTRIES]
        # None for a number without an entry; a number that did not fit in the reply is missing.
        entries = store.read_entries(requested, BUDGET_BYTES)
        yield {number: entry for number, entry in entries.items() if entry is not None}
        pending = [number for number in requested if number not in entries] + pending[_REQUEST_ENTRIES:]


def weight_bytes(entries: Iterable[IndexEntry]) -> int:
    return sum(entry.content.size_bytes for entry in entries)
