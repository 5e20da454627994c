"""Distributes the committed records of the alerts topic or the dead-letter topic as events to subscribers.

One shared reader follows the topic while there are subscribers; a *live* subscriber gets its events from a queue. One
that resumes at an earlier position reads the missed events with its own reader, until it has reached the position of
the shared reader; then it is live. ``_make_live_if_caught_up`` compares the positions and makes it live without an
``await``, so the shared reader delivers no event in between.

Each reader is used in its own thread. All other code runs in the event loop.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

import structlog

from streamdedup.errors import BrokerUnavailable, FatalError, RegistryUnavailable, StreamdedupError
from streamdedup.kafka.reader import TopicReader
from streamdedup.serve.events import Offsets, ResumePlan, format_id, format_start, new_starts, plan_resume
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.outages import OutageLog
from streamdedup.serve.problems import RequestProblem
from streamdedup.serve.stream_kinds import StreamKind
from streamdedup.serve.subscriber import StreamChunk, Subscriber
from streamdedup.serve.topic_thread import ReaderThread

#: Most subscribers of a feed: those of both feeds together may use half of the connections (``access.Limits``).
MAX_SUBSCRIBERS: Final = 128
#: Most subscribers that read missed events at the same time, each with a Kafka consumer; further ones wait.
_RESUMING: Final = 4
#: Time limit for reading and sending the missed events of one subscriber, in seconds; the last chunk may exceed it.
_RESUME_S: Final = 60.0
_OPEN_S: Final = 5.0  # longest wait of a new subscriber for the shared reader to open, in seconds
_RETRY_S: Final = 5  # delay in ``Retry-After`` while a topic cannot be read, in seconds

log = structlog.get_logger("streamdedup.serve")


class _SharedReader:
    """The shared reader, which ``task`` runs."""

    task: asyncio.Task[None]

    def __init__(self) -> None:
        self.offsets: Offsets = ()  # its position: the live subscribers were offered all events before it
        self.opened = asyncio.Event()  # set when the reader is open, has failed (`error`), or is stopped
        self.error: Exception | None = None


class Feed:
    """Distributes the committed records of a topic to subscribers, as events of ``kind``."""

    def __init__(
        self, kind: StreamKind, topic: str, open_reader: Callable[[], TopicReader], metrics: ServeMetrics
    ) -> None:
        self._kind = kind
        self._topic = topic
        self._open_reader = open_reader
        self._metrics = metrics
        #: Name of the problem, and end reason of streams, where the topic cannot be read.
        self._unavailable = f"{kind.name}-unavailable"
        self._subscribers: set[Subscriber] = set()
        self._shared_reader: _SharedReader | None = None
        self._resuming = asyncio.Semaphore(_RESUMING)
        self._outages = OutageLog(kind.name.replace("-", "_"), topic=topic)
        self._is_ending = False

    def end(self) -> None:
        """End all streams and refuse further ones: the service stops."""
        self._is_ending = True
        for subscriber in self._subscribers:
            subscriber.end("stopping")
        self._stop_shared_reader()

    @asynccontextmanager
    async def subscribe(
        self, profile: str | None, last: tuple[str, Offsets] | None, recent_count: int
    ) -> AsyncIterator[Subscriber]:
        """Add a subscriber, which gets the events of a profile (None: of all profiles).

        ``last``: topic and offsets of the client's last event id; None for a new stream, which begins ``recent_count``
        offsets before the ends.
        """
        if len(self._subscribers) >= MAX_SUBSCRIBERS:
            raise RequestProblem("too-many-requests", "too many subscribers", retry_after_s=_RETRY_S)
        subscriber = Subscriber(self._topic, self._kind.event, profile, is_new=last is None)
        self._subscribers.add(subscriber)
        self._metrics.subscribers.labels(self._kind.name).set(len(self._subscribers))
        try:
            shared = await self._opened_shared_reader()
            if last is None:
                subscriber.offsets = new_starts(shared.offsets, recent_count)
            elif last[0] == self._topic:
                subscriber.offsets = last[1]
            else:
                # The id is of another topic, as after a change of the settings: the stream begins at the end.
                subscriber.offsets = shared.offsets
                subscriber.report_gap("unknown", format_id(*last))
            subscriber.is_live = subscriber.offsets == shared.offsets
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)
            self._metrics.subscribers.labels(self._kind.name).set(len(self._subscribers))
            if not self._subscribers:
                self._stop_shared_reader()

    async def chunks(self, subscriber: Subscriber) -> AsyncGenerator[StreamChunk, None]:
        """Yield the chunks to send; after the end it may still wait for events, so await ``Subscriber.ended`` too."""
        # With a gap of `subscribe` the subscriber is live, so `_missed` does not run and send the gap again.
        yield subscriber.gap or StreamChunk(format_start(subscriber.event_id), counts={})
        if not subscriber.is_live:
            async for chunk in self._missed(subscriber):
                yield chunk
        while subscriber.end_reason is None:
            for chunk in subscriber.advance_over(await subscriber.next_batch()):
                yield chunk

    def count(self, chunk: StreamChunk) -> None:
        for name, events_count in chunk.counts.items():
            self._metrics.events.labels(name).inc(events_count)

    # The shared reader

    async def _opened_shared_reader(self) -> _SharedReader:
        if not self._is_ending:
            if self._shared_reader is None:
                self._shared_reader = _SharedReader()
                self._shared_reader.task = asyncio.create_task(self._follow(self._shared_reader))
            shared = self._shared_reader
            with suppress(TimeoutError):
                await asyncio.wait_for(shared.opened.wait(), _OPEN_S)
        if self._is_ending:  # before the call, or meanwhile
            raise RequestProblem(self._unavailable, "the service stops", retry_after_s=_RETRY_S)
        if shared.error is not None or not shared.opened.is_set():
            raise RequestProblem(self._unavailable, _reason(shared.error), retry_after_s=_RETRY_S)
        return shared

    def _stop_shared_reader(self) -> None:
        shared, self._shared_reader = self._shared_reader, None
        if shared is not None:
            shared.opened.set()  # if the service stops, subscribers may still wait for the reader
            shared.task.cancel()

    async def _follow(self, shared: _SharedReader) -> None:
        thread = ReaderThread(self._kind, self._open_reader)
        try:
            # The reader begins at the ends. A subscriber reads earlier events with its own reader (`_missed`).
            shared.offsets = (await thread.open(lambda _, ends: ResumePlan(ends, gap=None))).offsets
            shared.opened.set()
            self._outages.succeeded()
            while True:
                batch = await thread.read()
                _refuse_lower_offsets(batch.offsets, shared.offsets)
                shared.offsets = batch.offsets
                self._metrics.unreadable_records.labels(self._kind.name).inc(batch.unreadable_count)
                for subscriber in self._subscribers:
                    if subscriber.is_live:
                        subscriber.offer(batch)
        except Exception as error:  # noqa: BLE001  a defect also ends the streams
            self._fail(shared, error)
        finally:
            thread.close()

    def _fail(self, shared: _SharedReader, error: Exception) -> None:
        """End all streams, because the topic cannot be read any more; the next subscriber starts another reader."""
        self._outages.failed(error)
        self._shared_reader = None
        shared.error = error
        shared.opened.set()
        for subscriber in self._subscribers:
            subscriber.end(self._unavailable)

    # Missed events

    async def _missed(self, subscriber: Subscriber) -> AsyncGenerator[StreamChunk, None]:
        """Yield the events from the position of a subscriber to that of the shared reader; then make it live."""
        missed_from = subscriber.offsets
        async with self._resuming:
            thread = ReaderThread(self._kind, self._open_reader)
            try:
                plan = await thread.open(lambda beginnings, ends: plan_resume(missed_from, beginnings, ends))
                subscriber.resume(plan)
                if subscriber.gap is not None:
                    yield subscriber.gap
                now_s = asyncio.get_running_loop().time
                deadline = now_s() + _RESUME_S
                while subscriber.end_reason is None and not self._make_live_if_caught_up(subscriber):
                    if now_s() > deadline:
                        subscriber.end("timeout")
                        break
                    for chunk in subscriber.advance_over(await thread.read()):
                        yield chunk
                        if now_s() > deadline:  # one read may have hundreds of chunks, each of which may take a minute
                            break
            except StreamdedupError as error:
                log.info("resume_failed", topic=self._topic, error=type(error).__name__, reason=str(error))
                subscriber.end(self._unavailable)
            finally:
                thread.close()

    def _make_live_if_caught_up(self, subscriber: Subscriber) -> bool:
        """Make a subscriber live if it has reached the position of the shared reader; return whether it has.

        End all streams if the subscriber's reader, which is newer, has partitions that the shared reader does not read.
        """
        shared = self._shared_reader
        assert shared is not None  # without it, all streams have ended
        if len(subscriber.offsets) != len(shared.offsets):
            self._fail(shared, BrokerUnavailable("the topic has new partitions"))
            shared.task.cancel()
            return False
        offsets = zip(subscriber.offsets, shared.offsets, strict=True)
        # A subscriber may also be ahead. Then it is live, and drops events that it has (`Subscriber.advance_over`).
        subscriber.is_live = all(next_offset >= shared_offset for next_offset, shared_offset in offsets)
        return subscriber.is_live


def _reason(error: Exception | None) -> str:
    """Return why a topic cannot be read, for clients; empty for a defect. ``error``: None if no answer came in time."""
    if isinstance(error, RegistryUnavailable):
        return "the schema registry does not answer"
    if isinstance(error, FatalError):
        return "Kafka refuses the service, or has no such topic; the reason is in the log of the service"
    return "Kafka does not answer" if error is None or isinstance(error, BrokerUnavailable) else ""


def _refuse_lower_offsets(offsets: Offsets, before: Offsets) -> None:
    """Raise ``BrokerUnavailable`` if the topic was created again: its streams end, and their clients resume anew."""
    if any(offset < offset_before for offset, offset_before in zip(offsets, before, strict=True)):
        raise BrokerUnavailable("the topic was created again")


class Feeds(NamedTuple):
    alerts: Feed
    dead_letters: Feed

    def end(self) -> None:
        for feed in self:
            feed.end()
