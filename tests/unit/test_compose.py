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

from streamdedup.cli import main as cli
from streamdedup.settings.schema import PREFIX, variables
from streamdedup.settings.sources import CONFIG_VARIABLE
from streamdedup.settings.units import parse_duration
from tests.composed import (
    COMPOSE,
    DOCKERFILE,
    INSTRUCTIONS,
    OWN,
    README_SECTION,
    ROOT,
    SERVICES,
    SETTINGS_FILE,
    binds,
    build_context,
    ignored,
    of_kind,
    published,
    settings,
)

#: Keys of a service that are used here, all of them in the Compose Specification, and the form of each.
KEYS = {
    "build": dict, "cap_drop": list, "command": list, "cpus": (int, float), "depends_on": dict, "environment": dict,
    "healthcheck": dict, "image": str, "logging": dict, "mem_limit": str, "pids_limit": int, "ports": list,
    "profiles": list, "read_only": bool, "restart": str, "security_opt": list, "stop_grace_period": str, "tmpfs": list,
    "user": str, "volumes": list,
}  # fmt: skip


def understand(arguments: list[str]) -> None:
    """Let the command line parse a command without running it; raises when it does not understand."""
    name, *rest = arguments
    command = cli.load_command(name)
    if hasattr(command, "commands"):
        command = command.commands[rest.pop(0)]
    command.make_context(name, list(rest))


class TestForm:
    def test_every_service_has_known_keys_of_the_right_form(self):
        assert set(COMPOSE) == {"name", "services", "volumes", "x-common", "x-streamdedup"}
        for name, service in SERVICES.items():
            for key, value in service.items():
                assert isinstance(value, KEYS[key]), f"{name}.{key}"

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

    def test_the_set_is_complete(self):
        assert set(SERVICES) == {"kafka", "redis", "topics", "daemon", "serve", "tools", "prometheus", "grafana"}


@pytest.mark.parametrize("name", SERVICES)
class TestEveryService:
    def test_its_image_is_pinned_to_a_version_or_built_here(self, name):
        if name in OWN:
            assert SERVICES[name]["image"] == "streamdedup:local"
        else:
            assert re.search(r":v?\d+\.\d+\.\d+(-[a-z]+)?$", SERVICES[name]["image"])

    def test_it_can_do_little_beside_its_work(self, name):
        service = SERVICES[name]
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        # Nothing but Kafka runs what it has written.
        assert service["tmpfs"][0] == ("/tmp:exec" if name == "kafka" else "/tmp")

    def test_its_resources_and_its_log_are_bounded(self, name):
        service = SERVICES[name]
        assert service["cpus"] > 0
        assert service["pids_limit"] > 0
        assert re.fullmatch(r"\d+[mg]", service["mem_limit"])
        assert set(service["logging"]["options"]) == {"max-size", "max-file"}

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
                assert source in COMPOSE["volumes"]

    def test_what_it_waits_for_can_come(self, name):
        for other, how in SERVICES[name].get("depends_on", {}).items():
            service = SERVICES[other]
            if how["condition"] == "service_healthy":
                assert "test" in service["healthcheck"]
            elif how["condition"] == "service_completed_successfully":
                assert service["restart"] == "no"
            else:
                assert how["condition"] == "service_started"

    def test_it_is_watched_or_ends_by_itself(self, name):
        check = SERVICES[name].get("healthcheck", {})
        if SERVICES[name]["restart"] == "no":
            assert check == {"disable": True}
        elif name == "daemon":
            assert of_kind("HEALTHCHECK")
            assert not check
        else:
            assert check["test"][0] in {"CMD", "CMD-SHELL"}
            assert parse_duration(check["interval"]) >= 5


def test_every_volume_is_used():
    used = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", ())}
    assert set(COMPOSE["volumes"]) <= used


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
                assert binds(name)[value] == SETTINGS_FILE
            else:
                assert variable.startswith(PREFIX)
                assert variable in set(variables("NAME"))

    def test_look_ups_can_be_reached_from_this_machine_and_their_state_comes_from_the_daemon(self):
        api = settings().api
        assert api.host == "0.0.0.0"
        assert published("serve") == {api.port: api.port}
        assert f"http://127.0.0.1:{api.port}/livez" in SERVICES["serve"]["healthcheck"]["test"][-1]
        assert api.daemon_metrics == (f"http://daemon:{settings().service.metrics_port}/metrics",)

    def test_the_hosts_by_which_look_ups_are_called_are_allowed(self):
        api = settings().api
        assert api.allow_anonymous
        config = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))
        (targets,) = [
            job["static_configs"][0]["targets"]
            for job in config["scrape_configs"]
            if job["job_name"] == "streamdedup-serve"
        ]
        assert {target.partition(":")[0] for target in targets} == set(api.allowed_hosts)

    def test_the_daemon_is_given_time_to_end_by_itself(self):
        assert parse_duration(SERVICES["daemon"]["stop_grace_period"]) > settings().service.stop_timeout_s

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
        assert f"http://127.0.0.1:{service.metrics_port}/livez" in of_kind("HEALTHCHECK")[0]


class TestKafka:
    def test_every_listener_is_of_use_and_of_a_known_protocol(self):
        environment = SERVICES["kafka"]["environment"]
        listeners = dict(
            re.fullmatch(r"([A-Z]+)://:(\d+)", one).groups() for one in environment["KAFKA_LISTENERS"].split(",")
        )
        advertised = dict(
            re.fullmatch(r"([A-Z]+)://\w+:(\d+)", one).groups()
            for one in environment["KAFKA_ADVERTISED_LISTENERS"].split(",")
        )
        protocols = dict(one.split(":") for one in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
        assert listeners.keys() == protocols.keys()
        assert advertised == {name: port for name, port in listeners.items() if name != "CONTROLLER"}
        assert environment["KAFKA_INTER_BROKER_LISTENER_NAME"] in advertised
        assert environment["KAFKA_CONTROLLER_QUORUM_VOTERS"] == f"1@kafka:{listeners['CONTROLLER']}"
        assert published("kafka") == {int(listeners["OUTSIDE"]): int(listeners["OUTSIDE"])}
        assert f"localhost:{listeners['OUTSIDE']}" in SERVICES["kafka"]["healthcheck"]["test"][1]

    def test_its_data_are_kept_where_it_writes_them(self):
        assert f"kafka-data:{SERVICES['kafka']['environment']['KAFKA_LOG_DIRS']}" in SERVICES["kafka"]["volumes"]

    def test_one_broker_is_asked_for_one_copy(self):
        copies = {k: v for k, v in SERVICES["kafka"]["environment"].items() if k.endswith(("_FACTOR", "_MIN_ISR"))}
        assert set(copies.values()) == {"1"}
        command = SERVICES["topics"]["command"]
        assert command[command.index("--replication") + 1] == "1"


def test_redis_evicts_nothing_and_writes_what_it_acknowledges():
    command = SERVICES["redis"]["command"]
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options["--maxmemory-policy"] == "noeviction"
    assert options["--appendonly"] == "yes"
    assert options["--maxmemory"] == "1gb"


class TestPrometheus:
    CONFIG = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))

    def test_it_scrapes_the_daemon_and_the_look_ups_as_jobs_of_their_own(self):
        jobs = {job["job_name"]: job["static_configs"] for job in self.CONFIG["scrape_configs"]}
        assert jobs == {
            "streamdedup": [{"targets": [f"daemon:{settings().service.metrics_port}"]}],
            "streamdedup-serve": [{"targets": [f"serve:{settings().api.port}"]}],
        }

    def test_its_configuration_and_its_rules_are_mounted_where_it_looks(self):
        mounts = binds("prometheus")
        (config,) = [part.split("=")[1] for part in SERVICES["prometheus"]["command"] if "--config.file=" in part]
        assert mounts[config] == ROOT / "deploy/prometheus/prometheus.yml"
        (pattern,) = self.CONFIG["rule_files"]
        folder = mounts[str(Path(config).parent / Path(pattern).parent)]
        assert [path.name for path in folder.glob(Path(pattern).name)] == ["streamdedup.yml"]

    def test_its_data_are_kept(self):
        (path,) = [p.split("=")[1] for p in SERVICES["prometheus"]["command"] if "--storage.tsdb.path=" in p]
        assert f"prometheus-data:{path}" in SERVICES["prometheus"]["volumes"]


class TestGrafana:
    FOLDER = ROOT / "deploy" / "grafana" / "provisioning"

    def test_its_data_come_from_prometheus(self):
        (source,) = yaml.safe_load((self.FOLDER / "datasources/prometheus.yml").read_text("utf-8"))["datasources"]
        (port,) = published("prometheus")
        assert source["url"] == f"http://prometheus:{port}"
        assert source["type"] == "prometheus"
        scraped_every = TestPrometheus.CONFIG["global"]["scrape_interval"]
        assert source["jsonData"]["timeInterval"] == scraped_every

    def test_it_finds_the_dashboard_and_opens_with_it(self):
        (provider,) = yaml.safe_load((self.FOLDER / "dashboards/streamdedup.yml").read_text("utf-8"))["providers"]
        mounts = binds("grafana")
        assert mounts["/etc/grafana/provisioning"] == self.FOLDER
        folder = provider["options"]["path"]
        home = Path(SERVICES["grafana"]["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"])
        assert str(home.parent) == folder
        assert (mounts[folder] / home.name).is_file()

    def test_everybody_may_look_and_nobody_may_change(self):
        environment = SERVICES["grafana"]["environment"]
        assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
        assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
        assert environment["GF_AUTH_BASIC_ENABLED"] == "false"


class TestDockerfile:
    def test_both_stages_begin_with_one_pinned_slim_python(self):
        (image,) = [rest.split("=")[1] for rest in of_kind("ARG") if rest.startswith("PYTHON_IMAGE=")]
        assert re.fullmatch(r"python:3\.1[1-3]\.\d+-slim-[a-z]+", image)
        assert of_kind("FROM") == ["${PYTHON_IMAGE} AS build", "${PYTHON_IMAGE}"]

    def test_it_copies_what_is_there_and_is_not_ignored(self):
        context = {str(path.relative_to(ROOT)) for path in build_context()}
        for line in of_kind("COPY"):
            *sources, _ = line.split()
            if sources[0].startswith("--from="):
                continue
            for source in sources:
                assert any(path == source or path.startswith(f"{source}/") for path in context), source

    def test_it_ends_as_a_user_without_rights_and_without_an_installer(self):
        final = INSTRUCTIONS[[kind for kind, _ in INSTRUCTIONS].index("FROM", 2) :]
        steps = " ".join(rest for kind, rest in final if kind == "RUN")
        assert "pip uninstall" in steps
        assert "apt-get" not in DOCKERFILE
        (user,) = of_kind("USER")
        assert int(user.split(":")[0]) >= 1000
        assert final.index(["USER", user]) < final.index(["ENTRYPOINT", '["streamdedup"]'])

    def test_it_installs_the_versions_that_were_tested(self):
        (line,) = [rest for rest in of_kind("RUN") if " install " in rest]
        assert "--constraint constraints.txt" in line

    def test_it_has_the_libraries_of_every_command_that_a_deployment_runs(self):
        (line,) = [rest for rest in of_kind("RUN") if " install " in rest]
        assert shlex.split(line)[-1] == ".[serve]"


class TestBuildContext:
    def test_it_holds_the_package_and_what_building_it_needs(self):
        names = {str(path.relative_to(ROOT)) for path in build_context()}
        others = {name for name in names if not name.startswith("streamdedup/")}
        assert others == {"LICENSE", "README.md", "constraints.txt", "pyproject.toml"}
        assert "streamdedup/index/redis/lua/insert_sets.lua" in names

    @pytest.mark.parametrize("path", ["tests/conftest.py", ".git/config", "streamdedup/__pycache__/cli.pyc", "a/b"])
    def test_the_rest_is_ignored(self, path):
        assert ignored(path)


class TestReadme:
    def test_its_commands_name_services_and_are_understood(self):
        lines = re.findall(r"^ *docker compose (.+)$", README_SECTION, re.MULTILINE)
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
        files = re.findall(r"(/sample/[\w.]+)", README_SECTION)
        assert files
        for file in files:
            assert (mounts["/sample"] / Path(file).name).is_file()

    def test_every_address_is_published(self):
        ports = {outside for name in SERVICES for outside in published(name).values()}
        shown = {int(port) for port in re.findall(r"http://127\.0\.0\.1:(\d+)", README_SECTION)}
        assert len(shown) == 4
        assert shown <= ports
