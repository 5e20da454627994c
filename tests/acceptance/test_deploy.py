"""Files for Kubernetes are built by kustomize and valid against its schemas; units are accepted by systemd."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from streamdedup.embedded.process import find_tool
from tests.deployed import BASE, BUILDS, KUBERNETES, PROGRAM, UNITS, documents

#: The version of Kubernetes whose schemas are installed, as docs/deployment.md says.
VERSION = "1.37"
#: Kinds of components that are resources of operators, and have no schema in Kubernetes.
CUSTOM = {"PodMonitor", "ScaledObject"}
#: Greatest exposure of a unit by `systemd-analyze security`, from 0 to 10.
MOST_EXPOSURE = 2.0


def build(folder):
    """Return the resources that kustomize builds; without the program the test fails."""
    program = find_tool("kustomize", "run `make tools`")
    result = subprocess.run([program, "build", str(folder)], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert not result.stderr  # warnings about retired fields
    return list(yaml.safe_load_all(result.stdout))


def validate(resource):
    assert kubernetes_validate.validate(resource, VERSION, strict=True) == VERSION


class TestKubernetes:
    @pytest.mark.parametrize("name", BUILDS)
    def test_resources_are_valid(self, name):
        found = build(KUBERNETES / name)
        custom = [resource["kind"] for resource in found if resource["kind"] in CUSTOM]
        for resource in found:
            if resource["kind"] not in CUSTOM:
                validate(resource)
        assert set(custom) == (CUSTOM if name != "base" else set())
        assert len(found) - len(custom) == 9

    def test_the_example_of_secrets_is_valid(self):
        for resource in documents(BASE / "secrets.example.yaml"):
            validate(resource)

    def test_a_misspelt_key_is_found(self):
        (daemons,) = [one for one in build(BASE) if one["kind"] == "StatefulSet"]
        daemons["spec"]["template"]["spec"]["terminationGracePeriod"] = 15
        with pytest.raises(kubernetes_validate.ValidationError, match="terminationGracePeriod"):
            validate(daemons)

    def test_pods_mount_the_settings_by_the_name_that_holds_their_hash(self):
        found = build(BASE)
        (settings,) = [one for one in found if one["kind"] == "ConfigMap"]
        assert re.fullmatch(r"streamdedup-[a-z0-9]{10}", settings["metadata"]["name"])
        assert settings["data"] == {"streamdedup.toml": (BASE / "streamdedup.toml").read_text(encoding="utf-8")}
        workloads = [one for one in found if one["kind"] in {"StatefulSet", "Deployment"}]
        for workload in workloads:
            volumes = {one["name"]: one for one in workload["spec"]["template"]["spec"]["volumes"]}
            assert volumes["settings"]["configMap"]["name"] == settings["metadata"]["name"]
        assert len(workloads) == 2

    def test_the_whole_set_is_in_one_namespace_and_leaves_the_number_of_daemons_to_keda(self):
        found = build(KUBERNETES / "overlays" / "full")
        assert {one["metadata"]["namespace"] for one in found} == {"streamdedup"}
        (daemons,) = [one for one in found if one["kind"] == "StatefulSet"]
        assert "replicas" not in daemons["spec"]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze")
class TestSystemd:
    @pytest.fixture
    def unit(self, tmp_path, request):
        """A copy of a unit that starts the program of this environment, because systemd looks for it."""
        path = request.param
        program = Path(sys.executable).with_name("streamdedup")
        assert program.is_file()
        text = path.read_text(encoding="utf-8")
        copy = tmp_path / path.name
        copy.write_text(text.replace(f"ExecStart={PROGRAM} ", f"ExecStart={program} "), encoding="utf-8")
        return copy

    @pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name, indirect=True)
    def test_a_unit_is_accepted_without_a_warning(self, unit):
        result = analyze("verify", "--man=no", str(unit))
        assert result.returncode == 0, result.stderr
        assert not result.stderr

    @pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name, indirect=True)
    def test_a_unit_has_few_privileges(self, unit):
        result = analyze("security", "--offline=yes", "--no-pager", str(unit))
        (exposure,) = re.findall(r"Overall exposure level for \S+: ([\d.]+)", result.stdout)
        assert float(exposure) <= MOST_EXPOSURE

    @pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name, indirect=True)
    def test_an_unknown_key_is_found(self, unit):
        unit.write_text(unit.read_text(encoding="utf-8").replace("RestartSec=", "RestartSecs="), encoding="utf-8")
        assert "RestartSecs" in analyze("verify", "--man=no", str(unit)).stderr


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)
