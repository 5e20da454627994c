"""What docker-compose.yml starts, started without containers: the same commands, settings and files, on other ports.

The daemon is installed by the steps of deploy/Dockerfile from what .dockerignore lets through. What only a container
engine can show, the images of others and their read-only file systems, is left out.
"""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from streamdedup.embedded.process import LOOPBACK
from tests import servers
from tests.composed import INSTRUCTIONS, PAGE_SECTION, ROOT, SERVICES, SETTINGS_FILE, binds, build_context, of_kind
from tests.prometheus import PrometheusServer
from tests.support.kafka import KafkaServer
from tests.support.ports import free_ports

#: Where the Dockerfile installs to.
INSTALLED = "/opt/streamdedup"
#: Seconds that anything may take.
WAIT_S = 240.0
#: The command of the README that shows alerts, and those that send the sample.
(TAIL,) = re.findall(r"^docker compose run --rm tools (tail .+)$", PAGE_SECTION, re.MULTILINE)
PRODUCE = re.findall(r"^docker compose run --rm tools (produce .+)$", PAGE_SECTION, re.MULTILINE)


class ComposedKafka(KafkaServer):
    """A broker with the properties that the image makes of its variables, on ports that are free here."""

    inside_port = 0

    def _properties(self, broker):
        (self.inside_port,) = free_ports()
        ports = {"19092": self.inside_port, "9092": broker.port, "9093": broker.controller_port}
        properties = {}
        for name, value in SERVICES["kafka"]["environment"].items():
            if name == "KAFKA_HEAP_OPTS":
                continue  # for the Java machine, not for the broker
            here = re.sub(r"://(kafka|localhost)?:", f"://{LOOPBACK}:", value).replace("@kafka:", f"@{LOOPBACK}:")
            here = re.sub(r":(\d+)\b", lambda found: f":{ports.get(found[1], found[1])}", here)
            properties[name.removeprefix("KAFKA_").lower().replace("_", ".")] = here
        return properties | {"log.dirs": str(broker.directory / "data")}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The folder that the build stage of the Dockerfile fills."""
    context, target = tmp_path_factory.mktemp("context"), tmp_path_factory.mktemp("opt") / "streamdedup"
    for path in build_context():
        copy = context / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    build = INSTRUCTIONS[: [kind for kind, _ in INSTRUCTIONS].index("FROM", 2)]
    steps = [shlex.split(rest.replace(INSTALLED, str(target))) for kind, rest in build if kind == "RUN"]
    assert len(steps) == 2
    # Nothing of the environment that the tests run in: no other path to the package.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for program, *arguments in steps:
        assert program == "python"
        subprocess.run(
            [sys.executable, *arguments], cwd=context, env=environment, check=True, stdout=subprocess.DEVNULL
        )
    return target


class Composed:
    """The services, and how one of them is called."""

    def __init__(self, folder: Path, installed: Path, kafka: ComposedKafka, redis) -> None:
        self.folder = folder
        self.bin = installed / "bin"
        self.metrics_port, self.api_port = free_ports(2)
        text = SETTINGS_FILE.read_text(encoding="utf-8")
        for there, here in (
            ("kafka:19092", f"{LOOPBACK}:{kafka.inside_port}"),
            ("redis:6379", f"{LOOPBACK}:{redis.port}"),
            ("metrics_port = 9464", f"metrics_port = {self.metrics_port}"),
            ("allow_anonymous = true", f"allow_anonymous = true\nport = {self.api_port}"),
            ('"0.0.0.0"', f'"{LOOPBACK}"'),
        ):
            assert there in text
            text = text.replace(there, here)
        self.settings = folder / "streamdedup.toml"
        self.settings.write_text(text, encoding="utf-8")

    def environment(self) -> dict[str, str]:
        """Return what a container of ours finds in its environment."""
        return {"PATH": f"{self.bin}:{os.environ['PATH']}", "STREAMDEDUP_CONFIG": str(self.settings)}

    def call(self, *arguments: str) -> str:
        """Run a command of the image to its end; return what it printed."""
        command = [str(self.bin / "streamdedup"), *arguments]
        result = subprocess.run(
            command, cwd=self.folder, env=self.environment(), capture_output=True, text=True, timeout=900, check=False
        )
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    def is_healthy(self) -> bool:
        """Do what the Dockerfile's HEALTHCHECK does."""
        (check,) = of_kind("HEALTHCHECK")
        command = check.split("CMD ")[1]
        assert ", 9464, " in command
        program, *arguments = json.loads(command.replace(", 9464, ", f", {self.metrics_port}, "))
        return subprocess.run([str(self.bin / program), *arguments], capture_output=True, check=False).returncode == 0

    @contextmanager
    def running(self, service: str) -> Iterator[None]:
        """Run a service of the image; it ends without an error when it is told to."""
        command = [str(self.bin / "streamdedup"), *SERVICES[service]["command"]]
        with (self.folder / f"{service}.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=self.folder, env=self.environment(), stdout=log, stderr=log)
        try:
            yield
            process.terminate()
            assert process.wait(180) == 0
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()

    def matches_of(self, profile: str, text: str) -> list[dict[str, Any]]:
        """Look a text up over HTTP."""
        request = urllib.request.Request(
            f"http://{LOOPBACK}:{self.api_port}/v1/profiles/{profile}/lookup",
            json.dumps({"text": text}).encode(),
            {"content-type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)["matches"]


@pytest.fixture
def composed(tmp_path, installed, start_redis, redis_program):
    words = SERVICES["redis"]["command"]
    redis = start_redis(options={name.lstrip("-"): value for name, value in zip(words[1::2], words[2::2], strict=True)})
    with ComposedKafka(servers.kafka_jars()) as kafka:
        yield Composed(tmp_path, installed, kafka, redis)


def prometheus_of(composed: Composed) -> PrometheusServer:
    """Return Prometheus on its own configuration, with the daemon where it is here."""
    folder = composed.folder / "prometheus"
    shutil.copytree(ROOT / "deploy" / "prometheus", folder)
    config = folder / "prometheus.yml"
    text = config.read_text(encoding="utf-8").replace("daemon:9464", f"{LOOPBACK}:{composed.metrics_port}")
    text = text.replace("serve:8080", f"{LOOPBACK}:{composed.api_port}")
    config.write_text(text.replace("15s", "1s"), encoding="utf-8")
    kept = ("--config.file", "--storage.tsdb.path")
    words = [word for word in SERVICES["prometheus"]["command"] if not word.startswith(kept)]
    return PrometheusServer(folder, config, tuple(words))


@pytest.mark.long
def test_the_composed_set_works_as_the_readme_says(composed):
    created = composed.call(*SERVICES["topics"]["command"])
    assert created.count("created") == 4
    assert composed.call(*SERVICES["topics"]["command"]).count(" exists ") == 4

    with composed.running("daemon"), composed.running("serve"):
        servers.wait_until(composed.is_healthy, WAIT_S, "the health check")
        with prometheus_of(composed) as prometheus:
            for line in PRODUCE:
                here = re.sub(r"--rate \d+", "", line).replace("/sample", str(binds("tools")["/sample"]))
                composed.call(*shlex.split(here))
            shown = composed.call(*shlex.split(TAIL), "--limit", "3")
            assert shown.count("~") >= 3
            query = "sum(streamdedup_alerts_total) > 50"
            servers.wait_until(lambda: prometheus.values(query), WAIT_S, "alerts as Prometheus sees them")
            for job in ("streamdedup", "streamdedup-serve"):
                up = f'up{{job="{job}"}}'
                servers.wait_until(lambda up=up: list(prometheus.values(up).values()) == [1], WAIT_S, f"{up} to be 1")
            groups = prometheus.ask("rules")["groups"]
            assert len([rule for group in groups for rule in group["rules"] if rule["type"] == "alerting"]) >= 16
        first_line = (binds("tools")["/sample"] / "articles.jsonl").read_text(encoding="utf-8").splitlines()[0]
        document = json.loads(first_line)

        def found() -> bool:
            matches = composed.matches_of("articles", document["text"])
            return (document["id"], 1.0) in [(match["id"], match["similarity"]) for match in matches]

        servers.wait_until(found, WAIT_S, "the document in the index")
