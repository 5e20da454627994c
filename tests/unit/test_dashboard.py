"""The dashboard: what Grafana asks of its form, and that it shows everything the daemon tells."""

import importlib.util
import itertools

import pytest
import yaml

from streamdedup.daemon.metrics import Metrics
from tests.dashboard import DASHBOARD, FOLDER, PANELS, metrics_of, queries, substituted
from tests.prometheus import RULES

#: Kinds of panel that every Grafana brings along.
KINDS = {"stat", "timeseries", "heatmap"}
#: Units as Grafana names them; a text of one's own after "suffix:".
UNITS = {"short", "s", "bytes", "percentunit"}
#: Columns of the grid.
COLUMNS = 24


def registered():
    metrics = Metrics()
    return {
        {"counter": f"{family.name}_total", "info": f"{family.name}_info"}.get(family.type, family.name)
        for family in metrics.registry.collect()
    }


def recorded():
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    return {rule["record"] for group in groups for rule in group["rules"] if "record" in rule}


def test_it_is_what_the_script_makes_of_the_list_of_panels():
    spec = importlib.util.spec_from_file_location("draw_dashboard", FOLDER / "draw_dashboard.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    shown = module.DASHBOARD.read_text(encoding="utf-8")
    assert shown == module.draw(), "draw it anew: python deploy/grafana/draw_dashboard.py"


def test_numbers_and_titles_are_unique():
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])
    assert len({panel["title"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_no_two_panels_overlap_and_none_leaves_the_grid():
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert 0 <= place["x"] < place["x"] + place["w"] <= COLUMNS
        cells = set(
            itertools.product(range(place["x"], place["x"] + place["w"]), range(place["y"], place["y"] + place["h"]))
        )
        assert not cells & taken, panel["title"]
        taken |= cells


def test_every_line_of_the_grid_is_full():
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    for y in {place["y"] for place in places}:
        assert sum(place["w"] for place in places if place["y"] == y) == COLUMNS


def test_the_first_row_answers_at_a_glance():
    glance = [panel["title"] for panel in PANELS if panel["type"] == "stat"]
    assert len(glance) == 8
    assert [panel["title"] for panel in PANELS[:8]] == glance


def test_source_job_and_daemon_can_be_chosen():
    variables = {variable["name"]: variable for variable in DASHBOARD["templating"]["list"]}
    assert list(variables) == ["datasource", "job", "instance"]
    assert variables["datasource"]["type"] == "datasource"
    provisioned = yaml.safe_load((FOLDER / "provisioning/datasources/prometheus.yml").read_text(encoding="utf-8"))
    assert variables["datasource"]["current"]["value"] == provisioned["datasources"][0]["uid"]
    for name in ("job", "instance"):
        assert variables[name]["query"]["query"].endswith(f", {name})")
        assert variables[name]["includeAll"]


@pytest.mark.parametrize("panel", PANELS, ids=[panel["title"] for panel in PANELS])
class TestPanel:
    def test_it_asks_a_question(self, panel):
        assert "?" in panel["description"]

    def test_its_kind_and_its_unit_are_grafanas(self, panel):
        unit = panel["fieldConfig"]["defaults"]["unit"]
        assert panel["type"] in KINDS
        assert unit in UNITS or unit.startswith("suffix:")

    def test_its_data_come_from_the_chosen_source(self, panel):
        for place in (panel, *panel["targets"]):
            assert place["datasource"] == {"type": "prometheus", "uid": "${datasource}"}

    def test_every_query_has_a_legend_and_a_name_of_its_own(self, panel):
        targets = panel["targets"]
        assert targets
        assert all(target["legendFormat"] for target in targets)
        assert len({target["refId"] for target in targets}) == len(targets)

    def test_its_queries_ask_for_the_chosen_daemons(self, panel):
        for target in panel["targets"]:
            query = substituted(target["expr"], job="A-JOB", instance="AN-INSTANCE", span="1m")
            assert "A-JOB" in query
            assert "AN-INSTANCE" in query or "ALERTS" in query

    def test_its_queries_name_metrics_that_exist(self, panel):
        for target in panel["targets"]:
            assert metrics_of(target["expr"]) <= registered() | recorded()


def test_every_metric_is_shown_somewhere():
    shown = set().union(*(metrics_of(query) for query in queries()))
    hidden = {"process_virtual_memory_bytes", "process_max_fds", "process_open_fds"}
    assert registered() - shown == hidden


def test_the_rules_name_metrics_that_exist():
    groups = yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        assert metrics_of(rule["expr"]) <= registered() | recorded(), rule
