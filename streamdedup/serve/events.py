"""Wire format of the streams of alerts and dead letters: server-sent events, and the ids at which a stream resumes.

An event id names the topic and the next offset of each partition, in the order of the partitions:
``duplicates:17,4,0``. So each id states what was sent before, in all partitions.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from streamdedup.serve.problems import RequestProblem

#: Most partitions of a topic, because each event has an id with all offsets: 10,250 characters at most.
MAX_PARTITIONS: Final = 500
#: Most missed offsets, of all partitions together, that are read again for a client that resumes.
MAX_MISSED: Final = 10_000
MAX_RECENT: Final = 1_000  # most offsets before the ends with which a new stream may begin
EVENT_STREAM: Final = "text/event-stream"
RETRY_MS: Final = 2_000  # pause before a client connects again, in milliseconds

#: A topic name has at most 249 characters, an offset at most 19 digits.
_OFFSET = r"(?:0|[1-9][0-9]{0,18})"
_ID = re.compile(rf"([A-Za-z0-9._-]{{1,249}}):({_OFFSET}(?:,{_OFFSET}){{0,{MAX_PARTITIONS - 1}}})")

Offsets = tuple[int, ...]  # one offset for each partition, in the order of the partitions


class FeedEvent(NamedTuple):
    """A record of the topic as an event: JSON in one line; a dead letter has no profile."""

    partition: int
    offset: int
    profile: str | None
    data: bytes


class ResumePlan(NamedTuple):
    """The offsets at which a stream resumes; ``gap`` says why events before them are missing (``plan_resume``)."""

    offsets: Offsets
    gap: str | None


def format_id(topic: str, offsets: Sequence[int]) -> str:
    return f"{topic}:{','.join(map(str, offsets))}"


def parse_event_id(text: str) -> tuple[str, Offsets]:
    match = _ID.fullmatch(text)
    if match is None:
        raise RequestProblem("invalid-request", "the id is none of this stream", field="Last-Event-ID")
    return match[1], tuple(map(int, match[2].split(",")))


def plan_resume(client_offsets: Offsets, beginnings: Offsets, ends: Offsets) -> ResumePlan:
    """Return where a stream resumes, by its client's offsets and the first and end offsets that Kafka has."""
    # The client is ahead of the ends, because the topic was created again.
    if len(client_offsets) > len(ends) or any(offset > end for offset, end in zip(client_offsets, ends, strict=False)):
        return ResumePlan(ends, "unknown")
    # A partition that was added later is read from its beginning; one with expired records, from the first one left.
    wanted = client_offsets + beginnings[len(client_offsets) :]
    starts = tuple(map(max, wanted, beginnings))
    if sum(ends) - sum(starts) > MAX_MISSED:
        return ResumePlan(ends, "too-many")
    return ResumePlan(starts, None if starts == wanted else "expired")


def new_starts(ends: Offsets, recent_count: int) -> Offsets:
    """Return where a new stream begins: before each end by the same part of ``recent_count``, rounded up."""
    part = -(-recent_count // len(ends)) if ends else 0
    return tuple(max(0, end - part) for end in ends)


def format_event(name: str, data: bytes, event_id: str) -> bytes:
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id.encode(), name.encode(), data)


def format_start(event_id: str) -> bytes:
    """Return the beginning of a stream, with the client's pause before it reconnects."""
    return b"id: %b\nretry: %d\n\n" % (event_id.encode(), RETRY_MS)


def format_keep_alive(event_id: str) -> bytes:
    """Return a comment, and the present id: a client that resumes skips the events that the filter left out."""
    return b": keep-alive\nid: %b\n\n" % event_id.encode()
