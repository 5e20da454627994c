"""The report of ``streamdedup tune``: one HTML file that needs nothing else.

Texts come from anywhere, so the template escapes every value, and the page forbids scripts and requests to itself.
"""

from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from streamdedup import __version__
from streamdedup.cli import tune_tables as tables
from streamdedup.cli.differences import compare, printable
from streamdedup.cli.tune_charts import charts
from streamdedup.tuning.sample import Sample


def page(figures: dict[str, Any], sample: Sample) -> str:
    """Return the page."""
    environment = Environment(
        loader=PackageLoader("streamdedup.cli", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": tables.size_text,
        "count": tables.count_text,
        "printable": printable,
        "share": tables.share_text,
    }
    return environment.get_template("tune_report.html").render(
        figures=figures,
        sample=tables.sample_text(figures),
        measured=tables.measured_text(figures),
        layouts=tables.layouts_text(figures),
        charts=charts(figures),
        settings=[tables.settings_table(figures), tables.exact_limits_table(figures)],
        texts=[tables.templates_table(figures), tables.buckets_table(figures)],
        pairs=_pairs(figures, sample),
        version=__version__,
    )


def _pairs(figures: dict[str, Any], sample: Sample) -> list[dict[str, Any]]:
    """Return the pairs nearest to the threshold with both texts in pieces."""
    text_of = dict(zip(sample.ids, sample.texts, strict=True))
    pairs = []
    for one in figures["borderline"]:
        both = compare(text_of[one["left"]], text_of[one["right"]])
        pairs.append({**one, "sides": [(one["left"], both.left), (one["right"], both.right)]})
    return pairs
