"""Output on a terminal: the console, lines broken between words, and texts for times.

Lines for a file or a pipe are never broken.
"""

import re
import sys
from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from typing import TextIO

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

#: Width in columns of tables, and of two texts side by side, where the output is no terminal.
DEFAULT_WIDTH = 120
TIME_FORMAT = "%Y-%m-%d %H:%M:%S%z"  # format of times, in the local time zone
CLOCK_FORMAT = "%H:%M:%S%z"  # format of times where the date is known
_STYLE_CODE = re.compile("\x1b\\[[0-9;]*m")
_WORD_AND_BLANKS = re.compile("([^ ]+)( *)")


def make_console() -> Console:
    """Return a console for standard output, ``DEFAULT_WIDTH`` columns wide where it is no terminal."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = DEFAULT_WIDTH
    return console


def has_colours(console: Console) -> bool:
    """Tell whether a console shows colours: with ``NO_COLOR`` in the environment rich keeps its colour system."""
    return console.color_system is not None and not console.no_color


def print_rows(console: Console, rows: Mapping[str, str]) -> None:
    """Print an empty line, then a line for each row: its name in a column of 13, and its text."""
    console.print()
    for name, text in rows.items():
        print_line(console, Text.assemble((f"  {name:<13}", "bold"), text))


def print_line(console: Console, line: Text) -> None:
    """Print a line, broken between words on a terminal."""
    if console.is_terminal:
        indent, starts = _continuations(line.plain, console.width)
        parts = line.divide(starts)
        for part in parts:
            part.rstrip()
        line = Text(f"\n{indent}").join(parts)
    console.print(line, soft_wrap=True)


def fitted_to_stderr(text: str) -> str:
    return fitted(text, sys.stderr)


def fitted(text: str, target: TextIO) -> str:
    """Return text for ``target``: with lines broken at its width if it is a terminal, else unchanged."""
    return wrapped(text, Console(file=target).width) if target.isatty() else text


def wrapped(text: str, width: int) -> str:
    """Break the lines of a text between words; a longer word stays whole, to be copied."""
    return "\n".join(_wrapped_line(line, width) for line in text.split("\n"))


def _wrapped_line(line: str, width: int) -> str:
    indent, starts = _continuations(line, width)
    parts = (line[start:end] for start, end in pairwise([0, *starts, len(line)]))
    return f"\n{indent}".join(part.rstrip(" ") for part in parts) if starts else line


def _continuations(line: str, width: int) -> tuple[str, list[int]]:
    """Return the indentation of a line's second and later output lines, and their first offsets in the line.

    For ``"a bcd ef"`` in 5 columns: two blanks, and ``[6]`` for the output line ``ef``.
    """
    line_indent = len(line) - len(line.lstrip(" "))
    indent, starts = min(line_indent + 2, width // 2), []
    line_start = column = line_indent  # columns where the present output line, and its next word, begin
    for match in _WORD_AND_BLANKS.finditer(line):
        word_columns = cell_len(_STYLE_CODE.sub("", match[1]))
        if column + word_columns > width and column > line_start:  # the first word stays, however long
            starts.append(match.start())
            line_start = column = indent
        column += word_columns + len(match[2])
    return " " * indent, starts


def local_time(time_s: float, time_format: str) -> str:
    """Format a time in seconds since the epoch; ``?`` beyond the calendar."""
    try:
        return datetime.fromtimestamp(time_s).astimezone().strftime(time_format)
    except (ValueError, OverflowError, OSError):
        return "?"
