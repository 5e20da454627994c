"""Kinds of host names, servers and URLs, and the test for this machine."""

import re
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator

from streamdedup.settings.kinds import LISTED, Kind, parse_list, write_list

#: A host name of at most 254 characters, also with underscores, as in names of containers.
_HOST_NAME = re.compile(r"(?=.{1,254}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")
#: One server: name, IPv4 address or bracketed IPv6 address, and port.
_SERVER = re.compile(r"([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):([0-9]{1,5})")
SERVERS_ALLOWED = 'servers as "host:port"'
#: Advice for networks that are known to be safe.
ALLOW_PLAINTEXT = "set allow_plaintext = true if the network is safe"


def is_loopback(host: str) -> bool:
    """Return whether a host name or address, IPv6 also in brackets, belongs to this machine."""
    name = host.strip("[]").lower()
    return name in {"localhost", "::1"} or re.fullmatch(r"127(\.[0-9]{1,3}){3}", name) is not None


def parse_host(host: str) -> str:
    """Read a host name or address, IPv6 also in brackets; ``ValueError`` for a port, or ``*.example.org``."""
    if _HOST_NAME.fullmatch(host) is not None and host.strip("0123456789."):
        return host
    address = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    ip_address(address)
    return address


Host = Annotated[
    str,
    AfterValidator(parse_host),
    Kind("a host name or address without a port", hint=', such as "127.0.0.1", "::1" or "0.0.0.0"'),
]


def _valid_server(server: str) -> str:
    """Return a server unchanged; ``ValueError`` unless it is a possible host name or address, and a port."""
    match = _SERVER.fullmatch(server)
    if match is None or not 0 < int(match[2]) < 65536:
        raise ValueError("not a server")
    match[1].encode("idna")  # raises a ValueError for an empty label, and for one of more than 63 characters
    return server


Servers = Annotated[
    tuple[Annotated[str, AfterValidator(_valid_server)], ...],
    BeforeValidator(parse_list),
    Kind(f"{SERVERS_ALLOWED}, {LISTED}", write_list),
]


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
