"""The report of ``streamdedup tune``: one HTML file that needs nothing else.

Texts come from anywhere, so the template escapes whatever it is given, and the page forbids scripts and requests to
itself.
"""

from typing import Any, Final

from jinja2 import Environment, PackageLoader, StrictUndefined

from streamdedup import __version__
from streamdedup.commands.charts import (
    HEIGHT,
    WIDTH,
    Chart,
    Mark,
    Tick,
    path_of,
    powers,
    round_steps,
    x_scale,
    y_scale,
)
from streamdedup.commands.differences import compare, printable
from streamdedup.commands.tune_tables import sample_text, size_text
from streamdedup.commands.tune_work import Result
from streamdedup.evaluation import Rate
from streamdedup.lsh import Banding

#: Colours of series that the style sheet has.
COLOURS: Final = 4
#: Points of the curve.
_CURVE_POINTS: Final = 101


def page(result: Result) -> str:
    """Return the page."""
    environment = Environment(
        loader=PackageLoader("streamdedup.commands", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"bytes": size_text, "printable": printable, "share": _share, "count": _count}
    figures = result.figures
    return environment.get_template("tune_report.html").render(
        figures=figures,
        sample=sample_text(figures),
        charts=[similarities(figures), curve(figures), memory(figures)],
        pairs=_pairs(result),
        size={"width": WIDTH, "height": HEIGHT},
        version=__version__,
    )


def _share(value: float | None) -> str:
    return "none" if value is None else f"{value:.4f}"


def _count(value: float | None) -> str:
    return "too many" if value is None else f"{value:,.2f}"


def similarities(figures: dict[str, Any]) -> Chart:
    """Return how many pairs there are of each similarity."""
    bins = figures["similarities"]
    most = max((one["pairs"] for one in bins), default=0)
    low = min((one["from"] for one in bins), default=0.0)
    x, y = x_scale(low, 1.0), y_scale(0, max(most, 1), log=True)
    bars = [
        Mark(
            x(one["from"]) + 1,
            y(one["pairs"]),
            x(one["to"]) - x(one["from"]) - 2,
            y(0) - y(one["pairs"]),
            0.0,
            f"{one['from']:.2f} to {one['to']:.2f}: {one['pairs']:,} pairs",
        )
        for one in bins
    ]
    total = sum(one["pairs"] for one in bins)
    chosen = figures["recommendation"]
    return Chart(
        "similarities",
        "Similarity of the sample's pairs",
        f"{total:,} pairs of similarity {low:g} and above with shingles {chosen['unit']} {chosen['size']}, copies in "
        f"the last bar; the line is the threshold. The scale is logarithmic.",
        "Jaccard similarity",
        "pairs",
        [Tick(x(value), f"{value:g}") for value in round_steps(low, 1.0)],
        [Tick(y(value), f"{value:,.0f}") for value in powers(most)],
        bars=bars,
        rule=x(chosen["threshold"]),
    )


def curve(figures: dict[str, Any]) -> Chart:
    """Return the chance to be found by similarity, with what was found of the sample's pairs."""
    chosen = figures["recommendation"]
    banding = Banding(chosen["bands"], chosen["rows"])
    x, y = x_scale(0.0, 1.0), y_scale(0.0, 1.0)
    steps = [at / (_CURVE_POINTS - 1) for at in range(_CURVE_POINTS)]
    points = []
    for one in figures["curve"]:
        rate = Rate(one["found"], one["pairs"])
        low, high = rate.bounds() or (0.0, 1.0)
        text = f"similarity {one['similarity']:.3f}: {one['found']:,} of {one['pairs']:,} pairs found"
        share = rate.share or 0.0
        points.append(Mark(x(one["similarity"]), y(share), 3.5, y(low) - y(high), y(high), text))
    return Chart(
        "curve",
        "Chance to be found, and what was found",
        f"With {chosen['bands']} bands of {chosen['rows']} rows. Each dot is the share of the sample's pairs of "
        f"different texts at that similarity that met in a bucket, with its bounds of 95 %; the line is theory.",
        "Jaccard similarity",
        "share found",
        [Tick(x(at / 5), f"{at / 5:g}") for at in range(6)],
        [Tick(y(at / 5), f"{at / 5:g}") for at in range(6)],
        points=points,
        path=path_of([(x(at), y(banding.probability(at))) for at in steps]),
        rule=x(chosen["threshold"]),
    )


def memory(figures: dict[str, Any]) -> Chart:
    """Return memory against expected recall, a point for each row at the recommended threshold."""
    chosen = figures["recommendation"]
    rows = [row for row in figures["rows"] if row["threshold"] == chosen["threshold"]]
    sizes, recalls = [row["memory_bytes"] for row in rows], [row["probability_at_threshold"] for row in rows]
    low = min(recalls, default=0.9) - 0.01
    x, y = x_scale(low, 1.0), y_scale(0.0, max(sizes, default=1.0) * 1.1 or 1.0)
    kinds = list(dict.fromkeys(f"{row['unit']} {row['size']}" for row in rows))
    points = [
        Mark(
            x(row["probability_at_threshold"]),
            y(row["memory_bytes"]),
            5.0,
            0.0,
            0.0,
            f"{row['unit']} {row['size']}, {row['bands']} x {row['rows']}: recall "
            f"{row['probability_at_threshold']:.4f}, {size_text(row['memory_bytes'])}",
            kinds.index(f"{row['unit']} {row['size']}") % COLOURS,
        )
        for row in rows
    ]
    return Chart(
        "memory",
        "Memory against recall",
        f"Each dot is a row of the table with the threshold {chosen['threshold']:g}: the chance to find a pair "
        f"exactly at the threshold, and Redis memory with {figures['demand']['documents_kept']:,.0f} documents.",
        "recall at the threshold",
        "memory",
        [Tick(x(value), f"{value:g}") for value in round_steps(low, 1.0, 4)],
        [
            Tick(y(value), size_text(value).replace(".0 ", " "))
            for value in round_steps(0.0, max(sizes, default=1.0) * 1.1, 4)
        ],
        points=points,
        legend=kinds,
    )


def _pairs(result: Result) -> list[dict[str, Any]]:
    """Return the borderline pairs with both texts in pieces."""
    text_of = dict(zip(result.sample.ids, result.sample.texts, strict=True))
    pairs = []
    for one in result.figures["borderline"]:
        both = compare(text_of[one["left"]], text_of[one["right"]])
        pairs.append({**one, "sides": [(one["left"], both.left), (one["right"], both.right)]})
    return pairs
