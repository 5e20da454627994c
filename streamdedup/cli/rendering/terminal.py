"""Output on a terminal: the console, lines and rows, and texts for times."""

from collections.abc import Mapping
from datetime import datetime

from rich.console import Console
from rich.text import Text

#: Width in columns of tables, and of two texts side by side, where the output is no terminal.
DEFAULT_WIDTH = 120
#: Format of times, in the local time zone.
TIME_FORMAT = "%Y-%m-%d %H:%M:%S%z"
#: Format of times where the date is known.
CLOCK_FORMAT = "%H:%M:%S%z"


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
    """Print a line of any length; a terminal breaks it."""
    console.print(line, soft_wrap=True)


def local_time(time_s: float, time_format: str) -> str:
    """Format a time in seconds since the epoch; ``?`` beyond the calendar."""
    try:
        return datetime.fromtimestamp(time_s).astimezone().strftime(time_format)
    except (ValueError, OverflowError, OSError):
        return "?"
