"""The results of ``streamdedup tune`` as tables and sentences, for a terminal and the report.

``tuning.results`` makes the results and explains their keys; the captions of the tables explain the columns.
"""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from streamdedup.cli.rendering.pairs import marked_texts
from streamdedup.cli.rendering.terminal import print_line, printable, size_text
from streamdedup.settings.units import counted, format_duration

#: Width of the tables, in characters, without a terminal.
_WIDTH: Final = 128
#: Width in characters that no table reaches.
_UNLIMITED_WIDTH: Final = 10_000
#: Least width at which two texts are shown side by side.
_SIDE_BY_SIDE_WIDTH: Final = 100
#: Columns that are left out on a narrow terminal, from the first one on, until the table fits.
_OMITTED_COLUMNS: Final = ("expected", "+ /million", "memory", "docs/s", "R")


class TableData(NamedTuple):
    """A table of texts; ``best`` is the number of the row to point out."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    caption: str = ""
    best: int | None = None


def share_text(value: float | None) -> str:
    """Return a probability or a recall as text; None is a recall without pairs."""
    return "none" if value is None else f"{value:.4f}"


def count_text(value: float | None) -> str:
    """Return an estimated number with two digits; None is a count beyond the limit of the study."""
    if value is None:
        return "too many"
    return f"{value:.2g}" if value < 10 else f"{float(f'{value:.2g}'):,.0f}"


def sample_text(results: dict[str, Any]) -> str:
    """Return a sentence about sample and forecast."""
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
    text += f" Looked at {', '.join(f'{count:,} with {kind}' for kind, count in counts.items())}:"
    if sample["cut_by_time"]:
        return f"{text} there was no time for more, --time SECONDS gives more."
    return f"{text} long texts have enough shingles in fewer, and the other kinds are compared on a part."


def memory_text(results: dict[str, Any]) -> str:
    """Return the memory with each bucket layout."""
    recommendation = results["recommendation"]
    sizes = recommendation["memory_bytes_by_layout"]
    shown = " or ".join(f'{size_text(size)} with "{layout}"' for layout, size in sizes.items())
    return f'{shown} on Redis 7; redis.bucket_layout = "{recommendation["bucket_layout"]}"'


def settings_table(results: dict[str, Any]) -> TableData:
    """Return all rows of settings; ``best`` is the recommendation."""
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "shingles": lambda row: f"{row['unit']} {row['size']}",
        "t": lambda row: f"{row['threshold']:g}",
        "R": lambda row: f"{row['min_recall']:g}",
        "bands": lambda row: f"{row['bands']} x {row['rows']}",
        "P(s)": lambda row: share_text(row["found_at_recall_from"]) + ("" if row["recall_reached"] else "!"),
        "expected": lambda row: share_text(row["expected_recall"]),
        "measured": lambda row: share_text(row["found_recall"]),
        "pairs": lambda row: f"{row['pairs']:,}",
        "candid.": lambda row: count_text(row["candidates_that_stay"]),
        "+ /million": lambda row: count_text(row["candidates_that_grow_per_million"]),
        "B/doc.": lambda row: f"{row['bytes_per_document']:,.0f}",
        "memory": lambda row: size_text(row["memory_bytes"]),
        "docs/s": lambda row: f"{row['documents_per_s']:,.0f}",
    }
    recommendation, rows = results["recommendation"], results["rows"]
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
    return TableData(title, list(columns), cells, caption, best=is_best.index(True))


def kinds_table(results: dict[str, Any]) -> TableData | None:
    """Return a row for each kind of shingles on the same documents; None where the settings table has all kinds."""
    best, kinds = results["recommendation"], results["kinds"]
    if len(kinds) < 2 or kinds[0]["documents"] == max(results["sample"]["looked_at"].values()):
        return None
    table = settings_table(results | {"rows": kinds})
    title = f"Kinds of shingles, all with the same {kinds[0]['documents']:,} documents, from {best['threshold']:g}"
    return table._replace(title=title, caption="")


def thresholds_table(results: dict[str, Any]) -> TableData:
    """Return the pairs that each threshold adds."""
    rows = [
        [f"{step['threshold']:g}", f"{step['pairs']:,}", f"{step['added']:,}", share_text(step["found"])]
        for step in results["thresholds"]
    ]
    title = "Pairs that a threshold adds, with the recommended shingles and bands"
    caption = "Found: share of these pairs, of different texts, that the recommended bands find."
    return TableData(title, ["threshold", "pairs", "more", "found"], rows, caption)


def round_text(results: dict[str, Any], elapsed_s: float) -> str:
    """Return a sentence about the recommendation of a round that another round follows."""
    row = results["recommendation"]
    documents = results["sample"]["looked_at"][f"{row['unit']} {row['size']}"]
    return (
        f"after {elapsed_s:.0f} s, of {documents:,} documents: {row['unit']} {row['size']} at {row['threshold']:g} in "
        f"{row['bands']} x {row['rows']} bands, {counted(row['pairs'], 'pair')}, {size_text(row['memory_bytes'])}; "
        "more documents follow"
    )


def recalls_table(results: dict[str, Any]) -> TableData:
    """Return the recall and the cost by minimum recall, with the recommended shingles and threshold."""
    best = results["recommendation"]
    rows = [
        [
            f"{row['min_recall']:g}",
            f"{row['bands']} x {row['rows']}",
            *(share_text(row[key]) for key in ("found_at_recall_from", "found_recall", "unlucky_documents")),
            f"{row['bytes_per_document']:,.0f}",
            f"{row['documents_per_s']:,.0f}",
        ]
        for row in results["recalls"]
    ]
    return TableData(
        f"Minimum recall R, with {best['unit']} {best['size']} from {best['threshold']:g}",
        ["R", "bands", "P(s)", "measured", "no alert", "B/doc.", "docs/s"],
        rows,
        "Measured: share of the pairs; no alert: share of the documents with pairs that find none of them.",
        best=[row["min_recall"] for row in results["recalls"]].index(best["min_recall"]),
    )


def proposals_table(results: dict[str, Any]) -> TableData:
    """Return the proposals: the recommendation first, all of them together last."""
    columns = ["settings", "pairs", "more", "fewer", "boiler.", "candid.", "B/doc."]
    rows = [
        [
            trial["name"],
            *(f"{trial[key]:,}" for key in ("pairs", "gained", "lost", "boilerplate")),
            count_text(trial["candidates_that_stay"]),
            f"{trial['bytes_per_document']:,.0f}",
        ]
        for trial in results["proposals"]
    ]
    caption = (
        "Settings that change which documents are alike. Boiler.: pairs of whose common words more than half are "
        "boilerplate. --apply FILE writes all of them."
    )
    return TableData("Proposed", columns, rows, caption, best=len(rows) - 1)


def tables_text(results: dict[str, Any], target: TextIO) -> str:
    """Return tables, recommendation, warnings and settings in the form for ``target``: a terminal, or another file."""
    buffer, terminal = io.StringIO(), Console(file=target)
    width = terminal.width if terminal.is_terminal else _WIDTH
    # Without a height, rich takes 80 columns for a terminal that calls itself dumb.
    console = Console(
        file=buffer, width=width, height=terminal.height, highlight=False, force_terminal=terminal.is_terminal
    )
    console.print(Text(sample_text(results) + "\n"))
    for table in (kinds_table(results), _shown_rows(results)):
        if table is not None:
            _print_table(console, table)
            console.print()
    _print_table(console, recalls_table(results))
    _print_thresholds(console, results)
    for line in _recommendation(results):
        print_line(console, line)
    for warning in results["warnings"]:
        print_line(console, Text(f"warning: {printable(warning)}", "yellow"))
    if results["proposals"]:
        console.print()
        _print_table(console, proposals_table(results))
    if command := results["proposed"]["command"]:
        print_line(console, Text(f"To write and read the boilerplate, which the section names: {printable(command)}"))
    console.print(Text(f"\n{results['proposed']['settings_file']}"), soft_wrap=True)  # to be copied
    return buffer.getvalue()


def _shown_rows(results: dict[str, Any]) -> TableData:
    """Return the table of settings with the rows of the recommended minimum recall alone."""
    table, min_recall = settings_table(results), results["recommendation"]["min_recall"]
    shown = [number for number, row in enumerate(results["rows"]) if row["min_recall"] == min_recall]
    return table._replace(
        rows=[table.rows[number] for number in shown], best=None if table.best is None else shown.index(table.best)
    )


def _print_table(console: Console, data: TableData) -> None:
    """Print a table whose cells are never cut; a narrow terminal does not get some of ``_OMITTED_COLUMNS``."""
    # Measured with the width of the terminal, no table would be too wide.
    unlimited = console.options.update(max_width=_UNLIMITED_WIDTH)
    console.print(Text(data.title, "italic"))
    omitted: list[str] = []
    table = _drawn(data, omitted)
    while Measurement.get(console, unlimited, table).maximum > console.width and len(omitted) < len(_OMITTED_COLUMNS):
        omitted.append(_OMITTED_COLUMNS[len(omitted)])
        table = _drawn(data, omitted)
    console.print(table)
    more = f" Not shown at this width: {', '.join(omitted)}." if omitted else ""
    if data.caption:
        console.print(Text(data.caption + more, "dim italic"))


def _drawn(data: TableData, omitted: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, padding=(0, 0, 0, 1))
    shown = [number for number, name in enumerate(data.columns) if name not in omitted]
    for number in shown:
        table.add_column(data.columns[number], justify="right" if number else "left", no_wrap=True)
    for number, cells in enumerate(data.rows):
        table.add_row(*(cells[column] for column in shown), style="bold" if number == data.best else None)
    return table


def _print_thresholds(console: Console, results: dict[str, Any]) -> None:
    """Print each threshold with the number of pairs that it adds, and examples of these pairs."""
    recommendation = results["recommendation"]
    kind = f"{recommendation['unit']} {recommendation['size']}"
    console.print(Text(f"\nPairs that a threshold adds, with shingles {kind}\n", "italic"))
    for step in results["thresholds"]:
        style = "bold" if step["threshold"] == recommendation["threshold"] else ""
        by_rule = f", {step['by_containment']:,} by containment" if step["by_containment"] else ""
        share = "" if step["found"] is None else f", of different texts {step['found']:.0%} found"
        counts = f"{counted(step['pairs'], 'pair')}, {step['added']:,} more{by_rule}{share}"
        print_line(console, Text(f"  from {step['threshold']:g}: {counts}", style))
        for pair in step["examples"]:
            _print_pair(console, pair)
    console.print()


def _print_pair(console: Console, pair: Mapping[str, Any]) -> None:
    names = f"{printable(pair['left'])} ~ {printable(pair['right'])}"
    print_line(console, Text.assemble("    ", (f"{pair['similarity']:.4f}", "green"), f"  {names}"))
    texts = marked_texts(pair["left_text"], pair["right_text"], coloured=console.color_system is not None)
    table = Table.grid(expand=True, padding=(0, 2, 0, 0), pad_edge=False)
    if console.width >= _SIDE_BY_SIDE_WIDTH:
        table.add_column(ratio=1)
        table.add_column(ratio=1)
        table.add_row(*texts)
    else:
        for text in texts:
            table.add_row(text)
    console.print(Padding(table, (0, 0, 0, 6)))


def _recommendation(results: dict[str, Any]) -> Iterator[Text]:
    row, demand = results["recommendation"], results["demand"]
    lines = {
        "because": f"{row['reason']}; the cheapest bands that reach a recall of {row['min_recall']:g} at "
        f"{row['recall_from']:g}",
        "memory": memory_text(results),
        "candidates": (
            f"{count_text(row['candidates_forecast'])} a document with {demand['documents_kept']:,.0f} documents, "
            f"{count_text(row['false_candidates_forecast'])} of them below the threshold"
        ),
        "speed": f"{row['documents_per_s']:,.0f} documents/s a daemon on this machine; daemons: {row['daemons']}",
    }
    bands = f"{counted(row['bands'], 'band')} of {counted(row['rows'], 'row')}"
    yield Text(f"Recommended: {row['unit']} {row['size']}, {bands}", "bold")
    yield from (Text(f"  {name:<10} {text}") for name, text in lines.items())
