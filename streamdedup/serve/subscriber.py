"""One open stream of events: its filter, its queue and its position."""

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from streamdedup.serve.events import FeedEvent, Offsets, ResumePlan, format_event, format_id

#: Bytes of events that may wait for a subscriber. Queues share their events: each is a tail of the same sequence, so
#: all together take as much memory as the longest.
MAX_QUEUED_BYTES: Final = 16_777_216
MAX_QUEUED: Final = 10_000  # events that may wait for a subscriber
_CHUNK_BYTES: Final = 65_536  # bytes of events after which a chunk is sent


class EventBatch(NamedTuple):
    """Events that were read together, in order within each partition, and each partition's next offset."""

    events: tuple[FeedEvent, ...]
    offsets: Offsets
    unreadable_count: int


class StreamChunk(NamedTuple):
    """Bytes to send, and the number of events in them by name."""

    body: bytes
    counts: Mapping[str, int]


class Subscriber:
    """One open stream; with ``is_new`` the client has received no event before, so expired events are no gap for it."""

    def __init__(self, topic: str, event: str, profile: str | None, *, is_new: bool) -> None:
        self._is_new = is_new
        self._topic = topic
        self._event = event
        self._profile = profile
        #: Position of the stream: all events before it are in a chunk, or left out by the filter (`profile`).
        self.offsets: Offsets = ()
        #: The events of the feed's shared reader go to the queue; false while missed events are read.
        self.is_live = False
        #: The event about missing events, which `feed` sends before the next events.
        self.gap: StreamChunk | None = None
        self.end_reason: str | None = None  # None while the stream is open
        self.ended = asyncio.Event()
        self._arrived = asyncio.Event()
        self._queue: deque[EventBatch] = deque()
        self._queued_count = 0
        self._queued_bytes = 0

    @property
    def event_id(self) -> str:
        return format_id(self._topic, self.offsets)

    def end(self, reason: str) -> None:
        """End the stream; queued events are dropped, and the client gets them when it resumes."""
        if self.end_reason is None:
            self.end_reason = reason
            self._queue.clear()
            self.ended.set()

    def offer(self, batch: EventBatch) -> None:
        """Queue events; end the stream if too many wait."""
        if self.end_reason is not None:
            return
        count, size = len(batch.events), _size_of(batch)
        # An empty queue takes a batch of any size, because the limit is for slow clients, not for large batches.
        if self._queue and (self._queued_count + count > MAX_QUEUED or self._queued_bytes + size > MAX_QUEUED_BYTES):
            self.end("too-slow")
            return
        self._queue.append(batch)
        self._queued_count += count
        self._queued_bytes += size
        self._arrived.set()

    async def next_batch(self) -> EventBatch:
        while not self._queue:
            self._arrived.clear()
            await self._arrived.wait()
        batch = self._queue.popleft()
        self._queued_count -= len(batch.events)
        self._queued_bytes -= _size_of(batch)
        return batch

    def advance_over(self, batch: EventBatch) -> Iterator[StreamChunk]:
        """Move the position behind a batch; yield, as chunks, the events of it that the client has not received."""
        offsets, body, count = list(self.offsets), bytearray(), 0
        for partition, offset, profile, data in batch.events:
            if offset < offsets[partition]:
                continue  # read before the subscriber was live, by its own reader, which was ahead of the shared one
            offsets[partition] = offset + 1
            if self._profile in (None, profile):
                body += format_event(self._event, data, format_id(self._topic, offsets))
                count += 1
            if len(body) >= _CHUNK_BYTES:
                self.offsets = tuple(offsets)
                yield StreamChunk(bytes(body), {self._event: count})
                body, count = bytearray(), 0
        # The batch may end with records that are no event. The subscriber may be ahead of the batch.
        self.offsets = tuple(map(max, offsets, batch.offsets))
        if count:
            yield StreamChunk(bytes(body), {self._event: count})

    def resume(self, plan: ResumePlan) -> None:
        previous_id = self.event_id
        self.offsets = plan.offsets
        if plan.gap is not None and not (self._is_new and plan.gap == "expired"):
            self.report_gap(plan.gap, previous_id)

    def report_gap(self, reason: str, previous_id: str) -> None:
        """Set ``gap``: events are missing between an id and the present position."""
        # An id has no character that JSON escapes.
        data = f'{{"reason":"{reason}","from":"{previous_id}"}}'.encode()
        self.gap = StreamChunk(format_event("gap", data, self.event_id), {"gap": 1})


def _size_of(batch: EventBatch) -> int:
    return sum(len(event.data) for event in batch.events)
