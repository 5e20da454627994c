"""Readiness while the loop's thread is busy: with computing, or with a request that Kafka does not answer."""

import pytest

from streamdedup.daemon.health import OVERDUE_S, Readiness
from streamdedup.daemon.metrics import Metrics
from tests.support.clock import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def metrics():
    return Metrics()


@pytest.fixture
def readiness(metrics, clock):
    readiness = Readiness(metrics, clock=clock)
    readiness.at_work()
    return readiness


def shown(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"streamdedup_{name}", labels)


def test_a_request_to_kafka_that_is_overdue_counts_as_a_wait_until_it_ends(readiness, clock, metrics):
    with readiness.asking_kafka():
        clock.now_s += OVERDUE_S
        assert (readiness.problem(), shown(metrics, "ready"), shown(metrics, "waiting", what="kafka")) == (None, 1, 0)
        clock.now_s += 0.1
        assert readiness.problem() == "waiting for Kafka"
        assert (shown(metrics, "ready"), shown(metrics, "waiting", what="kafka")) == (0, 1)
    assert (readiness.problem(), shown(metrics, "ready"), shown(metrics, "waiting", what="kafka")) == (None, 1, 0)


def test_a_request_that_fails_has_ended_too(readiness, clock):
    with pytest.raises(OSError, match="away"), readiness.asking_kafka():
        raise OSError("away")
    clock.now_s += 10 * OVERDUE_S
    assert readiness.problem() is None


def test_computing_is_no_wait_however_long_it_takes(readiness, clock):
    clock.now_s += 3_600
    assert readiness.problem() is None


def test_a_wait_set_by_the_loop_is_reported_during_any_request_to_kafka(readiness, clock):
    readiness.wait_for("the store")
    with readiness.asking_kafka():
        clock.now_s += 10 * OVERDUE_S
        assert readiness.problem() == "waiting for the store"


def test_a_topic_that_does_not_exist_is_reported_beside_a_wait(metrics, clock):
    missing: set[str] = set()
    readiness = Readiness(metrics, clock=clock, missing_topics=lambda: frozenset(missing))
    metrics.observe_topics(["a", "b", "c"], lambda: frozenset(missing))
    readiness.at_work()
    assert (readiness.problem(), shown(metrics, "ready"), shown(metrics, "topic_missing", topic="b")) == (None, 1, 0)
    missing |= {"c", "b"}
    assert (readiness.problem(), shown(metrics, "ready")) == ("no such topic: b, c", 0)
    assert [shown(metrics, "topic_missing", topic=topic) for topic in "abc"] == [0, 1, 1]
    readiness.wait_for("Kafka")
    assert readiness.problem() == "waiting for Kafka; no such topic: b, c"
    readiness.halted = "too many"
    assert readiness.problem() == "halted: too many"


def test_a_halted_daemon_reports_it_and_waits_for_nothing(readiness, metrics):
    readiness.wait_for("Kafka")
    readiness.halted = "too many"
    assert (readiness.problem(), readiness.waiting_for()) == ("halted: too many", None)
    assert (shown(metrics, "ready"), shown(metrics, "waiting", what="kafka")) == (0, 0)
