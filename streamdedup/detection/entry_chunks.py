"""Reads index entries in chunks of bounded weight, so that memory does not grow with the number of candidates."""

from collections.abc import Iterable, Iterator, Mapping

from streamdedup.index.contract import EntryReading
from streamdedup.index.documents import IndexEntry

#: Weight of the index entries that are held at once, in bytes of their hashes. An entry is held about twice: in the
#: reply and decoded. The candidates of an ordinary chunk of 1,000 documents weigh less than
#: 2 MB, so that they are read in one round trip; 3,000 candidates of 24 kB are read in nine.
BUDGET_BYTES = 8 * 1_048_576
#: Most entries that are asked for at once: a reply ends where the budget does, and the request names each entry again
#: that did not fit in.
_ASKED_AT_ONCE = 2_000


def read_chunks(
    store: EntryReading,
    numbers: Iterable[int],
    budget_bytes: int = BUDGET_BYTES,
    kept: Mapping[int, IndexEntry] | None = None,
) -> Iterator[dict[int, IndexEntry]]:
    """Yield the entries that exist, in chunks of the budget.

    Args:
        store: The index.
        numbers: Numbers of the documents; each distinct one is read once.
        budget_bytes: Weight of the entries that are held at once, in bytes; at least 1. A single entry may weigh more.
        kept: Entries that were read before and need not be read again; they come first.
    """
    distinct = dict.fromkeys(numbers)
    if kept:
        yield {number: kept[number] for number in distinct if number in kept}
    pending = [number for number in distinct if not kept or number not in kept]
    while pending:
        asked = pending[:_ASKED_AT_ONCE]
        read = store.read_entries(asked, budget_bytes)
        yield {number: entry for number, entry in read.items() if entry is not None}
        pending = [number for number in asked if number not in read] + pending[_ASKED_AT_ONCE:]


def weight_bytes(entries: Iterable[IndexEntry]) -> int:
    """Return what entries count for in the budget, in bytes."""
    return sum(entry.content.size_bytes for entry in entries)
