"""Free ports of this machine, for ``embedded.redis``, ``cli.demo_servers`` and servers of tests."""

import contextlib
import random
import socket
from typing import Final

from streamdedup.embedded.process import LOOPBACK, ServerError

#: Below the ports of outgoing connections on Linux (from 32768) and macOS (from 49152): a client that retries while its
#: server is down could get the port of the server, connect to itself, and block the restart.
PORTS: Final = range(20000, 32000)


def free_ports(count: int = 1) -> list[int]:
    """Return distinct free ports, in random order and not reserved: the start of a server retries with others."""
    ports: list[int] = []
    for candidate in random.sample(PORTS, len(PORTS)):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind((LOOPBACK, candidate))
            ports.append(candidate)
        if len(ports) == count:
            return ports
    raise ServerError(f"fewer than {count} ports from {PORTS.start} to {PORTS.stop - 1} are free")
