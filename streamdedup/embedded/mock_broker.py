"""The in-memory broker inside librdkafka, for the demo: the real protocol on a TCP port, nothing to install.

What it is not good for, measured with the version that the lock file names:

- Transactions are not isolated, and nothing is fenced.
- A partition keeps about its last 5 MB. A reader that falls further behind is moved by its ``auto_offset_reset``:
  silently to the oldest record left, silently to the end, or, with "none", by an error. Only "none" shows a loss.
- A member that joins its group again waits for the session timeout less a second: keep that timeout short.
- kafka-python must be told ``api_version=(2, 3)``; topics cannot be created through it, settings not be read.
"""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from streamdedup.embedded.process import ManagedProcess, MissingToolError, accepts

#: Protocol version to name to kafka-python; it cannot find out by itself here.
MOCK_API_VERSION = (2, 3)

_CHILD = Path(__file__).with_name("mock_child.py")


class MockBroker(ManagedProcess):
    """One broker in a process of its own; started again, it is empty and has another port.

    Args:
        topics: Number of partitions by topic, for topics that exist from the start. Others come into being with four
            partitions when a client asks for their metadata.
        directory: Where the log goes; None takes a private one that ``close`` removes.

    Raises:
        MissingToolError: The confluent-kafka package is not installed.
    """

    def __init__(self, topics: Mapping[str, int] | None = None, directory: Path | None = None) -> None:
        if importlib.util.find_spec("confluent_kafka") is None:
            raise MissingToolError("no demo broker: install the extra 'demo' (streamdedup[demo])")
        super().__init__("mock-broker", directory)
        self._topics = dict(topics or {})

    @property
    def _address_path(self) -> Path:
        return self.directory / "address"

    @property
    def bootstrap_servers(self) -> str:
        """Address of the broker; empty before it has one."""
        return self._address_path.read_text(encoding="ascii") if self._address_path.exists() else ""

    def spawn(self) -> None:
        """Start the process without waiting until it answers.

        Raises:
            ServerError: The program cannot be started.
        """
        if not self.is_running():
            self._address_path.unlink(missing_ok=True)
        super().spawn()

    def command(self) -> list[str]:
        """Return the command line of the child."""
        topics = [f"{name}={count}" for name, count in self._topics.items()]
        return [sys.executable, "-P", str(_CHILD), str(self._address_path), *topics]

    def is_ready(self) -> bool:
        """Tell whether the broker has an address and accepts connections there."""
        address = self.bootstrap_servers
        return bool(address) and accepts(int(address.rpartition(":")[2]))
