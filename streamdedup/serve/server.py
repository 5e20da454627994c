"""The uvicorn server: limits for its connections, and an end of open streams when it stops.

``cli.serve`` calls ``create_server`` with the application of ``access.Gate``, and runs the server. uvicorn makes one
``LimitedProtocol`` for each connection, and calls its methods for the events of connection, parser and response.
"""

import asyncio
import functools
import socket
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import uvicorn
import uvloop
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from streamdedup.serve.access import PROBES, App, Limits, Receive, Scope, Send, problem_response
from streamdedup.serve.problems import RequestProblem

#: Longest head of a request, in bytes, checked after each read from the socket, which returns at most 256 KiB.
MAX_HEAD_BYTES: Final = 65_536
#: Most requests of one connection that wait for the answer to an earlier request.
MAX_PIPELINED: Final = 16
#: Connections beyond the limit, for probes. A flood displaces a probe only if it opens as many connections after the
#: probe has connected and before the probe has sent its request.
PROBE_CONNECTIONS: Final = 16
#: Time in which a client must take some of the bytes that wait for it, in seconds; above the time after which a stream
#: gives up by itself (``streaming._SEND_S``).
STALLED_S: Final = 75.0


class LimitedProtocol(HttpToolsProtocol):
    """One connection, with limits that uvicorn 0.54 lacks.

    The limits are for the number of connections, for time and size of a request head, for the number of waiting
    requests, and for the time of a client that takes no bytes. ``access`` limits bodies. Without a time limit a client
    that sends one byte a minute keeps its connection forever; without a size limit httptools collects a header of any
    length.

    Probes have ``PROBE_CONNECTIONS`` beyond the limit, so that idle clients cannot make a supervisor end the process.
    Until the request has arrived on such a connection, a newer one may displace it.

    ``beyond_limit`` has the connections of the server beyond the limit as keys, the oldest first. All connections share
    it; ``connections`` of uvicorn has all connections.
    """

    def __init__(self, *, limits: Limits, beyond_limit: dict["LimitedProtocol", None], **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits = limits
        self._beyond_limit = beyond_limit
        #: Bytes received since the timer of the head was started; further ones count only while it runs.
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._stall_timer: asyncio.TimerHandle | None = None

    # Connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Accept the connection; where too many are beyond the limit, refuse the oldest that has sent no request."""
        super().connection_made(transport)
        self._begin_head()
        self._assign_place()
        if len(self._beyond_limit) > PROBE_CONNECTIONS:
            # None if all of them are answering probes or closing.
            oldest = next(filter(LimitedProtocol._awaits_request, self._beyond_limit), None)
            if oldest is not None:
                oldest.refuse(_too_many_connections())

    def _awaits_request(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None and not self.transport.is_closing()

    def _assign_place(self) -> bool:
        """Take a place within the limit if one is free; return whether the connection is beyond the limit.

        Called when the connection opens and at each request, because a place may have become free meanwhile.
        """
        self._beyond_limit.pop(self, None)
        # The connection itself is in `connections`, and no longer in `_beyond_limit`, so it counts as within the limit.
        is_beyond = len(self.connections) - len(self._beyond_limit) > self._limits.max_connections
        if is_beyond:
            self._beyond_limit[self] = None
        return is_beyond

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._beyond_limit.pop(self, None)
        self._end_head()
        self._end_stall()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes of the client."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        if self._head_timer is None and cycle is not None and cycle.response_complete:
            # Bytes after an answer that begin no request: an empty line, or the rest of a body that was not read.
            # uvicorn waits for the request without limit.
            self._begin_head()
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD_BYTES:
                self.refuse(RequestProblem("head-too-large", f"the limit is {MAX_HEAD_BYTES:,} bytes"))

    # Head

    def on_message_begin(self) -> None:
        """Begin a request."""
        super().on_message_begin()
        self._begin_head()

    def on_headers_complete(self) -> None:
        """Begin to answer.

        Raises:
            ValueError: Too many requests wait. httptools reports it as an error of the request, and uvicorn calls
                ``send_400_response``, which closes the connection.
        """
        self._end_head()
        is_beyond = self._assign_place()
        if is_beyond:  # before the call of uvicorn, which makes `cycle` with `app`
            self.app = _probes_alone(self.config.loaded_app)
        super().on_headers_complete()
        if is_beyond:
            self.cycle.keep_alive = False  # the connection is for one probe
        if len(self.pipeline) > MAX_PIPELINED:
            raise ValueError(f"more than {MAX_PIPELINED} requests wait for the answer to another")

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002  uvicorn's text
        """Refuse bytes that are no request; called by uvicorn for each error of its parser."""
        self.refuse(RequestProblem("invalid-request", "the request is not HTTP"))

    def _begin_head(self) -> None:
        if self._head_timer is None:
            self._head_bytes = 0
            self._head_timer = self.loop.call_later(self._limits.timeout_s, self._on_slow_head)

    def _end_head(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_slow_head(self) -> None:
        if self._head_bytes:
            self.refuse(RequestProblem("slow-request", f"the head took longer than {self._limits.timeout_s:g} s"))
        else:
            self.transport.close()  # without a request there is nothing to answer

    def refuse(self, problem: RequestProblem) -> None:
        """Close the connection; send a problem first, unless other answers are being sent or waited for."""
        self._end_head()
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        is_sending = cycle is not None and cycle.response_started and not cycle.response_complete
        if not is_sending and not self.pipeline:
            self.transport.write(_message(problem))
        self.transport.close()
        self._begin_stall()

    # Stalls: a closed connection stays open until the client has taken all bytes.

    def pause_writing(self) -> None:
        """Wait for the client to take bytes."""
        super().pause_writing()
        self._begin_stall()

    def resume_writing(self) -> None:
        """Go on: the client takes bytes."""
        super().resume_writing()
        self._end_stall()

    def on_response_complete(self) -> None:
        """Go on with the next request."""
        super().on_response_complete()
        if self.transport.is_closing():
            self._begin_stall()

    def timeout_keep_alive_handler(self) -> None:
        """Close a connection without requests; abort it if the client has not even taken the last answer."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        super().timeout_keep_alive_handler()

    def _begin_stall(self) -> None:
        if self._stall_timer is None:
            self._stall_timer = self.loop.call_later(STALLED_S, self.transport.abort)

    def _end_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None


def _too_many_connections() -> RequestProblem:
    return RequestProblem("too-many-requests", "too many connections are open", retry_after_s=1)


def _probes_alone(app: App) -> App:
    """Return an application that answers probes, and refuses all other requests."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] in PROBES:
            await app(scope, receive, send)
        else:
            status, headers, body = problem_response(_too_many_connections())
            await send({"type": "http.response.start", "status": status, "headers": headers})
            await send({"type": "http.response.body", "body": body})

    return answer


def _message(problem: RequestProblem) -> bytes:
    """Return a problem as the bytes of a whole HTTP response, for a connection whose request never reaches the gate."""
    status, headers, body = problem_response(problem)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join([*lines, b"", body])


class StreamServer(uvicorn.Server):
    """A server that ends all streams by ``on_stop`` when it is asked to stop.

    uvicorn 0.54 waits for open responses before it tells the application to stop; a stream would keep it waiting.
    """

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stop = on_stop

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on a loop of uvloop until a signal asks to stop."""
        uvloop.run(self.serve(sockets))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then stop as any server."""
        self._on_stop()
        await super().shutdown(sockets)


def create_server(app: App, on_stop: Callable[[], None], limits: Limits, options: dict[str, Any]) -> StreamServer:
    """Return a server for an application; ``options`` are further arguments of ``uvicorn.Config``."""
    # One dict for all connections.
    protocol: Any = functools.partial(LimitedProtocol, limits=limits, beyond_limit={})
    return StreamServer(uvicorn.Config(app, http=protocol, **options), on_stop)
