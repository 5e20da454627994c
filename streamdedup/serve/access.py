"""The ASGI layer around the application: who may ask, how much, and for how long.

``cli.serve`` wraps the application of ``app`` in ``Gate``. The server (``server``, which limits connections, request
heads and trailers) calls the gate for each request, and the gate goes through these steps in this order:
    1. Path: routes match the percent-encoded path, so that an id may contain a slash (``%2F``).
    2. Body: a ``GET`` has none, and a body has one length.
    3. Host: without tokens, only requests that name an allowed host are answered. Otherwise a web page could reach the
       service under the DNS name of the page (DNS rebinding), from a browser that can reach the service.
    4. Token: compared in constant time with every token of the file. ``/livez`` and ``/readyz`` need none. The files of
       the page (``page``) need none: they hold no data, and the page asks for the token.
    5. Requests in progress: beyond the limit 429. Probes do not count, nor do streams, which ``feed`` limits.
    6. Bodies: 429 where the bodies of all requests in progress have too many bytes together.
    7. Deadline for the application, which also reads the body: 408 if the body has not arrived by then, 503 if no
       answer has begun. An answer that has begun is cut off, unless it is a stream.
    8. Long answers (above ``_PART_BYTES``): 429 where those that clients have not yet taken have too many bytes
       together. They are sent after the request has stopped counting (5, 6, metrics), and cut off after ``sending_s``.

The gate adds security headers to each response, and counts route, status and time. A new probe is added to ``PROBES``,
a new stream to ``_STREAMS``.
"""

import asyncio
import hmac
import re
import stat
import time
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Collection, MutableMapping
from dataclasses import dataclass, replace
from hashlib import sha256
from http import HTTPStatus
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import msgspec
import structlog
from litestar.utils import normalize_path

from streamdedup.errors import SettingsError
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.problems import PROBLEM_JSON, RequestProblem

AsgiScope = MutableMapping[str, Any]
AsgiMessage = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[AsgiMessage]]
Send = Callable[[AsgiMessage], Awaitable[None]]
App = Callable[[Any, Any, Any], Awaitable[None]]

#: Paths of probes, which need no token and do not count as requests in progress.
PROBES: Final = frozenset({"/livez", "/readyz"})
#: Paths of answers that never end once they have begun.
_STREAMS: Final = frozenset({"/v1/alerts", "/v1/dead-letters"})
#: Files of the page: path of the HTML document, and beginning of the paths of all other files.
_PAGE_PATH, _PAGE_FILES_PREFIX = "/", "/page/"
#: Shortest token, in characters: 128 bits in Base64.
_SHORTEST_TOKEN: Final = 22
#: Scheme and host in front of a path.
_ORIGIN: Final = re.compile(rb"^https?://[^/?]*", re.IGNORECASE)
#: Hosts that a request may always name.
_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})
#: A Host header: an IPv6 address in brackets, or a name or an IPv4 address; then a port.
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::[0-9]*)?")
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

log = structlog.get_logger("streamdedup.serve")


class Tokens:
    """The bearer tokens of a file, one in each line; empty lines and lines that begin with ``#`` are left out.

    Tokens are kept as digests. Each request that needs a token reads the file again if its modification time, inode or
    size has changed.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        # The state first: the next request notices a change of the file during or after the reading.
        self._state = _file_state(path)
        self._digests = _read_digests(path)

    def allow(self, authorization: bytes) -> bool:
        """Tell whether an Authorization header has one of the tokens, in the same time for every token."""
        self._read_again_if_changed()
        scheme, _, token = authorization.partition(b" ")
        digest = sha256(token.strip()).digest()
        # Digests have one length, and the list has a result for each of them (`any` alone would stop at the first
        # match), so the time does not depend on the token.
        matches = [hmac.compare_digest(digest, accepted) for accepted in self._digests]
        return scheme.lower() == b"bearer" and any(matches)

    def _read_again_if_changed(self) -> None:
        """Take the tokens of a file that has changed; keep the present ones if the file cannot be used."""
        if (state := _file_state(self._path)) == self._state:
            return
        self._state = state  # also of a file that cannot be used: one change is logged once
        try:
            self._digests = _read_digests(self._path)
        except SettingsError as error:
            log.error("tokens_refused", reason=str(error))  # noqa: TRY400  a traceback tells nothing more
        else:
            log.info("tokens_read", tokens=len(self._digests))


def _file_state(path: Path) -> tuple[int, int, int] | None:
    """Return modification time, inode and size of a file; None without a file."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def _read_digests(path: Path) -> list[bytes]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe or a device may never end
            raise SettingsError(f"api.tokens_file: is no regular file: {path}")
        text = path.read_bytes().removeprefix(BOM_UTF8).decode("ascii")  # some editors write a byte order mark
    except OSError as error:
        raise SettingsError(f"api.tokens_file: cannot be read ({error.strerror}): {path}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"api.tokens_file: must be ASCII: {path}") from error
    lines = enumerate(map(str.strip, text.splitlines()), start=1)
    tokens = [(line_number, line) for line_number, line in lines if line and not line.startswith("#")]
    if not tokens:
        raise SettingsError(f"api.tokens_file: holds no token: {path}")
    for line_number, token in tokens:
        if len(token) < _SHORTEST_TOKEN or len(token.split()) > 1:
            advice = f"needs a token of at least {_SHORTEST_TOKEN} characters without blanks: openssl rand -base64 32"
            raise SettingsError(f"api.tokens_file: line {line_number} {advice}")
    return [sha256(token.encode()).digest() for _, token in tokens]


class AllowedHosts:
    """Hosts that a request may name while no token is required; ``_LOCAL_HOSTS`` are always among them.

    The request of a web page that rebinds DNS has the page's DNS name in its Host header, never an IP address.
    Litestar's middleware (2.25) is not used: it compares the port too, and its errors are not those of ``problems``.

    With ``any_address`` every IP address is allowed: the Host header of a probe has the address of the pod.
    """

    def __init__(self, hosts: Collection[str] = (), *, any_address: bool = False) -> None:
        self._hosts = _LOCAL_HOSTS | {_canonical(host.strip("[]")) for host in hosts}
        self._any_address = any_address

    def allow(self, header: bytes) -> bool:
        """Tell whether a Host header names an allowed host, at any port."""
        match = _HOST.fullmatch(header.decode("latin-1"))
        if match is None:
            return False
        host = match[1] or match[2]
        return _canonical(host) in self._hosts or (self._any_address and _is_address(host))


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a process.

    The gate enforces ``max_requests``, ``max_bodies_bytes`` and the time of body and answer; ``app`` enforces
    ``max_body_bytes``; ``server`` enforces ``max_connections`` and the time of the head.

    Attributes:
        max_body_bytes: Longest body of a request: at least eight times the longest text, because JSON may escape one
            byte as six, and the body has other fields.
        max_bodies_bytes: Limit for the bytes in the bodies of all requests in progress. A process needs several times
            as much memory while it answers them.
        max_requests: Limit of requests in progress: with one text each they fill two passes (``engine.PASS_LIMITS``),
            one running and one waiting. More requests would only wait longer.
        max_connections: Most open connections; well below the usual limit of open files, 1,024.
        timeout_s: Time limit for the head of a request, and again for body and answer together, in seconds: far above
            the time of the largest batch, and below the time after which proxies give up, 30 s or more.
        max_answers_bytes: Limit for the bytes of all long answers that clients have not yet taken; a single one may be
            longer.
        sending_s: Time in which a client must take a long answer, in seconds.
    """

    max_body_bytes: int = 8_388_608
    max_bodies_bytes: int = 67_108_864
    max_requests: int = 256
    max_connections: int = 512
    timeout_s: float = 10.0
    max_answers_bytes: int = 134_217_728
    sending_s: float = 60.0

    @classmethod
    def of_texts(cls, max_text_bytes: int) -> "Limits":
        """Return the limits for texts of at most ``max_text_bytes``."""
        limits = cls()
        body_bytes = max(limits.max_body_bytes, 8 * max_text_bytes)
        return replace(limits, max_body_bytes=body_bytes, max_bodies_bytes=max(limits.max_bodies_bytes, body_bytes))


class Gate:
    """The ASGI application with tokens (None: not required), allowed hosts, limits and security headers."""

    def __init__(
        self, app: App, tokens: Tokens | None, limits: Limits, metrics: ServeMetrics, hosts: AllowedHosts | None = None
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._limits = limits
        self._metrics = metrics
        self._hosts = hosts or AllowedHosts()
        self._in_progress = 0
        self._bodies_bytes = 0
        self._answers_bytes = 0

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request; pass the messages of the lifespan on.

        Raises:
            TimeoutError: The client has not taken a long answer in time.
        """
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            response = _Response(send, self._reserve)
            try:
                await self._answer(scope, receive, response)
                scope.pop("state", None)  # Litestar 2.25 keeps the body there, which `send_rest` does not need
                async with asyncio.timeout(self._limits.sending_s):
                    await response.send_rest()
            finally:
                self._answers_bytes -= response.reserved_bytes
        # A web socket is never accepted: returning closes it.

    async def _answer(self, scope: AsgiScope, receive: Receive, response: "_Response") -> None:
        began_at = time.monotonic()
        try:
            self._route_by_encoded_path(scope)
            problem = self._refusal(scope)
            if problem is not None:
                await response.send_problem(problem)
            elif scope["path"] in PROBES | _STREAMS:
                await self._answer_in_time(scope, receive, response)
            else:
                await self._answer_counted(scope, receive, response)
        finally:
            # The route's template, not the path, which clients choose. Status "none" (0): no answer was received.
            route = str(scope.get("path_template") or "none")
            self._metrics.requests.labels(route, str(response.status or "none")).inc()
            # A stream counts until it begins, because the client decides when it ends.
            request_s = (response.stream_began_at or time.monotonic()) - began_at
            self._metrics.request_seconds.labels(route).observe(request_s)

    @staticmethod
    def _route_by_encoded_path(scope: AsgiScope) -> None:
        # Routes read `path`, which the server has decoded. A raw path is ASCII, so Latin-1 decodes it. A client that
        # takes the service for a proxy sends the whole URL (RFC 9112, section 3.2.2); its host is dropped here, and
        # `_refusal` checks the Host header.
        raw_path = _ORIGIN.sub(b"", bytes(scope.get("raw_path") or b"")).partition(b"?")[0]
        # Litestar's routes normalize too, so the path that the gate checks is that of the route that answers.
        scope["path"] = normalize_path(raw_path.decode("latin-1"))

    def _refusal(self, scope: AsgiScope) -> RequestProblem | None:
        """Return the problem that refuses the request by its head (steps 2 to 5), or None."""
        headers = {bytes(name).lower(): bytes(value) for name, value in scope["headers"]}
        length, is_chunked = headers.get(b"content-length"), b"transfer-encoding" in headers
        has_body = is_chunked or (length or b"").strip(b"0") != b""  # a length other than 0, or that is no number
        # With two lengths, a proxy may see another end of the body than this service; RFC 9112, section 6.3.
        if (is_chunked and length is not None) or (has_body and scope["method"] in {"GET", "HEAD"}):
            return RequestProblem("invalid-request", "a GET has no body, and a body has one length")
        # h11 refuses several Host headers, of which a proxy may use another one than this service.
        if self._tokens is None and not self._hosts.allow(headers.get(b"host", b"")):
            return RequestProblem("host-not-allowed", "without tokens, the Host header must be in api.allowed_hosts")
        if scope["path"] in PROBES:
            return None
        is_of_page = scope["path"] == _PAGE_PATH or scope["path"].startswith(_PAGE_FILES_PREFIX)
        if not (self._tokens is None or is_of_page or self._tokens.allow(headers.get(b"authorization", b""))):
            return RequestProblem("unauthorized")
        if scope["path"] not in _STREAMS and self._in_progress >= self._limits.max_requests:
            return RequestProblem("too-many-requests", retry_after_s=1)
        return None

    async def _answer_counted(self, scope: AsgiScope, receive: Receive, response: "_Response") -> None:
        self._in_progress += 1
        self._metrics.in_flight.set(self._in_progress)
        try:
            await self._answer_in_time(scope, receive, response)
        finally:
            self._in_progress -= 1
            self._metrics.in_flight.set(self._in_progress)

    async def _answer_in_time(self, scope: AsgiScope, receive: Receive, response: "_Response") -> None:
        body = _Body(receive, self._count_bytes)
        if any(name == b"transfer-encoding" for name, _ in scope["headers"]):
            response.chunked_request = body
        try:
            async with asyncio.timeout(self._limits.timeout_s) as deadline:
                if scope["path"] in _STREAMS:
                    response.deadline = deadline
                await self._app(scope, body.receive, response.send)
        except TimeoutError:
            # The server cuts off an answer that has begun, because its end is missing.
            if not response.has_begun:
                await response.send_problem(self._timeout_problem(body))
        except Exception as error:  # noqa: BLE001  the server would log the traceback, which could show a text
            log.error("request_failed", route=scope.get("path_template"), error=type(error).__name__)  # noqa: TRY400
            if not response.has_begun:
                await response.send_problem(RequestProblem("internal"))
        finally:
            if body.is_abandoned:
                response.status = 0  # the framework answers all the same, but no client receives the answer
            self._bodies_bytes -= body.size_bytes

    def _count_bytes(self, received_bytes: int) -> None:
        """Count received bytes; above ``max_bodies_bytes`` raise ``RequestProblem`` in the ``receive`` of ``app``."""
        self._bodies_bytes += received_bytes
        if self._bodies_bytes > self._limits.max_bodies_bytes:
            detail = f"the bodies of all requests in progress exceed {self._limits.max_bodies_bytes:,} bytes"
            raise RequestProblem("too-many-requests", detail, retry_after_s=1)

    def _reserve(self, answer_bytes: int) -> bool:
        """Count the bytes of a long answer; False if those of all answers would be too many."""
        if self._answers_bytes and self._answers_bytes + answer_bytes > self._limits.max_answers_bytes:
            return False
        self._answers_bytes += answer_bytes
        return True

    def _timeout_problem(self, body: "_Body") -> RequestProblem:
        if body.is_awaited:
            return RequestProblem("slow-request", f"the body took longer than {self._limits.timeout_s:g} s")
        return RequestProblem("timeout", retry_after_s=1)


class _Body:
    """The body of one request, as the application receives it.

    ``is_awaited``: the application waits for a part of the body, so at the deadline the client is slow.
    ``is_abandoned``: the client has disconnected before the end of the body.
    """

    def __init__(self, receive: Receive, count: Callable[[int], None]) -> None:
        self._receive = receive
        self._count = count
        self.size_bytes = 0
        self.is_complete = False
        self.is_awaited = False
        self.is_abandoned = False

    async def receive(self) -> AsgiMessage:
        self.is_awaited = not self.is_complete  # after the last part, the application waits for a disconnection
        message = await self._receive()
        self.is_awaited = False  # not reached if the deadline cancels the wait: it stays True, for `_timeout_problem`
        if message["type"] == "http.request":
            self.is_complete = not message.get("more_body", False)
            part_bytes = len(message.get("body", b""))
            self.size_bytes += part_bytes
            self._count(part_bytes)
        elif not self.is_complete:
            self.is_abandoned = True
        return message


class _Response:
    """The response to one request; ``status`` is 0 before it begins.

    ``chunked_request`` is a request body in chunks, else None. A response before the end of this body closes the
    connection: h11 would still parse the rest, which takes a second for a megabyte of small chunks.
    ``deadline`` is set for streams alone; the beginning of a stream (status 200) removes it, and sets
    ``stream_began_at``. A long answer has ``reserved_bytes``, and its body waits for ``send_rest``.
    """

    def __init__(self, send: Send, reserve: Callable[[int], bool]) -> None:
        self._send = send
        self._reserve = reserve
        self._is_refused = False
        self._rest: AsgiMessage | None = None
        self.status = 0
        self.reserved_bytes = 0
        self.chunked_request: _Body | None = None
        self.deadline: asyncio.Timeout | None = None
        self.stream_began_at: float | None = None

    @property
    def has_begun(self) -> bool:
        return self.status != 0

    async def send(self, message: AsgiMessage) -> None:
        """Send a message of the application; the first one gets the security headers."""
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self.reserved_bytes and not message.get("more_body", False):
            self._rest = message
        elif not self._is_refused:
            await self._send_in_parts(message)

    async def send_rest(self) -> None:
        """Send the body of a long answer."""
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
            if not self._reserve(length):
                detail = "the answers that clients have not yet taken are too long together"
                await self.send_problem(RequestProblem("too-many-requests", detail, retry_after_s=1))
                self._is_refused = True  # from now on: `send` drops the body of the application, not of the problem
                return
            self.reserved_bytes = length
        self.status = message["status"]
        if self.deadline is not None and self.status == HTTPStatus.OK:
            self.deadline.reschedule(None)
            self.stream_began_at = time.monotonic()
        names = {bytes(name).lower() for name, _ in headers}
        headers += [(name, value) for name, value in _SECURITY_HEADERS.items() if name not in names]
        if self.chunked_request is not None and not self.chunked_request.is_complete and b"connection" not in names:
            headers.append((b"connection", b"close"))
        await self._send({**message, "headers": headers})

    async def send_problem(self, problem: RequestProblem) -> None:
        status, headers, body = problem_response(problem)
        await self.send({"type": "http.response.start", "status": status, "headers": headers})
        await self.send({"type": "http.response.body", "body": body})


def problem_response(problem: RequestProblem) -> tuple[int, list[tuple[bytes, bytes]], bytes]:
    """Return status, headers and body of a problem, also for ``server``; the response closes the connection."""
    body = msgspec.json.encode(problem.problem)
    headers = [(name.encode(), value.encode()) for name, value in problem.headers.items()]
    headers += [(b"content-type", PROBLEM_JSON.encode()), (b"content-length", str(len(body)).encode())]
    # The server would take the unread part of a request body for the next request.
    headers.append((b"connection", b"close"))
    headers += _SECURITY_HEADERS.items()  # `server` sends this without a `_Response`, which would add them
    return problem.problem.status, headers, body


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _canonical(host: str) -> str:
    """Return the one form of a host: IPv6 addresses have several spellings, and names may end with a dot."""
    return str(ip_address(host)) if _is_address(host) else host.lower().removesuffix(".")
