"""Plain charts as SVG: geometry only; what they look like is said by the page's style sheet.

Each chart is data for a template: lines, points and bars in the coordinates of a view box, ticks with their texts, and
a title and a description for those who cannot see it.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

#: Size of a chart in its own units, and what its axes need.
WIDTH: Final = 480.0
HEIGHT: Final = 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 66.0, 14.0, 14.0, 46.0


class Tick(NamedTuple):
    """A mark on an axis: where, and what stands beside it."""

    at: float
    text: str


class Mark(NamedTuple):
    """A bar or a point.

    Attributes:
        x: Left edge of a bar, middle of a point.
        y: Upper edge of a bar, middle of a point.
        width: Of a bar; radius of a point.
        height: Of a bar; of a point, by how much its bounds reach down from ``low``.
        low: Upper end of a point's bounds.
        text: What it says, for pointers and screen readers.
        series: Which colour.
    """

    x: float
    y: float
    width: float
    height: float
    low: float
    text: str
    series: int = 0


class Chart(NamedTuple):
    """A chart.

    Attributes:
        name: Identifier on the page.
        title: Its name.
        description: What can be read from it, in a sentence.
        x_label: Name of the lower axis.
        y_label: Name of the left one.
        x_ticks: Its marks.
        y_ticks: Its marks.
        bars: Bars.
        points: Points.
        path: A line, as SVG's path data; empty for none.
        rule: Where a vertical line stands; None for none.
        legend: Names of the series of points, where there are several.
    """

    name: str
    title: str
    description: str
    x_label: str
    y_label: str
    x_ticks: Sequence[Tick]
    y_ticks: Sequence[Tick]
    bars: Sequence[Mark] = ()
    points: Sequence[Mark] = ()
    path: str = ""
    rule: float | None = None
    legend: Sequence[str] = ()

    @property
    def box(self) -> dict[str, float]:
        """Edges of the part within the axes."""
        return {"left": _LEFT, "right": WIDTH - _RIGHT, "top": _TOP, "bottom": HEIGHT - _BOTTOM}


class Scale:
    """Places values on an axis.

    Args:
        low: Value at its beginning.
        high: Value at its end, above it.
        begin: Coordinate of the beginning.
        end: Coordinate of the end.
        log: Places logarithms, of one and the value.
    """

    def __init__(self, low: float, high: float, begin: float, end: float, *, log: bool = False) -> None:
        self._form: Callable[[float], float] = math.log1p if log else float
        self._low, self._high = self._form(low), self._form(high)
        self._begin, self._end = begin, end

    def __call__(self, value: float) -> float:
        """Return the coordinate of a value."""
        share = (self._form(value) - self._low) / (self._high - self._low)
        return round(self._begin + share * (self._end - self._begin), 2)


def x_scale(low: float, high: float) -> Scale:
    """Return the scale of a lower axis."""
    return Scale(low, high, _LEFT, WIDTH - _RIGHT)


def y_scale(low: float, high: float, *, log: bool = False) -> Scale:
    """Return the scale of a left axis."""
    return Scale(low, high, HEIGHT - _BOTTOM, _TOP, log=log)


def path_of(points: Sequence[tuple[float, float]]) -> str:
    """Return a line through points, as SVG's path data."""
    return "M" + "L".join(f"{x:g} {y:g}" for x, y in points)


def powers(most: float) -> list[float]:
    """Return 0, 1, 10, 100 ... up to a number."""
    return [0.0, *(10.0**power for power in range(math.floor(math.log10(max(most, 1.0))) + 1))]


def round_steps(low: float, high: float, count: int = 5) -> list[float]:
    """Return round numbers within a range, about so many."""
    raw = (high - low) / count
    if raw <= 0:
        return [low]
    power = 10.0 ** math.floor(math.log10(raw))
    step = next((power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999), power * 10)
    first = math.ceil(low / step - 1e-9)
    return [round(step * at, 12) for at in range(first, math.floor(high / step + 1e-9) + 1)]
