"""The uvicorn server: limits for its connections, and an end of open streams when it stops."""

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

from streamdedup.serve.access import Limits
from streamdedup.serve.exchange import App, AsgiScope, Receive, Send, problem_response, wait_for_disconnect
from streamdedup.serve.problems import RequestProblem

#: Limit of a request's head, and of its trailers, in bytes; checked after each read of up to 256 KiB.
MAX_HEAD_BYTES: Final = 65_536
_CONNECTION: Final = "connection"  # key of the connection in the state that the server gives to each request


class LimitedProtocol(H11Protocol):
    """One connection, with limits that uvicorn 0.54 lacks: for the time of a head, and the number of connections.

    Only methods of ``asyncio.Protocol`` are overridden. A request finds its connection in the state of its scope.
    """

    def __init__(
        self, *, limits: Limits, open_connections: set["LimitedProtocol"], app_state: dict[str, Any], **arguments: Any
    ) -> None:
        super().__init__(app_state={**app_state, _CONNECTION: self}, **arguments)
        self._limits = limits
        self._open_connections = open_connections
        self._requests_count = 0  # requests that `answer` is answering
        self._read_timer: asyncio.TimerHandle | None = None
        self._answers_when_slow = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._open_connections.add(self)
        if len(self._open_connections) > self._limits.max_connections:
            self._refuse(RequestProblem("too-many-requests", "too many connections are open", retry_after_s=1))
        else:
            self._start_read_timer(answers_when_slow=False)

    def connection_lost(self, exc: Exception | None) -> None:
        self._open_connections.discard(self)
        self._stop_read_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except h11.LocalProtocolError:  # uvicorn tries to refuse a body after the answer to its request
            self.transport.abort()
        if not self._requests_count:  # also after a whole head: `answer` begins later, and stops the timer
            self._limit_time_without_request()

    async def answer(self, app: App, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Let the application answer a request of this connection; the application limits the time."""
        self._stop_read_timer()
        self._requests_count += 1
        try:
            if not self.transport.is_closing():
                await app(scope, receive, send)
            else:  # uvicorn 0.54 found the body that came with the head malformed, and is closing
                await wait_for_disconnect(receive)
        except TimeoutError:  # the client does not take its answer; `transport.close` would wait until it does
            self.transport.abort()
            await wait_for_disconnect(receive)  # uvicorn would report an answer without an end before
        finally:
            self._requests_count -= 1

    def _limit_time_without_request(self) -> None:
        """Limit the time until the next head, of a head, or of the rest of a body whose request was answered."""
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            # The rest of a body has ended. uvicorn 0.54 stops its keep-alive timer at each read, and starts it only
            # after an answer; without a timer the connection would stay open.
            self._stop_read_timer()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
        else:
            # DONE: the request was answered, and a slow rest of its body gets no second answer.
            self._start_read_timer(answers_when_slow=self.conn.our_state is not h11.DONE)

    def _start_read_timer(self, *, answers_when_slow: bool) -> None:
        """Start the timer if it does not run; without ``answers_when_slow`` the connection is closed at its end."""
        self._answers_when_slow = answers_when_slow
        if self._read_timer is None:
            self._read_timer = self.loop.call_later(self._limits.timeout_s, self._on_slow_read)

    def _stop_read_timer(self) -> None:
        if self._read_timer is not None:
            self._read_timer.cancel()
            self._read_timer = None

    def _on_slow_read(self) -> None:
        if self._answers_when_slow:
            self._refuse(RequestProblem("slow-request", f"the head took longer than {self._limits.timeout_s:g} s"))
        else:
            self.transport.close()  # without a request there is nothing to answer

    def _refuse(self, problem: RequestProblem) -> None:
        self.transport.write(_message(problem))
        self.transport.close()


def _message(problem: RequestProblem) -> bytes:
    """Return a problem as the bytes of a whole HTTP response, for a connection whose request never reaches the gate."""
    status, headers, body = problem_response(problem)
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}".encode()]
    lines += [name + b": " + value for name, value in headers]
    return b"\r\n".join([*lines, b"", body])


class StreamServer(uvicorn.Server):
    """A server that ends all streams by ``on_stop`` when it is asked to stop.

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
        uvloop.run(self.serve(sockets))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._on_stop()  # first, because uvicorn 0.54 waits for open responses, and a stream would keep it waiting
        await super().shutdown(sockets)


def create_server(
    app: App, on_stop: Callable[[], None], on_signal: Callable[[], None], limits: Limits, options: dict[str, Any]
) -> StreamServer:
    async def answer(scope: AsgiScope, receive: Receive, send: Send) -> None:
        await scope["state"][_CONNECTION].answer(app, scope, receive, send)

    protocol: Any = functools.partial(LimitedProtocol, limits=limits, open_connections=set())
    config = uvicorn.Config(
        answer, http=protocol, h11_max_incomplete_event_size=MAX_HEAD_BYTES, ws="none", lifespan="off", **options
    )
    return StreamServer(config, on_stop, on_signal)
