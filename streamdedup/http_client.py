"""Requests to HTTP servers that are not trusted: a deadline and a bound for each whole answer, and no redirects.

Called by ``wire.schema_registry`` and, for the token endpoint, by ``kafka.login``. ``http.client`` suffices, because it
neither follows a redirect, which could carry a secret away, nor decompresses a body.
"""

import io
import ssl
import time
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection, IncompleteRead
from typing import Any, Final, Self
from urllib.parse import quote, urlsplit

#: Bytes for the head of an answer. The bound of a whole answer is these and twice the bound of its body, because the
#: framing of tiny chunks is about as long as their content.
_OVERHEAD_BYTES: Final = 256 * 1024


class HttpSession:
    """Requests of one thread over one connection, to the host of ``url``.

    ``timeout_s`` is for a request and its answer together; connecting may take it once more for each further address of
    the host. ``most_bytes`` is the bound of the body. ``tls`` loads certificates, and is called for https only.
    """

    def __init__(self, url: str, timeout_s: float, most_bytes: int, tls: Callable[[], ssl.SSLContext]) -> None:
        self._parts = urlsplit(url)
        self._timeout_s = timeout_s
        self._most_bytes = most_bytes
        self._tls = tls
        self._connection: HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def request(self, method: str, path: str, headers: dict[str, str], body: bytes | None = None) -> tuple[int, bytes]:
        """Return status and body; raise ``OSError`` or ``HTTPException`` if there is no complete answer.

        A body longer than ``most_bytes`` is cut after ``most_bytes`` + 1 bytes: the caller refuses it. A request that
        fails on the connection of an earlier one is sent once more, also a POST that the server has processed: only
        repeatable requests are sent.
        """
        is_reused = self._connection is not None and self._connection.sock is not None
        ends_at = time.monotonic() + self._timeout_s
        try:
            if is_reused:
                with suppress(OSError, HTTPException):  # the server may have closed the connection meanwhile
                    return self._answer(ends_at, method, path, headers, body)
                self.close()  # it has: once more, over a new connection
                _remaining_s(ends_at)  # raises if no time is left
            return self._answer(ends_at, method, path, headers, body)
        except (OSError, HTTPException) as error:
            self.close()
            if time.monotonic() >= ends_at:
                raise TimeoutError("the answer takes too long") from error
            raise

    def _answer(self, ends_at: float, method: str, path: str, headers: Any, body: bytes | None) -> tuple[int, bytes]:
        """Send a request once, over the open connection or a new one, and return status and body."""
        connection = self._connection = self._connection or self._new_connection()
        if connection.sock is None:
            connection.timeout = _remaining_s(ends_at)
            connection.connect()

        def response_class(sock: Any, **options: Any) -> HTTPResponse:
            bounded: Any = _BoundedSocket(sock, ends_at, 2 * self._most_bytes + _OVERHEAD_BYTES)
            return HTTPResponse(bounded, **options)

        connection.response_class = response_class  # type: ignore[assignment]
        connection.sock.settimeout(_remaining_s(ends_at))
        connection.request(method, quote(path, safe="/%!$&'()*+,;=:@~"), headers=headers, body=body)
        with connection.getresponse() as response:
            content = response.read(self._most_bytes + 1)
            is_cut = len(content) > self._most_bytes
            # A read with a size raises no error for an answer that ends early.
            if response.length and not is_cut:
                raise IncompleteRead(content, response.length)
        if is_cut:
            self.close()  # with the unread part of the answer
        return response.status, content

    def _new_connection(self) -> HTTPConnection:
        host, is_plain = self._parts.hostname or "", self._parts.scheme == "http"
        # Without a port ``http.client`` takes the last part of an IPv6 address for one.
        port = self._parts.port or (80 if is_plain else 443)
        if is_plain:
            return HTTPConnection(host, port, timeout=self._timeout_s)
        return HTTPSConnection(host, port, timeout=self._timeout_s, context=self._tls())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()


class _BoundedSocket(io.RawIOBase):
    """Reads a socket up to a deadline and a number of bytes; ``http.client`` has neither limit for a whole answer.

    ``http.client`` of Python 3.11 reads any number of interim answers and trailers, and takes a chunk of size -1 as one
    that ends with the connection.
    """

    def __init__(self, sock: Any, ends_at: float, most_bytes: int) -> None:
        self._sock = sock
        # Stays open where `http.client` closes the connection after the head of an answer, before its body is read.
        self._raw = sock.makefile("rb", buffering=0)
        self._ends_at = ends_at
        self._left = most_bytes

    def makefile(self, _mode: str) -> io.BufferedReader:
        return io.BufferedReader(self)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._sock.settimeout(_remaining_s(self._ends_at))
        count = int(self._raw.readinto(buffer) or 0)
        self._left -= count
        if self._left < 0:
            raise HTTPException("the answer is too long")
        return count

    def close(self) -> None:
        super().close()
        with suppress(OSError):
            self._raw.close()


def _remaining_s(ends_at: float) -> float:
    remaining_s = ends_at - time.monotonic()
    if remaining_s <= 0:
        raise TimeoutError
    return remaining_s
