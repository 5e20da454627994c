"""Secrets that the tests use, chosen so that no output could hold them by chance."""

from pathlib import Path

#: Files for TLS on localhost.
TLS = Path(__file__).parent / "tls"
#: Password of ``encrypted.key`` among them.
KEY_PASSWORD = "canary-3-of-the-key"
