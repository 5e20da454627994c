"""Files for Kubernetes and systemd agree with the code, with each other and with docs/deployment.md."""

import ast
import re
import textwrap
from pathlib import Path

import pytest
from typer.testing import CliRunner

from streamdedup import errors
from streamdedup.cli import main as cli
from streamdedup.cli import serve
from streamdedup.daemon.shutdown import STOP_TIMEOUT_S
from streamdedup.errors import SettingsError
from streamdedup.serve.admission import Tokens
from streamdedup.settings import Settings
from tests.deployed import (
    BASE,
    KUBERNETES,
    PROGRAM,
    ROOT,
    SECRETS_FOLDER,
    SETTINGS_FILE,
    SETTINGS_FOLDER,
    UNITS,
    Unit,
    documents,
    resources,
)

PAGE = (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8")
RESOURCES = resources()
DAEMONS, SERVE = RESOURCES["StatefulSet", "streamdedup"], RESOURCES["Deployment", "streamdedup-serve"]
WORKLOADS = {"daemon": DAEMONS, "serve": SERVE}
#: The Secrets of the example, by name.
SECRETS = {one["metadata"]["name"]: one["stringData"] for one in documents(BASE / "secrets.example.yaml")}
TOKEN = "a-token-of-thirty-two-characters"
#: Each unit, by the command that it runs.
UNIT_OF = {unit.command()[1]: unit for unit in map(Unit.read, UNITS)}


def pod(name):
    return WORKLOADS[name]["spec"]["template"]["spec"]


def container(name):
    (one,) = pod(name)["containers"]
    return one


def documents_of_component(name):
    return list(resources(KUBERNETES / "components" / name).values())


MONITORS = {monitor["metadata"]["name"]: monitor["spec"] for monitor in documents_of_component("monitoring")}


def port_of(name):
    (port,) = container(name)["ports"]
    return port


def labels(workload):
    return workload["spec"]["template"]["metadata"]["labels"]


def write_secrets(folder):
    """Write secrets as they are mounted, with values in place of the placeholders."""
    folder.mkdir()
    (folder / "redis-url").write_text("rediss://streamdedup:password@redis:6379/0\n", encoding="utf-8")
    (folder / "tokens").write_text(f"{TOKEN}\n", encoding="utf-8")


def pod_settings_file(tmp_path):
    """Return a copy of the settings file of the pods that finds the secrets in a folder of the test."""
    write_secrets(tmp_path / "secrets")
    text = SETTINGS_FILE.read_text(encoding="utf-8")
    assert SECRETS_FOLDER in text
    copy = tmp_path / "streamdedup.toml"
    copy.write_text(text.replace(SECRETS_FOLDER, str(tmp_path / "secrets")), encoding="utf-8")
    return copy


def pod_environment(name):
    """Return the variables of a container in a pod called ``streamdedup-0``."""
    variables = container(name).get("env", [])
    assert all(one["valueFrom"] == {"fieldRef": {"fieldPath": "metadata.name"}} for one in variables)
    return {one["name"]: "streamdedup-0" for one in variables}


def machine_settings_file(tmp_path):
    """Return a settings file as docs/deployment.md wants it for the units: without the address of Redis."""
    write_secrets(tmp_path / "secrets")
    copy = tmp_path / "streamdedup.toml"
    text = '[kafka]\nbootstrap_servers = "kafka:9092"\n[profiles.articles]\ntopics = ["articles"]\n'
    copy.write_text(text, encoding="utf-8")
    return copy


def pod_settings(tmp_path, name):
    return Settings.load(pod_settings_file(tmp_path), environ=pod_environment(name))


def assert_understood(arguments, settings_file, environment):
    """Run a command line with ``--help``, and check its settings file with its variables."""
    assert f"{SETTINGS_FOLDER}/streamdedup.toml" in arguments
    arguments = [word.replace(f"{SETTINGS_FOLDER}/streamdedup.toml", str(settings_file)) for word in arguments]
    runner = CliRunner(env=environment)
    help_text = runner.invoke(cli.app, [*arguments, "--help"])
    assert help_text.exit_code == 0, help_text.output
    assert f" {arguments[0]} " in help_text.output
    check = runner.invoke(cli.app, ["config", "check", *arguments[1:]])
    assert check.exit_code == 0, check.output


class TestCommandLines:
    @pytest.mark.parametrize("name", WORKLOADS)
    def test_a_pod_runs_a_command_whose_settings_are_right(self, name, tmp_path):
        assert "command" not in container(name)  # the entry point of the image is the program
        assert_understood(container(name)["args"], pod_settings_file(tmp_path), pod_environment(name))

    @pytest.mark.parametrize("unit", UNIT_OF.values(), ids=UNIT_OF)
    def test_a_unit_runs_a_command_whose_settings_are_right(self, unit, tmp_path):
        program, *arguments = unit.command()
        assert program == PROGRAM
        settings_file = machine_settings_file(tmp_path)
        assert unit.credentials() <= {path.name for path in (tmp_path / "secrets").iterdir()}
        assert_understood(arguments, settings_file, unit.environment(tmp_path / "secrets"))

    def test_each_process_is_run_by_a_pod_and_by_a_unit(self):
        assert {container(name)["args"][0] for name in WORKLOADS} == set(UNIT_OF) == {"run", "serve"}


class TestProbesAndPorts:
    @pytest.mark.parametrize("name", WORKLOADS)
    def test_probes_ask_the_port_of_the_container_at_paths_that_are_served(self, name):
        module = {"daemon": "daemon/health.py", "serve": "serve/app.py"}[name]
        tree = ast.parse((ROOT / "streamdedup" / module).read_text(encoding="utf-8"))
        served = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        probes = {kind: container(name)[f"{kind}Probe"]["httpGet"] for kind in ("liveness", "readiness")}
        assert {kind: probe["path"] for kind, probe in probes.items()} == {"liveness": "/livez", "readiness": "/readyz"}
        assert {"/livez", "/readyz", "/metrics"} <= served
        assert {probe["port"] for probe in probes.values()} == {port_of(name)["name"]}

    def test_ports_are_those_of_the_settings_on_all_addresses(self, tmp_path):
        settings = pod_settings(tmp_path, "daemon")
        assert port_of("daemon")["containerPort"] == settings.service.metrics_port
        assert port_of("serve")["containerPort"] == settings.api.port
        assert settings.service.metrics_host == settings.api.host == "0.0.0.0"
        assert settings.api.tokens_file == tmp_path / "secrets" / "tokens"

    @pytest.mark.parametrize(("service", "name"), [("streamdedup", "daemon"), ("streamdedup-serve", "serve")])
    def test_a_service_leads_to_the_named_port_of_its_pods(self, service, name):
        spec = RESOURCES["Service", service]["spec"]
        assert spec["selector"] == labels(WORKLOADS[name])
        assert [port["targetPort"] for port in spec["ports"]] == [port_of(name)["name"]]


class TestStop:
    def test_a_daemon_has_time_to_end_by_itself(self, tmp_path):
        assert pod("daemon")["terminationGracePeriodSeconds"] > STOP_TIMEOUT_S
        assert int(UNIT_OF["run"].values["TimeoutStopSec"][0]) > STOP_TIMEOUT_S

    def test_the_service_has_time_to_answer_requests_in_progress(self):
        wait_s = container("serve")["lifecycle"]["preStop"]["sleep"]["seconds"]
        assert pod("serve")["terminationGracePeriodSeconds"] > wait_s + STOP_TIMEOUT_S > wait_s + serve._STOP_S
        assert int(UNIT_OF["serve"].values["TimeoutStopSec"][0]) > STOP_TIMEOUT_S

    def test_a_unit_stays_down_where_a_restart_does_not_help(self):
        for unit in UNIT_OF.values():
            codes = unit.values["RestartPreventExitStatus"][0].split()
            assert codes == [str(errors.EXIT_USAGE), str(errors.EXIT_FATAL)]
            assert unit.values["SuccessExitStatus"] == [str(errors.EXIT_FORCED)]


class TestInstanceIds:
    def test_a_pod_is_named_by_its_stateful_set(self, tmp_path):
        kafka = pod_settings(tmp_path, "daemon").kafka
        assert (kafka.instance_id, kafka.group_instance_id) == ("streamdedup-0", "streamdedup-0")

    def test_a_unit_is_named_by_machine_and_instance(self, tmp_path):
        settings_file = machine_settings_file(tmp_path)
        settings = Settings.load(settings_file, environ=UNIT_OF["run"].environment(tmp_path / "secrets"))
        assert (settings.kafka.instance_id, settings.kafka.group_instance_id) == ("host-4", "host-4")
        assert settings.service.metrics_port == 9464


@pytest.mark.parametrize("name", WORKLOADS)
class TestRightsAndResources:
    def test_volumes_are_mounted_where_settings_and_command_look(self, name):
        volumes = {one["name"]: one for one in pod(name)["volumes"]}
        # A file that is mounted by `subPath` would keep the secrets of the start, against what the page says.
        assert all("subPath" not in mount for mount in container(name)["volumeMounts"])
        mounts = {one["mountPath"]: volumes.pop(one["name"]) for one in container(name)["volumeMounts"]}
        assert not volumes
        (generated,) = documents(BASE / "kustomization.yaml")[0]["configMapGenerator"]
        assert mounts[SETTINGS_FOLDER]["configMap"]["name"] == generated["name"]
        assert generated["files"] == [SETTINGS_FILE.name]
        secret = mounts[SECRETS_FOLDER]["secret"]
        keys = {item["key"] for item in secret["items"]} if "items" in secret else set(SECRETS[secret["secretName"]])
        assert keys <= set(SECRETS[secret["secretName"]])
        assert keys == ({"redis-url"} if name == "daemon" else {"redis-url", "tokens"})

    def test_the_network_policy_allows_the_ports_in_use(self, name, tmp_path):
        settings = pod_settings(tmp_path, name)
        policy = RESOURCES["NetworkPolicy", WORKLOADS[name]["metadata"]["name"]]["spec"]
        assert policy["podSelector"]["matchLabels"] == labels(WORKLOADS[name])
        assert {one["port"] for rule in policy["ingress"] for one in rule["ports"]} == {port_of(name)["name"]}
        redis = int(re.search(r":(\d+)/", settings.redis.url.get_secret_value())[1])
        kafka = {int(server.rpartition(":")[2]) for server in settings.kafka.bootstrap_servers}
        anywhere = {one["port"] for rule in policy["egress"] if "to" not in rule for one in rule["ports"]}
        assert anywhere == {53, redis, *kafka}


class TestSecretExample:
    def test_it_is_no_part_of_what_is_applied(self):
        for path in KUBERNETES.rglob("kustomization.yaml"):
            assert all("secrets.example.yaml" not in document["resources"] for document in documents(path))
        assert not [kind for kind, _ in RESOURCES if kind == "Secret"]

    def test_the_service_refuses_the_placeholders(self, tmp_path):
        path = tmp_path / "tokens"
        path.write_text(SECRETS["streamdedup-serve"]["tokens"], encoding="utf-8")
        with pytest.raises(SettingsError, match="at least 22 characters"):
            Tokens(path)

    def test_prometheus_has_one_of_the_tokens(self):
        secret = SECRETS["streamdedup-serve"]
        assert secret["metrics-token"] in secret["tokens"].splitlines()


class TestComponents:
    def test_pod_monitors_scrape_the_metrics_port_of_all_pods(self):
        assert set(MONITORS) == {workload["metadata"]["name"] for workload in WORKLOADS.values()}
        for name, workload in WORKLOADS.items():
            monitor = MONITORS[workload["metadata"]["name"]]
            assert monitor["selector"]["matchLabels"] == labels(workload)
            (endpoint,) = monitor["podMetricsEndpoints"]
            assert (endpoint["port"], endpoint["path"]) == (port_of(name)["name"], "/metrics")

    def test_the_job_of_the_daemons_is_that_of_the_alert_rules(self):
        rules = (ROOT / "deploy/prometheus/rules/streamdedup.yml").read_text(encoding="utf-8")
        (job,) = set(re.findall(r'job="([^"]+)"', rules))
        assert labels(DAEMONS)[MONITORS["streamdedup"]["jobLabel"]] == job
        assert labels(SERVE)[MONITORS["streamdedup-serve"]["jobLabel"]] != job

    def test_metrics_of_the_service_are_asked_for_with_a_token_of_its_secret(self):
        (endpoint,) = MONITORS["streamdedup-serve"]["podMetricsEndpoints"]
        credentials = endpoint["authorization"]["credentials"]
        assert credentials["key"] in SECRETS[credentials["name"]]

    def test_the_number_of_daemons_follows_the_lag_of_their_group(self, tmp_path):
        settings = pod_settings(tmp_path, "daemon")
        (scaled,) = documents_of_component("autoscaling")
        target = scaled["spec"]["scaleTargetRef"]
        assert (target["kind"], target["name"]) in RESOURCES
        triggers = [trigger["metadata"] for trigger in scaled["spec"]["triggers"]]
        topics = {topic for profile in settings.profiles.values() for topic in profile.topics}
        assert {trigger["topic"] for trigger in triggers} == topics
        for trigger in triggers:
            assert trigger["bootstrapServers"] == ",".join(settings.kafka.bootstrap_servers)
            assert trigger["consumerGroup"] == settings.kafka.group_id


class TestPage:
    def test_parts_of_files_on_the_page_equal_the_files(self):
        quotes = re.findall(r"^( *)```(?:ini|yaml)\n(.*?)^\1```$", PAGE, re.MULTILINE | re.DOTALL)
        assert len(quotes) >= 2
        files = [path.read_text(encoding="utf-8") for path in (*UNITS, *KUBERNETES.rglob("*.yaml"))]
        for indent, text in quotes:
            content = re.sub(f"^{indent}", "", text, flags=re.MULTILINE)
            depths = [textwrap.indent(content, " " * depth) for depth in range(0, 20, 2)]
            assert any(quote in file for file in files for quote in depths), content

    def test_it_names_every_folder_and_unit(self):
        for path in KUBERNETES.rglob("kustomization.yaml"):
            assert f"| `{path.parent.relative_to(KUBERNETES)}` |" in PAGE
        for path in UNITS:
            assert f"| `{path.name}` |" in PAGE

    def test_it_names_every_file_that_the_units_read(self):
        sources = {pair.split(":")[1] for unit in UNIT_OF.values() for pair in unit.values["LoadCredential"]}
        for source in sources | {f"{SETTINGS_FOLDER}/streamdedup.toml"}:
            assert f"| `{Path(source).name}` |" in PAGE
