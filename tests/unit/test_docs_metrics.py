"""docs/metrics.md lists the metrics of the code, no more and no fewer, with their types, labels and texts."""

import re
import shlex
import subprocess
from pathlib import Path
from typing import get_args

import pytest
import yaml
from prometheus_client import Counter, Histogram

from streamdedup.daemon.batch import INVALID
from streamdedup.daemon.metrics import REBUILD_KINDS, STAGES, WAITING_FOR, BatchHistogram, Metrics
from streamdedup.detection.model import Skip
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


def documented():
    return {named(row[0])[0]: row for title in SECTIONS for row in rows(section(PAGE, title)) if len(row) == 5}


def declared():
    """Return type, labels, text and action of each metric by the name that is shown."""
    found = {}
    for attribute, metric in vars(Metrics()).items():
        if not hasattr(metric, "describe"):
            continue
        (family,) = metric.describe()
        kinds = {Counter: "counter", Histogram: "histogram", BatchHistogram: "histogram"}
        kind = kinds.get(type(metric), "gauge")
        endings = {"counter": "_total", "gauge": "", "histogram": ""}
        ending = "_info" if family.type == "info" else endings[kind]
        named_labels = (metric.label,) if isinstance(metric, BatchHistogram) else metric._labelnames
        labels = ("version",) if family.type == "info" else named_labels
        found[f"{family.name}{ending}"] = (kind, labels, family.documentation, Metrics.declared()[attribute].action)
    return found


class TestTables:
    def test_every_metric_is_listed_and_every_listed_one_exists(self):
        assert documented().keys() == declared().keys()

    @pytest.mark.parametrize("name", declared())
    def test_type_labels_text_and_action_are_those_of_the_code(self, name):
        _, kind, labels, text, action = documented()[name]
        assert (kind, tuple(named(labels)), text, action) == declared()[name]
        assert action.endswith(".")


#: The table of the labels, and that of the alert rules.
LABELS = {label: row[1] for row in rows(section(PAGE, "Labels")) for label in named(row[0])}
LISTED = {named(row[0])[0]: row for row in rows(section(PAGE, "Alert rules"))}


class TestLabels:
    def test_every_label_is_explained_and_no_other(self):
        assert LABELS.keys() == {label for _, labels, *_ in declared().values() for label in labels}

    def test_values_that_the_code_fixes_are_listed(self):
        assert named(LABELS["kind"]) == [*get_args(Op), INVALID, *REBUILD_KINDS]
        assert named(LABELS["stage"]) == list(STAGES)
        assert named(LABELS["what"]) == list(WAITING_FOR.values())

    def test_the_reasons_are_those_of_the_page_that_is_named(self):
        messages = (ROOT / "docs" / "messages.md").read_text(encoding="utf-8")
        table = rows(section(messages, "Skipped, counted by reason"))
        assert {named(row[0])[0] for row in table} == set(Skip)


class TestAlertRules:
    def test_every_rule_is_listed_in_the_order_of_the_file(self):
        assert list(LISTED) == list(ALERTS)

    @pytest.mark.parametrize("name", ALERTS)
    def test_its_severity_is_that_of_the_rule(self, name):
        assert LISTED[name][1] == ALERTS[name]["labels"]["severity"]

    @pytest.mark.parametrize("name", ALERTS)
    def test_the_rule_says_what_happened_and_where_it_stands_what_to_do(self, name):
        annotations = ALERTS[name]["annotations"]
        assert set(annotations) == {"summary", "description", "runbook_url"}
        assert annotations["description"].endswith(".")
        page, _, anchor = annotations["runbook_url"].partition("#")
        assert page == f"{RUNBOOKS}/operating.md"
        assert anchor in anchors((ROOT / "docs" / "operating.md").read_text(encoding="utf-8"))

    @pytest.mark.parametrize("name", [name for name in ALERTS if METRIC.search(ALERTS[name]["expr"])])
    def test_a_metric_of_the_rule_declares_the_heading_with_the_cure(self, name):
        anchor = ALERTS[name]["annotations"]["runbook_url"].partition("#")[2]
        metrics = declared()
        actions = [metrics[metric][-1] for metric in METRIC.findall(ALERTS[name]["expr"])]
        assert [action for action in actions if f"(operating.md#{anchor})" in action]

    def test_the_documented_command_puts_another_address_before_all_headings(self, tmp_path):
        (command,) = re.findall(r"^sed -i .*$", section(PAGE, "Alert rules"), re.MULTILINE)
        program, option, script, path = shlex.split(command)
        assert (program, option) == ("sed", "-i")
        copy = tmp_path / "rules.yml"
        copy.write_bytes((ROOT / path).read_bytes())
        subprocess.run([program, option, script, copy], check=True)
        groups = yaml.safe_load(copy.read_text(encoding="utf-8"))["groups"]
        rules = [rule for group in groups for rule in group["rules"] if "alert" in rule]
        own = script.split("|")[2]
        assert own.startswith("https://")
        assert own != RUNBOOKS
        for rule in rules:
            before = ALERTS[rule["alert"]]["annotations"]["runbook_url"]
            assert rule["annotations"]["runbook_url"] == before.replace(RUNBOOKS, own)


def test_every_metric_in_a_query_of_the_page_exists():
    names = {name for block in re.findall(r"```promql\n(.*?)```", PAGE, re.DOTALL) for name in METRIC.findall(block)}
    assert len(names) > 6
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in names} <= declared().keys()
