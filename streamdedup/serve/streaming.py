"""The HTTP response that sends the events of one subscriber; the routes ``alerts`` and ``dead_letters`` return it."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

from litestar.response.base import ASGIResponse

from streamdedup.serve.events import EVENT_STREAM, StreamStart, format_event, format_keep_alive
from streamdedup.serve.feed import Feed
from streamdedup.serve.subscriber import StreamChunk, Subscriber

#: Time without an event after which a comment is sent, in seconds; proxies close silent connections after 30 s or more.
KEEP_ALIVE_S: Final = 15.0
#: Time limit for the client to take the bytes of one chunk, in seconds; below ``cli.serve._STALLED_MS``.
_SEND_S: Final = 60.0

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]


class EventStream(ASGIResponse):
    """Sends the events of a profile (None: of all) until the client hangs up or the subscriber's stream ends."""

    __slots__ = ("_feed", "_profile", "_start")

    def __init__(self, feed: Feed, profile: str | None, start: StreamStart) -> None:
        super().__init__(media_type=EVENT_STREAM)
        self._feed = feed
        self._profile = profile
        self._start = start

    async def __call__(self, _scope: Any, receive: Receive, send: Send) -> None:
        """Subscribe and send; when a ``RequestProblem`` is raised, nothing was sent."""
        async with self._feed.subscribe(self._profile, self._start) as subscriber:
            # x-accel-buffering: nginx would collect the events of a stream before it sends them on.
            headers = [(b"content-type", EVENT_STREAM.encode()), (b"x-accel-buffering", b"no")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            chunks = self._feed.chunks(subscriber)
            disconnected = asyncio.create_task(_wait_for_disconnect(receive))
            ended = asyncio.create_task(subscriber.ended.wait())
            try:
                await self._send_chunks(subscriber, chunks, disconnected, ended, send)
            except TimeoutError:
                return  # without an end of the body, so that the server closes the connection
            finally:
                disconnected.cancel()
                ended.cancel()
                await asyncio.gather(disconnected, ended, return_exceptions=True)

    async def _send_chunks(
        self,
        subscriber: Subscriber,
        chunks: AsyncGenerator[StreamChunk, None],
        disconnected: asyncio.Task[None],
        ended: asyncio.Task[Any],
        send: Send,
    ) -> None:
        """Send chunks until ``disconnected`` (the client hung up) or ``ended`` (the stream has an ``end_reason``)."""
        next_chunk: asyncio.Task[StreamChunk | None] | None = None
        try:
            while not disconnected.done():
                # A chunk that is ready is sent before the `end` event, whose id is behind the events of the chunk.
                if subscriber.end_reason is not None and (next_chunk is None or not next_chunk.done()):
                    await self._send_end(subscriber, send)
                    return
                if next_chunk is None:
                    next_chunk = asyncio.create_task(_next(chunks))
                tasks = {next_chunk, disconnected, ended}
                await asyncio.wait(tasks, timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
                if next_chunk.done():
                    chunk, next_chunk = next_chunk.result(), None
                    if chunk is not None:  # None at the end of the stream
                        await self._send_body(chunk, send)
                elif subscriber.end_reason is None and not disconnected.done():  # `wait` has timed out
                    await self._send_body(StreamChunk(format_keep_alive(subscriber.event_id), counts={}), send)
        finally:
            if next_chunk is not None:
                next_chunk.cancel()
                await asyncio.gather(next_chunk, return_exceptions=True)
            await chunks.aclose()

    async def _send_end(self, subscriber: Subscriber, send: Send) -> None:
        data = f'{{"reason":"{subscriber.end_reason}"}}'.encode()
        await self._send_body(StreamChunk(format_event("end", data, subscriber.event_id), counts={"end": 1}), send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_body(self, chunk: StreamChunk, send: Send) -> None:
        """Send a chunk; ``TimeoutError`` if the client does not take the chunk within ``_SEND_S``."""
        async with asyncio.timeout(_SEND_S):
            await send({"type": "http.response.body", "body": chunk.body, "more_body": True})
        self._feed.count(chunk)


async def _next(chunks: AsyncGenerator[StreamChunk, None]) -> StreamChunk | None:
    """Return the next chunk, or None at the end; a task needs a coroutine, and ``anext`` returns only an awaitable."""
    return await anext(chunks, None)


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
