"""The report of ``streamdedup tune --report``: one HTML file with charts that needs no other file.

Needs the extra "report". Texts come from arbitrary senders: the template (``tuning_report.html``) escapes every value,
and the content security policy of the page forbids scripts and requests.
"""

import base64
import io
from typing import Any, Final, NamedTuple

import matplotlib as mpl
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from streamdedup import __version__
from streamdedup.cli.rendering import tuning_tables as tables
from streamdedup.cli.rendering.differences import compare
from streamdedup.cli.rendering.safe_text import printable
from streamdedup.evaluation.rates import Rate
from streamdedup.similarity.lsh import Banding
from streamdedup.tuning.sample import Sample

#: In charts with one kind of shingles: bars and theory are blue, measured shares and the threshold's line are orange.
_BLUE, _ORANGE = "#1f5fa8", "#b1490f"
#: Colour and marker of each kind of shingles, in the chart of all kinds.
_SERIES: Final = ((_BLUE, "o"), (_ORANGE, "s"), ("#2e7d4f", "^"), ("#7a3e9d", "D"), ("#56606a", "v"))
_SIZE: Final = (5.0, 3.2)  # width and height, inches
_STYLE: Final[Any] = {
    # The same ids in each run; texts stay texts, in the reader's font.
    "svg.hashsalt": "streamdedup",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#d9dde1",
    "legend.frameon": False,
}


class Chart(NamedTuple):
    """A chart: identifier on the page, title, a sentence or two about it, and the picture."""

    name: str
    title: str
    description: str
    data_url: str


def report_page(results: dict[str, Any], sample: Sample) -> str:
    """Return the HTML page with the results of ``tuning.results`` and texts of the sample."""
    environment = Environment(
        loader=PackageLoader("streamdedup.cli.rendering", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "forecast": tables.forecast_size,
        "count": tables.count_text,
        "printable": printable,
        "share": tables.share_text,
    }
    text_of = dict(zip(sample.ids, sample.texts, strict=True))
    pairs = []
    for pair in results["borderline"]:
        comparison = compare(text_of[pair["left"]], text_of[pair["right"]])
        pairs.append({**pair, "sides": [(pair["left"], comparison.left), (pair["right"], comparison.right)]})
    return environment.get_template("tuning_report.html").render(
        results=results,
        sample=tables.sample_text(results),
        memory=tables.memory_text(results),
        charts=[similarities_chart(results), curve_chart(results), memory_chart(results)],
        tables=[
            *([kinds] if (kinds := tables.kinds_table(results)) else []),
            tables.settings_table(results, results["rows"]),
            tables.recalls_table(results),
            tables.thresholds_table(results),
            *([tables.proposals_table(results)] if results["proposals"] else []),
        ],
        pairs=pairs,
        version=__version__,
    )


def similarities_chart(results: dict[str, Any]) -> Chart:
    bins, recommendation = results["similarities"], results["recommendation"]
    # There are bins above the least threshold only, so none if it is 1.
    low = min((bar["from"] for bar in bins), default=0.0)
    total = sum(bar["pairs"] for bar in bins)
    figure, axes = _axes("Jaccard similarity", "pairs")
    axes.bar(
        [bar["from"] for bar in bins],
        [bar["pairs"] for bar in bins],
        [bar["to"] - bar["from"] for bar in bins],
        align="edge",
        color=_BLUE,
        edgecolor="white",
    )
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xlim(low, 1.0)
    axes.axvline(recommendation["threshold"], color=_ORANGE, linestyle="--", linewidth=1)
    return Chart(
        "similarities",
        "Similarity of the sample's pairs",
        f"{total:,} pairs of similarity {low:g} and above with shingles {recommendation['unit']} "
        f"{recommendation['size']}, copies in the last bar; the line is the threshold. The scale is logarithmic.",
        _data_url(figure),
    )


def curve_chart(results: dict[str, Any]) -> Chart:
    """Draw the chance to find a pair by similarity, with the found share of the sample's pairs."""
    recommendation, measured = results["recommendation"], results["curve"]
    banding = Banding(recommendation["bands"], recommendation["rows"])
    figure, axes = _axes("Jaccard similarity", "share found")
    steps = np.linspace(0.0, 1.0, 101)
    axes.plot(steps, [banding.probability(similarity) for similarity in steps.tolist()], color=_BLUE)
    rates = [Rate(point["found"], point["pairs"]) for point in measured]
    shares = np.array([rate.share or 0.0 for rate in rates])
    # Each point has pairs, so each rate has a share and bounds; `or` is for the type. Reshaped, because there may be no
    # point. A bound may be on the wrong side of the share by a rounding error.
    lows, highs = np.array([rate.bounds() or (0.0, 1.0) for rate in rates]).reshape(-1, 2).T
    errors = np.maximum(np.stack((shares - lows, highs - shares)), 0.0)
    axes.errorbar(
        [point["similarity"] for point in measured], shares, yerr=errors, fmt=".", color=_ORANGE, elinewidth=1
    )
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.02))
    axes.axvline(recommendation["threshold"], color=_ORANGE, linestyle="--", linewidth=1)
    return Chart(
        "curve",
        "Chance to be found, and what was found",
        f"With {recommendation['bands']} bands of {recommendation['rows']} rows. Each dot is the share of the sample's "
        f"pairs of different texts at that similarity that met in a bucket, with its bounds of 95 %; the line is "
        "theory.",
        _data_url(figure),
    )


def memory_chart(results: dict[str, Any]) -> Chart:
    """Draw memory and recall of each row at the recommended threshold; the limits for storms do not count."""
    recommendation = results["recommendation"]
    rows = [row for row in results["rows"] if row["threshold"] == recommendation["threshold"]]
    figure, axes = _axes("chance at recall_from", "memory")
    kinds = dict.fromkeys((row["unit"], row["size"]) for row in rows)
    for place, (unit, size) in enumerate(kinds):
        colour, marker = _SERIES[place % len(_SERIES)]
        points = [row for row in rows if (row["unit"], row["size"]) == (unit, size)]
        recalls = [row["probability_at_recall_from"] for row in points]
        axes.plot(recalls, [row["memory_bytes"] for row in points], marker, color=colour, label=f"{unit} {size}")
    axes.set_ylim(bottom=0.0)
    axes.locator_params(axis="x", nbins=5)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda size, _: tables.forecast_size(size)))
    axes.legend(fontsize="small")
    return Chart(
        "memory",
        "Memory against recall",
        f"Each dot is a row of the table with the threshold {recommendation['threshold']:g}: the chance to find a pair "
        f"exactly at {recommendation['recall_from']:g}, and Redis memory with "
        f"{results['demand']['documents_kept']:,.0f} documents.",
        _data_url(figure),
    )


def _axes(x: str, y: str) -> tuple[Figure, Axes]:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
    axes.set(xlabel=x, ylabel=y)
    return figure, axes


def _data_url(figure: Figure) -> str:
    written = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(written, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(written.getvalue()).decode()
