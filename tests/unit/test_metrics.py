"""Metrics: their names and units, that each is used, and that a batch is counted right."""

import ast
import collections
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, Info
from prometheus_client.exposition import generate_latest
from structlog.testing import capture_logs

import streamdedup
from streamdedup import clock
from streamdedup.daemon import statistics as statistics_module
from streamdedup.daemon.batch import BatchResult, DecodedBatch, FailedRecord
from streamdedup.daemon.metrics import REBUILD_KINDS, Metrics
from streamdedup.daemon.statistics import Statistics
from streamdedup.detection.limits import ReachedLimits
from streamdedup.detection.model import Detection, DetectionResult, Skip
from streamdedup.detection.suppression import SuppressionRule
from streamdedup.errors import DecodeError, StoreUnavailable
from streamdedup.index.values import NEARLY_FULL, StoreStats
from streamdedup.kafka.protocols import Batch, Record, SourceStats
from streamdedup.metrics import BatchHistogram
from streamdedup.position import Partition, Position
from streamdedup.wire import Document, Match
from streamdedup.wire.dead_letters import Failure, Stage
from tests import alerts

#: Endings that are no base unit, or belong to Prometheus itself.
FORBIDDEN = re.compile(r"_(ms|millis|milliseconds|us|minutes|hours|days|kb|mb|gb|percent|count|sum|bucket|created)$")


def declared_of(metrics: Metrics) -> dict[str, object]:
    return {name: metric for name, metric in vars(metrics).items() if hasattr(metric, "describe")}


DECLARED = declared_of(Metrics())


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"streamdedup_{name}", labels)


@pytest.mark.parametrize(("name", "metric"), DECLARED.items(), ids=DECLARED)
def test_a_metric_is_named_by_the_conventions_and_has_a_help_text(name, metric):
    (family,) = metric.describe()
    assert re.fullmatch(r"streamdedup_[a-z]+(_[a-z]+)*", family.name)
    assert not FORBIDDEN.search(family.name)
    assert family.name.removeprefix("streamdedup_") == name
    assert family.documentation.endswith(".")
    assert isinstance(metric, (Counter, Gauge, Histogram, BatchHistogram, Info))
    for label in [metric.label_name] if isinstance(metric, BatchHistogram) else metric._labelnames:
        assert label in {"topic", "kind", "profile", "reason", "code", "stage", "partition", "what", "rule"}


def test_what_can_be_foreseen_is_there_before_the_first_record_and_has_no_creation_time(metrics):
    metrics.begin_at_zero({"a": "news", "b": "news"})
    for name, metric in declared_of(metrics).items():
        if isinstance(metric, (Counter, Histogram, BatchHistogram)):
            (family,) = metric.collect()
            assert {sample.value for sample in family.samples} == {0}, name
    assert value(metrics, "records_total", topic="b", kind="upsert") == 0
    assert [value(metrics, "index_rebuilds_total", profile="news", kind=kind) for kind in REBUILD_KINDS] == [0, 0, 0]
    assert value(metrics, "skipped_total", profile="news", reason="redelivered") == 0
    assert "_created" not in generate_latest(metrics.registry).decode()


def test_the_series_have_the_order_of_the_settings(metrics):
    profiles = [f"profile{at}" for at in range(20)]
    metrics.begin_at_zero(dict(zip("abcdefghijklmnopqrst", profiles, strict=True)))
    (family,) = metrics.pairs.collect()
    assert [sample.labels["profile"] for sample in family.samples] == profiles


def test_every_metric_is_touched_somewhere():
    used = set()
    for path in Path(streamdedup.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            # Reading it counts: a declaration stores.
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                used.add(node.attr)
    assert DECLARED.keys() - used == set()


# Counts


def a_record(offset: int, timestamp_ms: int) -> Record:
    return Record(Position("articles", 0, offset), timestamp_ms, None, b"")


def a_document(offset: int) -> Document:
    return Document(f"d{offset}", "", Position("articles", 0, offset), 0)


def a_match(number: int) -> Match:
    return alerts.a_match(f"m{number}", Position("articles", 0, number), 1.0)


def a_result(batch: Batch, kinds=(), failures=(), **detected: DetectionResult) -> BatchResult:
    return BatchResult(DecodedBatch(batch, [], [], collections.Counter(kinds), 0), detected, failures)


def a_committed_batch() -> tuple[BatchResult, list[FailedRecord]]:
    batch = Batch(tuple(a_record(offset, clock.now_ms() - 2_000) for offset in range(7)))
    detected = DetectionResult(
        detections=(
            Detection(a_document(0), b"", (a_match(1), a_match(2)), "c"),
            Detection(a_document(3), b"", (a_match(4),), "c"),
        ),
        skipped=((a_document(1), Skip.EMPTY), (a_document(2), Skip.EMPTY), (a_document(4), Skip.REDELIVERED)),
        indexed_count=3,
        silent_count=1,
        deleted_unknown_count=2,
        candidates_count=11,
        dropped_candidates_count=2,
        accepted_count=3,
        rejected_count=6,
        full_buckets_count=5,
        hidden=tuple(a_document(offset) for offset in (1, 2, 4)),
        suppressed=collections.Counter({SuppressionRule.IGNORE_SAME_SOURCE: 4}),
    )
    kinds = [("articles", "upsert")] * 6 + [("articles", "invalid")]
    failed = FailedRecord(batch.records[6], Failure.of(DecodeError("not_json", "not JSON"), Stage.DECODE))
    silent = failed._replace(record=batch.records[5])
    return a_result(batch, kinds, [silent, failed, silent], news=detected), [failed]


def test_a_committed_batch_is_counted_once_under_the_right_labels(metrics, monkeypatch):
    result, dead_letters = a_committed_batch()
    monkeypatch.setattr(clock, "now_ms", lambda: 5_000)
    Statistics(metrics, {}).count_batch(result, dead_letters)
    expected = [
        ("records_total", {"topic": "articles", "kind": "upsert"}, 6),
        ("records_total", {"topic": "articles", "kind": "invalid"}, 1),
        ("skipped_total", {"profile": "news", "reason": "empty"}, 2),
        ("skipped_total", {"profile": "news", "reason": "redelivered"}, 1),
        ("dead_letters_total", {"topic": "articles", "code": "not_json"}, 1),
        ("dead_letters_silent_total", {}, 2),
        ("documents_indexed_total", {"profile": "news"}, 3),
        ("documents_silent_total", {"profile": "news"}, 1),
        ("documents_deleted_unknown_total", {"profile": "news"}, 2),
        ("last_commit_timestamp_seconds", {}, 5.0),
        ("alerts_total", {"profile": "news"}, 2),
        ("pairs_total", {"profile": "news"}, 3),
        ("candidates_total", {"profile": "news"}, 11),
        ("candidates_dropped_total", {"profile": "news"}, 2),
        ("candidates_verified_total", {"profile": "news"}, 3),
        ("candidates_rejected_total", {"profile": "news"}, 6),
        ("full_buckets_total", {"profile": "news"}, 5),
        ("documents_hidden_total", {"profile": "news"}, 3),
        ("suppressed_total", {"profile": "news", "rule": "ignore_same_source"}, 4),
        ("batch_records_count", {}, 1),
        ("batch_records_sum", {}, 7),
        ("latency_seconds_count", {"topic": "articles"}, 7),
    ]
    assert [(name, labels, value(metrics, name, **labels)) for name, labels, _ in expected] == expected


SECONDS = st.one_of(st.sampled_from([0.0, 0.05, 0.1, 2.5]), st.floats(0, 1e6))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(SECONDS, max_size=5)), max_size=5))
def test_many_values_at_once_are_counted_as_the_client_counts_them_one_by_one(batches):
    bounds, registries = (0.05, 0.1, 2.5), [CollectorRegistry(), CollectorRegistry()]
    own = BatchHistogram("age_seconds", "Age.", ("topic",), buckets=bounds, registry=registries[0])
    theirs = Histogram("age_seconds", "Age.", ("topic",), buckets=bounds, registry=registries[1])
    for label, values in batches:
        own.observe(label, np.array(values))
        for seconds in [None, *values]:
            child = theirs.labels(label)
            if seconds is not None:
                child.observe(seconds)
    found, expected = (
        {(sample.name, *sample.labels.values()): sample.value for family in one.collect() for sample in family.samples}
        for one in registries
    )
    assert found == pytest.approx(expected)
    assert generate_latest(registries[0]).splitlines()[:2] == generate_latest(registries[1]).splitlines()[:2]


def test_a_stage_is_timed_only_when_it_succeeds(metrics):
    statistics = Statistics(metrics, {})
    with statistics.timed("index"):
        pass
    with pytest.raises(StoreUnavailable), statistics.timed("index"):
        raise StoreUnavailable
    assert value(metrics, "batch_seconds_count", stage="index") == 1


class Stats:
    """A source and a store that have nothing but statistics."""

    def __init__(self, *answers: object) -> None:
        self._answers = list(answers)
        self.asked_count = 0

    def assigned(self) -> frozenset[Partition]:
        return frozenset([Partition("a", 1)])

    def end(self, _partition: Partition) -> int:
        return 10

    def generation(self) -> int:
        return 1

    def count_documents(self) -> int:
        return 42

    def stats(self) -> object:
        self.asked_count += 1
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer


EMPTY_STORE = Stats(StoreStats(0, None))


def test_rebalances_are_counted_on_over_new_clients(metrics):
    statistics = Statistics(metrics, {"news": EMPTY_STORE})
    statistics.observe(Stats(SourceStats(2)), Batch())
    statistics.clients_closed()
    assert value(metrics, "partitions_assigned") == 0
    for _ in range(2):
        statistics.observe(Stats(SourceStats(1)), Batch())
    assert value(metrics, "rebalances_total") == 3


def test_the_memory_of_the_store_is_looked_at_now_and_then(metrics):
    store = Stats(StoreStats(100, 1000))
    statistics = Statistics(metrics, {"news": store})
    for _ in range(50):
        statistics.observe(Stats(SourceStats()), Batch())
    assert store.asked_count == 1
    assert (value(metrics, "store_used_bytes"), value(metrics, "store_limit_bytes")) == (100, 1000)
    assert value(metrics, "index_documents", profile="news") == 42


def test_the_limit_of_a_store_without_one_is_0(metrics):
    Statistics(metrics, {"news": Stats(StoreStats(100, None))}).observe(Stats(SourceStats()), Batch())
    assert (value(metrics, "store_used_bytes"), value(metrics, "store_limit_bytes")) == (100, 0)


def test_a_store_that_does_not_answer_is_noticed_although_there_is_nothing_to_do(metrics, monkeypatch):
    monkeypatch.setattr(statistics_module, "_STATS_S", 0.0)
    store = Stats(StoreStats(100, None), StoreUnavailable("away"))
    statistics = Statistics(metrics, {"news": store})
    statistics.observe(Stats(SourceStats()), Batch())
    with pytest.raises(StoreUnavailable):
        statistics.observe(Stats(SourceStats()), Batch())


def test_the_limits_that_documents_reached_are_logged_at_the_end_with_the_cure(metrics):
    statistics = Statistics(metrics, {})
    at = Position("articles", 0, 1)
    reached = DetectionResult(full_buckets_count=5, full_bucket_positions=(at,), dropped_candidates_count=2)
    calm = DetectionResult(indexed_count=1)
    with capture_logs() as logged:
        for _ in range(2):
            statistics.count_batch(a_result(Batch(()), news=reached, pages=calm), [])
        assert {line["log_level"] for line in logged} <= {"debug"}
        statistics.close()
    (line,) = [line for line in logged if line["log_level"] != "debug"]
    assert line["event"] == "limits_reached"
    assert (line["profile"], line["in_full_buckets"], line["full_buckets"]) == ("news", 2, 10)
    assert (line["over_candidates"], line["dropped_candidates"]) == (0, 4)
    assert "bucket_cap" in line["reason"]
    assert "stop-shingles" in line["reason"]
    assert ReachedLimits(over_candidates=1).sentence()


def test_of_hidden_documents_one_a_minute_is_logged_by_its_id_and_position(metrics):
    statistics = Statistics(metrics, {})
    with capture_logs() as logged:
        for _ in range(2):
            statistics.count_batch(*a_committed_batch())
        first = [line for line in logged if line["event"] == "document_hidden"]
        statistics.close()
    assert first == [
        {"event": "document_hidden", "log_level": "warning", "profile": "news", "id": "d1", "position": "articles:0:1"}
    ]
    (rest,) = [line for line in logged if line.get("of") == "document_hidden"]
    assert (rest["log_level"], rest["count"], rest["position"]) == ("warning", 5, "articles:0:4")


def test_nearly_full_memory_is_logged_once_until_there_was_room_again(metrics, monkeypatch):
    monkeypatch.setattr(statistics_module, "_STATS_S", 0.0)
    used = [84, 86, 100, 81, 87, 79, 88]
    statistics = Statistics(metrics, {"news": Stats(*(StoreStats(used_bytes, 100) for used_bytes in used))})
    with capture_logs() as logs:
        for _ in used:
            statistics.observe(Stats(SourceStats(1)), Batch())
    said = [(line["used_bytes"], line["limit_bytes"]) for line in logs if line["event"] == "store_nearly_full"]
    assert said == [(86, 100), (88, 100)]


def test_without_a_limit_no_memory_is_full(metrics):
    with capture_logs() as logs:
        Statistics(metrics, {"news": Stats(StoreStats(10**12, None))}).observe(Stats(SourceStats(1)), Batch())
    assert [line["event"] for line in logs] == []


def test_the_log_and_the_alert_rule_have_the_same_limit_of_nearly_full():
    rules = (Path(__file__).parents[2] / "deploy/prometheus/rules/streamdedup.yml").read_text(encoding="utf-8")
    (limit,) = re.findall(r"streamdedup_store_limit_bytes > 0\)\) > (\S+)", rules)
    assert float(limit) == NEARLY_FULL
