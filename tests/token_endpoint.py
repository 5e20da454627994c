"""A token endpoint of the test's own: client credentials for signed tokens, and the keys that verify them."""

import json
import ssl
import threading
import time
from base64 import b64encode
from contextlib import suppress
from functools import cached_property
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from joserfc import jwt
from joserfc.jwk import RSAKey

#: Client and secret that the endpoint accepts.
CLIENT, SECRET = "daemon", "canary-4-of-the-client"
AUDIENCE = "kafka"


class TokenEndpoint:
    """The endpoint, while the context is open.

    Attributes:
        lifetime_s: Lifetime of the tokens by the answer. Brokers accept them for twice as long, because a busy machine
            may use one late.
        error: Error of OAuth to answer with; None for tokens.
        is_away: Whether to answer with status 503.
        raw: Status and body to answer with instead; None for none.
        is_dripping: Whether the answer never ends.
        headers: Headers of all answers.
        asked: Header ``Authorization`` and body of all requests so far.
        audience: Audience of the tokens; brokers refuse another one than ``AUDIENCE``.
        tokens: All tokens so far.
    """

    def __init__(self, lifetime_s: float = 5.0, tls: ssl.SSLContext | None = None) -> None:
        self.lifetime_s = lifetime_s
        self.error: str | None = None
        self.is_away = False
        self.raw: tuple[int, bytes] | None = None
        self.is_dripping = False
        self.headers: dict[str, str] = {}
        self.asked: list[tuple[str | None, str]] = []
        self.audience = AUDIENCE
        self.tokens: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._scheme = "http" if tls is None else "https"
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05})

    @cached_property
    def _key(self) -> RSAKey:
        return RSAKey.generate_key(2048, {"kid": "1", "alg": "RS256", "use": "sig"})

    @property
    def url(self) -> str:
        """Address of the endpoint."""
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}/token"

    @property
    def keys_url(self) -> str:
        """Address of the keys."""
        return f"http://127.0.0.1:{self._server.server_port}/keys"

    def make(self, lifetime_s: float | None = None) -> str:
        """Return a new token."""
        now = time.time()
        claims = {"sub": CLIENT, "aud": self.audience, "iat": now, "exp": now + (lifetime_s or 2 * self.lifetime_s)}
        self.tokens.append(jwt.encode({"alg": "RS256", "kid": "1"}, claims, self._key))
        return self.tokens[-1]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def _answer(self, authorization: str | None, body: str) -> tuple[int, bytes | dict[str, object]]:
        self.asked.append((authorization, body))
        if self.raw:
            return self.raw
        if self.is_away:
            return 503, {}
        login = b64encode(f"{CLIENT}:{SECRET}".encode()).decode()
        if self.error or authorization != f"Basic {login}" or "grant_type=client_credentials" not in body:
            return 401, {"error": self.error or "invalid_client", "error_description": f"not {authorization}"}
        return 200, {"access_token": self.make(), "token_type": "Bearer", "expires_in": self.lifetime_s}

    def _handler(endpoint) -> type[BaseHTTPRequestHandler]:  # noqa: N805  the handler has a self of its own
        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                self._send(*endpoint._answer(self.headers["Authorization"], body))

            def do_GET(self):
                self._send(200, {"keys": [endpoint._key.as_dict(private=False)]})

            def _send(self, status, content):
                body = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **endpoint.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(body) + 1_000 * endpoint.is_dripping))
                self.end_headers()
                with suppress(OSError):  # until the client leaves
                    self.wfile.write(body)
                    while endpoint.is_dripping:
                        self.wfile.write(b" ")
                        time.sleep(0.02)

            def log_message(self, *_arguments):
                pass

        return Handler
