"""Load by `vegeta`, a generator of HTTP requests, and the times that it reports.

At a fixed rate vegeta is an open loop: a request is sent when it is due, whether or not earlier ones were answered, and
its time counts from then. Without a rate each client sends its next request when the one before was answered.
"""

import json
import subprocess
from base64 import b64encode
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from streamdedup.embedded.process import ServerError
from tests.support.processes import find_tool

#: Longest time of one request, in seconds.
TIMEOUT_S = 30


class Load(NamedTuple):
    """Result of some seconds of load."""

    requests: int
    failed: int
    answered_per_s: float
    p50_ms: float
    p99_ms: float
    longest_ms: float


def write_targets(path: Path, url: str, bodies: Iterable[Any]) -> Path:
    """Write requests of JSON bodies, which the generator sends one after the other and over again; return the path."""
    with path.open("wb") as file:
        for body in bodies:
            target = {
                "method": "POST",
                "url": url,
                "header": {"content-type": ["application/json"]},
                "body": b64encode(msgspec.json.encode(body)).decode(),
            }
            file.write(msgspec.json.encode(target) + b"\n")
    return path


def attack(targets: Path, seconds: float, *, rate: int = 0, clients: int = 0) -> Load:
    """Send requests for some seconds: at a rate, or (0) as many as the clients can, of which 0 is no limit."""
    program = find_tool("vegeta", "run `make tools`")
    command = [program, "attack", "-format=json", f"-targets={targets}", f"-rate={rate}", f"-duration={seconds}s"]
    command += [f"-timeout={TIMEOUT_S}s", *([f"-max-workers={clients}", f"-workers={clients}"] if clients else [])]
    sent = subprocess.run(command, capture_output=True, check=False)
    if sent.returncode:
        raise ServerError(f"vegeta failed: {sent.stderr.decode(errors='replace')}")
    report = subprocess.run([program, "report", "-type=json"], input=sent.stdout, capture_output=True, check=True)
    return read_report(json.loads(report.stdout))


def read_report(report: dict[str, Any]) -> Load:
    """Return the result that a report of the generator has; its times are in nanoseconds."""
    requests, times = report["requests"], report["latencies"]
    answered = report["status_codes"].get("200", 0)
    seconds = (report["duration"] + report["wait"]) / 1e9
    milliseconds = [times[name] / 1e6 for name in ("50th", "99th", "max")]
    return Load(requests, requests - answered, answered / seconds, *milliseconds)
