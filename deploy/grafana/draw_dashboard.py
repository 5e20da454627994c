"""Turn panels.toml into dashboards/streamdedup.json, for Grafana. Run: python deploy/grafana/draw_dashboard.py."""  # noqa: INP001  a script beside the dashboard, no package

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

#: What is shown, and the dashboard.
PANELS = Path(__file__).parent / "panels.toml"
DASHBOARD = Path(__file__).parent / "dashboards" / "streamdedup.json"
#: Columns of Grafana's grid.
COLUMNS = 24
#: What the words in the queries stand for: the choice made at the top of the dashboard, and Grafana's own choice of a
#: span, at least four times the scrape interval.
WORDS = {"DAEMONS": 'job=~"$job", instance=~"$instance"', "RATE": "$__rate_interval"}
#: The source of the data chosen at the top of the dashboard.
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
#: Colours of what is well, of what wants a look, and of what wants a hand.
GREEN, AMBER, RED = "green", "orange", "red"

Json = dict[str, Any]


def variables() -> list[Json]:
    """Return the choices at the top of the dashboard."""

    def labels(name: str, title: str, query: str) -> Json:
        return {
            "name": name,
            "label": title,
            "type": "query",
            "datasource": SOURCE,
            "query": {"query": query, "refId": name},
            "refresh": 2,
            "sort": 1,
            "multi": True,
            "includeAll": True,
            "current": {"text": ["All"], "value": ["$__all"]},
        }

    source = {
        "name": "datasource",
        "label": "data source",
        "type": "datasource",
        "query": "prometheus",
        "current": {"text": "Prometheus", "value": "prometheus"},
    }
    return [
        source,
        labels("job", "job", "label_values(streamdedup_build_info, job)"),
        labels("instance", "daemon", 'label_values(streamdedup_build_info{job=~"$job"}, instance)'),
    ]


def thresholds(panel: Json) -> Json:
    """Return from which values on a panel changes its colour."""
    colours = (RED, GREEN) if panel.get("more_is_better") else (GREEN, AMBER, RED)
    steps: list[Json] = [{"color": colours[0], "value": None}]
    steps += [
        {"color": colour, "value": value} for colour, value in zip(colours[1:], panel.get("steps", ()), strict=False)
    ]
    return {"mode": "absolute", "steps": steps}


def options(panel: Json) -> Json:
    """Return what a kind of panel wants to know."""
    if panel["kind"] == "stat":
        return {
            "colorMode": "background" if "steps" in panel else "value",
            "graphMode": "area",
            "justifyMode": "auto",
            "orientation": "auto",
            "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            "textMode": "value_and_name" if len(panel["queries"]) > 1 else "value",
        }
    if panel["kind"] == "heatmap":
        return {
            "calculate": False,
            "cellGap": 1,
            "color": {"mode": "scheme", "scheme": "Blues", "steps": 32},
            "legend": {"show": True},
            "tooltip": {"mode": "single", "yHistogram": True},
            "yAxis": {"unit": panel["unit"]},
        }
    return {
        "legend": {"calcs": ["lastNotNull", "max"], "displayMode": "table", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }


def field_config(panel: Json) -> Json:
    """Return how values are written and drawn."""
    bars = panel.get("bars", False)
    stacked = bars or panel.get("stacked", False)
    defaults: Json = {"unit": panel["unit"], "thresholds": thresholds(panel), "min": 0}
    if "decimals" in panel:
        defaults["decimals"] = panel["decimals"]
    if panel["kind"] == "stat":
        defaults |= {"color": {"mode": "thresholds"}, "noValue": "-"}
    if panel["kind"] == "timeseries":
        defaults["color"] = {"mode": "palette-classic"}
        defaults["custom"] = {
            "drawStyle": "bars" if bars else "line",
            "fillOpacity": 60 if bars else 30 if stacked else 8,
            "lineInterpolation": "linear",
            "lineWidth": 1,
            "showPoints": "never",
            "spanNulls": False,
            "stacking": {"group": "A", "mode": "normal" if stacked else "none"},
        }
    return {"defaults": defaults, "overrides": []}


def target(panel: Json, at: int, expression: str, legend: str) -> Json:
    """Return one query of a panel."""
    for word, meaning in WORDS.items():
        expression = expression.replace(word, meaning)
    return {
        "refId": chr(ord("A") + at),
        "datasource": SOURCE,
        "expr": expression,
        "legendFormat": legend,
        "format": "heatmap" if panel["kind"] == "heatmap" else "time_series",
        "range": True,
    }


def drawn(panel: Json) -> Json:
    """Return a panel in Grafana's form, without its number and its place."""
    return {
        "type": panel["kind"],
        "title": panel["title"],
        "description": panel["asks"],
        "datasource": SOURCE,
        "fieldConfig": field_config(panel),
        "options": options(panel),
        "targets": [target(panel, at, *query) for at, query in enumerate(panel["queries"])],
    }


def laid_out(rows: list[Json]) -> Iterator[Json]:
    """Yield rows and panels from top to bottom; a line of the grid that is full is followed by the next."""
    y = 0
    for row in rows:
        place = {"h": 1, "w": COLUMNS, "x": 0, "y": y}
        yield {"type": "row", "title": row["title"], "collapsed": False, "panels": [], "gridPos": place}
        x, y, height = 0, y + 1, 0
        for given in row["panels"]:
            panel = {"kind": "timeseries", "unit": "short", **given}
            is_stat = panel["kind"] == "stat"
            width = panel.get("width", 3 if is_stat else 8)
            if x + width > COLUMNS:
                x, y = 0, y + height
            height = 4 if is_stat else 8
            yield {**drawn(panel), "gridPos": {"h": height, "w": width, "x": x, "y": y}}
            x += width
        y += height


def draw() -> str:
    """Return the dashboard as JSON."""
    rows = tomllib.loads(PANELS.read_text(encoding="utf-8"))["rows"]
    dashboard = {
        "uid": "streamdedup",
        "title": "streamdedup",
        "description": "Near-duplicates in streams: what comes in and goes out, how long it takes, what is wrong.",
        "tags": ["streamdedup"],
        "schemaVersion": 42,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "15s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": variables()},
        "annotations": {"list": []},
        "links": [],
        "panels": [{"id": number, **panel} for number, panel in enumerate(laid_out(rows), 1)],
    }
    return json.dumps(dashboard, indent=2) + "\n"


if __name__ == "__main__":
    DASHBOARD.parent.mkdir(parents=True, exist_ok=True)
    DASHBOARD.write_text(draw(), encoding="utf-8")
