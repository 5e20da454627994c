"""Files for Kubernetes are built by kustomize and valid against its schemas; units are accepted by systemd.

Schemas of Kubernetes come with a Python package, those of operators with their Go modules, from the Go module proxy.
"""

import copy
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.deployed import BASE, BUILDS, KUBERNETES, PROGRAM, UNITS, documents
from tests.support.processes import find_tool

#: The version of Kubernetes whose schemas are installed, as docs/deployment.md says.
VERSION = "1.37"
#: Kinds of operators: module, version, and the file in it that defines the kind with its schema.
CUSTOM = {
    "PodMonitor": (
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml",
    ),
    "ScaledObject": ("github.com/kedacore/keda/v2", "v2.21.0", "config/crd/bases/keda.sh_scaledobjects.yaml"),
}
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


def close(schema):
    """Forbid unknown keys wherever a schema lists the known ones, as the server does."""
    if isinstance(schema, dict):
        known = schema.get("type") == "object" and isinstance(schema.get("properties"), dict)
        if known and not schema.get("x-kubernetes-preserve-unknown-fields"):
            schema["additionalProperties"] = False
        for part in schema.values():
            close(part)
    elif isinstance(schema, list):
        for part in schema:
            close(part)


@pytest.fixture(scope="module")
def definitions(tmp_path_factory):
    """The definitions of all custom kinds, from the cache of Go or the Go module proxy."""
    folder = tmp_path_factory.mktemp("modules")
    program = find_tool("go", "install Go 1.24 or newer")
    found = {}
    for kind, (module, version, file) in CUSTOM.items():
        command = [program, "mod", "download", "-json", f"{module}@{version}"]
        result = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        (found[kind],) = documents(Path(json.loads(result.stdout)["Dir"]) / file)
        assert found[kind]["spec"]["names"]["kind"] == kind
    return found


def validate_custom(resource, definition):
    """Compare a resource with the schema of its version."""
    group, _, version = resource["apiVersion"].partition("/")
    assert group == definition["spec"]["group"]
    (schema,) = [one["schema"] for one in definition["spec"]["versions"] if one["name"] == version and one["served"]]
    schema = copy.deepcopy(schema["openAPIV3Schema"])
    close(schema["properties"]["spec"])
    Draft202012Validator(schema).validate(resource)


class TestKubernetes:
    @pytest.mark.parametrize("name", BUILDS)
    def test_resources_are_valid(self, name):
        found = build(KUBERNETES / name)
        custom = {resource["kind"] for resource in found} & set(CUSTOM)
        for resource in found:
            if resource["kind"] not in CUSTOM:
                validate(resource)
        assert custom == (set(CUSTOM) if name != "base" else set())
        assert len([resource for resource in found if resource["kind"] not in CUSTOM]) == 9

    def test_resources_of_operators_are_valid(self, definitions):
        found = [one for one in build(KUBERNETES / "overlays" / "full") if one["kind"] in CUSTOM]
        assert {one["kind"] for one in found} == set(CUSTOM)
        for resource in found:
            validate_custom(resource, definitions[resource["kind"]])

    def test_the_example_of_secrets_is_valid(self):
        for resource in documents(BASE / "secrets.example.yaml"):
            validate(resource)

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
        changed = tmp_path / path.name
        changed.write_text(text.replace(f"ExecStart={PROGRAM} ", f'ExecStart="{program}" '), encoding="utf-8")
        return changed

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


def analyze(*arguments):
    return subprocess.run(["systemd-analyze", *arguments], capture_output=True, text=True, check=False)
