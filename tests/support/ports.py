"""Ports for private servers; test runs and benchmarks at the same time never choose the same port."""

import contextlib
import os
import random
import socket
import threading

from streamdedup.embedded import redis
from streamdedup.embedded.ports import PORTS as ALL_PORTS
from streamdedup.embedded.process import LOOPBACK, ServerError

#: Range of ports.
PORTS = ALL_PORTS
#: Ports that a process reserves at once.
BLOCK_PORTS = 100


def free_ports(count: int = 1) -> list[int]:
    """Return ``count`` distinct free ports, reserved until this process ends.

    Two processes that call this function never get the same port, not even while a server is down. Another program may
    still take a port first, so the start of a server retries with new ports.

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


def accepts_connections(port: int) -> bool:
    try:
        with socket.create_connection((LOOPBACK, port), timeout=1.0):
            return True
    except OSError:
        return False


class _Reservations:
    """Blocks of ports that belong to this process.

    The first port of a block is the reservation: this process keeps it bound, so that no other process can bind it. The
    system releases the port when the process ends, also by kill -9.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner_pid = 0
        self._left: list[int] = []

    def next(self) -> int:
        """Return a further port of a reserved block.

        Raises:
            ServerError: All blocks are reserved.
        """
        with self._lock:
            if self._owner_pid != os.getpid():
                # A forked child inherits the sockets, but the blocks belong to the parent.
                self._left.clear()
                self._owner_pid = os.getpid()
            if not self._left:
                self._left = self._reserve()
            return self._left.pop()

    def _reserve(self) -> list[int]:
        """Reserve a free block and return its ports."""
        blocks = range(PORTS.start, PORTS.stop, BLOCK_PORTS)
        # In random order, so that programs at the same time rarely try the same block; no secret depends on the order.
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
# The Redis servers of tests are killed and started again: no other process may take the port meanwhile.
redis.free_ports = free_ports
