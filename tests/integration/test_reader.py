"""Readers without a group, and the feeder, against a real Kafka; the demo's broker where it alone shows the effect."""

import contextlib
import time
from dataclasses import replace

import pytest

from streamdedup.embedded.mock_broker import MOCK_API_VERSION, MockBroker
from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable, DecodeError
from streamdedup.kafka import producer
from streamdedup.kafka.producer import Feeder
from streamdedup.kafka.reader import RecordFetcher, TopicReader
from streamdedup.position import Position
from tests.servers import (
    DEADLINE_S,
    NotUtf8,
    admin_client,
    kafka_options,
    produce,
    read_topic,
    wait_until,
)


@pytest.fixture
def mock():
    """A broker of the demo's kind, with one topic of one partition."""
    with MockBroker({"small": 1}) as broker:
        fixed = {"delivery": "at-least-once", "transactional_id": None, "api_version": MOCK_API_VERSION}
        yield broker, kafka_options(broker.bootstrap_servers, "small", compression=None, **fixed)


def read(reader, count):
    """Return ``count`` records."""
    records = []
    end = time.monotonic() + DEADLINE_S
    while len(records) < count and time.monotonic() < end:
        records += reader.poll(0.2).records
    return records


def test_a_reader_reads_added_partitions_from_their_beginnings_and_the_others_on(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, [b"old"])
    with TopicReader(kafka_options(kafka, topic)) as reader:
        reader.start_at(reader.ends)
        with contextlib.closing(admin_client(kafka)) as admin:
            admin.create_partitions({topic: 3})
        for partition in range(3):
            produce(kafka, topic, [b"%d" % partition], partition=partition)
        values = []

        def all_have_come():
            reader.add_new_partitions()
            values.extend(record.value for record in reader.poll(0.2).records)
            return len(values) >= 3

        wait_until(all_have_come)
    assert sorted(values) == [b"0", b"1", b"2"]


def test_a_reader_steps_past_unreadable_records(kafka, new_topic):
    topic = new_topic()
    produce(kafka, topic, [b"first"])
    produce(kafka, topic, [b"bad"], headers=[(NotUtf8("name"), b"")])
    produce(kafka, topic, [b"last"])
    values, places = [], []
    with TopicReader(kafka_options(kafka, topic)) as reader:

        def last_has_come():
            batch = reader.poll(0.2)
            values.extend(record.value for record in batch.records)
            places.extend(unreadable.position.offset for unreadable in batch.unreadable)
            return b"last" in values

        wait_until(last_has_come)
    with RecordFetcher(kafka_options(kafka, topic)) as fetcher:
        with pytest.raises(DecodeError, match=f"cannot read {topic}:0:1"):
            fetcher.fetch(Position(topic, 0, 1))
        assert fetcher.fetch(Position(topic, 0, 2)).value == b"last"
    assert values == [b"first", b"last"]
    assert places == [1]


def test_a_topic_that_does_not_exist_is_named(kafka):
    with pytest.raises(BrokerMisconfigured, match="no such topic: nowhere"):
        TopicReader(kafka_options(kafka, "nowhere"))


@pytest.mark.parametrize("kind", [TopicReader, RecordFetcher, Feeder])
def test_without_a_broker_nothing_can_be_made(kind):
    with pytest.raises(BrokerUnavailable, match=r"127\.0\.0\.1:9"):
        kind(kafka_options("127.0.0.1:9", "articles", connect_timeout_s=0.5))


def test_a_feeder_delivers_everything_once_and_in_order(kafka, new_topic, monkeypatch):
    monkeypatch.setattr(producer, "MAX_IN_FLIGHT_RECORDS", 50)
    topic = new_topic(partitions=3)
    with TopicReader(kafka_options(kafka, topic)) as reader:
        with Feeder(kafka_options(kafka, topic)) as feeder:
            for number in range(2000):
                feeder.send(topic, b"%d" % (number % 7), b"%d" % number, timestamp_ms=1_700_000_000_000 + number)
        records = read(reader, 2000)
    assert feeder.delivered_count == 2000
    by_key = {}
    for record in records:
        assert record.timestamp_ms == 1_700_000_000_000 + int(record.value)
        by_key.setdefault(record.key, []).append(int(record.value))
    assert by_key == {b"%d" % key: list(range(key, 2000, 7)) for key in range(7)}


def test_a_feeder_limits_unacknowledged_records(mock, monkeypatch):
    monkeypatch.setattr(producer, "MAX_IN_FLIGHT_BYTES", 1000)
    _, options = mock
    with Feeder(options) as feeder:
        for number in range(100):
            feeder.send("small", None, b"x" * 300)
            assert number + 1 - feeder.delivered_count <= 4


def test_a_feeder_names_a_missing_topic(kafka):
    options = kafka_options(kafka, "nowhere", produce_timeout_s=1.0)
    with pytest.raises(BrokerMisconfigured, match="no such topic: nowhere"), Feeder(options) as feeder:
        feeder.send("nowhere", b"key", b"value")


def test_records_of_a_batch_that_the_broker_refuses_as_too_large_are_all_stored(kafka, new_topic):
    """The client splits such a batch; its ``flush`` raises although the parts are stored."""
    topic = new_topic(max_message_bytes="2000")
    with Feeder(kafka_options(kafka, topic, compression=None)) as feeder:
        for number in range(40):
            feeder.send(topic, None, b"%d" % number + b"x" * 400)
    assert feeder.delivered_count == 40
    assert sorted(int(record.value.rstrip(b"x")) for record in read_topic(kafka, topic)) == list(range(40))


def test_a_feeder_reports_a_record_that_is_too_large_for_the_topic(kafka, new_topic):
    topic = new_topic(max_message_bytes="1000")
    feeder = Feeder(kafka_options(kafka, topic, compression=None))
    feeder.send(topic, b"key", b"x" * 5000)
    with pytest.raises(BrokerMisconfigured, match="a record is larger than the topic takes"):
        feeder.close()


@pytest.mark.parametrize(
    ("delivery", "limits"),
    [
        pytest.param("exactly-once", {}, marks=pytest.mark.short),
        ("at-least-once", {}),
        pytest.param("exactly-once", {"max_request_bytes": 1_500}, marks=pytest.mark.short),
    ],
)
def test_a_feeder_goes_on_after_records_that_are_too_large_and_names_them(kafka, new_topic, delivery, limits):
    topic, refused = new_topic(partitions=2, max_message_bytes="1000"), []
    options = kafka_options(kafka, topic, compression=None, delivery=delivery, **limits)
    too_large = {7, 8, 50, 300, 399}
    with Feeder(options, on_too_large=lambda name, reason: refused.append((int(name), reason))) as feeder:
        for number in range(400):
            value = b"x" * (5_000 if number in too_large else 20)
            feeder.send(topic, b"%d" % number, value, name=str(number))
    assert {number for number, _ in refused} == too_large
    assert len(refused) == len(too_large)
    assert all(f"cannot send it (topic {topic}): a record is larger than" in reason for _, reason in refused)
    assert feeder.delivered_count == 395
    assert sorted(int(record.key) for record in read_topic(kafka, topic)) == sorted({*range(400)} - too_large)


def test_a_feeder_without_broker_reports_it_and_is_unusable(mock):
    broker, options = mock
    feeder = Feeder(replace(options, delivery_timeout_s=6.0, produce_timeout_s=3.0))
    feeder.send("small", b"key", b"value")
    feeder.flush()
    broker.kill()
    feeder.send("small", b"key", b"value")
    with pytest.raises(BrokerUnavailable, match="records taken: 2, known to be stored: 1"):
        feeder.close()
    with pytest.raises(BrokerUnavailable, match="unusable"):
        feeder.send("small", b"key", b"value")
    feeder.close()
