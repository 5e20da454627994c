"""``streamdedup check``: verify settings and live servers before the first start, by the checks of ``cli.checks``."""

import json
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from streamdedup.cli.checks import CHECKS, CheckRun
from streamdedup.cli.output import tell
from streamdedup.cli.settings_options import ConfigOption, SetOption, load_settings
from streamdedup.counts import counted
from streamdedup.errors import EXIT_FAILED, EXIT_FATAL, EXIT_OK, EXIT_USAGE, FatalError, SettingsError
from streamdedup.findings import Finding, Level
from streamdedup.indexes import connect_backend

_LEVEL_WIDTH = 9  # width of the level with the space after it, in columns
_LEAST_WIDTH = 40  # least width of the text, in columns; a narrower terminal wraps the lines
_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.FAILED: "red"}
#: Consequence for the daemon, by exit code.
_VERDICTS = {
    EXIT_OK: "the daemon can start",
    EXIT_FAILED: "the daemon would wait for the server that does not answer",
    EXIT_USAGE: "the daemon would not start",
    EXIT_FATAL: "the daemon would not start",
}


def check(
    config: ConfigOption = None,
    assignments: SetOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
) -> None:
    """Verify settings, Kafka, Redis, rights, topics, keys and indexes before the first start.

    Read-only. Prints a line for each check: ok, warning or failed, with the cure; a failure does not stop the others.
    Exit code 0: nothing failed; 1: a server does not answer; 2: the settings are wrong; 78: an operator must help.

    Example:  streamdedup check --config streamdedup.toml
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
    findings: list[Finding] = []
    for finding in _findings(config, assignments):
        findings.append(finding)
        if not as_json:
            for line in render(finding, width):
                typer.echo(line)
    code = exit_code_of(findings)
    if as_json:
        typer.echo(json.dumps(as_object(findings, code), indent=2))
    else:
        tell(_summary(findings, code))
    raise typer.Exit(code)


def _findings(config: Path | None, assignments: list[str] | None) -> Iterator[Finding]:
    try:
        settings = load_settings(config, assignments)
    except SettingsError as error:
        for line in str(error).splitlines():
            yield Finding.failure("settings", SettingsError(line))
        return
    yield Finding.ok("settings", f"settings are valid: profiles {', '.join(sorted(settings.profiles))}")
    for hint in settings.hint_lines():
        yield Finding.warning("settings", hint)
    with connect_backend(settings) as backend:
        check_run = CheckRun(settings, backend)
        for server_check in CHECKS:
            yield from server_check.findings(check_run)


def exit_code_of(findings: Iterable[Finding]) -> int:
    """Return the exit code of the most severe failure: first settings, then what an operator must cure."""
    classes = [finding.error for finding in findings if finding.error is not None]
    if not classes:
        return EXIT_OK
    if any(issubclass(error_class, SettingsError) for error_class in classes):
        return EXIT_USAGE
    return EXIT_FATAL if any(issubclass(error_class, FatalError) for error_class in classes) else EXIT_FAILED


def as_object(findings: Iterable[Finding], code: int) -> dict[str, Any]:
    # The class of an error is written as its name; None stays.
    checks = [asdict(finding) | {"error": finding.error and finding.error.__name__} for finding in findings]
    return {"exit_code": code, "checks": checks}


def render(finding: Finding, width: int | None) -> Iterator[str]:
    """Yield the lines of a finding, wrapped to ``width``; without a terminal (None), text and command in one line."""
    level = f"{finding.level:<{_LEVEL_WIDTH}}"
    if width is None:
        yield level + " ".join(finding.sentence.split())
        return
    indent = " " * _LEVEL_WIDTH
    room = max(_LEAST_WIDTH, width - _LEVEL_WIDTH)
    lines = textwrap.wrap(finding.text, room, break_long_words=False, break_on_hyphens=False)
    yield typer.style(level, fg=_COLOURS[finding.level]) + lines[0]
    yield from (indent + line for line in lines[1:])
    if finding.command is not None:
        # Never wrapped, so that it can be pasted into a shell.
        yield indent + typer.style(finding.command, bold=True)


def _summary(findings: Iterable[Finding], code: int) -> str:
    counts = Counter(finding.level for finding in findings)
    parts = (f"{counts[Level.OK]} ok", counted(counts[Level.WARNING], "warning"), f"{counts[Level.FAILED]} failed")
    return f"{', '.join(parts)}: {_VERDICTS[code]}"
