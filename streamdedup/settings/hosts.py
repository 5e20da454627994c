"""Checks of host names and URLs, for several sections and ``cli.serve``."""

import re
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator

from streamdedup.settings.kinds import Kind


def is_loopback(host: str) -> bool:
    """Return whether a host name or address, IPv6 also in brackets, belongs to this machine."""
    name = host.strip("[]").lower()
    return name in {"localhost", "::1"} or re.fullmatch(r"127(\.[0-9]{1,3}){3}", name) is not None


def _valid_url(url: str | None) -> str | None:
    """Return a URL without login, query and fragment, or None, unchanged; ``ValueError`` for anything else."""
    if url is not None:
        parts = urlsplit(url)
        # `parts.port` and `encode` raise ValueError for a port or name that cannot exist.
        is_usable = parts.scheme in {"http", "https"} and parts.port != 0 and (parts.hostname or "").encode("idna")
        if not is_usable or parts.username is not None or parts.query or parts.fragment:
            raise ValueError("not such a URL")
    return url


HttpUrl = Annotated[
    str | None,
    AfterValidator(_valid_url),
    Kind('a URL without login, query or fragment, such as "https://HOST:PORT/PATH"'),
]
