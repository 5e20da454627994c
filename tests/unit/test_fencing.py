"""The watch over a static member's place in the group, on a coordinator that only answers."""

from types import SimpleNamespace

import pytest
from kafka import errors as kafka_errors

from streamdedup.errors import BrokerMisconfigured
from streamdedup.kafka.fencing import FencingWatch
from streamdedup.kafka.options import KafkaOptions

OPTIONS = KafkaOptions(
    bootstrap_servers="h:1", group_id="g", topics=("t",), delivery="at-least-once", group_instance_id="a"
)


def consumer_that_hears(error):
    """A consumer whose heartbeat is answered by an error, or by none."""

    def handle(_response, _sent_at):
        if error is not None:
            raise error

    return SimpleNamespace(_coordinator=SimpleNamespace(_handle_heartbeat_response=handle))


def test_a_place_that_somebody_else_has_taken_is_noticed_with_the_next_heartbeat():
    consumer = consumer_that_hears(kafka_errors.FencedInstanceIdError(("g", "a")))
    watch = FencingWatch(consumer, OPTIONS)
    watch.look()
    with pytest.raises(kafka_errors.FencedInstanceIdError):  # the client, too, goes on as it would
        consumer._coordinator._handle_heartbeat_response("answer", 0.0)
    for _ in range(2):
        with pytest.raises(BrokerMisconfigured, match=r"kafka\.group_instance_id; give each its own"):
            watch.look()


@pytest.mark.parametrize("error", [None, kafka_errors.RebalanceInProgressError(), kafka_errors.UnknownMemberIdError()])
def test_any_other_answer_is_left_to_the_client(error):
    consumer = consumer_that_hears(error)
    watch = FencingWatch(consumer, OPTIONS)
    if error is None:
        consumer._coordinator._handle_heartbeat_response("answer", 0.0)
    else:
        with pytest.raises(type(error)):
            consumer._coordinator._handle_heartbeat_response("answer", 0.0)
    watch.look()
