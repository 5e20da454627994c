"""One request and its response as ASGI messages: the body that arrives, and the answer that is sent."""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from http import HTTPStatus
from typing import Any, Final

import msgspec

from streamdedup.serve.problems import PROBLEM_JSON, RequestProblem

AsgiScope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

#: Longest part of an answer, in bytes. uvicorn 0.54 waits before each part until the client has taken most of the
#: earlier ones. A long answer in one part would wait in the buffer of the connection, where no limit counts it.
_PART_BYTES: Final = 65_536
#: Headers of every response that does not set them itself.
_SECURITY_HEADERS: Final = {
    b"cache-control": b"no-store",
    b"content-security-policy": b"default-src 'none'; frame-ancestors 'none'",
    b"cross-origin-resource-policy": b"same-origin",
    b"referrer-policy": b"no-referrer",
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}


class RequestBody:
    """The body of one request, as the application receives it."""

    def __init__(self, receive: Receive, count_bytes: Callable[[int], None], *, is_chunked: bool) -> None:
        self._receive = receive
        self._count_bytes = count_bytes
        self.is_chunked = is_chunked
        self.size_bytes = 0
        self.is_complete = False
        self.is_awaited = False  # the application waits for a part of the body, so at the deadline the client is slow
        self.is_abandoned = False  # the client has disconnected before the end of the body

    async def receive(self) -> AsgiMessage:
        self.is_awaited = not self.is_complete  # after the last part, the application waits for a disconnection
        message = await self._receive()
        self.is_awaited = False  # not after a wait that the deadline cancels: `Gate` reports a slow client
        if message["type"] == "http.request":
            self.is_complete = not message.get("more_body", False)
            part_bytes = len(message.get("body", b""))
            self.size_bytes += part_bytes
            self._count_bytes(part_bytes)
        elif not self.is_complete:
            self.is_abandoned = True
        return message


class ResponseWriter:
    """The response to one request. An answer above ``_PART_BYTES`` is long: its body waits for ``send_rest``."""

    def __init__(self, send: Send, reserve_bytes: Callable[[int], bool], request_body: RequestBody) -> None:
        self._send = send
        self._reserve_bytes = reserve_bytes
        self._request_body = request_body
        self._is_refused = False
        self._rest: AsgiMessage | None = None
        self.status = 0  # before the response begins
        self.reserved_bytes = 0  # of a long answer, else 0
        #: `Gate` sets it for streams alone; the beginning of a stream (status 200) removes it.
        self.deadline: asyncio.Timeout | None = None
        self.stream_began_at: float | None = None

    @property
    def has_begun(self) -> bool:
        return self.status != 0

    async def send(self, message: AsgiMessage) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self.reserved_bytes and not message.get("more_body", False):  # the whole body of a long answer
            self._rest = message
        elif not self._is_refused:
            await self._send_in_parts(message)

    async def send_rest(self) -> None:
        if self._rest is not None:
            await self._send_in_parts(self._rest)

    async def _send_in_parts(self, message: AsgiMessage) -> None:
        body = message.get("body", b"")
        last_begin = max(len(body) - 1, 0) // _PART_BYTES * _PART_BYTES
        for begin in range(0, last_begin, _PART_BYTES):
            await self._send({**message, "body": body[begin : begin + _PART_BYTES], "more_body": True})
        await self._send({**message, "body": body[last_begin:]})

    async def _begin(self, message: AsgiMessage) -> None:
        headers = list(message.get("headers", ()))
        length = int(dict(headers).get(b"content-length", 0))
        if length > _PART_BYTES:
            if not self._reserve_bytes(length):
                detail = "the answers that clients have not yet taken are too long together"
                await self.send_problem(RequestProblem("too-many-requests", detail, retry_after_s=1))
                self._is_refused = True  # after the problem was sent: only the body of the application is dropped
                return
            self.reserved_bytes = length
        self.status = message["status"]
        if self.deadline is not None and self.status == HTTPStatus.OK:
            self.deadline.reschedule(None)
            self.stream_began_at = time.monotonic()
        names = {bytes(name).lower() for name, _ in headers}
        headers += [(name, value) for name, value in _SECURITY_HEADERS.items() if name not in names]
        body = self._request_body
        # h11 would still parse the rest of a body in chunks, which takes a second for a megabyte of small chunks.
        if body.is_chunked and not body.is_complete and b"connection" not in names:
            headers.append((b"connection", b"close"))
        await self._send({**message, "headers": headers})

    async def send_problem(self, problem: RequestProblem) -> None:
        status, headers, body = problem_response(problem)
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def problem_response(problem: RequestProblem) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return status, headers and body of a problem; the response closes the connection."""
    body = msgspec.json.encode(problem.body)
    headers = [(name.encode(), value.encode()) for name, value in problem.headers.items()]
    headers += [(b"content-type", PROBLEM_JSON.encode()), (b"content-length", str(len(body)).encode())]
    # The server would take the unread part of a request body for the next request.
    headers.append((b"connection", b"close"))
    headers += _SECURITY_HEADERS.items()  # `server` sends this without a `ResponseWriter`, which would add them
    return problem.body.status, headers, body


async def wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
