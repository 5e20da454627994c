"""The requests that docs/http.md prints, sent by curl as they are printed."""

import contextlib
import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.browsing import serving
from tests.event_stream import MemoryTopic, an_alert
from tests.served import Service
from tests.servers import unavailable, wait_until

PAGE = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")
#: Commands of the page, without the prompt.
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.replace("\\\n", "").splitlines()
    if line.startswith("curl ")
]
ADDRESS = "http://127.0.0.1:8080/"
#: The document that the page sends first.
(DOCUMENT,) = [json.loads(text) for text in re.findall(r"^echo '(\{.*\})' > ferry\.jsonl$", PAGE, re.MULTILINE)]


@pytest.fixture
def world() -> Iterator[tuple[str, MemoryTopic]]:
    """The address of a service that knows the document of the page, and its alerts topic."""
    if shutil.which("curl") is None:
        unavailable(FileNotFoundError("curl"))
    topic = MemoryTopic(1)
    service = Service(open_reader=topic.open, open_letters=MemoryTopic(1, "letters").open)
    service.add((DOCUMENT["id"], DOCUMENT["text"]))
    with contextlib.closing(service), serving(service) as url:
        yield url, topic


def command_of(part: str, url: str) -> list[str]:
    """Return the one command whose path contains a text, with the address of a service of the test."""
    (command,) = [each for each in COMMANDS if part in each]
    assert command.count(ADDRESS) == 1
    return shlex.split(command.replace(ADDRESS, url))


def answer(command: list[str]) -> dict[str, object]:
    ended = subprocess.run([*command, "--silent"], capture_output=True, text=True, check=True)
    return json.loads(ended.stdout)


def test_all_commands_are_tested():
    assert len(COMMANDS) == 4


def test_a_lookup(world):
    found = answer(command_of("/lookup", world[0]))
    (match,) = found["matches"]
    assert match["id"] == DOCUMENT["id"]
    assert f"the match `{match['id']}`" in PAGE


def test_a_comparison(world):
    found = answer(command_of("/compare", world[0]))
    assert "".join(segment["b"] for segment in found["segments"]) == DOCUMENT["text"]
    assert {"kind": "changed", "a": "June", "b": "May"} in found["segments"]


@pytest.mark.parametrize("stream", ["alerts", "dead-letters"])
def test_a_stream(world, stream):
    url, topic = world
    command = [*command_of(f"/v1/{stream}", url), "--silent"]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        lines = iter(running.stdout.readline, b"")
        assert next(lines).startswith(b"id: ")
        if stream == "alerts":
            wait_until(lambda: topic.open_count, what="the reader")
            topic.add(0, an_alert("4711"))
            assert b"event: alert\n" in lines
        running.kill()
