"""The command line: which commands there are, and how an error becomes a message and an exit code.

A command's module is imported when the command is called, so that ``--help`` does not wait for clients and arrays. To
add a command: write ``streamdedup/cli/NAME.py`` with ``register(app)``, and give it a line in ``COMMANDS``.
"""

import contextlib
import errno
import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from streamdedup import __version__
from streamdedup.errors import (
    EXIT_FAILED,
    EXIT_FATAL,
    EXIT_FORCED,
    EXIT_INDEX_LOST,
    EXIT_OK,
    EXIT_PIPE,
    EXIT_STALLED,
    EXIT_USAGE,
    StreamdedupError,
    exit_code,
)

#: Exit code after Ctrl-C, as shells count it: 128 and the number of SIGINT.
EXIT_INTERRUPTED = 130

#: What is wrong with where the output goes, rather than with the program.
_WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EROFS})

#: Every command, in the order of the help: its name, which is its module's too, and what it does in a line.
COMMANDS = {
    "run": "Run the daemon until it is asked to stop.",
    "check": "Verify settings, Kafka, Redis, rights, topics and indexes before the first start.",
    "demo": "Watch documents become alerts, on private servers; nothing to set up.",
    "tail": "Follow the duplicates topic: lines, JSON, or both texts side by side.",
    "scan": "Find all near-duplicate pairs of files; needs no server.",
    "neighbours": "Find the documents of files that are nearest to one of them.",
    "evaluate": "Measure what a profile finds in files: recall, precision, what was missed and why.",
    "stop-shingles": "Learn from a sample which shingles are only a frame that many texts share.",
    "tune": "Try settings on a sample: what they find, miss and cost, and which to take.",
    "produce": "Send a corpus into an input topic, each document keyed by its id.",
    "dlq": "Look into the dead-letter topic, and replay what is in it.",
    "topics": "Create the topics that the daemon needs.",
    "index": "Operate on the index in Redis.",
    "config": "Check settings, or show the effective ones.",
    "schema": "Print the JSON Schema of a message.",
}

#: Begins a paragraph of a help text whose lines are not to be wrapped.
_VERBATIM = "\b\n"
#: Widest help text, in characters, on a terminal that is wider.
_HELP_WIDTH = 120

_HELP = """Find near-duplicates in streams of documents: Kafka in, MinHash buckets in Redis, verified alerts out."""

#: Commands to begin with, as one would type them; each is a line below the help.
EXAMPLES = (
    "streamdedup scan articles.jsonl.gz --threshold 0.7",
    "streamdedup run --config streamdedup.toml",
    "streamdedup check --config streamdedup.toml",
    "streamdedup dlq inspect --config streamdedup.toml --last 20",
)
#: What each exit code says, in a few words; the README has more of them.
EXIT_CODES = {
    EXIT_OK: "done",
    EXIT_FAILED: "could not be done",
    EXIT_USAGE: "wrong settings or wrong use",
    EXIT_INDEX_LOST: "the index is lost",
    EXIT_STALLED: "no progress",
    EXIT_FORCED: "stopped before it had finished",
    EXIT_FATAL: "an operator must help",
    EXIT_INTERRUPTED: "interrupted",
    EXIT_PIPE: "the reader of the output has gone",
}


class _Commands(TyperGroup):
    """Lists the commands from the table, and imports the one that is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        for name, text in COMMANDS.items():
            self.add_command(TyperCommand(name=name, help=text, short_help=text))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return name, command and remaining arguments, the command with all its options."""
        name, command, rest = super().resolve_command(ctx, args)
        if name in COMMANDS:
            command = load_command(name)
            _hide_types_of_flags(command, ctx)
            _keep_lines(command)
        return name, command, rest

    def invoke(self, ctx: Any) -> Any:
        """Run the command that is called; what is wrong with its arguments is told without the validator's own words.

        Raises:
            typer.BadParameter: Something is.
        """
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = error.message.removeprefix("Value error, ")
            raise

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options that stand before any command."""
        params: list[Any] = super().get_params(ctx)
        return [_without_type(param) for param in params]


def _hide_types_of_flags(command: Any, ctx: Any) -> None:
    """Keep the help of a command, and of those below it, from naming a type where no value can be given."""
    for param in [*command.params, command.get_help_option(ctx)]:
        _without_type(param)
    for inner in getattr(command, "commands", {}).values():
        _hide_types_of_flags(inner, ctx)


def _keep_lines(command: Any) -> None:
    """Keep the help of a command, and of those below it, from breaking examples and from cutting lists of commands."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    # Without a short help of its own a command is listed by its help, cut to the width of the terminal.
    command.short_help = paragraphs[0].replace("\n", " ")
    command.help = "\n\n".join(_VERBATIM + text if text.startswith("Example:") else text for text in paragraphs)
    for inner in getattr(command, "commands", {}).values():
        _keep_lines(inner)


def _without_type(param: Any) -> Any:
    """Return ``param``; one that is a flag shows no type any more."""
    if getattr(param, "is_bool_flag", False):
        param.metavar = ""
    return param


def load_command(name: str) -> Any:
    """Import a command's module and return the command.

    Raises:
        LookupError: The module registers no command of that name.
    """
    registered = typer.Typer(rich_markup_mode=None)
    # A callback makes a group of even a single command, so that it is found by its name.
    registered.callback()(lambda: None)
    importlib.import_module(f"streamdedup.cli.{name.replace('-', '_')}").register(registered)
    command = typer.main.get_group(registered).commands.get(name)
    if command is None:
        raise LookupError(f"the module of the command {name} registers no command of that name")
    return command


app = typer.Typer(
    name="streamdedup",
    cls=_Commands,
    help=_HELP,
    epilog="\n\n".join(
        [
            _VERBATIM + "\n".join(["Examples:", *EXAMPLES]),
            "Exit codes: " + ", ".join(f"{code} {text}" for code, text in EXIT_CODES.items()) + ".",
        ]
    ),
    no_args_is_help=True,
    # The tables of the other modes cut the names of options to fit them into a terminal of 80 columns.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": _HELP_WIDTH},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"streamdedup {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before any command."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code; an error of ours is one message a line and no traceback.

    Args:
        arguments: What follows the program's name; the process's own if None.
    """
    # A process that was started without them has None, which nobody expects to write to.
    sys.stdout, sys.stderr = sys.stdout or _nowhere(), sys.stderr or _nowhere()
    try:
        code = _run(arguments)
    except StreamdedupError as error:
        code = _fail(str(error) or type(error).__name__, exit_code(error))
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = EXIT_PIPE
    except UnicodeEncodeError as error:
        if not _is_of_output(error):
            raise
        code = _fail(_unwritable(error), EXIT_FAILED)
    except OSError as error:
        if error.filename is None and error.errno not in _WRITE_ERRORS:
            raise
        what = "cannot write the output" if error.filename is None else error.filename
        code = _fail(f"{what}: {error.strerror}", EXIT_FAILED)
    if code:
        _settle(sys.stdout)
        _settle(sys.stderr)
    sys.exit(code)


def _run(arguments: Sequence[str] | None) -> int | str | None:
    """Run a command and return the code that it ends with."""
    code: int | str | None = None
    try:
        app(args=arguments, prog_name="streamdedup")
    except SystemExit as ended:
        # What the libraries of the command line and of the console turn a reader that has gone into.
        if isinstance(ended.__context__, BrokenPipeError):
            raise BrokenPipeError from ended
        code = ended.code
    sys.stdout.flush()
    return code


def _is_of_output(error: UnicodeEncodeError) -> bool:
    """Tell whether the encoding of standard output lacks a character."""
    # Not by its name: all table-driven codecs call themselves "charmap" in errors.
    try:
        error.object[error.start].encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _unwritable(error: UnicodeEncodeError) -> str:
    """Say which character the encoding of standard output lacks."""
    encoding, lacking = sys.stdout.encoding, f"U+{ord(error.object[error.start]):04X}"
    return (
        f"cannot write the output: its encoding, {encoding}, lacks {lacking}; set PYTHONIOENCODING=utf-8 in the "
        "environment"
    )


def _fail(text: str, code: int) -> int:
    """Say why a command ends; return the code."""
    with contextlib.suppress(OSError):
        for line in text.splitlines():
            typer.echo(f"streamdedup: {line}", err=True)
    return code


def _nowhere() -> TextIO:
    """Return a stream that drops what is written."""
    return Path(os.devnull).open("w", encoding="utf-8")


def _settle(stream: TextIO) -> None:
    """Throw away what cannot be written, or Python would complain about it when it exits, and change the code."""
    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
