"""Connections to the HTTP service: slow, silent, damaged and too many clients, over real sockets."""

import contextlib
import io
import json
import logging
import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Self

import pytest
import structlog

from streamdedup.daemon import logs
from streamdedup.serve import server as server_module
from streamdedup.serve.access import Limits
from streamdedup.serve.problems import TYPE_PREFIX
from streamdedup.serve.server import MAX_HEAD_BYTES, MAX_PIPELINED, PROBE_CONNECTIONS, create_server
from tests.served import LOOKUP, TEXT, Service
from tests.servers import wait_until

#: Seconds that a client waits for the service.
PATIENCE_S = 60.0
#: Time limit of the service where a client is slow on purpose, in seconds, and where it is not.
SHORT_S, LONG_S = 0.3, 300.0
BODY = json.dumps({"text": TEXT}).encode()
HEAD = f"POST {LOOKUP} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode()
REQUEST = HEAD + b"content-length: %d\r\n\r\n" % len(BODY) + BODY
LIVE = b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n"
METRICS = LIVE.replace(b"livez", b"metrics")


class Running:
    """The service in a thread of its own."""

    def __init__(self, app, **limits) -> None:
        limits = {"max_connections": 8, "timeout_s": LONG_S, **limits}
        options = {"log_config": None, "access_log": False, "ws": "none", "lifespan": "off", "timeout_keep_alive": 300}
        self.server = create_server(app, lambda: None, Limits(**limits), options)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self.server.run, args=([self._listener],))

    def __enter__(self) -> Self:
        self._thread.start()
        wait_until(lambda: self.server.started, what="the server")
        return self

    def __exit__(self, *_: object) -> None:
        self.server.should_exit = True
        self._thread.join(PATIENCE_S)
        self._listener.close()
        assert not self._thread.is_alive()

    @contextlib.contextmanager
    def client(self) -> Iterator[socket.socket]:
        """A connection."""
        with socket.create_connection(self._listener.getsockname(), timeout=PATIENCE_S) as connection:
            yield connection

    def connections_count(self) -> int:
        """Open connections, as the server knows them."""
        return len(self.server.server_state.connections)


@pytest.fixture
def service():
    made = Service(timeout_s=SHORT_S)
    made.add(("d0", TEXT))
    yield made
    made.close()


def rest_of(connection: socket.socket) -> bytes:
    """Return all bytes that come until the service closes the connection."""
    received = b""
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            received += part
    return received


def an_answer(connection: socket.socket) -> tuple[int, bytes]:
    """Read one answer and nothing behind it; return status and body."""
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        part = connection.recv(1)
        assert part, head
        head += part
    lines = head.lower().split(b"\r\n")
    (length,) = (int(line.partition(b":")[2]) for line in lines if line.startswith(b"content-length:"))
    body = b""
    while len(body) < length:
        part = connection.recv(length - len(body))
        assert part, body
        body += part
    return int(head.split(b" ")[1]), body


def check_refused(received: bytes, status: int, name: str) -> None:
    """Check that the last answer is a problem and announces the end of the connection."""
    head, _, body = received.rpartition(b"HTTP/1.1 ")[2].partition(b"\r\n\r\n")
    assert head.startswith(b"%d " % status), received
    assert b"\r\nconnection: close" in head
    assert b"\r\nx-content-type-options: nosniff" in head
    assert json.loads(body)["type"] == TYPE_PREFIX + name


@pytest.mark.parametrize("part", [b"G", HEAD, HEAD + b"x-slow: "], ids=["method", "lines", "half of a line"])
def test_a_head_that_does_not_end_is_refused(service, part):
    running = Running(service.app, timeout_s=SHORT_S)
    with running.client() as client:
        client.sendall(part)  # before the time begins
        with running:
            check_refused(rest_of(client), 408, "slow-request")
            wait_until(lambda: running.connections_count() == 0)


@pytest.mark.parametrize(
    ("before", "sent"),
    [(b"", b""), (b"", b"\r\n"), (LIVE, b"\r\n")],
    ids=["new", "new, an empty line", "used, an empty line"],
)
def test_a_connection_without_a_request_is_closed(service, before, sent):
    running = Running(service.app, timeout_s=SHORT_S)
    with running.client() as client:
        client.sendall(before or sent)  # before the time begins
        with running:
            if before:
                assert an_answer(client)[0] == 200
                client.sendall(sent)
            received = rest_of(client)
            assert received == b"" or received.startswith(b"HTTP/1.1 408 ")


def test_a_body_that_does_not_end_is_refused(service):
    with Running(service.app) as running, running.client() as client:
        client.sendall(HEAD + b"content-length: 1000\r\n\r\n{")
        check_refused(rest_of(client), 408, "slow-request")


def test_a_client_that_sends_in_pieces_is_answered():
    made = Service()
    made.add(("d0", TEXT))
    with Running(made.app) as running, running.client() as client:
        for _ in range(2):
            for at in range(len(REQUEST)):
                client.sendall(REQUEST[at : at + 1])
            status, body = an_answer(client)
            assert status == 200
            assert [match["id"] for match in json.loads(body)["matches"]] == ["d0"]
    made.close()


def test_a_head_that_is_too_large_is_refused(service):
    with Running(service.app) as running, running.client() as client, contextlib.suppress(ConnectionError):
        client.sendall(HEAD + b"x-long: ")
        for _ in range(100 * MAX_HEAD_BYTES // 1_000):
            client.sendall(b"a" * 1_000)
        check_refused(rest_of(client), 431, "head-too-large")
    assert running.connections_count() == 0


@pytest.mark.parametrize(
    "sent", [b"\x16\x03\x01 nothing\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n", b"GET / HTTP/9\r\n\r\n"]
)
def test_bytes_that_are_no_request_are_refused(service, sent):
    with Running(service.app) as running, running.client() as client:
        client.sendall(sent)
        check_refused(rest_of(client), 400, "invalid-request")


@pytest.fixture
def log_lines():
    """Configure the log of the service, and return a function that reads its lines."""
    stream = io.StringIO()
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logs.configure("info", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_lines_about_malformed_requests_are_folded(service, log_lines):
    with Running(service.app) as running:
        for _ in range(20):
            with running.client() as client:
                client.sendall(b"\x16\x03\x01 nothing\r\n\r\n")
                check_refused(rest_of(client), 400, "invalid-request")
    assert [line["message"] for line in log_lines()] == ["Invalid HTTP request received."]


@pytest.mark.parametrize(
    ("request_line", "hosts", "status"),
    [
        ("GET /livez HTTP/1.1", ["localhost"], b"200"),
        ("GET /livez HTTP/1.0", ["localhost"], b"200"),
        ("GET /livez HTTP/1.0", [], b"400"),
        ("GET /livez HTTP/1.1", [], b"400"),
        ("GET /livez HTTP/1.1", ["localhost", "evil.example"], b"400"),
        ("GET /livez HTTP/1.1", ["evil.example", "localhost"], b"400"),
        ("GET http://localhost/livez HTTP/1.1", ["evil.example"], b"400"),
    ],
)
def test_without_tokens_a_request_names_one_allowed_host(service, request_line, hosts, status):
    lines = [request_line, *(f"Host: {host}" for host in hosts), "Connection: close", "", ""]
    with Running(service.app) as running, running.client() as client:
        client.sendall("\r\n".join(lines).encode())
        answer = rest_of(client)
    assert answer.split(b" ", 2)[1] == status
    assert (b":host-not-allowed" in answer) == (status == b"400")


def test_a_request_on_a_connection_beyond_the_limit_is_refused_until_another_ends(service):
    with Running(service.app, max_connections=2) as running, running.client() as first, running.client():
        wait_until(lambda: running.connections_count() == 2)
        with running.client() as third, running.client() as fourth:
            third.sendall(REQUEST)
            check_refused(rest_of(third), 429, "too-many-requests")
            wait_until(lambda: running.connections_count() == 3)
            first.sendall(LIVE)
            assert an_answer(first) == (200, b"ok\n")
            first.close()
            wait_until(lambda: running.connections_count() == 2)
            fourth.sendall(METRICS + METRICS)
            assert [an_answer(fourth)[0] for _ in range(2)] == [200, 200]


@pytest.mark.usefixtures("many_files")
def test_probes_are_answered_while_600_idle_connections_are_open(service):
    """Beside the 512 within the limit, those that wait in the places of probes are displaced, the oldest first."""
    with Running(service.app, max_connections=512) as running, contextlib.ExitStack() as stack:
        idle = [stack.enter_context(running.client()) for _ in range(600)]
        wait_until(lambda: running.connections_count() == 512 + PROBE_CONNECTIONS)
        for probe in (LIVE, LIVE.replace(b"livez", b"readyz")) * PROBE_CONNECTIONS:
            with running.client() as client:
                client.sendall(probe)
                assert rest_of(client).endswith(b"\r\n\r\nok\n")
        check_refused(rest_of(idle[512]), 429, "too-many-requests")
        idle[0].sendall(LIVE)
        assert an_answer(idle[0]) == (200, b"ok\n")


def test_a_probe_in_progress_is_not_displaced(service, monkeypatch):
    released = threading.Event()
    check = service.index.check
    monkeypatch.setattr(service.index, "check", lambda *given: released.wait(PATIENCE_S) and check(*given))
    service.app._limits = replace(service.limits, timeout_s=LONG_S)
    with Running(service.app, max_connections=1) as running, running.client(), running.client() as probe:
        probe.sendall(LIVE.replace(b"livez", b"readyz"))
        wait_until(lambda: service.engine._call_began_at is not None)
        with contextlib.ExitStack() as stack:
            for _ in range(2 * PROBE_CONNECTIONS):
                stack.enter_context(running.client())
            wait_until(lambda: running.connections_count() == 1 + PROBE_CONNECTIONS)
            released.set()
            assert rest_of(probe).endswith(b"\r\n\r\nok\n")


def test_requests_that_wait_for_another_are_answered_in_order_and_limited(service):
    with Running(service.app) as running, running.client() as client:
        client.sendall(LIVE * MAX_PIPELINED + LIVE.replace(b"livez", b"none"))
        received = b""
        while received.count(b"HTTP/1.1 ") <= MAX_PIPELINED or not received.endswith(b"}"):
            received += client.recv(65_536)
        statuses = [int(answer[:3]) for answer in received.split(b"HTTP/1.1 ")[1:]]
        assert statuses == [200] * MAX_PIPELINED + [404]
    with Running(service.app) as running, running.client() as client:
        client.sendall(LIVE * 10 * MAX_PIPELINED)
        assert rest_of(client).count(b"HTTP/1.1 200") < 10 * MAX_PIPELINED


def test_a_client_that_takes_no_answer_is_disconnected(monkeypatch):
    monkeypatch.setattr(server_module, "STALLED_S", SHORT_S)
    sending = threading.Event()

    async def large(scope, _receive, send):
        assert scope["type"] == "http"
        await send({"type": "http.response.start", "status": 200, "headers": []})
        sending.set()
        for _ in range(1_000):
            await send({"type": "http.response.body", "body": b"a" * 100_000, "more_body": True})

    with Running(large) as running, running.client() as client:
        client.sendall(LIVE)
        assert sending.wait(PATIENCE_S)
        wait_until(lambda: running.connections_count() == 0, what="the end of the connection")
