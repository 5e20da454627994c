"""The end of a service by an error: the line of the log and the exit code."""

import json
import sys

import pytest
import structlog
import typer

from streamdedup.cli.fatal import fatal_errors_logged
from streamdedup.daemon import logs
from streamdedup.errors import BrokerMisconfigured, StoreUnavailable


@pytest.fixture
def fatal_line(capsys):
    """Let a block fail with a log of JSON; return the exit code and the line."""

    def failed(error: Exception):
        logs.configure("info")
        with pytest.raises(typer.Exit) as caught, fatal_errors_logged(structlog.get_logger("streamdedup.serve")):
            raise error
        (line,) = capsys.readouterr().err.splitlines()
        return caught.value.exit_code, json.loads(line)

    return failed


@pytest.mark.parametrize(("error", "code"), [(BrokerMisconfigured("no such topic"), 78), (StoreUnavailable("away"), 1)])
def test_a_project_error_is_one_line_with_its_exit_code(fatal_line, error, code):
    exit_code, line = fatal_line(error)
    assert exit_code == code
    assert (line["event"], line["level"], line["logger"]) == ("fatal", "critical", "streamdedup.serve")
    assert (line["error"], line["exit_code"], line["reason"]) == (type(error).__name__, code, str(error))
    assert "exception" not in line


def test_an_unexpected_error_has_its_traceback_without_local_variables(fatal_line):
    secret_local = "xylo" + "phone"
    exit_code, line = fatal_line(RuntimeError("a defect"))
    assert (exit_code, line["error"], line["reason"]) == (1, "RuntimeError", "a defect")
    assert "test_fatal.py" in line["exception"]
    assert secret_local not in line["exception"]


def test_on_a_terminal_the_command_line_reports_a_project_error(monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    logs.configure("info")
    with pytest.raises(StoreUnavailable), fatal_errors_logged(structlog.get_logger("streamdedup.serve")):
        raise StoreUnavailable("away")


def test_without_an_error_nothing_is_logged(capsys):
    logs.configure("info")
    with fatal_errors_logged(structlog.get_logger("streamdedup.serve")):
        pass
    assert capsys.readouterr().err == ""
