"""Reads index entries in chunks of bounded weight, so that memory does not grow with the number of candidates."""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from streamdedup.index.contract import EntryStore
from streamdedup.index.documents import IndexEntry
from streamdedup.index.reading import IndexReader

#: Weight of the index entries that are held at once, in bytes of their hashes. An entry is held about twice: in the
#: reply and decoded. The candidates of an ordinary chunk of 1,000 documents weigh less than
#: 2 MB, so that they are read in one round trip; 3,000 candidates of 24 kB are read in nine.
BUDGET_BYTES = 8 * 1_048_576
#: Most entries that are asked for at once: a reply ends where the budget does, and the request names each entry again
#: that did not fit in.
_ASKED_AT_ONCE = 2_000


class EntryReader:
    """Reads index entries of one index.

    Args:
        store: The index.
        budget_bytes: Weight of the entries that are held at once, in bytes; at least 1. A single entry may weigh more.
    """

    def __init__(self, store: EntryStore | IndexReader, budget_bytes: int = BUDGET_BYTES) -> None:
        self._store = store
        self._budget_bytes = budget_bytes

    def chunks(
        self, numbers: Iterable[int], kept: Mapping[int, IndexEntry] | None = None
    ) -> Iterator[dict[int, IndexEntry]]:
        """Yield the entries that exist, in chunks of the budget.

        Args:
            numbers: Numbers of the documents; each distinct one is read once.
            kept: Entries that were read before and need not be read again; they come first.
        """
        distinct = dict.fromkeys(numbers)
        if kept:
            yield {number: kept[number] for number in distinct if number in kept}
        pending = [number for number in distinct if not kept or number not in kept]
        while pending:
            asked = list(islice(pending, _ASKED_AT_ONCE))
            read = self._store.read_entries(asked, self._budget_bytes)
            yield {number: entry for number, entry in read.items() if entry is not None}
            pending = [number for number in asked if number not in read] + pending[_ASKED_AT_ONCE:]

    def with_room(self, entries: Mapping[int, IndexEntry], kept: Mapping[int, IndexEntry]) -> bool:
        """Tell whether entries may be kept beside others, without exceeding the budget."""
        return weight_bytes(entries.values()) + weight_bytes(kept.values()) <= self._budget_bytes


def weight_bytes(entries: Iterable[IndexEntry]) -> int:
    """Return what entries count for in the budget, in bytes."""
    return sum(entry.content.size_bytes for entry in entries)
