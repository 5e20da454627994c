"""Clusters of near-duplicates: stars, never chains.

A document joins the cluster of its best match only if it is also a near-duplicate of the first document of that
cluster. So each member of a cluster resembles the first document, however long a chain of small edits grows, and a
document between two clusters does not unite the clusters. A suppressed pair joins no cluster: neither as the best
match, nor as the document and the first document of the cluster. The first document depends on the order of arrival;
pairs never depend on clusters.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace

from streamdedup.detection.model import DetectorOptions
from streamdedup.index.contract import EntryStore
from streamdedup.index.documents import IndexEntry
from streamdedup.index.values import Fence
from streamdedup.position import Position
from streamdedup.similarity.sketch import Sketcher
from streamdedup.wire import Match


class Member(NamedTuple):
    """A document with matches, to be placed in a cluster.

    Attributes:
        entry: Index entry of the document.
        best: Number of the best match.
        matches: All matches of the document; the first document of a cluster, where it is one of the matches, is not
            compared again.
    """

    entry: IndexEntry
    best: int
    matches: Sequence[Match] = ()


class Clusters:
    """The clusters of a profile.

    Args:
        store: The index.
        sketcher: Compares sketches.
        options: Definition of a near-duplicate; each member of a cluster is a near-duplicate of the first document.
    """

    def __init__(self, store: EntryStore, sketcher: Sketcher, options: DetectorOptions) -> None:
        self._store = store
        self._sketcher = sketcher
        self._options = options

    def join(self, members: Sequence[Member], fences: Sequence[Fence]) -> list[str]:
        """Place documents in clusters, in order, and store the clusters they join.

        Args:
            members: The documents.
            fences: Fences of the partitions of the batch.

        Returns:
            For each document the id of the first document of the cluster; the own id of a document that joins no
            cluster.
        """
        known = self._store.get_entries([number for member in members for number in (member.best, member.entry.number)])
        missing = {entry.cluster for entry in known.values()} - known.keys()
        known |= self._store.get_entries(sorted(missing))
        ids: list[str] = []
        joined: list[tuple[int, Position, int]] = []
        for member in members:
            entry, first = member.entry, self._first(member, known)
            ids.append(entry.id if first is None else first.id)
            if first is not None:
                joined.append((entry.number, entry.position, first.number))
                known[entry.number] = replace(entry, cluster=first.number)
        if joined:
            self._store.set_clusters(joined, fences)
        return ids

    def _first(self, member: Member, known: dict[int, IndexEntry]) -> IndexEntry | None:
        """Return the first document of the cluster that a document joins; None if the document joins no cluster."""
        best = known.get(member.best)
        first = None if best is None else known.get(best.cluster)
        if first is None or first.deleted or first.number == member.entry.number:
            return None
        digest = first.digest.hex()
        if any((match.id, match.digest) == (first.id, digest) for match in member.matches):
            return first
        options, content = self._options, member.entry.content
        if options.suppression is not None and options.suppression.rule(content, first.content) is not None:
            return None
        found = self._sketcher.similarities([content.sketch], [first.content.sketch])
        return first if options.near(found)[0] else None
