"""A poll of the real client returns records that wait at the broker beside those that it fetched earlier."""

from collections.abc import Callable

import pytest

from streamdedup.kafka import fresh_poll, options
from streamdedup.kafka.consumer import KafkaSource
from streamdedup.kafka.producer import KafkaTransport
from tests import servers

#: Longest single poll, in seconds.
POLL_S = 0.2


@pytest.fixture
def topic(new_topic) -> str:
    return new_topic("input", 1)


@pytest.fixture
def source(kafka, topic, open_ends, monkeypatch) -> KafkaSource:
    # Longer than a busy machine needs to answer a fetch.
    monkeypatch.setattr(fresh_poll, "SECOND_POLL_S", servers.DEADLINE_S)
    # Nothing but a poll sends another fetch after an empty answer.
    monkeypatch.setattr(options, "FETCH_MAX_WAIT_MS", round(servers.DEADLINE_S * 1000))
    made = servers.kafka_options(kafka, topic, fetch_timeout_s=2 * servers.DEADLINE_S)
    return open_ends(KafkaTransport(made))[0]


@pytest.fixture
def fetched(kafka, topic, source) -> Callable[[], None]:
    """Leave records 8 to 11 in the client, which has fetched them in the background, and no fetch under way."""

    def prepare() -> None:
        servers.produce(kafka, topic, [b"%d" % number for number in range(8)])
        first = servers.wait_until(lambda: source.poll(POLL_S, 4), what="a batch")
        assert len(first.records) == 4
        # A poll that finds records in the client's memory sends the next fetch.
        client = source._consumer
        assert [len(records) for records in client.poll(timeout_ms=0).values()] == [4]
        servers.produce(kafka, topic, [b"%d" % number for number in range(8, 12)])
        servers.wait_until(lambda: client._fetcher._completed_fetches, what="a fetch in the background")

    return prepare


def test_records_that_wait_at_the_broker_come_with_those_fetched_earlier(kafka, topic, source, fetched):
    fetched()
    servers.produce(kafka, topic, [b"12", b"13"])
    batch = source.poll(POLL_S)
    assert [record.value for record in batch.records] == [b"%d" % number for number in range(8, 14)]


def test_an_unreadable_record_behind_them_is_reported_with_them(kafka, topic, source, fetched, monkeypatch):
    fetched()
    servers.produce(kafka, topic, [b"12"], headers=[(servers.NotUtf8("name"), b"")])
    servers.produce(kafka, topic, [b"13"])
    first = source.poll(POLL_S)
    assert [record.position.offset for record in first.records] == [8, 9, 10, 11]
    assert [entry.position.offset for entry in first.unreadable] == [12]
    assert [position.offset for position in first.positions()] == [8, 9, 10, 11, 12]
    monkeypatch.undo()  # a second poll for which nothing is there waits in vain
    second = servers.wait_until(lambda: source.poll(POLL_S), what="the record behind it")
    assert [record.value for record in second.records] == [b"13"]
