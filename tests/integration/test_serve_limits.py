"""Connections to the HTTP service: slow, silent, damaged and too many clients, over real sockets."""

import asyncio
import contextlib
import gc
import io
import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Self

import pytest
import structlog

from streamdedup.cli import serve as cli_serve
from streamdedup.daemon import logs
from streamdedup.serve.access import Gate, Limits
from streamdedup.serve.admission import AllowedHosts
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.problems import TYPE_PREFIX
from streamdedup.serve.server import MAX_HEAD_BYTES, create_server
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
CHUNKED = b"transfer-encoding: chunked\r\n\r\n"
#: What clients send that offer another protocol: that of Java and `curl --http2`, and one that opens a web socket.
UPGRADES = {
    "h2c": b"connection: Upgrade, HTTP2-Settings\r\nhttp2-settings: AAEAAEAAAAIAAAAA\r\nupgrade: h2c\r\n",
    "websocket": b"connection: Upgrade\r\nupgrade: websocket\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n",
    "unknown": b"upgrade: TLS/1.0, gopher\r\nconnection: keep-alive, upgrade\r\n",
}


class Running:
    """The service in a thread of its own."""

    def __init__(self, app, keep_alive_s=LONG_S, **limits) -> None:
        limits = {"max_connections": 8, "timeout_s": LONG_S, **limits}
        options = {"log_config": None, "access_log": False, "timeout_keep_alive": keep_alive_s}
        self.server = create_server(app, lambda: None, lambda: None, Limits(**limits), options)
        self._listener = cli_serve._listen("127.0.0.1", 0)
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
def service(request):
    made = Service(timeout_s=getattr(request, "param", LONG_S))
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
    body = bytearray()
    while len(body) < length:
        part = connection.recv(length - len(body))
        assert part, bytes(body)
        body += part
    return int(head.split(b" ")[1]), bytes(body)


def check_refused(received: bytes, status: int, name: str) -> None:
    """Check that the last answer is a problem and announces the end of the connection."""
    head, _, body = received.rpartition(b"HTTP/1.1 ")[2].partition(b"\r\n\r\n")
    assert head.startswith(b"%d " % status), received
    assert head.count(b"\r\nconnection: close") == 1
    assert b"\r\nx-content-type-options: nosniff" in head
    assert json.loads(body)["type"] == TYPE_PREFIX + name


def check_refused_by_server(received: bytes) -> None:
    """Check that the only answer is that of the server to bytes that are no request."""
    assert received.startswith(b"HTTP/1.1 400 "), received
    assert received.count(b"HTTP/1.1 ") == 1


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
            assert rest_of(client)[:12] in {b"", b"HTTP/1.1 400"}


@pytest.mark.parametrize(
    ("rest", "limits"),
    [(BODY, {"keep_alive_s": SHORT_S}), (BODY[:-1], {"timeout_s": SHORT_S})],
    ids=["all of it", "not all of it"],
)
def test_the_rest_of_a_body_after_its_answer_gets_no_answer(service, rest, limits):
    running = Running(service.app, **limits)
    with running.client() as client:
        # before the time begins
        client.sendall(HEAD.replace(LOOKUP.encode(), b"/none") + b"content-length: %d\r\n\r\n" % len(BODY))
        with running:
            assert an_answer(client)[0] == 404
            client.sendall(rest)
            assert rest_of(client) == b""


@pytest.mark.parametrize("service", [SHORT_S], indirect=True)
@pytest.mark.parametrize("body", [b"content-length: 1000\r\n\r\n{", CHUNKED + b"1\r\n{\r\n"], ids=["whole", "chunks"])
def test_a_body_that_does_not_end_is_refused(service, body):
    with Running(service.app) as running, running.client() as client:
        client.sendall(HEAD + body)
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
        check_refused_by_server(rest_of(client))
    assert running.connections_count() == 0


def test_a_head_within_the_limit_is_read(service):
    with Running(service.app) as running, running.client() as client:
        line = b"x-long: " + b"a" * (MAX_HEAD_BYTES - 1_000)
        client.sendall(LIVE.replace(b"\r\n\r\n", b"\r\n" + line))
        client.sendall(b"\r\n\r\n")
        assert an_answer(client) == (200, b"ok\n")


@pytest.mark.parametrize("line", [b"x: y\r\n", b"x" * 1_000], ids=["many", "one without an end"])
@pytest.mark.parametrize("body", [b"2\r\n{}\r\n0\r\n", b"0\r\n"], ids=["body", "no body"])
def test_trailers_that_are_too_large_are_refused(service, log_lines, body, line):
    with Running(service.app) as running, running.client() as client:
        with contextlib.suppress(ConnectionError):
            client.sendall(HEAD + CHUNKED + body)
            for _ in range(100):
                client.sendall(line * (MAX_HEAD_BYTES // len(line)))
        check_refused_by_server(rest_of(client))
        wait_until(lambda: running.connections_count() == 0)
    assert log_lines() == []


def test_a_body_with_trailers_is_read(service):
    with Running(service.app) as running, running.client() as client:
        for _ in range(2):
            client.sendall(HEAD + CHUNKED + b"%x\r\n%s\r\n0\r\nx-trailer: y\r\n\r\n" % (len(BODY), BODY))
            assert an_answer(client)[0] == 200


@pytest.mark.parametrize("line", [b"content-length: 2\r\n\r\n{}", CHUNKED], ids=["length", "chunked"])
@pytest.mark.parametrize("target", ["GET /v1/alerts", "GET /livez", "HEAD /livez"])
def test_a_request_that_should_have_no_body_is_refused_with_one(service, target, line):
    with Running(service.app) as running, running.client() as client:
        client.sendall(f"{target} HTTP/1.1\r\nhost: localhost\r\n".encode() + line)
        assert rest_of(client).startswith(b"HTTP/1.1 400 ")


def test_a_request_without_a_body_may_say_so(service):
    with Running(service.app) as running, running.client() as client:
        client.sendall(LIVE.replace(b"\r\n\r\n", b"\r\ncontent-length: 0\r\n\r\n"))
        assert an_answer(client) == (200, b"ok\n")


@pytest.mark.parametrize("path", [b"/livez", b"/", b"/nowhere"])
def test_the_answer_to_chunks_that_nobody_reads_ends_the_connection(service, path):
    with Running(service.app) as running, running.client() as client:
        client.sendall(b"POST " + path + b" HTTP/1.1\r\nhost: localhost\r\n" + CHUNKED + b"1\r\na\r\n")
        received = rest_of(client)
        assert received.startswith(b"HTTP/1.1 40")
        assert received.count(b"\r\nconnection: close") == 1


def test_the_connection_of_a_chunked_body_that_is_read_stays_open(service):
    with Running(service.app) as running, running.client() as client:
        for _ in range(2):
            client.sendall(HEAD + CHUNKED + b"%x\r\n%s\r\n0\r\n\r\n" % (len(BODY), BODY))
            assert an_answer(client)[0] == 200


def test_a_body_of_two_lengths_is_refused(service):
    with Running(service.app) as running, running.client() as client:
        client.sendall(HEAD + b"content-length: 2\r\n" + CHUNKED)
        check_refused(rest_of(client), 400, "invalid-request")


@pytest.mark.parametrize("sent", [b"zz\r\n", b"3\r\n{}\r\n0\r\n\r\n"])
@pytest.mark.parametrize("is_in_one_packet", [True, False])
@pytest.mark.parametrize("target", ["POST " + LOOKUP, "POST /none", "GET /v1/alerts"])
def test_a_body_that_is_not_http_is_refused_once_and_logs_nothing(service, log_lines, target, is_in_one_packet, sent):
    head = f"{target} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n".encode() + CHUNKED
    with Running(service.app) as running, running.client() as client:
        client.sendall(head + sent if is_in_one_packet else head)
        if not is_in_one_packet:
            wait_until(lambda: running.server.server_state.total_requests or running.server.server_state.tasks)
            with contextlib.suppress(ConnectionError):
                client.sendall(sent)
        received = rest_of(client)
        assert received.startswith(b"HTTP/1.1 4")
        assert received.count(b"HTTP/1.1 ") == 1
        wait_until(lambda: not running.server.server_state.tasks)
    assert log_lines() == []


@pytest.mark.parametrize("offer", UPGRADES.values(), ids=UPGRADES)
@pytest.mark.parametrize("is_in_one_packet", [True, False])
def test_an_offer_of_another_protocol_is_ignored(service, log_lines, offer, is_in_one_packet):
    head = HEAD + offer + b"content-length: %d\r\n\r\n" % len(BODY)
    with Running(service.app) as running, running.client() as client:
        for _ in range(2):
            client.sendall(head + BODY if is_in_one_packet else head)
            if not is_in_one_packet:
                wait_until(lambda: running.server.server_state.tasks)
                client.sendall(BODY)
            status, body = an_answer(client)
            assert (status, [match["id"] for match in json.loads(body)["matches"]]) == (200, ["d0"])
        client.sendall(LIVE.replace(b"\r\n\r\n", b"\r\n" + offer + b"\r\n") + LIVE)
        assert [an_answer(client), an_answer(client)] == [(200, b"ok\n")] * 2
        client.sendall(LIVE.replace(b"livez", b"socket").replace(b"\r\n\r\n", b"\r\n" + offer + b"\r\n"))
        assert an_answer(client)[0] == 404
    assert log_lines() == []


@pytest.mark.parametrize("offer", [b"", *UPGRADES.values()], ids=["none", *UPGRADES])
def test_a_body_is_never_taken_for_a_request(service, offer):
    with Running(service.app) as running, running.client() as client:
        client.sendall(HEAD + offer + b"content-length: %d\r\n\r\n" % len(LIVE) + LIVE + LIVE)
        status, body = an_answer(client)
        assert (status, json.loads(body)["type"]) == (400, TYPE_PREFIX + "malformed-json")
        assert an_answer(client) == (200, b"ok\n")


@pytest.mark.parametrize("is_begun", [False, True])
def test_bytes_behind_the_last_request_of_a_connection_log_nothing(log_lines, is_begun):
    """The request waits for its answer, or its answer is being sent, when they arrive."""
    reached, released = threading.Event(), threading.Event()

    async def app(scope, _receive, send):
        start = {"type": "http.response.start", "status": 200, "headers": []}
        if is_begun:
            await send(start)
            await send({"type": "http.response.body", "body": b"a", "more_body": True})
        reached.set()
        await asyncio.to_thread(released.wait, PATIENCE_S)
        if not is_begun:
            await send(start)
        await send({"type": "http.response.body", "body": b"a"})

    with Running(app) as running, running.client() as client:
        client.sendall(LIVE.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"))
        assert reached.wait(PATIENCE_S)
        client.sendall(b"\r\n")
        assert rest_of(client).startswith(b"HTTP/1.1 200 " if is_begun else b"HTTP/1.1 400 ")
        released.set()
        wait_until(lambda: not running.server.server_state.tasks)
        gc.collect()  # asyncio reports an error of a task that nobody has looked at
    assert log_lines() == []


def test_a_client_of_http_2_is_refused_once(service):
    with Running(service.app) as running, running.client() as client:
        client.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + LIVE)
        check_refused(rest_of(client), 400, "host-not-allowed")


@pytest.mark.parametrize("end", [socket.SHUT_WR, socket.SHUT_RDWR])
def test_a_client_that_leaves_during_its_body_is_no_failure(service, log_lines, end):
    def requests(status):
        return service.metrics.registry.get_sample_value(
            "streamdedup_serve_requests_total", {"route": "/v1/profiles/{profile}/lookup", "status": status}
        )

    with Running(service.app) as running, running.client() as client:
        client.sendall(HEAD + b"content-length: 1000\r\n\r\n{")
        wait_until(lambda: running.server.server_state.tasks)
        client.shutdown(end)
        wait_until(lambda: requests("none"))
        wait_until(lambda: not running.server.server_state.tasks)
    assert requests("500") is None
    assert log_lines() == []


@pytest.mark.parametrize(
    "sent",
    [
        b"\x16\x03\x01 nothing\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\n\r\n",
        b"GET /?a=\xc3 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
    ],
)
def test_bytes_that_are_no_request_are_refused_and_log_nothing(service, log_lines, sent):
    with Running(service.app) as running, running.client() as client:
        client.sendall(sent)
        check_refused_by_server(rest_of(client))
    assert log_lines() == []


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


@pytest.mark.parametrize(
    ("request_line", "hosts", "answer"),
    [
        ("GET /livez HTTP/1.1", ["localhost"], b" 200 OK"),
        ("GET /livez HTTP/1.0", ["localhost"], b" 200 OK"),
        ("GET /livez HTTP/1.0", [], b":host-not-allowed"),
        ("GET /livez HTTP/1.1", [], b" 400 Bad Request"),
        ("GET /livez HTTP/1.1", ["localhost", "evil.example"], b" 400 Bad Request"),
        ("GET /livez HTTP/1.0", ["localhost", "evil.example"], b" 400 Bad Request"),
        ("GET /livez HTTP/1.1", ["evil.example"], b":host-not-allowed"),
        ("GET http://localhost/livez HTTP/1.1", ["evil.example"], b":host-not-allowed"),
        ("GET http://localhost/livez HTTP/1.1", ["localhost"], b" 200 OK"),
        ("GET HTTP://localhost:8080?x HTTP/1.1", ["localhost:8080"], b" 200 OK"),
        ("GET /http://localhost/livez HTTP/1.1", ["localhost"], b":not-found"),
    ],
)
def test_without_tokens_a_request_names_one_allowed_host(service, request_line, hosts, answer):
    lines = [request_line, *(f"Host: {host}" for host in hosts), "Connection: close", "", ""]
    with Running(service.app) as running, running.client() as client:
        client.sendall("\r\n".join(lines).encode())
        received = rest_of(client)
    assert answer in received
    assert received.count(b"HTTP/1.1 ") == 1


def test_a_connection_beyond_the_limit_is_refused_until_another_ends(service):
    with Running(service.app, max_connections=2) as running, running.client() as first, running.client():
        wait_until(lambda: running.connections_count() == 2)
        with running.client() as third:
            check_refused(rest_of(third), 429, "too-many-requests")
        first.sendall(LIVE)
        assert an_answer(first) == (200, b"ok\n")
        first.close()
        wait_until(lambda: running.connections_count() == 1)
        with running.client() as fourth:
            fourth.sendall(LIVE + LIVE)
            assert [an_answer(fourth)[0] for _ in range(2)] == [200, 200]


def test_requests_that_wait_for_another_are_answered_in_order(service):
    with Running(service.app) as running, running.client() as client:
        client.sendall((LIVE + LIVE.replace(b"livez", b"none")) * 100)
        assert [an_answer(client)[0] for _ in range(200)] == [200, 404] * 100


def test_the_time_for_a_head_ends_with_the_head():
    async def app(_scope, receive, send):
        await receive()
        await asyncio.sleep(2 * SHORT_S)  # a timer that began before would have ended
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    running = Running(app, timeout_s=SHORT_S)
    with running.client() as client:
        client.sendall(HEAD + b"content-length: 2\r\n\r\n")  # before the time begins
        with running:
            wait_until(lambda: running.server.server_state.tasks)
            client.sendall(b"{}")
            assert client.recv(12) == b"HTTP/1.1 200"


def test_a_request_that_follows_another_has_its_own_time_for_the_head(service):
    running = Running(service.app, timeout_s=SHORT_S)
    with running.client() as client:
        client.sendall(LIVE)  # before the time begins
        with running:
            assert an_answer(client) == (200, b"ok\n")
            client.sendall(LIVE[:9])
            check_refused(rest_of(client), 408, "slow-request")


def test_a_client_that_takes_no_answer_is_disconnected(monkeypatch):
    monkeypatch.setattr(cli_serve, "_STALLED_MS", 300)
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


class LongAnswers:
    """A service that answers with ``ANSWER``, which no buffer of a connection holds, or at ``/short`` with a few bytes.

    Together, clients may have one such answer and a part of another.
    """

    ANSWER = b"a" * 50_000_000

    def __init__(self, sending_s: float) -> None:
        limits = {"max_connections": 8, "max_answers_bytes": len(self.ANSWER) + 1_000_000, "sending_s": sending_s}
        self._metrics = ServeMetrics()
        self.running = Running(Gate(self._app, None, AllowedHosts(), Limits(**limits), self._metrics), **limits)

    async def _app(self, scope, _receive, send):
        body = b"short" if scope["path"] == "/short" else self.ANSWER
        headers = [(b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def value(self, name: str, **labels: str) -> float | None:
        return self._metrics.registry.get_sample_value(f"streamdedup_serve_{name}", labels)

    def bytes_held(self) -> int:
        """Bytes in the buffers of all connections."""
        connections = list(self.running.server.server_state.connections)
        return sum(each.transport.get_write_buffer_size() for each in connections if each.transport is not None)

    def requests_count(self) -> int:
        """Requests whose answers are not yet sent."""
        return len(self.running.server.server_state.tasks)

    def get(self, path: bytes) -> tuple[int, bytes]:
        with self.running.client() as client:
            client.sendall(LIVE.replace(b"/livez", path))
            return an_answer(client)


def test_answers_that_clients_do_not_take_are_bounded_together():
    service = LongAnswers(LONG_S)
    with service.running:
        with service.running.client() as client:
            client.sendall(LIVE.replace(b"livez", b"long"))
            wait_until(lambda: service.bytes_held() > 0, what="a client that is behind")
            assert service.bytes_held() < 1_000_000
            wait_until(lambda: service.value("in_flight") == 0, what="the end of all counts but that of the answer")
            status, problem = service.get(b"/long")
            assert (status, json.loads(problem)["type"]) == (429, TYPE_PREFIX + "too-many-requests")
            assert service.get(b"/short") == (200, b"short")
        wait_until(lambda: service.requests_count() == 0, what="the end of the answer that nobody reads")
        assert service.get(b"/long") == (200, service.ANSWER)


@pytest.mark.parametrize("behind", [b"", LIVE], ids=["nothing", "a request"])
def test_a_client_that_does_not_take_an_answer_in_time_is_cut_off_and_logs_nothing(log_lines, behind):
    service = LongAnswers(SHORT_S)
    with service.running, service.running.client() as client:
        client.sendall(LIVE.replace(b"livez", b"long") + behind)
        wait_until(lambda: service.value("requests_total", route="none", status="200"), what="the answer")
        wait_until(lambda: service.running.connections_count() == 0, what="the end of the connection")
        wait_until(lambda: service.requests_count() == 0)
        assert len(rest_of(client)) < len(service.ANSWER)
    assert log_lines() == []
