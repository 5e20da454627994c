"""The start of a partition without a committed offset at the window, and what a crash before the first commit does."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from streamdedup import clock as wall_clock
from streamdedup.daemon.rebuild_run import BegunRebuild, RebuildRun, RebuildTarget
from streamdedup.daemon.rebuild_window import not_before
from streamdedup.kafka.protocols import CommittedOffset, ReadProgress
from streamdedup.position import Partition
from tests.simulation.transport import MemoryBroker, MemoryHistory, MemorySource
from tests.turns import GROUP, INPUT, Daemon, Killed, Sent, World

DAY_MS = 86_400_000
#: The present, and retention plus slack.
NOW_MS, AGE_MS = 400 * DAY_MS, 10 * DAY_MS
TEXT = "amber birch cedar delta ember"
P0, P1 = Partition(INPUT, 0), Partition(INPUT, 1)


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Let daemons start at the window, and set their wall clock."""
    clock = SimpleNamespace(now_ms=NOW_MS)
    monkeypatch.setattr(wall_clock, "now_ms", lambda: clock.now_ms)
    begin = Daemon.__init__

    def begin_at_window(daemon, *arguments):
        begin(daemon, *arguments)
        pipelines = daemon.loop._window_start._pipelines
        daemon.loop._window_start._pipelines = {
            topic: replace(pipeline, max_start_age_ms=AGE_MS) for topic, pipeline in pipelines.items()
        }

    monkeypatch.setattr(Daemon, "__init__", begin_at_window)
    return clock


def days_ago(identity, days, partition=0, **fields):
    return Sent(identity, TEXT, partition, time_ms=round(NOW_MS - days * DAY_MS), **fields)


def test_a_new_group_begins_with_the_first_record_younger_than_the_window():
    old = [days_ago(f"old-{days}", days) for days in (300, 200, 10)]
    world = World([*old, days_ago("a", 9.9), days_ago("b", 50), days_ago("c", 1)], partitions=1)
    world.run()
    assert world.pairs() == [("a", "b"), ("a", "c"), ("b", "c")]
    assert world.total("records_total") == 3


def test_a_partition_with_a_record_in_every_moment_begins_at_the_window_of_its_first_turn(clock):
    records = [days_ago(f"{number}", 10 + (50 - number) / DAY_MS) for number in range(200)]
    world = World(records, batch_size=300)
    for _ in range(4):
        world.turn(world.daemons[0])
        clock.now_ms += 7  # records younger than the window at first are too old by now
        world.send(days_ago("300", 300, partition=1))  # in the second turn the other partition begins
    assert world.broker.offsets_of(GROUP)[Partition(INPUT, 0)] > 51
    first = min(int(identity) for pair in world.pairs() for identity in pair)
    assert first == 51


def test_a_partition_with_old_records_only_begins_at_its_end():
    world = World([days_ago("old", 300), days_ago("older", 301), days_ago("a", 1, partition=1)])
    for _ in range(6):
        world.turn(world.daemons[0])
    assert world.broker.offsets_of(GROUP) == {P1: 1}
    world.send(days_ago("archive", 40), days_ago("b", 0))  # what comes later is read
    assert world.run().pairs() == [("a", "archive"), ("a", "b"), ("archive", "b")]


def test_no_time_before_1970_is_looked_up(clock, monkeypatch):
    clock.now_ms, asked = DAY_MS, []
    look_up = MemorySource.first_since
    monkeypatch.setattr(
        MemorySource, "first_since", lambda source, times: asked.append(times) or look_up(source, times)
    )
    world = World([Sent("bad", TEXT, code="unreadable"), Sent("a", TEXT), Sent("b", TEXT)], partitions=1)
    assert world.run().pairs() == [("a", "b")]
    assert asked == [{P0: 0}]


def test_young_records_need_no_request():
    world = World([days_ago("a", 9.9), days_ago("b", 1)], partitions=1)
    world.daemons[0].source.first_since = None
    assert world.run().pairs() == [("a", "b")]


def test_a_record_without_a_time_counts_as_present():
    records = [replace(days_ago(identity, 0), time_ms=-1) for identity in ("a", "b")]
    assert World([*records, days_ago("c", 1)], partitions=1).run().pairs() == [("a", "b"), ("a", "c"), ("b", "c")]


@pytest.mark.parametrize(("days", "dead_letters"), [(300, 0), (1, 1)])
def test_an_unreadable_record_at_the_beginning_is_skipped_if_it_is_old(days, dead_letters):
    world = World([days_ago("bad", days, code="unreadable"), days_ago("a", 1), days_ago("b", 1)], partitions=1)
    assert world.run().pairs() == [("a", "b")]
    assert len(world.dead_letters()) == dead_letters


def test_behind_a_committed_offset_records_of_any_age_are_read(clock):
    clock.now_ms = NOW_MS - 295 * DAY_MS
    world = World([days_ago("a", 300), days_ago("b", 299)], partitions=1).run()
    clock.now_ms = NOW_MS
    world.start_later()
    world.send(days_ago("c", 298))
    assert world.run().pairs() == [("a", "b"), ("a", "c"), ("b", "c")]


def test_a_backlog_is_read_with_one_request_for_each_takeover(clock):
    clock.now_ms = NOW_MS - 295 * DAY_MS
    world = World([days_ago("a", 300)], partitions=1).run()
    clock.now_ms = NOW_MS
    world.stop_all()
    world.send(*(days_ago(f"b{number}", 299) for number in range(20)))
    world.trace.clear()
    world.start("later")
    world.run()
    # The second request is that of the fence.
    assert sum(moment.effect == "committed_offset" for moment in world.trace) == 2


@pytest.mark.parametrize(
    "effect", ["fence", "insert_entries", "claim_pairs", "announce", "publish", "commit", "finish"]
)
def test_a_crash_before_the_first_commit_loses_and_doubles_no_pair_of_the_later_window(clock, effect):
    """The clock of the second start is five days later, so the second window lacks the first two records."""
    crashes = []

    def kill_once(world, moment):
        if moment.effect == effect and not crashes:
            crashes.append(moment)
            clock.now_ms += 5 * DAY_MS
            raise Killed

    records = [days_ago("old", 300), days_ago("a", 9), days_ago("b", 8), days_ago("c", 4), days_ago("d", 3)]
    world = World(records, partitions=1, batch_size=4, grown=True)
    world.plan = lambda _number: kill_once
    world.run()
    assert crashes
    pairs = world.pairs()
    assert len(pairs) == len(set(pairs))
    assert ("c", "d") in pairs
    assert not any("old" in pair for pair in pairs)


def test_each_of_two_daemons_begins_its_partitions_at_the_window():
    records = [days_ago(f"{identity}{at}", days, at) for at in (0, 1) for identity, days in (("old-", 300), ("a", 2))]
    world = World(records, names=("one", "two")).run()
    assert world.pairs() == [("a0", "a1")]
    assert world.total("records_total") == 2


def test_records_below_the_start_are_silent_where_offsets_are_set_back():
    world = World([days_ago("old", 300), days_ago("older", 299), days_ago("a", 1)], partitions=1).run()
    world.stop_all()
    world.broker.commit(GROUP, {P0: 0})
    world.start("later")
    assert world.run().pairs() == []
    assert world.total("records_total") == 4


@pytest.mark.parametrize("offsets_deleted", [True, False])
@pytest.mark.parametrize("tells_topic_ids", [True, False])
def test_a_topic_that_was_created_again_is_read_from_its_oldest_record(offsets_deleted, tells_topic_ids):
    before = [days_ago(identity, 1) for identity in ("a", "b", "c")]
    world = World(before, partitions=1, joined=False)
    world.broker.tells_topic_ids = tells_topic_ids
    world.run()
    world.stop_all()
    # The index has never seen the second partition.
    records = [days_ago(f"{identity}{at}", 300, at) for identity in "xy" for at in (0, 1)]
    world.recreate(*records, partitions=2, offsets_deleted=offsets_deleted)
    world.start("later")
    world.run()
    assert {name for pair in world.pairs() for name in pair} == {"a", "b", "c", "x0", "x1", "y0", "y1"}


def test_a_topic_was_created_again_also_where_its_first_partition_was_never_read():
    world = World([days_ago("a", 1, 1), days_ago("b", 1, 1)], partitions=2).run()
    world.stop_all()
    world.recreate(days_ago("x", 300, 1), days_ago("y", 300, 1), partitions=2)
    world.start("later")
    assert {name for pair in world.run().pairs() for name in pair} == {"a", "b", "x", "y"}


def test_a_partition_of_such_a_topic_that_gets_its_first_record_later_is_read_from_there():
    world = World([days_ago("a", 1), days_ago("b", 1)], partitions=1).run()
    world.stop_all()
    world.recreate(days_ago("x", 300), days_ago("y", 300), partitions=2)
    world.start("later")
    world.run()
    world.send(days_ago("z", 300, 1))
    assert {name for pair in world.run().pairs() for name in pair} == {"a", "b", "x", "y", "z"}


def test_a_rebuild_reads_no_more_because_of_a_partition_that_is_not_begun():
    unread = {P0: ReadProgress(is_read=False, time_ms=5), P1: ReadProgress(is_read=False, time_ms=70)}
    assert not_before(unread, {P1}, 50) == {P0: ReadProgress(is_read=False, time_ms=50), P1: unread[P1]}
    assert not_before(unread, {P0, P1}, 50) == unread
    without_times = {P0: ReadProgress(is_read=False, time_ms=None)}
    assert not_before(without_times, {}, 50) == without_times


def test_a_rebuild_reads_from_the_window_of_partitions_that_are_not_begun_where_daemons_begin_there():
    broker = MemoryBroker({INPUT: 2})
    broker.produce(INPUT, b"", timestamp_ms=NOW_MS, partition=0)
    broker.produce(INPUT, b"", timestamp_ms=5, partition=1)
    starts = []
    for max_age_ms in (None, AGE_MS):
        pipeline = SimpleNamespace(name="articles", index=None, max_start_age_ms=max_age_ms)
        target = RebuildTarget(None, pipeline, [INPUT], AGE_MS, None)
        begun = BegunRebuild(target, None, 0, "lost")
        run = RebuildRun(begun, MemoryHistory(broker), {P0: CommittedOffset(1)}, 1, lambda: None, print)
        starts.append(run._window(NOW_MS)[P0])
    assert starts == [0, NOW_MS - 2 * AGE_MS]
