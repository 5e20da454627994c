"""The section ``[redis]``: where the index lives."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import AfterValidator, Field, SecretStr

from streamdedup.settings.base import Check, Section
from streamdedup.settings.kafka import ALLOW_PLAINTEXT, check_servers, is_loopback, split_server, tls_files
from streamdedup.settings.units import Duration, File, Flag, Kind, Names, Secret, Text, Whole

#: Schemes of a URL and what they mean.
SCHEMES = {"redis": "TCP", "rediss": "TCP with TLS", "unix": "a socket of this machine"}
#: What a URL may be, for messages and documentation.
#: Port of a URL that names none.
_PORT = 6379
URL_ALLOWED = '"redis://HOST:PORT/DB", "rediss://HOST:PORT/DB" or "unix:///PATH?db=DB"'
#: What nodes may be, for messages and documentation.
NODES_ALLOWED = 'servers as "host:port", as a list or with commas between them'


def _check_url(url: SecretStr) -> SecretStr:
    """Accept what the Redis client would, minus its options, which are keys of their own here.

    Raises:
        ValueError: Another scheme, no host, no socket, a database that is no number, or a query other than ``db``.
    """
    parts = urlsplit(url.get_secret_value())
    query = parse_qsl(parts.query, keep_blank_values=True)
    if (
        parts.scheme not in SCHEMES
        or parts.fragment
        or any(key != "db" or not _is_number(value) for key, value in query)
    ):
        raise ValueError("not a URL of Redis")
    if parts.scheme == "unix":
        if not parts.path.startswith("/"):
            raise ValueError("no socket")
    elif not parts.hostname or (parts.path.strip("/") and not _is_number(parts.path.strip("/"))):
        raise ValueError("no host, or a database that is no number")
    elif parts.hostname:
        # Raises ValueError for a name that cannot be one: an empty part, or one of more than 63 characters.
        parts.hostname.encode("idna")
    # Reading the port raises ValueError for one that cannot be.
    if parts.port == 0:
        raise ValueError("no port")
    return url


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


def redact_url(url: str) -> str:
    """Return a URL that was accepted with ``***`` for its password."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    address = parts.netloc.rpartition("@")[2]
    return parts._replace(netloc=f"{parts.username or ''}:***@{address}").geturl()


class Redis(Section):
    """Connection and key space; durations are in seconds here, with their units in the file."""

    mode: Literal["single", "sentinel", "cluster"] = Field(
        default="single",
        description="How Redis is run: `single` is one server at `url`; `sentinel` a master that the Sentinels at "
        "`nodes` name; `cluster` a Redis Cluster that some of its `nodes` lead to.",
    )
    url: Annotated[SecretStr | None, AfterValidator(_check_url), Kind("a text", lambda _value: '"***"')] = Field(
        default=None,
        description="Server and database number of a single server: `redis://HOST:PORT/0`, `rediss://` for TLS, "
        "`unix:///PATH?db=0`. May hold user and password, percent-encoded; they are never shown.",
        json_schema_extra={"allowed": URL_ALLOWED, "default": '*required* with `mode = "single"`'},
    )
    url_file: File = Field(default=None, description="File that holds `url`.")
    nodes: Annotated[Names, AfterValidator(check_servers)] = Field(
        default=(),
        description="Sentinels, or nodes of the cluster, to ask first; one that answers is enough.",
        json_schema_extra={"allowed": NODES_ALLOWED, "default": "*required* with the other modes"},
    )
    database: Whole = Field(
        default=0, ge=0, description='Database number with `mode = "sentinel"`. A cluster has number 0 only.'
    )
    tls: Flag = Field(default=False, description="Whether to talk TLS to `nodes`, and to the master that they name.")
    username: Text | None = Field(
        default=None,
        min_length=1,
        description="User to log in as; the server's default user without it.",
        json_schema_extra={"allowed": "a text that is not empty"},
    )
    password: Secret = Field(default=None, min_length=1, description="Password to log in with.")
    password_file: File = Field(default=None, description="File that holds `password`.")
    sentinel_service: Text | None = Field(
        default=None,
        min_length=1,
        description="Name under which the Sentinels know the master.",
        json_schema_extra={"allowed": "a text that is not empty", "default": '*required* with `mode = "sentinel"`'},
    )
    sentinel_username: Text | None = Field(
        default=None,
        min_length=1,
        description="User to log in to the Sentinels as; their default user without it.",
        json_schema_extra={"allowed": "a text that is not empty"},
    )
    sentinel_password: Secret = Field(
        default=None,
        min_length=1,
        description="Password to log in to the Sentinels with; `password` is not sent there.",
    )
    sentinel_password_file: File = Field(default=None, description="File that holds `sentinel_password`.")
    ssl_ca_file: File = Field(
        default=None, description="Certificates (PEM) of the authorities to trust; the system's without it."
    )
    ssl_cert_file: File = Field(default=None, description="Certificate (PEM) that this daemon shows.")
    ssl_key_file: File = Field(default=None, description="Private key (PEM) of `ssl_cert_file`.")
    ssl_key_password: Secret = Field(default=None, min_length=1, description="Password of `ssl_key_file`.")
    ssl_key_password_file: File = Field(default=None, description="File that holds `ssl_key_password`.")
    ssl_check_hostname: Flag = Field(
        default=True, description="Whether the server's certificate must carry the name it was reached by."
    )
    allow_plaintext: Flag = Field(
        default=False, description="Allow a password without TLS to another machine; anybody between can listen."
    )
    key_prefix: Text = Field(
        default="sd",
        pattern=r"^[A-Za-z0-9_.-]{1,32}$",
        description="First part of every key, so that several installations share one database.",
        json_schema_extra={"allowed": "1 to 32 letters, digits, dots, underscores and hyphens"},
    )
    shards: Whole = Field(
        default=1,
        ge=1,
        le=4096,
        description="Into how many slots of a cluster each band is spread. Another number needs a new index.",
    )
    bucket_layout: Literal["sets", "packed"] = Field(
        default="sets",
        description="How buckets are stored: `sets` is one Redis set per band key, fast at any size of the index; "
        "`packed` holds many buckets in one hash and takes about half the memory. Another layout needs a new index.",
    )
    timeout_s: Duration = Field(
        default=2.0,
        alias="timeout",
        ge=0.05,
        le=60.0,
        description="How long an answer may take before the batch is tried again.",
    )
    connect_timeout_s: Duration = Field(
        default=1.0, alias="connect_timeout", ge=0.05, le=60.0, description="How long connecting may take."
    )

    @property
    def shown_url(self) -> str:
        """The URL without its password, or what stands in its place, for logs and messages."""
        if self.mode == "single":
            return redact_url(self._url)
        service = f"{self.sentinel_service} at " if self.mode == "sentinel" else ""
        return f"{self.mode} {service}{','.join(self.nodes)}"

    @property
    def address(self) -> str:
        """Servers and ports, or the socket's path: how to name this store to an operator."""
        parts = urlsplit(self._url)
        if self.mode != "single":
            return ",".join(self.nodes)
        return parts.path if parts.scheme == "unix" else parts.netloc.rpartition("@")[2]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Host and port of each node."""
        return [split_server(node) for node in self.nodes]

    @property
    def tcp_addresses(self) -> list[tuple[str, int]]:
        """Host and port of the single server or of each node; empty for a Unix socket."""
        if self.mode != "single":
            return self.addresses
        parts = urlsplit(self._url)
        return [(parts.hostname, parts.port or _PORT)] if parts.hostname else []

    def security(self) -> dict[str, Any]:
        """Return the Redis client's keyword arguments for TLS and login; secrets in clear, so never log them."""
        return self._login_options(self.username, self.password) | self._tls_options()

    def sentinel_security(self) -> dict[str, Any]:
        """Return the same for the connections to the Sentinels."""
        return self._login_options(self.sentinel_username, self.sentinel_password) | self._tls_options()

    @staticmethod
    def _login_options(username: str | None, password: SecretStr | None) -> dict[str, Any]:
        options: dict[str, Any] = {"username": username} if username is not None else {}
        return options | ({"password": password.get_secret_value()} if password is not None else {})

    def _tls_options(self) -> dict[str, Any]:
        if not self.uses_tls:
            return {}
        files = {"ssl_ca_certs": self.ssl_ca_file, "ssl_certfile": self.ssl_cert_file, "ssl_keyfile": self.ssl_key_file}
        options: dict[str, Any] = {name: str(path) for name, path in files.items() if path is not None}
        if self.ssl_key_password is not None:
            options["ssl_password"] = self.ssl_key_password.get_secret_value()
        # A URL says by its scheme that TLS is meant.
        return (
            options | {"ssl_check_hostname": self.ssl_check_hostname} | ({} if self.mode == "single" else {"ssl": True})
        )

    @property
    def _url(self) -> str:
        return self.url.get_secret_value() if self.url is not None else ""

    @property
    def uses_tls(self) -> bool:
        """Whether servers are reached by TLS."""
        return urlsplit(self._url).scheme == "rediss" if self.mode == "single" else self.tls

    def hints(self) -> Iterator[tuple[str, str]]:
        """Yield key and text for what is allowed and rarely meant."""
        if self.shards > 1 and self.mode != "cluster":
            yield "shards", f"is {self.shards}, which costs time and helps on a cluster only"

    def checks(self) -> tuple[Check, ...]:
        """Return what looks for contradictions within the section."""
        return (*super().checks(), self._place, self._sentinels, self._login, self._tls_files, self._plaintext)

    def _place(self) -> Iterator[tuple[str, str]]:
        """Yield what does not fit the mode."""
        if self.mode == "single":
            yield from self._single()
        else:
            if self.url is not None:
                yield "url", f'is for mode = "single"; with mode = "{self.mode}" name the servers in nodes'
            if not self.nodes:
                yield "nodes", f"is missing; needed: {NODES_ALLOWED}"
        if self.mode == "cluster" and self.database:
            yield "database", f"is {self.database}, but a cluster has database 0 only"

    def _single(self) -> Iterator[tuple[str, str]]:
        if self.nodes:
            yield "mode", 'is "single", which takes a url; nodes need mode = "sentinel" or "cluster"'
        elif self.url is None:
            yield "url", f"is missing; needed: {URL_ALLOWED}"
        if self.database:
            yield "database", 'is for mode = "sentinel"; write it into url: redis://HOST:PORT/DB'
        if self.tls:
            yield "tls", "is for nodes; write rediss:// in url"

    def _sentinels(self) -> Iterator[tuple[str, str]]:
        if self.mode == "sentinel":
            if self.sentinel_service is None:
                yield "sentinel_service", "is missing; needed: the name under which the Sentinels know the master"
            if self.sentinel_username is not None and self.sentinel_password is None:
                yield "sentinel_password", "is missing; sentinel_username needs it"
            return
        for name in ("sentinel_service", "sentinel_username", "sentinel_password"):
            if getattr(self, name) is not None:
                yield name, f'is given, but mode = "{self.mode}" asks no Sentinel'

    def _login(self) -> Iterator[tuple[str, str]]:
        parts = urlsplit(self._url)
        url_password = unquote(parts.password or "")
        if unquote(parts.username or "") and self.username is not None:
            yield "username", "is given twice, here and in url"
        if url_password and self.password is not None:
            yield "password", "is given twice, here and in url"
        if self.username is not None and self.password is None and not url_password:
            yield "password", "is missing; username needs it"

    def _tls_files(self) -> Iterator[tuple[str, str]]:
        for name in ("ssl_ca_file", "ssl_cert_file", "ssl_key_file", "ssl_key_password"):
            if getattr(self, name) is not None and not self.uses_tls:
                cure = "url does not use TLS; write rediss://" if self.mode == "single" else "tls is false"
                yield name, f"is given, but {cure}"
        key_password = self.ssl_key_password.get_secret_value() if self.ssl_key_password else None
        yield from tls_files(self.ssl_ca_file, self.ssl_cert_file, self.ssl_key_file, key_password)
        if self.ssl_key_password is not None and self.ssl_key_file is None:
            yield "ssl_key_password", "is given, but there is no ssl_key_file that it could belong to"

    def _plaintext(self) -> Iterator[tuple[str, str]]:
        if self.uses_tls or self.allow_plaintext:
            return
        parts = urlsplit(self._url)
        if self.mode == "single":
            secret = self.password is not None or parts.password is not None
            if secret and parts.scheme == "redis" and not is_loopback(parts.hostname or ""):
                yield "url", f"sends a password in clear to another machine; use rediss://, or {ALLOW_PLAINTEXT}"
        elif (self.password or self.sentinel_password) and not all(is_loopback(host) for host, _ in self.addresses):
            yield "tls", f"is false: a password is sent in clear to another machine; set it, or {ALLOW_PLAINTEXT}"
