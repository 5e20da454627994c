"""Lines of a corpus that are no documents: the option that leaves them out, and what is said about them."""

from typing import Annotated

import typer

from streamdedup.corpora import Entry

#: Lines that are no documents which are named one by one.
_NAMED_LINES = 5

#: Option of the commands that read a corpus.
SkipUnreadableOption = Annotated[
    bool, typer.Option("--skip-unreadable", help="Leave out lines that are no documents, and name the first of them.")
]


class BadLines:
    """Names the first lines that are no documents on standard error, and counts all.

    Attributes:
        count: How many so far.
    """

    def __init__(self) -> None:
        self.count = 0

    def note(self, entry: Entry, *, is_known: bool = False) -> None:
        """Take note of a line.

        Args:
            entry: The line, with its problem.
            is_known: Whether it was noted before, in an earlier pass; then it is only counted.
        """
        self.count += 1
        if is_known or self.count > _NAMED_LINES + 1:
            return
        if self.count > _NAMED_LINES:
            typer.echo("streamdedup: further ones are only counted", err=True)
        else:
            typer.echo(f"streamdedup: no document: {entry.file}:{entry.line}: {entry.problem}", err=True)
