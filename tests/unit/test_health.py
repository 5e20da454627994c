"""The HTTP side of the daemon, over the loopback interface."""

import http.client
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from types import SimpleNamespace

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamdedup.daemon import health
from streamdedup.daemon.health import HealthServer
from streamdedup.daemon.metrics import Metrics

LOOPBACK = "127.0.0.1"
#: Longest that a request may take, in seconds.
PATIENCE_S = 120.0


@pytest.fixture(scope="module")
def checks() -> SimpleNamespace:
    """Problem of each of the two checks, ``live`` and ``ready``."""
    return SimpleNamespace(live=None, ready=None)


@pytest.fixture(scope="module")
def server(checks: SimpleNamespace) -> Iterator[HealthServer]:
    """One for all: closing one takes up to half a second."""
    metrics = Metrics()
    metrics.rebuilds.inc(3)
    server = HealthServer(LOOPBACK, 0, metrics.registry, live=lambda: checks.live, ready=lambda: checks.ready)
    yield server
    server.close()


@pytest.fixture(autouse=True)
def _nothing_wrong(checks: SimpleNamespace) -> None:
    checks.live = checks.ready = None


def ask(server: HealthServer, path: str, method: str = "GET") -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(LOOPBACK, server.port, timeout=PATIENCE_S)
    try:
        connection.request(method, path)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read()
    finally:
        connection.close()


def test_metrics_are_served_in_the_text_format(server):
    status, headers, body = ask(server, "/metrics")
    assert status == 200
    assert headers["Content-Type"].startswith("text/plain; version=")
    families = {family.name: family for family in text_string_to_metric_families(body.decode())}
    assert families["streamdedup_rebuilds"].samples[0].value == 3


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/livez?verbose=1"])
def test_a_check_that_finds_nothing_wrong_answers_ok_whatever_the_query(server, path):
    status, _, body = ask(server, path)
    assert (status, body) == (200, b"ok\n")


def test_a_waiting_daemon_is_not_ready_gives_the_reason_and_is_alive(server, checks):
    checks.ready = "waiting for the store"
    assert ask(server, "/readyz")[::2] == (503, b"waiting for the store\n")
    assert ask(server, "/livez")[0] == 200
    checks.ready = None
    assert ask(server, "/readyz")[0] == 200


def test_a_stuck_loop_is_not_alive_and_gives_the_reason(server, checks):
    checks.live = "the loop has made no step for 61 s"
    assert ask(server, "/livez")[::2] == (503, b"the loop has made no step for 61 s\n")


@pytest.mark.parametrize("path", ["/", "/metric", "/metrics/", "/../etc/passwd", "//livez/x"])
def test_another_path_is_not_found_and_the_known_ones_are_named(server, path):
    status, _, body = ask(server, path)
    assert (status, body) == (404, b"/metrics /livez /readyz\n")


@pytest.mark.parametrize("path", ["/metrics", "/livez", "/nowhere"])
def test_head_answers_as_get_does_without_the_body(server, path):
    status, headers, body = ask(server, path, "HEAD")
    expected_status, expected_headers, expected_body = ask(server, path)
    assert (status, body) == (expected_status, b"")
    assert headers["Content-Type"] == expected_headers["Content-Type"]
    if path != "/metrics":  # which grow while they are looked at
        assert int(headers["Content-Length"]) == len(expected_body)
    assert int(headers["Content-Length"]) > 0
    with socket.create_connection((LOOPBACK, server.port)) as connection:
        connection.sendall(f"HEAD {path} HTTP/1.0\r\n\r\n".encode())
        assert connection.makefile("rb").read().endswith(b"\r\n\r\n")


def test_an_answer_tells_nothing_of_the_software_underneath(server):
    _, headers, _ = ask(server, "/livez")
    assert headers["Server"].strip() == "streamdedup"


def test_it_listens_on_the_configured_address_only(server):
    assert server._server.server_address == (LOOPBACK, server.port)
    # Every address of 127.0.0.0/8 is local: a server on all interfaces answers here too.
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", server.port), timeout=PATIENCE_S)


def test_it_listens_on_an_ipv6_address():
    server = HealthServer("::1", 0, Metrics().registry, live=lambda: None, ready=lambda: None)
    with socket.create_connection(("::1", server.port), timeout=PATIENCE_S) as connection:
        connection.sendall(b"GET /livez HTTP/1.0\r\n\r\n")
        assert connection.makefile("rb").read().endswith(b"ok\n")
    server.close()


def test_a_port_that_is_taken_is_an_error_at_once(server):
    with pytest.raises(OSError, match="in use"):
        HealthServer(LOOPBACK, server.port, Metrics().registry, live=lambda: None, ready=lambda: None)


@pytest.mark.usefixtures("many_files")
def test_probes_are_answered_while_600_idle_connections_are_open(server):
    with ExitStack() as stack:
        for _ in range(600):
            stack.enter_context(socket.create_connection((LOOPBACK, server.port), timeout=PATIENCE_S))
        assert [ask(server, path)[0] for path in ("/livez", "/readyz")] == [200, 200]


def test_a_connection_above_the_limit_ends_the_oldest_and_is_answered(server, monkeypatch):
    monkeypatch.setattr(health._ProbeHandler, "timeout", None)
    monkeypatch.setattr(health, "_MAX_CONNECTIONS", 3)
    with ExitStack() as stack:
        address = LOOPBACK, server.port
        clients = [stack.enter_context(socket.create_connection(address, timeout=PATIENCE_S)) for _ in range(5)]
        for client in clients:
            client.sendall(b"GET /livez")
        assert ask(server, "/livez")[0] == 200
        assert [client.recv(1) for client in clients[:3]] == [b""] * 3
        clients[4].sendall(b" HTTP/1.0\r\n\r\n")
        assert clients[4].recv(12) == b"HTTP/1.0 200"


def test_requests_leave_the_log_alone(server, capfd):
    ask(server, "/livez")
    ask(server, "/nowhere")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("sent", [b"", b"GET /met", b"GET /livez HTTP/1.1\r\nhost: "], ids=["nothing", "line", "head"])
def test_a_client_that_breaks_its_connection_off_leaves_the_log_alone(sent, capfd):
    server = HealthServer(LOOPBACK, 0, Metrics().registry, live=lambda: None, ready=lambda: None)
    server._server.daemon_threads = False  # so that closing waits for the answers
    with socket.create_connection((LOOPBACK, server.port), timeout=PATIENCE_S) as client:
        client.sendall(sent)
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closing sends a reset
    assert ask(server, "/livez")[0] == 200  # the connection before is accepted
    server.close()
    assert capfd.readouterr() == ("", "")


def test_a_defect_of_a_probe_is_printed(capfd):
    server = HealthServer(LOOPBACK, 0, Metrics().registry, live=lambda: 1 // 0, ready=lambda: None)
    with pytest.raises(http.client.RemoteDisconnected):
        ask(server, "/livez")
    server.close()
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_readiness_is_checked_although_nobody_asks():
    checked = threading.Event()
    server = HealthServer(LOOPBACK, 0, Metrics().registry, live=lambda: None, ready=checked.set)
    assert checked.wait(PATIENCE_S)
    server.close()


def test_closed_it_answers_no_more_ends_its_thread_and_frees_its_port():
    registry = Metrics().registry
    server = HealthServer(LOOPBACK, 0, registry, live=lambda: None, ready=lambda: None)
    port, thread = server.port, server._thread
    with socket.create_connection((LOOPBACK, port), timeout=PATIENCE_S):
        server.close()
    assert not thread.is_alive()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((LOOPBACK, port), timeout=PATIENCE_S)
    again = HealthServer(LOOPBACK, port, registry, live=lambda: None, ready=lambda: None)
    assert ask(again, "/livez")[0] == 200
    again.close()
