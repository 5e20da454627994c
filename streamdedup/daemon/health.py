"""Readiness of the daemon, and the HTTP server of ``/metrics``, ``/livez`` and ``/readyz``.

``loop`` and, until the loop runs, ``cli.run`` set ``Readiness``; ``cli.run`` starts a ``HealthServer`` with the checks
of both probes. Liveness shows whether the loop makes progress, also while a server is away, so that no supervisor
restarts the daemon for that. Readiness shows whether the daemon is at work for all of its topics: it is a member of the
group and awaits no server. The HTTP server runs in threads of its own. A new wait is added to ``metrics.Awaited``.
"""

import random
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

import structlog
from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from streamdedup.daemon.metrics import Awaited, Metrics

#: Time after which Kafka counts as away during a request, in seconds. The same as for an idle consumer
#: (``kafka.watches.SilenceWatch``), and less than the 10 s within which readiness must show an outage.
OVERDUE_S = 5.0
#: Time without membership after which the reason is logged, in seconds, and after which a daemon that was at work
#: counts as waiting. An ordinary rebalance takes up to 3 s: members learn of it by their heartbeats.
JOINING_S = 5.0
#: Time after which a new member without partitions counts as a spare, in seconds: others that give partitions away, and
#: then the new member, join again after a heartbeat of 3 s.
SPARE_S = 10.0
_JOINING_REASON = (
    "the group assigns partitions once all its members have answered; one that was killed counts as a member for "
    "kafka.session_timeout. To list the members: streamdedup index status"
)
#: Shortest and longest delay between two tries of a server that is away, in seconds. With the longest delay the
#: daemon is at work again well within 10 s of the server's return.
_FIRST_DELAY_S, _LONGEST_DELAY_S = 0.1, 2.0
#: Largest counted number of failures, so that the power of two stays small; the delay has long ceased to grow.
_MOST_DOUBLINGS = 10

#: Returns a description of a problem, or None if there is none.
Check = Callable[[], str | None]
#: Returns status, content type and body of an answer.
_Route = Callable[[], tuple[int, str, bytes]]

#: Time within which a client must send a further part of its request, in seconds.
_REQUEST_TIMEOUT_S = 10
#: Interval at which the server checks for its end, in seconds.
_CLOSE_S = 0.1
#: Connections that are open at once; a further one ends the oldest. Each has a thread and a descriptor, of which a
#: process usually has 1,024. A client that sends a byte now and then would keep both.
_MAX_CONNECTIONS = 128
#: Connections that may wait to be accepted.
_WAITING_CONNECTIONS = 128

log = structlog.get_logger("streamdedup.loop")  # one name for all modules of the loop, shown in each log line


class Readiness:
    """Readiness of the daemon; set by the loop, read from any thread.

    The loop sets a wait when a call has failed. A call of the Kafka client may take until the transaction timeout to
    fail. So the loop also marks its requests (``asking_kafka``): one without an answer for ``OVERDUE_S`` counts as a
    wait. Polls are not marked: ``kafka.watches.SilenceWatch`` watches them.

    ``awaited`` is the server or event that the loop awaits; None while the daemon is at work. ``waiting_for`` also
    reports an overdue request. ``halted`` says why nothing further is published.
    """

    def __init__(
        self,
        metrics: Metrics,
        clock: Callable[[], float] = time.monotonic,
        missing_topics: Callable[[], frozenset[str]] = frozenset,
    ) -> None:
        self.halted: str | None = None
        self.awaited: Awaited | None = Awaited.STORE  # the first server that `cli.run` waits for
        self._clock = clock
        self._missing_topics = missing_topics
        self._request_began_at_s: float | None = None
        self._failures_count = 0
        #: The wait that was logged last.
        self._logged: Awaited | None = None
        self._logged_request_s: float | None = None  # the beginning of the overdue request that was logged last
        self._awaited_since_s = clock()  # of a daemon at work: its last turn as a member
        self._outside_at_s = clock()  # the last turn without membership
        metrics.connect_readiness(self.waiting_for, lambda: self.problem() is None)

    @contextmanager
    def asking_kafka(self) -> Iterator[None]:
        """Mark a request to Kafka while the context is open."""
        self._request_began_at_s = self._clock()
        try:
            yield
        finally:
            self._request_began_at_s = None

    def set_awaited(self, awaited: Awaited) -> None:
        """Show a wait for a server or event, until ``end_wait``; returns at once."""
        if awaited != self.awaited:
            self._awaited_since_s = self._clock()
        self.awaited = awaited

    def record_joining(self, *, is_member: bool) -> None:
        """Record a turn without membership, or as a new member without partitions: a wait for partitions.

        After ``JOINING_S`` a daemon that was at work begins to wait, and the reason is logged once.
        """
        if not is_member:
            self._outside_at_s = self._clock()
        if self.awaited is not None:
            self.set_awaited(Awaited.PARTITIONS)
        if self._clock() - self._awaited_since_s < JOINING_S:
            return
        self.set_awaited(Awaited.PARTITIONS)
        if self._logged is not Awaited.PARTITIONS:
            self._logged = Awaited.PARTITIONS
            log.info("waiting", what=Awaited.PARTITIONS.value, reason=_JOINING_REASON)

    def is_spare(self) -> bool:
        """Tell whether a member that still has no partitions is at work, as a spare."""
        since_s = max(self._awaited_since_s, self._outside_at_s)
        return self.awaited is None or self._clock() - since_s >= SPARE_S

    def end_wait(self) -> None:
        """Record a turn at work: the daemon has partitions, or is a spare."""
        self.awaited = self._logged = None
        self._awaited_since_s = self._clock()

    def record_failure(self, awaited: Awaited, error: Exception) -> float:
        """Record a failure and the wait that follows, log the first failure of each wait, and return the retry delay.

        The delay, in seconds, doubles with each failure. A random part spreads the tries of several daemons.
        """
        if self._logged != awaited:
            log.warning("waiting", what=awaited.value, reason=str(error))
            self._logged = awaited
        self.set_awaited(awaited)
        longest_s = min(_LONGEST_DELAY_S, _FIRST_DELAY_S * 2.0**self._failures_count)
        self._failures_count = min(self._failures_count + 1, _MOST_DOUBLINGS)
        return longest_s * random.uniform(0.5, 1.0)  # noqa: S311  no secret depends on it

    def forget_failures(self) -> None:
        """Begin again with the shortest delay, after a turn without an error; a wait for partitions may go on."""
        self._failures_count = 0

    def waiting_for(self) -> Awaited | None:
        """Return ``awaited``, or Kafka during an overdue request, which is logged; None while at work or halted."""
        if self.halted is not None:
            return None
        began_at_s = self._request_began_at_s
        if self.awaited is None and began_at_s is not None and self._clock() - began_at_s > OVERDUE_S:
            if began_at_s != self._logged_request_s:  # the loop logs the outage only when the request fails
                self._logged_request_s = began_at_s
                log.warning(
                    "waiting", what=Awaited.KAFKA.value, reason=f"a request has had no answer for {OVERDUE_S:g} s"
                )
            return Awaited.KAFKA
        return self.awaited

    def problem(self) -> str | None:
        """Describe why the daemon is not at work, or not for all topics; None while the daemon is at work."""
        if self.halted is not None:
            return f"halted: {self.halted}"
        awaited, missing = self.waiting_for(), sorted(self._missing_topics())
        problems = [
            *([f"waiting for {awaited}"] if awaited is not None else ()),
            *([f"no such topic: {', '.join(missing)}"] if missing else ()),
        ]
        return "; ".join(problems) or None


class HealthServer:
    """Serves metrics and probes until closed; port 0 takes any free port. ``OSError`` if the port cannot be bound."""

    def __init__(self, host: str, port: int, registry: CollectorRegistry, *, live: Check, ready: Check) -> None:
        def metrics() -> tuple[int, str, bytes]:
            return 200, CONTENT_TYPE_LATEST, generate_latest(registry)

        routes = {"/metrics": metrics, "/livez": _probe_route(live), "/readyz": _probe_route(ready)}
        self._server = _ProbeServer(host, port, partial(_ProbeHandler, routes))
        # Called ten times a second: `Readiness` logs an overdue request when it is asked, and probes may be absent.
        self._server.service_actions = ready  # type: ignore[assignment, method-assign]
        serve = partial(self._server.serve_forever, poll_interval=_CLOSE_S)
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

    request_queue_size = _WAITING_CONNECTIONS

    def __init__(self, host: str, port: int, handler: Callable[..., BaseHTTPRequestHandler]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._lock = Lock()
        self._open: dict[Any, None] = {}  # sockets, oldest first
        super().__init__((host, port), handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            if len(self._open) >= _MAX_CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):  # the client has gone
                    oldest.shutdown(socket.SHUT_RDWR)  # its thread reads the end, and closes it
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


def _probe_route(check: Check) -> _Route:
    def answer() -> tuple[int, str, bytes]:
        problem = check()
        return (200, "text/plain", b"ok\n") if problem is None else (503, "text/plain", f"{problem}\n".encode())

    return answer


class _ProbeHandler(BaseHTTPRequestHandler):
    """Answers GET and HEAD requests."""

    timeout = _REQUEST_TIMEOUT_S
    server_version = "streamdedup"
    sys_version = ""  # no version of Python in the header Server

    def __init__(self, routes: Mapping[str, _Route], *arguments: Any) -> None:
        self._routes = routes
        super().__init__(*arguments)  # answers the requests of a connection

    def do_GET(self) -> None:
        self._respond(with_body=True)

    def do_HEAD(self) -> None:
        self._respond(with_body=False)

    def _respond(self, *, with_body: bool) -> None:
        route = self._routes.get(self.path.partition("?")[0])
        status, kind, body = route() if route else (404, "text/plain", b"/metrics /livez /readyz\n")
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  name of the base class
        """Log nothing: probes are sent every few seconds."""
