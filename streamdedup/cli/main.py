"""The command line: the command table, and errors as messages and exit codes.

A command's module is imported when the command is called, so that ``--help`` does not import clients and numpy. A new
command is a module, a line of ``COMMANDS`` and a row of ``docs/commands.md``.
"""

import contextlib
import errno
import gc
import importlib
import inspect
import io
import os
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer
from typer.core import TyperCommand, TyperGroup

from streamdedup import __version__, errors
from streamdedup.errors import StreamdedupError, exit_code

#: Exit code after Ctrl-C, as in shells: 128 plus the number of SIGINT. No error of ``streamdedup.errors`` has it.
EXIT_INTERRUPTED = 130

#: Numbers of errors that mean that the output cannot be written, as opposed to a defect of the program.
_WRITE_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EROFS})

#: Name and one-line help of each command, in the order of the help. ``load_command`` derives the module from the name.
#: The help is also the first line of the command's docstring, or the ``help`` of a group.
COMMANDS = {
    "run": "Run the daemon until it is asked to stop.",
    "check": "Verify settings, Kafka, Redis, rights, topics, keys and indexes before the first start.",
    "serve": "Answer look-ups over HTTP: is this text known, and from where?",
    "demo": "Watch documents become alerts, on private servers; nothing to set up.",
    "tail": "Follow the duplicates topic: lines, JSON, or both texts side by side.",
    "scan": "Find near-duplicate pairs of files as the daemon does; needs no server.",
    "neighbours": "Find the documents of files that are nearest to one of them.",
    "evaluate": "Measure a profile on files: recall, precision, missed pairs and the reasons.",
    "stop-shingles": "Learn from a sample which shingles are boilerplate that many texts share.",
    "tune": "Try settings on a sample: pairs found and missed, cost, and a recommendation.",
    "produce": "Send a corpus into an input topic, each document keyed by its id.",
    "dlq": "Inspect the dead-letter topic, and replay dead letters.",
    "topics": "Create the topics that the daemon needs.",
    "index": "Operate on the index in Redis.",
    "config": "Check settings, show the effective ones, or print an example.",
    "schema": "Print the JSON Schema of a message.",
}

_VERBATIM = "\b\n"  # prefix of a help paragraph whose lines are kept
_HELP_WIDTH = 120  # greatest width of help texts, in characters

_HELP = "Find near-duplicates in streams of documents: Kafka in, MinHash buckets in Redis, verified alerts out."

#: Command lines below the help.
EXAMPLES = (
    "streamdedup scan articles.jsonl.gz --threshold 0.7",
    "streamdedup run --config streamdedup.toml",
    "streamdedup check --config streamdedup.toml",
    "streamdedup dlq inspect --config streamdedup.toml --since 2h",
)
#: Meanings of the exit codes; docs/commands.md explains them.
EXIT_CODES = {
    errors.EXIT_OK: "done",
    errors.EXIT_FAILED: "could not be done",
    errors.EXIT_USAGE: "wrong settings or wrong use",
    errors.EXIT_INDEX_LOST: "the index is lost",
    errors.EXIT_STALLED: "no progress",
    errors.EXIT_FORCED: "stopped before it had finished",
    errors.EXIT_FATAL: "an operator must help",
    EXIT_INTERRUPTED: "interrupted",
    errors.EXIT_PIPE: "the reader of the output has gone",
}


class _Commands(TyperGroup):
    """Lists the commands, and imports each when it is called."""

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # Placeholders for the list of commands; `resolve_command` returns the real commands.
        for name, text in COMMANDS.items():
            self.add_command(TyperCommand(name=name, help=text, short_help=text))

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, command, remaining = super().resolve_command(ctx, args)
        if name in COMMANDS:
            command = load_command(name)
            _prepare_help(command)
        return name, command, remaining

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            # typer 0.29 checks arguments with pydantic, which puts a prefix before the error for a wrong choice.
            error.message = error.message.removeprefix("Value error, ")
            raise


def _prepare_help(command: Any) -> None:
    """Keep the lines of examples in the help, and one-line texts whole in the list of commands."""
    paragraphs = inspect.cleandoc(command.help or "").split("\n\n")
    # Without a short help, the list of commands shows the help cut to the width of the terminal.
    command.short_help = paragraphs[0].replace("\n", " ")
    command.help = "\n\n".join(
        _VERBATIM + _example(text) if text.startswith("Example:") else text for text in paragraphs
    )
    for inner in getattr(command, "commands", {}).values():
        _prepare_help(inner)


def _example(text: str) -> str:
    """Return an example broken for a terminal of 80 columns, into lines that a shell takes as one command line."""
    # 66 columns leave room for the indentation and the backslash.
    lines = textwrap.wrap(" ".join(text.split()[1:]), 66, break_long_words=False, break_on_hyphens=False)
    return "Example:  " + " \\\n              ".join(lines)


def load_command(name: str) -> Any:
    """Import a command's module and return the command: the function or group with the module's name."""
    module_name = name.replace("-", "_")
    # Garbage collections during imports find nothing, and take 0.1 s.
    gc.disable()
    try:
        module = importlib.import_module(f"streamdedup.cli.{module_name}")
    finally:
        gc.enable()
    command = getattr(module, module_name)
    # typer makes a command from a function only inside an app. The command is then taken out of the app.
    parent = typer.Typer(rich_markup_mode=None)
    if isinstance(command, typer.Typer):
        parent.add_typer(command, name=name)
    else:
        parent.command(name)(command)
    return typer.main.get_group(parent).commands[name]


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
    # The tables of the other modes cut the names of options on a terminal of 80 columns.
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["--help", "-h"], "max_content_width": _HELP_WIDTH},
)


def _print_version(is_requested: bool) -> None:
    if is_requested:
        typer.echo(f"streamdedup {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Define the options that precede a command; ``_print_version`` does the work."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command and exit with its code; a ``StreamdedupError`` prints its lines without a traceback."""
    # Streams are None in a process with closed streams.
    sys.stdout, sys.stderr = sys.stdout or _null_stream(), sys.stderr or _null_stream()
    if isinstance(getattr(sys.stdout, "buffer", None), io.RawIOBase):
        # With PYTHONUNBUFFERED=1, Python 3.11 to 3.13 ignore that only a part of a text was written, as when a disk
        # fills up or a non-blocking pipe is full. A buffer writes the rest, or raises.
        encoding, error_mode = sys.stdout.encoding, sys.stdout.errors
        sys.stdout = os.fdopen(sys.stdout.fileno(), "w", 1, encoding, error_mode, closefd=False)
    try:
        code = _run(arguments)
    except StreamdedupError as error:
        code = _report(str(error) or type(error).__name__, exit_code(error))
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        code = errors.EXIT_PIPE
    except UnicodeEncodeError as error:
        if not _lacks_character(error):
            raise
        encoding, character = sys.stdout.encoding, f"U+{ord(error.object[error.start]):04X}"
        text = f"its encoding, {encoding}, lacks {character}; set PYTHONIOENCODING=utf-8 in the environment"
        code = _report(f"cannot write the output: {text}", errors.EXIT_FAILED)
    except OSError as error:
        # EAGAIN is a full pipe if `characters_written` is set, else a fork beyond the limit of processes.
        is_output_error = error.errno in _WRITE_ERRORS or hasattr(error, "characters_written")
        if error.filename is None and not is_output_error:
            raise  # a defect of the program
        code = _report(f"{error.filename or 'cannot write the output'}: {error.strerror}", errors.EXIT_FAILED)
    if code:  # else `_run` has flushed standard output
        _flush_or_redirect(sys.stdout)
        _flush_or_redirect(sys.stderr)
    sys.exit(code)


def _run(arguments: Sequence[str] | None) -> int | str | None:
    """Run a command and flush its output; return the code with which typer or the command exits, None for 0."""
    code: int | str | None = None
    try:
        app(args=arguments, prog_name="streamdedup")
    except SystemExit as ended:
        # typer and rich exit with a code of their own when the reader of the output has closed it.
        if isinstance(ended.__context__, BrokenPipeError):
            raise BrokenPipeError from ended
        code = ended.code
    sys.stdout.flush()
    return code


def _lacks_character(error: UnicodeEncodeError) -> bool:
    """Return whether the encoding of standard output lacks the character of the error."""
    # The error could be about another file. `error.encoding` is no help: "charmap" for many codecs.
    try:
        error.object[error.start].encode(sys.stdout.encoding or "utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _report(text: str, code: int) -> int:
    from streamdedup.cli.output import tell_prefixed  # noqa: PLC0415  not for --help

    with contextlib.suppress(OSError):
        for line in text.splitlines():
            tell_prefixed(line)
    return code


def _null_stream() -> TextIO:
    return Path(os.devnull).open("w", encoding="utf-8")


def _flush_or_redirect(stream: TextIO) -> None:
    """Flush a stream; redirect it if it cannot be flushed: Python would report the error and change the exit code."""
    try:
        stream.flush()
    except OSError:
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
