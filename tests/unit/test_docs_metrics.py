"""docs/metrics.md lists the metrics of the code, no more and no fewer, with their types, labels and texts."""

import re
from pathlib import Path
from typing import get_args

import pytest
import yaml
from prometheus_client import Counter, Histogram

from streamdedup.daemon.batch import INVALID
from streamdedup.daemon.metrics import REBUILD_KINDS, STAGES, Awaited, Metrics
from streamdedup.metrics import BatchHistogram
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.wire import Op
from tests.unit.test_docs import anchors, named, rows, section

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")
RULES = yaml.safe_load((ROOT / "deploy/prometheus/rules/streamdedup.yml").read_text(encoding="utf-8"))
#: The alert rules by name.
ALERTS = {rule["alert"]: rule for group in RULES["groups"] for rule in group["rules"] if "alert" in rule}
#: Placeholder in the rules for the address of the user's copy of docs/.
RUNBOOKS = "https://docs.example.com/streamdedup"
#: Tables of the metrics of the daemon.
SECTIONS = ("Records and documents", "Findings", "Time", "Kafka", "The store", "Health")
#: A metric of the daemon in a query.
METRIC = re.compile(r"streamdedup_[a-z_]+")


def documented(page, *titles):
    """Return the table rows of metrics by name."""
    return {named(row[0])[0]: row for title in titles for row in rows(section(page, title)) if len(row) == 5}


def declared(kind):
    """Return type, labels, text and action of each metric of a class by the name that is shown."""
    found, metrics = {}, kind()
    for attribute, declaration in kind.declared().items():
        metric = getattr(metrics, attribute)
        (family,) = metric.describe()
        shown = {Counter: "counter", Histogram: "histogram", BatchHistogram: "histogram"}.get(type(metric), "gauge")
        ending = {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = (metric.label_name,) if isinstance(metric, BatchHistogram) else metric._labelnames
        labels = ("version",) if family.type == "info" else labels
        found[f"{family.name}{ending}"] = (shown, labels, family.documentation, declaration.action)
    return found


DAEMON = declared(Metrics)


@pytest.mark.parametrize(
    ("page", "titles", "metrics"), [("metrics.md", SECTIONS, Metrics), ("http.md", ("Metrics",), ServeMetrics)]
)
def test_the_tables_have_every_metric_with_its_type_labels_text_and_action(page, titles, metrics):
    listed = documented((ROOT / "docs" / page).read_text(encoding="utf-8"), *titles)
    shown = {name: (kind, tuple(named(labels)), *texts) for name, (_, kind, labels, *texts) in listed.items()}
    assert shown == declared(metrics)


#: The table of the labels, and that of the alert rules.
LABELS = {label: row[1] for row in rows(section(PAGE, "Labels")) for label in named(row[0])}
LISTED = {named(row[0])[0]: row for row in rows(section(PAGE, "Alert rules"))}


class TestLabels:
    def test_every_label_is_explained_and_no_other(self):
        assert LABELS.keys() == {label for _, labels, *_ in DAEMON.values() for label in labels}

    def test_values_that_the_code_fixes_are_listed(self):
        assert named(LABELS["kind"]) == [*get_args(Op), INVALID, *REBUILD_KINDS]
        assert named(LABELS["stage"]) == list(STAGES)
        assert named(LABELS["what"]) == [awaited.name.lower() for awaited in Awaited]


class TestAlertRules:
    def test_every_rule_is_listed_in_the_order_of_the_file(self):
        assert list(LISTED) == list(ALERTS)

    @pytest.mark.parametrize("name", ALERTS)
    def test_the_rule_says_what_happened_and_where_it_stands_what_to_do(self, name):
        annotations = ALERTS[name]["annotations"]
        assert set(annotations) == {"summary", "description", "runbook_url"}
        assert annotations["description"].endswith(".")
        page, _, anchor = annotations["runbook_url"].partition("#")
        assert page == f"{RUNBOOKS}/operating.md"
        assert anchor in anchors((ROOT / "docs" / "operating.md").read_text(encoding="utf-8"))


def test_every_metric_in_a_query_of_the_page_exists():
    names = {name for block in re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL) for name in METRIC.findall(block)}
    assert len(names) > 6
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in names} <= DAEMON.keys()
