"""What a consumer group has committed, as the client's consumer tells it."""

from types import SimpleNamespace

import pytest
from kafka.structs import OffsetAndMetadata, TopicPartition

from streamdedup.errors import BrokerUnavailable
from streamdedup.position import Partition
from streamdedup.service.kafka.groups import fetch_committed
from streamdedup.service.kafka.options import KafkaOptions
from streamdedup.service.transport import Bookmark

OPTIONS = KafkaOptions(bootstrap_servers="localhost:1", group_id="g", topics=("a", "b"), transactional_id="t")


def a_consumer(partitions: dict[str, set[int]]) -> SimpleNamespace:
    committed = {TopicPartition("a", 1): OffsetAndMetadata(7, "note", -1)}

    def fetch_committed_offsets(wanted, timeout_ms):
        return {place: mark for place, mark in committed.items() if place in wanted}

    return SimpleNamespace(
        partitions_for_topic=lambda topic: partitions.get(topic, set()),
        _coordinator=SimpleNamespace(fetch_committed_offsets=fetch_committed_offsets),
    )


def test_what_is_committed_is_asked_for_all_partitions_of_all_topics():
    consumer = a_consumer({"a": {0, 1}, "b": {0}})
    assert fetch_committed(consumer, OPTIONS) == {Partition("a", 1): Bookmark(7, "note")}


def test_a_topic_whose_partitions_the_client_does_not_know_is_not_taken_for_one_without_commits():
    with pytest.raises(BrokerUnavailable, match="which partitions a has"):
        fetch_committed(a_consumer({"b": {0}}), OPTIONS)
