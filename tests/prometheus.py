"""A real Prometheus for tests: started on a configuration, asked through its HTTP API, stopped."""

import json
import math
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

from streamdedup.embedded import ManagedProcess
from streamdedup.embedded.process import LOOPBACK
from tests.support.ports import free_ports
from tests.support.processes import find_tool

#: The rules that are shipped.
RULES = Path(__file__).parents[1] / "deploy" / "prometheus" / "rules" / "streamdedup.yml"
#: What the message of a missing program ends with.
ADVICE = "run `make tools`, or install Prometheus from your system's packages"
#: Seconds that one request may take.
TIMEOUT_S = 60.0


def prometheus_tool(name: str) -> str:
    """Return the path of ``prometheus`` or ``promtool``.

    Raises:
        MissingToolError: It is not installed.
    """
    return find_tool(name, ADVICE)


class PrometheusServer(ManagedProcess):
    """One Prometheus on a free port of the loopback interface; its log is ``prometheus.log`` in ``directory``.

    Args:
        directory: Working directory; relative paths of the configuration count from its file, not from here.
        config: The configuration file.
        options: Further options of the command line.
    """

    def __init__(self, directory: Path, config: Path, options: tuple[str, ...] = ()) -> None:
        super().__init__("prometheus", directory)
        self._program = prometheus_tool("prometheus")
        self._config = config
        self._options = options
        self.port = 0

    @property
    def url(self) -> str:
        """Address of the web page and of the API."""
        return f"http://{LOOPBACK}:{self.port}"

    def choose_ports(self) -> None:
        """Take a port that is free at this moment."""
        (self.port,) = free_ports()

    def command(self) -> list[str]:
        """Return the command line."""
        return [
            self._program,
            f"--config.file={self._config}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            *self._options,
            f"--web.listen-address={LOOPBACK}:{self.port}",
        ]

    def is_ready(self) -> bool:
        """Tell whether it answers queries."""
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=1.0) as answer:
                return answer.status == 200
        except OSError:
            return False

    def ask(self, path: str, **parameters: str | float) -> Any:
        """Return the data of an answer of the API.

        Raises:
            ValueError: The query is not understood; the text is Prometheus' own.
        """
        url = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            raise ValueError(f"{path} {parameters}: {error.read().decode()}") from error

    def values(self, query: str) -> dict[frozenset[tuple[str, str]], float]:
        """Return the present values of a query by the labels of their series; those that are no number are left out."""
        found = {
            frozenset(series["metric"].items()): float(series["value"][1])
            for series in self.ask("query", query=query)["result"]
        }
        return {labels: value for labels, value in found.items() if not math.isnan(value)}
