"""The start of a rebuild: one window before the next record, in any backlog."""

from contextlib import nullcontext
from types import SimpleNamespace

import msgspec
import pytest

from streamdedup import clock
from streamdedup.daemon.batch import in_parts
from streamdedup.daemon.rebuild_window import WindowFilter, rebuild_window, with_credible_times
from streamdedup.detection.model import document_number
from streamdedup.errors import DecodeError, RegistryUnavailable, StreamdedupError
from streamdedup.kafka.protocols import Batch, ReadProgress, Record, UnreadableRecord
from streamdedup.position import Partition, Position
from streamdedup.wire import Decoder, ErrorCode
from streamdedup.wire.schema_registry import Registry, RegistrySession
from tests.simulation.transport import MemoryBroker, MemoryHistory
from tests.turns import DUPLICATES, GROUP, INPUT, Sent, World

DAY_MS = 86_400_000
NOW_MS, KEPT_MS = 100 * DAY_MS, 10 * DAY_MS
TEXT = "amber birch cedar delta ember"
A0, A1, B0 = Partition("a", 0), Partition("a", 1), Partition("b", 0)


def left(day):
    """A partition with records to come, the next one of a day."""
    return ReadProgress(is_read=False, time_ms=None if day is None else day * DAY_MS)


def read(day):
    """A partition that is read to its end, the last record being of a day."""
    return ReadProgress(is_read=True, time_ms=None if day is None else day * DAY_MS)


def days(progress):
    """Starts of the input partitions, in days."""
    window = rebuild_window(progress, KEPT_MS, NOW_MS)
    return {each: None if ms is None else ms // DAY_MS for each, ms in window.items()}


# The window


def test_the_partition_furthest_behind_sets_the_start_of_all_topics():
    assert days({A0: left(40), A1: left(60), B0: read(100)}) == {A0: 30, A1: 30, B0: 30}


def test_with_nothing_left_to_read_it_counts_from_the_last_record():
    assert days({A0: read(100)}) == {A0: 90}
    assert days({A0: read(60), A1: read(58)}) == {A0: 50, A1: 50}
    assert days({A0: read(60), A1: left(None)}) == {A0: 50, A1: None}


def test_a_partition_or_a_topic_of_which_nothing_comes_any_more_does_not_lengthen_the_window_of_others():
    assert days({A0: read(100), A1: read(3)}) == {A0: 90, A1: 90}
    assert days({A0: read(100), B0: read(20)}) == {A0: 90, B0: 10}


def test_it_never_begins_later_than_counted_from_the_present_and_never_before_the_epoch():
    assert days({A0: left(100)}) == {A0: 90}
    assert days({A0: left(4)}) == {A0: 0}
    assert days({}) == {}


@pytest.mark.parametrize("partition", [left(None), read(None)])
def test_a_partition_without_times_is_read_whole_and_so_are_the_alerts(partition):
    assert days({A0: partition, A1: left(95)}) == {A0: None, A1: 85}


def test_of_the_records_before_the_window_only_deletions_are_kept():
    values = [b'{"id": "a", "op": "delete"}', b"{", b'{"id": "b", "text": "amber"}', b"{"]
    records = [Record(Position("a", 0, at), 10 * at, None, value) for at, value in enumerate(values)]
    kept = WindowFilter({A0: 30, A1: None}, Decoder(), print).filtered(Batch(tuple(records))).records
    assert kept == (records[0], records[3])


def test_a_schema_that_the_registry_lacks_is_asked_for_once_and_each_record_before_the_window_is_a_step(monkeypatch):
    asked, steps = [], []

    def by_id(_session, schema_id):
        asked.append(schema_id)
        raise DecodeError(ErrorCode.UNKNOWN_SCHEMA, "no such schema")

    monkeypatch.setattr(RegistrySession, "by_id", by_id)
    decoder = Decoder(format="avro", registry=Registry("http://localhost"))
    records = [Record(Position("a", 0, at), 10, b"key", b"\0\0\0\0\7value") for at in range(3)]
    window_filter = WindowFilter({A0: 30}, decoder, lambda: steps.append(len(asked)))
    assert window_filter.filtered(Batch(tuple(records))).records == ()
    assert (asked, steps) == ([7], [0, 1, 1])


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("a defect"), RegistryUnavailable("away")])
def test_a_record_before_the_window_that_cannot_be_decoded_is_no_deletion_unless_a_server_is_away(error):
    def decode(*_):
        raise error

    decoder = SimpleNamespace(batch=nullcontext, decode=decode)
    batch = Batch((Record(Position("a", 0, 0), 10, None, b""),))
    with pytest.raises(RegistryUnavailable) if isinstance(error, StreamdedupError) else nullcontext():
        assert WindowFilter({A0: 30}, decoder, print).filtered(batch).records == ()


# Times of the records


def credible(*times, commit_ms=100):
    """Times that the records of two batches of A0 have in a rebuild; a record of A1 comes in between."""
    records = [Record(Position("a", 0, offset), time_ms, None, b"") for offset, time_ms in enumerate(times)]
    batches = [Batch((*records[:2], Record(Position("a", 1, 0), 90, None, b""))), Batch(tuple(records[2:]))]
    replaced = [batch.records for batch in with_credible_times(batches, {A0: commit_ms, A1: 95})]
    assert [record.timestamp_ms for record in replaced[0] if record.position.partition == 1] == [90]
    return [record.timestamp_ms for batch in replaced for record in batch if record.position.partition == 0]


def test_a_record_without_a_credible_time_has_the_latest_time_before_it_in_its_partition():
    assert credible(10, 30, 20, -1, 101, 40, -1) == [10, 30, 20, 30, 30, 40, 40]
    assert credible(100, 0, 100) == [100, 0, 100]


def test_without_a_credible_time_before_it_a_record_has_the_time_of_the_last_commit():
    assert credible(-1, 900, 20, 900) == [100, 100, 20, 20]


def test_offsets_that_another_program_has_committed_change_no_time():
    world = World([Sent("a", TEXT, time_ms=5)], on_index_lost="rebuild").run()
    world.stop_all()
    world.server.go_back(None)
    world.broker.commit(GROUP, {Partition(INPUT, 0): 1})
    world.start("later")
    world.send(Sent("b", TEXT)).run()
    number = document_number("articles", "a")
    assert world.index.get_entries([number])[number].time_ms == 5


@pytest.mark.parametrize("is_gap", [False, True])
def test_a_document_of_the_future_does_not_grow_younger_by_a_rebuild(monkeypatch, is_gap):
    world = World([Sent("a", TEXT, time_ms=5)], on_index_lost="rebuild").run()
    world.server.save("copy")
    read_ms = clock.now_ms()
    # When the index is rebuilt, its time has passed.
    world.send(Sent("f", TEXT, time_ms=read_ms + 30 * DAY_MS), Sent("n", TEXT, time_ms=-1)).run()
    read_ms = clock.now_ms()
    world.server.go_back("copy" if is_gap else None)
    monkeypatch.setattr(clock, "now_ms", lambda: read_ms + 90 * DAY_MS)
    world.start_later()
    world.send(Sent("b", "other words", partition=1)).run()
    numbers = [document_number("articles", name) for name in "fn"]
    assert all(entry.time_ms <= read_ms for entry in world.index.get_entries(numbers).values())
    assert len(world.index.get_entries(numbers)) == 2


def progress_of(*times, offset, now_ms=1_000):
    broker = MemoryBroker({"a": 1})
    for time_ms in times:
        broker.produce("a", b"", timestamp_ms=time_ms)
    return MemoryHistory(broker).progress(["a"], {A0: offset}, now_ms, lambda: None)


@pytest.mark.parametrize(
    ("times", "offset", "expected"),
    [
        ((), 0, {}),
        ((10, 20, 30), 1, {A0: ReadProgress(is_read=False, time_ms=20)}),
        ((10, -1, 30), 1, {A0: ReadProgress(is_read=False, time_ms=30)}),
        ((10, 5_000, 30), 1, {A0: ReadProgress(is_read=False, time_ms=30)}),
        ((10, 5_000), 1, {A0: ReadProgress(is_read=False, time_ms=1_000)}),
        ((10, -1, -1), 1, {A0: ReadProgress(is_read=False, time_ms=None)}),
        ((10, 20), 2, {A0: ReadProgress(is_read=True, time_ms=20)}),
        ((10, -1), 2, {A0: ReadProgress(is_read=True, time_ms=10)}),
        ((10,), 9, {A0: ReadProgress(is_read=True, time_ms=10)}),
    ],
)
def test_the_next_record_with_a_credible_time_counts(times, offset, expected):
    assert progress_of(*times, offset=offset) == expected


# A rebuild in a backlog


def lose_index(world):
    """The index is flushed."""
    world.server.go_back(None)
    world.start_later()


def a_world_in_a_backlog(*records):
    """All of ``records`` are committed, and the present is many windows later."""
    return World(records, on_index_lost="rebuild", kept_ms=KEPT_MS, now_ms=NOW_MS).run()


def test_a_rebuild_in_a_backlog_of_many_windows_recovers_the_documents_that_the_backlog_needs():
    other, third = "knoll lagoon amber jetty", "heath grove fjord ember"
    late, later = Sent("e", third, 0, time_ms=8 * DAY_MS), Sent("f", third, 0, time_ms=9 * DAY_MS)
    before = Sent("a", TEXT, 0, time_ms=20 * DAY_MS), Sent("b", other, 1, time_ms=21 * DAY_MS)
    world = a_world_in_a_backlog(*before, late)
    lose_index(world)
    world.send(Sent("c", TEXT, 0, time_ms=22 * DAY_MS), Sent("d", other, 1, time_ms=23 * DAY_MS), later)
    assert world.run().pairs() == [("a", "c"), ("b", "d"), ("e", "f")]


def test_a_partition_without_record_times_is_rebuilt_from_its_oldest_record():
    world = a_world_in_a_backlog(Sent("a", TEXT, 0, time_ms=-1))
    lose_index(world)
    assert world.send(Sent("b", TEXT, 1, time_ms=-1)).run().pairs() == [("a", "b")]


def test_no_claim_is_lost_where_the_alert_was_published_before_the_window_that_is_counted_from_the_present():
    world = a_world_in_a_backlog(Sent("b", TEXT, 1, time_ms=21 * DAY_MS))
    world.send(Sent("a", TEXT, 0, time_ms=20 * DAY_MS))
    world.run()
    (alert,) = world.broker._logs[Partition(DUPLICATES, 0)][:1]
    msgspec.structs.force_setattr(alert.record, "timestamp_ms", 30 * DAY_MS)
    # As if the batch of b had been under way: it is read again, and the alert of a has its pair already.
    world.broker.commit(GROUP, {Partition(INPUT, 1): 0})
    lose_index(world)
    assert world.run().pairs() == [("a", "b")]


def test_a_batch_that_is_too_large_for_the_memory_is_processed_in_parts_with_its_unreadable_records_once():
    records = tuple(Record(Position("a", 0, offset), 0, None, b"") for offset in range(3))
    unreadable = (UnreadableRecord(Position("a", 0, 3), "no codec"),)

    def process(batch):
        if len(batch.records) > 1:
            raise MemoryError
        return batch.records, batch.unreadable

    parts = in_parts(Batch(records, unreadable), process)
    assert parts == [((records[0],), unreadable), ((records[1],), ()), ((records[2],), ())]
    with pytest.raises(MemoryError):
        in_parts(Batch(records[:1]), lambda _: bytearray(1 << 62))
