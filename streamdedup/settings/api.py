"""The section ``[api]``: the HTTP service ``streamdedup serve``."""

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field

from streamdedup.settings.base import Check, Section
from streamdedup.settings.kafka import is_loopback
from streamdedup.settings.tls import is_file, unusable_files
from streamdedup.settings.units import LISTED, Duration, File, Flag, Kind, Size, Whole, parse_list, write_list

#: Accepted addresses of metrics, for messages and documentation.
_METRICS_ALLOWED = '"http://HOST:PORT/metrics" or "https://HOST:PORT/metrics"'

#: A host name, with underscores as in names of containers.
_HOST_NAME = re.compile(r"(?=.{1,254}$)[A-Za-z0-9_-]{1,63}(\.[A-Za-z0-9_-]{1,63})*\.?")


def _check_host(host: str) -> str:
    """Accept a host name or an address, IPv6 also in brackets.

    Raises:
        ValueError: Anything else, a port, a wildcard and the zone of an address included: no client sends a zone.
    """
    if _HOST_NAME.fullmatch(host) is None:
        address = ip_address(host[1:-1] if host.startswith("[") and host.endswith("]") else host)
        if "%" in str(address):
            raise ValueError(f"{host} has a zone")
    return host


def _check_metrics_url(url: str) -> str:
    """Accept addresses of HTTP without a login, because answers show them.

    Raises:
        ValueError: Another scheme, no host, a login or a fragment.
    """
    parts = urlsplit(url)
    # The property raises ValueError for an impossible port.
    if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc or parts.port == 0:
        raise ValueError("not an address of metrics")
    # Raises ValueError for an empty part of the name, or one of more than 63 characters.
    parts.hostname.encode("idna")
    if parts.fragment or not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("not an address of metrics")
    return url


#: Hosts, as a list or with commas between them.
Hosts = Annotated[
    tuple[Annotated[str, AfterValidator(_check_host)], ...],
    BeforeValidator(parse_list),
    Kind(f"host names or addresses without a port, {LISTED}", write_list),
]
#: Addresses of metrics, as a list or with commas between them.
MetricsUrls = Annotated[
    tuple[Annotated[str, AfterValidator(_check_metrics_url)], ...],
    BeforeValidator(parse_list),
    Kind(f"{_METRICS_ALLOWED}, {LISTED}", write_list),
]


class Api(Section):
    """Address, access and limits of the HTTP service; a daemon reads none of them."""

    host: Annotated[str, Field(min_length=1), Kind("a host name or address")] = "127.0.0.1"
    """Address of the service; `0.0.0.0` for all addresses of this machine."""
    port: Whole = Field(default=8080, ge=0, le=65535)
    """Port of `host`; with 0 the system chooses one."""
    tokens_file: File = None
    """File with the bearer tokens that are accepted, one in each line of at least 22 characters; several for rotation.
    Read at the start. Required where `host` is not an address of this machine alone."""
    allow_anonymous: Flag = False
    """Allow requests without a token on any address, although everybody who reaches it can look up texts. Needs
    `allowed_hosts`."""
    allowed_hosts: Hosts = Field(default=(), max_length=256)
    """Hosts that the `Host` header of a request without tokens may name, at any port, besides `localhost`, `127.0.0.1`,
    `[::1]` and `host`: the names by which clients call the service. Where `host` is not an address of this machine
    alone, the header may be any IP address too."""
    ssl_cert_file: File = None
    """Certificate (PEM) of the service; without it HTTP is not encrypted."""
    ssl_key_file: File = None
    """Private key (PEM) of `ssl_cert_file`, without a password."""
    read_from: Literal["master", "replica"] = "master"
    """Servers of a cluster, or of Sentinels, that are read; a master without a replica is read itself. A single server
    is read at `redis.url`, master or replica. Replicas answer from a moment ago."""
    max_body_bytes: Size = Field(default=8_388_608, ge=1_024, le=1_073_741_824)
    """Longest body of a request."""
    max_bodies_bytes: Size = Field(default=67_108_864, ge=1_024, le=68_719_476_736)
    """Most bytes of the bodies of all requests in progress, together; a request beyond is answered by 429. A process
    needs several times as much memory while it answers them."""
    max_requests: Whole = Field(default=256, ge=1, le=65_536)
    """Most requests in progress; a further one is answered by 429."""
    max_connections: Whole = Field(default=512, ge=1, le=65_536)
    """Most open connections, those without a request included; a further one is answered by 429 and closed. Below the
    limit of open files of the process."""
    max_subscribers: Whole = Field(default=64, ge=1, le=65_536)
    """Most open streams of alerts, and as many of dead letters, beside `max_requests`; a further one is answered by
    429."""
    timeout_s: Duration = Field(default=10.0, ge=0.1, le=600.0)
    """Time for one request, from its headers to the end of the answer; of a stream, to its beginning. The headers have
    as much time, from their first byte."""
    gather_s: Duration = Field(default=0.0, ge=0.0, le=0.1)
    """Time for which a look-up waits for others while no pass of the index runs. Look-ups that arrive during a pass are
    answered together by the next one in any case."""

    max_cluster_members: Whole = Field(default=100_000, ge=0, le=100_000_000)
    """Most members of clusters that are kept in memory, about 600 bytes each; with 0 the alerts topic is not followed
    for them."""
    cluster_lookback_s: Duration = Field(default=3_600.0, ge=0.0, le=2_592_000.0)
    """Age of the first alerts that are read at the start for the members of clusters."""
    daemon_metrics: MetricsUrls = Field(default=(), max_length=256)
    """Addresses of the daemons' metrics, for `/v1/state`; without any it reads Kafka and Redis. A host name with
    several addresses names a daemon at each."""

    def checks(self) -> tuple[Check, ...]:
        """Return the checks for contradictions within the section."""
        return (*super().checks(), self._access, self._bodies, self._tls)

    def _access(self) -> Iterator[tuple[str, str]]:
        if self.tokens_file is None and not self.allow_anonymous and not is_loopback(self.host):
            yield (
                "tokens_file",
                f"is missing; other machines can reach {self.host} (or allow_anonymous = true, with allowed_hosts)",
            )
        if self.tokens_file is not None and self.allow_anonymous:
            yield "allow_anonymous", "is true, but tokens_file is given"
        if self.tokens_file is not None and self.allowed_hosts:
            yield "allowed_hosts", "is given, but with tokens_file requests may name any host"
        if self.tokens_file is None and self.allow_anonymous and not self.allowed_hosts:
            needed = 'the names or addresses by which clients call the service, such as ["dedup.example"]'
            yield "allowed_hosts", f"is missing; allow_anonymous needs {needed}"

    def _bodies(self) -> Iterator[tuple[str, str]]:
        if self.max_bodies_bytes < self.max_body_bytes:
            yield "max_bodies_bytes", "must be at least max_body_bytes, or the longest body could never be sent"

    def _tls(self) -> Iterator[tuple[str, str]]:
        cert, key = self.ssl_cert_file, self.ssl_key_file
        if (cert is None) != (key is None):
            yield "ssl_key_file" if key is None else "ssl_cert_file", "is missing; both files are needed"
        elif cert is not None and key is not None:
            files = {"ssl_cert_file": cert, "ssl_key_file": key}
            absent = [name for name, path in files.items() if not is_file(path)]
            yield from ((name, f"names no file that can be read: {files[name]}") for name in absent)
            if not absent:
                yield from unusable_files(None, cert, key, "")
