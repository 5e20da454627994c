"""``streamdedup check``: verify everything that live servers can tell before the first start."""

import json
import shutil
import sys
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Annotated, Any

import typer

from streamdedup.cli.checks import every_finding
from streamdedup.cli.settings_options import ConfigOption, SetOption, load_settings
from streamdedup.errors import EXIT_FAILED, EXIT_FATAL, EXIT_OK, EXIT_USAGE, FatalError, SettingsError
from streamdedup.findings import Finding, Level
from streamdedup.settings.units import counted

#: Columns of the level and of the space after it.
_LEVEL_WIDTH = 9
#: Least width of the text beside it, in characters; a narrower terminal breaks lines by itself.
_LEAST_WIDTH = 40
_COLOURS = {Level.OK: "green", Level.WARNING: "yellow", Level.FAILED: "red"}
#: What the daemon would do, by exit code.
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
    """Verify settings, Kafka, Redis, rights, topics and indexes before the first start.

    Nothing is written anywhere. A line for each check: ok, warning or failed, with the cure; one failure hides none of
    the others. Exit code 0 when nothing failed, 1 when a server does not answer, 2 when the settings are wrong, 78 when
    something must be mended.

    Example:  streamdedup check --config streamdedup.toml
    """
    findings: list[Finding] = []
    for finding in _settled(config, assignments):
        findings.append(finding)
        if not as_json:
            for line in render(finding, _terminal_width()):
                typer.echo(line)
    code = exit_code_of(findings)
    if as_json:
        typer.echo(json.dumps(as_object(findings, code), indent=2))
    else:
        typer.echo(_summary(findings, code))
    raise typer.Exit(code)


def _settled(config: Any, assignments: list[str] | None) -> Iterator[Finding]:
    """Yield all findings; mistakes in the settings are findings too, and the only ones."""
    try:
        settings = load_settings(config, assignments)
    except SettingsError as error:
        for line in str(error).splitlines():
            yield Finding.failure("settings", "settings", SettingsError(line))
        return
    yield from every_finding(settings)


def exit_code_of(findings: Iterable[Finding]) -> int:
    """Return the exit code: that of the failure that needs the operator most."""
    errors = [finding.error for finding in findings if finding.error is not None]
    if not errors:
        return EXIT_OK
    if any(issubclass(error, SettingsError) for error in errors):
        return EXIT_USAGE
    return EXIT_FATAL if any(issubclass(error, FatalError) for error in errors) else EXIT_FAILED


def as_object(findings: Iterable[Finding], code: int) -> dict[str, Any]:
    """Return what ``--json`` prints."""
    return {
        "exit_code": code,
        "checks": [
            {
                "check": finding.check,
                "subject": finding.subject,
                "level": str(finding.level),
                "text": finding.text,
                "command": finding.command,
                "error": None if finding.error is None else finding.error.__name__,
            }
            for finding in findings
        ],
    }


def render(finding: Finding, width: int | None) -> Iterator[str]:
    """Yield the lines of a finding.

    Args:
        finding: What to show.
        width: Columns of the terminal; None for anything else, which gets one line without colours.
    """
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
        # In one line, however long, so that it can be pasted.
        yield indent + typer.style(finding.command, bold=True)


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _summary(findings: Iterable[Finding], code: int) -> str:
    counts = Counter(finding.level for finding in findings)
    parts = (f"{counts[Level.OK]} ok", counted(counts[Level.WARNING], "warning"), f"{counts[Level.FAILED]} failed")
    return f"{', '.join(parts)}: {_VERDICTS[code]}"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(check)
