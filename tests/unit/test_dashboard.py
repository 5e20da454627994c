"""The dashboard and the rules: they ask for metrics and labels that exist, and show everything the daemon tells."""

import importlib.util
import re

import pytest
import yaml

from streamdedup.daemon.metrics import REBUILD_KINDS, STAGES, Awaited, Metrics
from tests.dashboard import FOLDER, PANELS, metrics_of, queries, substituted
from tests.prometheus import RULES
from tests.unit.test_docs_metrics import DAEMON

ALL_RULES = [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


def registered():
    metrics = Metrics()
    return {
        {"counter": f"{family.name}_total", "info": f"{family.name}_info"}.get(family.type, family.name)
        for family in metrics.registry.collect()
    }


def recorded():
    return {rule["record"] for rule in ALL_RULES if "record" in rule}


def labels_of(query):
    """Return the labels of the metrics in a query; a recorded metric has those of its own query."""
    recordings = {rule["record"]: rule["expr"] for rule in ALL_RULES if "record" in rule}
    found = {"job", "instance", "le"}
    for name in metrics_of(query):
        if name in recordings:
            found |= labels_of(recordings[name])
        elif name in DAEMON:  # others are of the process, which has no more labels
            _, labels, *_ = DAEMON[name]
            found.update(labels)
    return found


def named_labels(query):
    """Return the labels by which a query selects and groups."""
    groups = re.findall(r"\b(?:by|ignoring|on|group_left) \(([^)]*)\)", query)
    return {*re.findall(r"(\w+)[!=]~?\"", query), *re.findall(r"\w+", " ".join(groups))}


def test_it_is_what_the_script_makes_of_the_list_of_panels():
    spec = importlib.util.spec_from_file_location("draw_dashboard", FOLDER / "draw_dashboard.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown = module.DASHBOARD.read_text(encoding="utf-8")
    assert shown == module.draw(), "draw it anew: python deploy/grafana/draw_dashboard.py"


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
class TestPanel:
    def test_its_queries_ask_for_the_chosen_daemons(self, panel):
        for target in panel["targets"]:
            query = substituted(target["expr"], job="A-JOB", instance="AN-INSTANCE", span="1m")
            assert "A-JOB" in query
            assert "AN-INSTANCE" in query or "ALERTS" in query

    def test_its_queries_name_metrics_that_exist(self, panel):
        for target in panel["targets"]:
            assert metrics_of(target["expr"]) <= registered() | recorded()

    def test_its_queries_and_legends_name_labels_that_exist(self, panel):
        for target in panel["targets"]:
            of_alerts = {"alertname", "alertstate"} if "ALERTS" in target["expr"] else set()
            legend = re.findall(r"{{(\w+)}}", target["legendFormat"])
            assert named_labels(target["expr"]) | set(legend) <= labels_of(target["expr"]) | of_alerts


def test_every_metric_is_shown_somewhere():
    shown = set().union(*(metrics_of(query) for query in queries()))
    hidden = {"process_virtual_memory_bytes", "process_max_fds", "process_open_fds"}
    assert registered() - shown == hidden


def test_the_rules_name_metrics_and_labels_that_exist():
    for rule in ALL_RULES:
        assert metrics_of(rule["expr"]) <= registered() | recorded(), rule
        assert named_labels(rule["expr"]) <= labels_of(rule["expr"]), rule


def test_the_rules_and_queries_name_values_of_labels_that_exist():
    awaited = {each.name.lower() for each in Awaited}
    known = {"what": awaited, "stage": set(STAGES), "kind": set(REBUILD_KINDS)}
    for query in [*queries(), *(rule["expr"] for rule in ALL_RULES)]:
        for label, values in re.findall(r"\b(what|stage|kind)!?=~?\"([\w|]+)\"", query):
            assert set(values.split("|")) <= known[label], query
