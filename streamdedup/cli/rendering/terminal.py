"""Safe text, sizes and times for terminals, for the output of commands; texts of any sender may hold control codes."""

import re
import sys
import unicodedata
from collections.abc import Mapping
from datetime import datetime
from functools import lru_cache
from itertools import pairwise
from typing import TextIO

from rich import filesize
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

#: Width of output that is not a terminal, in columns.
DEFAULT_WIDTH = 120
#: Format of times, in the local time zone.
TIME_FORMAT = "%Y-%m-%d %H:%M:%S%z"
#: Format of times where the date is known.
CLOCK_FORMAT = "%H:%M:%S%z"
#: Categories that ``escaped`` writes as code points: control, format (direction of writing), surrogate, private-use and
#: unassigned characters, line and paragraph separators.
_ESCAPED = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
#: Characters that ``visible`` names: invisible ones; those that no reader sees and that can be all that differs (soft
#: hyphen, joiners, variation selectors); spaces that look like a blank. The same as in ``serve/static/dom.js``.
HIDDEN = re.compile(r"[\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
UNSEEN = re.compile(r"[\u00ad\u034f\u200c\u200d\ufe00-\ufe0f]")
ODD_SPACES = re.compile(r"[\u00a0\u1680\u2000-\u200a\u202f\u205f\u3000]")
_STYLE_CODE = re.compile("\x1b\\[[0-9;]*m")
_WORD_AND_BLANKS = re.compile("([^ ]+)( *)")


def make_console() -> Console:
    """Return a console for standard output, ``DEFAULT_WIDTH`` columns wide where it is no terminal."""
    console = Console(highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = DEFAULT_WIDTH
    return console


def print_rows(console: Console, rows: Mapping[str, str]) -> None:
    """Print an empty line, then each name and text as one line."""
    console.print()
    for name, text in rows.items():
        print_line(console, Text.assemble((f"  {name:<13}", "bold"), text))


def print_line(console: Console, line: Text) -> None:
    """Print a line; a terminal gets it broken between words."""
    if console.is_terminal:
        indent, breaks = _breaks(line.plain, console.width)
        parts = line.divide(breaks)
        for part in parts:
            part.rstrip()
        line = Text(f"\n{indent}").join(parts)
    console.print(line, soft_wrap=True)


def fitted(text: str, target: TextIO) -> str:
    """Return text, for a terminal broken between words."""
    return wrapped(text, Console(file=target).width) if target.isatty() else text


def fitted_to_stderr(text: str) -> str:
    """Return text as ``fitted`` for standard error."""
    return fitted(text, sys.stderr)


def wrapped(text: str, width: int) -> str:
    """Break lines between words, and indent their continuations by two columns.

    A word that is longer than a line stays whole, so that it can be copied. Lines may have codes of style.
    """
    return "\n".join(_wrapped_line(line, width) for line in text.split("\n"))


def _wrapped_line(line: str, width: int) -> str:
    indent, breaks = _breaks(line, width)
    parts = (line[start:end] for start, end in pairwise([0, *breaks, len(line)]))
    return f"\n{indent}".join(part.rstrip(" ") for part in parts) if breaks else line


def _breaks(line: str, width: int) -> tuple[str, list[int]]:
    """Return the indentation of continuations, at most half the width, and the offsets of words that begin one."""
    begin = used = len(line) - len(line.lstrip(" "))
    indent, breaks = min(begin + 2, width // 2), []
    for match in _WORD_AND_BLANKS.finditer(line):
        word = cell_len(_STYLE_CODE.sub("", match[1]))
        if used + word > width and used > begin:  # the first word of a line stays, however long
            breaks.append(match.start())
            begin = used = indent
        used += word + len(match[2])
    return " " * indent, breaks


def local_time(time_s: float, time_format: str) -> str:
    """Format a time in seconds since the epoch; ``?`` beyond the calendar."""
    try:
        return datetime.fromtimestamp(time_s).astimezone().strftime(time_format)
    except (ValueError, OverflowError, OSError):
        return "?"


def size_text(size: float | None) -> str:
    """Return a byte count with a decimal unit."""
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


def visible(text: str, *, differs: bool) -> str:
    """Return text with the characters of ``HIDDEN`` as code points, such as ``⟦U+200B⟧``.

    In a part that ``differs``, also those of ``UNSEEN`` and ``ODD_SPACES``; else odd spaces become blanks.
    """
    named = HIDDEN.sub(_code_point_name, text)
    if not differs:
        return ODD_SPACES.sub(" ", named)
    return ODD_SPACES.sub(_code_point_name, UNSEEN.sub(_code_point_name, named))


def _code_point_name(match: re.Match[str]) -> str:
    return f"⟦U+{ord(match[0]):04X}⟧"


def escaped(text: str | bytes, limit: int) -> str:
    r"""Return a text's beginning with invisible characters as code points, for content in an unknown encoding.

    Bytes are read as UTF-8, and invalid ones are written as ``\xff``. ``limit`` is in characters, without the ellipsis.
    """
    # One character beyond the limit shows that a text is longer. A character has at most four bytes, so the rest of a
    # large value need not be decoded.
    head = text[: limit * 4].decode("utf-8", "backslashreplace") if isinstance(text, bytes) else text[: limit + 1]
    shown = ""
    for character in head:
        is_hidden = unicodedata.category(character) in _ESCAPED
        piece = character.encode("unicode_escape").decode() if is_hidden else character
        if len(shown) + len(piece) > limit:
            return f"{shown}…"
        shown += piece
    return shown if isinstance(text, str) or len(text) <= limit * 4 else f"{shown}…"
