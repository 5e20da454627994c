"""Errors of the Kafka client: which may pass, which are final; and calls with a time limit."""

from concurrent.futures import Future

import pytest
from kafka.errors import (
    GroupAuthorizationFailedError,
    InvalidTimestampError,
    KafkaConnectionError,
    KafkaError,
    NotCoordinatorError,
    TopicAuthorizationFailedError,
)

from streamdedup.errors import BrokerMisconfigured
from streamdedup.kafka import errors
from streamdedup.kafka.errors import call_within, is_final, is_retriable, translated


class _EndsAfterTheWait(Future):
    """A call that ends between the end of the wait and the next look at it."""

    def result(self, timeout=None):
        answer = super().result()
        if timeout is not None:
            raise TimeoutError
        return answer


def test_a_call_that_ends_just_after_the_time_limit_keeps_its_result(monkeypatch):
    monkeypatch.setattr(errors, "Future", _EndsAfterTheWait)
    assert call_within(5.0, "answer", lambda: 42) == 42


def test_a_timeout_of_the_call_itself_is_its_error():
    def fail():
        raise TimeoutError("of the call")

    with pytest.raises(TimeoutError, match="of the call"):
        call_within(5.0, "fail", fail)


@pytest.mark.parametrize(
    ("error", "retriable"),
    [(NotCoordinatorError("g"), True), (TopicAuthorizationFailedError("t"), False), (TimeoutError(), False)],
)
def test_a_call_is_repeated_only_after_an_error_of_kafka_that_may_pass(error, retriable):
    assert is_retriable(error) is retriable


@pytest.mark.parametrize(
    ("answer", "final"),
    [(b"\x15\x03\x01\x00", True), (b"\x15\x03\x03\x00", True), (b"HTTP", False), (b"\x00\x15\x03\x01", False)],
    ids=["TLS 1.0", "TLS 1.2", "HTTP", "a frame"],
)
def test_a_listener_that_answers_with_an_alert_of_tls_will_always_do(answer, final):
    """The client takes the first four bytes of an answer for its length."""
    assert is_final(KafkaConnectionError(f"Invalid frame length: {int.from_bytes(answer)}")) is final
    assert is_final(KafkaError("Invalid frame length: none")) is False


@pytest.mark.parametrize(
    ("error", "doing", "parts"),
    [
        (TopicAuthorizationFailedError("articles"), "send records", ["WRITE on the topics that it sends to"]),
        (GroupAuthorizationFailedError("g.dlq-replay"), "read offsets", ["READ", "<group_id>.dlq-replay"]),
        # A dead letter keeps a record time that may be years old, and is never later than the clock of the daemon.
        (InvalidTimestampError(), "publish", ["timestamp.before.max.ms", "timestamp.after.max.ms"]),
    ],
)
def test_an_error_for_the_operator_names_the_cure_of_each_command_that_meets_it(error, doing, parts):
    told = translated(error, doing)
    assert isinstance(told, BrokerMisconfigured)
    assert [part for part in parts if part not in str(told)] == []
