"""Clusters of near-duplicates, in which ``Detector.index`` places documents as its last step.

``lookup`` uses ``spread_of``. The index keeps the members (``index.contract.DocumentStore.set_clusters``).

Clusters are stars, not chains. A document joins its best match's cluster only if it also resembles the cluster's first
document. So each member resembled the first document when it joined, however long a chain of small edits grows, and a
document between two clusters does not unite the clusters. A suppressed pair forms no cluster: a suppressed
near-duplicate is no best match, and a document whose pair with the first document is suppressed does not join. The
first document depends on the order of arrival; pairs never depend on clusters.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from streamdedup.detection.captions import read_caption
from streamdedup.detection.model import DetectorOptions, Spread
from streamdedup.index.contract import DocumentStore
from streamdedup.index.documents import IndexEntry
from streamdedup.index.values import ClusterCounts, Fence
from streamdedup.similarity.sketch import Sketcher
from streamdedup.wire import Match


class Member(NamedTuple):
    """A document with matches, to be placed in a cluster; a first document among ``matches`` is not compared again."""

    entry: IndexEntry
    best_number: int
    matches: Sequence[Match]


class Joined(NamedTuple):
    """The cluster in which a document with matches was placed.

    Attributes:
        first: First document of the cluster; the document itself where it joins no cluster.
        size: At most ``CLUSTER_SIZE_CAP``.
        incarnation: That of the document in the index now. The entry of a superseded member lacks it. A rebuild takes
            it from the document's last alert.
    """

    first: IndexEntry
    size: int
    spread: Spread | None = None
    incarnation: bytes | None = None


def spread_of(
    counts: ClusterCounts, earliest: IndexEntry | None, scope: bytes | None, label_bytes: int
) -> Spread | None:
    """Return the spread of a cluster; None if no document has a source, or the profile has no labels.

    A cluster set may mix scopes: when its first document moves to another scope, earlier members stay, and documents of
    the new scope join. So the earliest document is named only if it has ``scope``, that of the document that is shown.
    """
    if not label_bytes or not counts.sources:
        return None
    spread = Spread(counts.sources, counts.since_ms, counts.until_ms)
    if earliest is None or earliest.deleted or earliest.content.scope != scope:
        return spread
    source = read_caption(earliest.content.caption, label_bytes).source or None
    return spread._replace(earliest_id=earliest.id, earliest_source=source)


class Clusters:
    """The clusters in a profile."""

    def __init__(self, store: DocumentStore, sketcher: Sketcher, options: DetectorOptions) -> None:
        self._store = store
        self._sketcher = sketcher
        self._options = options

    def join(self, members: Sequence[Member], fences: Sequence[Fence]) -> list[Joined]:
        """Place documents in clusters, in order, and store the clusters; return the cluster of each document."""
        entries = self._read(members)
        incarnations = [entries.get(member.entry.number, member.entry).content.incarnation for member in members]
        joined: list[tuple[IndexEntry, IndexEntry]] = []  # each document, and the first document of its cluster
        for member in members:
            entry, first = member.entry, self._first_to_join(member, entries)
            if first is None:
                # ``set_clusters`` with the present cluster returns its counts, and changes no cluster.
                first = _first_of_present_cluster(entry, entries)
            else:
                # Later members whose best match is this document join the same cluster, unless the index has a later
                # version of the document, which has a cluster of its own.
                stored = entries.get(entry.number)
                if stored is None or stored.position == entry.position:
                    entries[entry.number] = replace(entry, cluster=first.number)
            joined.append((entry, first))
        # With the position: a version from another position, which replaced this one, is left alone.
        all_counts = self._store.set_clusters(
            [(entry.number, entry.position, first.number) for entry, first in joined], fences
        )
        label_bytes = self._options.label_bytes
        earliest = {counts.earliest for counts in all_counts if counts.sources} if label_bytes else set()
        if to_read := earliest - entries.keys():
            entries |= self._store.get_entries(sorted(to_read))
        return [
            Joined(
                first,
                counts.size,
                spread_of(counts, entries.get(counts.earliest), first.content.scope, label_bytes),
                incarnation,
            )
            for (_, first), counts, incarnation in zip(joined, all_counts, incarnations, strict=True)
        ]

    def _read(self, members: Sequence[Member]) -> dict[int, IndexEntry]:
        """Return the entries of members, of best matches, and of the first documents of their clusters, by number."""
        entries = self._store.get_entries(
            [number for member in members for number in (member.best_number, member.entry.number)]
        )
        if firsts := {entry.cluster for entry in entries.values()} - entries.keys():
            entries |= self._store.get_entries(sorted(firsts))
        return entries

    def _first_to_join(self, member: Member, entries: dict[int, IndexEntry]) -> IndexEntry | None:
        """Return the first document in the cluster that a document joins; None if the document joins no cluster.

        The two are compared by scope, suppression rules, and similarity or containment, not by times or band keys.
        """
        best = entries.get(member.best_number)
        first = None if best is None else entries.get(best.cluster)
        # A document does not join its own cluster: equal numbers.
        if first is None or first.deleted or first.number == member.entry.number:
            return None
        if first.content.scope != member.entry.content.scope:
            return None  # the first document has changed its scope
        digest = first.digest.hex()
        # With the digest: a pending match from an earlier attempt may name an earlier version of the first document.
        if any((match.id, match.digest) == (first.id, digest) for match in member.matches):
            return first
        options, content = self._options, member.entry.content
        if options.suppression is not None and options.suppression.rule(content, first.content) is not None:
            return None
        similarities = self._sketcher.similarities([content.sketch], [first.content.sketch], [(0, 0)])
        return first if options.near(similarities)[0] else None


def _first_of_present_cluster(entry: IndexEntry, entries: Mapping[int, IndexEntry]) -> IndexEntry:
    """Return the first document of the cluster that a document is in, as after an append; without one, the document."""
    stored = entries.get(entry.number)
    first = None if stored is None or stored.position != entry.position else entries.get(stored.cluster)
    if first is None or first.deleted or first.content.scope != entry.content.scope:
        return entry
    return first
