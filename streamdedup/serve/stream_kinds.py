"""The two kinds of streams: how a record of the alerts topic, and of the dead-letter topic, becomes an event."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from streamdedup.errors import DecodeError
from streamdedup.kafka.protocols import Record
from streamdedup.serve.events import FeedEvent
from streamdedup.wire import AlertReader, ErrorCode, decode_alert, one_line, rfc_3339
from streamdedup.wire.dead_letters import read_headers, whole_number


@dataclass(frozen=True, slots=True)
class StreamKind:
    """A kind of stream; ``event_of`` raises ``MessageError`` for a record that is not of this kind."""

    name: str  # in metrics, log events and problems
    event: str  # the field ``event:`` of server-sent events
    event_of: Callable[[Record], FeedEvent]


class DeadLetterBody(msgspec.Struct, frozen=True):
    """JSON of an event ``dead-letter``: a dead letter without any part of the failed record.

    ``error`` quotes no text of a document. ``time``, RFC 3339, is the time of the failure, or where the headers lack
    it, the record time of the dead letter.
    """

    topic: str
    partition: int | None
    offset: int | None
    reason: str
    error: str
    time: str
    stage: str = ""
    attempts: int | None = None


def alerts_kind(reader: AlertReader) -> StreamKind:
    """Return the kind of the alerts topic, whose events are JSON."""

    def event_of(record: Record) -> FeedEvent:
        value, position = reader.as_json(record.value or b""), record.position
        profile = decode_alert(value).profile
        return FeedEvent(position.partition, position.offset, profile, one_line(value))

    return StreamKind(name="alerts", event="alert", event_of=event_of)


def _dead_letter_event(record: Record) -> FeedEvent:
    headers, position = read_headers(record.headers), record.position
    if "error.code" not in headers or "topic" not in headers:
        raise DecodeError(ErrorCode.INVALID_FIELD, "the record has no headers of a dead letter")
    body = DeadLetterBody(
        topic=headers["topic"],
        partition=whole_number(headers.get("partition", "")),
        offset=whole_number(headers.get("offset", "")),
        reason=headers["error.code"],
        error=headers.get("error.message", ""),
        time=headers.get("time") or rfc_3339(record.timestamp_ms),
        stage=headers.get("stage", ""),
        attempts=whole_number(headers.get("attempts", "")),
    )
    return FeedEvent(position.partition, position.offset, profile=None, data=msgspec.json.encode(body))


DEAD_LETTERS: Final = StreamKind(name="dead-letters", event="dead-letter", event_of=_dead_letter_event)
