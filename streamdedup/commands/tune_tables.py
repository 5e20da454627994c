"""The figures of ``streamdedup tune`` as tables for people."""

import io
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from streamdedup.commands.differences import printable
from streamdedup.commands.output import Output
from streamdedup.settings.units import counted, format_duration

#: Width of the tables, in characters, where no terminal gives one.
_WIDTH = 128
#: Templates that are shown, and characters of each.
_TEMPLATES, _TEMPLATE_CHARS = 3, 90


def show(figures: dict[str, Any], output: Output) -> None:
    """Write the tables."""
    buffer = io.StringIO()
    terminal = Console()
    wide = terminal.width if terminal.is_terminal else _WIDTH
    console = Console(file=buffer, width=wide, highlight=False, force_terminal=terminal.is_terminal)
    console.print(_sample(figures))
    console.print(_rows(figures))
    console.print(_limits(figures))
    for line in _recommendation(figures):
        console.print(line, soft_wrap=True)
    for warning in figures["warnings"]:
        console.print(Text(f"warning: {printable(warning)}", "yellow"), soft_wrap=True)
    for one in figures["templates"][:_TEMPLATES]:
        shown = printable(one["text"][:_TEMPLATE_CHARS])
        console.print(Text(f"template in {one['share']:.1%}: {shown}"), soft_wrap=True)
    console.print(Text(f"\n{figures['recommendation']['toml']}"))
    output.write(buffer.getvalue())


def size_text(size: float) -> str:
    """Return a number of bytes for people, with decimal units."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= scale:
            return f"{size / scale:,.1f} {unit}"
    return f"{size:,.0f} B"


def sample_text(figures: dict[str, Any]) -> str:
    """Return what was looked at, in a sentence."""
    sample, demand = figures["sample"], figures["demand"]
    how = "all of them" if sample["documents"] == sample["read"] else f"{sample['sampling']} ones of those read"
    text = (
        f"{counted(sample['documents'], 'document')} of {sample['read']:,} read ({how}), half of at least "
        f"{sample['median_words']:,} words. Forecast: {demand['documents_per_day']:,.0f} a day, kept for "
        f"{format_duration(demand['retention_s'])} and {format_duration(demand['retention_slack_s'])} more: "
        f"{demand['documents_kept']:,.0f} documents."
    )
    fewer = [f"{kind}: {count:,}" for kind, count in sample["looked_at"].items() if count < sample["documents"]]
    return text + (f" Looked at fewer of long texts ({', '.join(fewer)})." if fewer else "")


def _sample(figures: dict[str, Any]) -> Text:
    return Text(sample_text(figures) + "\n")


def _rows(figures: dict[str, Any]) -> Table:
    server = figures["memory_server"]
    title = "Settings by kind of shingles, threshold t and minimum recall R"
    legend = (
        "P(t): chance to find a pair exactly at t. Expected and measured: share of the sample's pairs from t on. "
        "Candidates: in an index as large as the collection, and more by chance for each million documents. "
        "R*: reached on the sample. "
        f"Memory on {server}, documents/s of one daemon, both as forecast."
    )
    table = Table(title=title, title_justify="left", caption=legend, caption_justify="left", box=SIMPLE_HEAD)
    for name in ("shingles", "t", "R", "bands", "P(t)", "expected", "measured", "pairs"):
        table.add_column(name, justify="left" if name == "shingles" else "right", no_wrap=True)
    for name in ("candid.", "+ /million", "B/doc.", "memory", "docs/s"):
        table.add_column(name, justify="right", no_wrap=True)
    chosen = figures["recommendation"]
    for row in figures["rows"]:
        same = all(row[key] == chosen[key] for key in ("unit", "size", "threshold", "min_recall"))
        table.add_row(*_cells(row), style="bold" if same else None)
    return table


def _cells(row: dict[str, Any]) -> list[str]:
    asked = f"{row['min_recall']:g}" + ("" if row["reached"] == "theory" else "*")
    return [
        f"{row['unit']} {row['size']}",
        f"{row['threshold']:g}",
        asked,
        f"{row['bands']} x {row['rows']}",
        f"{row['probability_at_threshold']:.4f}",
        _share(row["expected_recall"]),
        _share(row["measured_recall"]),
        f"{row['pairs']:,}",
        _count(row["candidates_that_stay"]),
        _count(row["candidates_that_grow_per_million"]),
        f"{row['bytes_per_document']:,.0f}",
        size_text(row["memory_bytes"]),
        f"{row['documents_per_s']:,.0f}",
    ]


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _count(value: float | None) -> str:
    return "too many" if value is None else f"{value:,.2f}"


def _limits(figures: dict[str, Any]) -> Table:
    table = Table(title="What exact_limit costs, with the recommended settings", title_justify="left", box=SIMPLE_HEAD)
    for name in ("exact_limit", "documents kept exactly", "standard error else", "bytes a document", "memory"):
        table.add_column(name, justify="right")
    for one in figures["exact_limits"]:
        error = f"{one['standard_error']:.3f}" if one["exact_share"] < 1 else "none"
        size = f"{one['bytes_per_document']:,.0f}"
        table.add_row(str(one["exact_limit"]), f"{one['exact_share']:.1%}", error, size, size_text(one["memory_bytes"]))
    return table


def _layouts(recommendation: dict[str, Any]) -> str:
    sizes = recommendation["memory_bytes_by_layout"]
    each = ", ".join(f"{name} {size_text(size)}" for name, size in sizes.items())
    return f'redis.bucket_layout = "{recommendation["bucket_layout"]}"; memory by layout: {each}'


def _recommendation(figures: dict[str, Any]) -> list[Text]:
    one, measured, demand = figures["recommendation"], figures["measured"], figures["demand"]
    models = ", ".join(f"{name} {size_text(size)}" for name, size in one["memory_bytes_by_model"].items())
    bands = f"{counted(one['bands'], 'band')} of {counted(one['rows'], 'row')}"
    lines = [
        Text(f"\nRecommended: {one['unit']} {one['size']}, {bands}", "bold"),
        Text(
            f"  because    {one['reason']}; the cheapest bands that reach a recall of {one['min_recall']:g} "
            f"{'at the threshold by theory' if one['reached'] == 'theory' else 'on the sample'}"
        ),
        Text(
            f"  memory     {size_text(one['memory_bytes'])} on {figures['memory_server']}, "
            f"{size_text(one['memory_bytes_when_first_filled'])} when first filled; by the models: {models}"
        ),
        Text(f"  layout     {_layouts(one)}"),
        Text(
            f"  candidates {_count(one['candidates_forecast'])} a document with {demand['documents_kept']:,.0f} "
            f"documents, {_count(one['false_candidates_forecast'])} of them below the threshold"
        ),
        Text(
            f"  speed      {one['documents_per_s']:,.0f} documents/s a daemon on this machine, "
            f"{'without' if not one['documents_per_s_measured'] else 'with'} a measured Redis; daemons: "
            f"{one['daemons']}"
        ),
    ]
    if measured is None:
        return [*lines, Text("  measured   on no server: the model's constants of Redis 7 and Valkey 9")]
    error = f"{measured['model_error']:+.1%}" if measured["model_error"] is not None else "nothing"
    corrected = ", and is corrected by it" if measured["corrects"] else ""
    where = f"{'a private ' if measured['private'] else ''}{measured['server']} ({measured['allocator']})"
    text = f"  measured   {measured['documents']:,} documents took {size_text(measured['measured_bytes'])} on {where}"
    return [*lines, Text(f"{text}; the model had said {error}{corrected}")]
