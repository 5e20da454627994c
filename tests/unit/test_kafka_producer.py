"""The sinks and the feeder over a client without a broker: order of a transaction, records in flight."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from kafka.errors import KafkaConnectionError, KafkaError, MessageSizeTooLargeError
from kafka.structs import TopicPartition

from streamdedup.errors import BrokerUnavailable, GroupHasOtherIndex
from streamdedup.kafka import compat
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.producer import AtLeastOnceSink, Feeder, KafkaTransport, TransactionalSink
from streamdedup.kafka.protocols import Batch, Message, Record
from streamdedup.position import Position

OPTIONS = KafkaOptions(bootstrap_servers="h:1", group_id="g", topics=("t",), transactional_id="x")
BATCH = Batch((Record(Position("t", 0, 7), 0, None, b"v", ()),), membership="membership of the poll")


class Producer:
    """A client that stores a record as soon as its future is waited for, and records the calls."""

    def __init__(self, flush_error: KafkaError | None = None) -> None:
        self.calls: list[tuple[object, ...]] = []
        self.in_flight = 0
        self.flush_error = flush_error

    def __getattr__(self, name: str):
        return lambda *given, **_: self.calls.append((name, *given))

    def send(self, topic, **_):
        self.calls.append(("send", topic))
        self.in_flight += 1
        future = SimpleNamespace(is_done=False, succeeded=lambda: True)

        def get(timeout):
            self.in_flight -= not future.is_done
            future.is_done = True

        future.get = get
        return future

    def flush(self, **_):
        if self.flush_error is not None:
            raise self.flush_error

    def send_offsets_to_transaction(self, offsets, membership):
        self.calls.append(("offsets", {partition: at.offset for partition, at in offsets.items()}, membership))


@pytest.mark.parametrize("messages", [[], [Message("out", None, b"m")]])
def test_a_batch_is_committed_in_a_transaction_by_the_membership_of_its_poll_also_without_messages(messages):
    producer = Producer()
    TransactionalSink(producer, OPTIONS).publish(messages, BATCH)
    sent = [("send", message.topic) for message in messages]
    offsets = ("offsets", {TopicPartition("t", 0): 8}, BATCH.membership)
    assert producer.calls == [("begin_transaction",), *sent, offsets, ("commit_transaction",)]


@pytest.mark.parametrize("flush_error", [None, MessageSizeTooLargeError()], ids=["stored", "split and stored"])
@pytest.mark.parametrize("count", [0, 2])
def test_at_least_once_the_offsets_come_after_all_messages_are_stored(count, flush_error):
    producer, source = Producer(flush_error), Producer()
    source.commit = lambda batch: producer.calls.append(("commit", batch, producer.in_flight))
    AtLeastOnceSink(producer, OPTIONS, source).publish([Message("out", None, b"m")] * count, BATCH)
    assert producer.calls == [*[("send", "out")] * count, ("commit", BATCH, 0)]


def test_a_sink_closes_its_client():
    producer = Producer()
    TransactionalSink(producer, OPTIONS).close()
    assert producer.calls == [("close",)]


def test_no_client_is_opened_beside_other_members_with_another_index(monkeypatch):
    steps = []

    def refuse(_options):
        steps.append("refuse")
        raise GroupHasOtherIndex("another index")

    monkeypatch.setattr("streamdedup.kafka.producer.remove_outdated_membership", lambda _: steps.append("remove"))
    monkeypatch.setattr("streamdedup.kafka.producer.refuse_other_indexes", refuse)
    monkeypatch.setattr(compat, "build", lambda *_: pytest.fail("a client is built"))
    with pytest.raises(GroupHasOtherIndex):
        KafkaTransport(OPTIONS).open()
    assert steps == ["remove", "refuse"]


@pytest.fixture
def producer(monkeypatch):
    """The client of a feeder."""
    producer = Producer()
    monkeypatch.setattr(compat, "build", lambda *_: producer)
    return producer


def test_a_feeder_always_has_as_many_bytes_in_flight_as_its_limit_allows(producer, monkeypatch):
    monkeypatch.setattr("streamdedup.kafka.producer.MAX_IN_FLIGHT_BYTES", 10)
    feeder = Feeder(OPTIONS)
    in_flight = []
    for size_bytes in [4] * 6 + [11, 4, 4, 4]:
        feeder.send("t", b"key", b"x" * (size_bytes - 3))
        in_flight.append(producer.in_flight)
    assert in_flight == [1, 2, 2, 2, 2, 2, 1, 1, 2, 2]


def test_after_a_failed_delivery_a_feeder_sends_nothing_more_and_closes_its_client_once(producer):
    def fail(timeout):
        raise KafkaConnectionError

    producer.send = lambda _topic, **_: SimpleNamespace(is_done=True, succeeded=lambda: False, get=fail)
    feeder = Feeder(OPTIONS)
    feeder.send("t", None, b"v")
    for _ in range(2):
        with pytest.raises(BrokerUnavailable):
            feeder.send("t", None, b"v")
    for _ in range(2):
        feeder.close()
    assert producer.calls == [("close",)]


def test_an_error_in_its_block_closes_the_client_of_a_feeder_without_a_wait_for_its_records(producer):
    def send_and_fail(feeder):
        feeder.send("t", None, b"v")
        raise OSError("made to fail")

    with pytest.raises(OSError, match="made to fail"), Feeder(OPTIONS) as feeder:
        send_and_fail(feeder)
    assert (producer.calls, producer.in_flight) == ([("send", "t"), ("close",)], 1)


@pytest.mark.parametrize(
    ("delivery", "on_too_large", "is_idempotent"),
    [("exactly-once", None, True), ("exactly-once", print, False), ("at-least-once", None, False)],
)
def test_a_feeder_stores_no_record_twice_unless_records_may_be_left_out(
    monkeypatch, delivery, on_too_large, is_idempotent
):
    configs = []
    monkeypatch.setattr(compat, "build", lambda _client, config, _options: configs.append(config))
    Feeder(replace(OPTIONS, delivery=delivery, transactional_id=None), on_too_large=on_too_large)
    assert [config["enable_idempotence"] for config in configs] == [is_idempotent]
