"""Ports for the embedded servers, chosen so that programs side by side never choose the same one."""

import contextlib
import os
import random
import socket
import threading

from streamdedup.embedded.process import LOOPBACK, ServerError

#: Ports to choose from: below those that Linux (32768 up) and macOS (49152 up) hand out for outgoing connections. A
#: client that retries while its server is down could otherwise be given the very port that it connects to, reach
#: itself, and keep the server from coming back.
PORTS = range(20000, 32000)
#: Number of ports that a process reserves at once.
BLOCK_PORTS = 100


def free_ports(count: int = 1) -> list[int]:
    """Return ``count`` distinct ports on which nothing listens, reserved until this process ends.

    No two processes that call this function get the same port, not even while the server of one is down. A program that
    does not call it may still take a port first, so the start of a server retries with new ports.

    Raises:
        ServerError: Fewer than ``count`` ports are free.
    """
    ports: list[int] = []
    while len(ports) < count:
        candidate = _RESERVATIONS.next()
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((LOOPBACK, candidate))
            ports.append(candidate)
    return ports


class _Reservations:
    """Blocks of ports that belong to this process, each handed out port by port.

    The first port of a block is the reservation: this process keeps it bound, so no other process can bind it. The
    system releases it when the process ends, kill -9 included.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner_pid = 0
        self._left: list[int] = []

    def next(self) -> int:
        """Return a port of a reserved block that was not returned before.

        Raises:
            ServerError: All blocks are reserved.
        """
        with self._lock:
            if self._owner_pid != os.getpid():
                # A forked child holds the parent's sockets too, but the ports of these blocks are the parent's.
                self._left.clear()
                self._owner_pid = os.getpid()
            if not self._left:
                self._left = self._reserve()
            return self._left.pop()

    def _reserve(self) -> list[int]:
        """Return the ports of a block that no process has reserved."""
        blocks = range(PORTS.start, PORTS.stop, BLOCK_PORTS)
        # The order is random so that programs side by side rarely try the same block; no secret depends on it.
        for first in random.sample(blocks, len(blocks)):
            holder = socket.socket()
            try:
                holder.bind((LOOPBACK, first))
            except OSError:
                holder.close()
                continue
            holder.detach()  # bound until the process ends
            return list(range(first + 1, min(first + BLOCK_PORTS, PORTS.stop)))
        raise ServerError(f"all ports from {PORTS.start} to {PORTS.stop - 1} are in use or reserved")


_RESERVATIONS = _Reservations()
