"""The readers over a client without a broker: records at the ends, an open transaction, records that are gone."""

import itertools
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
from kafka.errors import KafkaTimeoutError
from kafka.structs import OffsetAndTimestamp, TopicPartition

from streamdedup.cli import tail
from streamdedup.errors import BrokerUnavailable, DecodeError
from streamdedup.kafka import history, reader
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.protocols import Batch, ReadProgress, UnreadableRecord
from streamdedup.position import Partition, Position
from tests.servers import DEADLINE_S

OPTIONS = KafkaOptions(bootstrap_servers="h:1", group_id="g", topics=("t",), transactional_id="x")
#: The only partition.
T = TopicPartition("t", 0)
PARTITION = Partition("t", 0)


class Log:
    """A client that reads ``offsets`` of one partition, all in one poll; ``end`` is behind the committed ones."""

    def __init__(self, offsets: list[int], end: int) -> None:
        self.offsets = offsets
        self.end = end
        self.next = 0
        self.is_slow = False  # answers after the next poll
        self.is_paused = False
        self.seen_end = None
        self.known = {0}  # partitions in the metadata
        self.is_closed = False

    def poll(self, timeout_ms):
        if self.is_slow or self.is_paused:
            self.is_slow = False
            return {}
        self.seen_end = self.end
        unread = [offset for offset in self.offsets if offset >= self.next]
        self.next = unread[-1] + 1 if unread else self.next
        place = {"topic": "t", "partition": 0, "key": None, "value": b"v", "headers": []}
        return {T: [SimpleNamespace(offset=offset, timestamp=offset, **place) for offset in unread]}

    def seek(self, _partition, offset):
        assert offset >= 0  # as in the client
        self.next = offset

    def position(self, _partition):
        return self.next

    def states(self):
        return {T: SimpleNamespace(position=SimpleNamespace(offset=self.next))}

    def assignment(self):
        return {T}

    def beginning_offsets(self, _partitions, _timeout_ms):
        return {T: 0}

    def end_offsets(self, _partitions, _timeout_ms=None):
        return {T: self.end}

    def partitions_for_topic(self, _topic):
        return {0}

    @property
    def _cluster(self):
        return SimpleNamespace(partitions_for_topic=lambda _topic: self.known)

    def highwater(self, _partition):
        return self.seen_end

    def pause(self, _partition):
        self.is_paused = True

    def resume(self, _partition):
        self.is_paused = False

    def close(self, **_limits):
        self.is_closed = True

    def ignore(self, *_):
        pass

    assign = ignore


@pytest.fixture
def log(monkeypatch):
    log = Log([0, 1, 2, 4, 5], end=4)
    monkeypatch.setattr(reader, "require_topics", lambda _options: {"t": 1})
    monkeypatch.setattr(reader.compat, "build", lambda *_: log)
    monkeypatch.setattr(reader.compat, "assigned_states", Log.states)
    monkeypatch.setattr(reader, "guard_parsing", lambda *_, **__: [])
    return log


def offsets(batches):
    return [record.position.offset for batch in batches for record in batch.records]


def test_a_record_at_the_end_is_not_read(log):
    with reader.TopicReader(OPTIONS) as read:
        assert offsets(read.batches()) == [0, 1, 2]
    for ends, read in (({Partition("t", 0): 2}, [0, 1]), ({Partition("t", 1): 2}, [])):
        with history.KafkaHistory(OPTIONS).open(["t"], None, ends) as span:
            assert offsets(span.batches()) == read


def test_a_range_of_invisible_records_may_take_longer_than_the_limit_of_a_wait(log, monkeypatch):
    monkeypatch.setattr(log, "poll", lambda timeout_ms: log.seek(T, log.next + 1) or {})
    monkeypatch.setattr(reader, "time", SimpleNamespace(monotonic=itertools.count(0, 10).__next__))
    with reader.TopicReader(OPTIONS) as read:
        assert offsets(read.batches()) == []


def test_a_reader_that_cannot_be_opened_is_closed(log, monkeypatch):
    def end_offsets(_partitions, _timeout_ms):
        raise KafkaTimeoutError("no answer")

    monkeypatch.setattr(log, "end_offsets", end_offsets)
    with pytest.raises(BrokerUnavailable, match=r"the ends of t, of which .* no leader: .* no answer"):
        reader.TopicReader(OPTIONS)
    assert log.is_closed


def test_each_step_of_opening_has_its_own_limit_and_a_fetch_that_of_requests(log, monkeypatch):
    for step in ("beginning_offsets", "end_offsets"):
        monkeypatch.setattr(log, step, lambda _partitions, timeout_ms: limits_ms.append(timeout_ms) or {T: 0})
    limits_ms, configs = [], []
    monkeypatch.setattr(reader.compat, "build", lambda _kind, config, _options: configs.append(config) or log)
    reader.TopicReader(replace(OPTIONS, opening_timeout_s=2))
    assert (limits_ms, configs[0]["request_timeout_ms"]) == ([2_000] * 2, 30_000)


def test_the_client_is_not_asked_for_a_position_that_is_known(log, monkeypatch):
    """It looks at all partitions for each: at 1,000 partitions, a million times for one batch."""
    monkeypatch.delattr(Log, "position")
    with reader.TopicReader(OPTIONS) as read:
        assert offsets(read.batches()) == [0, 1, 2]


@pytest.mark.parametrize(("first", "read"), [(OffsetAndTimestamp(1, 1, -1), [1, 2]), (None, [])])
def test_a_span_begins_with_the_first_record_since_its_time_and_is_empty_without_one(log, monkeypatch, first, read):
    monkeypatch.setattr(log, "offsets_for_times", lambda _times, timeout_ms: {T: first}, raising=False)
    with history.KafkaHistory(OPTIONS).open(["t"], 1, {PARTITION: 4}) as span:
        assert offsets(span.batches()) == read


def test_partitions_without_a_leader_are_waited_for_together(log, monkeypatch):
    waits_ms, at = [], [TopicPartition("t", number) for number in range(3)]
    monkeypatch.setattr(log, "end_offsets", lambda *_: dict.fromkeys(at, 4))
    monkeypatch.setattr(reader.compat, "assigned_states", lambda _: dict.fromkeys(at, SimpleNamespace(position=None)))
    monkeypatch.setattr(log, "position", lambda at, wait_ms: waits_ms.append(wait_ms) or {2: None}.get(at.partition, 0))
    monkeypatch.setattr(reader.time, "monotonic", iter(range(9)).__next__)
    with (
        reader.TopicReader(replace(OPTIONS, fetch_timeout_s=9)) as read,
        pytest.raises(BrokerUnavailable, match="no offset of t:2: the partition may have no leader"),
    ):
        read.positions()
    assert waits_ms == [8_000, 7_000, 6_000]


@pytest.mark.parametrize(("present", "assigned"), [({0, 1}, {T, TopicPartition("t", 1)}), (set(), {T})])
def test_partitions_are_added_and_those_of_a_deleted_topic_kept(log, monkeypatch, present, assigned):
    given = []
    log.known = present
    with reader.TopicReader(OPTIONS) as read:
        monkeypatch.setattr(log, "assign", given.append)
        read.add_new_partitions()
    assert given == [assigned]


@pytest.mark.parametrize(("from_beginning", "start"), [(True, 0), (False, 4)])
def test_tail_follows_alerts_from_the_oldest_one_or_from_the_end(log, monkeypatch, from_beginning, start):
    positions = []
    settings = SimpleNamespace(kafka=SimpleNamespace(duplicates_topic="t"))
    monkeypatch.setattr(tail, "load_settings", lambda *_: settings)
    monkeypatch.setattr(tail, "reading_options", lambda *_: OPTIONS)
    monkeypatch.setattr(tail, "alert_reader", lambda _settings: None)
    monkeypatch.setattr(tail, "_alerts", lambda reader, _alerts: positions.append(reader.positions()) or [])
    tail.tail(from_beginning=from_beginning)
    assert positions == [{PARTITION: start}]


@pytest.mark.parametrize(("known", "has_new"), [({0}, False), ({0, 1}, True), (None, False)])
def test_new_partitions_are_those_that_the_client_knows_without_a_request(log, monkeypatch, known, has_new):
    with reader.TopicReader(OPTIONS) as read:
        monkeypatch.delattr(Log, "partitions_for_topic")
        log.known = known
        assert read.has_new_partitions() is has_new


def test_a_span_to_the_present_ends_behind_open_transactions(log, monkeypatch):
    monkeypatch.setattr(history, "latest_offsets", lambda _options, partitions: dict.fromkeys(partitions, 6))
    with history.KafkaHistory(OPTIONS).open(["t"], None, None) as span:
        assert offsets(span.batches()) == [0, 1, 2, 4, 5]


def test_a_span_shows_that_it_still_waits_for_an_open_transaction(log, monkeypatch):
    monkeypatch.setattr(history, "latest_offsets", lambda _options, partitions: dict.fromkeys(partitions, 6))
    monkeypatch.setattr(history, "OPEN_TRANSACTION_S", 0)
    log.offsets = [0, 1, 2]
    with history.KafkaHistory(OPTIONS).open(["t"], None, None) as span:
        batches = span.batches()
        assert [offsets([next(batches)]), next(batches)] == [[0, 1, 2], Batch()]
        with pytest.raises(BrokerUnavailable, match="a transaction has been open"):
            next(batches)


@pytest.mark.parametrize(
    ("read", "progress"),
    [(1, ReadProgress(False, 1)), (3, ReadProgress(True, 2)), (4, ReadProgress(True, 2))],
)
def test_the_progress_of_a_group_is_the_time_of_its_first_unread_record_or_of_the_last_one(log, read, progress):
    assert history.KafkaHistory(OPTIONS).progress(["t"], {PARTITION: read}, 9, lambda: None) == {PARTITION: progress}


def test_an_empty_partition_has_no_progress(log):
    log.end = 0
    assert history.KafkaHistory(OPTIONS).progress(["t"], {}, 9, lambda: None) == {}


def test_a_second_record_of_a_partition_is_fetched(log):
    with reader.RecordFetcher(replace(OPTIONS, fetch_timeout_s=0)) as fetcher:
        assert [fetcher.fetch(Position("t", 0, offset)).position.offset for offset in (2, 1)] == [2, 1]


@pytest.mark.parametrize(("offset", "fetched"), [(2, [2]), (3, []), (6, [])])
def test_in_place_of_a_record_that_is_gone_no_later_record_is_fetched(log, offset, fetched):
    with reader.RecordFetcher(OPTIONS) as fetcher:
        record = fetcher.fetch(Position("t", 0, offset))
    assert [record.position.offset for record in (record,) if record] == fetched


def test_a_record_of_a_known_topic_is_fetched_without_a_request_for_its_partitions(log, monkeypatch):
    monkeypatch.delattr(Log, "partitions_for_topic")
    with reader.RecordFetcher(OPTIONS) as fetcher:
        assert fetcher.fetch(Position("t", 0, 2)).position.offset == 2


def test_kafka_that_does_not_name_the_partitions_is_waited_for_until_the_time_limit(log, monkeypatch):
    answer, log.known = threading.Event(), None
    monkeypatch.setattr(log, "partitions_for_topic", lambda _topic: answer.wait(DEADLINE_S) and {0})
    with reader.RecordFetcher(replace(OPTIONS, fetch_timeout_s=0.01)) as fetcher:
        with pytest.raises(BrokerUnavailable, match="cannot look up the partitions of t: Kafka did not answer"):
            fetcher.fetch(Position("t", 0, 2))
        answer.set()


def test_a_record_that_came_since_the_last_fetch_is_fetched_from_a_slow_broker(log):
    with reader.RecordFetcher(OPTIONS) as fetcher:
        assert fetcher.fetch(Position("t", 0, 2)).position.offset == 2
        log.offsets, log.end, log.is_slow = [0, 1, 2, 4, 5, 6], 7, True
        assert fetcher.fetch(Position("t", 0, 6)).position.offset == 6


def test_an_unreadable_record_behind_the_wanted_one_shows_that_it_is_gone(log, monkeypatch):
    unreadable = UnreadableRecord(Position("t", 0, 5), "damaged")
    monkeypatch.setattr(reader, "unpack", lambda *_, **__: ((), (unreadable,)))
    with reader.RecordFetcher(OPTIONS) as fetcher:
        assert fetcher.fetch(Position("t", 0, 3)) is None
        with pytest.raises(DecodeError, match="damaged"):
            fetcher.fetch(Position("t", 0, 5))
