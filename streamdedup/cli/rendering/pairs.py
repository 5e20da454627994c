"""Alerts for people: a line per match, and both texts side by side.

All output is ``rich`` text, never markup, because ids and texts come from arbitrary senders. Without colours, brackets
mark differences.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamdedup.cli.rendering.differences import GAP, Piece, compare
from streamdedup.cli.rendering.safe_text import printable
from streamdedup.cli.rendering.terminal import TIME_FORMAT, has_colours, local_time, print_line
from streamdedup.counts import listed_counts
from streamdedup.index.values import CLUSTER_SIZE_CAP
from streamdedup.position import Position
from streamdedup.text.alignment import MAX_WORDS
from streamdedup.wire import Alert, AlertDocument, Contained, Match


class _Highlight(NamedTuple):
    """Marks for text that only one side has: brackets on output without colours, else a style."""

    opening: str
    closing: str
    style: str


#: Words for the contained document of an alert: with "new in old", the match contains the new document.
_CONTAINED: Mapping[Contained, str] = {"document": "new in old", "match": "old in new", "both": "each in the other"}
#: Marks for text of the new document alone, and of the old one alone.
_NEW, _OLD = _Highlight("{+", "+}", "bold green"), _Highlight("[-", "-]", "bold red")


@dataclass(frozen=True, slots=True)
class Side:
    """One of two documents shown side by side; ``text`` is None if no record has it, and ``missing`` the reason."""

    id: str
    position: Position
    text: str | None
    missing: str = ""


Fetch = Callable[[str, str, Position], Side]  # returns a document with its text, from id, digest and position

_INDENT: Final = " " * 10  # indentation of the lines under the first line of an alert
#: Line under an alert whose document reached a limit for storms.
INCOMPLETE: Final = (
    f"{_INDENT}not all candidates were compared (bucket_cap, max_candidates): pairs of this document may be missed"
)


@dataclass(frozen=True, slots=True)
class AlertView:
    """Prints alerts; with ``fetch``, which fetches a text, both texts of each match are shown side by side."""

    console: Console
    fetch: Fetch | None = None
    time_format: str = TIME_FORMAT

    def show(self, alert: Alert) -> None:
        document = alert.document
        new = self.fetch(document.id, document.digest, document.position) if self.fetch else None
        for number, match in enumerate(alert.matches):
            print_line(self.console, match_line(alert, match, self.time_format))
            # The document is the same for all matches, so its caption is printed with the first match alone.
            if number == 0 and document.label:
                print_line(self.console, _caption_line("new", document))
            if match.label:
                print_line(self.console, _caption_line("old", match))
            if self.fetch is not None and new is not None:  # `new` was fetched if there is `fetch`
                old = self.fetch(match.id, match.digest, match.position)
                self.console.print(side_by_side(new, old, coloured=has_colours(self.console)))
                self.console.print()
        if alert.cluster_label and alert.cluster_id not in {document.id, *(match.id for match in alert.matches)}:
            print_line(self.console, Text(f"{_INDENT}first  {printable(alert.cluster_label)}", "dim"))
        if alert.cluster_sources:
            print_line(self.console, _spread_line(alert, self.time_format))
        if alert.suppressed:
            suppressed = printable(listed_counts(alert.suppressed))
            print_line(self.console, Text(f"{_INDENT}not alerted: {suppressed}", "dim"))
        if not alert.complete:
            print_line(self.console, Text(INCOMPLETE, "yellow"))


def match_line(alert: Alert, match: Match, time_format: str = TIME_FORMAT) -> Text:
    method = match.method if match.method == "exact" else f"{match.method} ±{match.standard_error:.3f}"
    more = "+" if (alert.cluster_size or 0) >= CLUSTER_SIZE_CAP else ""
    size = "" if alert.cluster_size is None else f" ({alert.cluster_size}{more})"
    return Text.assemble(
        (local_time(alert.detected_at_ms / 1000, time_format), "dim"),
        "  ",
        (f"{printable(alert.profile):<8}", "cyan"),
        "  ",
        (printable(alert.document.id), "bold"),
        " ~ ",
        (printable(match.id), "bold"),
        "  ",
        (f"{match.similarity:.4f}", "green"),
        f" {method}",
        _containment_text(match),
        (f"  cluster {printable(alert.cluster_id)}{size}", "dim"),
    )


def _spread_line(alert: Alert, time_format: str) -> Text:
    """Return how many sources the alert's cluster has, since when, and its earliest document."""
    more = "+" if (alert.cluster_size or 0) >= CLUSTER_SIZE_CAP else ""
    noun = "source" if alert.cluster_sources == 1 and not more else "sources"
    span = " to ".join(local_time(time_ms / 1000, time_format) for time_ms in alert.cluster_times_ms)
    earliest = [printable(part) for part in (alert.cluster_earliest_source, alert.cluster_earliest_id) if part]
    named = f", earliest {' '.join(earliest)}" if earliest else ""
    return Text(f"{_INDENT}{alert.cluster_sources}{more} {noun}, {span}{named}", "dim")


def _caption_line(name: str, document: AlertDocument | Match) -> Text:
    origin = ", ".join(printable(part) for part in (document.source, document.published_at) if part)
    return Text.assemble((f"{_INDENT}{name}  ", "dim"), printable(document.label), (f"  {origin}".rstrip(), "dim"))


def _containment_text(match: Match) -> str:
    if match.containment is None or match.contained is None:
        return ""
    error = f" ±{match.containment_error:.3f}" if match.containment_error else ""
    reason = ", alerted by containment" if match.reason == "containment" else ""
    return f"  {_CONTAINED[match.contained]} {match.containment:.4f}{error}{reason}"


def side_by_side(new: Side, old: Side, *, coloured: bool) -> Table:
    """Return both texts side by side; differences have colours, or brackets: ``{+only new+}``, ``[-only old-]``."""
    table = Table(box=box.MINIMAL, show_edge=False, expand=True, pad_edge=False, padding=(0, 1))
    for side in (new, old):
        heading = Text.assemble((printable(side.id), "bold"), (f"  {printable(str(side.position))}", "dim"))
        table.add_column(heading, ratio=1, overflow="fold")
    if new.text is None or old.text is None:
        table.add_row(_lone_text(new), _lone_text(old))
        return table
    comparison = compare(new.text, old.text)
    table.add_row(_marked(comparison.left, _NEW, coloured=coloured), _marked(comparison.right, _OLD, coloured=coloured))
    if comparison.is_same:
        has_gap = any(piece.kind == "gap" for piece in comparison.left)
        note = "(the same words, also where left out)" if has_gap else "(the same words)"
        table.add_row(*[Text(note, "dim")] * 2)
    if not comparison.is_aligned:
        table.add_row(*[Text(f"(not compared: one text has more than {MAX_WORDS:,} words)", "dim")] * 2)
    return table


def _lone_text(side: Side) -> Text:
    if side.text is None:
        return Text(printable(side.missing), "yellow")
    # The comparison with itself only shortens and cleans the text. Nothing differs, so `_NEW` marks nothing.
    return _marked(compare(side.text, side.text).left, _NEW, coloured=False)


def _marked(pieces: Iterable[Piece], highlight: _Highlight, *, coloured: bool) -> Text:
    text = Text()
    for piece in pieces:
        if piece.kind == "gap":
            text.append(GAP, "dim")
        elif piece.kind == "changed":
            text.append(
                piece.text if coloured else f"{highlight.opening}{piece.text}{highlight.closing}", highlight.style
            )
        else:
            text.append(piece.text)
        text.append(piece.space)
    text.rstrip()
    return text
