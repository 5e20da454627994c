"""The charts of the report of ``streamdedup tune``, drawn by matplotlib as pictures that need no other file."""

import base64
import io
from typing import Any, Final, NamedTuple

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from streamdedup.cli.tune_tables import size_text
from streamdedup.evaluation import Rate
from streamdedup.similarity.lsh import Banding

#: Colour and marker of each kind of shingles; theory and measurement have the first two.
_SERIES: Final = (("#1f5fa8", "o"), ("#b1490f", "s"), ("#2e7d4f", "^"), ("#7a3e9d", "D"), ("#56606a", "v"))
#: Width and height, inches.
_SIZE: Final = (5.0, 3.2)
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
    """A chart.

    Attributes:
        name: Identifier on the page.
        title: What it shows.
        description: What can be read from it, in a sentence or two.
        source: The picture, as an address that holds it.
    """

    name: str
    title: str
    description: str
    source: str


def charts(figures: dict[str, Any]) -> list[Chart]:
    """Return all charts; without a server there is none of memory."""
    found = [similarities(figures), curve(figures)]
    return found if figures["measured"] is None else [*found, memory(figures)]


def similarities(figures: dict[str, Any]) -> Chart:
    """Return the number of pairs by similarity."""
    bins, chosen = figures["similarities"], figures["recommendation"]
    # At a threshold of 1 no bin lies above it.
    low, total = min((one["from"] for one in bins), default=0.0), sum(one["pairs"] for one in bins)
    figure, axes = _axes("Jaccard similarity", "pairs")
    widths = [one["to"] - one["from"] for one in bins]
    axes.bar(
        [one["from"] for one in bins],
        [one["pairs"] for one in bins],
        widths,
        align="edge",
        color=_SERIES[0][0],
        edgecolor="white",
    )
    axes.set_yscale("symlog", linthresh=1)
    axes.set_xlim(low, 1.0)
    _threshold(axes, chosen)
    return Chart(
        "similarities",
        "Similarity of the sample's pairs",
        f"{total:,} pairs of similarity {low:g} and above with shingles {chosen['unit']} {chosen['size']}, copies in "
        f"the last bar; the line is the threshold. The scale is logarithmic.",
        _source(figure),
    )


def curve(figures: dict[str, Any]) -> Chart:
    """Return the chance to be found by similarity, with the share of the sample's pairs that was found."""
    chosen, found = figures["recommendation"], figures["curve"]
    banding = Banding(chosen["bands"], chosen["rows"])
    figure, axes = _axes("Jaccard similarity", "share found")
    steps = np.linspace(0.0, 1.0, 101)
    axes.plot(steps, [banding.probability(at) for at in steps.tolist()], color=_SERIES[0][0])
    rates = [Rate(one["found"], one["pairs"]) for one in found]
    shares = np.array([rate.share or 0.0 for rate in rates])
    bounds = np.array([rate.bounds() or (0.0, 1.0) for rate in rates]).reshape(-1, 2)
    errors = np.maximum(np.stack((shares - bounds[:, 0], bounds[:, 1] - shares)), 0.0)
    axes.errorbar([one["similarity"] for one in found], shares, yerr=errors, fmt=".", color=_SERIES[1][0], elinewidth=1)
    axes.set(xlim=(0.0, 1.0), ylim=(0.0, 1.02))
    _threshold(axes, chosen)
    return Chart(
        "curve",
        "Chance to be found, and what was found",
        f"With {chosen['bands']} bands of {chosen['rows']} rows. Each dot is the share of the sample's pairs of "
        f"different texts at that similarity that met in a bucket, with its bounds of 95 %; the line is theory.",
        _source(figure),
    )


def memory(figures: dict[str, Any]) -> Chart:
    """Return memory against recall, a point for each row at the recommended threshold."""
    chosen = figures["recommendation"]
    rows = [row for row in figures["rows"] if row["threshold"] == chosen["threshold"]]
    figure, axes = _axes("recall at the threshold", "memory")
    kinds = dict.fromkeys((row["unit"], row["size"]) for row in rows)
    for at, (unit, size) in enumerate(kinds):
        colour, marker = _SERIES[at % len(_SERIES)]
        points = [row for row in rows if (row["unit"], row["size"]) == (unit, size)]
        axes.plot(
            [row["probability_at_threshold"] for row in points],
            [row["memory_bytes"] for row in points],
            marker,
            color=colour,
            label=f"{unit} {size}",
        )
    axes.set_ylim(bottom=0.0)
    axes.locator_params(axis="x", nbins=5)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda size, _: size_text(size).replace(".0 ", " ")))
    axes.legend(fontsize="small")
    return Chart(
        "memory",
        "Memory against recall",
        f"Each dot is a row of the table with the threshold {chosen['threshold']:g}: the chance to find a pair "
        f"exactly at the threshold, and Redis memory with {figures['demand']['documents_kept']:,.0f} documents.",
        _source(figure),
    )


def _axes(x: str, y: str) -> tuple[Figure, Axes]:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=_SIZE, layout="constrained")
        axes = figure.add_subplot()
    axes.set(xlabel=x, ylabel=y)
    return figure, axes


def _threshold(axes: Axes, chosen: dict[str, Any]) -> None:
    axes.axvline(chosen["threshold"], color=_SERIES[1][0], linestyle="--", linewidth=1)


def _source(figure: Figure) -> str:
    """Return a figure as an address that holds it as SVG."""
    written = io.BytesIO()
    with mpl.rc_context(_STYLE):
        figure.savefig(written, format="svg", metadata={"Date": None})
    return "data:image/svg+xml;base64," + base64.b64encode(written.getvalue()).decode()
