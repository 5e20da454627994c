"""Logins that change while a process runs: passwords and tokens in files, and tokens of a token endpoint.

The client logs in on its network thread: for each new connection, and before the end of a session (KIP-368). Files are
read then. A separate thread fetches tokens of an endpoint, because a request would block the network thread.

All clients of the process share one ``KafkaLogin``. Importing this module replaces the login mechanisms of the client
(``_register``). A new mechanism also touches ``settings.kafka``.
"""

import logging
import re
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

import msgspec
from kafka.errors import KafkaConnectionError, SaslAuthenticationFailedError
from kafka.net.sasl import get_sasl_mechanism, register_sasl_mechanism
from kafka.net.sasl.oauth import AbstractTokenProvider

from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable, SettingsError
from streamdedup.http_client import HttpSession

logger = logging.getLogger(__name__)

#: Share of a token's lifetime after which the next is fetched. Brokers end a session with its token, and the client
#: logs in again at 85 to 95 % of a session.
RENEW_SHARE: Final = 0.8
#: Pause after a failed request for a token, and the shortest one between two requests, in seconds.
RETRY_S: Final = 1.0
#: Time limit of a request for a token and its answer together, in seconds.
TOKEN_TIMEOUT_S: Final = 10.0
#: Largest number of bytes of an answer: the default limit of a broker on a login (`sasl.server.max.receive.size`).
MAX_TOKEN_BYTES: Final = 524_288
#: Longest time for which a token is used, in seconds: an endpoint cannot promise a longer one by mistake.
MAX_LIFETIME_S: Final = 86_400.0
#: Lifetime of a token where the endpoint does not tell it, in seconds.
DEFAULT_LIFETIME_S: Final = 300.0
#: Error text where the token has expired and the next request has neither failed nor succeeded yet.
_EXPIRED: Final = "the token has expired"
#: Form of a token (RFC 6750, section 2.1), which brokers demand.
_TOKEN: Final = re.compile(r"[A-Za-z0-9._~+/-]+=*")
#: Error codes of an endpoint that refuses a client (RFC 6749, section 5.2).
_REFUSAL: Final = re.compile("invalid_(request|client|grant|scope)|unauthorized_client|unsupported_grant_type")
#: Mechanisms whose logins change by themselves.
_CHANGING = frozenset({"OAUTHBEARER", "AWS_MSK_IAM", "GSSAPI"})

#: Set when a broker has accepted a login that can change.
_accepted = threading.Event()


def may_be_accepted_later(error: Exception) -> bool:
    """Return whether a refused login may be accepted later, because it changes and was accepted before."""
    return isinstance(error, SaslAuthenticationFailedError) and _accepted.is_set()


class KafkaLogin(AbstractTokenProvider):  # type: ignore[misc]  # the client is untyped
    """A login whose password or token may change: ``read`` returns it or raises ``SettingsError``."""

    def __init__(self, source: str, read: Callable[[], str]) -> None:
        self._source = source
        self._read = read
        self._last = ""

    def prepare(self, timeout_s: float) -> None:
        """Prepare the first login; only ``TokenLogin`` needs it."""

    def token(self) -> str:
        """Return the password or token; called by the client, which tries again after ``KafkaConnectionError``."""
        try:
            self._last = self._read()
        except SettingsError as error:
            raise KafkaConnectionError(f"{self._source}: {error}") from None
        return self._last

    def secrets(self) -> tuple[str, ...]:
        return (self._last,) if self._last else ()


class TokenRefused(Exception):
    """The token endpoint refuses the client; the text has no secret."""


class NoToken(Exception):
    """The answer of the token endpoint has no usable token; the text has no secret."""


class _TokenAnswer(msgspec.Struct):
    access_token: str = ""
    expires_in: float | None = None  # some endpoints send a text
    error: str = ""


class TokenLogin(KafkaLogin):
    """A login by tokens, which a thread fetches from an endpoint before the last one expires.

    ``fetch`` returns a new token and its lifetime in seconds, or raises ``TokenRefused``; any other exception means
    that the endpoint has no token at present.
    """

    def __init__(self, url: str, fetch: Callable[[], tuple[str, float]]) -> None:
        super().__init__("kafka.sasl_token_url", self._valid_token)
        self._url = url
        self._fetch = fetch
        self._fetched = ""  # only the thread writes it; `token` writes `_last`
        self._expires_at = 0.0  # monotonic time
        self._is_refused = False  # by the endpoint, at the last attempt
        self._problem = "no token yet"  # why the last attempt brought no token; empty after a success
        self._first_attempt_done = threading.Event()
        #: Ends the thread. Only tests set this: the thread is a daemon thread, and ends with the process.
        self._is_ended = threading.Event()
        self._start_lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def prepare(self, timeout_s: float) -> None:
        """Start the thread, and wait for the first token.

        Without a valid token raises ``BrokerMisconfigured`` if the token endpoint refuses the client and no login was
        accepted before, else ``BrokerUnavailable``.
        """
        with self._start_lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._renew, name="kafka tokens", daemon=True)
                self._thread.start()
        self._first_attempt_done.wait(timeout_s)
        if time.monotonic() >= self._expires_at:
            text = f"cannot log in to Kafka: {self._problem or _EXPIRED}"
            if self._is_refused and not _accepted.is_set():
                raise BrokerMisconfigured(text)
            raise BrokerUnavailable(text)

    def _valid_token(self) -> str:
        """Return the last token; raise ``SettingsError``, as ``read`` of ``KafkaLogin`` does, if it has expired."""
        if time.monotonic() >= self._expires_at:
            raise SettingsError(self._problem or _EXPIRED)
        return self._fetched

    def _renew(self) -> None:
        while not self._is_ended.wait(timeout=self._fetch_token()):
            pass

    def _fetch_token(self) -> float:
        """Try to fetch a token; return the time until the next try, in seconds."""
        try:
            text, lifetime_s = self._fetch()
        except TokenRefused as error:
            problem, self._is_refused = f"the token endpoint {self._url} refuses the client: {error}", True
        except Exception as error:  # noqa: BLE001  any may come from the network; its text may contain a header
            reason = str(error) if isinstance(error, (NoToken, SettingsError)) else type(error).__name__
            problem = f"the token endpoint {self._url} does not answer with a token: {reason}"
            self._is_refused = False
        else:
            if self._problem:
                logger.info("There is a token for Kafka", extra={"event": "token_fetched", "url": self._url})
            lifetime_s = min(lifetime_s, MAX_LIFETIME_S)
            self._fetched, self._expires_at = text, time.monotonic() + lifetime_s
            self._problem, self._is_refused = "", False
            self._first_attempt_done.set()
            return max(lifetime_s * RENEW_SHARE, RETRY_S)
        if problem != self._problem:
            logger.warning(problem, extra={"event": "token_missing", "url": self._url})
        self._problem = problem
        self._first_attempt_done.set()
        return RETRY_S


def client_credentials(
    url: str, client_id: str, secret: Callable[[], str], scope: str | None, ca_file: Path | None
) -> Callable[[], tuple[str, float]]:
    """Return ``fetch`` of a ``TokenLogin`` by the flow of client credentials (RFC 6749, section 4.4)."""
    form = {"grant_type": "client_credentials"} | ({} if scope is None else {"scope": scope})
    body, path = urlencode(form).encode(), urlsplit(url).path or "/"

    def fetch() -> tuple[str, float]:
        # As most clients do, without the encoding of RFC 6749: most endpoints expect the secret as it is.
        credentials = b64encode(f"{client_id}:{secret()}".encode()).decode()
        headers = {"Authorization": f"Basic {credentials}", "Content-Type": "application/x-www-form-urlencoded"}
        tls = partial(ssl.create_default_context, cafile=ca_file)
        with HttpSession(url, TOKEN_TIMEOUT_S, MAX_TOKEN_BYTES, tls) as session:
            return _token_of_answer(*session.request("POST", path, headers, body))

    return fetch


def _token_of_answer(status: int, body: bytes) -> tuple[str, float]:
    """Return token and lifetime in an answer; no part of the answer is in an error, except a code of RFC 6749."""
    if len(body) > MAX_TOKEN_BYTES:
        raise NoToken(f"the answer is longer than {MAX_TOKEN_BYTES:,} bytes")
    try:
        answer = msgspec.json.decode(body, type=_TokenAnswer, strict=False)
    except (msgspec.DecodeError, RecursionError):
        raise NoToken(f"the answer with status {status} is none of OAuth 2.0") from None
    if _REFUSAL.fullmatch(answer.error):
        raise TokenRefused(answer.error)
    if status != HTTPStatus.OK:
        raise NoToken(f"it answers with status {status}")
    lifetime_s = DEFAULT_LIFETIME_S if answer.expires_in is None else answer.expires_in
    if not lifetime_s > 0:  # also not a number
        raise NoToken("expires_in is not above zero")
    return bearer_token(answer.access_token), lifetime_s


def bearer_token(text: str) -> str:
    """Return a token; raise ``SettingsError`` for characters that would end it or begin another field of the login."""
    if not _TOKEN.fullmatch(text):
        raise SettingsError("a token has the letters, digits and signs of RFC 6750 only")
    return text


def _register(name: str) -> None:
    """Replace a mechanism of the client by one that takes a ``KafkaLogin`` as password, and sets ``_accepted``."""
    mechanism = get_sasl_mechanism(name)

    class Mechanism(mechanism):  # type: ignore[misc, valid-type]  # the client is untyped
        def __init__(self, **config: Any) -> None:
            password = config.get("sasl_plain_password")
            self._is_changing = name in _CHANGING or isinstance(password, KafkaLogin)
            if isinstance(password, KafkaLogin):
                config["sasl_plain_password"] = password.token()
            super().__init__(**config)

        def is_authenticated(self) -> bool:
            is_authenticated = bool(super().is_authenticated())
            if is_authenticated and self._is_changing:
                _accepted.set()
            return is_authenticated

    register_sasl_mechanism(name, Mechanism, overwrite=True)


for _name in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", *sorted(_CHANGING)):
    _register(_name)
