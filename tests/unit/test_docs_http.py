"""docs/http.md says what the HTTP service does."""

import json
import re
from pathlib import Path

import msgspec
from prometheus_client import Counter, Histogram

from streamdedup.serve.access import PROBES
from streamdedup.serve.metrics import ServeMetrics
from streamdedup.serve.problems import PROBLEMS
from streamdedup.serve.schemas import MAX_BATCH_TEXTS, LookupRequest
from streamdedup.settings.api import Api
from streamdedup.settings.base import keys_of
from streamdedup.text.alignment import MAX_WORDS
from streamdedup.wire import MAX_DEPTH
from tests.served import Service
from tests.unit.test_docs import blocks, named, rows, section

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
PAGE_FILES = ROOT / "streamdedup" / "serve" / "static"


def test_the_endpoints_are_those_of_the_application():
    documented = {tuple(named(row[0])[0].partition("?")[0].split(" ")) for row in rows(section(PAGE, "Endpoints"))}
    made = Service()
    try:
        with made.client as client:
            described = client.get("/openapi.json").json()["paths"]
            others = {path for method, path in documented if path not in described}
            assert {client.get(path).status_code for path in others} == {200}
    finally:
        made.close()
    assert {(method.upper(), path) for path, item in described.items() for method in item} <= documented
    assert others == {*PROBES, "/", "/metrics", "/openapi.json"}
    assert f"up to {MAX_BATCH_TEXTS} texts" in PAGE


def test_the_problems_are_those_of_the_code():
    documented = {named(row[0])[0]: int(row[1]) for row in rows(section(PAGE, "Problems"))}
    assert documented == {name: status for name, (status, _) in PROBLEMS.items()}
    assert f"deeper than {MAX_DEPTH} levels" in PAGE


def test_the_metrics_are_those_of_the_code():
    documented = {named(row[0])[0]: (row[1], tuple(named(row[2])), *row[3:]) for row in rows(section(PAGE, "Metrics"))}
    declared, metrics = {}, ServeMetrics()
    for name, declaration in ServeMetrics.declared().items():
        metric = getattr(metrics, name)
        (family,) = metric.describe()
        kind = {Counter: "counter", Histogram: "histogram"}.get(type(metric), "gauge")
        ending = {"counter": "_total", "info": "_info"}.get(family.type, "")
        labels = ("version",) if family.type == "info" else metric._labelnames
        declared[f"{family.name}{ending}"] = (kind, labels, family.documentation, declaration.action)
    assert documented == declared


def test_every_key_that_is_named_exists():
    used = set(re.findall(r"`api\.([a-z_]+)", PAGE))
    assert len(used) > 5
    assert used <= set(keys_of(Api))


def test_the_limit_of_an_alignment_is_that_of_the_code():
    assert f"Of more than {MAX_WORDS:,} of these `aligned` is false" in " ".join(PAGE.split())
    assert f"more than {MAX_WORDS:,} words" in (PAGE_FILES / "differences.js").read_text(encoding="utf-8")


def test_the_request_of_the_example_is_one():
    (example,) = blocks(PAGE, "json")
    assert msgspec.json.decode(example, type=LookupRequest).id == "wire-902"
    body = re.search(r"-d '(\{.*\})'", PAGE)[1]
    assert json.loads(body).keys() <= set(LookupRequest.__struct_fields__)
