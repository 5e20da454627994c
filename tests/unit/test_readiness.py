"""Readiness while the loop's thread is busy: with computing, or with a request that Kafka does not answer."""

import pytest
from structlog.testing import capture_logs

from streamdedup.daemon.metrics import Awaited, Metrics
from streamdedup.daemon.readiness import JOINING_S, OVERDUE_S, Readiness
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
    readiness.end_wait()
    return readiness


def shown(metrics, name, **labels):
    return metrics.registry.get_sample_value(f"streamdedup_{name}", labels)


def test_after_a_turn_without_an_error_the_delays_begin_with_the_shortest(readiness):
    assert max(readiness.record_failure(Awaited.KAFKA, OSError()) for _ in range(10)) > 0.1
    readiness.forget_failures()
    assert readiness.record_failure(Awaited.KAFKA, OSError()) <= 0.1


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
    readiness.set_awaited(Awaited.STORE)
    with readiness.asking_kafka():
        clock.now_s += 10 * OVERDUE_S
        assert readiness.problem() == "waiting for the store"


def test_an_overdue_request_is_logged_once_when_readiness_turns(readiness, clock):
    with capture_logs() as logged:
        for _ in range(2):
            with readiness.asking_kafka():
                clock.now_s += OVERDUE_S
                readiness.problem()
                assert logged == []
                clock.now_s += 0.1
                for _ in range(3):
                    readiness.problem()
                (line,) = logged
                assert (line["event"], line["what"], line["log_level"]) == ("waiting", "Kafka", "warning")
                assert "no answer for 5 s" in line["reason"]
            logged.clear()
        readiness.record_failure(Awaited.KAFKA, OSError("cannot commit"))
    assert [line["reason"] for line in logged] == ["cannot commit"]


@pytest.mark.parametrize("awaited", [None, Awaited.KAFKA])
def test_a_wait_for_partitions_is_explained_once_after_five_seconds(readiness, clock, awaited):
    readiness.awaited = awaited
    clock.now_s += 10 * JOINING_S * (awaited is not None)
    began_at_s = clock.now_s
    with capture_logs() as logged:
        for _ in range(20):
            readiness.record_joining(is_member=False)
            is_long = clock.now_s - began_at_s >= JOINING_S
            assert readiness.awaited == (Awaited.PARTITIONS if is_long or awaited else None)
            assert len(logged) == is_long
            clock.now_s += 0.5
        (line,) = logged
        assert (line["event"], line["what"], line["log_level"]) == ("waiting", "partitions", "info")
        assert "kafka.session_timeout" in line["reason"]
        readiness.end_wait()
        readiness.record_joining(is_member=False)
    assert len(logged) == 1


def test_a_wait_for_partitions_that_was_logged_with_its_reason_is_not_explained(readiness, clock):
    with capture_logs() as logged:
        readiness.record_failure(Awaited.PARTITIONS, OSError("joined anew"))
        clock.now_s += 10 * JOINING_S
        readiness.record_joining(is_member=False)
    assert [line["reason"] for line in logged] == ["joined anew"]


def test_a_topic_that_does_not_exist_is_reported_beside_a_wait(metrics, clock):
    missing: set[str] = set()
    readiness = Readiness(metrics, clock=clock, missing_topics=lambda: frozenset(missing))
    metrics.connect_missing_topics(["a", "b", "c"], lambda: frozenset(missing))
    readiness.end_wait()
    assert (readiness.problem(), shown(metrics, "ready"), shown(metrics, "topic_missing", topic="b")) == (None, 1, 0)
    missing |= {"c", "b"}
    assert (readiness.problem(), shown(metrics, "ready")) == ("no such topic: b, c", 0)
    assert [shown(metrics, "topic_missing", topic=topic) for topic in "abc"] == [0, 1, 1]
    readiness.set_awaited(Awaited.KAFKA)
    assert readiness.problem() == "waiting for Kafka; no such topic: b, c"
    readiness.halted = "too many"
    assert readiness.problem() == "halted: too many"


def test_a_halted_daemon_reports_it_and_waits_for_nothing(readiness, metrics):
    readiness.set_awaited(Awaited.KAFKA)
    readiness.halted = "too many"
    assert (readiness.problem(), readiness.waiting_for()) == ("halted: too many", None)
    assert (shown(metrics, "ready"), shown(metrics, "waiting", what="kafka")) == (0, 0)
