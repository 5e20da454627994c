"""Reading to the ends that topics have at a moment, and remembering how far one came, against a real Kafka."""

import contextlib

import pytest
from kafka import TopicPartition

from streamdedup.errors import BrokerUnavailable
from streamdedup.kafka.consumer import KafkaSource
from streamdedup.kafka.group_admin import GroupOffsets
from streamdedup.kafka.history import KafkaHistory, KafkaSpan
from streamdedup.kafka.producer import Feeder
from streamdedup.kafka.protocols import CommittedOffset
from streamdedup.kafka.reader import RecordFetcher, TopicReader
from streamdedup.position import Partition, Position
from tests.raw_batches import RawRecord, record_batch, send_batch
from tests.servers import admin_client, kafka_options, produce, produce_in_transactions, read_topic, wait_until


def values(reader):
    return [record.value for batch in reader.batches() for record in batch.records]


def test_a_span_ends_where_the_topic_ended_when_it_was_made_and_can_be_read_again(kafka, new_topic):
    topic, other = new_topic(partitions=3), new_topic()
    produce(kafka, topic, [b"%d" % number for number in range(1_199)])
    produce(kafka, other, [b"1199"])
    with TopicReader(kafka_options(kafka, topic, other)) as reader:
        produce(kafka, topic, [b"later"] * 50)
        first = values(reader)
        reader.start_at({})
        assert sorted(values(reader)) == sorted(first) == sorted(b"%d" % number for number in range(1_200))
        assert sum(reader.ends.values()) == 1_200


def test_a_span_begins_at_the_given_offsets(kafka, new_topic):
    topic = new_topic(partitions=2)
    for partition in range(2):
        produce(kafka, topic, [b"%d:%d" % (partition, offset) for offset in range(5)], partition=partition)
    with TopicReader(kafka_options(kafka, topic)) as reader:
        reader.start_at({Partition(topic, 1): 3})
        assert sorted(values(reader)) == [*(b"0:%d" % offset for offset in range(5)), b"1:3", b"1:4"]
        reader.start_at(reader.ends)
        assert values(reader) == []


@pytest.mark.parametrize(("count", "starts"), [(3, (6, 3)), (100, (0, 0))])
def test_a_span_has_the_newest_records_with_the_same_percentage_of_each_partition(kafka, new_topic, count, starts):
    topic, ends = new_topic(partitions=2), (8, 4)
    for partition, end in enumerate(ends):
        produce(kafka, topic, [b"%d:%d" % (partition, offset) for offset in range(end)], partition=partition)
    with KafkaSpan(kafka_options(kafka, topic), since_ms=None, ends=None, newest_count=count) as span:
        expected = [
            b"%d:%d" % (number, offset) for number in range(2) for offset in range(starts[number], ends[number])
        ]
        assert sorted(values(span)) == expected


def test_a_span_passes_aborted_records_also_at_its_end(kafka, new_topic):
    topic = new_topic()
    produce_in_transactions(kafka, topic, (b"committed", True), (b"aborted", False))
    with TopicReader(kafka_options(kafka, topic)) as reader:
        assert values(reader) == [b"committed"]
    aborted_offset = 2  # behind a record and the marker of its transaction
    with RecordFetcher(kafka_options(kafka, topic)) as fetcher:
        assert fetcher.fetch(Position(topic, 0, aborted_offset)) is None


def test_an_empty_topic_ends_at_once(kafka, new_topic):
    with TopicReader(kafka_options(kafka, new_topic())) as reader:
        assert list(reader.batches()) == []


def progress(kafka, topic, offset_by_number, now_ms=1_000_000):
    offsets = {Partition(topic, number): offset for number, offset in offset_by_number.items()}
    found = KafkaHistory(kafka_options(kafka, topic)).progress([topic], offsets, now_ms, lambda: None)
    return {each.partition: (one.is_read, one.time_ms) for each, one in found.items()}


def test_the_progress_of_a_group_is_given_by_the_times_of_records(kafka, new_topic):
    topic = new_topic(partitions=4, message_timestamp_after_max_ms=str(2**62))
    for number, times in enumerate([(10, 20, 30), (40, 50), (60, 2**42, 70)]):
        for time_ms in times:
            produce(kafka, topic, [b"x"], partition=number, timestamp_ms=time_ms)
    assert progress(kafka, topic, {0: 1, 1: 2, 2: 1}) == {0: (False, 20), 1: (True, 50), 2: (False, 70)}
    # What is not committed is read from the oldest record, and offsets beyond the end are read.
    assert progress(kafka, topic, {1: 99, 2: 1}) == {0: (False, 10), 1: (True, 50), 2: (False, 70)}
    # In the future, all of them: the present.
    assert progress(kafka, topic, {0: 3, 1: 2, 2: 1}, now_ms=5) == {0: (True, 5), 1: (True, 5), 2: (False, 5)}


def test_records_without_times_and_records_that_are_gone_are_passed(kafka, new_topic):
    topic = new_topic(partitions=2)
    timeless = [RawRecord(b"timeless")] * 3
    send_batch(kafka, topic, 0, record_batch(timeless))
    assert progress(kafka, topic, {0: 1}) == {0: (False, None)}
    produce(kafka, topic, [b"x"], partition=0, timestamp_ms=70)
    assert progress(kafka, topic, {0: 1}) == {0: (False, 70)}
    with contextlib.closing(admin_client(kafka)) as admin:
        admin.delete_records({TopicPartition(topic, 0): 3})
    assert progress(kafka, topic, {0: 1}) == {0: (False, 70)}
    with contextlib.closing(admin_client(kafka)) as admin:
        admin.delete_records({TopicPartition(topic, 0): 4})
    assert progress(kafka, topic, {0: 1}) == {}


def test_each_partition_is_read_from_its_own_time(kafka, new_topic):
    topic = new_topic(partitions=3)
    for number in range(3):
        for time_ms in (10, 40, 20, 30):
            produce(kafka, topic, [b"%d" % time_ms], partition=number, timestamp_ms=time_ms)
    since = {Partition(topic, 0): 20, Partition(topic, 1): None, Partition(topic, 2): 50}
    with KafkaHistory(kafka_options(kafka, topic)).open([topic], since, None) as span:
        found = sorted((r.position.partition, int(r.value)) for batch in span.batches() for r in batch.records)
    assert found == [(0, 20), (0, 30), (0, 40), (1, 10), (1, 20), (1, 30), (1, 40)]
    assert span.total_count == 7


def test_offsets_are_read_back_with_their_metadata(kafka, new_topic, new_group):
    topic, group = new_topic(partitions=3), new_group()
    partitions = [Partition(topic, number) for number in range(3)]
    with GroupOffsets(kafka_options(kafka, topic), group) as offsets:
        assert offsets.read(partitions) == {}
        offsets.write({partitions[0]: CommittedOffset(7, '{"a":1}'), partitions[2]: CommittedOffset(0)})
        offsets.write({partitions[2]: CommittedOffset(9, "x" * 4_096)})
    with GroupOffsets(kafka_options(kafka, topic), group) as offsets:
        assert offsets.read(partitions) == {
            partitions[0]: CommittedOffset(7, '{"a":1}'),
            partitions[2]: CommittedOffset(9, "x" * 4_096),
        }


def test_bookmarks_of_a_group_with_members_cannot_be_moved(kafka, new_topic, new_group):
    topic, group = new_topic(), new_group()
    with contextlib.closing(KafkaSource.open(kafka_options(kafka, topic, group_id=group))) as member:
        wait_until(lambda: not member.poll(0.1) and member.assigned(), what="membership")
        with GroupOffsets(kafka_options(kafka, topic), group) as offsets, pytest.raises(BrokerUnavailable, match=group):
            offsets.write({Partition(topic, 0): CommittedOffset(1)})


def test_a_feeder_sends_headers_and_to_the_partition_that_it_is_told(kafka, new_topic):
    topic = new_topic(partitions=4)
    with Feeder(kafka_options(kafka, topic)) as feeder:
        for number in range(8):
            feeder.send(topic, b"same key", b"value", headers=[("name", b"%d" % number)], partition=number % 4)
    records = read_topic(kafka, topic)
    assert [(record.partition, record.headers) for record in records] == [
        (partition, [("name", b"%d" % number)]) for partition in range(4) for number in (partition, partition + 4)
    ]
