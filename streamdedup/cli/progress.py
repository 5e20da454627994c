"""Progress of long work, shown on a terminal and silent elsewhere."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TaskProgressColumn, TextColumn, TimeRemainingColumn

from streamdedup.corpora import CorpusReader, Entry

Item = TypeVar("Item")


def read_with_progress(reader: CorpusReader, what: str) -> Iterator[Entry]:
    """Yield the entries of a corpus while a bar on standard error shows how much of its files was read.

    Args:
        reader: The corpus.
        what: Name of the work, in front of the bar.
    """
    console = Console(stderr=True)
    if not console.is_terminal:
        yield from reader
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[entries]:,} documents"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as progress:
        task = progress.add_task(what, total=reader.total_bytes, entries=0)
        for count, entry in enumerate(reader, start=1):
            progress.update(task, completed=reader.bytes_read, entries=count)
            yield entry


@contextmanager
def counting(what: str) -> Iterator[Callable[[int], None]]:
    """Show on standard error how many keys were met; nothing is shown before the first, or without a terminal.

    Args:
        what: Name of the work, in front of the number.

    Yields:
        Takes the number of keys met since the last call.
    """
    columns = (TextColumn("{task.description}"), TextColumn("{task.completed:,.0f} keys"))
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=None, visible=False)
        yield lambda count: progress.update(task, advance=count, visible=True)


@contextmanager
def steps(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show on standard error how much of some work is done; nothing is shown without a terminal.

    Args:
        what: Name of the work, in front of the bar.
        total: Steps of it.

    Yields:
        Takes the number of steps done since the last call.
    """
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
        task = progress.add_task(what, total=total)
        yield lambda count: progress.update(task, advance=count)


@contextmanager
def measuring(unit: str) -> Iterator[Callable[[str, int, int], None]]:
    """Show on standard error how much of one piece of work after the other is done; nothing without a terminal.

    Args:
        unit: What is counted, in the plural.

    Yields:
        Takes the name of the piece, how much of it is done, and how much there is.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.completed:,.0f} of {task.total:,.0f} " + unit),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done)

        yield show


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Yield lists of at most ``size`` items."""
    batch: list[Item] = []
    for item in items:
        batch.append(item)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
