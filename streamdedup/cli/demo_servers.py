"""What the demo runs in the background: a private Redis, a private Kafka broker, and a real daemon between them."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from streamdedup.embedded import MOCK_API_VERSION, ManagedProcess, MockBroker, RedisServer, ServerError, free_ports
from streamdedup.settings.schema import PREFIX

#: Opens a context in which no signal interrupts.
Hold = Callable[[], AbstractContextManager[None]]

#: Where everything listens.
_HOST = "127.0.0.1"
#: How long the daemon may take to answer a request for its metrics, in seconds.
_METRICS_TIMEOUT_S = 10.0
#: How long a dying process may take to be gone, in seconds.
_LAST_MOMENT_S = 2.0
#: Topics of the daemon's output.
DUPLICATES_TOPIC, DEAD_LETTER_TOPIC = "duplicates", "duplicates.dlq"
#: Partitions of each topic whose records may wait for a reader: each holds some megabytes.
_PARTITIONS = 4
#: The profiles that the demo has to offer, as a settings file would say it.
PROFILES: dict[str, dict[str, Any]] = {
    "articles": {"shingle_unit": "word", "shingle_size": 3},
    "reviews": {"shingle_unit": "char", "shingle_size": 5},
}
#: The daemon's settings. The broker has no transactions, and its protocol version cannot be negotiated.
_SETTINGS = """\
[kafka]
bootstrap_servers = {servers}
api_version = {version}
delivery = "at-least-once"
duplicates_topic = {duplicates}
dead_letter_topic = {dead_letters}

[redis]
url = {url}

[service]
metrics_port = {port}
"""


class Daemon(ManagedProcess):
    """``streamdedup run`` as a process of its own, with a log file.

    Args:
        directory: Where settings and log go.
        settings: Text of the settings file, with ``{port}`` for the port of the metrics.
        held: Opens a context in which no signal interrupts.
    """

    def __init__(self, directory: Path, settings: str, held: Hold) -> None:
        super().__init__("daemon", directory)
        self._settings = settings
        self._held = held
        self._port = 0

    @property
    def config_path(self) -> Path:
        """The settings file."""
        return self.directory / "streamdedup.toml"

    @property
    def metrics_url(self) -> str:
        """Where the metrics can be seen."""
        return f"http://{_HOST}:{self._port}/metrics"

    def choose_ports(self) -> None:
        """Take a port for the metrics, and write the settings file that names it."""
        (self._port,) = free_ports()
        self.config_path.write_text(self._settings.replace("{port}", str(self._port)), encoding="utf-8")

    def spawn(self) -> None:
        """Start the process without waiting until it answers.

        Raises:
            ServerError: The program cannot be started.
        """
        # The process only, and not the wait for it, which a user may want to cut short.
        with self._held():
            super().spawn()

    def command(self) -> list[str]:
        """Return the command line that a user would type."""
        return [sys.executable, "-m", "streamdedup", "run", "--config", str(self.config_path)]

    def is_ready(self) -> bool:
        """Tell whether the daemon is at work: connected to both servers, with partitions to read."""
        try:
            return self._get("/readyz")[0] == 200
        except (OSError, HTTPException):
            return False

    def metrics(self) -> str:
        """Return the present metrics in Prometheus' text format.

        Raises:
            ServerError: The daemon does not answer.
        """
        try:
            return self._get("/metrics")[1]
        except (OSError, HTTPException) as error:
            raise ServerError(f"the daemon does not answer: {error}{self.log_tail()}") from error

    def _get(self, path: str) -> tuple[int, str]:
        # Not by a URL: then a proxy that the environment names would be asked for an address of this machine.
        connection = HTTPConnection(_HOST, self._port, timeout=_METRICS_TIMEOUT_S)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()
        finally:
            connection.close()


class Servers:
    """All three, started in order; a context manager that ends them in reverse order.

    Args:
        directory: Where settings and logs go; it must outlive this.
        profiles: Settings of each profile by its name, which is also its input topic.
        held: Opens a context in which no signal interrupts: a process is started wholly or not at all.

    Attributes:
        redis: The Redis server.
        broker: The Kafka broker.
        daemon: The daemon.

    Raises:
        MissingToolError: A server program is not installed.
    """

    def __init__(self, directory: Path, profiles: Mapping[str, Mapping[str, Any]], held: Hold) -> None:
        topics = dict.fromkeys([*profiles, DUPLICATES_TOPIC], _PARTITIONS) | {DEAD_LETTER_TOPIC: 1}
        # All are made before any is started, so that a missing one is said at once.
        self.redis = RedisServer(directory=directory / "redis")
        self.broker = MockBroker(topics, directory / "kafka")
        self._directory = directory
        self._profiles = profiles
        self._held = held
        self._stack = ExitStack()

    @property
    def daemon(self) -> Daemon:
        """The daemon."""
        return self._daemon

    def check(self) -> None:
        """See that all are running.

        Raises:
            ServerError: One has ended; the text ends with its log.
        """
        for process in (self._daemon, self.broker, self.redis):
            if not process.is_running():
                raise ServerError(f"{process.name} ended with code {process.exit_code}{process.log_tail()}")

    def metrics(self) -> str:
        """Return the daemon's present metrics in Prometheus' text format.

        Raises:
            ServerError: A server has ended, or the daemon does not answer.
        """
        self.check()
        try:
            return self._daemon.metrics()
        except ServerError:
            # A connection breaks a moment before the process is seen to have ended, which is what the user must know.
            self._daemon.wait_exit(_LAST_MOMENT_S)
            self.check()
            raise

    def __enter__(self) -> Self:
        forget_settings()
        with ExitStack() as stack:
            for server in (self.redis, self.broker):
                with self._held():
                    stack.enter_context(server)
            self._daemon = Daemon(self._directory / "daemon", self._settings(), self._held)
            stack.enter_context(self._daemon)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def _settings(self) -> str:
        """Return the settings file; a JSON string is a TOML string, and a JSON list or number is TOML too."""
        text = _SETTINGS.format(
            servers=json.dumps(self.broker.bootstrap_servers),
            version=json.dumps(".".join(map(str, MOCK_API_VERSION))),
            duplicates=json.dumps(DUPLICATES_TOPIC),
            dead_letters=json.dumps(DEAD_LETTER_TOPIC),
            url=json.dumps(self.redis.url),
            port="{port}",
        )
        for name, profile in self._profiles.items():
            lines = [f"{key} = {json.dumps(value)}" for key, value in {"topics": [name], **profile}.items()]
            text += "\n".join(["", f"[profiles.{name}]", *lines, ""])
        return text


def forget_settings() -> None:
    """Take the user's settings out of this process' environment: they would turn the daemon to the user's servers."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
