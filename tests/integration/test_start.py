"""The start of `run` and `serve`: stop signals at exact moments, sent by a hook in the process; a foreign variable."""

import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from streamdedup.errors import EXIT_FORCED
from tests.servers import wait_until
from tests.serving import settings_file

#: Seconds that a process may take to end.
PATIENCE_S = 120.0
#: Imported by Python before anything else: signals the process itself at the import of a module, or where standard
#: error gets a log event.
HOOK = """
import os, signal, sys

kind, moment, number = os.environ["STOP_AT"].split()

def stop():
    os.kill(os.getpid(), int(number))

class Stream:
    def __init__(self, stream):
        self._stream = stream

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def write(self, text):
        self._stream.write(text)
        if f'"event": "{moment}"' in text:
            self._stream.flush()
            stop()

if kind == "event":
    sys.stderr = Stream(sys.stderr)
else:
    sys.addaudithook(lambda event, values: stop() if event == "import" and values[0] == moment else None)
"""
#: Runs `serve` with a reader of alerts that never opens: the constructor signals the process, and waits for ever.
STUCK = """
import os, signal, sys, threading
from streamdedup.cli import serve
from streamdedup.cli.main import main

class Stuck:
    def __init__(self, options):
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Event().wait()

serve.TopicReader = Stuck
main(["serve", *sys.argv[1:]])
"""
MOMENTS = [
    (signal.SIGTERM, "run", "import", "streamdedup.cli.main"),
    (signal.SIGTERM, "run", "import", "kafka"),
    (signal.SIGTERM, "run", "event", "waiting"),
    (signal.SIGTERM, "serve", "import", "streamdedup.cli.main"),
    (signal.SIGTERM, "serve", "import", "h11"),
    (signal.SIGTERM, "serve", "event", "serving"),
    (signal.SIGINT, "run", "import", "typer"),
    (signal.SIGINT, "serve", "import", "litestar"),
    (signal.SIGINT, "serve", "event", "serving"),
]


@pytest.fixture
def start(tmp_path):
    """Return a function that starts a command with a moment to stop."""
    (tmp_path / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    config = settings_file(tmp_path, "redis://127.0.0.1:9")
    processes = []

    def start(command: str, stop_at: str, **variables: object) -> subprocess.Popen:
        sets = ("service.metrics_port=0", "api.port=0")
        words = [sys.executable, "-m", "streamdedup", command, "--config", config, *(f"--set={each}" for each in sets)]
        environment = {**os.environ, **variables, "PYTHONPATH": str(tmp_path), "STOP_AT": stop_at}
        processes.append(
            subprocess.Popen(
                words,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(("number", "command", "kind", "moment"), MOMENTS)
def test_a_stop_at_any_moment_of_the_start_is_a_clean_stop(start, number, command, kind, moment):
    process = start(command, f"{kind} {moment} {number:d}")
    output, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, output) == (0, "")
    assert "Traceback" not in errors
    events = [line for line in errors.splitlines() if line.startswith("{")]
    assert bool(events) == (kind == "event")
    assert kind == "import" or '"event": "stopped"' in events[-1]


@pytest.mark.parametrize("command", ["run", "serve"])
def test_a_process_that_handles_signals_stops_before_it_has_written_anything(start, command):
    process = start(command, "import none 0")

    def handled() -> bool:
        status = Path(f"/proc/{process.pid}/status").read_text(encoding="utf-8")
        (line,) = [line for line in status.splitlines() if line.startswith("SigCgt:")]
        return bool(int(line.split()[1], 16) >> (signal.SIGTERM - 1) & 1)

    wait_until(handled, what="a handler")
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=PATIENCE_S) == ("", "")
    assert process.returncode == 0


def test_a_service_that_waits_for_a_server_at_its_end_is_ended(tmp_path):
    config = settings_file(tmp_path, "redis://127.0.0.1:9")
    words = [sys.executable, "-c", STUCK, "--config", config, "--set=api.port=0"]
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        try:
            serving = next(event for event in map(json.loads, process.stderr) if event["event"] == "serving")
            with socket.create_connection(("127.0.0.1", serving["port"]), timeout=PATIENCE_S) as client:
                client.sendall(b"GET /v1/alerts HTTP/1.1\r\nhost: localhost\r\n\r\n")
                _, errors = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
    *_, stopped, forced = map(json.loads, errors.splitlines())
    assert (stopped["event"], forced["event"], process.returncode) == ("stopped", "stop_forced", EXIT_FORCED)
    assert (forced["logger"], forced["reason"]) == (
        "streamdedup.serve",
        "stopping took longer than 8 s; nothing is lost",
    )


def test_a_signal_during_the_import_of_another_command_has_its_default_action(start):
    process = start("check", f"import typer {signal.SIGTERM:d}")
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == -signal.SIGTERM


@pytest.mark.parametrize(
    ("command", "event", "folder_exists", "name"),
    [
        ("run", "waiting", True, "PROMETHEUS_MULTIPROC_DIR"),
        ("serve", "serving", True, "prometheus_multiproc_dir"),
        ("serve", "serving", False, "PROMETHEUS_MULTIPROC_DIR"),
    ],
)
def test_a_folder_for_metrics_of_several_processes_stays_empty(start, tmp_path, command, event, folder_exists, name):
    folder = tmp_path / "metrics"
    if folder_exists:
        folder.mkdir()
    process = start(command, f"event {event} {signal.SIGTERM:d}", **{name: str(folder)})
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    assert not list(tmp_path.glob("metrics/*"))
