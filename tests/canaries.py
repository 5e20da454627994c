"""Secrets that the tests use, chosen so that no output could hold them by chance."""

from pathlib import Path

#: Files for TLS on localhost.
TLS = Path(__file__).parent / "tls"
#: Password of ``encrypted.key`` among them, which is refused.
KEY_PASSWORD = "canary-3-of-the-key"
#: Passwords of Kafka and of Redis, with characters that are written otherwise in addresses and in quotes.
PASSWORDS = {"kafka": "canary-1/of+kafka?%41", "redis": "canary-2@of:redis/#%42"}
