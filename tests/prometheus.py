"""A real Prometheus for tests: started on a configuration, asked through its HTTP API, stopped."""

import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

import yaml

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
#: How much shorter the windows are for whose end a test waits.
SHORTER = 30
#: A duration as Prometheus writes it.
DURATION = r"(?:\d+(?:ms|[smhdwy]))+"


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

    def firing(self, job: str) -> set[str]:
        """Return the names of the alerts of a job that fire."""
        alerts = [alert for alert in self.ask("alerts")["alerts"] if alert["state"] == "firing"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["labels"].get("job") == job}


def shortened(rules: str) -> str:
    """Return rules for a test of seconds instead of hours.

    Every ``for:`` becomes one second. The window of a sum that must be zero, ``[10m])) == 0``, becomes a thirtieth of
    itself, because a test has to wait for all of it. Other windows stay: an event in a window is seen at once, and a
    window of seconds is over before a busy machine has started a daemon three times. Conditions, thresholds, labels and
    texts stay as they are.
    """
    rules = re.sub(rf"^(\s+for: ){DURATION}$", r"\g<1>1s", rules, flags=re.MULTILINE)
    return re.sub(rf"\[({DURATION})\](?=\)\) == 0)", lambda found: f"[{seconds(found[1]) // SHORTER}s]", rules)


def seconds(duration: str) -> int:
    """Return a duration such as ``1h30m`` in whole seconds."""
    units = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
    return sum(int(count) * units[unit] for count, unit in re.findall(r"(\d+)([smhd])", duration))


class Watch:
    """A Prometheus on the shipped rules, shortened, that looks every half second at the daemons it is told of.

    Args:
        directory: Where configuration, rules, data and log go.
    """

    def __init__(self, directory: Path) -> None:
        config = yaml.safe_load((RULES.parents[1] / "prometheus.yml").read_text(encoding="utf-8"))
        config["global"] = {"scrape_interval": "500ms", "scrape_timeout": "500ms", "evaluation_interval": "500ms"}
        (job,) = (job for job in config["scrape_configs"] if job["job_name"] == "streamdedup")
        config["scrape_configs"] = [job]
        del job["static_configs"]
        job["file_sd_configs"] = [{"files": ["targets/*.json"], "refresh_interval": "1s"}]
        self._targets = directory / "targets"
        for folder in (self._targets, directory / "rules"):
            folder.mkdir(parents=True)
        (directory / "rules" / RULES.name).write_text(shortened(RULES.read_text(encoding="utf-8")), encoding="utf-8")
        path = directory / "prometheus.yml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        self.server = PrometheusServer(directory, path)

    def look_at(self, job: str, *ports: int) -> None:
        """Scrape the daemons on these ports under the name of a job; those named before are scraped no more."""
        targets = [{"targets": [f"{LOOPBACK}:{port}" for port in ports], "labels": {"job": job}}]
        # Written beside and moved into place: Prometheus reads a file as soon as it changes.
        draft = self._targets / f"{job}.draft"
        draft.write_text(json.dumps(targets if ports else []), encoding="utf-8")
        draft.replace(self._targets / f"{job}.json")
