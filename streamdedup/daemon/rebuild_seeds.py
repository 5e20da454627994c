"""What a rebuild restores from the published alerts: claims, clusters and incarnations.

Called by ``rebuild_run``, which adds each alert of the profile, writes whenever there are ``SEED_PAIRS`` claims, and
restores the incarnations at the end. A change of the fields in ``wire.alerts`` also touches ``Seeds.add``.
"""

from collections.abc import Callable, Sequence
from itertools import chain

from msgspec import structs

from streamdedup.daemon.batch import Pipeline
from streamdedup.detection.model import document_number, published_pair_key
from streamdedup.index.documents import IndexEntry, deletion_marker
from streamdedup.index.values import PUBLISHED, Fence
from streamdedup.position import Position
from streamdedup.wire import Alert, AlertDocument, Match

#: Number of claims at which ``rebuild_run`` writes; the alerts of one poll may exceed it.
SEED_PAIRS = 5_000
#: Largest number of index entries in one request of ``restore_incarnations``.
_MOST_ENTRIES = 5_000


class Seeds:
    """Collects published alerts, and writes ``claims``, clusters and incarnations to the index."""

    def __init__(self, pipeline: Pipeline, fences: Sequence[Fence]) -> None:
        self._pipeline = pipeline
        self._fences = fences
        self.claims: dict[bytes, Position] = {}  # position by pair key
        self._alerts: dict[int, Alert] = {}  # the last alert by document number, since the last `write`
        #: By document number: time of the last alert that names the document, and its incarnation there. Only for
        #: documents to which some alert gives another incarnation than the first.
        self._incarnations: dict[int, tuple[int, str]] = {}

    def add(self, alert: Alert) -> None:
        """Add an alert; a later alert of a document replaces the earlier one."""
        name, document = alert.profile, alert.document
        # No record has the position `PUBLISHED`, so no record owns the pairs, and none publishes them again.
        self.claims.update((published_pair_key(match), PUBLISHED) for match in alert.matches)
        self._alerts[document_number(name, document.id)] = alert
        versions: tuple[AlertDocument | Match, ...] = (document, *alert.matches)
        for version in versions:
            number = document_number(name, version.id)
            # The first incarnation, an empty text, is stored only where it may replace another of an earlier alert.
            if version.incarnation or number in self._incarnations:
                dated = (alert.detected_at_ms, version.incarnation)
                self._incarnations[number] = max(self._incarnations.get(number, dated), dated)  # the later alert

    def write(self) -> None:
        """Write claims and clusters of the alerts since the last call, and forget these alerts."""
        if not self.claims:
            return
        index = self._pipeline.index
        index.claim_pairs(list(self.claims.items()), self._fences)
        clusters = []
        for number, entry in index.get_entries(list(self._alerts)).items():
            alert = self._alerts[number]
            # A new version leaves the cluster, an append does not: it changes position and digest of the entry, and
            # leaves `version_digest`, the digest before the first append.
            digest = entry.version_digest.hex()
            is_same_text = alert.document.position == entry.position or alert.document.digest == digest
            # No deletion marker has the position or the digest of an alert. A document that was deleted and inserted
            # again has left its cluster.
            if is_same_text and _incarnation_text(entry) in {"", alert.document.incarnation}:
                clusters.append((number, entry.position, document_number(alert.profile, alert.cluster_id)))
        index.set_clusters(clusters, self._fences)
        self.claims.clear()
        self._alerts.clear()

    def restore_incarnations(self, tick: Callable[[], None]) -> None:
        """Give incarnations to documents whose deletion was not replayed, because Kafka no longer has its record."""
        incarnations = {number: bytes.fromhex(text) for number, (_, text) in self._incarnations.items() if text}
        index, numbers = self._pipeline.index, list(incarnations)
        for start in range(0, len(numbers), _MOST_ENTRIES):
            tick()
            entries = index.get_entries(numbers[start : start + _MOST_ENTRIES])
            # A deletion that was replayed has given the document an incarnation.
            lacking = [entry for entry in entries.values() if not entry.deleted and entry.content.incarnation is None]
            restored = [_restored(entry, incarnations[entry.number]) for entry in lacking]
            index.replace_entries(list(chain.from_iterable(restored)), self._fences)


def _incarnation_text(entry: IndexEntry) -> str:
    return (entry.content.incarnation or b"").hex()


def _restored(entry: IndexEntry, incarnation: bytes) -> tuple[IndexEntry, IndexEntry]:
    """Return the two entries that, stored in this order, give an entry its incarnation.

    No entry replaces one with the same position and content, so a deletion marker is stored in between.
    """
    content = structs.replace(entry.content, incarnation=incarnation)
    marker = deletion_marker(entry.number, entry.position, entry.time_ms)
    return marker, structs.replace(entry, content=content)
