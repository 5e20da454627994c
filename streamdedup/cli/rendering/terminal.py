"""Safe text, sizes and times for the terminal, because texts of any sender may hold control codes.

Called by commands and the other modules of ``rendering``; ``serve/static/dom.js`` has the same patterns for the page.
``printable`` is for ids, labels and other names, ``escaped`` for the content of dead letters, in an unknown encoding.
``visible`` is for texts that are compared, after ``differences`` has replaced the control characters.
"""

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
# Characters that `visible` shows as code points. The page (`serve/static/dom.js`) has the same patterns; there HIDDEN
# also has the control characters and halves of surrogate pairs.
#: Always shown: characters that are invisible or reorder the text beside them.
HIDDEN = re.compile(r"[\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]")
#: Shown only in a changed part: invisible characters of ordinary texts (soft hyphen, joiners, variation selectors).
UNSEEN = re.compile(r"[\u00ad\u034f\u200c\u200d\ufe00-\ufe0f]")
#: Shown only in a changed part: spaces that look like a blank.
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
    console.print()
    for name, text in rows.items():
        print_line(console, Text.assemble((f"  {name:<13}", "bold"), text))


def print_line(console: Console, line: Text) -> None:
    """Print a line, broken between words on a terminal."""
    if console.is_terminal:
        indent, breaks = _breaks(line.plain, console.width)
        parts = line.divide(breaks)
        for part in parts:
            part.rstrip()
        line = Text(f"\n{indent}").join(parts)
    console.print(line, soft_wrap=True)


def fitted(text: str, target: TextIO) -> str:
    """Return text unchanged, or wrapped to the width of ``target`` if that is a terminal."""
    return wrapped(text, Console(file=target).width) if target.isatty() else text


def fitted_to_stderr(text: str) -> str:
    return fitted(text, sys.stderr)


def wrapped(text: str, width: int) -> str:
    """Break lines between words, continued two columns further in; a longer word stays whole, to be copied."""
    return "\n".join(_wrapped_line(line, width) for line in text.split("\n"))


def _wrapped_line(line: str, width: int) -> str:
    indent, breaks = _breaks(line, width)
    parts = (line[start:end] for start, end in pairwise([0, *breaks, len(line)]))
    return f"\n{indent}".join(part.rstrip(" ") for part in parts) if breaks else line


def _breaks(line: str, width: int) -> tuple[str, list[int]]:
    """Return the indentation of continuations, two columns more than the line's, and the offsets to break before."""
    line_start = used = len(line) - len(line.lstrip(" "))  # columns: start and end of the present output line
    indent, breaks = min(line_start + 2, width // 2), []
    for match in _WORD_AND_BLANKS.finditer(line):
        word = cell_len(_STYLE_CODE.sub("", match[1]))
        if used + word > width and used > line_start:  # the first word of an output line stays, however long
            breaks.append(match.start())
            line_start = used = indent
        used += word + len(match[2])
    return " " * indent, breaks


def local_time(time_s: float, time_format: str) -> str:
    """Format a time in seconds since the epoch; ``?`` beyond the calendar."""
    try:
        return datetime.fromtimestamp(time_s).astimezone().strftime(time_format)
    except (ValueError, OverflowError, OSError):
        return "?"


def size_text(size: float | None) -> str:
    return "unknown" if size is None else filesize.decimal(round(size))


def printable(text: str) -> str:
    """Return text in one line without characters that could change the output beside it (``printable_character``)."""
    return "".join(map(printable_character, text))


@lru_cache(maxsize=4096)
def printable_character(character: str) -> str:
    """Return a character, a blank for a control character or line end, an empty text for a control of direction."""
    category = unicodedata.category(character)
    if category in {"Cc", "Zl", "Zp"}:
        return " "
    if category == "Cs":  # half of a surrogate pair cannot be encoded
        return "\N{REPLACEMENT CHARACTER}"
    is_direction_control = "\u202a" <= character <= "\u202e" or "\u2066" <= character <= "\u2069"
    return "" if is_direction_control else character


def visible(text: str, *, differs: bool) -> str:
    """Return text with the characters of ``HIDDEN`` as code points, such as ``⟦U+200B⟧``.

    In a part that ``differs``, also those of ``UNSEEN`` and ``ODD_SPACES``; else odd spaces become blanks. Control
    characters stay: the caller replaces them with ``printable_character``.
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
    if isinstance(text, bytes):
        # A character has at most four bytes, so the bytes behind these need not be decoded.
        head, is_cut = text[: limit * 4].decode("utf-8", "backslashreplace"), len(text) > limit * 4
    else:
        head, is_cut = text[: limit + 1], False  # with one character beyond the limit, the loop finds a longer text
    shown = ""
    for character in head:
        is_hidden = unicodedata.category(character) in _ESCAPED
        piece = character.encode("unicode_escape").decode() if is_hidden else character
        if len(shown) + len(piece) > limit:
            return f"{shown}…"
        shown += piece
    return f"{shown}…" if is_cut else shown
