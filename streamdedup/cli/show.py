"""What a person sees of the daemon's output: a line for each pair and each dead letter, and two texts side by side.

Everything here becomes ``rich`` text and never markup, for ids and texts are whatever their senders wrote. Without
colours (a file, a log of a build) the differences are put into brackets.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamdedup.cli.differences import GAP, Comparison, Piece, compare, printable
from streamdedup.kafka.protocols import Record
from streamdedup.position import Position
from streamdedup.wire import Alert, Match
from streamdedup.wire.dead_letters import PREFIX

#: Columns of output that goes nowhere with a width.
DEFAULT_WIDTH = 120
#: How times are written unless the caller says otherwise: the user's own time zone.
TIME_FORMAT = "%Y-%m-%d %H:%M:%S"
#: The same where only today matters.
CLOCK_FORMAT = "%H:%M:%S"

_SideName = Literal["left", "right"]
#: How what only one side has is marked: opening and closing brackets, and the style.
_MARKS: dict[_SideName, tuple[str, str, str]] = {
    "left": ("{+", "+}", "bold green"),
    "right": ("[-", "-]", "bold red"),
}


@dataclass(frozen=True, slots=True)
class Side:
    """One of two documents to show.

    Attributes:
        id: What its sender calls it.
        position: Where its record stands.
        text: Its text, or None when Kafka has it no more.
    """

    id: str
    position: Position
    text: str | None


def make_console(*, stderr: bool = False) -> Console:
    """Return a console for standard output or standard error that breaks lines on a terminal only."""
    console = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    if not console.is_terminal:
        console.width = DEFAULT_WIDTH
    return console


def match_line(alert: Alert, match: Match, time_format: str = TIME_FORMAT) -> Text:
    """Return one pair as one line: time, profile, new id ~ old id, similarity, method, cluster."""
    method = match.method if match.method == "exact" else f"{match.method} ±{match.standard_error:.3f}"
    return Text.assemble(
        (_time(alert.detected_at_ms, time_format), "dim"),
        "  ",
        (f"{printable(alert.profile):<8}", "cyan"),
        "  ",
        (printable(alert.document_id), "bold"),
        " ~ ",
        (printable(match.id), "bold"),
        "  ",
        (f"{match.similarity:.4f}", "green"),
        f" {method}",
        (f"  cluster {printable(alert.cluster_id)}", "dim"),
    )


def dead_letter_line(record: Record, time_format: str = TIME_FORMAT) -> Text:
    """Return a dead letter as one line: time, place of the original record, code, reason."""
    headers = _texts(record.headers)
    place = ":".join(headers.get(PREFIX + name, "?") for name in ("topic", "partition", "offset"))
    written = headers.get(PREFIX + "time", "")
    return Text.assemble(
        (_clock_of(written, time_format), "dim"),
        "  ",
        ("dead letter", "yellow"),
        f"  {place}  ",
        (headers.get(PREFIX + "error.code", "?"), "bold"),
        f"  {headers.get(PREFIX + 'error.message', '')}",
    )


def dead_letter_code(record: Record) -> str:
    """Return why a record became a dead letter, as its header says."""
    return _texts(record.headers).get(PREFIX + "error.code", "?")


def side_by_side(new: Side, old: Side, *, coloured: bool) -> Table:
    """Return both texts next to each other, differences marked, long shared stretches left out.

    Args:
        new: The document that the alert is about.
        old: The one that it resembles.
        coloured: Mark by colour; else by brackets, ``{+only here+}`` and ``[-only there-]``.
    """
    table = Table(box=box.MINIMAL, show_edge=False, expand=True, pad_edge=False, padding=(0, 1))
    for side in (new, old):
        heading = Text.assemble((printable(side.id), "bold"), (f"  {side.position}", "dim"))
        table.add_column(heading, ratio=1, overflow="fold")
    if new.text is None or old.text is None:
        table.add_row(_alone(new), _alone(old))
        return table
    comparison = compare(new.text, old.text)
    table.add_row(_marked(comparison.left, "left", coloured), _marked(comparison.right, "right", coloured))
    if comparison.is_same:
        table.add_row(*[Text(_equal(comparison), "dim")] * 2)
    return table


def _alone(side: Side) -> Text:
    """A text without another to compare with."""
    if side.text is None:
        return Text("no longer in Kafka (retention), or another record stands there now", "yellow")
    return _marked(compare(side.text, side.text).left, "left", coloured=False)


def _equal(comparison: Comparison) -> str:
    shown = any(piece.kind == "gap" for piece in comparison.left)
    return "(the same words" + (", also where left out)" if shown else ")")


def _marked(pieces: Iterable[Piece], side: _SideName, coloured: bool) -> Text:
    opening, closing, style = _MARKS[side]
    text = Text()
    for piece in pieces:
        if piece.kind == "gap":
            text.append(GAP, "dim")
        elif piece.kind == "changed":
            text.append(piece.text if coloured else f"{opening}{piece.text}{closing}", style)
        else:
            text.append(piece.text)
        text.append(piece.space)
    text.rstrip()
    return text


def _time(time_ms: int, time_format: str) -> str:
    try:
        return datetime.fromtimestamp(time_ms / 1000).astimezone().strftime(time_format)
    except (ValueError, OverflowError, OSError):
        return "?"  # beyond what the calendar knows


def _clock_of(written: str, time_format: str) -> str:
    try:
        return datetime.fromisoformat(written).astimezone().strftime(time_format)
    except ValueError:
        return "?"


def _texts(headers: Iterable[tuple[str, bytes | None]]) -> Mapping[str, str]:
    return {name: printable((value or b"").decode(errors="replace")) for name, value in headers}
