"""docker-compose.yml, deploy/Dockerfile and what they mount: all that they name exists here and fits together.

No container engine is needed. ``tests/acceptance/test_compose.py`` starts the same set without containers.
"""

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml
from test_docs import understand

from streamdedup.daemon.shutdown import STOP_TIMEOUT_S
from streamdedup.settings.kinds import parse_duration
from streamdedup.settings.sources import CONFIG_VARIABLE, read_sources
from tests import composed
from tests.composed import OWN, PAGE_SECTION, ROOT, SERVICES, binds, build_context, of_kind, published, settings

PROMETHEUS = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))


class TestForm:
    @pytest.mark.skipif(
        shutil.which("docker") is None
        or subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0,
        reason="there is no docker with compose; the other tests here need none",
    )
    def test_docker_compose_accepts_it(self):
        command = ["docker", "compose", "--file", str(ROOT / "docker-compose.yml"), "config", "--quiet"]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        assert not result.stderr


@pytest.mark.parametrize("name", SERVICES)
class TestEveryService:
    def test_its_ports_are_on_loopback_only(self, name):
        for port in SERVICES[name].get("ports", ()):
            assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port)

    def test_what_it_mounts_is_there(self, name):
        for volume in SERVICES[name].get("volumes", ()):
            source, target, *mode = volume.split(":")
            assert target.startswith("/")
            if source.startswith("."):
                assert (ROOT / source).exists(), source
                assert mode == ["ro"]
            else:
                assert source in composed.COMPOSE["volumes"]

    def test_what_it_waits_for_can_come(self, name):
        for other, how in SERVICES[name].get("depends_on", {}).items():
            service = SERVICES[other]
            if how["condition"] == "service_healthy":
                assert "test" in service["healthcheck"]
            elif how["condition"] == "service_completed_successfully":
                assert service["restart"] == "no"
            else:
                assert how["condition"] == "service_started"


class TestOwnImage:
    @pytest.mark.parametrize("name", OWN)
    def test_its_command_is_understood(self, name):
        assert json.loads(of_kind("ENTRYPOINT")[-1]) == ["streamdedup"]
        if SERVICES[name]["command"] != ["--help"]:
            understand(SERVICES[name]["command"])

    @pytest.mark.parametrize("name", OWN)
    def test_its_variables_are_settings(self, name):
        for variable, value in SERVICES[name]["environment"].items():
            if variable == CONFIG_VARIABLE:
                assert binds(name)[value] == composed.SETTINGS_FILE
            else:
                assert not read_sources(None, None, {variable: value}, needs_servers=False).mistakes

    def test_look_ups_can_be_reached_from_this_machine(self):
        api = settings().api
        assert api.host == "0.0.0.0"
        assert published("serve") == {api.port: api.port}
        assert f"('127.0.0.1', {api.port}, " in SERVICES["serve"]["healthcheck"]["test"][-1]

    def test_the_hosts_by_which_look_ups_are_called_are_allowed(self):
        api = settings().api
        assert api.allow_anonymous
        (job,) = [job for job in PROMETHEUS["scrape_configs"] if job["job_name"] == "streamdedup-serve"]
        targets = job["static_configs"][0]["targets"]
        assert {target.partition(":")[0] for target in targets} == set(api.allowed_hosts)

    def test_the_daemon_is_given_time_to_end_by_itself(self):
        assert parse_duration(SERVICES["daemon"]["stop_grace_period"]) > STOP_TIMEOUT_S

    def test_settings_name_the_services_at_the_ports_they_listen_on(self):
        inside = re.search(r"INSIDE://(kafka:\d+)", SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"])
        assert settings().kafka.bootstrap_servers == (inside[1],)
        assert settings().redis.url.get_secret_value() == "redis://redis:6379/0"
        assert "--port" not in SERVICES["redis"]["command"]

    def test_metrics_can_be_reached_from_other_containers_at_one_port_everywhere(self):
        service = settings().service
        assert service.metrics_host == "0.0.0.0"
        assert published("daemon") == {service.metrics_port: service.metrics_port}
        assert of_kind("EXPOSE") == [f"{service.metrics_port} {settings().api.port}"]
        assert f"('127.0.0.1', {service.metrics_port}, " in of_kind("HEALTHCHECK")[0]


class TestPrometheus:
    def test_its_configuration_and_its_rules_are_mounted_where_it_looks(self):
        mounts = binds("prometheus")
        (config,) = [part.split("=")[1] for part in SERVICES["prometheus"]["command"] if "--config.file=" in part]
        assert mounts[config] == ROOT / "deploy/prometheus/prometheus.yml"
        (pattern,) = PROMETHEUS["rule_files"]
        folder = mounts[str(Path(config).parent / Path(pattern).parent)]
        assert [path.name for path in folder.glob(Path(pattern).name)] == ["streamdedup.yml"]


class TestGrafana:
    FOLDER = ROOT / "deploy" / "grafana" / "provisioning"

    def test_its_data_come_from_prometheus(self):
        (source,) = yaml.safe_load((self.FOLDER / "datasources/prometheus.yml").read_text("utf-8"))["datasources"]
        (port,) = published("prometheus")
        assert source["url"] == f"http://prometheus:{port}"
        assert source["type"] == "prometheus"
        assert source["jsonData"]["timeInterval"] == PROMETHEUS["global"]["scrape_interval"]

    def test_it_finds_the_dashboard_and_opens_with_it(self):
        (provider,) = yaml.safe_load((self.FOLDER / "dashboards/streamdedup.yml").read_text("utf-8"))["providers"]
        mounts = binds("grafana")
        assert mounts["/etc/grafana/provisioning"] == self.FOLDER
        folder = provider["options"]["path"]
        home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
        assert str(home.parent) == folder
        assert (mounts[folder] / home.name).is_file()


class TestDockerfile:
    def test_it_copies_what_is_there_and_is_not_ignored(self):
        context = {str(path.relative_to(ROOT)) for path in build_context()}
        for line in of_kind("COPY"):
            *sources, _ = line.split()
            if sources[0].startswith("--from="):
                continue
            for source in sources:
                assert any(path == source or path.startswith(f"{source}/") for path in context), source


class TestBuildContext:
    def test_it_holds_the_package_and_what_building_it_needs(self):
        names = {str(path.relative_to(ROOT)) for path in build_context()}
        others = {name for name in names if not name.startswith("streamdedup/")}
        assert others == {"LICENSE", "LICENSE-UNICODE", "README.md", "constraints.txt", "pyproject.toml"}
        assert "streamdedup/index/redis/lua/insert_sets.lua" in names

    @pytest.mark.parametrize("path", ["tests/conftest.py", ".git/config", "streamdedup/__pycache__/cli.pyc", "a/b"])
    def test_the_rest_is_ignored(self, path):
        assert composed.ignored(path)


class TestReadme:
    def test_its_commands_name_services_and_are_understood(self):
        lines = re.findall(r"^ *docker compose (.+)$", PAGE_SECTION, re.MULTILINE)
        assert len(lines) >= 4
        for line in lines:
            words = shlex.split(line)
            if words[:2] == ["run", "--rm"]:
                assert words[2] == "tools"
                understand(words[3:])
            else:
                assert words[0] in {"up", "down", "logs", "stop", "ps"}
                assert {word for word in words[1:] if not word.startswith("-")} <= SERVICES.keys()

    def test_files_given_to_commands_are_mounted(self):
        mounts = binds("tools")
        files = re.findall(r"(/sample/[\w.]+)", PAGE_SECTION)
        assert files
        for file in files:
            assert (mounts["/sample"] / Path(file).name).is_file()

    def test_every_address_is_published(self):
        ports = {outside for name in SERVICES for outside in published(name).values()}
        shown = {int(port) for port in re.findall(r"http://127\.0\.0\.1:(\d+)", PAGE_SECTION)}
        assert len(shown) == 4
        assert shown <= ports
