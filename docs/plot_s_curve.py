"""Draw docs/images/s-curve.svg: how likely a pair is found, by its similarity. Run: python docs/plot_s_curve.py."""  # noqa: INP001  a script beside the pages, no package

from pathlib import Path

from streamdedup.settings.profile import DEFAULT_RECALL_FROM
from streamdedup.similarity.lsh import Banding, choose_banding

#: The picture.
PICTURE = Path(__file__).parent / "images" / "s-curve.svg"
#: ``recall_from`` and ``min_recall`` of a profile that says nothing else.
RECALL_FROM, MIN_RECALL = DEFAULT_RECALL_FROM, 0.99
#: Other values of ``recall_from`` whose bandings are drawn for comparison.
OTHERS = (0.5, 0.9)
#: Lower similarities whose probability by the default bands is named.
LOWER = (0.5, 0.6, 0.7)
#: Size of the picture, and the corners of its plot, in pixels.
WIDTH, HEIGHT = 720, 420
LEFT, TOP, RIGHT, BOTTOM = 64, 24, 700, 364
#: Lines that a curve is made of.
STEPS = 120

_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #24292f }
.small { font-size: 12px; fill: #57606a }
.grid { stroke: #d8dee4; stroke-width: 1 }
.threshold { stroke: #57606a; stroke-width: 1.5; stroke-dasharray: 5 4 }
.curve { fill: none; stroke: #0969da; stroke-width: 3 }
.other { fill: none; stroke: #8c959f; stroke-width: 1.5 }
"""


def place(similarity: float, probability: float) -> tuple[float, float]:
    """Return the pixel of a point of the plot."""
    return LEFT + similarity * (RIGHT - LEFT), BOTTOM - probability * (BOTTOM - TOP)


def points(banding: Banding) -> list[tuple[float, float]]:
    """Return the pixels of a banding's curve."""
    return [place(s, banding.probability(s)) for s in (step / STEPS for step in range(STEPS + 1))]


def path(pixels: list[tuple[float, float]]) -> str:
    """Return pixels as the data of an SVG path."""
    return "M" + " L".join(f"{x:.1f} {y:.1f}" for x, y in pixels)


def line(kind: str, start: tuple[float, float], end: tuple[float, float]) -> str:
    """Return a straight line."""
    return f'<path class="{kind}" d="{path([start, end])}"/>'


def text(x: float, y: float, content: str, anchor: str = "middle", kind: str = "") -> str:
    """Return a text at a pixel."""
    extra = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{extra}>{content}</text>'


def grid() -> list[str]:
    """Return lines and numbers of both axes, and what they are."""
    parts = []
    for tenth in range(0, 11, 2):
        value = tenth / 10
        x, y = place(value, value)
        parts += [line("grid", place(value, 0), place(value, 1)), line("grid", place(0, value), place(1, value))]
        parts += [text(x, BOTTOM + 20, f"{value:g}"), text(LEFT - 10, y + 4, f"{value:g}", "end")]
    middle = (TOP + BOTTOM) / 2
    label = text(0, 0, "probability of becoming a candidate")
    parts.append(f'<g transform="translate(18 {middle:.0f}) rotate(-90)">{label}</g>')
    parts.append(text((LEFT + RIGHT) / 2, BOTTOM + 44, "Jaccard similarity of the pair"))
    return parts


def label_of(banding: Banding, recall_from: float, probability: float, *, left: bool) -> str:
    """Return the name of a curve, beside the place where it has a probability."""
    similarity = next(s / 1000 for s in range(1001) if banding.probability(s / 1000) >= probability)
    x, y = place(similarity, probability)
    name = f"{banding}, for {recall_from:g}"
    return text(x - 8, y, name, "end", "small") if left else text(x + 8, y + 8, name, "start", "small")


def draw() -> str:
    """Return the picture as SVG."""
    default = choose_banding(RECALL_FROM, MIN_RECALL)
    x, y = place(RECALL_FROM, default.probability(RECALL_FROM))
    parts = grid()
    for recall_from in OTHERS:
        banding = choose_banding(recall_from, MIN_RECALL)
        label = label_of(banding, recall_from, 0.4, left=recall_from < RECALL_FROM)
        parts += [f'<path class="other" d="{path(points(banding))}"/>', label]
    parts += [
        line("threshold", place(RECALL_FROM, 0), place(RECALL_FROM, 1)),
        f'<path class="curve" d="{path(points(default))}"/>',
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="5" fill="#0969da"/>',
        text(x + 8, y + 96, f"{default}, default:", "start"),
        text(x + 8, y + 114, f"{default.probability(RECALL_FROM):.4f} at {RECALL_FROM:g}", "start"),
        text(x + 8, BOTTOM - 15, "recall_from", "start", "small"),
    ]
    for similarity in LOWER:
        x, y = place(similarity, default.probability(similarity))
        parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="#0969da"/>')
        parts.append(text(x - 8, y - 5, f"{default.probability(similarity):.4f} at {similarity:g}", "end", "small"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}">'
    title = "<title>Probability that a pair becomes a candidate, by its Jaccard similarity</title>"
    back = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([head, title, f"<style>{_STYLE}</style>", back, *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(draw(), encoding="utf-8")
