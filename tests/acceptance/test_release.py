"""A release as `make release` builds it: equal bytes each time, and the wheel in an environment of its own."""

import json
import re
import subprocess
import sys
import urllib.request
from hashlib import sha256
from pathlib import Path

import pytest

from streamdedup import __version__
from tests.acceptance.test_demo import Demo, sample_text
from tests.servers import unavailable

REPOSITORY = Path(__file__).parents[2]
#: Wheels that `make tools` has fetched.
PACKAGES = REPOSITORY / "build" / "packages"


def run(*command: str | Path, cwd: Path) -> str:
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


def built(clone: Path) -> dict[str, bytes]:
    run("deploy/release.sh", sys.executable, PACKAGES, cwd=clone)
    return {path.name: path.read_bytes() for path in (clone / "dist").iterdir()}


@pytest.fixture(scope="module")
def clone(tmp_path_factory):
    if not PACKAGES.exists():
        unavailable(FileNotFoundError("build/packages: make tools fetches the packages"))
    folder = tmp_path_factory.mktemp("release") / "clone"
    run("git", "clone", "--quiet", REPOSITORY, folder, cwd=REPOSITORY)
    return folder


@pytest.fixture(scope="module")
def release(clone):
    return built(clone)


@pytest.fixture(scope="module")
def installed(clone, release, tmp_path_factory):
    """The Python of an environment with the wheel."""
    folder = tmp_path_factory.mktemp("installed")
    run(sys.executable, "-m", "venv", folder, cwd=folder)
    return folder / "bin" / "python"


def install(clone: Path, python: Path, extras: str) -> None:
    links = [part for folder in (clone / "dist", PACKAGES) for part in ("--find-links", str(folder))]
    constraint = ["--constraint", str(clone / "constraints.txt")]
    run(
        python,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        *links,
        *constraint,
        f"streamdedup[{extras}]",
        cwd=clone,
    )


def packages(python: Path) -> set[tuple[str, str]]:
    listed = json.loads(run(python, "-m", "pip", "list", "--format", "json", cwd=python.parent))
    return {(named(entry["name"]), entry["version"]) for entry in listed}


def named(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()


def test_the_checksums_are_those_of_the_files(release):
    listed = dict(reversed(line.split("  ")) for line in release["SHA256SUMS"].decode().splitlines())
    assert listed == {name: sha256(content).hexdigest() for name, content in release.items() if name != "SHA256SUMS"}


def test_uncommitted_files_are_no_part_of_a_release(clone, release):
    (clone / "left").touch()
    refused = subprocess.run(
        ["deploy/release.sh", sys.executable, PACKAGES], cwd=clone, check=False, capture_output=True, text=True
    )
    (clone / "left").unlink()
    assert (refused.returncode, refused.stderr) == (
        1,
        "release: a release is built from a commit; commit or remove:\n?? left\n",
    )


def test_a_second_build_has_the_same_bytes_beside_files_that_git_ignores_by_a_setting_of_the_clone(clone, release):
    with (clone / ".git" / "info" / "exclude").open("a", encoding="utf-8") as exclude:
        exclude.write("left.env\n")
    for folder in (clone, clone / "streamdedup"):
        (folder / "left.env").touch()
    assert built(clone) == release


def test_the_bill_of_materials_is_the_installed_environment(clone, release, installed):
    own = packages(installed)
    install(clone, installed, "registry,serve")
    (bill,) = (json.loads(content) for name, content in release.items() if name.endswith(".cdx.json"))
    listed = {(named(part["name"]), part["version"]) for part in bill["components"]}
    assert bill["metadata"]["component"]["name"] == "streamdedup"
    assert listed | {("streamdedup", __version__)} == packages(installed) - own


def test_the_wheel_runs_the_demo_and_answers_a_look_up(clone, release, installed, tmp_path):
    install(clone, installed, "demo")
    with Demo(tmp_path, "--pace", "0", "--no-diff", "--keep", python=str(installed)) as demo:
        demo.wait_line("Enter or Ctrl-C ends.")
        url = re.search(r"into (http://127\.0\.0\.1:\d+/)$", demo.printed, re.MULTILINE)[1]
        body = json.dumps({"text": sample_text("art-005")}).encode()
        question = urllib.request.Request(
            f"{url}v1/profiles/articles/lookup", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(question, timeout=60) as answer:
            matches = json.load(answer)["matches"]
    assert [match["id"] for match in matches[:2]] == ["art-005", "art-002"]
