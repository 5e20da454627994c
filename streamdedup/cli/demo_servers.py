"""Servers of ``streamdedup demo``: Redis, a Kafka broker, a daemon, the HTTP service; and the signals that end them.

Redis and the broker are those of ``streamdedup.embedded``; daemon and service are commands of this installation.
"""

import contextlib
import importlib.util
import json
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

from streamdedup.embedded import ManagedProcess, MockBroker, RedisServer, ServerError
from streamdedup.embedded.mock_broker import MOCK_API_VERSION
from streamdedup.embedded.ports import free_ports
from streamdedup.settings.schema import PREFIX

_HOST = "127.0.0.1"
_REQUEST_TIMEOUT_S = 10.0  # time limit of a request to the daemon or the HTTP service, in seconds
_SERVICE_LIBRARIES = ("litestar", "uvicorn", "uvloop")  # libraries of the HTTP service
_EXIT_TIMEOUT_S = 2.0  # time limit for the exit of a process whose connection broke, in seconds
DUPLICATES_TOPIC, DEAD_LETTER_TOPIC = "duplicates", "duplicates.dlq"
#: Partitions of each topic except the dead-letter topic; the broker keeps some megabytes of each.
_PARTITIONS = 4
#: Settings by profile, whose name is also that of its input topic.
PROFILES: dict[str, dict[str, Any]] = {
    "articles": {"shingle_unit": "word", "shingle_size": 3},
    "reviews": {"shingle_unit": "char", "shingle_size": 5},
}
#: Signals of Ctrl-C, of a supervisor, and of a closed terminal.
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def raise_on_signals() -> None:
    """Raise KeyboardInterrupt or SystemExit in the main thread at the first signal that asks to end; ignore later ones.

    The servers need about a second to end, and a second Ctrl-C must not leave one behind. A signal during the
    start of a process leaves no process behind either: each server has a keeper (``embedded.keeper``), which ends the
    server when this process ends.
    """

    def end(signal_number: int, _: object) -> None:
        ignore_signals()
        raise KeyboardInterrupt if signal_number == signal.SIGINT else SystemExit(128 + signal_number)  # as in a shell

    for signal_number in _SIGNALS:
        signal.signal(signal_number, end)


def ignore_signals() -> None:
    for signal_number in _SIGNALS:
        signal.signal(signal_number, signal.SIG_IGN)


class HttpProcess(ManagedProcess):
    """A command as a process with a log file, which answers HTTP when it is ready."""

    _ready_path: str  # path that is answered with 200 once the process is ready

    def choose_ports(self) -> None:
        """Choose the port; the base class calls it before ``command``, and again if the port is taken."""
        (self._port,) = free_ports()

    def is_ready(self) -> bool:
        try:
            return self.get(self._ready_path)[0] == 200  # the status
        except (OSError, HTTPException):
            return False

    def url(self, path: str) -> str:
        return f"http://{_HOST}:{self._port}{path}"

    def get(self, path: str) -> tuple[int, str]:
        # urllib would use the proxy of the environment for an address of this machine.
        with contextlib.closing(HTTPConnection(_HOST, self._port, timeout=_REQUEST_TIMEOUT_S)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()


class DaemonProcess(HttpProcess):
    """``streamdedup run`` as a process; ``settings`` is the file as text, with ``{port}`` for the metrics port."""

    _ready_path = "/readyz"  # the daemon can consume; `/livez` answers while it still waits for the servers

    def __init__(self, directory: Path, settings: str) -> None:
        super().__init__("daemon", directory)
        self._settings = settings

    @property
    def config_path(self) -> Path:
        return self.directory / "streamdedup.toml"

    def choose_ports(self) -> None:
        """Choose the metrics port, and write the settings file with it."""
        super().choose_ports()
        self.config_path.write_text(self._settings.replace("{port}", str(self._port)), encoding="utf-8")

    def command(self) -> list[str]:
        return [sys.executable, "-m", "streamdedup", "run", "--config", str(self.config_path)]


class ServiceProcess(HttpProcess):
    """``streamdedup serve`` as a process with the settings file of the running daemon."""

    _ready_path = "/livez"  # the page can be opened; `/readyz` would wait for an index

    def __init__(self, directory: Path, daemon: DaemonProcess) -> None:
        super().__init__("service", directory)
        self._daemon = daemon

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "streamdedup", "serve", "--config", str(self._daemon.config_path)]
        return [*command, "--set", f"api.port={self._port}"]


@dataclass(frozen=True, slots=True)
class DemoServers:
    """The running demo servers; ``service`` is None if the libraries of the HTTP service are not installed."""

    redis: RedisServer
    broker: MockBroker
    daemon: DaemonProcess
    service: ServiceProcess | None

    def check(self) -> None:
        """Raise ``ServerError`` with the log's end if a server has ended."""
        for process in (self.daemon, self.service, self.broker, self.redis):
            if process is not None and not process.is_running():
                raise ServerError(f"{process.name} ended with code {process.exit_code}{process.log_tail()}")

    def metrics(self) -> str:
        """Return the daemon's metrics as Prometheus text; raise ``ServerError`` if a server has ended or is silent."""
        self.check()
        try:
            return self.daemon.get("/metrics")[1]  # the body
        except (OSError, HTTPException) as error:
            # The connection of a killed process breaks before its exit is visible; report the exit, the cause.
            self.daemon.wait_exit(_EXIT_TIMEOUT_S)
            self.check()
            raise ServerError(f"the daemon does not answer: {error}{self.daemon.log_tail()}") from error


@contextlib.contextmanager
def running_servers(directory: Path) -> Iterator[DemoServers]:
    """Start Redis, the broker, the daemon and the service in this order, and end them in reverse order."""
    forget_settings()
    topics = dict.fromkeys([*PROFILES, DUPLICATES_TOPIC], _PARTITIONS) | {DEAD_LETTER_TOPIC: 1}
    # Both are constructed before the first start, so that a missing program is reported at once.
    redis, broker = RedisServer(directory=directory / "redis"), MockBroker(topics, directory / "kafka")
    with contextlib.ExitStack() as stack:
        stack.enter_context(redis)
        stack.enter_context(broker)
        settings = _settings_file(redis, broker)
        daemon = stack.enter_context(DaemonProcess(directory / "daemon", settings))
        service = None
        if all(importlib.util.find_spec(library) for library in _SERVICE_LIBRARIES):
            service = stack.enter_context(ServiceProcess(directory / "service", daemon))
        yield DemoServers(redis, broker, daemon, service)


def _settings_file(redis: RedisServer, broker: MockBroker) -> str:
    """Return the text of the settings file, with ``{port}`` for the metrics port."""
    sections: dict[str, Mapping[str, Any]] = {
        # The broker has no transactions, and its protocol version cannot be negotiated.
        "kafka": {
            "bootstrap_servers": broker.bootstrap_servers,
            "api_version": ".".join(map(str, MOCK_API_VERSION)),
            "delivery": "at-least-once",
            "duplicates_topic": DUPLICATES_TOPIC,
            "dead_letter_topic": DEAD_LETTER_TOPIC,
        },
        "redis": {"url": redis.url},
        **{f"profiles.{name}": {"topics": [name], **profile} for name, profile in PROFILES.items()},
    }
    text = "[service]\nmetrics_port = {port}\n"
    for title, keys in sections.items():
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]  # JSON texts, numbers, lists are TOML
        text += "\n".join(["", f"[{title}]", *lines, ""])
    return text


def forget_settings() -> None:
    """Remove the user's settings from the environment, which would direct the daemon to the user's servers."""
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        del os.environ[name]
