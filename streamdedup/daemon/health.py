"""The HTTP side of the daemon: ``/metrics``, ``/livez`` and ``/readyz``.

Liveness asks only whether the loop still turns, so that a server that is away never gets the daemon restarted;
readiness asks whether it is at work. Runs in threads of its own and touches nothing but what it is given.
"""

import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

#: Says what is wrong, or None when nothing is.
Check = Callable[[], str | None]

#: How long a client may take to send its request, in seconds.
_REQUEST_TIMEOUT_S = 10
#: How late the server may notice that it is to be closed, in seconds.
_CLOSE_S = 0.1
#: Connections that may wait to be taken; more wait for a second try of their own.
_WAITING_CONNECTIONS = 128


class HealthServer:
    """Serves metrics and health until closed.

    Args:
        host: Address to bind to.
        port: Port; 0 for a free one.
        registry: What ``/metrics`` shows.
        live: Check behind ``/livez``.
        ready: Check behind ``/readyz``.

    Raises:
        OSError: The address cannot be bound.
    """

    def __init__(self, host: str, port: int, registry: CollectorRegistry, *, live: Check, ready: Check) -> None:
        def metrics() -> tuple[int, str, bytes]:
            return 200, CONTENT_TYPE_LATEST, generate_latest(registry)

        routes = {"/metrics": metrics, "/livez": _answer(live), "/readyz": _answer(ready)}
        self._server = _server_class(host)((host, port), _handler(routes))
        self._thread = Thread(target=self._server.serve_forever, args=(_CLOSE_S,), name="health", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is bound."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def _server_class(host: str) -> type[ThreadingHTTPServer]:
    class Server(ThreadingHTTPServer):
        """Takes many probes at once, over either version of the protocol."""

        address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        request_queue_size = _WAITING_CONNECTIONS
        daemon_threads = True

    return Server


_Route = Callable[[], tuple[int, str, bytes]]


def _answer(check: Check) -> _Route:
    def answer() -> tuple[int, str, bytes]:
        problem = check()
        return (200, "text/plain", b"ok\n") if problem is None else (503, "text/plain", f"{problem}\n".encode())

    return answer


def _handler(routes: dict[str, _Route]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET and HEAD of the known paths."""

        timeout = _REQUEST_TIMEOUT_S
        server_version = "streamdedup"
        sys_version = ""

        def do_GET(self) -> None:
            """Answer a request with its body."""
            self._respond(with_body=True)

        def do_HEAD(self) -> None:
            """Answer a request without its body."""
            self._respond(with_body=False)

        def _respond(self, *, with_body: bool) -> None:
            route = routes.get(self.path.partition("?")[0])
            status, kind, body = route() if route else (404, "text/plain", b"/metrics /livez /readyz\n")
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if with_body:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  the name is the base class's
            """Keep requests out of the log: a probe comes every few seconds."""

    return Handler
