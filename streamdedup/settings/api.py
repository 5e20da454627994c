"""The section ``[api]``: address and access of the HTTP service. A new key also touches ``cli.serve``."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from streamdedup.settings.base import Mistakes, Section
from streamdedup.settings.hosts import Host, is_loopback, parse_host
from streamdedup.settings.kinds import LISTED, File, Flag, Kind, Whole, parse_list, write_list
from streamdedup.settings.tls import tls_file_mistakes


def _host_without_zone(host: str) -> str:
    """Read a host as ``parse_host``, but refuse an IPv6 zone (``fe80::1%eth0``), which no client sends."""
    if "%" in host:
        raise ValueError(f"{host} has a zone")
    return parse_host(host)


Hosts = Annotated[
    tuple[Annotated[str, AfterValidator(_host_without_zone)], ...],
    BeforeValidator(parse_list),
    Kind(f"at most 256 host names or addresses without a port, {LISTED}", write_list),
]


class Api(Section):
    """Address and access of the HTTP service."""

    host: Host = "127.0.0.1"
    """Address of the service; `0.0.0.0` for all addresses of this machine."""
    port: Whole = Field(default=8080, ge=0, le=65535)
    """Port of `host`; with 0 the system chooses one."""
    tokens_file: File = None
    """File with the accepted bearer tokens, one in each line, of at least 22 characters; read again when it changes."""
    allow_anonymous: Flag = False
    """Allow requests without a token on any address: everybody who reaches it can look up texts. Needs
    `allowed_hosts`."""
    allowed_hosts: Hosts = Field(default=(), max_length=256)
    """Without `tokens_file`: [further names](http.md#who-may-ask) by which clients may call the service."""
    ssl_cert_file: File = None
    """Certificate (PEM) of the service; without it HTTP is not encrypted."""
    ssl_key_file: File = None
    """Private key (PEM) of `ssl_cert_file`, without a password."""
    read_from: Literal["master", "replica"] = "master"
    """Which servers of a cluster, or of Sentinels, [to read](http.md#on-a-replica). A replica may lack the newest
    documents."""

    def _check_access(self) -> Mistakes:
        if self.tokens_file is None and not self.allow_anonymous and not is_loopback(self.host):
            cure = "or allow_anonymous = true, with allowed_hosts"
            yield "tokens_file", f"is missing; other machines can reach {self.host} ({cure})"
        if self.tokens_file is not None and self.allow_anonymous:
            yield "allow_anonymous", "is true, but tokens_file is given"
        if self.tokens_file is not None and self.allowed_hosts:
            yield "allowed_hosts", "is given, but with tokens_file requests may name any host"
        if self.tokens_file is None and self.allow_anonymous and not self.allowed_hosts:
            needed = 'the names or addresses by which clients call the service, such as ["dedup.example"]'
            yield "allowed_hosts", f"is missing; allow_anonymous needs {needed}"

    def _check_tls(self) -> Mistakes:
        return tls_file_mistakes(ca=None, cert=self.ssl_cert_file, key=self.ssl_key_file)
