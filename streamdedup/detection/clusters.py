"""Clusters of near-duplicates: stars, never chains.

A document joins the cluster of its best match only if it is also similar enough to the first document of that cluster.
So each member of a cluster resembles its first document, however long a chain of small edits grows, and a document that
lies between two clusters does not make one of them. Which document is first depends on the order of arrival; pairs
never depend on clusters.
"""

from collections.abc import Collection, Sequence

from msgspec.structs import replace

from streamdedup.index.contract import EntryStore
from streamdedup.index.documents import IndexEntry
from streamdedup.index.values import Fence
from streamdedup.position import Position
from streamdedup.similarity.sketch import Sketcher


class Stars:
    """The clusters around the documents of one batch.

    Args:
        store: Where clusters are kept.
        sketcher: Compares sketches.
        threshold: Least similarity to the first document of a cluster.
        known: Records of the best matches, of the batch's own documents and of the first documents of their clusters.
    """

    def __init__(self, store: EntryStore, sketcher: Sketcher, threshold: float, known: dict[int, IndexEntry]) -> None:
        self._store = store
        self._sketcher = sketcher
        self._threshold = threshold
        self._known = known
        self._joined: list[tuple[int, Position, int]] = []

    def join(self, record: IndexEntry, best: int, near: Collection[tuple[str, str]] = ()) -> IndexEntry:
        """Place a document in a cluster and return the first document of it, perhaps the document itself.

        Args:
            record: The document.
            best: Number of its best match.
            near: Id and digest (as hexadecimal digits) of documents known to be similar enough, which are not compared
                again.
        """
        best_match = self._known.get(best)
        first = self._known.get(best_match.cluster) if best_match is not None else None
        if first is None or first.deleted or first.number == record.number:
            return record
        if (first.id, first.digest.hex()) not in near and not self._alike(record, first):
            return record
        self._joined.append((record.number, record.position, first.number))
        self._known[record.number] = replace(record, cluster=first.number)
        return first

    def _alike(self, record: IndexEntry, first: IndexEntry) -> bool:
        similarity = self._sketcher.similarities([record.content.sketch], [first.content.sketch]).values[0]
        return bool(similarity >= self._threshold)

    def save(self, rights: Sequence[Fence]) -> None:
        """Store what was joined."""
        if self._joined:
            self._store.set_clusters(self._joined, rights)


class StarFinder:
    """Looks up the clusters that a batch may join.

    Args:
        store: Where clusters are kept.
        sketcher: Compares sketches.
        threshold: Least similarity to the first document of a cluster.
    """

    def __init__(self, store: EntryStore, sketcher: Sketcher, threshold: float) -> None:
        self._store = store
        self._sketcher = sketcher
        self._threshold = threshold

    def load(self, numbers: Sequence[int]) -> Stars:
        """Return the clusters that the documents of these numbers belong to."""
        known = self._store.get_entries(numbers)
        missing = {record.cluster for record in known.values()} - known.keys()
        known |= self._store.get_entries(sorted(missing))
        return Stars(self._store, self._sketcher, self._threshold, known)
