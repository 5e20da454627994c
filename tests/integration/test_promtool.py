"""Prometheus' own tool accepts the configuration, the rules and every query, and the rules pass their unit tests."""

import re
import subprocess

import pytest
import yaml

from tests.dashboard import queries, substituted
from tests.prometheus import RULES, prometheus_tool

FOLDER = RULES.parents[1]
TESTS = yaml.safe_load((FOLDER / "tests.yml").read_text(encoding="utf-8"))
ALL = [rule for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"] for rule in group["rules"]]


@pytest.fixture(scope="module")
def promtool():
    """Run the tool on arguments; return its output when it is content, else fail."""
    program = prometheus_tool("promtool")

    def run(*arguments):
        result = subprocess.run([program, *arguments], capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
        return result.stdout

    return run


def test_configuration_and_rules_are_accepted_without_a_warning(promtool):
    output = promtool("check", "config", "--lint=all", "--lint-fatal", str(FOLDER / "prometheus.yml"))
    assert f"SUCCESS: {len(ALL)} rules found" in output


def test_the_unit_tests_of_the_rules_pass(promtool):
    assert "SUCCESS" in promtool("test", "rules", str(FOLDER / "tests.yml"))


@pytest.mark.parametrize("name", [rule["alert"] for rule in ALL if "alert" in rule])
def test_an_alert_is_tested_before_it_fires_and_after(name):
    cases = [case for test in TESTS["tests"] for case in test["alert_rule_test"] if case["alertname"] == name]
    assert any(not case["exp_alerts"] for case in cases)
    assert any(case["exp_alerts"] for case in cases)


def test_every_query_of_the_dashboard_and_of_the_page_parses(promtool, tmp_path):
    page = (RULES.parents[3] / "docs" / "metrics.md").read_text(encoding="utf-8")
    lines = [line for block in re.findall(r"```promql\n(.*?)```", page, re.DOTALL) for line in block.splitlines()]
    asked = [*(substituted(query, job=".*", instance=".*", span="1m") for query in queries()), *lines]
    rules = [{"record": f"query:{at}", "expr": query} for at, query in enumerate(asked)]
    path = tmp_path / "queries.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": rules}]}), encoding="utf-8")
    assert f"SUCCESS: {len(asked)} rules found" in promtool("check", "rules", str(path))
