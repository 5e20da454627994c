"""Requests to servers that are not trusted: the deadline and the bound of a whole answer."""

import ssl
import time
from contextlib import contextmanager
from http.client import HTTPException
from socketserver import StreamRequestHandler, ThreadingTCPServer
from threading import Thread

import pytest

from streamdedup.http_client import HttpSession

MOST = 1_000
OK = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def served(*answers):
    """Serve the answers to one request after another; each is bytes, or (bytes, bytes that follow for ever)."""
    waiting = list(answers)
    heads = []

    class Handler(StreamRequestHandler):
        def handle(self):
            while (head := self._head()) and waiting:
                heads.append(head)
                answer = waiting.pop(0)
                whole, repeated = answer if isinstance(answer, tuple) else (answer, b"")
                try:
                    self.wfile.write(whole)
                    while repeated:
                        self.wfile.write(repeated)
                        time.sleep(0.002)
                except OSError:
                    return
                if not whole.startswith(OK + b"Content-Length"):
                    return

        def _head(self):
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                line = self.rfile.readline()
                if not line:
                    return b""
                head += line
            return head

    class Server(ThreadingTCPServer):
        daemon_threads = False

    with Server(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/api", heads
        finally:
            server.shutdown()
            thread.join()


def session(url, timeout_s=60.0):
    return HttpSession(url, timeout_s, MOST, ssl.create_default_context)


def answered(answer, timeout_s=60.0):
    with served(answer) as (url, _), session(url, timeout_s) as http:
        return http.request("GET", "/x", {})


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 3\r\n\r\nabc",
        OK + b"\r\nabc",
        OK + b"Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"\r\nabc",
    ],
)
def test_a_body_is_read_in_each_framing(answer):
    assert answered(answer) == (200, b"abc")


@pytest.mark.parametrize(
    "answer",
    [
        OK + b"Content-Length: 100\r\n\r\na",
        (b"", b"H"),
        (OK, b"X: y\r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (OK + b"Content-Length: 1000\r\n\r\n", b" "),
        (OK + b"\r\nabc", b" "),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n1;", b"x"),
    ],
    ids=["silence", "status", "head", "interim", "body", "until-close", "chunk"],
)
def test_an_answer_that_never_ends_has_a_time_limit_as_a_whole(answer):
    with pytest.raises(TimeoutError, match="takes too long"):
        answered(answer, timeout_s=0.05)


@pytest.mark.parametrize(
    "head", [b"Content-Length: 100000000\r\n", b"Transfer-Encoding: chunked\r\n\r\nfffffff", b"Connection: close\r\n"]
)
def test_of_a_body_without_measure_one_byte_too_many_is_read(head):
    assert answered((OK + head + b"\r\n", b" " * 10_000)) == (200, b" " * (MOST + 1))


@pytest.mark.parametrize(
    "answer",
    [
        (OK + b"Transfer-Encoding: chunked\r\n\r\n-1\r\n", b"x" * 50_000),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n0\r\n", b"X: y\r\n" * 5_000),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n" * 2_000),
    ],
    ids=["negative-chunk", "trailers", "interim"],
)
def test_an_answer_without_measure_around_its_body_is_cut_off(answer):
    with pytest.raises(HTTPException, match="too long"):
        answered(answer)


@pytest.mark.parametrize("answer", [OK + b"X: y\r\nContent-Length: 4\r\n\r\nabc", b"", b"nonsense\r\n\r\n", OK[:9]])
def test_an_answer_that_ends_early_is_none(answer):
    with pytest.raises((OSError, HTTPException)):
        answered(answer)


def test_behind_an_answer_that_is_too_long_another_connection_is_opened():
    with (
        served((OK + b"Content-Length: 9999999\r\n\r\n", b" " * 10_000), OK + b"\r\na") as (url, _),
        session(url) as http,
    ):
        assert [len(http.request("GET", "/x", {})[1]), http._connection.sock] == [MOST + 1, None]
        assert http.request("GET", "/x", {}) == (200, b"a")


def test_a_redirect_is_an_answer_like_any_other():
    assert answered(b"HTTP/1.1 307 No\r\nLocation: http://127.0.0.1:1/\r\n\r\n") == (307, b"")


@pytest.mark.parametrize("failure", [b"", b"nonsense\r\n\r\n"])
def test_one_connection_serves_all_requests_and_is_opened_again_once(failure):
    full = OK + b"Content-Length: 1\r\n\r\na"
    with served(full, full, failure, full, full) as (url, heads), session(url) as http:
        for _ in range(4):
            assert http.request("GET", "/x", {}) == (200, b"a")
        http.close()
        with pytest.raises((OSError, HTTPException)):
            http.request("GET", "/x", {})
    assert len(heads) == 5


def test_the_path_of_a_request_may_have_any_characters():
    with served(OK + b"\r\n") as (url, heads), session(url) as http:
        http.request("GET", "/a b/é%2F", {"X": "y"})
    assert heads[0].startswith(b"GET /a%20b/%C3%A9%2F HTTP/1.1\r\n")


@pytest.mark.parametrize(("scheme", "port"), [("http", 80), ("https", 443)])
def test_an_ipv6_address_without_a_port_is_called_at_the_port_of_its_scheme(monkeypatch, scheme, port):
    addresses = []

    def refuse(address, *_options):
        addresses.append(address)
        raise ConnectionRefusedError

    monkeypatch.setattr("socket.create_connection", refuse)
    with session(f"{scheme}://[fd00::10]/x") as http, pytest.raises(ConnectionRefusedError):
        http.request("GET", "/x", {})
    assert addresses == [("fd00::10", port)]


def test_the_end_of_a_session_closes_its_connection():
    with served(OK + b"Content-Length: 0\r\n\r\n") as (url, _):
        with session(url) as http:
            http.request("GET", "/x", {})
            sock = http._connection.sock
        assert sock.fileno() == -1
