"""The section ``[schema_registry]``: where the schemas of Avro values are."""

from base64 import b64encode
from collections.abc import Iterator
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from streamdedup.errors import SettingsError
from streamdedup.settings.base import Check, Section
from streamdedup.settings.kafka import check_url, is_loopback
from streamdedup.settings.tls import is_file, unusable_files
from streamdedup.settings.units import File, Kind, OptionalText, Secret


class SchemaRegistry(Section):
    """Server, login and TLS of the schema registry, for profiles whose `format` has schemas."""

    url: Annotated[
        str | None, AfterValidator(check_url), Kind('a URL without a login, such as "https://HOST:PORT"')
    ] = None
    """Address of the API of Confluent's Schema Registry; other registries serve this API below a path, such as
    `http://HOST:PORT/apis/ccompat/v7`."""
    username: OptionalText = None
    """User of a login with `password`."""
    password: Secret = None
    """Password of `username`; without `username` a bearer token."""
    password_file: File = None
    """File that holds `password`; read again for each request."""
    ssl_ca_file: File = None
    """Certificates (PEM) of the trusted authorities of `https://`; without it those of the system."""

    def authorization(self) -> str | None:
        """Return the header ``Authorization``, with the content of ``password_file`` at present; None for no login.

        Raises:
            SettingsError: The file cannot be read, or a token has characters that no header may have.
        """
        password = self.secret("password")
        if password is None:
            return None
        if self.username is None:
            if not (password.isascii() and password.isprintable()):
                raise SettingsError("a bearer token has printable ASCII characters only")
            return f"Bearer {password}"
        return f"Basic {b64encode(f'{self.username}:{password}'.encode()).decode()}"

    def hints(self) -> Iterator[tuple[str, str]]:
        """Yield key and text for each value that is allowed but rarely useful."""
        parts = urlsplit(self.url or "")
        if self.password is not None and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
            yield "url", "sends the password in clear to another machine; use https:// where the registry has it"

    def checks(self) -> tuple[Check, ...]:
        """Return the checks for contradictions within the section."""
        return (*super().checks(), self._login, self._ca)

    def _login(self) -> Iterator[tuple[str, str]]:
        if self.username is not None and self.password is None:
            yield "password", "is missing; username needs it"

    def _ca(self) -> Iterator[tuple[str, str]]:
        if self.ssl_ca_file is None:
            return
        if not is_file(self.ssl_ca_file):
            yield "ssl_ca_file", f"names no file that can be read: {self.ssl_ca_file}"
        elif not (self.url or "").startswith("https:"):
            yield "ssl_ca_file", "is given, but url does not use TLS; write https://"
        else:
            yield from unusable_files(self.ssl_ca_file, None, None)
