"""The section ``[redis]``: where the index lives."""

from collections.abc import Iterator
from typing import Annotated, Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import AfterValidator, Field, SecretStr

from streamdedup.settings.base import Section
from streamdedup.settings.kafka import ALLOW_PLAINTEXT, is_loopback, tls_files
from streamdedup.settings.units import Duration, File, Flag, Kind, Secret, Text, Whole

#: Schemes of a URL and what they mean.
SCHEMES = {"redis": "TCP", "rediss": "TCP with TLS", "unix": "a socket of this machine"}


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

    url: Annotated[SecretStr, AfterValidator(_check_url), Kind("a text", lambda _value: '"***"')] = Field(
        description="Server and database number: `redis://HOST:PORT/0`, `rediss://` for TLS, `unix:///PATH?db=0`. May "
        "hold user and password, percent-encoded; they are never shown.",
        json_schema_extra={"allowed": '"redis://HOST:PORT/DB", "rediss://HOST:PORT/DB" or "unix:///PATH?db=DB"'},
    )
    url_file: File = Field(default=None, description="File that holds `url`.")
    username: Text | None = Field(
        default=None,
        min_length=1,
        description="User to log in as; the server's default user without it.",
        json_schema_extra={"allowed": "a text that is not empty"},
    )
    password: Secret = Field(default=None, min_length=1, description="Password to log in with.")
    password_file: File = Field(default=None, description="File that holds `password`.")
    ssl_ca_file: File = Field(
        default=None, description="Certificates (PEM) of the authorities to trust; the system's without it."
    )
    ssl_cert_file: File = Field(default=None, description="Certificate (PEM) that this daemon shows.")
    ssl_key_file: File = Field(default=None, description="Private key (PEM) of `ssl_cert_file`.")
    ssl_check_hostname: Flag = Field(
        default=True, description="Whether the server's certificate must carry the name it was reached by."
    )
    allow_plaintext: Flag = Field(
        default=False, description="Allow a password over `redis://` to another machine; anybody between can listen."
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
        """The URL without its password, for logs and messages."""
        return redact_url(self.url.get_secret_value())

    @property
    def address(self) -> str:
        """Server and port, or the socket's path: how to name this server to an operator."""
        parts = urlsplit(self.url.get_secret_value())
        return parts.path if parts.scheme == "unix" else parts.netloc.rpartition("@")[2]

    def security(self) -> dict[str, Any]:
        """Return the Redis client's keyword arguments for TLS and login; secrets in clear, so never log them."""
        options: dict[str, Any] = {}
        if self.username is not None:
            options["username"] = self.username
        if self.password is not None:
            options["password"] = self.password.get_secret_value()
        if self._scheme == "rediss":
            files = {
                "ssl_ca_certs": self.ssl_ca_file,
                "ssl_certfile": self.ssl_cert_file,
                "ssl_keyfile": self.ssl_key_file,
            }
            options.update({name: str(path) for name, path in files.items() if path is not None})
            options["ssl_check_hostname"] = self.ssl_check_hostname
        return options

    @property
    def _scheme(self) -> str:
        return urlsplit(self.url.get_secret_value()).scheme

    def contradictions(self) -> Iterator[tuple[str, str]]:
        """Yield what contradicts within the section."""
        yield from super().contradictions()
        parts = urlsplit(self.url.get_secret_value())
        yield from self._login(unquote(parts.username or ""), unquote(parts.password or ""))
        for name in ("ssl_ca_file", "ssl_cert_file", "ssl_key_file"):
            if getattr(self, name) is not None and self._scheme != "rediss":
                yield name, "is given, but url does not use TLS; write rediss://"
        yield from tls_files(self.ssl_ca_file, self.ssl_cert_file, self.ssl_key_file)
        secret = self.password is not None or parts.password is not None
        if secret and self._scheme == "redis" and not is_loopback(parts.hostname or "") and not self.allow_plaintext:
            yield "url", f"sends a password in clear to another machine; use rediss://, or {ALLOW_PLAINTEXT}"

    def _login(self, url_user: str, url_password: str) -> Iterator[tuple[str, str]]:
        if url_user and self.username is not None:
            yield "username", "is given twice, here and in url"
        if url_password and self.password is not None:
            yield "password", "is given twice, here and in url"
        if self.username is not None and self.password is None and not url_password:
            yield "password", "is missing; username needs it"
