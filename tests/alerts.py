"""Alerts of tests."""

from typing import Any

from streamdedup.position import Position
from streamdedup.wire import ALERT_VERSION, Alert, AlertDocument, Match, rfc_3339


def a_match(document_id: str, position: Position, similarity: float = 0.9, **more: Any) -> Match:
    """Return an exact match; ``more`` are other fields."""
    topic, partition, offset, _ = position
    fields = {"digest": "00", "method": "exact", "standard_error": 0.0, "shared_bands": 4, "pair": "ab" * 16, **more}
    return Match(id=document_id, topic=topic, partition=partition, offset=offset, similarity=similarity, **fields)


def a_document(
    document_id: str, position: Position, digest: str = "00", time_ms: int = 0, source: str | None = None
) -> AlertDocument:
    """Return the document of an alert."""
    topic, partition, offset, _ = position
    return AlertDocument(document_id, digest, topic, partition, offset, rfc_3339(time_ms), None, source)


def an_alert(document: AlertDocument, *matches: Match, detected_at_ms: int = 0, **more: Any) -> Alert:
    """Return an alert of the profile ``articles``; ``more`` are other fields."""
    fields = {"profile": "articles", "cluster_id": document.id, "threshold": 0.5, **more}
    return Alert(
        schema_version=ALERT_VERSION,
        document=document,
        matches=matches,
        part=1,
        parts=1,
        detected_at=rfc_3339(detected_at_ms),
        **fields,
    )
