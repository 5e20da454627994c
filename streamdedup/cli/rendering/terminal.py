"""Terminal-safe text, consoles, sizes, times. Ids and texts come from arbitrary senders and may hold control codes."""

import unicodedata
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache

from rich import filesize
from rich.console import Console
from rich.text import Text

#: Width of output that is not a terminal, in columns.
DEFAULT_WIDTH = 120
#: Format of times, in the local time zone.
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
#: Format of times where the date is known.
CLOCK_FORMAT = "%H:%M:%S"
#: Categories that ``escaped`` writes as code points: control, format (direction of writing), surrogate, private-use and
#: unassigned characters, line and paragraph separators.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def make_console() -> Console:
    """Return a console for standard output that breaks lines on a terminal only."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = DEFAULT_WIDTH
    return console


def print_rows(console: Console, rows: Mapping[str, str]) -> None:
    """Print an empty line, then each name and text as one line."""
    console.print()
    for name, text in rows.items():
        console.print(Text.assemble((f"  {name:<13}", "bold"), text), soft_wrap=True)


def local_time(time_s: float, time_format: str) -> str:
    """Format a time in seconds since the epoch; ``?`` beyond the range of the calendar."""
    try:
        return datetime.fromtimestamp(time_s).astimezone().strftime(time_format)
    except (ValueError, OverflowError, OSError):
        return "?"


def size_text(size: float | None) -> str:
    """Return a number of bytes with a decimal unit."""
    return "unknown" if size is None else filesize.decimal(round(size))


def printable(text: str) -> str:
    """Return text with blanks for control characters and without direction overrides."""
    return "".join(map(printable_character, text))


@lru_cache(maxsize=4096)
def printable_character(character: str) -> str:
    """Return the character, or its harmless replacement."""
    category = unicodedata.category(character)
    if category in {"Cc", "Zl", "Zp"}:
        return " "
    if category == "Cs":
        return "\N{REPLACEMENT CHARACTER}"
    overrides = "\u202a" <= character <= "\u202e" or "\u2066" <= character <= "\u2069"
    return "" if overrides else character


def escaped(text: str | bytes, limit: int) -> str:
    r"""Return the beginning of a text with invisible characters as code points, for content of unknown encoding.

    Args:
        text: A text, or bytes in UTF-8; invalid bytes are written as ``\\xff``.
        limit: Greatest length of the result, without the ellipsis.
    """
    # A character has at most four bytes, so the rest of a large value need not be decoded.
    head = text[: limit * 4].decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text[: limit + 1]
    shown = ""
    for character in head:
        is_hidden = unicodedata.category(character) in _ESCAPED
        piece = character.encode("unicode_escape").decode() if is_hidden else character
        if len(shown) + len(piece) > limit:
            return f"{shown}…"
        shown += piece
    return shown if isinstance(text, str) or len(text) <= limit * 4 else f"{shown}…"
