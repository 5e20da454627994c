"""The results of ``streamdedup tune`` as tables and sentences, for a terminal and for the report."""

import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from streamdedup.cli.rendering.terminal import printable, size_text
from streamdedup.settings.units import counted, format_duration
from streamdedup.tuning.boilerplate import BoilerplateStudy

#: Width of the tables, in characters, without a terminal.
_WIDTH: Final = 128
#: Width in characters that no table reaches.
_UNLIMITED_WIDTH: Final = 10_000
#: Runs of boilerplate on a terminal, characters of each, and characters in the report.
_BOILERPLATE_COUNT, _BOILERPLATE_CHARS, _REPORT_CHARS = 3, 90, 300
#: Sources of a run that are named.
_SOURCES_COUNT: Final = 3
#: Least share of the memory that the layout "packed" must save to be worth its slower insertions.
_WORTH_PACKING: Final = 0.2


class TableData(NamedTuple):
    """A table of texts; ``best``: number of the row to point out."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    caption: str = ""
    best: int | None = None


def share_text(value: float | None) -> str:
    """Return a probability or a recall; there is no recall without pairs."""
    return "none" if value is None else f"{value:.4f}"


def count_text(value: float | None) -> str:
    """Return a number of candidates; None: more than were counted."""
    return "too many" if value is None else f"{value:,.2f}"


def _whole_text(value: float | None) -> str:
    return "unknown" if value is None else f"{value:,.0f}"


def _cut(text: str, most: int) -> str:
    return printable(text if len(text) <= most else f"{text[:most]}...")


def sample_text(results: dict[str, Any]) -> str:
    """Return a sentence about sample and forecast."""
    sample, demand = results["sample"], results["demand"]
    how = "all of them" if sample["documents"] == sample["read"] else f"{sample['sampling']} ones of those read"
    text = (
        f"{counted(sample['documents'], 'document')} of {sample['read']:,} read ({how}), half of at least "
        f"{sample['median_words']:,} words. Forecast: {demand['documents_per_day']:,.0f} a day, kept for "
        f"{format_duration(demand['retention_s'])} and {format_duration(demand['retention_slack_s'])} more: "
        f"{demand['documents_kept']:,.0f} documents."
    )
    fewer = [f"{kind}: {count:,}" for kind, count in sample["looked_at"].items() if count < sample["documents"]]
    return text + (f" Looked at fewer of long texts ({', '.join(fewer)})." if fewer else "")


def measured_text(results: dict[str, Any]) -> str:
    """Return a sentence about the index of the sample on a server."""
    measured = results["measured"]
    if measured is None:
        return "on no server"
    error = measured["forecast_error"]
    where = f"{'a private ' if measured['private'] else ''}{measured['server']} ({measured['allocator']})"
    return (
        f"{counted(measured['documents'], 'document')} took {size_text(measured['measured_bytes'])} on {where}"
        f"{'' if error is None else f'; the forecast for them is off by {error:+.1%}'}"
    )


def layouts_text(results: dict[str, Any]) -> str:
    """Return the bucket layout of the settings, the memory with each layout, and the one to take."""
    one = results["recommendation"]
    sizes = one["memory_bytes_by_layout"]
    shown = ", ".join(f"{name} {size_text(size)}" for name, size in sizes.items())
    text = f'redis.bucket_layout = "{one["bucket_layout"]}"; memory by layout: {shown}'
    if None in sizes.values():
        return text
    saved = 1 - sizes["packed"] / sizes["sets"]
    if saved < _WORTH_PACKING:
        return f"{text}; take sets: at this size packed saves little"
    return f"{text}; packed saves {saved:.0%}: take it where memory decides, else sets"


def settings_table(results: dict[str, Any]) -> TableData:
    """Return all rows, the recommended one pointed out."""
    columns: dict[str, Callable[[dict[str, Any]], str]] = {
        "shingles": lambda row: f"{row['unit']} {row['size']}",
        "t": lambda row: f"{row['threshold']:g}",
        "R": lambda row: f"{row['min_recall']:g}" + ("" if row["reached"] == "theory" else "*"),
        "bands": lambda row: f"{row['bands']} x {row['rows']}",
        "P(t)": lambda row: share_text(row["found_at_threshold"]) + ("" if row["recall_reached"] else "!"),
        "expected": lambda row: share_text(row["expected_recall"]),
        "measured": lambda row: share_text(row["found_recall"]),
        "pairs": lambda row: f"{row['pairs']:,}",
        "candid.": lambda row: count_text(row["candidates_that_stay"]),
        "+ /million": lambda row: count_text(row["candidates_that_grow_per_million"]),
        "B/doc.": lambda row: _whole_text(row["bytes_per_document"]),
        "memory": lambda row: size_text(row["memory_bytes"]),
        "docs/s": lambda row: _whole_text(row["documents_per_s"]),
    }
    chosen, rows = results["recommendation"], results["rows"]
    keys = ("unit", "size", "threshold", "min_recall")
    best = next(at for at, row in enumerate(rows) if all(row[key] == chosen[key] for key in keys))
    caption = (
        "P(t): chance to find a pair exactly at t; measured: share of the sample's pairs from t on; both with "
        "bucket_cap and max_candidates as forecast. P(t)!: below R. Expected: the share without these limits. "
        "Candidates: in an index as large as the collection, and more by chance for each million documents. "
        "R*: reached on the sample. "
        f"Memory{_on_server(results)}, documents/s of one daemon, both as forecast."
    )
    if chosen["least_similarity"] < chosen["threshold"]:
        caption += (
            f" With the rule of containment P(t) is the chance at {chosen['least_similarity']:g}, and its pairs below "
            "t count too."
        )
    cells = [[text(row) for text in columns.values()] for row in rows]
    title = "Settings by kind of shingles, threshold t and minimum recall R"
    return TableData(title, list(columns), cells, caption, best)


def thresholds_table(results: dict[str, Any]) -> TableData:
    """Return the pairs that each threshold adds."""
    rows = [[f"{one['threshold']:g}", f"{one['pairs']:,}", f"{one['added']:,}"] for one in results["thresholds"]]
    return TableData("Pairs that a threshold adds, with the recommended shingles", ["threshold", "pairs", "more"], rows)


def exact_limits_table(results: dict[str, Any]) -> TableData:
    """Return the memory by ``exact_limit``."""
    rows = [
        [
            str(one["exact_limit"]),
            f"{one['exact_share']:.1%}",
            f"{one['standard_error']:.3f}" if one["exact_share"] < 1 else "none",
            _whole_text(one["bytes_per_document"]),
            size_text(one["memory_bytes"]),
        ]
        for one in results["exact_limits"]
    ]
    columns = ["exact_limit", "documents kept exactly", "standard error else", "bytes a document", "memory"]
    return TableData("What exact_limit costs, with the recommended settings", columns, rows)


def text_tables(results: dict[str, Any]) -> list[TableData]:
    """Return the tables whose last column has texts of documents: templates and buckets."""
    boilerplate = [
        [
            f"{one['pairs']:,}",
            f"{one['documents']:,}",
            f"{one['share']:.1%}",
            sources_text(one["sources"]),
            _cut(one["text"], _REPORT_CHARS),
        ]
        for one in results["templates"]
    ]
    buckets = [[str(one["band"]), f"{one['documents']:,}", printable(one["example"])] for one in results["buckets"]]
    return [
        TableData(
            "Templates by the pairs that they cause", ["pairs", "documents", "share", "of", "words"], boilerplate
        ),
        TableData("Hottest buckets", ["band", "documents", "one of them"], buckets),
    ]


def sources_text(sources: Sequence[str]) -> str:
    """Return the names of sources, of many the first ones; all documents where there is none."""
    shown = ", ".join(sources[:_SOURCES_COUNT]) or "all documents"
    return printable(shown if len(sources) <= _SOURCES_COUNT else f"{shown} and {len(sources) - _SOURCES_COUNT} more")


def run_text(one: Mapping[str, Any], chars: int = _BOILERPLATE_CHARS) -> str:
    """Return a line about a run of boilerplate."""
    of = f"{counted(one['documents'], 'document')}, {one['share']:.1%} of {sources_text(one['sources'])}"
    return f"template: causes {counted(one['pairs'], 'pair')}; in {of}: {_cut(one['text'], chars)}"


def _on_server(results: dict[str, Any]) -> str:
    return "" if results["memory_server"] is None else f" on {results['memory_server']}"


def tables_text(results: dict[str, Any], target: TextIO) -> str:
    """Return tables, recommendation, warnings and settings in the form for ``target``: a terminal, or another file."""
    buffer, terminal = io.StringIO(), Console(file=target)
    width = terminal.width if terminal.is_terminal else _WIDTH
    # Without a height, rich takes 80 columns for a terminal that calls itself dumb.
    console = Console(
        file=buffer, width=width, height=terminal.height, highlight=False, force_terminal=terminal.is_terminal
    )
    console.print(Text(sample_text(results) + "\n"))
    _print_table(console, settings_table(results))
    for line in _thresholds(results):
        console.print(line, soft_wrap=True)
    _print_table(console, exact_limits_table(results))
    lines = [*_recommendation(results)]
    lines += [Text(f"warning: {printable(warning)}", "yellow") for warning in results["warnings"]]
    lines += [Text(run_text(one)) for one in results["templates"][:_BOILERPLATE_COUNT]]
    lines += [Text(f"proposed: {printable(proposal)}", "bold") for proposal in results["proposals"]]
    for line in lines:
        console.print(line, soft_wrap=True)
    console.print(Text(f"\n{results['recommendation']['settings_file']}"), soft_wrap=True)
    return buffer.getvalue()


def _print_table(console: Console, data: TableData) -> None:
    """Print a table with its whole cells; on a terminal that is narrower, the terminal wraps the rows."""
    console.print(Text(data.title, "italic"))
    table, shown_width = _drawn(data), console.width
    whole_width = Measurement.get(console, console.options.update(max_width=_UNLIMITED_WIDTH), table).maximum
    console.width = max(shown_width, whole_width)
    console.print(table)
    console.width = shown_width
    if data.caption:
        console.print(Text(data.caption, "dim italic"))


def _drawn(data: TableData) -> Table:
    table = Table(box=SIMPLE_HEAD)
    for at, name in enumerate(data.columns):
        table.add_column(name, justify="right" if at else "left", no_wrap=True)
    for at, cells in enumerate(data.rows):
        table.add_row(*cells, style="bold" if at == data.best else None)
    return table


def _thresholds(results: dict[str, Any]) -> Iterator[Text]:
    """Yield each threshold with the pairs that it adds, three of them in text."""
    chosen = results["recommendation"]
    yield Text(f"Pairs that a threshold adds, with shingles {chosen['unit']} {chosen['size']}\n", "italic")
    for one in results["thresholds"]:
        style = "bold" if one["threshold"] == chosen["threshold"] else ""
        by_rule = f", {one['by_containment']:,} by containment" if one["by_containment"] else ""
        yield Text(
            f"  from {one['threshold']:g}: {counted(one['pairs'], 'pair')}, {one['added']:,} more{by_rule}", style
        )
        yield from _pairs(one["examples"])
    if contained := results["containment"]:
        yield Text(
            f"  below {chosen['threshold']:g}, by containment from {contained['containment']:g} at similarity "
            f"{contained['min_similarity']:g}: {counted(contained['pairs'], 'pair')}"
        )
        yield from _pairs(contained["examples"])
    yield Text()


def _pairs(examples: Sequence[Mapping[str, Any]]) -> Iterator[Text]:
    """Yield two lines for each pair; of pairs by containment also this share."""
    for pair in examples:
        share = f" (containment {pair['containment']:.4f})" if "containment" in pair else ""
        yield Text(f"    {pair['similarity']:.4f}{share}  {printable(pair['left'])}: {printable(pair['left_text'])}")
        yield Text(f"            {printable(pair['right'])}: {printable(pair['right_text'])}", "dim")


def _recommendation(results: dict[str, Any]) -> list[Text]:
    one, demand = results["recommendation"], results["demand"]
    bands = f"{counted(one['bands'], 'band')} of {counted(one['rows'], 'row')}"
    least = "the threshold" if one["least_similarity"] == one["threshold"] else f"{one['least_similarity']:g}"
    where = f"at {least} by theory" if one["reached"] == "theory" else "on the sample"
    memory = f"{size_text(one['memory_bytes'])}{_on_server(results)}"
    if one["memory_bytes"] is not None:
        memory += f", {size_text(one['memory_bytes_when_first_filled'])} when first filled"
    lines = {
        "because": f"{one['reason']}; the cheapest bands that reach a recall of {one['min_recall']:g} {where}",
        "memory": memory,
        "layout": layouts_text(results),
        "candidates": (
            f"{count_text(one['candidates_forecast'])} a document with {demand['documents_kept']:,.0f} documents, "
            f"{count_text(one['false_candidates_forecast'])} of them below the threshold"
        ),
        "speed": (
            f"{one['documents_per_s']:,.0f} documents/s a daemon on this machine, "
            f"{'with' if one['documents_per_s_measured'] else 'without'} a measured Redis; daemons: {one['daemons']}"
        ),
        "measured": measured_text(results),
    }
    title = Text(f"\nRecommended: {one['unit']} {one['size']}, {bands}", "bold")
    return [title, *(Text(f"  {name:<10} {text}") for name, text in lines.items())]


def boilerplate_text(study: BoilerplateStudy, threshold: float, read_count: int, most: int) -> str:
    """Return a report about boilerplate: pairs before and after, and at most so many runs.

    Args:
        study: The boilerplate.
        threshold: Least similarity of a pair.
        read_count: Documents of which the study has a sample.
        most: Runs to show.
    """
    change = study.change
    of = f"{study.documents:,} of {read_count:,} documents" if study.documents < read_count else "all documents"
    before = f"pairs with similarity of at least {threshold:g} in {of}: {change.before:,}"
    after = f"without the stop shingles {change.after:,}: {change.lost:,} fewer, {change.gained:,} more"
    lines = [f"{before}; {after}; they are {study.removed_share:.1%} of all shingles"]
    lines += [run_text(one._asdict()) for one in study.found[:most]]
    if len(study.found) > most:
        rest = study.found[most:]
        lines.append(f"further templates: {len(rest):,}, of {counted(rest[0].pairs, 'pair')} or fewer each")
    if study.unexplained:
        lines.append(f"pairs that only several templates together, or further ones, cause: {study.unexplained:,}")
    return "\n".join(lines)
