"""Distributes the committed records of the alerts topic or the dead-letter topic as events to subscribers.

``cli.serve`` builds one ``Feed`` for each of the two topics; ``streaming.EventStream`` subscribes and sends the events.
A stream is the open response to one subscriber.

One shared reader follows the topic while there are subscribers; a *live* subscriber gets its events from a queue. One
that resumes at an earlier position reads the missed events with its own reader, until it has reached the position of
the shared reader; then it is live. ``_make_live_if_caught_up`` compares the positions and makes it live without an
``await``, so the shared reader delivers no event in between.

Each reader is used in its own thread. All other code runs in the event loop.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple, TypeVar

import structlog

from streamdedup.errors import (
    BrokerMisconfigured,
    BrokerUnavailable,
    FatalError,
    MessageError,
    RegistryUnavailable,
    StreamdedupError,
)
from streamdedup.kafka.protocols import Record, TopicFollower
from streamdedup.position import Partition
from streamdedup.serve.events import (
    MAX_PARTITIONS,
    Offsets,
    ResumePlan,
    StreamStart,
    before_ends,
    encode_id,
    format_start,
    plan_resume,
)
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.problems import OutageLog, RequestProblem
from streamdedup.serve.stream_kinds import StreamKind
from streamdedup.serve.subscriber import EventBatch, StreamChunk, Subscriber

T = TypeVar("T")

#: Most subscribers of a feed: those of both feeds together may use half of the connections (``access.Limits``).
MAX_SUBSCRIBERS: Final = 128
#: Longest wait for records in one call of a reader, in seconds; also the longest delay of
#: ``ReaderThread.close`` once the reader is open.
_POLL_S: Final = 0.5
#: Most subscribers that read missed events at the same time, each with a Kafka consumer; further ones wait.
_RESUMING: Final = 4
#: Time limit for reading and sending the missed events of one subscriber, in seconds; the last chunk may exceed it.
_RESUME_S: Final = 60.0
#: Longest wait of a new subscriber for the shared reader to open, in seconds.
_OPEN_S: Final = 5.0
#: Delay in ``Retry-After`` while a topic cannot be read, in seconds.
_RETRY_S: Final = 5

log = structlog.get_logger("streamdedup.serve")


class ReaderThread:
    """A reader of a topic, and the one thread that uses the reader; makes events of ``kind``."""

    def __init__(self, kind: StreamKind, open_reader: Callable[[], TopicFollower]) -> None:
        self._kind = kind
        self._open_reader = open_reader
        self._reader: TopicFollower | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=kind.name)

    async def open(self, plan: Callable[[Offsets, Offsets], ResumePlan]) -> ResumePlan:
        """Open the reader at the offsets that ``plan`` makes of the first and end offset of each partition."""

        def open_and_start() -> ResumePlan:
            self._reader = reader = self._open_reader()
            if len(reader.ends) > MAX_PARTITIONS:
                raise BrokerMisconfigured(f"the topic of {self._kind.name} has more than {MAX_PARTITIONS} partitions")
            planned = plan(_as_offsets(reader.beginnings), _as_offsets(reader.ends))
            reader.start_at(dict(zip(sorted(reader.ends), planned.offsets, strict=True)))
            return planned

        return await self._run(open_and_start)

    async def read(self) -> EventBatch:
        """Return the next events, or none after ``_POLL_S``; raises ``StreamdedupError``, also for new partitions."""
        return await self._run(self._read)

    def _read(self) -> EventBatch:
        if self._reader is None:
            raise BrokerUnavailable("the reader is not open")
        batch = self._reader.poll(_POLL_S)
        # Every event id names an offset for each partition, so a reader keeps the partitions with which it began.
        if self._reader.has_new_partitions():
            raise BrokerUnavailable("the topic has new partitions; subscribers resume with all of them")
        events, unreadable_count = [], len(batch.unreadable)
        for record in by_time(batch.records):
            try:
                events.append(self._kind.event_of(record))
            except MessageError:
                unreadable_count += 1
        return EventBatch(tuple(events), _as_offsets(self._reader.positions()), unreadable_count)

    def close(self) -> None:
        """Close the reader in its thread, after the call in progress; return at once."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    async def _run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)


def by_time(records: Sequence[Record]) -> list[Record]:
    """Return the records of several partitions sorted by time; the order within each partition is kept."""
    latest_times: dict[int, int] = {}
    # The latest time so far in the partition: a record with an earlier time than its predecessor stays behind it.
    sort_times = []
    for record in records:
        partition = record.position.partition
        latest_times[partition] = max(record.timestamp_ms, latest_times.get(partition, record.timestamp_ms))
        sort_times.append(latest_times[partition])
    return [records[row] for row in sorted(range(len(records)), key=sort_times.__getitem__)]


def _as_offsets(offsets: Mapping[Partition, int]) -> Offsets:
    """Return the offsets of one topic in the order of its partitions."""
    return tuple(offset for _, offset in sorted(offsets.items()))


def _reason(error: Exception | None) -> str:
    """Return why a topic cannot be read, for clients; empty for a defect. ``error``: None if no answer came in time."""
    if isinstance(error, RegistryUnavailable):
        return "the schema registry does not answer"
    if isinstance(error, FatalError):
        return "Kafka refuses the service, or has no such topic; the reason is in the log of the service"
    return "Kafka does not answer" if error is None or isinstance(error, BrokerUnavailable) else ""


class _SharedReader:
    """State of the shared reader, whose events before ``offsets`` were offered to the live subscribers.

    ``opened`` is set when the reader is open, has failed (``error``), or is stopped.
    """

    def __init__(self) -> None:
        self.offsets: Offsets = ()
        self.opened = asyncio.Event()
        self.error: Exception | None = None
        self.task: asyncio.Task[None] | None = None


class Feed:
    """Distributes the committed records of a topic to subscribers, as events of ``kind``."""

    def __init__(
        self,
        kind: StreamKind,
        topic: str,
        open_reader: Callable[[], TopicFollower],
        metrics: ServeMetrics,
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
    async def subscribe(self, profile: str | None, start: StreamStart) -> AsyncIterator[Subscriber]:
        """Add a subscriber, which gets the events of a profile (None: of all profiles) from ``start`` on."""
        if len(self._subscribers) >= MAX_SUBSCRIBERS:
            raise RequestProblem("too-many-requests", "too many subscribers", retry_after_s=_RETRY_S)
        subscriber = Subscriber(self._topic, self._kind.event, profile, is_new=start.last is None)
        self._subscribers.add(subscriber)
        self._metrics.subscribers.labels(self._kind.name).set(len(self._subscribers))
        try:
            shared = await self._opened_shared_reader()
            if start.last is None:
                subscriber.offsets = before_ends(shared.offsets, start.recent_count)
            elif start.last[0] == self._topic:  # `last` has topic and offsets
                subscriber.offsets = start.last[1]
            else:
                # The id is of another topic, as after a change of the settings: the stream begins at the end.
                subscriber.offsets = shared.offsets
                subscriber.report_gap("unknown", encode_id(*start.last))
            subscriber.is_live = subscriber.offsets == shared.offsets
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)
            self._metrics.subscribers.labels(self._kind.name).set(len(self._subscribers))
            if not self._subscribers:
                self._stop_shared_reader()

    async def chunks(self, subscriber: Subscriber) -> AsyncGenerator[StreamChunk, None]:
        """Yield the chunks to send until the stream of the subscriber ends.

        The generator may still be waiting for events when the stream ends, and does not notice the end. So
        ``streaming`` also waits for ``Subscriber.ended``.
        """
        # A gap of `subscribe`, if any. The subscriber is live then, so `_missed` does not send the gap again.
        yield subscriber.gap or StreamChunk(format_start(subscriber.event_id), counts={})
        if not subscriber.is_live:
            async for chunk in self._missed(subscriber):
                yield chunk
        while subscriber.end_reason is None:
            for chunk in subscriber.advance_over(await subscriber.next_batch()):
                yield chunk

    def count(self, chunk: StreamChunk) -> None:
        """Count the events of a chunk that was sent, in the metrics."""
        for name, events_count in chunk.counts.items():
            self._metrics.events.labels(name).inc(events_count)

    # The shared reader

    async def _opened_shared_reader(self) -> _SharedReader:
        """Return the shared reader when it is open; start it if there is none."""
        shared = self._shared_reader
        if shared is None and not self._is_ending:
            self._shared_reader = shared = _SharedReader()
            shared.task = asyncio.create_task(self._follow(shared))
        if shared is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(shared.opened.wait(), _OPEN_S)
        if shared is None or self._is_ending:  # before the call, or meanwhile
            raise RequestProblem(self._unavailable, "the service stops", retry_after_s=_RETRY_S)
        if shared.error is not None or not shared.opened.is_set():
            raise RequestProblem(self._unavailable, _reason(shared.error), retry_after_s=_RETRY_S)
        return shared

    def _stop_shared_reader(self) -> None:
        shared, self._shared_reader = self._shared_reader, None
        if shared is not None and shared.task is not None:
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
        except Exception as error:  # noqa: BLE001  subscribers end, and the next one starts another reader
            self._fail(shared, error)
        finally:
            thread.close()

    def _fail(self, shared: _SharedReader, error: Exception) -> None:
        """End all streams, because the topic cannot be read any more; the next subscriber starts another reader.

        ``shared`` is the present shared reader: the tasks of earlier ones were cancelled, which is no ``Exception``.
        """
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
                        return
                    for chunk in subscriber.advance_over(await thread.read()):
                        yield chunk
                        # Also after each chunk: one read may have hundreds, and a client may take a minute for each.
                        if now_s() > deadline:
                            subscriber.end("timeout")
                            return
            except StreamdedupError as error:
                log.info("resume_failed", topic=self._topic, error=type(error).__name__, reason=str(error))
                subscriber.end(self._unavailable)
            finally:
                thread.close()

    def _make_live_if_caught_up(self, subscriber: Subscriber) -> bool:
        """Make a subscriber live if it has reached the position of the shared reader; return whether it has."""
        shared = self._shared_reader
        if shared is None:
            subscriber.end(self._unavailable)
            return False
        if len(subscriber.offsets) != len(shared.offsets):
            # The subscriber's reader is newer, and has partitions that the shared reader does not read.
            self._fail(shared, BrokerUnavailable("the topic has new partitions"))
            if shared.task is not None:
                shared.task.cancel()
            return False
        offsets = zip(subscriber.offsets, shared.offsets, strict=True)
        # A subscriber may also be ahead. Then it is live, and drops events that it has (`Subscriber.advance_over`).
        subscriber.is_live = all(next_offset >= shared_offset for next_offset, shared_offset in offsets)
        return subscriber.is_live


class Feeds(NamedTuple):
    """The feeds of both topics, for ``app``."""

    alerts: Feed
    dead_letters: Feed

    def end(self) -> None:
        for feed in self:
            feed.end()


def _refuse_lower_offsets(offsets: Offsets, before: Offsets) -> None:
    """Raise ``BrokerUnavailable`` if the topic was created again: its streams end, and their clients resume anew."""
    if any(offset < offset_before for offset, offset_before in zip(offsets, before, strict=True)):
        raise BrokerUnavailable("the topic was created again")
