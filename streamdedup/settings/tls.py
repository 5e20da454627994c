"""The TLS keys of the sections ``kafka``, ``redis`` and ``schema_registry``, and the check of their files.

The check reads the files, so that a wrong one is reported at the start, and no library asks a terminal for a password.
"""

import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from streamdedup.settings.base import Mistakes, Section
from streamdedup.settings.kinds import File, Flag

#: OpenSSL's name for a key that belongs to another certificate.
_MISMATCH = "KEY_VALUES_MISMATCH"


class TlsSection(Section):
    """A section whose connections may use TLS."""

    ssl_ca_file: File = None
    """Certificates (PEM) of the trusted authorities; without it those of the system."""
    ssl_cert_file: File = None
    """Certificate (PEM) of this daemon."""
    ssl_key_file: File = None
    """Private key (PEM) of `ssl_cert_file`, without a password."""
    ssl_check_hostname: Flag = True
    """Whether the server's certificate must carry the host name of the connection."""

    def tls_options(self, ca_option: str) -> dict[str, Any]:
        """Return the TLS options for the clients of Kafka and Redis; ``ca_option``: their name for ``ssl_ca_file``."""
        files = {ca_option: self.ssl_ca_file, "ssl_certfile": self.ssl_cert_file, "ssl_keyfile": self.ssl_key_file}
        options: dict[str, Any] = {name: str(path) for name, path in files.items() if path is not None}
        return options | {"ssl_check_hostname": self.ssl_check_hostname}

    def tls_context(self) -> ssl.SSLContext:
        """Return a context for the schema registry, of the files as they are now; ``OSError`` where one is unusable."""
        context = ssl.create_default_context(cafile=self.ssl_ca_file)
        context.check_hostname = self.ssl_check_hostname
        if self.ssl_cert_file is not None:
            # The empty password keeps OpenSSL from asking for one.
            context.load_cert_chain(self.ssl_cert_file, self.ssl_key_file, password="")
        return context

    def tls_mistakes(self, reason_unused: str | None) -> Mistakes:
        """Yield the mistakes about TLS files; ``reason_unused``: why connections do not use TLS, None if they do."""
        for name in ("ssl_ca_file", "ssl_cert_file", "ssl_key_file"):
            if reason_unused is not None and getattr(self, name) is not None:
                yield name, f"is given, but {reason_unused}"
        yield from tls_file_mistakes(self.ssl_ca_file, self.ssl_cert_file, self.ssl_key_file)


def is_file(path: Path) -> bool:
    """Return whether a path names a file; False where the path cannot be one."""
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder without permission
        return False


def tls_file_mistakes(ca: Path | None, cert: Path | None, key: Path | None) -> Mistakes:
    """Yield key and text for each mistake about TLS files; None for a file that is not given."""
    files = {"ssl_ca_file": ca, "ssl_cert_file": cert, "ssl_key_file": key}
    absent = [(name, path) for name, path in files.items() if path is not None and not is_file(path)]
    for name, path in absent:
        yield name, f"names no file that can be read: {path}"
    if cert is not None and key is None:
        yield "ssl_key_file", "is missing; ssl_cert_file needs it"
    if key is not None and cert is None:
        yield "ssl_cert_file", "is missing; ssl_key_file needs it"
    if not absent:
        yield from _unusable_files(ca, cert, key)


def _unusable_files(ca: Path | None, cert: Path | None, key: Path | None) -> Mistakes:
    """Yield key and text for each TLS file with wrong content; the key is checked if the other files are usable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    are_usable = True
    for name, path in (("ssl_ca_file", ca), ("ssl_cert_file", cert)):
        if path is not None:
            reason = _mistake_of(partial(context.load_verify_locations, path), "holds no certificate (PEM)")
            if reason is not None:
                are_usable = False
                yield name, f"{reason}: {path}"
    if are_usable and cert is not None and key is not None:
        no_key = "holds no private key (PEM) that can be read, or one with a password, which it must not have"
        reason = _mistake_of(partial(context.load_cert_chain, cert, key, password=""), no_key)  # as in ``tls_context``
        if reason is not None:
            yield "ssl_key_file", f"{reason}: {key}"


def _mistake_of(load: Callable[[], object], wrong_content: str) -> str | None:
    try:
        load()
    except OSError as error:
        if getattr(error, "reason", None) == _MISMATCH:
            return "is not the key of ssl_cert_file"
        return wrong_content if isinstance(error, ssl.SSLError) else f"cannot be read ({error.strerror})"
    return None
