"""A picture of a run: one panel for each figure, over time, as SVG."""

from collections.abc import Callable, Sequence

from tests.soak.samples import Sample

#: Size of a panel and the room that its axes take, in pixels; panels side by side.
WIDTH, HEIGHT, LEFT, TOP, COLUMNS = 400, 180, 62, 30, 2
_STYLE = """
text { font: 12px system-ui, sans-serif; fill: #24292f }
.small { fill: #57606a }
.axis { stroke: #d8dee4; stroke-width: 1 }
.warm { fill: #f6f8fa }
.curve { fill: none; stroke: #0969da; stroke-width: 1.5 }
"""
#: Title of each panel, and what it shows of a sample.
PANELS: dict[str, Callable[[Sample], float]] = {
    "documents a second": lambda sample: sample.documents_per_s,
    "lag, records": lambda sample: sample.lag_count,
    "RSS of the daemon, MB": lambda sample: sample.rss_bytes / 1e6,
    "file descriptors": lambda sample: sample.descriptors_count,
    "threads": lambda sample: sample.threads_count,
    "Redis, MB": lambda sample: sample.redis_bytes / 1e6,
    "keys in Redis, thousands": lambda sample: sample.redis_keys_count / 1e3,
    "latency, 99th percentile, s": lambda sample: sample.latency_p99_s or 0.0,
}


def draw(samples: Sequence[Sample], title: str) -> str:
    """Return the picture.

    Args:
        samples: At least one, in order of time.
        title: What is written above it.
    """
    rows = -(-len(PANELS) // COLUMNS)
    width, height = COLUMNS * WIDTH, rows * HEIGHT + TOP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">',
        f"<style>{_STYLE}</style>",
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="10" y="20">{title}</text>',
    ]
    for at, (name, value) in enumerate(PANELS.items()):
        row, column = divmod(at, COLUMNS)
        parts += _panel(column * WIDTH, row * HEIGHT + TOP, name, [(s.seconds, value(s)) for s in samples])
    return "\n".join([*parts, "</svg>", ""])


def _panel(x: int, y: int, name: str, points: Sequence[tuple[float, float]]) -> list[str]:
    left, right, top, bottom = x + LEFT, x + WIDTH - 14, y + 22, y + HEIGHT - 26
    last_s = max(points[-1][0], 1.0)
    # From zero, so that what hardly changes looks so.
    most = max(value for _, value in points) or 1.0

    def place(seconds: float, value: float) -> str:
        return f"{left + seconds / last_s * (right - left):.1f} {bottom - value / most * (bottom - top):.1f}"

    curve = " L".join(place(seconds, value) for seconds, value in points)
    return [
        f'<rect class="warm" x="{left}" y="{top}" width="{(right - left) / 4:.1f}" height="{bottom - top}"/>',
        f'<path class="axis" d="M{left} {top} L{left} {bottom} L{right} {bottom}"/>',
        f'<text x="{left}" y="{y + 14}">{name}</text>',
        f'<text class="small" x="{left - 6}" y="{top + 8}" text-anchor="end">{most:,.4g}</text>',
        f'<text class="small" x="{left - 6}" y="{bottom}" text-anchor="end">0</text>',
        f'<text class="small" x="{right}" y="{bottom + 16}" text-anchor="end">{last_s / 60:.1f} min</text>',
        f'<path class="curve" d="M{curve}"/>',
    ]
