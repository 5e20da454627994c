"""The uvicorn server: limits for its connections, and an end of open streams when it stops.

``cli.serve`` calls ``create_server`` with the application of ``access.Gate``, and runs the server. uvicorn makes one
``LimitedProtocol`` for each connection.
"""

import asyncio
import functools
import socket
from collections.abc import Callable
from http import HTTPStatus
from types import FrameType
from typing import Any, Final

import h11
import uvicorn
import uvloop
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamdedup.serve.access import App, AsgiScope, Limits, Receive, Send, problem_response
from streamdedup.serve.problems import RequestProblem

#: Limit of a request's head, and of its trailers, in bytes. It is checked after each read from the socket, so up to 256
#: KiB may arrive before.
MAX_HEAD_BYTES: Final = 65_536
#: Key of the connection in the state that the server gives to each request.
_CONNECTION: Final = "connection"


class LimitedProtocol(H11Protocol):
    """One connection, with limits that uvicorn 0.54 lacks: for the time of a head, and the number of connections.

    Only methods of ``asyncio.Protocol`` are overridden. A request finds its connection in the state of its scope.
    """

    def __init__(
        self, *, limits: Limits, opened: set["LimitedProtocol"], app_state: dict[str, Any], **arguments: Any
    ) -> None:
        super().__init__(app_state={**app_state, _CONNECTION: self}, **arguments)
        self._limits = limits
        #: All open connections of the server.
        self._opened = opened
        #: Requests that `answer` is answering.
        self._requests_count = 0
        self._has_head_begun = False
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        """Accept the connection, or refuse it where too many are open."""
        super().connection_made(transport)
        self._opened.add(self)
        if len(self._opened) > self._limits.max_connections:
            self._refuse(RequestProblem("too-many-requests", "too many connections are open", retry_after_s=1))
        else:
            self._start_head_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._opened.discard(self)
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # uvicorn tries to refuse a body after the answer to its request
            self.transport.abort()
        if not self._requests_count:  # also after a whole head: its task begins later, and stops the timer in `answer`
            self._limit_time_without_request()

    async def answer(self, app: App, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Let the application answer a request of this connection; the application limits the time."""
        self._stop_head_timer()
        self._requests_count += 1
        try:
            if not self.transport.is_closing():
                await app(scope, receive, send)
            else:  # uvicorn has refused the bytes of the body that came with the head, and is closing
                await _wait_for_end(receive)
        except TimeoutError:  # the client does not take its answer; `close` would wait for it
            self.transport.abort()
            await _wait_for_end(receive)
        finally:
            self._requests_count -= 1

    def _limit_time_without_request(self) -> None:
        """Limit the time of a head, of the rest of a body after the answer to its request, or until the next head."""
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            # The rest of a body has ended. uvicorn 0.54 stops its keep-alive timer at each read, and starts it only
            # after an answer; without a timer the connection would stay open.
            self._stop_head_timer()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            self._has_head_begun = self.conn.our_state is not h11.DONE  # the rest of a body gets no second answer
            self._start_head_timer()

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self._limits.timeout_s, self._on_slow_head)

    def _stop_head_timer(self) -> None:
        self._has_head_begun = False
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_slow_head(self) -> None:
        if self._has_head_begun:
            self._refuse(RequestProblem("slow-request", f"the head took longer than {self._limits.timeout_s:g} s"))
        else:
            self.transport.close()  # without a request there is nothing to answer

    def _refuse(self, problem: RequestProblem) -> None:
        self.transport.write(_message(problem))
        self.transport.close()


async def _wait_for_end(receive: Receive) -> None:
    """Wait for the end of a closing connection; uvicorn would report an answer without an end before."""
    while (await receive())["type"] != "http.disconnect":
        pass


def _message(problem: RequestProblem) -> bytes:
    """Return a problem as the bytes of a whole HTTP response, for a connection whose request never reaches the gate."""
    status, headers, body = problem_response(problem)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join([*lines, b"", body])


class StreamServer(uvicorn.Server):
    """A server that ends all streams by ``on_stop`` when it is asked to stop.

    uvicorn 0.54 waits for open responses before it tells the application to stop; a stream would keep it waiting.
    ``on_signal`` is called at each signal, inside the signal handler.
    """

    def __init__(self, config: uvicorn.Config, on_stop: Callable[[], None], on_signal: Callable[[], None]) -> None:
        super().__init__(config)
        self._on_stop = on_stop
        self._on_signal = on_signal

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._on_signal()
        super().handle_exit(sig, frame)

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve on a loop of uvloop until a signal asks to stop."""
        uvloop.run(self.serve(sockets))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()
        await super().shutdown(sockets)


def create_server(
    app: App,
    on_stop: Callable[[], None],
    limits: Limits,
    options: dict[str, Any],
    on_signal: Callable[[], None] = lambda: None,
) -> StreamServer:
    """Return a server for an application; ``options`` are further arguments of ``uvicorn.Config``."""

    async def answer(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await scope["state"][_CONNECTION].answer(app, scope, receive, send)

    protocol: Any = functools.partial(LimitedProtocol, limits=limits, opened=set())  # one set for all connections
    config = uvicorn.Config(
        answer, http=protocol, h11_max_incomplete_event_size=MAX_HEAD_BYTES, ws="none", lifespan="off", **options
    )
    return StreamServer(config, on_stop, on_signal)
