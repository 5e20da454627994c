"""The results of ``streamdedup tune`` (keys: ``tuning.results``) as tables and sentences, also of its report."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TextIO

from rich import filesize
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from streamdedup.cli.rendering.safe_text import printable
from streamdedup.cli.rendering.terminal import print_line
from streamdedup.counts import counted
from streamdedup.settings.kinds import format_duration
from streamdedup.text.stop_learning import LEAST_SOURCE_DOCUMENTS
from streamdedup.tuning.shown_pairs import LEAST_FAMILY

_WIDTH: Final = 128  # width of the tables, in characters, without a terminal


class TextTable(NamedTuple):
    """A table of texts."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    caption: str = ""
    best: int | None = None  # place of the row to print in bold
    #: Columns to leave out on a narrow terminal, from the first one on, until the table fits.
    omittable: tuple[str, ...] = ()


def tables_text(results: dict[str, Any], target: TextIO) -> str:
    """Return tables, recommendation, warnings and settings in the form for ``target``: a terminal, or another file."""
    buffer, terminal = io.StringIO(), Console(file=target)
    width = terminal.width if terminal.is_terminal else _WIDTH
    # Without a height, rich takes 80 columns for a terminal that calls itself dumb.
    console = Console(
        file=buffer, width=width, height=terminal.height, highlight=False, force_terminal=terminal.is_terminal
    )
    console.print(Text(sample_text(results) + "\n"))
    min_recall = results["recommendation"]["min_recall"]
    rows = [row for row in results["rows"] if row["min_recall"] == min_recall]
    for table in (kinds_table(results), settings_table(results, rows)):
        if table is not None:
            _print_table(console, table)
            console.print()
    _print_table(console, recalls_table(results))
    _print_thresholds(console, results)
    for line in _recommendation_lines(results):
        print_line(console, line)
    for warning in results["warnings"]:
        print_line(console, Text(f"warning: {printable(warning)}", "yellow"))
    if results["proposals"]:
        console.print()
        _print_table(console, proposals_table(results))
        for proposal in results["proposals"]:
            if proposal["examples"]:
                console.print(Text(f"\nPairs gained by {proposal['name']}\n", "italic"))
                _print_pairs(console, proposal["examples"])
    if proposed := results["proposed"]:
        if proposed["stop_shingles"] is not None:
            read_it = "To read it: streamdedup stop-shingles, with the same texts and --config FILE.toml"
            print_line(console, Text(f"The section names boilerplate, which --apply FILE.toml writes. {read_it}"))
        console.print(Text(f"\n{proposed['settings_file']}"), soft_wrap=True)  # to be copied
    return buffer.getvalue()


def sample_text(results: dict[str, Any]) -> str:
    sample, demand = results["sample"], results["demand"]
    choice = "all of them" if sample["documents"] == sample["read"] else "random ones of those read"
    text = (
        f"{counted(sample['documents'], 'document')} of {sample['read']:,} read ({choice}), half of at least "
        f"{sample['median_words']:,} words. Forecast: {demand['documents_per_day']:,.0f} a day, kept for "
        f"{format_duration(demand['retention_s'])} and {format_duration(demand['retention_slack_s'])} more: "
        f"{demand['documents_kept']:,.0f} documents."
    )
    counts = sample["looked_at"]
    if all(count == sample["documents"] for count in counts.values()):
        return text
    looked_at = ", ".join(f"{count:,} with {kind}" for kind, count in counts.items())
    return f"{text} Looked at {looked_at}: a larger --time compares more."


def memory_text(results: dict[str, Any]) -> str:
    recommendation = results["recommendation"]
    sizes = recommendation["memory_bytes_by_layout"]
    shown = " or ".join(f'{forecast_size(size)} with "{layout}"' for layout, size in sizes.items())
    return f'{shown} on Redis 7; redis.bucket_layout = "{recommendation["bucket_layout"]}"'


def settings_table(results: dict[str, Any], rows: Sequence[dict[str, Any]]) -> TextTable:
    """Return the table of rows of settings, one of which is the recommendation."""
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "shingles": lambda row: f"{row['unit']} {row['size']}",
        "t": lambda row: f"{row['threshold']:g}",
        "R": lambda row: f"{row['min_recall']:g}",
        "bands": lambda row: f"{row['bands']} x {row['rows']}",
        "P(s)": lambda row: share_text(row["found_at_recall_from"]) + ("" if row["recall_reached"] else "!"),
        "expected": lambda row: share_text(row["expected_recall"], row["pairs"]),
        "measured": lambda row: share_text(row["found_recall"], row["pairs"]),
        "pairs": lambda row: f"{row['pairs']:,}",
        "candid.": lambda row: count_text(row["candidates_that_stay"]),
        "+ /million": lambda row: count_text(row["candidates_that_grow_per_million"]),
        "B/doc.": lambda row: count_text(row["bytes_per_document"]),
        "memory": lambda row: forecast_size(row["memory_bytes"]),
        "docs/s": lambda row: count_text(row["documents_per_s"]),
    }
    recommendation = results["recommendation"]
    keys = ("unit", "size", "threshold", "min_recall")
    is_best = [all(row[key] == recommendation[key] for key in keys) for row in rows]
    caption = (
        f"P(s): chance to find a pair exactly at s, which is recall_from ({recommendation['recall_from']:g}), or t "
        "where it is higher; measured: share of the sample's pairs from s on; both with bucket_cap and max_candidates "
        "as forecast. P(s)!: below R. Expected: the share without these limits. Pairs: all that are alerted. "
        "Candidates: in an index as large as the collection, and more by chance for each million documents. "
        "Memory on Redis 7, documents/s of one daemon, both as forecast."
    )
    cells = [[text(row) for text in columns.values()] for row in rows]
    title = "Settings by kind of shingles, threshold t and minimum recall R"
    omittable = ("expected", "+ /million", "memory", "docs/s", "R")
    return TextTable(title, list(columns), cells, caption, is_best.index(True), omittable)


def kinds_table(results: dict[str, Any]) -> TextTable | None:
    """Return a row for each kind of shingles on the same documents; None where the settings table shows the same."""
    best, kinds = results["recommendation"], results["kinds"]
    if len(kinds) < 2 or kinds[0]["documents"] == max(results["sample"]["looked_at"].values()):
        return None
    title = f"Kinds of shingles, all with the same {kinds[0]['documents']:,} documents, from {best['threshold']:g}"
    return settings_table(results, kinds)._replace(title=title, caption="")


def thresholds_table(results: dict[str, Any]) -> TextTable:
    rows = [
        [f"{step['threshold']:g}", f"{step['pairs']:,}", f"{step['added']:,}", share_text(step["found"])]
        for step in results["thresholds"]
    ]
    title = "Pairs that a threshold adds, with the recommended shingles and bands"
    caption = "Found: share of these pairs, of different texts, that the recommended bands find."
    return TextTable(title, ["threshold", "pairs", "more", "found"], rows, caption)


def recalls_table(results: dict[str, Any]) -> TextTable:
    """Return the recall and the cost by minimum recall, with the recommended shingles and threshold."""
    best = results["recommendation"]
    rows = [
        [
            f"{row['min_recall']:g}",
            f"{row['bands']} x {row['rows']}",
            share_text(row["found_at_recall_from"]),
            *(share_text(row[key], row["pairs"]) for key in ("found_recall", "documents_without_alert")),
            count_text(row["bytes_per_document"]),
            count_text(row["documents_per_s"]),
        ]
        for row in results["recalls"]
    ]
    return TextTable(
        f"Minimum recall R, with {best['unit']} {best['size']} from {best['threshold']:g}",
        ["R", "bands", "P(s)", "measured", "no alert", "B/doc.", "docs/s"],
        rows,
        "Measured: share of the pairs; no alert: share of the documents with pairs that find none of them.",
        best=[row["min_recall"] for row in results["recalls"]].index(best["min_recall"]),
        omittable=("docs/s",),
    )


def proposals_table(results: dict[str, Any]) -> TextTable:
    """Return the proposals: the recommendation first, all of them together last."""
    columns = ["settings", "pairs", "more", "across sources", "fewer", "boiler.", "families", "candid.", "B/doc."]
    proposals = results["proposals"]
    rows = [
        [
            proposal["name"] if proposal["is_advised"] else f"not: {proposal['name']}",
            f"{proposal['pairs']:,}",
            f"{proposal['gained']:,}",
            across_text(proposal["across"]),
            f"{proposal['lost']:,}",
            "not judged" if proposal["boilerplate"] is None else f"{proposal['boilerplate']:,}",
            f"{proposal['families']:,}",
            count_text(proposal["candidates_that_stay"]),
            count_text(proposal["bytes_per_document"]),
        ]
        for proposal in proposals
    ]
    caption = (
        "Settings that change which documents are alike. Across sources: share of the gained pairs. Boiler.: pairs of "
        "whose common words more than half are boilerplate; not judged: none is, but of a source fewer than "
        f"{LEAST_SOURCE_DOCUMENTS} documents. Families: pairs of one template, {LEAST_FAMILY} or more texts of one "
        "source that pairs link; settings that gain mostly such are marked with not, and left out. --apply FILE writes "
        "the others."
    )
    best = max((row for row, proposal in enumerate(proposals) if proposal["is_advised"]), default=None)
    return TextTable("Proposed", columns, rows, caption, best=best)


def _print_table(console: Console, table: TextTable) -> None:
    """Print a table, on a narrow terminal without some of its ``omittable`` columns, which a line below names."""
    # Wider than any table: a measurement is never above the limit, and with that of the terminal each table would fit.
    unlimited = console.options.update(max_width=10_000)
    console.print(Text(table.title, "italic"))
    drawn, omitted = _draw(table, ()), ""
    for count in range(1, len(table.omittable) + 1):
        if Measurement.get(console, unlimited, drawn).maximum <= console.width:
            break
        drawn = _draw(table, table.omittable[:count])
        omitted = f"Not shown at this width: {', '.join(table.omittable[:count])}."
    console.print(drawn)
    if note := " ".join(filter(None, (table.caption, omitted))):
        console.print(Text(note, "dim italic"))


def _draw(table: TextTable, omitted: Sequence[str]) -> Table:
    drawn = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    shown = [column for column, name in enumerate(table.columns) if name not in omitted]
    for column in shown:
        drawn.add_column(table.columns[column], justify="right" if column else "left", no_wrap=True)
    for row, cells in enumerate(table.rows):
        drawn.add_row(*(cells[column] for column in shown), style="bold" if row == table.best else None)
    return drawn


def _print_thresholds(console: Console, results: dict[str, Any]) -> None:
    """Print each threshold with the number of pairs that it adds, and examples of these pairs."""
    recommendation = results["recommendation"]
    kind = f"{recommendation['unit']} {recommendation['size']}"
    console.print(Text(f"\nPairs that a threshold adds, with shingles {kind}\n", "italic"))
    for step in results["thresholds"]:
        style = "bold" if step["threshold"] == recommendation["threshold"] else ""
        by_rule = f", {step['by_containment']:,} by containment" if step["by_containment"] else ""
        share = "" if step["found"] is None else f", of different texts {step['found']:.0%} found"
        across = "" if step["across"] is None else f", {across_text(step['across'])} across sources"
        counts = f"{counted(step['pairs'], 'pair')}, {step['added']:,} more{by_rule}{share}{across}"
        print_line(console, Text(f"  from {step['threshold']:g}: {counts}", style))
        _print_pairs(console, step["examples"])
        if step["examples"]:
            wanted = f"    if these pairs are wanted: threshold = {step['threshold']:g}"
            print_line(console, Text(f"{wanted}; a lower recall_from finds more of them"))
    console.print()


def _print_pairs(console: Console, pairs: Sequence[Mapping[str, Any]]) -> None:
    for pair in pairs:
        names = " ~ ".join(
            printable(f"{pair[side]} ({source})" if (source := pair[f"{side}_source"]) else pair[side])
            for side in ("left", "right")
        )
        common = f"{pair['common_words']:,} words in common, of {pair['left_words']:,} and {pair['right_words']:,}"
        length, passage = pair["passage_words"], printable(pair["passage"])
        run = f"; {length:,} in a row: {passage}" if length else ""
        line = Text.assemble("    ", (f"{pair['similarity']:.2f}", "green"), f"  {names}: {common}{run}")
        print_line(console, line)


def _recommendation_lines(results: dict[str, Any]) -> Iterator[Text]:
    row, demand = results["recommendation"], results["demand"]
    lines = {
        "because": f"{row['reason']}; the cheapest bands that reach a recall of {row['min_recall']:g} at "
        f"{row['recall_from']:g}",
        "memory": memory_text(results),
        "candidates": (
            f"{count_text(row['candidates_forecast'])} a document with {demand['documents_kept']:,.0f} documents, "
            f"{count_text(row['false_candidates_forecast'])} of them below the threshold"
        ),
        "speed": f"{count_text(row['documents_per_s'])} documents/s a daemon here; daemons: {row['daemons']}",
    }
    bands = f"{counted(row['bands'], 'band')} of {counted(row['rows'], 'row')}"
    heading = "Recommended" if results["proposed"] else "Not recommended, the cheapest"
    yield Text(f"{heading}: {row['unit']} {row['size']}, {bands}", "bold")
    yield from (Text(f"  {name:<10} {text}") for name, text in lines.items())


def share_text(share: float | None, pair_count: int | None = None) -> str:
    """Return a share with 4 decimals, or with as many as ``pair_count`` has digits: ``0.50`` of 12 pairs."""
    decimals = 4 if pair_count is None else min(len(str(pair_count)), 4)
    return "none" if share is None else f"{share:.{decimals}f}"


def count_text(estimate: float | None) -> str:
    """Return an estimated number with two digits, such as ``1,200``; None for more candidates than a study lists."""
    if estimate is None:
        return "too many"
    return f"{estimate:.2g}" if estimate < 10 else f"{float(f'{estimate:.2g}'):,.0f}"


def forecast_size(size: float) -> str:
    """Return a forecast of bytes with two digits."""
    return filesize.decimal(round(float(f"{size:.2g}"))).replace(".0 ", " ")


def across_text(share: float | None) -> str:
    """Return the share of pairs across sources as a percentage; "none" where no pair has two known sources."""
    return "none" if share is None else f"{share:.0%}"
