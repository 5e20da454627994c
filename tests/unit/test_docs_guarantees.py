"""docs/guarantees.md names tests, settings, metrics, rules and targets that there are, and every promise has a test."""

import ast
import re
from pathlib import Path

import pytest
from test_docs import TARGETS, named, rows, section

from streamdedup.daemon.metrics import Metrics
from streamdedup.settings import Profile
from streamdedup.settings.base import keys_of
from streamdedup.settings.schema import SECTIONS as TABLES
from streamdedup.wire import ErrorCode

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "guarantees.md").read_text(encoding="utf-8")
RULES = (ROOT / "docs" / "delivery.md").read_text(encoding="utf-8")
TESTS = sorted(set(re.findall(r"tests/[\w/]+\.py", PAGE)))
PROMISES = ("Delivery", "Pairs", "Changes of a document", "Expiry and memory", "Input", "Servers")
#: Whole names of the settings of sections, names of those of a profile, and what belongs to Kafka's topics and clients.
SECTIONS = {f"{name}.{key}" for name, section_of in TABLES.items() for key in keys_of(section_of)}
PROFILE = frozenset(keys_of(Profile))
OF_KAFKA = {"isolation.level", "min.insync.replicas", "min.compaction.lag.ms", "offsets.retention.minutes"}


@pytest.mark.parametrize("path", TESTS)
def test_every_module_named_exists_and_has_tests(path):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    assert any(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in ast.walk(tree))


@pytest.mark.parametrize("title", PROMISES)
def test_every_promise_says_how_it_is_tested(title):
    table = [row for row in rows(section(PAGE, title)) if len(row) == 3]
    assert table
    for _promise, _settings, tested in table:
        ways = named(tested)
        assert ways
        for way in ways:
            assert way in TESTS or way.removeprefix("make ") in TARGETS


def test_settings_and_metrics_named_exist():
    metrics = {f"streamdedup_{name}" for name in vars(Metrics())} | {
        f"{family.name}{ending}" for family in Metrics().registry.collect() for ending in ("", "_total")
    }
    words = {re.split(r" = |=", name)[0] for name in named(PAGE)}
    dotted = {word for word in words if re.fullmatch(r"[a-z]+(\.[a-z_]+)+", word) and not word.endswith(".md")}
    plain = {word for word in words if re.fullmatch(r"[a-z]+(_[a-z]+)+", word)}
    assert dotted <= SECTIONS | OF_KAFKA
    assert plain <= PROFILE | metrics | {"cluster_id", *ErrorCode}
    assert len(dotted) > 8
    assert len(plain) > 6


def test_every_rule_is_one_of_the_rules_of_delivery():
    rules = {row[0]: row for row in rows(section(PAGE, "The rules behind it"))}
    assert rules.keys() <= set(re.findall(r"^\*\*\d+\. ([^*]+)\.\*\*", RULES, re.MULTILINE))
    for _, *proofs in rules.values():
        assert all(set(named(cell)) and set(named(cell)) <= set(TESTS) for cell in proofs)


def test_the_targets_named_exist():
    assert {name.removeprefix("make ") for name in named(PAGE) if name.startswith("make ")} <= TARGETS
