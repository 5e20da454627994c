"""Output of the commands: files, messages, progress bars on standard error, and reports about repeated mistakes."""

import io
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from streamdedup.cli.rendering.terminal import fitted
from streamdedup.corpora import STDIN, CorpusReader, Entry, corpus_files
from streamdedup.errors import CorpusError, SettingsError

#: Titles may be file names, in which brackets are no markup.
_TITLE = TextColumn("{task.description}", markup=False)
_REPORTED_MISTAKES = 5  # number of mistakes of one kind that are shown; further ones are only counted


def tell_prefixed(text: str) -> None:
    tell(f"streamdedup: {text}", err=True)


def tell(text: str, *, err: bool = False) -> None:
    """Print lines for people; a terminal gets them broken between words."""
    typer.echo(fitted(text, sys.stderr if err else sys.stdout), err=err)


class _OutputFile(io.FileIO):
    """A file that keeps its old content until the first write: a command that fails without output changes nothing."""

    def __init__(self, path: str) -> None:
        super().__init__(path, "w", opener=lambda name, flags: os.open(name, flags & ~os.O_TRUNC, 0o666))
        # Only a regular file keeps content, and can be truncated.
        self._has_old_content = stat.S_ISREG(os.fstat(self.fileno()).st_mode)

    def write(self, data: Any, /) -> int:
        try:
            self.delete_old_content()
            return super().write(data)
        except OSError as error:  # without the name of the file
            raise OSError(error.errno, error.strerror, self.name) from error

    def delete_old_content(self) -> None:
        if self._has_old_content:
            self._has_old_content = False
            self.truncate(0)


@contextmanager
def output_to(path: str | None, inputs: Iterable[str | Path | None], option: str = "--output") -> Iterator[TextIO]:
    """Open an option's file for writing; None and ``-`` are standard output.

    ``inputs`` are the files that the command reads (``-`` is standard input), and its other output files: the file must
    be none of these. If the command fails, a new file is removed.
    """
    if path is None or path == "-":
        yield sys.stdout
        return
    for input_path in inputs:
        if input_path is not None and _is_input(path, input_path):
            raise SettingsError(f"{option} {path}: the command reads or writes this file already; name another one")
    is_new = not os.path.lexists(path)
    raw = _OutputFile(path)
    try:
        with io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8") as file:
            yield file
            # A command that has written nothing leaves an empty file.
            raw.delete_old_content()
    except BaseException:
        if is_new:
            Path(path).unlink(missing_ok=True)
        raise


def _is_input(path: str, input_path: str | Path) -> bool:
    """Return whether the regular file ``path`` is ``input_path``, or is in the folder ``input_path``."""
    try:
        output_status = Path(path).stat()
        input_files = (
            [os.fstat(0)] if input_path == STDIN else [Path(file).stat() for file in corpus_files(str(input_path))]
        )
    except (OSError, ValueError, CorpusError):
        # A missing file is no input; a file that cannot be read is reported by its reader. ValueError: a NUL in a path.
        return False
    return stat.S_ISREG(output_status.st_mode) and any(os.path.samestat(output_status, file) for file in input_files)


class MistakeReports:
    """Reports the first mistakes of a kind on standard error and counts all (``count``)."""

    def __init__(self, kind: str) -> None:
        self.count = 0
        self._kind = kind

    def report(self, place: str, mistake: str) -> None:
        self.count += 1
        if self.count <= _REPORTED_MISTAKES:
            tell_prefixed(f"{self._kind}: {place}: {mistake}")
        elif self.count == _REPORTED_MISTAKES + 1:
            tell_prefixed(f"{self._kind}: further ones are only counted")


def progress_bar(*columns: ProgressColumn) -> Progress:
    """Return a progress bar on standard error; without a terminal, nothing is shown."""
    console = Console(stderr=True)
    return Progress(*columns, console=console, transient=True, disable=not console.is_terminal)


def read_with_progress(reader: CorpusReader, title: str) -> Iterator[Entry]:
    if not Console(stderr=True).is_terminal:
        yield from reader  # no bar to update for each entry
        return
    documents = TextColumn("{task.fields[entries]:,} documents")
    with progress_bar(_TITLE, BarColumn(), TaskProgressColumn(), documents, TimeRemainingColumn()) as progress:
        task = progress.add_task(title, total=reader.total_bytes, entries=0)
        for count, entry in enumerate(reader, start=1):
            progress.update(task, completed=reader.bytes_read, entries=count)
            yield entry


@contextmanager
def showing_keys(title: str) -> Iterator[Callable[[int], None]]:
    """Show a key count, from the first key on; yield a function that adds to the count."""
    with progress_bar(_TITLE, TextColumn("{task.completed:,.0f} keys")) as progress:
        task = progress.add_task(title, total=None, visible=False)
        yield lambda count: progress.update(task, advance=count, visible=True)


@contextmanager
def showing_share(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show the done share of ``total`` steps; yield a function that adds to the done steps."""
    with progress_bar(_TITLE, BarColumn(), TaskProgressColumn(), TimeRemainingColumn()) as progress:
        task = progress.add_task(title, total=total)
        yield lambda count: progress.update(task, advance=count)


@contextmanager
def showing_parts(unit: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show a bar for each part of the work; the yielded function gets its title, the units done, and the total."""
    amount = TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + unit)
    tasks: dict[str, TaskID] = {}
    with progress_bar(_TITLE, BarColumn(), TaskProgressColumn(), amount, TimeRemainingColumn()) as progress:

        def show(title: str, done: int, total: int) -> None:
            if title not in tasks:
                tasks[title] = progress.add_task(title, total=total)
            progress.update(tasks[title], completed=done)

        yield show
