"""A client of a stream without a socket, and a topic in memory."""

import asyncio
import json
import threading
from contextlib import suppress
from typing import Any, NamedTuple, Self

from msgspec.structs import replace

from streamdedup.errors import BrokerUnavailable
from streamdedup.kafka.protocols import Batch, Record
from streamdedup.position import Partition, Position
from streamdedup.wire import encode_alert
from tests import alerts
from tests.served import a_scope

TOPIC = "duplicates"
DEADLINE_S = 60.0


def an_alert(document_id: str, profile: str = "articles") -> bytes:
    match = alerts.a_match("other", Position("articles", 0, 0), 1.0)
    document = alerts.a_document(document_id, Position("articles", 0, 1))
    (value,) = encode_alert(alerts.an_alert(document, match, profile=profile, cluster_id="other"))
    return value


class MemoryTopic:
    """A topic of a stream; ``threads``: names of the threads that polled.

    ``partitions`` has the values or records of each partition; None for an offset without a committed record.
    """

    def __init__(self, partitions: int = 2, name: str = TOPIC) -> None:
        self.name = name
        self.partitions: list[list[bytes | Record | None]] = [[] for _ in range(partitions)]
        self.beginnings = [0] * partitions
        self.opened_count = 0
        self.open_count = 0
        self.threads: set[str] = set()
        self.is_away = False
        self.changed = threading.Condition()

    def add(self, partition: int, *values: bytes | Record | None) -> None:
        with self.changed:
            self.partitions[partition] += values
            self.changed.notify_all()

    def fail(self) -> None:
        with self.changed:
            self.is_away = True
            self.changed.notify_all()

    def wait_closed(self) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: self.open_count == 0, DEADLINE_S)

    def open(self) -> "MemoryFollower":
        if self.is_away:
            raise BrokerUnavailable("10.1.2.3 does not answer")
        return MemoryFollower(self)


class MemoryFollower:
    """A reader of a topic in memory."""

    def __init__(self, topic: MemoryTopic) -> None:
        self._topic = topic
        with topic.changed:
            topic.opened_count += 1
            topic.open_count += 1
        self.beginnings = {Partition(topic.name, number): first for number, first in enumerate(topic.beginnings)}
        self.ends = {Partition(topic.name, number): len(values) for number, values in enumerate(topic.partitions)}
        self._offsets = dict(self.beginnings)

    def start_at(self, starts) -> None:
        self._offsets = self.beginnings | dict(starts)

    def poll(self, timeout_s: float) -> Batch:
        topic = self._topic
        topic.threads.add(threading.current_thread().name)
        with topic.changed:
            topic.changed.wait_for(self._has_more, timeout_s)
            if topic.is_away:
                raise BrokerUnavailable("10.1.2.3 does not answer")
            records = []
            for partition, offset in self._offsets.items():
                values = topic.partitions[partition.partition]
                first = 0 if offset > len(values) else offset  # 0: the topic was created again
                records += [
                    self._record(Position(*partition, at), values[at])
                    for at in range(first, len(values))
                    if values[at] is not None
                ]
                self._offsets[partition] = len(values)
        return Batch(tuple(records))

    @staticmethod
    def _record(position: Position, value: bytes | Record) -> Record:
        if isinstance(value, Record):
            return replace(value, position=position)
        return Record(position, 0, None, value)

    def _has_more(self) -> bool:
        ends = (len(self._topic.partitions[each.partition]) for each in self._offsets)
        more = any(offset != end for offset, end in zip(self._offsets.values(), ends, strict=True))
        return more or self._topic.is_away or self.has_new_partitions()

    def positions(self):
        return dict(self._offsets)

    def has_new_partitions(self) -> bool:
        return len(self._topic.partitions) > len(self.ends)

    def close(self) -> None:
        with self._topic.changed:
            self._topic.open_count -= 1
            self._topic.changed.notify_all()


class Event(NamedTuple):
    """An event as the client reads it; a comment or the beginning of the stream has no name."""

    name: str | None
    data: Any
    id: str


class EventClient:
    """One open stream; ``body`` has the bytes that no event was taken from.

    While ``takes`` is cleared, the client takes no more bytes.
    """

    def __init__(self, app, query: str = "", last_id: str | None = None, path: str = "/v1/alerts") -> None:
        headers = [] if last_id is None else [(b"last-event-id", last_id.encode())]
        self._scope = a_scope("GET", path, query.encode(), headers)
        self._app = app
        self._gone = asyncio.Event()
        self._sent: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.takes = asyncio.Event()
        self.takes.set()
        self.status = 0
        self.body = b""
        self.last_id = last_id
        self.task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self.task = asyncio.create_task(self._app(self._scope, self._receive, self._send))
        self.status = (await self._next())["status"]
        return self

    async def __aexit__(self, *_error) -> None:
        self.hang_up()
        await asyncio.wait_for(self.task, DEADLINE_S)

    def hang_up(self) -> None:
        self._gone.set()
        self.takes.set()

    async def _receive(self):
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message) -> None:
        await self.takes.wait()
        self._sent.put_nowait(message)

    async def _next(self):
        return await asyncio.wait_for(self._sent.get(), DEADLINE_S)

    async def problem(self) -> dict[str, Any]:
        """Return the body of a response without a stream."""
        return json.loads((await self._next())["body"])

    async def frame(self) -> Event:
        """Return what comes next, also a comment; raise EOFError at the end of the stream."""
        while b"\n\n" not in self.body:
            message = await self._next()
            if not message.get("more_body"):
                raise EOFError
            self.body += message["body"]
        frame, _, self.body = self.body.partition(b"\n\n")
        lines = frame.decode().split("\n")
        fields = dict(line.split(": ", 1) for line in lines if not line.startswith(":"))
        self.last_id = fields["id"]
        data = fields.get("data")
        return Event(fields.get("event"), data and json.loads(data), fields["id"])

    async def event(self) -> Event:
        while (found := await self.frame()).name is None:
            pass
        return found

    async def documents(self, count: int) -> list[str]:
        events = [await self.event() for _ in range(count)]
        assert {event.name for event in events} <= {"alert"}, events
        return [event.data["document"]["id"] for event in events]

    async def is_cut(self) -> bool:
        with suppress(EOFError):
            await self.frame()
            return False
        return True
