"""Whether the files of a TLS client can be used: looked into while settings are checked, so that no connection fails of
them later, and no library asks a terminal for a password."""  # noqa: D205, D209  one thought

import ssl
from collections.abc import Iterator
from pathlib import Path

#: What OpenSSL calls a key that belongs to another certificate.
_MISMATCH = "KEY_VALUES_MISMATCH"


def unusable_files(
    ca: Path | None, cert: Path | None, key: Path | None, key_password: str | None = None
) -> Iterator[tuple[str, str]]:
    """Yield key and text for every file that exists and cannot be used.

    Args:
        ca: Certificates of the authorities to trust.
        cert: Our certificate.
        key: Its private key.
        key_password: Password of the private key.
    """
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
    """Say why a file does not serve as certificates, or return None."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
    except ssl.SSLError:
        return "holds no certificate (PEM)"
    except OSError as error:
        return f"cannot be read ({error.strerror})"
    return None


def _key_mistake(cert: Path, key: Path, password: str | None) -> str | None:
    """Say why the key does not go with the certificate, or return None."""
    try:
        # An empty password keeps OpenSSL from asking for one.
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key, password=password or "")
    except OSError as error:
        if getattr(error, "reason", None) == _MISMATCH:
            return "is not the key of ssl_cert_file"
        if not isinstance(error, ssl.SSLError):
            return f"cannot be read ({error.strerror})"
        return "holds no private key (PEM) that can be read; if it is encrypted, its password is missing or wrong"
    return None
