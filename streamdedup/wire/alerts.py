"""Alerts: a document and its matches, encoded to one or more JSON messages and decoded from them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Generic, Literal, TypeVar

import msgspec
from msgspec import Meta

from streamdedup.errors import DecodeError
from streamdedup.position import Position
from streamdedup.wire.documents import ErrorCode

Method = Literal["exact", "estimated"]
#: Which document of a pair is contained in the other one; both where their sizes are equal.
Contained = Literal["document", "match", "both"]
#: Why a pair is alerted: its similarity, or its containment where the similarity is below the threshold.
Reason = Literal["similarity", "containment"]

#: Version of the alert format; it is raised by a change that subscribers of the version before would misread.
ALERT_VERSION: Final = 1
#: Most matches in one alert message; a further message holds the rest.
DEFAULT_MAX_MATCHES: Final = 100
#: Bytes of one alert message, key and framing included; well below Kafka's default limit of 1,048,576.
DEFAULT_MAX_ALERT_BYTES: Final = 900_000
#: Smallest limit on an alert message: ids, source and publication time fit even with every byte escaped.
MIN_ALERT_BYTES: Final = 65_536

# Bytes of a record in a batch beside key and value: lengths, time, offset and the header of the batch.
_RECORD_OVERHEAD_BYTES = 96
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MIN_TIME_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_MAX_TIME_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND


@dataclass(frozen=True, slots=True)
class Match:
    """A near-duplicate of a document.

    Attributes:
        id: Document id.
        digest: Content digest of the compared version, as hexadecimal text.
        position: Position of the record of that version.
        similarity: Similarity, 0 to 1.
        method: Whether the similarity was computed from the shingles or estimated from signatures.
        standard_error: Standard error of an estimate; 0 when exact.
        shared_bands: Number of band keys that the two documents have in common.
        pair: Pair key of the two versions as 32 hexadecimal digits, the same for both documents; empty in alerts from
            versions without pair keys.
        containment: Share of the smaller document's shingles that the other document has, 0 to 1; None in alerts of
            versions without it.
        containment_error: Standard error of an estimated containment; 0 when exact.
        contained: Which document is the smaller one; None without a containment.
        reason: Why the pair is a match.
    """

    id: str
    digest: str
    position: Position
    similarity: float
    method: Method
    standard_error: float
    shared_bands: int
    pair: str = ""
    containment: float | None = None
    containment_error: float = 0.0
    contained: Contained | None = None
    reason: Reason = "similarity"


@dataclass(frozen=True, slots=True)
class Alert:
    """A document and its matches.

    Attributes:
        profile: Name of the profile.
        document_id: Document id.
        digest: Content digest, as hexadecimal text.
        position: Position of the record of the document.
        time_ms: Record time in milliseconds since the epoch.
        published_at: Time of publication, as in ``Document``.
        source: Source, as in ``Document``.
        matches: Near-duplicates, the most similar first, then by id.
        cluster_id: Id of the first document of the cluster.
        threshold: Least similarity of a pair in the profile.
        detected_at_ms: Time of the detection, in milliseconds since the epoch.
        containment_threshold: Least containment of a pair below the threshold; None where the profile has no such rule.
        complete: Whether all candidates were compared; not where a bucket was full or there were too many candidates.
        suppressed: Number of further near-duplicates that rules of the profile suppress, by rule.
    """

    profile: str
    document_id: str
    digest: str
    position: Position
    time_ms: int
    published_at: str | None
    source: str | None
    matches: tuple[Match, ...]
    cluster_id: str
    threshold: float
    detected_at_ms: int
    containment_threshold: float | None = None
    complete: bool = True
    suppressed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AlertPart:
    """One message of an alert.

    Attributes:
        alert: The alert with the matches of this part only.
        part: Number of the part, from 1.
        parts: Number of parts.
    """

    alert: Alert
    part: int
    parts: int


class _Place(msgspec.Struct, frozen=True):
    id: str
    digest: str
    topic: str
    partition: int
    offset: int


class _WireDocument(_Place, frozen=True):
    record_time: str
    published_at: str | None
    source: str | None


class MatchBody(_Place, frozen=True, omit_defaults=True):
    """A near-duplicate, with the fields of a match in an alert."""

    similarity: float
    method: Method
    standard_error: float
    shared_bands: int
    pair: Annotated[str, Meta(description="Pair key; present where both documents have an id.")] = ""
    containment: (
        Annotated[float, Meta(description="Share of the smaller document's shingles that the other one has.")] | None
    ) = None
    containment_error: (
        Annotated[float, Meta(description="Standard error of an estimated containment; absent when exact.")] | None
    ) = None
    contained: (
        Annotated[
            Literal["document", "match", "both"],
            Meta(description="The smaller one: the document (or the text looked up), or the match; both: equal sizes."),
        ]
        | None
    ) = None
    reason: (
        Annotated[
            Literal["similarity", "containment"],
            Meta(description="Why it is a match: its similarity, or its containment where the similarity is too low."),
        ]
        | None
    ) = None


_M = TypeVar("_M", MatchBody, msgspec.Raw)


class _WireAlert(msgspec.Struct, Generic[_M], frozen=True, omit_defaults=True):
    schema_version: Literal[1]
    profile: str
    document: _WireDocument
    matches: list[_M]
    cluster_id: str
    threshold: float
    part: int
    parts: int
    detected_at: str
    containment_threshold: float | None = None
    complete: bool = True
    suppressed: dict[str, int] = {}


_alert_decoder = msgspec.json.Decoder(_WireAlert[MatchBody])


def encode_alert(
    alert: Alert, max_matches: int = DEFAULT_MAX_MATCHES, max_bytes: int = DEFAULT_MAX_ALERT_BYTES
) -> list[bytes]:
    """Return the messages of an alert, in order; no message without matches.

    Equal alerts give equal bytes. The limit on bytes may leave fewer than ``max_matches`` in a message.

    Args:
        alert: The alert; its matches are sorted here.
        max_matches: Most matches in a message, at least 1.
        max_bytes: Limit on a message, with its key (the document id) and framing; at least ``MIN_ALERT_BYTES``.

    Raises:
        ValueError: A limit is below its minimum.
    """
    if max_matches < 1 or max_bytes < MIN_ALERT_BYTES:
        raise ValueError(f"an alert needs room for one match and {MIN_ALERT_BYTES:,} bytes: {max_matches}, {max_bytes}")
    matches = sorted(alert.matches, key=_order)
    encoded = [msgspec.json.encode(match_body(match)) for match in matches]
    # The longest message without matches: no part number has more digits than the number of matches.
    rest_bytes = len(_encode_part(alert, [], len(encoded), len(encoded)))
    rest_bytes += len(alert.document_id.encode()) + _RECORD_OVERHEAD_BYTES
    groups = list(_grouped(encoded, max_matches, max_bytes - rest_bytes))
    return [_encode_part(alert, group, part, len(groups)) for part, group in enumerate(groups, 1)]


def match_body(match: Match) -> MatchBody:
    """Return a match as it is sent."""
    topic, partition, offset, _ = match.position
    return MatchBody(
        match.id,
        match.digest,
        topic,
        partition,
        offset,
        match.similarity,
        match.method,
        match.standard_error,
        match.shared_bands,
        match.pair,
        match.containment,
        match.containment_error or None,
        match.contained,
        None if match.containment is None else match.reason,
    )


def decode_alert(value: bytes) -> AlertPart:
    """Decode one message of an alert; unknown fields are ignored.

    Raises:
        DecodeError: The value is no alert message of this version.
    """
    try:
        wire = _alert_decoder.decode(value)
        document = wire.document
        time_ms, detected_at_ms = _to_ms(document.record_time), _to_ms(wire.detected_at)
    except ValueError as error:
        raise DecodeError(ErrorCode.INVALID_FIELD, f"no alert message of version {ALERT_VERSION}: {error}") from None
    alert = Alert(
        profile=wire.profile,
        document_id=document.id,
        digest=document.digest,
        position=_position(document),
        time_ms=time_ms,
        published_at=document.published_at,
        source=document.source,
        matches=tuple(map(_match, wire.matches)),
        cluster_id=wire.cluster_id,
        threshold=wire.threshold,
        detected_at_ms=detected_at_ms,
        containment_threshold=wire.containment_threshold,
        complete=wire.complete,
        suppressed=wire.suppressed,
    )
    return AlertPart(alert, wire.part, wire.parts)


def _position(place: _Place) -> Position:
    return Position(place.topic, place.partition, place.offset)


def _order(match: Match) -> tuple[object, ...]:
    """Sort key: most similar first, then by id; total, so that equal alerts give equal bytes."""
    place = (match.id, match.digest, match.position)
    containment = (match.containment or 0.0, match.containment_error, match.contained or "", match.reason)
    return (-match.similarity, *place, match.method, match.standard_error, match.shared_bands, match.pair, *containment)


def _match(m: MatchBody) -> Match:
    return Match(
        m.id,
        m.digest,
        _position(m),
        m.similarity,
        m.method,
        m.standard_error,
        m.shared_bands,
        m.pair,
        m.containment,
        m.containment_error or 0.0,
        m.contained,
        m.reason or "similarity",
    )


def _encode_part(alert: Alert, matches: list[msgspec.Raw], part: int, parts: int) -> bytes:
    times = (rfc_3339(alert.time_ms), alert.published_at, alert.source)
    topic, partition, offset, _ = alert.position
    document = _WireDocument(alert.document_id, alert.digest, topic, partition, offset, *times)
    wire = _WireAlert(
        schema_version=ALERT_VERSION,
        profile=alert.profile,
        document=document,
        matches=matches,
        cluster_id=alert.cluster_id,
        threshold=alert.threshold,
        part=part,
        parts=parts,
        detected_at=rfc_3339(alert.detected_at_ms),
        containment_threshold=alert.containment_threshold,
        complete=alert.complete,
        suppressed=dict(alert.suppressed),
    )
    return msgspec.json.encode(wire)


def _grouped(encoded: Sequence[bytes], max_count: int, max_bytes: int) -> Iterator[list[msgspec.Raw]]:
    """Cut ``encoded`` into groups within both limits; a group has at least one match."""
    group: list[msgspec.Raw] = []
    room = max_bytes
    for match in encoded:
        needed = len(match) + 1
        if group and (len(group) == max_count or needed > room):
            yield group
            group, room = [], max_bytes
        group.append(msgspec.Raw(match))
        room -= needed
    if group:
        yield group


def rfc_3339(time_ms: int) -> str:
    """Format a time as RFC 3339 in UTC with milliseconds, clamped to the years 1 to 9999."""
    time = _EPOCH + min(max(time_ms, _MIN_TIME_MS), _MAX_TIME_MS) * _MILLISECOND
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _to_ms(text: str) -> int:
    """Parse a time; the reverse of ``rfc_3339``.

    Raises:
        ValueError: The text is no time, or has no time zone.
    """
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without a time zone")
    return (time - _EPOCH) // _MILLISECOND
