"""The in-memory broker of librdkafka, for the demo: the real protocol, without an installation.

Limitations, measured with the version in `constraints.txt`:

- Transactions are not isolated, and no producer is fenced.
- A partition keeps about its last 5 MB. A reader further behind is moved by its ``auto_offset_reset``; only "none"
  shows the loss, by an error.
- A member that joins its group again waits for the session timeout less a second: keep that timeout short.
- kafka-python needs ``api_version=(2, 3)``, and can neither create topics nor read settings on this broker.
- It has no offset for any time, as if every record were older: ``stop-shingles --from-topic`` finds no document.
"""

import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

from streamdedup.embedded.process import ManagedProcess, MissingToolError

#: Protocol version for kafka-python, which cannot negotiate it with this broker.
MOCK_API_VERSION = (2, 3)
_CHILD = Path(__file__).with_name("mock_child.py")


class MockBroker(ManagedProcess):
    """One broker in a process of its own (``mock_child``); after a restart the broker is empty and has another port.

    ``topics`` has the number of partitions of topics that exist from the start. Others get four at the first
    request of their metadata.
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
        return self._address_path.read_text(encoding="ascii") if self._address_path.exists() else ""

    def spawn(self) -> None:
        """Remove the address of an earlier run, which would mislead ``is_ready``; then start the process."""
        if not self.is_running():
            self._address_path.unlink(missing_ok=True)
        super().spawn()

    def command(self) -> list[str]:
        topics = [f"{name}={count}" for name, count in self._topics.items()]
        return [sys.executable, "-P", str(_CHILD), str(self._address_path), *topics]

    def is_ready(self) -> bool:
        return bool(self.bootstrap_servers)
