"""Pictures as SVG: the same octets for the same numbers, on a white ground for any page.

Lines are theory, points are measured; each colour has a different marker, for readers who do not tell colours apart.
"""

import io
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

#: Colour and marker of each series.
SERIES = (("#0550ae", "o"), ("#b35900", "s"), ("#116329", "^"), ("#8250df", "D"))
GREY = "#57606a"

_STYLE: Any = {
    # A salt makes the ids of the SVG the same in each run; texts stay texts, which any browser can find.
    "svg.hashsalt": "streamdedup",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    # The first one decides how wide texts are here; the others are for readers who do not have it.
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Helvetica", "Arial"],
    "font.size": 11,
    "text.color": "#24292f",
    "axes.labelcolor": "#24292f",
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": "#d8dee4",
    "xtick.color": "#24292f",
    "ytick.color": "#24292f",
    "legend.frameon": False,
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


class Picture:
    """One plot, in the style of the project.

    Args:
        title: Title, also for screen readers.
        x: Label of the horizontal axis.
        y: Label of the vertical axis.
        height: In inches; it is 8 wide.
    """

    def __init__(self, title: str, x: str, y: str, height: float = 5.0) -> None:
        self.title = title
        with mpl.rc_context(_STYLE):
            self.figure = Figure(figsize=(8.0, height), layout="constrained")
            self.axes: Axes = self.figure.add_subplot()
            self.axes.set(xlabel=x, ylabel=y)
            self.axes.set_title(title, loc="left", fontsize=12)

    def legend(self, place: str) -> None:
        """Add a legend in a corner such as "upper left" or, in two columns, "below" the plot."""
        with mpl.rc_context(_STYLE):
            if place == "below":
                self.figure.legend(fontsize=10, loc="outside lower center", ncols=2)
            else:
                self.axes.legend(fontsize=10, loc=place)  # type: ignore[call-overload]

    def band(self, x: Sequence[float], low: Sequence[float], high: Sequence[float], colour: str) -> None:
        """Shade the interval of chance."""
        self.axes.fill_between(x, low, high, color=colour, alpha=0.18, linewidth=0)

    def svg(self) -> str:
        """Return the picture."""
        written = io.StringIO()
        with mpl.rc_context(_STYLE):
            self.figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None, "Title": self.title})
        return "\n".join(line.rstrip() for line in written.getvalue().splitlines()) + "\n"
