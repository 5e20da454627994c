"""Output of the commands: messages, progress bars on standard error, and reports about repeated mistakes."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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
from streamdedup.corpora import CorpusReader, Entry

#: Titles may be file names, in which brackets are no markup.
_TITLE = TextColumn("{task.description}", markup=False)
#: Number of mistakes of one kind that are shown; further ones are only counted.
_REPORTED_MISTAKES = 5


def tell_prefixed(text: str) -> None:
    tell(f"streamdedup: {text}", err=True)


def tell(text: str, *, err: bool = False) -> None:
    """Print lines for people; a terminal gets them broken between words."""
    typer.echo(fitted(text, sys.stderr if err else sys.stdout), err=err)


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
