"""The files of deploy/kubernetes/ and deploy/systemd/, for the tests that compare and validate them."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[1]
KUBERNETES = ROOT / "deploy" / "kubernetes"
BASE = KUBERNETES / "base"
SETTINGS_FILE = BASE / "streamdedup.toml"
#: Overlays and bases that kustomize builds.
BUILDS = ("base", "overlays/full")
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
#: Folder of the settings file in pods and on machines, and folder of the secrets in pods.
SETTINGS_FOLDER, SECRETS_FOLDER = "/etc/streamdedup", "/run/secrets/streamdedup"
#: The program that the units start.
PROGRAM = "/opt/streamdedup/bin/streamdedup"


def documents(path: Path) -> list[dict[str, Any]]:
    """Return all resources of a file."""
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def resources(folder: Path = BASE) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the resources that a kustomization names, by kind and name."""
    (kustomization,) = documents(folder / "kustomization.yaml")
    found = [document for name in kustomization["resources"] for document in documents(folder / name)]
    return {(one["kind"], one["metadata"]["name"]): one for one in found}


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of systemd.

    Attributes:
        path: Its file.
        values: Values of each key, in their order.
    """

    path: Path
    values: dict[str, list[str]]

    @classmethod
    def read(cls, path: Path) -> "Unit":
        """Read a file."""
        values: dict[str, list[str]] = {}
        for key, value in re.findall(r"^(\w+)=(.*)$", path.read_text(encoding="utf-8"), re.MULTILINE):
            values.setdefault(key, []).append(value)
        return cls(path, values)

    def command(self) -> list[str]:
        """Return program and arguments."""
        (line,) = self.values["ExecStart"]
        return shlex.split(line)

    def environment(self, credentials: Path) -> dict[str, str]:
        """Return the variables of instance 4, with credentials in a folder."""
        expand = {"%H": "host", "%i": "4", "%d": str(credentials)}
        pairs = dict(pair.split("=", 1) for pair in self.values["Environment"])
        return {name: re.sub("%.", lambda found: expand[found[0]], value) for name, value in pairs.items()}

    def credentials(self) -> set[str]:
        """Return the names of all credentials."""
        return {pair.split(":")[0] for pair in self.values["LoadCredential"]}
