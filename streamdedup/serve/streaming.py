"""The HTTP response that sends the events of one subscriber."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final

from litestar.response.base import ASGIResponse

from streamdedup.serve.events import EVENT_STREAM, format_event, format_keep_alive
from streamdedup.serve.exchange import Receive, Send, wait_for_disconnect
from streamdedup.serve.feed import Feed
from streamdedup.serve.subscriber import StreamChunk, Subscriber

#: Time without an event after which a comment is sent, in seconds; proxies close silent connections after 30 s or more.
KEEP_ALIVE_S: Final = 15.0
#: Time limit for the client to take the bytes of one chunk, in seconds; below ``cli.serve._STALLED_MS``.
_SEND_S: Final = 60.0


class EventStream(ASGIResponse):
    """Sends the events of a subscriber, which ``subscription`` makes, until the client hangs up or the stream ends."""

    __slots__ = ("_feed", "_subscription")

    def __init__(self, feed: Feed, subscription: AbstractAsyncContextManager[Subscriber]) -> None:
        super().__init__(media_type=EVENT_STREAM)
        self._feed = feed
        self._subscription = subscription

    async def __call__(self, _scope: Any, receive: Any, send: Any) -> None:
        async with self._subscription as subscriber:
            # x-accel-buffering: nginx would collect the events of a stream before it sends them on.
            headers = [(b"content-type", EVENT_STREAM.encode()), (b"x-accel-buffering", b"no")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            with suppress(TimeoutError):  # without an end of the body the server closes the connection
                await self._send_until_end(subscriber, receive, send)

    async def _send_until_end(self, subscriber: Subscriber, receive: Receive, send: Send) -> None:
        chunks = self._feed.chunks(subscriber)
        disconnected = asyncio.create_task(wait_for_disconnect(receive))
        ended = asyncio.create_task(subscriber.ended.wait())
        next_chunk: asyncio.Task[StreamChunk | None] | None = None
        try:
            while not disconnected.done():
                is_chunk_ready = next_chunk is not None and next_chunk.done()
                # A chunk that is ready is sent before the `end` event, whose id already counts the chunk's events.
                if subscriber.end_reason is not None and not is_chunk_ready:
                    await self._send_end(subscriber, send)
                    return
                if next_chunk is None:
                    next_chunk = asyncio.create_task(_next(chunks))
                awaited = {next_chunk, disconnected, ended}
                done, _ = await asyncio.wait(awaited, timeout=KEEP_ALIVE_S, return_when=asyncio.FIRST_COMPLETED)
                if next_chunk.done():
                    chunk, next_chunk = next_chunk.result(), None
                    if chunk is not None:  # None at the end of the stream
                        await self._send_chunk(chunk, send)
                elif not done:  # the time has passed without an event
                    await self._send_chunk(StreamChunk(format_keep_alive(subscriber.event_id), counts={}), send)
        finally:
            tasks = [task for task in (next_chunk, disconnected, ended) if task is not None]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await chunks.aclose()

    async def _send_end(self, subscriber: Subscriber, send: Send) -> None:
        data = f'{{"reason":"{subscriber.end_reason}"}}'.encode()
        await self._send_chunk(StreamChunk(format_event("end", data, subscriber.event_id), counts={"end": 1}), send)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_chunk(self, chunk: StreamChunk, send: Send) -> None:
        async with asyncio.timeout(_SEND_S):
            await send({"type": "http.response.body", "body": chunk.body, "more_body": True})
        self._feed.count(chunk)


async def _next(chunks: AsyncGenerator[StreamChunk, None]) -> StreamChunk | None:
    """Return the next chunk, or None at the end; a task needs a coroutine, and ``anext`` returns only an awaitable."""
    return await anext(chunks, None)
