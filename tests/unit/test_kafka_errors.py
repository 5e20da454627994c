"""Calls of the Kafka client with a time limit."""

from concurrent.futures import Future

import pytest

from streamdedup.kafka import errors
from streamdedup.kafka.errors import call_within


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
