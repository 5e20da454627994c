"""The section ``[redis]``: the servers that hold the index. ``indexes`` connects to them with it.

A new key also touches ``indexes``, a new mode ``index.redis.connection``; then run docs/settings_tables.py.
"""

import importlib
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import AfterValidator, Field, SecretStr

from streamdedup.settings.base import Mistakes
from streamdedup.settings.hosts import ALLOW_PLAINTEXT, SERVERS_ALLOWED, Servers, is_loopback
from streamdedup.settings.kinds import LISTED, Duration, File, Flag, Kind, OptionalText, Secret, Whole
from streamdedup.settings.tls import TlsSection

#: Beginnings of a URL: TCP, TCP with TLS, a socket of this machine. The Redis client wants them literally.
_BEGINNINGS = ("redis://", "rediss://", "unix://")
#: Time limit of a connect, and of an answer of a Sentinel, in seconds: a few round trips, also to another continent.
CONNECT_TIMEOUT_S = 1.0
#: Advice for a URL with a user and no password: redis-cli takes such a user for the password.
LONE_USER = "write redis://:PASSWORD@HOST for a password alone, redis://USER:@HOST for a user that needs none"
URL_ALLOWED = '"redis://HOST:PORT/DB", "rediss://HOST:PORT/DB" or "unix:///PATH?db=DB"'


def _valid_url(url: SecretStr) -> SecretStr:
    """Return a URL of Redis unchanged; ``ValueError`` names the part that is refused."""
    mistake = url_mistake(url.get_secret_value())
    if mistake is not None:
        raise ValueError(mistake)
    return url


def url_mistake(url: str, tls_options: frozenset[str] = frozenset()) -> str | None:
    """Return the mistake in a URL of Redis, without any part of the URL; None for an accepted URL.

    The Redis client reads options from its query: ``db``, and with TLS ``tls_options``, which only programs may pass.
    """
    try:
        mistake = next(_mistakes_in_parts(url, tls_options), None)
    except ValueError:  # of ``urlsplit`` or ``idna``, whose text may repeat a part of a password
        mistake = "its host or port is not valid"
    if mistake is None or "@" not in url:
        return mistake
    return f"{mistake}; in user and password, write % / ? # as %25 %2F %3F %23"


def _mistakes_in_parts(url: str, tls_options: frozenset[str]) -> Iterator[str]:
    """Yield the mistakes in a URL; ``ValueError`` for a host or a port that cannot exist."""
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    is_socket = parts.scheme == "unix"
    database = "" if is_socket else parts.path.strip("/")
    databases = [value for option, value in query if option == "db"]
    options = {"db", *tls_options} if parts.scheme == "rediss" else {"db"}
    advice = "" if tls_options else "; other options are keys of [redis]"
    port = parts.port  # raises a ValueError, as `encode` does
    has_host = is_socket or bool((parts.hostname or "").encode("idna"))
    if not url.startswith(_BEGINNINGS):
        yield "it does not begin with redis://, rediss:// or unix://"
    if parts.fragment:
        yield "it has a part behind #"
    if not options.issuperset(dict(query)):
        yield f"it has an option behind ? other than {', '.join(sorted(options))}{advice}"
    if is_socket and (parts.hostname or not parts.path.startswith("/")):
        yield "its socket is no absolute path"
    if not has_host:
        yield "its host is missing"
    if port == 0:
        yield "its host or port is not valid"
    if not all(text.isascii() and text.isdigit() for text in (database or "0", *databases)):
        yield "its database is not a number"


def redact_url(url: str) -> str:
    """Return an accepted URL with ``***`` in place of its password, or of a lone user, which may be a password."""
    parts = urlsplit(url)
    _, at_sign, address = parts.netloc.rpartition("@")
    if not at_sign:
        return url
    user = f"{parts.username or ''}:" if parts.password is not None else ""
    return parts._replace(netloc=f"{user}***@{address}").geturl()


def _auth_arguments(username: str, password: str) -> tuple[str, ...]:
    """Return the arguments of the command AUTH; none without user and password."""
    if username:
        return (username, password)
    return (password,) if password else ()


def _provider_mistakes(name: str) -> Mistakes:
    module, _, function = name.partition(":")
    try:
        is_function = callable(getattr(importlib.import_module(module), function, None))
    except Exception as error:  # noqa: BLE001  a module may raise anything
        yield "credential_provider", f"cannot be imported ({type(error).__name__}): {module}"
    else:
        if not is_function:
            yield "credential_provider", f"names no function of {module}: {function}"


#: A URL of Redis; never shown, because it may hold a password.
Url = Annotated[SecretStr | None, AfterValidator(_valid_url), Kind(URL_ALLOWED)]
_PREFIX_ALLOWED = "1 to 32 letters, digits, dots, underscores and hyphens"
KeyPrefix = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,32}$"), Kind(_PREFIX_ALLOWED)]


class Redis(TlsSection):
    """Connection and key space."""

    mode: Literal["single", "sentinel", "cluster"] = "single"
    """`single`: one server at `url`; `sentinel`: the master that the Sentinels at `nodes` name; `cluster`: a Redis
    Cluster that contains `nodes`."""
    url: Url = Field(default=None, json_schema_extra={"default": '*required* with `mode = "single"`'})
    """Single server and its database; `rediss://` for TLS. May hold user and password, percent-encoded."""
    url_file: File = None
    """File that holds `url`."""
    nodes: Servers = Field(default=(), json_schema_extra={"default": "*required* with the other modes"})
    """Sentinels, or nodes of the cluster, for the first connection; one reachable node is enough."""
    tls: Flag = False
    """Whether connections to `nodes`, and to the master that Sentinels name, use TLS."""
    username: OptionalText = None
    """User of the login; without it the server's default user."""
    password: Secret = None
    """Password of the login."""
    password_file: File = None
    """File that holds `password`."""
    credential_provider: Annotated[
        str | None, Field(pattern=r"^[\w.]+:\w+$"), Kind('a function as "package.module:function"')
    ] = None
    """Function that returns a [`CredentialProvider`](redis.md#user-and-rights) of redis-py, in place of `username` and
    `password`."""
    sentinel_service: OptionalText = Field(
        default=None, json_schema_extra={"default": '*required* with `mode = "sentinel"`'}
    )
    """Name of the master at the Sentinels."""
    sentinel_username: OptionalText = None
    """User of the login to the Sentinels."""
    sentinel_password: Secret = None
    """Password of the login to the Sentinels; `password` is not sent to them."""
    sentinel_password_file: File = None
    """File that holds `sentinel_password`."""
    allow_plaintext: Flag = False
    """Allow a password without TLS to other machines, where the network can read it."""
    key_prefix: KeyPrefix = "sd"
    """First part of every key, so that several installations share one database."""
    shards: Whole = Field(default=1, ge=1, le=4096)
    """Number of [slots for each band](redis.md#cluster), which a cluster spreads over its masters. Another number needs
    a new index."""
    bucket_layout: Literal["sets", "packed"] = "sets"
    """Storage of [buckets](redis.md#bucket-layouts): `sets` is one Redis set per band key; `packed` holds many buckets
    in one hash and takes half the memory. Another layout needs a new index."""
    timeout_s: Duration = Field(default=2.0, ge=0.05, le=60.0)
    """Time limit of an answer; after it the batch is tried again."""

    @property
    def _url(self) -> str:
        return self.url.get_secret_value() if self.url is not None else ""

    @property
    def uses_tls(self) -> bool:
        return urlsplit(self._url).scheme == "rediss" if self.mode == "single" else self.tls

    @property
    def shown_url(self) -> str:
        """The URL without its password, or mode and nodes, for logs and messages."""
        if self.mode == "single":
            return redact_url(self._url)
        service = f"{self.sentinel_service} at " if self.mode == "sentinel" else ""
        return f"{self.mode} {service}{','.join(self.nodes)}"

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of the single server or of each node, without brackets; empty for a Unix socket."""
        if self.mode != "single":
            nodes = (node.rpartition(":") for node in self.nodes)
            return [(host.strip("[]"), int(port)) for host, _, port in nodes]
        parts = urlsplit(self._url)
        return [(parts.hostname, parts.port or 6379)] if parts.hostname else []  # 6379: the port of Redis

    @property
    def url_without_login(self) -> str:
        """The URL of a single server without user and password; empty in other modes."""
        url = self._url.translate(dict.fromkeys(map(ord, "\t\r\n")))  # as ``urlsplit`` does
        login, at_sign, _ = urlsplit(url).netloc.rpartition("@")
        # Not by ``geturl``, which drops the // of a URL without a host, as that of a Unix socket is.
        return url.replace(login + at_sign, "", 1) if at_sign else url

    def login(self) -> tuple[str, ...]:
        """Return the arguments of AUTH in clear: password, user and password, or none; files are read again."""
        password = self.secret("password")
        parts = urlsplit(self.secret("url") or "")
        username = self.username or unquote(parts.username or "")
        return _auth_arguments(username, password or unquote(parts.password or ""))

    def sentinel_login(self) -> tuple[str, ...]:
        """Return the login to the Sentinels; form and errors as for ``login``."""
        return _auth_arguments(self.sentinel_username or "", self.secret("sentinel_password") or "")

    def tls_arguments(self) -> dict[str, Any]:
        if not self.uses_tls:
            return {}
        # For a single server the scheme of the URL selects TLS.
        return self.tls_options("ssl_ca_certs") | ({} if self.mode == "single" else {"ssl": True})

    def hints(self) -> Mistakes:
        if self.shards > 1 and self.mode != "cluster":
            yield "shards", f"is {self.shards}, which costs time and helps on a cluster only"

    def _check_servers(self) -> Mistakes:
        if self.mode != "single":
            if self.url is not None:
                yield "url", f'is for mode = "single"; with mode = "{self.mode}" name the servers in nodes'
            if not self.nodes:
                yield "nodes", f"is missing; needed: {SERVERS_ALLOWED}, {LISTED}"
            return
        if self.nodes:
            yield "mode", 'is "single", which takes a url; nodes need mode = "sentinel" or "cluster"'
        elif self.url is None:
            yield "url", f"is missing; needed: {URL_ALLOWED}"
        if self.tls:
            yield "tls", "is for nodes; write rediss:// in url"

    def _check_sentinels(self) -> Mistakes:
        if self.mode == "sentinel":
            if self.sentinel_service is None:
                yield "sentinel_service", "is missing; needed: the name under which the Sentinels know the master"
            if self.sentinel_username is not None and self.sentinel_password is None:
                yield "sentinel_password", "is missing; sentinel_username needs it"
            return
        for name in ("sentinel_service", "sentinel_username", "sentinel_password"):
            if getattr(self, name) is not None:
                yield name, f'is given, but mode = "{self.mode}" asks no Sentinel'

    def _check_login(self) -> Mistakes:
        parts = urlsplit(self._url)
        url_user, url_password = parts.username or "", parts.password or ""
        if url_user and self.username is not None:
            yield "username", "is given twice, here and in url"
        if url_password and self.password is not None:
            yield "password", "is given twice, here and in url"
        if self.credential_provider is not None and (self.username or self.password or url_user or url_password):
            yield "credential_provider", "is given, and so is username or password; give one of them"
        if self.credential_provider is not None:
            yield from _provider_mistakes(self.credential_provider)
        if self.username is not None and self.password is None and not url_password:
            yield "password", "is missing; username needs it"
        # `user:@host` has an empty password on purpose, `user@host` has none.
        if url_user and parts.password is None and self.password is None and self.credential_provider is None:
            yield "url", f"has a user and no password; {LONE_USER}"

    def _check_tls(self) -> Mistakes:
        advice = "url does not use TLS; write rediss://" if self.mode == "single" else "tls is false"
        return self.tls_mistakes(None if self.uses_tls else advice)

    def _check_plaintext(self) -> Mistakes:
        if self.uses_tls or self.allow_plaintext:
            return
        parts = urlsplit(self._url)
        if self.mode == "single":
            has_login = bool(self.password or self.credential_provider or parts.password is not None)
            if has_login and parts.scheme == "redis" and not is_loopback(parts.hostname or ""):
                yield "url", f"sends a login in clear to another machine; use rediss://, or {ALLOW_PLAINTEXT}"
        elif (self.password or self.sentinel_password or self.credential_provider) and not all(
            is_loopback(host) for host, _ in self.addresses
        ):
            yield "tls", f"is false: a password is sent in clear to another machine; set it, or {ALLOW_PLAINTEXT}"
