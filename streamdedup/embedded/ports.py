"""Ports for the embedded servers, reserved so that programs side by side never choose the same one."""

import contextlib
import fcntl
import os
import random
import socket
import tempfile
import threading
from pathlib import Path

from streamdedup.embedded.process import LOOPBACK, ServerError

#: Ports to choose from: below those that Linux (32768 up) and macOS (49152 up) hand out for outgoing connections. A
#: client that retries while its server is down could otherwise be given the very port that it connects to, reach
#: itself, and keep the server from coming back.
PORTS = range(20000, 32000)


def free_ports(count: int = 1) -> list[int]:
    """Reserve ``count`` distinct ports on which nothing listens; the reservation ends with this process.

    Processes of one user that call this function never get the same port, not even while its server is down. A program
    that does not reserve its ports may still take one first, so the start of a server retries with new ports.

    Raises:
        ServerError: Fewer than ``count`` ports are free.
    """
    ports: list[int] = []
    # In a random order, so that programs side by side rarely try the same port; no secret depends on it.
    for candidate in random.sample(PORTS, len(PORTS)):
        if len(ports) == count:
            break
        if _RESERVATIONS.take(candidate):
            with contextlib.suppress(OSError), socket.socket() as probe:
                probe.bind((LOOPBACK, candidate))
                ports.append(candidate)
    if len(ports) < count:
        raise ServerError(f"fewer than {count} ports from {PORTS.start} to {PORTS.stop - 1} are free on this machine")
    return ports


class _Reservations:
    """Locks on ports between the processes of one user: byte N of one file is locked by the owner of port N.

    The system releases the locks when the process ends, kill -9 included.
    """

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._lock = threading.Lock()
        self._owner_pid = 0
        self._file = -1

    def take(self, port: int) -> bool:
        """Reserve ``port``; return False when this process or another one has it already."""
        with self._lock:
            self._open()
            if port in self._taken:
                return False
            try:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
            except (BlockingIOError, PermissionError):  # POSIX allows both answers
                return False
            self._taken.add(port)
            return True

    def _open(self) -> None:
        """Open the file at the first use in this process: a forked child inherits the descriptor, but no lock."""
        if self._owner_pid != os.getpid():
            path = Path(tempfile.gettempdir()) / f"streamdedup-ports-{os.getuid()}"
            # Never closed: closing any descriptor of the file would release every lock of this process.
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            self._owner_pid = os.getpid()
            self._taken.clear()


_RESERVATIONS = _Reservations()
