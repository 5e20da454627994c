"""Events that repeat per record: how many lines of the log they take, and that lines and counts add up."""

from collections import Counter
from types import SimpleNamespace

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from kafka.errors import NodeNotReadyError
from structlog.testing import capture_logs

from streamdedup.detection.model import DetectionResult
from streamdedup.errors import FatalError
from streamdedup.kafka import consumer as source_module
from streamdedup.kafka.consumer import KafkaSource
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch
from streamdedup.repeats import FIRST_LINES, PERIOD_S, REPEATS_EVENT, RepeatLimit
from streamdedup.wire import ErrorCode
from tests.support.clock import ManualClock
from tests.turns import Sent, World, batch_refused, broker_fails


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def limit(clock):
    return RepeatLimit(structlog.get_logger("test"), clock)


def counted(logs) -> Counter[tuple[str, str | None]]:
    """Return the number of events that the lines of a log represent, by name and code."""
    events: Counter[tuple[str, str | None]] = Counter()
    for line in logs:
        if line["event"] == REPEATS_EVENT:
            events[line["of"], line.get("code")] += line["count"]
        else:
            events[line["event"], line.get("code")] += 1
    return events


def bad_records(count: int) -> list[Sent]:
    return [Sent("x", "", number, "not_json") for number in range(count)]


# The limit


def test_the_first_lines_of_a_period_are_written_and_the_rest_is_one_count(limit, clock):
    with capture_logs() as logs:
        for number in range(3_966):
            limit.info("dead_letter", "not_json", position=f"articles:0:{number}")
        assert [line["position"] for line in logs] == [f"articles:0:{number}" for number in range(FIRST_LINES)]
        clock.now_s += PERIOD_S - 0.01
        limit.write_counts()
        assert len(logs) == FIRST_LINES
        clock.now_s += 0.01
        limit.write_counts()
        limit.write_counts()
    assert logs[FIRST_LINES:] == [
        {
            "event": REPEATS_EVENT,
            "log_level": "info",
            "of": "dead_letter",
            "code": "not_json",
            "count": 3_966 - FIRST_LINES,
            "position": "articles:0:3965",
        }
    ]


def test_of_warnings_one_is_written_in_each_period(limit, clock):
    with capture_logs() as logs:
        for _ in range(2):
            for number in range(3):
                limit.warning("document_hidden", position=number)
            clock.now_s += PERIOD_S
        limit.write_counts()
    line = {"log_level": "warning", "event": "document_hidden", "position": 0}
    count = {"log_level": "warning", "event": REPEATS_EVENT, "of": "document_hidden", "count": 2, "position": 2}
    assert logs == [line, count] * 2


def test_codes_and_levels_are_limited_apart(limit):
    with capture_logs() as logs:
        for _ in range(7):
            limit.info("dead_letter", "not_json")
            limit.info("dead_letter", "too_large")
            limit.error("internal_error", "internal_error")
        limit.close()
    events = [("dead_letter", "not_json"), ("dead_letter", "too_large"), ("internal_error", "internal_error")]
    assert counted(logs) == dict.fromkeys(events, 7)
    assert len(logs) == 3 * (FIRST_LINES + 1)
    levels = {(line.get("of", line["event"]), line["log_level"]) for line in logs}
    assert levels == {("dead_letter", "info"), ("internal_error", "error")}


def test_a_count_is_written_before_the_first_line_of_the_next_period(limit, clock):
    with capture_logs() as logs:
        for _ in range(FIRST_LINES + 2):
            limit.info("dead_letter", "not_json")
        clock.now_s += 3 * PERIOD_S
        limit.info("dead_letter", "not_json")
    assert [line["event"] for line in logs[FIRST_LINES:]] == [REPEATS_EVENT, "dead_letter"]
    assert logs[FIRST_LINES]["count"] == 2


def test_a_period_without_repeats_writes_no_count(limit, clock):
    with capture_logs() as logs:
        limit.info("dead_letter", "not_json")
        clock.now_s += PERIOD_S
        limit.write_counts()
        limit.close()
    assert [line["event"] for line in logs] == ["dead_letter"]


@given(st.lists(st.tuples(st.sampled_from(["a", "b", ""]), st.floats(0, 40)), max_size=200))
def test_lines_and_counts_add_up_to_the_events(steps):
    clock, expected = ManualClock(), Counter()
    limit = RepeatLimit(structlog.get_logger("test"), clock)
    with capture_logs() as logs:
        for code, pause_s in steps:
            limit.info("dead_letter", code)
            expected["dead_letter", code or None] += 1
            clock.now_s += pause_s
        limit.close()
    assert counted(logs) == expected


# The loop


def test_a_burst_of_bad_records_takes_six_lines():
    world = World(bad_records(3_966), batch_size=500, dead_letter_limit=None)
    with capture_logs() as logs:
        world.run().stop_all()
    letters = [line for line in logs if line.get("of", line["event"]) == "dead_letter"]
    assert len(letters) == FIRST_LINES + 1
    assert counted(letters) == {("dead_letter", ErrorCode.NOT_JSON): 3_966}
    assert len(world.dead_letters()) == 3_966


def test_the_count_is_written_when_the_minute_is_over_without_another_record(clock):
    world = World(bad_records(20), batch_size=20)
    (daemon,) = world.daemons
    daemon.loop._statistics._repeats._clock = clock
    with capture_logs() as logs:
        world.run()
        assert REPEATS_EVENT not in {line["event"] for line in logs}
        clock.now_s += PERIOD_S
        world.turn(daemon)
    assert [line["count"] for line in logs if line["event"] == REPEATS_EVENT] == [20 - FIRST_LINES]


def test_letters_of_a_batch_that_halts_the_daemon_are_not_logged_and_earlier_counts_are():
    world = World(bad_records(8), partitions=1, batch_size=8, dead_letter_limit=10)
    (daemon,) = world.daemons
    with capture_logs() as logs:
        world.turn(daemon)
        for sent in bad_records(8):
            world.produce(sent)
        for _ in range(3):
            world.turn(daemon)
    assert daemon.metric("halted") == 1
    assert counted(line for line in logs if "code" in line) == {("dead_letter", ErrorCode.NOT_JSON): 8}
    assert len(world.dead_letters()) == 8


@pytest.mark.parametrize(("effect", "fault"), [("announce", batch_refused), ("publish", broker_fails)])
def test_letters_of_a_batch_that_is_not_published_are_not_logged(effect, fault):
    world = World([*bad_records(3), Sent("a", "amber birch cedar")], partitions=1, batch_size=4)
    (daemon,) = world.daemons

    def fail(world, moment):
        if moment.effect == effect:
            fault(world, moment)

    world.plan = lambda _number: fail
    with capture_logs() as logs:
        for _ in range(3):
            world.turn(daemon)
        assert [line for line in logs if "code" in line] == []
        world.plan = lambda _number: None
        world.run().stop_all()
    assert counted(line for line in logs if "code" in line) == {("dead_letter", ErrorCode.NOT_JSON): 3}
    assert len(world.dead_letters()) == 3


class FailsToPrepare:
    """A detector that cannot prepare any document."""

    def __init__(self, options, store) -> None:
        self.store = store

    def prepare(self, documents):
        if documents:
            raise ZeroDivisionError
        return []

    def index(self, *_arguments):
        return DetectionResult()


def test_internal_errors_keep_level_and_position_and_are_limited_too():
    records = [Sent(f"d{number}", "amber birch", 0) for number in range(9)]
    world = World(records, partitions=1, batch_size=9, make_detector=FailsToPrepare)
    with capture_logs() as logs:
        world.run().stop_all()
    errors = [line for line in logs if line["log_level"] == "error"]
    assert [line["event"] for line in errors] == ["internal_error"] * FIRST_LINES + [REPEATS_EVENT]
    assert [line["position"] for line in errors] == [f"articles:0:{at}" for at in [*range(FIRST_LINES), 8]]
    assert all("ZeroDivisionError" in line["reason"] for line in errors)
    assert errors[-1]["count"] == 9 - FIRST_LINES


def test_the_loop_writes_its_counts_also_when_it_ends_by_an_error():
    world = World(bad_records(12), batch_size=12)
    (daemon,) = world.daemons

    def fails_for_good(_world, moment) -> None:
        if moment.effect == "poll":
            raise FatalError("made to fail")

    with capture_logs() as logs:
        world.run()
        world.plan = lambda _number: fails_for_good
        with pytest.raises(FatalError):
            daemon.loop.run()
    assert counted(line for line in logs if "code" in line) == {("dead_letter", ErrorCode.NOT_JSON): 12}


# The source


def never_polls() -> SimpleNamespace:
    """Return a consumer whose every poll fails in a way that passes."""

    def poll(**_options):
        raise NodeNotReadyError

    return SimpleNamespace(
        _cluster=SimpleNamespace(update_metadata=lambda _metadata: None),
        _subscription=SimpleNamespace(assignment={}),
        _coordinator=SimpleNamespace(_join_task=None),
        _fetcher=SimpleNamespace(
            _completed_fetches=[],
            _next_partition_records=None,
            fetched_records=None,
            _parse_fetched_data=None,
            close=lambda: None,
        ),
        paused=tuple,
        resume=lambda *_partitions: None,
        poll=poll,
        close=lambda **_options: None,
    )


def test_a_poll_that_is_repeated_again_and_again_takes_five_lines_and_a_count(monkeypatch, clock):
    monkeypatch.setattr(source_module, "RETRY_PAUSE_S", 0.0)
    for watch in ("SilenceWatch", "StaticMembershipWatch", "OtherIndexWatch"):
        monkeypatch.setattr(source_module, watch, lambda *_: SimpleNamespace(check=lambda: None))
    options = KafkaOptions(bootstrap_servers="localhost:9092", group_id="g", topics=("t",), transactional_id="x")
    consumer = never_polls()
    monkeypatch.setattr(source_module, "RepeatLimit", lambda logger: RepeatLimit(logger, clock))
    source = KafkaSource(consumer, options)
    with capture_logs() as logs:
        for _ in range(40):
            assert not source.poll(0.0)
        clock.now_s += PERIOD_S
        monkeypatch.setattr(source, "_fetch", lambda *_: Batch())
        monkeypatch.setattr(source, "_compare_new_partitions", lambda fetched: fetched)
        source.poll(0.0)
        assert counted(logs) == {("poll_retried", None): 40}
        assert len(logs) == FIRST_LINES + 1
        source.close()
    assert len(logs) == FIRST_LINES + 1
