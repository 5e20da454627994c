"""The dashboard of deploy/grafana as tests read it: its panels, their queries, what stands for its variables."""

import json
import re
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "deploy" / "grafana"
DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboards" / "streamdedup.json").read_text(encoding="utf-8"))
#: Everything with data in it.
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def queries() -> list[str]:
    """Return the queries of all panels, as Grafana reads them."""
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


def substituted(query: str, *, job: str, instance: str, span: str) -> str:
    """Return what Grafana sends when these are chosen; ``span`` is that over which rates are taken.

    Raises:
        ValueError: The query has another variable.
    """
    for name, value in (("$job", job), ("$instance", instance), ("$__rate_interval", span)):
        query = query.replace(name, value)
    if "$" in query:
        raise ValueError(f"an unknown variable in {query}")
    return query


def metrics_of(query: str) -> set[str]:
    """Return the names of the metrics in a query; histograms by their bare name, recorded ones as they are."""
    names = re.findall(r"\b((?:\w+:)?(?:streamdedup|process)_\w+(?::\w+)?)\b", query)
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}
