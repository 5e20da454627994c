"""The section ``[schema_registry]``: the server with the schemas of Avro, JSON Schema and Protobuf values."""

from base64 import b64encode
from urllib.parse import urlsplit

from pydantic import Field

from streamdedup.errors import SettingsError
from streamdedup.settings.base import Mistakes
from streamdedup.settings.hosts import HttpUrl, is_loopback
from streamdedup.settings.kinds import Duration, File, OptionalText, Secret
from streamdedup.settings.tls import TlsSection

#: Why keys of login and TLS have no effect; the end of a message.
_NO_URL = "url is missing"


class SchemaRegistry(TlsSection):
    """Server, login and TLS of the schema registry, for profiles whose `format` has schemas, and for alerts in Avro."""

    url: HttpUrl = None
    """Address of the API of Confluent's Schema Registry; other registries serve this API below a path, such as
    `http://HOST:PORT/apis/ccompat/v7`."""
    username: OptionalText = None
    """User of a login with `password`."""
    password: Secret = None  # set from ``password_file``, if that is given, when settings are loaded (``sources``)
    """Password of `username`; without `username` a bearer token."""
    password_file: File = None
    """File that holds `password`."""
    timeout_s: Duration = Field(default=10.0, ge=0.1, le=30.0)
    """Time limit of a request and its answer together; all schemas that one schema refers to share twice that time."""

    def authorization(self) -> str | None:
        """Return the header ``Authorization``, after reading ``password_file`` again; None without a login."""
        password = self.secret("password")
        if password is None:
            return None
        if self.username is None:
            if not (password.isascii() and password.isprintable()):
                raise SettingsError("a bearer token has printable ASCII characters only")
            return f"Bearer {password}"
        return f"Basic {b64encode(f'{self.username}:{password}'.encode()).decode()}"

    def hints(self) -> Mistakes:
        parts = urlsplit(self.url or "")
        if self.password is not None and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            yield "url", "sends the password in clear to another machine; use https:// where the registry has it"

    def _check_login(self) -> Mistakes:
        if self.username is not None and self.password is None:
            yield "password", "is missing; username needs it"

    def _check_url(self) -> Mistakes:
        if self.url is None:
            for name in ("username", "password"):
                if getattr(self, name) is not None:
                    yield name, f"is given, but {_NO_URL}"

    def _check_tls(self) -> Mistakes:
        if self.url is None:
            return self.tls_mistakes(reason_unused=_NO_URL)
        uses_tls = urlsplit(self.url).scheme == "https"
        return self.tls_mistakes(reason_unused=None if uses_tls else "url does not use TLS; write https://")
