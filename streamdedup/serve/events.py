"""Form of a stream: server-sent events, and the ids from which a stream resumes.

An id names the topic and the next offset of each of its partitions, in the order of the partitions:
``duplicates:17,4,0``. So every id states what was sent before, in all partitions.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from streamdedup.serve.problems import RequestProblem

#: Largest number of partitions of a topic: an id of so many has at most 10,250 characters.
MAX_PARTITIONS: Final = 500
#: Largest number of offsets between the id of a client and the present end that are read again.
MAX_MISSED: Final = 10_000
#: Largest number of offsets before the end with which a new stream may begin.
MAX_RECENT: Final = 1_000
#: Content type of the stream.
MEDIA_TYPE: Final = "text/event-stream"
#: Pause before a client connects again, in milliseconds.
RETRY_MS: Final = 2_000

_OFFSET = r"(?:0|[1-9][0-9]{0,18})"
_ID = re.compile(rf"([A-Za-z0-9._-]{{1,249}}):({_OFFSET}(?:,{_OFFSET}){{0,{MAX_PARTITIONS - 1}}})")
_LINE_END = re.compile(rb"[\r\n]")

Offsets = tuple[int, ...]


class FeedEvent(NamedTuple):
    """A record of the topic.

    Attributes:
        partition: Partition of the record.
        offset: Offset of the record.
        profile: Name of the profile, for the filter; None for an event without one.
        data: JSON in one line.
    """

    partition: int
    offset: int
    profile: str | None
    data: bytes


class StreamStart(NamedTuple):
    """Where a client wants its stream to begin.

    Attributes:
        last: Topic and offsets of the last event that the client has; None for a new stream.
        recent_count: Offsets before the ends with which a new stream begins, of all partitions together.
    """

    last: tuple[str, Offsets] | None = None
    recent_count: int = 0


class ResumePlan(NamedTuple):
    """Where a stream resumes.

    Attributes:
        offsets: Offset of each partition.
        gap: Reason why events before these offsets are missing; None where none are.
    """

    offsets: Offsets
    gap: str | None


def encode_id(topic: str, offsets: Sequence[int]) -> str:
    """Return the id of a position in the stream."""
    return f"{topic}:{','.join(map(str, offsets))}"


def decode_id(text: str) -> tuple[str, Offsets]:
    """Return topic and offsets of an id.

    Raises:
        RequestProblem: The text is no id.
    """
    match = _ID.fullmatch(text)
    if match is None:
        raise RequestProblem("invalid-request", "the id is none of this stream", field="Last-Event-ID")
    return match[1], tuple(map(int, match[2].split(",")))


def plan_resume(wanted: Offsets, beginnings: Offsets, ends: Offsets) -> ResumePlan:
    """Return where a stream resumes.

    Args:
        wanted: Offsets of the client; partitions that were added later are absent.
        beginnings: First offset of each partition that Kafka still has.
        ends: Offset behind the last committed record of each partition.

    Returns:
        The offsets of the client, with a gap ``expired`` where Kafka has deleted some records since. The ends, with a
        gap, where more than ``MAX_MISSED`` offsets were missed (``too-many``) or where the offsets are behind the ends
        (``unknown``: the topic was created again).
    """
    if len(wanted) > len(ends) or any(offset > end for offset, end in zip(wanted, ends, strict=False)):
        return ResumePlan(ends, "unknown")
    padded = wanted + beginnings[len(wanted) :]
    starts = tuple(map(max, padded, beginnings))
    if sum(ends) - sum(starts) > MAX_MISSED:
        return ResumePlan(ends, "too-many")
    return ResumePlan(starts, None if starts == padded else "expired")


def before_ends(ends: Offsets, count: int) -> Offsets:
    """Return offsets before the ends, at most about ``count`` of all partitions; each has the same share of them."""
    share = -(-count // len(ends)) if ends else 0
    return tuple(max(0, end - share) for end in ends)


def one_line(value: bytes) -> bytes:
    """Return JSON without line ends, which would divide an event."""
    return value if _LINE_END.search(value) is None else msgspec.json.format(value, indent=-1)


def format_event(name: str, data: bytes, event_id: str) -> bytes:
    """Return an event; ``data`` has one line."""
    return b"id: %b\nevent: %b\ndata: %b\n\n" % (event_id.encode(), name.encode(), data)


def format_start(event_id: str) -> bytes:
    """Return the beginning of a stream: the pause before a new connection, and the id of the first position."""
    return b"id: %b\nretry: %d\n\n" % (event_id.encode(), RETRY_MS)


def format_keep_alive(event_id: str) -> bytes:
    """Return a comment with the id of the position: a client passes what its filter left out."""
    return b": keep-alive\nid: %b\n\n" % event_id.encode()
