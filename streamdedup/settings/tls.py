"""Contradictions among the TLS keys of a client, and files that a client cannot use.

The files are read while settings are checked, so that no connection fails of them later, and no library asks a terminal
for a password.
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamdedup.settings.kafka import Kafka
    from streamdedup.settings.redis import Redis

#: OpenSSL's name for a key that belongs to another certificate.
_MISMATCH = "KEY_VALUES_MISMATCH"


def tls_contradictions(section: Kafka | Redis, unused: str | None) -> Iterator[tuple[str, str]]:
    """Yield key and text for each TLS key without effect or companion, and for each file that cannot be used.

    Args:
        section: The keys.
        unused: Why the client does not use TLS, None if it does.
    """
    for name in ("ssl_ca_file", "ssl_cert_file", "ssl_key_file", "ssl_key_password"):
        if unused is not None and getattr(section, name) is not None:
            yield name, f"is given, but {unused}"
    cert, key, password = section.ssl_cert_file, section.ssl_key_file, section.ssl_key_password
    files = {"ssl_ca_file": section.ssl_ca_file, "ssl_cert_file": cert, "ssl_key_file": key}
    absent = [(name, path) for name, path in files.items() if path is not None and not _is_file(path)]
    for name, path in absent:
        yield name, f"names no file that can be read: {path}"
    if cert is not None and key is None:
        yield "ssl_key_file", "is missing; ssl_cert_file needs it"
    if key is not None and cert is None:
        yield "ssl_cert_file", "is missing; ssl_key_file needs it"
    if not absent:
        yield from _unusable_files(section.ssl_ca_file, cert, key, password.get_secret_value() if password else "")
    if password is not None and key is None:
        yield "ssl_key_password", "is given, but there is no ssl_key_file that it could belong to"


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # a name that is too long, a folder without permission
        return False


def _unusable_files(
    ca: Path | None, cert: Path | None, key: Path | None, key_password: str
) -> Iterator[tuple[str, str]]:
    usable = True
    for name, path in (("ssl_ca_file", ca), ("ssl_cert_file", cert)):
        reason = None if path is None else _certificate_mistake(path)
        if reason is not None:
            usable = False
            yield name, f"{reason}: {path}"
    if usable and cert is not None and key is not None:
        reason = _key_mistake(cert, key, key_password)
        if reason is not None:
            yield "ssl_key_file", f"{reason}: {key}"


def _certificate_mistake(path: Path) -> str | None:
    """Return why a file holds no usable certificates, or None."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return "holds no certificate (PEM)"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None


def _key_mistake(cert: Path, key: Path, password: str) -> str | None:
    """Return why a key does not go with a certificate, or None."""
    try:
        # An empty password keeps OpenSSL from asking for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key, password=password)
    except OSError as error:
        if getattr(error, "reason", None) == _MISMATCH:
            return "is not the key of ssl_cert_file"
        if not isinstance(error, ssl.SSLError):
            return f"cannot be read ({error.strerror})"
        return "holds no private key (PEM) that can be read; if it is encrypted, its password is missing or wrong"
    return None
