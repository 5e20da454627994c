"""The ASGI layer around the application: which requests are answered, how large they are, and for how long.

The gate goes through these steps in this order:
    1. Path: routes match the percent-encoded path, so that an id may contain a slash (``%2F``).
    2. Body: a ``GET`` has none, and a body has one length.
    3. Host: without tokens, only requests that name an allowed host are answered. Otherwise a web page could reach the
       service under the DNS name of the page (DNS rebinding), from a browser that can reach the service.
    4. Token, but for ``/livez``, ``/readyz`` and the files of the page, which hold no data.
    5. Requests in progress: beyond the limit 429. Probes and streams do not count.
    6. Bodies: 429 where the bodies of all requests in progress have too many bytes together.
    7. Deadline for the application, which also reads the body: 408 if the body has not arrived by then, 503 if no
       answer has begun. An answer that has begun is cut off, unless it is a stream.
    8. Long answers: 429 if all long answers that clients have not yet taken exceed ``max_answers_bytes``. A long answer
       is sent after its request has stopped counting (5, 6, metrics), and cut off after ``sending_s``.
"""

import asyncio
import re
import time
from dataclasses import dataclass, replace
from typing import Final

import structlog
from litestar.utils import normalize_path

from streamdedup.serve.admission import AllowedHosts, Tokens
from streamdedup.serve.exchange import App, AsgiScope, Receive, RequestBody, ResponseWriter, Send
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.problems import RequestProblem

PROBES: Final = frozenset({"/livez", "/readyz"})  # paths of probes, which need no token
#: Paths of answers that never end once they have begun.
_STREAMS: Final = frozenset({"/v1/alerts", "/v1/dead-letters"})
_UNCOUNTED: Final = PROBES | _STREAMS  # paths that do not count as requests in progress
#: Files of the page: path of the HTML document, and beginning of the paths of all other files.
_PAGE_PATH, _PAGE_FILES_PREFIX = "/", "/page/"
_ORIGIN: Final = re.compile(rb"^https?://[^/?]*", re.IGNORECASE)  # scheme and host in front of a path

log = structlog.get_logger("streamdedup.serve")


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a process; ``app`` enforces ``max_body_bytes``, ``server`` those of connections and heads."""

    max_body_bytes: int = 8_388_608  # at least 8 times the longest text: JSON may escape a byte as six
    max_bodies_bytes: int = 67_108_864  # a process needs several times as much memory while it answers
    max_requests: int = 256  # with one text each they fill two passes of the index thread, a running and a waiting one
    max_connections: int = 512  # well below the usual limit of open files, 1,024
    #: For the head of a request, and again for body and answer together: far above the time of the largest batch, and
    #: below the time after which proxies give up, 30 s or more.
    timeout_s: float = 10.0
    max_answers_bytes: int = 134_217_728  # of all long answers that clients have not yet taken; one alone may be longer
    sending_s: float = 60.0  # in which a client must take a long answer

    @classmethod
    def for_texts(cls, max_text_bytes: int) -> "Limits":
        limits = cls()
        body_bytes = max(limits.max_body_bytes, 8 * max_text_bytes)
        return replace(limits, max_body_bytes=body_bytes, max_bodies_bytes=max(limits.max_bodies_bytes, body_bytes))


class Gate:
    """The ASGI application with tokens (None: not required), allowed hosts, limits and security headers."""

    def __init__(
        self, app: App, tokens: Tokens | None, hosts: AllowedHosts, limits: Limits, metrics: ServeMetrics
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._hosts = hosts
        self._limits = limits
        self._metrics = metrics
        self._in_progress = 0
        self._bodies_bytes = 0
        self._answers_bytes = 0

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        """Answer one request; ``TimeoutError`` if the client has not taken a long answer in time."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] == "http":
            is_chunked = any(name.lower() == b"transfer-encoding" for name, _ in scope["headers"])
            body = RequestBody(receive, self._count_body_bytes, is_chunked=is_chunked)
            response = ResponseWriter(send, self._reserve_answer_bytes, body)
            try:
                await self._answer(scope, body, response)
                scope.pop("state", None)  # Litestar 2.25 keeps the body there, which `send_rest` does not need
                async with asyncio.timeout(self._limits.sending_s):
                    await response.send_rest()
            finally:
                self._answers_bytes -= response.reserved_bytes
        # A web socket is never accepted: returning closes it.

    async def _answer(self, scope: AsgiScope, body: RequestBody, response: ResponseWriter) -> None:
        began_at = time.monotonic()
        try:
            self._route_by_encoded_path(scope)
            problem = self._refusal(scope, is_chunked=body.is_chunked)
            if problem is not None:
                await response.send_problem(problem)
            else:
                await self._answer_in_time(scope, body, response)
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

    def _refusal(self, scope: AsgiScope, *, is_chunked: bool) -> RequestProblem | None:
        """Return the problem that refuses the request by its head (steps 2 to 5), or None."""
        headers = {bytes(name).lower(): bytes(value) for name, value in scope["headers"]}
        length = headers.get(b"content-length")
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
        if scope["path"] not in _UNCOUNTED and self._in_progress >= self._limits.max_requests:
            return RequestProblem("too-many-requests", retry_after_s=1)
        return None

    async def _answer_in_time(self, scope: AsgiScope, body: RequestBody, response: ResponseWriter) -> None:
        counted_requests = 0 if scope["path"] in _UNCOUNTED else 1
        self._count_requests(counted_requests)
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
            self._count_requests(-counted_requests)

    def _timeout_problem(self, body: RequestBody) -> RequestProblem:
        if body.is_awaited:
            return RequestProblem("slow-request", f"the body took longer than {self._limits.timeout_s:g} s")
        return RequestProblem("timeout", retry_after_s=1)

    def _count_requests(self, change: int) -> None:
        self._in_progress += change
        self._metrics.in_flight.set(self._in_progress)

    def _count_body_bytes(self, received_bytes: int) -> None:
        """Count received bytes; above ``max_bodies_bytes`` raise ``RequestProblem`` in the ``receive`` of ``app``."""
        self._bodies_bytes += received_bytes
        if self._bodies_bytes > self._limits.max_bodies_bytes:
            detail = f"the bodies of all requests in progress exceed {self._limits.max_bodies_bytes:,} bytes"
            raise RequestProblem("too-many-requests", detail, retry_after_s=1)

    def _reserve_answer_bytes(self, answer_bytes: int) -> bool:
        """Count the bytes of a long answer; False if those of all answers would be too many."""
        if self._answers_bytes and self._answers_bytes + answer_bytes > self._limits.max_answers_bytes:
            return False
        self._answers_bytes += answer_bytes
        return True
