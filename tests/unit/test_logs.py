import io
import json
import logging
from collections import Counter
from typing import get_args

import pytest
import structlog
from kafka.errors import KafkaConnectionError

from streamdedup.daemon import logs
from streamdedup.daemon.logs import ClientRepeats
from streamdedup.settings import Service

CANARY = "canary-hunter2"


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(autouse=True)
def _restored_logging():
    """Leave the process's logging as it was found."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    clients = {name: logging.getLogger(name).level for name in logs.CLIENT_LEVELS}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in clients.items():
        logging.getLogger(name).setLevel(before)
    structlog.reset_defaults()


def configured(level, make_stream=io.StringIO):
    """Configure the log; return its stream."""
    stream = make_stream()
    logs.configure(level, stream)
    return stream


def events(stream):
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def test_an_event_is_a_json_line_with_its_fields():
    stream = configured("info")
    structlog.get_logger("streamdedup.loop").info("batch_committed", records=500, text="naïve\n\ud800")
    (event,) = events(stream)
    assert list(event)[:4] == ["timestamp", "level", "event", "logger"]
    assert event.pop("timestamp").endswith("Z")
    assert event == {
        "level": "info",
        "event": "batch_committed",
        "logger": "streamdedup.loop",
        "records": 500,
        "text": "naïve\n\ud800",
    }


def test_a_record_of_the_standard_library_comes_out_alike():
    stream = configured("info")
    logging.getLogger("streamdedup.daemon").info("Stepping past %d", 3, extra={"event": "skipped", "starts": 7})
    logging.getLogger("other").warning("Something %s", "happened")
    named, unnamed = events(stream)
    assert (named["event"], named["message"], named["starts"]) == ("skipped", "Stepping past 3", 7)
    assert (unnamed["event"], unnamed["level"]) == ("library_message", "warning")
    assert unnamed["message"] == "Something happened"


def test_people_on_a_terminal_get_a_line_and_colours():
    stream = configured("info", Terminal)
    structlog.get_logger("x").info("batch_committed", records=500)
    assert "batch_committed" in stream.getvalue()
    assert "\x1b[" in stream.getvalue()
    with pytest.raises(json.JSONDecodeError):
        events(stream)


def test_logs_go_to_standard_error_by_default(capsys):
    logs.configure("info")
    structlog.get_logger("x").info("started")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["event"] == "started"


@pytest.mark.parametrize("level", logs.LEVELS)
def test_nothing_below_the_level_is_logged(level):
    stream = configured(level)
    for name in logs.LEVELS:
        getattr(structlog.get_logger("x"), name)(name)
        logging.getLogger("y").log(logs.LEVELS[name], name)
    names = list(logs.LEVELS)
    expected = [name for name in names[names.index(level) :] for _ in range(2)]
    assert [event["level"] for event in events(stream)] == expected


def test_a_second_call_replaces_the_first():
    first, second = configured("info"), configured("info")
    structlog.get_logger("x").info("started")
    assert first.getvalue() == ""
    assert len(events(second)) == 1


@pytest.mark.parametrize("client", ["kafka", "kafka.net.connection", "redis", "redis.asyncio.connection"])
@pytest.mark.parametrize("make_stream", [io.StringIO, Terminal])
def test_the_clients_never_log_their_requests(client, make_stream):
    logging.getLogger(client).setLevel(logging.DEBUG)
    stream = configured("debug", make_stream)
    logger = logging.getLogger(client)
    logger.debug("SaslAuthenticateRequest(auth_bytes=%r)", CANARY)
    logger.info("Sending (key=%r)", CANARY)
    assert stream.getvalue() == ""
    logger.warning("Connection lost")
    assert "Connection lost" in stream.getvalue()


def test_a_client_that_repeats_itself_is_heard_once_a_minute_with_the_number_left_out():
    now = [1000.0]
    repeats = ClientRepeats(lambda: now[0])

    def said(text: str, *arguments: object, name: str = "kafka.net.manager", level: int = logging.ERROR):
        record = logging.LogRecord(name, level, __file__, 1, text, arguments, None)
        return getattr(record, "left_out", 0) if repeats.filter(record) else None

    assert said("Connection failed: %s", "refused") == 0
    assert [said("Connection failed: %s", "reset"), said("Connection failed: %s", "refused")] == [None, None]
    assert said("Connection failed: %s", "refused", level=logging.WARNING) == 0
    assert said("Connection failed: %s", "refused", name="kafka.net.connection") == 0
    assert said("backoff 0.31 secs") == 0
    assert said("backoff 12.5 secs") is None
    now[0] += 59.9
    assert said("Connection failed: %s", "refused") is None
    now[0] += 0.1
    assert said("Connection failed: %s", "refused") == 3
    assert said("Connection failed: %s", "refused") is None
    now[0] += 60
    assert said("Connection failed: %s", "refused") == 1


def test_a_delay_that_nobody_can_act_on_is_never_logged():
    stream = configured("debug")
    for name in ("fetch", "heartbeat\nloop"):
        logging.getLogger("kafka.net.selector").warning(
            f"Task <Task name={name}> ran for 0.143s (>0.100s threshold). It is blocking the event loop -- likely a "  # noqa: G004  as the client
            "tight sync loop inside a coroutine. Other pollers will time out."
        )
    assert events(stream) == []
    logging.getLogger("kafka.net.selector").warning("Task fetch left RUNNING after step; demoting to UNSCHEDULED")
    logging.getLogger("streamdedup.loop").warning("Task x is blocking the event loop")
    assert len(events(stream)) == 2


@pytest.mark.parametrize("error", [ConnectionResetError(104, "reset by peer"), KafkaConnectionError("disconnected")])
def test_a_lost_connection_of_a_client_is_one_line_without_a_traceback(error):
    stream = configured("info", Terminal)
    try:
        raise error
    except type(error):
        logging.getLogger("kafka.net.transport").exception("%s: Error receiving network data", "node 1")
    (line,) = stream.getvalue().splitlines()
    assert f"node 1: Error receiving network data [{error!r}]" in line


def test_a_mistake_inside_a_client_keeps_its_traceback():
    stream = configured("info")
    try:
        int("mistaken")
    except ValueError:
        logging.getLogger("kafka.net.selector").exception("IO loop crashed")
    (event,) = events(stream)
    assert "Traceback" in event["exception"]


def test_clients_are_silent_when_the_process_stops(monkeypatch):
    stream = configured("info")
    monkeypatch.setattr(ClientRepeats, "is_stopping", True)
    logging.getLogger("kafka.coordinator").error("LeaveGroup request failed")
    structlog.get_logger("streamdedup.run").info("stopped")
    assert [event["event"] for event in events(stream)] == ["stopped"]


def test_lines_of_other_loggers_are_never_left_out():
    stream = configured("info")
    for _ in range(3):
        logging.getLogger("kafka.cluster").error("away")
        logging.getLogger("kafkaesque").error("away")
        structlog.get_logger("streamdedup.loop").warning("waiting", what="Kafka")
    counts = Counter(event["logger"] for event in events(stream))
    assert counts == {"kafka.cluster": 1, "kafkaesque": 3, "streamdedup.loop": 3}


def test_different_lines_of_a_client_fill_no_memory():
    repeats = ClientRepeats()
    for number in range(5000):
        letters = "".join(chr(ord("a") + int(digit)) for digit in str(number))
        assert repeats.filter(logging.LogRecord("redis", logging.ERROR, __file__, 1, letters, (), None))
    assert len(repeats._lines) <= 1000


def test_the_clients_are_as_quiet_as_everything_else_when_that_is_quieter():
    stream = configured("error")
    logging.getLogger("kafka").warning("Connection lost")
    assert stream.getvalue() == ""


@pytest.mark.parametrize("make_stream", [io.StringIO, Terminal])
def test_a_traceback_shows_no_local_variables(make_stream):
    def fail(secret):
        raise RuntimeError(len(secret))

    stream = configured("debug", make_stream)
    log = structlog.get_logger("x")
    try:
        fail(CANARY)
    except RuntimeError:
        log.exception("failed")
    assert "RuntimeError: 14" in stream.getvalue()
    assert CANARY not in stream.getvalue()


def test_loggers_made_before_the_setup_follow_it():
    early = structlog.get_logger("early")
    stream = configured("warning")
    early.info("unheard")
    early.warning("heard")
    assert [event["event"] for event in events(stream)] == ["heard"]


def test_the_levels_are_those_that_can_be_set():
    assert get_args(Service.model_fields["log_level"].annotation) == tuple(logs.LEVELS)
