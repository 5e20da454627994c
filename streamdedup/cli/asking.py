"""Questions that a command asks before it does what cannot be taken back."""

import sys
from typing import Annotated

import typer

from streamdedup.errors import SettingsError

#: Option of the commands that ask first.
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def is_somebody_there() -> bool:
    """Return whether standard input is a terminal."""
    return sys.stdin.isatty()


def refuse_unasked(because: str, *, yes: bool) -> None:
    """Refuse to begin where a question will come and nobody is there to answer it.

    Args:
        because: What the command does, as "because this <because>" continues.
        yes: Value of ``YesOption``.

    Raises:
        SettingsError: Standard input is no terminal, and ``yes`` was not given.
    """
    if not yes and not is_somebody_there():
        raise SettingsError(f"--yes: is needed where nobody can be asked, because this {because}")


def ask(question: str, *, yes: bool) -> None:
    """Ask on standard error, and end the command with code 1 unless the answer is yes."""
    if not yes:
        typer.confirm(question, abort=True, err=True)
