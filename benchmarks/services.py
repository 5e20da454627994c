"""Services over HTTP as processes."""

import sys
from collections.abc import Callable, Mapping
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from streamdedup.embedded import ManagedProcess, free_ports
from streamdedup.embedded.process import LOOPBACK


class Service(ManagedProcess):
    """A service over HTTP.

    Args:
        name: Name of the process.
        command_at: Returns the command line for a port.
        ready_path: Path that answers 200 when the service is ready.
    """

    def __init__(self, name: str, command_at: Callable[[int], list[str]], ready_path: str) -> None:
        super().__init__(name)
        self._command_at = command_at
        self._ready_path = ready_path
        self._port = 0

    def choose_ports(self) -> None:
        """Choose a port."""
        (self._port,) = free_ports()

    def command(self) -> list[str]:
        """Return the command line."""
        return self._command_at(self._port)

    def url(self, path: str) -> str:
        """Return the address of a path."""
        return f"http://{LOOPBACK}:{self._port}{path}"

    def is_ready(self) -> bool:
        """Return whether the service answers."""
        try:
            with urlopen(self.url(self._ready_path), timeout=5) as response:
                return bool(response.status == 200)
        except (URLError, OSError):
            return False


def serve_command(redis_url: str, port: int, profile: Mapping[str, Any] | None = None) -> list[str]:
    """Return the command line of our service; ``profile`` has keys of the profile that differ from the defaults."""
    keys = {
        "kafka.bootstrap_servers": "localhost:9092",
        "redis.url": redis_url,
        "profiles.articles.topics": "articles",
        "api.port": port,
        **{f"profiles.articles.{key}": value for key, value in (profile or {}).items()},
    }
    sets = [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "streamdedup", "serve", *sets]
