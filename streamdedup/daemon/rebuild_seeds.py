"""What a rebuild restores from the published alerts: claims, clusters and incarnations.

Called by ``rebuild_run``, which adds each alert of the profile (``alerts_in``), writes whenever ``Seeds.is_full``, and
restores the incarnations at the end. A change of the fields in ``wire.alerts`` also touches ``Seeds.add``.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain

from msgspec import structs

from streamdedup.daemon.batch import Pipeline
from streamdedup.detection.entry_chunks import read_chunks
from streamdedup.detection.model import document_number, incarnation_after, pair_key, pair_side
from streamdedup.errors import DecodeError, RegistryMisconfigured
from streamdedup.index.documents import EMPTY_CONTENT, IndexEntry, deletion_marker
from streamdedup.index.values import PUBLISHED, Fence
from streamdedup.kafka.protocols import Batch
from streamdedup.position import Position
from streamdedup.wire import Alert, AlertDocument, AlertReader, ErrorCode, Match, decode_alert

#: Codes of alerts in Avro that may be valid: another registry may have their schema.
_NO_SCHEMA = frozenset({ErrorCode.UNKNOWN_SCHEMA, ErrorCode.FOREIGN_FRAMING})
#: Number of alerts or claims at which ``rebuild_run`` writes; those of one poll may exceed it.
_FULL = 5_000
#: Offsets behind a committed one that may be those of a batch in progress: twice those of the largest batch, because
#: markers of transactions take offsets too.
OFFSETS_IN_PROGRESS = 20_000
#: In place of the hashes of entries that are held together; the texts of the documents of 5,000 alerts may be long.
_NO_HASHES = EMPTY_CONTENT.sketch


def alerts_in(batch: Batch, reader: AlertReader, profile: str) -> Iterator[Alert]:
    """Yield the alerts of a profile; records that are no alerts are another program's.

    Raises ``RegistryMisconfigured`` for an alert in Avro whose schema the registry lacks.
    """
    for record in batch.records:
        try:
            alert = decode_alert(reader.as_json(record.value or b""))
        except DecodeError as error:
            if error.code in _NO_SCHEMA:
                cure = "restore the schema or the setting; without this alert its pairs would be published again"
                raise RegistryMisconfigured(f"alert {record.position}: {error}; {cure}") from error
            continue
        if alert.profile == profile:
            yield alert


class Seeds:
    """Collects published alerts, and writes ``claims``, clusters and incarnations to the index."""

    def __init__(self, pipeline: Pipeline, fences: Sequence[Fence], lifetime_ms: int | None) -> None:
        self._pipeline = pipeline
        self._fences = fences
        self._lifetime_ms = math.inf if lifetime_ms is None else lifetime_ms
        self.claims: dict[bytes, Position] = {}  # position by pair key
        self._alerts: list[Alert] = []  # since the last `write`
        #: By document number: time of the last alert that tells the document's incarnation, and the incarnation. Only
        #: for documents to which some alert gives another incarnation than the first.
        self._incarnations: dict[int, tuple[int, str]] = {}

    @property
    def is_full(self) -> bool:
        return max(len(self.claims), len(self._alerts)) >= _FULL

    def add(self, alert: Alert) -> None:
        self._alerts.append(alert)
        # No record has the position `PUBLISHED`, so no record owns the pairs, and none publishes them again.
        self.claims.update((bytes.fromhex(match.pair), PUBLISHED) for match in alert.matches)
        versions: tuple[AlertDocument | Match, ...] = (alert.document, *alert.matches)
        for version in versions:
            number = document_number(alert.profile, version.id)
            known_ms, known = self._incarnations.get(number, (0, ""))
            # The first incarnation, an empty text, is kept only where it replaces another. In a match it does so only
            # after a lifetime, for which a match may be saved before its alert is published.
            is_present = version is alert.document or alert.detected_at_ms > known_ms + self._lifetime_ms
            names_incarnation = version.incarnation or (known and is_present)
            if names_incarnation and alert.detected_at_ms >= known_ms:
                self._incarnations[number] = alert.detected_at_ms, version.incarnation

    def write(self) -> None:
        """Write claims and clusters of the alerts since the last call; the last alert of a version has its cluster."""
        if not self.claims:
            return
        index, name = self._pipeline.index, self._pipeline.name
        index.claim_pairs(list(self.claims.items()), self._fences)
        # Of each alert the document, and of its matches the most similar one.
        versions = chain.from_iterable((alert.document, *alert.matches[:1]) for alert in self._alerts)
        entries = {
            number: structs.replace(entry, content=structs.replace(entry.content, sketch=_NO_HASHES, tail=()))
            for chunk in read_chunks(index, (document_number(name, version.id) for version in versions))
            for number, entry in chunk.items()
        }
        clusters: dict[int, tuple[int, Position, int]] = {}
        for alert in self._alerts:
            entry = entries.get(document_number(name, alert.document.id))
            if entry is None:
                continue
            if _is_of_version(alert, entry, entries):
                clusters[entry.number] = entry.number, entry.position, document_number(name, alert.cluster_id)
            elif entry.content.first_digest is None:
                # Of another version in between. After an append, the alert may not show the version of the document.
                clusters.pop(entry.number, None)
        index.set_clusters(list(clusters.values()), self._fences)
        self.claims.clear()
        self._alerts.clear()

    def restore_incarnations(self, tick: Callable[[], None]) -> None:
        """Give incarnations to documents whose deletion was not replayed, because Kafka no longer has its record.

        A document whose deletion is still unread gets none: it is the version before. Alerts may name its next
        incarnation already, if the batch with the deletion was indexed and another partition has matched the document.
        """
        named = {number: bytes.fromhex(text) for number, (_, text) in self._incarnations.items() if text}
        unread = self._unread_incarnations(set(named.values()), tick)
        incarnations = {number: name for number, name in named.items() if name not in unread}
        index = self._pipeline.index
        for entries in read_chunks(index, incarnations):
            tick()
            # A deletion that was replayed has given the document an incarnation.
            lacking = [entry for entry in entries.values() if not entry.deleted and entry.content.incarnation is None]
            restored = [_restored(entry, incarnations[entry.number]) for entry in lacking]
            index.replace_entries(list(chain.from_iterable(restored)), self._fences)

    def _unread_incarnations(self, names: set[bytes], tick: Callable[[], None]) -> set[bytes]:
        """Return those of the incarnations that an unread deletion begins."""
        unread: set[bytes] = set()
        for fence in self._fences if names else ():
            tick()
            deletions = (fence.position_at(fence.high_water_mark + number) for number in range(OFFSETS_IN_PROGRESS))
            unread |= names.intersection(map(incarnation_after, deletions))
        return unread


def _is_of_version(alert: Alert, entry: IndexEntry, entries: Mapping[int, IndexEntry]) -> bool:
    """Tell whether an alert is of the version that ``entry`` has, before or after an append.

    An append changes position and digest of the entry, and leaves ``version_digest``, the digest before the first
    append. An alert of an append has neither after a further one, nor in a topic that was created again. Then its pair
    key shows the version, if the match is still the same. No deletion marker has any of the three.
    """
    document = alert.document
    if document.position == entry.position or document.digest == entry.version_digest.hex():
        # A document that was deleted and inserted again has left its cluster.
        return (entry.content.incarnation or b"").hex() in {"", document.incarnation}
    if entry.content.first_digest is None:
        return False  # the alert may be of an append to an earlier version with the same text
    if alert.cluster_id == document.id:
        return False  # no append leaves a cluster: this one was processed again, and its alert names none
    return any(
        matched.content.scope == entry.content.scope  # a pair key has no scope
        and bytes.fromhex(match.pair) == pair_key(pair_side(entry), pair_side(matched))
        for match in alert.matches
        if (matched := entries.get(document_number(alert.profile, match.id)))
    )


def _restored(entry: IndexEntry, incarnation: bytes) -> tuple[IndexEntry, IndexEntry]:
    """Return the two entries that, stored in this order, give an entry its incarnation.

    No entry replaces one with the same position and content, so a deletion marker is stored in between.
    """
    content = structs.replace(entry.content, incarnation=incarnation)
    marker = deletion_marker(entry.number, entry.position, entry.time_ms)
    return marker, structs.replace(entry, content=content)
