"""What docker-compose.yml, deploy/Dockerfile and .dockerignore say, for the tests that compare and that replay it."""

import fnmatch
import os
import re
from pathlib import Path

import yaml

from streamdedup.settings import Settings

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES = COMPOSE["services"]
DOCKERFILE = (ROOT / "deploy" / "Dockerfile").read_text(encoding="utf-8")
#: Instructions of the Dockerfile, continued lines joined, comments gone.
INSTRUCTIONS = [
    line.split(maxsplit=1)
    for line in re.sub(r"\\\n", " ", re.sub(r"^#.*\n", "", DOCKERFILE, flags=re.MULTILINE)).splitlines()
    if line.strip()
]
SETTINGS_FILE = ROOT / "deploy" / "streamdedup.toml"
#: Services that run the project's own image.
OWN = sorted(name for name, service in SERVICES.items() if "build" in service)
#: The section about the compose file.
PAGE_SECTION = re.search(
    r"^## Everything with one compose file\n(.*?)^## ",
    (ROOT / "docs" / "deployment.md").read_text(encoding="utf-8"),
    re.MULTILINE | re.DOTALL,
)[1]


def settings() -> Settings:
    return Settings.load(SETTINGS_FILE, environ={})


def binds(name: str) -> dict[str, Path]:
    """Return what a service mounts from the project: path in the container, path here."""
    mounts = [volume.split(":") for volume in SERVICES[name].get("volumes", ())]
    return {mount[1]: ROOT / mount[0] for mount in mounts if mount[0].startswith(".")}


def published(name: str) -> dict[int, int]:
    """Return the ports of a service: in the container, on the machine."""
    ports = [port.split(":") for port in SERVICES[name].get("ports", ())]
    return {int(inside): int(outside) for _, outside, inside in ports}


def of_kind(instruction: str) -> list[str]:
    return [rest for kind, rest in INSTRUCTIONS if kind == instruction]


def ignored(path: str) -> bool:
    """Tell whether .dockerignore keeps a path out, by Docker's rules: the last line that fits decides."""
    out = False
    for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines():
        pattern = line.lstrip("!")
        if not pattern or pattern.startswith("#"):
            continue
        beginnings = ["/".join(path.split("/")[: at + 1]) for at in range(path.count("/") + 1)]
        names = path.split("/") if pattern.startswith("**/") else []
        fits = any(fnmatch.fnmatchcase(part, pattern.removeprefix("**/")) for part in names)
        fits = fits or any("/" not in part and pattern == "*" for part in beginnings) or pattern in beginnings
        if fits:
            out = not line.startswith("!")
    return out


def build_context() -> list[Path]:
    """Return the files that go to the builder."""
    found = []
    for at, folders, files in os.walk(ROOT):
        folder = Path(at)
        folders[:] = [name for name in folders if not ignored(str((folder / name).relative_to(ROOT)))]
        found += [folder / name for name in files if not ignored(str((folder / name).relative_to(ROOT)))]
    return found
