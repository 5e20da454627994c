"""Committed records of a topic, as events for subscribers: alerts and dead letters.

One reader in one thread follows the topic while there are subscribers; its events go to the queues of all.
A subscriber that resumes has a reader of its own until it has reached the position of the shared reader.

Everything but the calls of readers runs in the event loop, so that no state is shared between threads: no event can
arrive between the moment at which a subscriber has reached the shared position and its registration.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple, TypeVar

import structlog

from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable, FatalError, MessageError, StreamdedupError
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

#: Largest number of subscribers of one stream: half of the connections (``access.Limits``) for both streams together.
MAX_SUBSCRIBERS: Final = 128
#: Longest wait for records in one call of a reader, in seconds; a reader is closed after so long at the latest.
_POLL_S: Final = 0.5
#: Subscribers that read missed events at the same time; others wait.
_RESUMING: Final = 4
#: Longest reading of missed events, in seconds.
_RESUME_S: Final = 60.0
#: Longest wait of a new subscriber for the shared reader to open, in seconds.
_OPEN_S: Final = 5.0
#: Delay in ``Retry-After`` while a topic cannot be read, in seconds.
_RETRY_S: Final = 5

log = structlog.get_logger("streamdedup.serve")


class ReaderThread:
    """A reader and the one thread that uses it.

    Args:
        kind: Form of the events.
        open_reader: Opens the reader.
    """

    def __init__(self, kind: StreamKind, open_reader: Callable[[], TopicFollower]) -> None:
        self._kind = kind
        self._open_reader = open_reader
        self._reader: TopicFollower | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=kind.name)

    async def open(self, plan: Callable[[Offsets, Offsets], ResumePlan]) -> ResumePlan:
        """Open the reader at the offsets that ``plan`` returns for the beginnings and the ends of the partitions.

        Raises:
            StreamdedupError: Kafka cannot be read.
        """

        def opened() -> ResumePlan:
            self._reader = reader = self._open_reader()
            if len(reader.ends) > MAX_PARTITIONS:
                raise BrokerMisconfigured(f"the topic of {self._kind.name} has more than {MAX_PARTITIONS} partitions")
            planned = plan(_in_order(reader.beginnings), _in_order(reader.ends))
            reader.start_at(dict(zip(sorted(reader.ends), planned.offsets, strict=True)))
            return planned

        return await self._run(opened)

    async def read(self) -> EventBatch:
        """Return the next events, after half a second without one an empty batch.

        Raises:
            StreamdedupError: Kafka cannot be read any more, or the topic has new partitions.
        """
        return await self._run(self._read)

    def _read(self) -> EventBatch:
        if self._reader is None:
            raise BrokerUnavailable("the reader is not open")
        batch = self._reader.poll(_POLL_S)
        if self._reader.has_new_partitions():
            raise BrokerUnavailable("the topic has new partitions; subscribers resume with all of them")
        events, unreadable_count = [], len(batch.unreadable)
        for record in by_time(batch.records):
            try:
                events.append(self._kind.event_of(record))
            except MessageError:
                unreadable_count += 1
        return EventBatch(tuple(events), _in_order(self._reader.positions()), unreadable_count)

    def close(self) -> None:
        """Close the reader after the call in progress; returns at once."""
        self._thread.submit(self._close)
        self._thread.shutdown(wait=False)

    def _close(self) -> None:
        if self._reader is not None:
            self._reader.close()

    async def _run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function)


def by_time(records: Sequence[Record]) -> list[Record]:
    """Return the records of several partitions by their times; the order within each partition is kept."""
    latest: dict[int, int] = {}
    times = []
    for record in records:
        partition = record.position.partition
        latest[partition] = max(record.timestamp_ms, latest.get(partition, record.timestamp_ms))
        times.append(latest[partition])
    return [records[row] for row in sorted(range(len(records)), key=times.__getitem__)]


def _in_order(offsets: Mapping[Partition, int]) -> Offsets:
    return tuple(offset for _, offset in sorted(offsets.items()))


def _reason(error: Exception | None) -> str:
    """Return why a topic cannot be read, for a client; None for a reader that is not open in time."""
    if isinstance(error, FatalError):
        return "Kafka refuses the service, or has no such topic; the reason is in the log of the service"
    return "Kafka does not answer" if error is None or isinstance(error, BrokerUnavailable) else ""


class _Tail:
    """The shared reader.

    Attributes:
        offsets: Next offset of each partition.
        opened: Set when the reader is open, or failed to open.
        error: Reason why the topic cannot be read.
        task: Reads and distributes.
    """

    def __init__(self) -> None:
        self.offsets: Offsets = ()
        self.opened = asyncio.Event()
        self.error: Exception | None = None
        self.task: asyncio.Task[None] | None = None


class Feed:
    """Distributes the committed records of a topic to subscribers.

    Args:
        kind: Form of the events.
        topic: The topic.
        open_reader: Opens a reader of the topic.
        metrics: Counts subscribers and events.
        max_subscribers: Most subscribers.
    """

    def __init__(
        self,
        kind: StreamKind,
        topic: str,
        open_reader: Callable[[], TopicFollower],
        metrics: ServeMetrics,
        max_subscribers: int = MAX_SUBSCRIBERS,
    ) -> None:
        self._kind = kind
        self._topic = topic
        self._open_reader = open_reader
        self._metrics = metrics
        self._max_subscribers = max_subscribers
        self._unavailable = f"{kind.name}-unavailable"
        self._subscribers: set[Subscriber] = set()
        self._tail: _Tail | None = None
        self._resuming = asyncio.Semaphore(_RESUMING)
        self._outages = OutageLog(kind.name.replace("-", "_"), topic=topic)
        self._is_ending = False

    def end(self) -> None:
        """End all streams and refuse further ones: the service stops."""
        self._is_ending = True
        for subscriber in self._subscribers:
            subscriber.end("stopping")
        self._stop_tail()

    @asynccontextmanager
    async def subscribe(self, profile: str | None, start: StreamStart) -> AsyncIterator[Subscriber]:
        """Add a subscriber; the events from ``start`` on go to it.

        Args:
            profile: Profile whose events are sent; None for all.
            start: Where the stream begins.

        Raises:
            RequestProblem: There are too many subscribers, or the topic cannot be read.
        """
        if len(self._subscribers) >= self._max_subscribers:
            raise RequestProblem("too-many-requests", "too many subscribers", retry_after_s=_RETRY_S)
        subscriber = Subscriber(self._topic, self._kind.event, profile, is_new=start.last is None)
        self._subscribers.add(subscriber)
        self._metrics.subscribers.labels(self._kind.name).set(len(self._subscribers))
        try:
            tail = await self._opened_tail()
            topic, offsets = start.last or (self._topic, before_ends(tail.offsets, start.recent_count))
            is_known = topic == self._topic
            subscriber.offsets = offsets if is_known else tail.offsets
            if not is_known:
                subscriber.report_gap("unknown", encode_id(topic, offsets))
            subscriber.is_live = subscriber.offsets == tail.offsets
            yield subscriber
        finally:
            self._subscribers.discard(subscriber)
            self._metrics.subscribers.labels(self._kind.name).set(len(self._subscribers))
            if not self._subscribers:
                self._stop_tail()

    async def chunks(self, subscriber: Subscriber) -> AsyncGenerator[StreamChunk, None]:
        """Yield events to send, endlessly; ends where the stream of the subscriber ends."""
        yield subscriber.gap or StreamChunk(format_start(subscriber.event_id), {})
        if not subscriber.is_live:
            async for chunk in self._missed(subscriber):
                yield chunk
        while subscriber.end_reason is None:
            for chunk in subscriber.chunks(await subscriber.next_batch()):
                yield chunk

    def count(self, chunk: StreamChunk) -> None:
        """Count the events of a chunk that was sent."""
        for name, number in chunk.counts.items():
            self._metrics.events.labels(name).inc(number)

    # The shared reader

    async def _opened_tail(self) -> _Tail:
        """Return the shared reader, started where there is none.

        Raises:
            RequestProblem: The topic cannot be read.
        """
        tail = self._tail
        if tail is None and not self._is_ending:
            self._tail = tail = _Tail()
            tail.task = asyncio.create_task(self._follow(tail))
        if tail is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(tail.opened.wait(), _OPEN_S)
        if tail is None or self._is_ending:
            raise RequestProblem(self._unavailable, "the service stops", retry_after_s=_RETRY_S)
        if tail.error is not None or not tail.opened.is_set():
            raise RequestProblem(self._unavailable, _reason(tail.error), retry_after_s=_RETRY_S)
        return tail

    def _stop_tail(self) -> None:
        tail, self._tail = self._tail, None
        if tail is not None and tail.task is not None:
            tail.opened.set()
            tail.task.cancel()

    async def _follow(self, tail: _Tail) -> None:
        thread = ReaderThread(self._kind, self._open_reader)
        try:
            tail.offsets = (await thread.open(lambda _, ends: ResumePlan(ends, None))).offsets
            tail.opened.set()
            self._outages.succeeded()
            while True:
                batch = await thread.read()
                tail.offsets = batch.offsets
                self._metrics.unreadable_records.labels(self._kind.name).inc(batch.unreadable_count)
                for subscriber in self._subscribers:
                    if subscriber.is_live:
                        subscriber.offer(batch)
        except Exception as error:  # noqa: BLE001  subscribers end, and the next one starts another reader
            self._fail(tail, error)
        finally:
            thread.close()

    def _fail(self, tail: _Tail, error: Exception) -> None:
        """End all streams, because the topic cannot be read any more."""
        self._outages.failed(error)
        if self._tail is tail:
            self._tail = None
        tail.error = error
        tail.opened.set()
        for subscriber in self._subscribers:
            subscriber.end(self._unavailable)

    # Missed events

    async def _missed(self, subscriber: Subscriber) -> AsyncGenerator[StreamChunk, None]:
        """Yield the events between the position of a subscriber and that of the shared reader; then make it live."""
        offsets = subscriber.offsets
        async with self._resuming:
            thread = ReaderThread(self._kind, self._open_reader)
            try:
                plan = await thread.open(lambda beginnings, ends: plan_resume(offsets, beginnings, ends))
                subscriber.resume(plan)
                if subscriber.gap is not None:
                    yield subscriber.gap
                deadline = asyncio.get_running_loop().time() + _RESUME_S
                while subscriber.end_reason is None and not self._has_caught_up(subscriber):
                    if asyncio.get_running_loop().time() > deadline:
                        subscriber.end("timeout")
                        return
                    for chunk in subscriber.chunks(await thread.read()):
                        yield chunk
            except StreamdedupError as error:
                log.info("resume_failed", topic=self._topic, error=type(error).__name__, reason=str(error))
                subscriber.end(self._unavailable)
            finally:
                thread.close()

    def _has_caught_up(self, subscriber: Subscriber) -> bool:
        """Make a subscriber live if it has reached the position of the shared reader; return whether it has."""
        tail = self._tail
        if tail is None:
            subscriber.end(self._unavailable)
            return False
        if len(subscriber.offsets) != len(tail.offsets):
            self._fail(tail, BrokerUnavailable("the topic has new partitions"))
            if tail.task is not None:
                tail.task.cancel()
            return False
        subscriber.is_live = all(map(int.__ge__, subscriber.offsets, tail.offsets))
        return subscriber.is_live


class Feeds(NamedTuple):
    """The streams of a service."""

    alerts: Feed
    dead_letters: Feed

    def end(self) -> None:
        """End all streams and refuse further ones: the service stops."""
        for feed in self:
            feed.end()
