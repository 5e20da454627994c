"""The HTTP server of the daemon: ``/metrics``, ``/livez`` and ``/readyz``, in threads of its own.

``cli.run`` starts a ``HealthServer`` with both probes: ``/livez`` shows whether the loop makes progress, also while a
server is away, and ``/readyz`` what ``readiness`` says.
"""

import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

#: Returns a description of a problem, or None if there is none; may log it.
Probe = Callable[[], str | None]

#: Interval at which the server checks for its end, and calls ``ready``, in seconds.
_INTERVAL_S = 0.1
#: Connections that are open at once. A client that sends a byte now and then would keep a thread and a descriptor, of
#: which a process usually has 1,024: so a further connection ends the oldest.
_MAX_CONNECTIONS = 128


class HealthServer:
    """Serves metrics and probes until closed; port 0 takes any free port. ``OSError`` if the port cannot be bound."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry, *, live: Probe, ready: Probe) -> None:
        handler = partial(_ProbeHandler, registry, {"/livez": live, "/readyz": ready})
        self._server = _ProbeServer(host, port, handler, ready)
        serve = partial(self._server.serve_forever, poll_interval=_INTERVAL_S)
        self._thread = Thread(target=serve, name="health", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _ProbeServer(ThreadingHTTPServer):
    """Answers several requests at once, over IPv4 or IPv6."""

    request_queue_size = 128  # connections that may wait to be accepted

    def __init__(self, host: str, port: int, handler: Callable[..., BaseHTTPRequestHandler], ready: Probe) -> None:
        self._ready = ready
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._lock = Lock()
        self._open: dict[Any, None] = {}  # an ordered set of sockets, oldest first
        super().__init__((host, port), handler)

    def service_actions(self) -> None:
        """Call ``ready`` at each interval, only for its log line about a request that Kafka does not answer."""
        self._ready()

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= _MAX_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):  # the client has gone
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread reads an end of file, and closes the connection
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock:
            self._open.pop(request, None)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print the traceback of a defect; nothing for a client that leaves before it has its answer."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _ProbeHandler(BaseHTTPRequestHandler):
    """Answers GET and HEAD requests; ``probes`` are by path."""

    timeout = 10  # seconds within which a client must send a further part of its request
    server_version = "streamdedup"
    sys_version = ""  # no version of Python in the header Server

    def __init__(self, registry: CollectorRegistry, probes: Mapping[str, Probe], *arguments: Any) -> None:
        self._registry = registry
        self._probes = probes
        super().__init__(*arguments)  # answers the requests of a connection

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def _respond(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        content_type = "text/plain"
        if path == "/metrics":
            status, content_type, body = 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
        elif path in self._probes:
            problem = self._probes[path]()
            status, body = (200, b"ok\n") if problem is None else (503, f"{problem}\n".encode())
        else:
            status, body = 404, b"/metrics /livez /readyz\n"
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  name of the base class
        """Log nothing: probes are sent every few seconds."""
