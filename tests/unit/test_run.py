"""How ``streamdedup run`` says why it ends: an event of the log where that is JSON, a line for people elsewhere."""

import json
import logging
import subprocess
import sys
import textwrap

import pytest
import structlog

from streamdedup.cli import main as cli
from streamdedup.cli import run as run_module
from streamdedup.errors import EXIT_FAILED, EXIT_FATAL, EXIT_FORCED, EXIT_STALLED, EXIT_USAGE, IndexLost, SettingsError

SMALLEST = """
kafka.bootstrap_servers = "localhost:9092"
redis.url = "redis://localhost:6379/0"
profiles.articles.topics = ["articles"]
"""


@pytest.fixture(autouse=True)
def _restored_logging():
    """Leave the process's logging as it was found."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


@pytest.fixture
def ended(tmp_path, capsys, monkeypatch):
    """Run a daemon that ends with an error; return exit code and standard error."""

    def run(error: Exception, *, terminal: bool = False) -> tuple[object, str]:
        def fail(_settings: object) -> None:
            raise error

        monkeypatch.setattr(run_module, "run_daemon", fail)
        config = tmp_path / "streamdedup.toml"
        config.write_text(SMALLEST, encoding="utf-8")
        monkeypatch.setattr(sys.stderr, "isatty", lambda: terminal)
        with pytest.raises(SystemExit) as exited:
            cli.main(["run", "--config", str(config)])
        return exited.value.code, capsys.readouterr().err

    return run


@pytest.mark.parametrize(
    ("error", "code"), [(IndexLost("gone: begin anew"), EXIT_FATAL), (SettingsError("port: taken"), EXIT_USAGE)]
)
def test_an_error_that_ends_the_daemon_is_one_event_where_the_log_is_json(ended, error, code):
    exited_with, text = ended(error)
    (event,) = [json.loads(line) for line in text.splitlines()]
    assert exited_with == code
    assert {name: event[name] for name in ("level", "event", "logger", "error", "exit_code", "reason")} == {
        "level": "critical",
        "event": "fatal",
        "logger": "streamdedup.run",
        "error": type(error).__name__,
        "exit_code": code,
        "reason": str(error),
    }
    assert "exception" not in event


def test_on_a_terminal_an_error_is_one_line(ended):
    assert ended(IndexLost("gone: begin anew"), terminal=True) == (EXIT_FATAL, "streamdedup: gone: begin anew\n")


def test_a_mistake_of_the_program_is_one_event_with_its_traceback(ended):
    exited_with, text = ended(ZeroDivisionError("by nothing"))
    (event,) = [json.loads(line) for line in text.splitlines()]
    assert exited_with == event["exit_code"] == EXIT_FAILED
    assert (event["level"], event["event"], event["error"]) == ("critical", "fatal", "ZeroDivisionError")
    assert "Traceback" in event["exception"]
    assert "in fail" in event["exception"]


def test_on_a_terminal_a_mistake_of_the_program_shows_its_traceback_too(ended):
    exited_with, text = ended(ZeroDivisionError("by nothing"), terminal=True)
    assert exited_with == EXIT_FAILED
    assert text.count("Traceback") == 1
    assert "ZeroDivisionError: by nothing" in text


@pytest.mark.parametrize(
    ("event", "code", "context"),
    [
        ("fatal", EXIT_STALLED, "Watchdog(0.2, ending_at_once('fatal', 70, 'streamdedup.run'))"),
        ("stop_forced", EXIT_FORCED, "StopTimer(0.2, ending_at_once('stop_forced', 75, 'streamdedup.run')) as timer"),
    ],
)
@pytest.mark.parametrize("terminal", [False, True])
def test_a_stuck_process_reports_it_in_the_same_way_although_the_log_is_stuck_too(event, code, context, terminal):
    script = f"""
        import logging, sys, threading
        from streamdedup.daemon import logs
        from streamdedup.cli.fatal import ending_at_once
        from streamdedup.daemon.shutdown import StopTimer, Watchdog
        timer = None
        sys.stderr.isatty = lambda: {terminal}
        logs.configure("info")
        with {context}:
            if timer is not None:
                timer.begin()
            with logging.getLogger().handlers[0].lock:
                threading.Event().wait()
    """
    command = [sys.executable, "-W", "ignore", "-c", textwrap.dedent(script)]
    process = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert process.returncode == code
    *calls, line = process.stderr.splitlines()
    if not terminal:
        assert not calls
        said = json.loads(line)
        assert (said["level"], said["event"], said["exit_code"]) == ("critical", event, code)
        assert said["timestamp"].endswith("Z")
        assert "0.2 s" in said["reason"]
        stacks = {name.rpartition(" ")[0]: calls for name, calls in said["threads"].items()}
        assert stacks.keys() == {"MainThread", "watchdog" if event == "fatal" else "stop timer"}
        assert stacks["MainThread"][0].endswith(" in wait")
        assert stacks["MainThread"][-1].endswith(" in <module>")
    else:
        assert [name.split()[1] for name in calls if name.startswith("thread ")][-1] == "MainThread"
        assert calls[-1].endswith(" in <module>")
        assert line.startswith("streamdedup: ")
        assert line.endswith(f"; exiting with {code}")
