"""A TCP proxy that can cut, hold and delay the traffic between a daemon and a server.

The proxy runs in a thread of its own. Held traffic is delivered after a release, as after a stall of the network. A cut
loses held traffic, and neither end knows which of its data arrived.
"""

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Coroutine, Iterator
from typing import Any, Self

from streamdedup.embedded.process import LOOPBACK
from tests.support.ports import free_ports

#: Largest number of bytes forwarded at once.
CHUNK_BYTES = 65_536


class Proxy:
    """Connects each client to ``target_port``.

    Attributes:
        target_port: Port of the server; may be set later.
        delay_s: Delay of each chunk of bytes, in seconds.
        cut_count: Number of connections that ``cut`` has ended.
        swallowed_request: API key of a Kafka request that is dropped, with all later bytes of the connection, as if the
            leader of a partition were unreachable while the coordinators answer.
    """

    def __init__(self, target_port: int = 0, *, speaks_kafka: bool = False) -> None:
        (self.port,) = free_ports()
        self.target_port = target_port
        self.delay_s = 0.0
        self.cut_count = 0
        self.speaks_kafka = speaks_kafka
        self.swallowed_request: int | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._open = {"up": asyncio.Event(), "down": asyncio.Event()}
        self._listener: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name=f"proxy {self.port}", daemon=True)
        self._thread.start()
        self._do(self._set(("up", "down"), passing=True))
        self._do(self._listen())

    # From any thread

    def cut(self) -> None:
        """Reset all connections; held traffic is lost."""
        self._do(self._cut())

    def refuse(self) -> None:
        """Reset all connections and stop listening, until ``accept``."""
        self._do(self._silence())

    def accept(self) -> None:
        self._do(self._listen())

    def hold(self, *directions: str) -> None:
        """Hold the traffic "up" to the server, "down" to the client, or both."""
        self._do(self._set(directions or ("up", "down"), passing=False))

    def release(self) -> None:
        self._do(self._set(("up", "down"), passing=True))

    def close(self) -> None:
        self._do(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    # In the thread of the proxy

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(120)

    async def _listen(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server((LOOPBACK, self.port))
            self._listener.setblocking(False)
            self._loop.add_reader(self._listener, self._accept, self._listener)

    def _accept(self, listener: socket.socket) -> None:
        # Not asyncio's own server: closed while a client connects, it forgets the half-open connection.
        with contextlib.suppress(BlockingIOError, ConnectionAbortedError):
            client, _ = listener.accept()
            task = asyncio.ensure_future(self._connected(client))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _silence(self) -> None:
        if self._listener is not None:
            self._loop.remove_reader(self._listener)
            self._listener.close()
            self._listener = None
        await self._cut()

    async def _stop(self) -> None:
        await self._silence()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.sleep(0)  # connections end in the next iteration of the event loop

    async def _set(self, directions: tuple[str, ...], *, passing: bool) -> None:
        for direction in directions:
            if passing:
                self._open[direction].set()
            else:
                self._open[direction].clear()

    async def _cut(self) -> None:
        for writer in list(self._writers):
            self.cut_count += 1
            writer.transport.abort()

    async def _connected(self, client: socket.socket) -> None:
        with contextlib.closing(client):
            reader, writer = await asyncio.open_connection(sock=client)
            with self._ending(writer), contextlib.suppress(OSError):
                server_reader, server_writer = await asyncio.open_connection(LOOPBACK, self.target_port)
                with self._ending(server_writer):
                    await asyncio.gather(
                        self._pump(reader, server_writer, "up"),
                        self._pump(server_reader, writer, "down"),
                        return_exceptions=True,
                    )
            # The other end of the socket first.
            await asyncio.sleep(0)

    @contextlib.contextmanager
    def _ending(self, writer: asyncio.StreamWriter) -> Iterator[None]:
        """Register a connection for ``cut``, and close it at the end."""
        self._writers.add(writer)
        try:
            yield
        finally:
            writer.transport.abort()
            self._writers.discard(writer)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: str) -> None:
        requests = _Requests()
        swallowing = False
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                if direction == "up" and self.speaks_kafka:
                    swallowing = swallowing or self.swallowed_request in requests.kinds(data)
                if swallowing:
                    continue
                if self.delay_s:
                    await asyncio.sleep(self.delay_s)
                await self._open[direction].wait()
                writer.write(data)
                await writer.drain()
        writer.transport.abort()


class _Requests:
    """Finds the requests in the bytes of a Kafka client; each begins with its length (4 bytes) and API key (2)."""

    def __init__(self) -> None:
        self._head = b""
        self._left = 0

    def kinds(self, data: bytes) -> set[int]:
        """Return the API keys of the requests that begin in the next bytes."""
        found = set()
        data = self._head + data
        self._head = b""
        while data:
            if self._left:
                skipped = min(self._left, len(data))
                self._left -= skipped
                data = data[skipped:]
            elif len(data) < 6:
                self._head, data = data, b""
            else:
                length, kind = struct.unpack(">ih", data[:6])
                found.add(kind)
                self._left = 4 + length
        return found
