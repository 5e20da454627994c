"""Which requests the service answers: the bearer tokens of a file, and the hosts that a request may name."""

import hmac
import re
import stat
from codecs import BOM_UTF8
from collections.abc import Collection
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Final

import structlog

from streamdedup.errors import SettingsError

_SHORTEST_TOKEN: Final = 22  # shortest token, in characters: 128 bits in Base64
_LOCAL_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "::1"})  # hosts that a request may always name
#: A Host header: an IPv6 address in brackets, or a name or an IPv4 address; then a port.
_HOST: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\[\]:]+))(?::[0-9]*)?")

log = structlog.get_logger("streamdedup.serve")


class Tokens:
    """The bearer tokens of a file, one in each line, kept as digests; empty lines and ``#`` lines are left out."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # The state first: the next request notices a change of the file during or after the reading.
        self._state = _file_state(path)
        self._digests = _read_digests(path)

    def allow(self, authorization: bytes) -> bool:
        """Tell whether an Authorization header has one of the tokens, in the same time for every token."""
        self._read_again_if_changed()
        scheme, _, token = authorization.partition(b" ")
        digest = sha256(token.strip()).digest()
        # Digests have one length, and the list has a result for each of them (`any` alone would stop at the first
        # match), so the time does not depend on the token.
        matches = [hmac.compare_digest(digest, accepted) for accepted in self._digests]
        return scheme.lower() == b"bearer" and any(matches)

    def _read_again_if_changed(self) -> None:
        """Take the tokens of a file that has changed; keep the present ones if the file cannot be used."""
        if (state := _file_state(self._path)) == self._state:
            return
        self._state = state  # also of a file that cannot be used: one change is logged once
        try:
            self._digests = _read_digests(self._path)
        except SettingsError as error:
            log.error("tokens_refused", reason=str(error))  # noqa: TRY400  a traceback tells nothing more
        else:
            log.info("tokens_read", tokens=len(self._digests))


def _file_state(path: Path) -> tuple[int, int, int] | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def _read_digests(path: Path) -> list[bytes]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # a pipe or a device may never end
            raise SettingsError(f"api.tokens_file: is no regular file: {path}")
        text = path.read_bytes().removeprefix(BOM_UTF8).decode("ascii")  # some editors write a byte order mark
    except OSError as error:
        raise SettingsError(f"api.tokens_file: cannot be read ({error.strerror}): {path}") from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"api.tokens_file: must be ASCII: {path}") from error
    lines = enumerate(map(str.strip, text.splitlines()), start=1)
    tokens = [(line_number, line) for line_number, line in lines if line and not line.startswith("#")]
    if not tokens:
        raise SettingsError(f"api.tokens_file: holds no token: {path}")
    for line_number, token in tokens:
        if len(token) < _SHORTEST_TOKEN or len(token.split()) > 1:
            advice = f"needs a token of at least {_SHORTEST_TOKEN} characters without blanks: openssl rand -base64 32"
            raise SettingsError(f"api.tokens_file: line {line_number} {advice}")
    return [sha256(token.encode()).digest() for _, token in tokens]


class AllowedHosts:
    """Hosts that a request may name while no token is required; ``_LOCAL_HOSTS`` are always among them.

    The request of a web page that rebinds DNS has the page's DNS name in its Host header, never an IP address: with
    ``any_address``, for probes, every address is allowed. Litestar 2.25 has a middleware that compares ports too.
    """

    def __init__(self, hosts: Collection[str] = (), *, any_address: bool = False) -> None:
        self._hosts = _LOCAL_HOSTS | {_canonical(host.strip("[]")) for host in hosts}
        self._any_address = any_address

    def allow(self, header: bytes) -> bool:
        """Tell whether a Host header names an allowed host, at any port."""
        match = _HOST.fullmatch(header.decode("latin-1"))
        if match is None:
            return False
        host = match[1] or match[2]
        return _canonical(host) in self._hosts or (self._any_address and _is_address(host))


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _canonical(host: str) -> str:
    """Return the one form of a host: IPv6 addresses have several spellings, and names may end with a dot."""
    return str(ip_address(host)) if _is_address(host) else host.lower().removesuffix(".")
