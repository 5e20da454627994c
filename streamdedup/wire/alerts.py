"""Alerts: a document and its matches, encoded as one or more messages and decoded from them.

A new field has a default, and a description in ``schemas/alert.schema.json``.
"""

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta
from msgspec.structs import replace

from streamdedup.errors import DecodeError
from streamdedup.position import Position
from streamdedup.wire.copied_headers import RECORD_OVERHEAD_BYTES
from streamdedup.wire.error_codes import ErrorCode
from streamdedup.wire.formats.json_text import MAX_DEPTH, is_too_deep

Method = Literal["exact", "estimated"]
#: The smaller document in a pair; both where their sizes are equal.
Contained = Literal["document", "match", "both"]
#: Reason for an alerted pair: its similarity, or its containment where the similarity is below the threshold.
Reason = Literal["similarity", "containment"]
#: RFC 3339, UTC; a number of milliseconds in Avro.
Time = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
#: 16 and 8 bytes in hexadecimal; empty where absent. Another program may write to the topic, so these are checked.
PairKey = Annotated[str, Meta(pattern="^([0-9a-f]{32})?$")]
Incarnation = Annotated[str, Meta(pattern="^([0-9a-f]{16})?$")]
Offset = Annotated[int, Meta(ge=0, le=2**63 - 1)]

#: Version of the alert format; raised by each change that would make subscribers misread an alert.
ALERT_VERSION: Final = 1
#: Largest number of matches in one alert message; further messages hold further matches.
DEFAULT_MAX_MATCHES: Final = 100
#: Largest number of bytes of one alert message, key and framing included; well below Kafka's default limit, 1,048,576.
DEFAULT_MAX_ALERT_BYTES: Final = 900_000
#: Smallest limit on an alert message: one match always fits, all escaped and with the longest copied headers.
MIN_ALERT_BYTES: Final = 65_536

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_MIN_TIME_MS = (datetime.min.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND
_MAX_TIME_MS = (datetime.max.replace(tzinfo=UTC) - _EPOCH) // _MILLISECOND


class DocumentVersion(msgspec.Struct, frozen=True):
    id: str
    digest: str
    topic: str
    partition: int
    offset: Offset

    @property
    def position(self) -> Position:
        """The record position; a message does not tell the incarnation of the topic."""
        return Position(self.topic, self.partition, self.offset)


class Match(DocumentVersion, frozen=True, omit_defaults=True):
    """A near-duplicate; ``serve`` also answers with matches of a text, which has no id and so no ``pair``."""

    similarity: float
    method: Method
    standard_error: float
    shared_bands: int
    pair: PairKey = ""
    containment: float | None = None
    containment_error: float | None = None
    contained: Contained | None = None
    reason: Reason | None = None
    label: str = ""
    source: str | None = None
    published_at: str | None = None
    incarnation: Incarnation = ""


class AlertDocument(DocumentVersion, frozen=True, omit_defaults=True):
    record_time: Time
    published_at: str | None
    source: str | None
    label: str = ""
    incarnation: Incarnation = ""

    @property
    def time_ms(self) -> int:
        return to_ms(self.record_time)


class Alert(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """One alert message: a document with its matches, or with a part of them; ``encode_alert`` sets part and parts."""

    schema_version: Literal[1]
    profile: str
    document: AlertDocument
    matches: tuple[Match, ...]
    cluster_id: str
    threshold: float
    part: int
    parts: int
    detected_at: Time
    containment_threshold: float | None = None
    complete: bool = True
    suppressed: dict[str, int] = {}
    cluster_label: str = ""
    cluster_size: int | None = None
    cluster_sources: int | None = None
    cluster_since: Time | None = None
    cluster_until: Time | None = None
    cluster_earliest_id: str | None = None
    cluster_earliest_source: str | None = None

    @property
    def detected_at_ms(self) -> int:
        return to_ms(self.detected_at)

    @property
    def cluster_times_ms(self) -> tuple[int, ...]:
        return tuple(to_ms(text) for text in (self.cluster_since, self.cluster_until) if text is not None)


#: Encodes as JSON: a message, whose part and parts are set, or a match.
alert_json = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Alert).decode


def encode_alert(
    alert: Alert,
    max_matches: int = DEFAULT_MAX_MATCHES,
    max_bytes: int = DEFAULT_MAX_ALERT_BYTES,
    header_bytes: int = 0,
    encode: Callable[[Alert], bytes] = alert_json,
) -> list[bytes]:
    """Return the messages for an alert, in order; none for an alert without matches.

    Matches are sorted, so that equal alerts give equal bytes. ``max_bytes`` limits a message with its key (the document
    id), its headers (``header_bytes``) and framing. ``encode`` encodes one message, in a form not longer than JSON.
    """
    if max_matches < 1 or max_bytes < MIN_ALERT_BYTES:
        raise ValueError(f"an alert needs room for one match and {MIN_ALERT_BYTES:,} bytes: {max_matches}, {max_bytes}")
    # Matches of equal similarity and id are sorted by their encoding, else equal alerts could give different bytes.
    matches = sorted(alert.matches, key=lambda match: (-match.similarity, match.id, alert_json(match)))
    # An upper bound: no part number has more digits than the number of matches.
    fixed_bytes = len(alert_json(replace(alert, matches=(), part=len(matches), parts=len(matches))))
    fixed_bytes += len(alert.document.id.encode()) + header_bytes + RECORD_OVERHEAD_BYTES
    groups = list(_grouped(matches, max_matches, max_bytes - fixed_bytes))
    return [
        encode(replace(alert, matches=tuple(group), part=part, parts=len(groups)))
        for part, group in enumerate(groups, 1)
    ]


def decode_alert(value: bytes) -> Alert:
    """Return the alert in a JSON message, without unknown fields; raise ``DecodeError`` for any other value."""
    try:
        if is_too_deep(value):
            raise ValueError(f"nested deeper than {MAX_DEPTH} levels")  # noqa: TRY301  all mistakes raise the same error
        alert = _decode(value)
        if not all(match.pair.strip() for match in alert.matches):  # the pattern allows a line end for an empty pair
            raise ValueError("a match without the field `pair`")  # noqa: TRY301
        # The properties raise ``ValueError`` for a text that is no time.
        _ = alert.document.time_ms, alert.detected_at_ms, alert.cluster_times_ms
    except ValueError as error:
        if is_framed(value):
            raise DecodeError(ErrorCode.FOREIGN_FRAMING, "Avro needs schema_registry.url and the extra") from None
        raise DecodeError(ErrorCode.INVALID_FIELD, f"no alert message of version {ALERT_VERSION}: {error}") from None
    return alert


def is_framed(value: bytes) -> bool:
    return value[:1] == b"\0" and len(value) > 5


class AlertReader:
    """Reads alerts in JSON; the subclass ``avro_alerts.AvroAlerts`` also those in Avro."""

    def as_json(self, value: bytes) -> bytes:
        """Return an alert message as JSON; the bytes of a message that is not in Avro are unchanged.

        ``AvroAlerts`` raises ``DecodeError``, and as ``RegistrySession.by_id``.
        """
        return value

    def ping(self) -> None:
        """Raise ``RegistryUnavailable`` if a schema registry is needed and does not answer."""


def _grouped(matches: Sequence[Match], max_count: int, max_bytes: int) -> Iterator[list[Match]]:
    """Cut matches into groups within both limits; a group has at least one match."""
    group: list[Match] = []
    room = max_bytes
    for match in matches:
        needed_bytes = len(alert_json(match)) + 1  # a comma
        if group and (len(group) == max_count or needed_bytes > room):
            yield group
            group, room = [], max_bytes
        group.append(match)
        room -= needed_bytes
    if group:
        yield group


def rfc_3339(time_ms: int) -> str:
    """Format a time by RFC 3339 in UTC with milliseconds, clamped to the years 1 to 9999."""
    time = _EPOCH + min(max(time_ms, _MIN_TIME_MS), _MAX_TIME_MS) * _MILLISECOND
    return time.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def to_ms(text: str) -> int:
    """Parse a time, the reverse of ``rfc_3339``; raise ``ValueError`` for any other text, and without a time zone."""
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError("a time without a time zone")
    return (time - _EPOCH) // _MILLISECOND
