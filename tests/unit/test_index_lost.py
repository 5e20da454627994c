"""An index that is gone or has gone back in time: detected, accepted by policy, or rebuilt."""

import contextlib
import itertools
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace

import pytest
from msgspec import structs
from structlog.testing import capture_logs

from streamdedup import clock
from streamdedup.cli import index as commands
from streamdedup.cli import index_building
from streamdedup.daemon import rebuild, rebuild_run, rebuild_seeds
from streamdedup.daemon.attempts import lineage_of
from streamdedup.daemon.losses import Gap, Loss, find_losses, losses_between
from streamdedup.daemon.metrics import REBUILD_KINDS
from streamdedup.daemon.partitions import PartitionOwnership
from streamdedup.daemon.rebuild import Rebuilt
from streamdedup.daemon.rebuild_run import BegunRebuild, RebuildRun, RebuildTarget
from streamdedup.daemon.rebuild_seeds import Seeds
from streamdedup.daemon.recovery import Recovery
from streamdedup.detection import entry_chunks
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import document_number, pair_key, pair_side
from streamdedup.errors import (
    BatchRefused,
    IndexBusy,
    IndexLost,
    IndexMismatch,
    RegistryUnavailable,
    Rejoin,
    SettingsError,
    StoreUnavailable,
    StreamdedupError,
)
from streamdedup.index.contract import delete_index
from streamdedup.index.documents import IndexEntry
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.values import AnnouncedAttempt, BrokerState, Opening, PartitionState
from streamdedup.kafka.protocols import Batch, CommittedOffset, Message, Record
from streamdedup.position import Partition, Position
from streamdedup.settings.validation import read_profile
from streamdedup.wire import Decoder, decode_alert
from tests import turns
from tests.alerts import a_document, a_match, an_alert
from tests.entries import content_of, pending_of
from tests.simulation.server import Connection, Link
from tests.simulation.transport import MemoryHistory, MemorySource
from tests.support.clock import ManualClock
from tests.turns import (
    CLOCK,
    DUPLICATES,
    FINGERPRINT,
    GROUP,
    INPUT,
    Daemon,
    Killed,
    Sent,
    World,
    a_pipeline,
    killed,
    once,
)

TEXT = "amber birch cedar delta ember"
OTHER_TEXT = "knoll lagoon amber jetty inlet"
HOUR_MS = 3_600_000
BEFORE = [Sent("a", TEXT, 0), Sent("b", TEXT, 1), Sent("c", OTHER_TEXT, 0)]


def check_if_due(ownership, source):
    if ownership.is_check_due(source):
        ownership.check_for_losses(source)


def always(_source):
    return True


def being_rebuilt(*_, **__):
    raise IndexBusy("being rebuilt")


#: A source of a member of the group without partitions.
MEMBER = SimpleNamespace(generation=lambda: 1, assigned=frozenset, committed_offsets=dict, missing_topics=frozenset)


def a_loss(name="a", number=0, gap=None, **fields):
    return Loss(Partition(name, number), CommittedOffset(1), "lost", gap, **fields)


def nothing(*_):
    """Show no lost and no complete index."""


def a_recovery(
    rebuilder,
    find_losses,
    policy="rebuild",
    names="a",
    open_index=lambda *_, **__: None,
    index_lost=nothing,
    index_complete=nothing,
):
    """Return a recovery of profiles that are named as their topics, which looks for losses in each turn."""
    statistics = SimpleNamespace(index_lost=index_lost, index_complete=index_complete)
    index = SimpleNamespace(open=open_index, count_connections=lambda: 0)
    pipelines = {n: SimpleNamespace(name=n, index=index, fingerprint={}, silent_until_ms=None) for n in names}
    ownership = SimpleNamespace(is_check_due=always, check_for_losses=lambda _source: find_losses())
    return Recovery(pipelines, ownership, policy, rebuilder, statistics, tick=lambda: None)


def a_run(index, committed_offsets=None, gaps=None, history=None, tick=lambda: None, lifetime_ms=None):
    """Return the run of a rebuild, without a staging index."""
    pipeline = SimpleNamespace(name="articles", index=index, max_start_age_ms=None)
    target = RebuildTarget(None, pipeline, [INPUT], lifetime_ms, None)
    begun = BegunRebuild(target, gaps, 0, "gap")
    return RebuildRun(begun, history, committed_offsets or {}, 2, tick, lambda *_: None)


@pytest.mark.parametrize("names", ["a", "bc"])
def test_an_index_from_before_the_last_commit_ends_the_owner_of_any_partition_with_advice(names):
    world = World(BEFORE).run()
    world.server.save("copy")
    world.send(Sent("d", OTHER_TEXT, 1)).run().stop_all()
    world.server.go_back("copy")
    for name in names:
        world.start(name)
    for daemon in world.daemons:
        with pytest.raises(
            IndexLost,
            match=r"offset 2 of articles:1 .* gone back to an earlier time, or another .* since\. Build it anew",
        ):
            world.turn(daemon)


def test_a_loss_that_shows_after_a_commit_undoes_no_committed_batch():
    def flush(world, _moment):
        world.server.go_back(None, restarts=False)

    world = World(BEFORE, on_index_lost="rebuild", plan=once("finish", flush)).run()
    assert world.daemons[0].metric("records_total") == len(BEFORE)
    assert world.send(Sent("d", OTHER_TEXT, 0)).run().pairs() == [("a", "b"), ("c", "d")]


def test_while_the_group_rebalances_no_mark_is_raised_and_the_comparison_stays_due():
    index, partition = MemoryIndex(), Partition(INPUT, 0)
    index.open({})
    index.fence(partition, 1, 3, state=BrokerState("id"))
    ownership = PartitionOwnership({INPUT: SimpleNamespace(name="articles", index=index)})
    source = SimpleNamespace(
        assigned=lambda: frozenset([partition]),
        committed_offsets=lambda **_: {partition: CommittedOffset(9, topic_id="id")},
        generation=lambda: None,
        end=lambda _: 9,
    )
    assert ownership.check_for_losses(source) == []
    assert index.partition_states([partition])[partition].high_water_mark == 3
    assert ownership.is_check_due(source)


def test_a_batch_of_two_profiles_is_compared_after_a_pause_of_either():
    clock, asked = ManualClock(), []
    indexes = {name: MemoryIndex() for name in "ab"}
    for index in indexes.values():
        index.open({})
    fences = {name: {Partition(name, 0): index.fence(Partition(name, 0), 1, 0)} for name, index in indexes.items()}
    pipelines = {name: SimpleNamespace(name=name, index=index) for name, index in indexes.items()}
    ownership = PartitionOwnership(pipelines, monotonic=clock)

    def committed_offsets(**_):
        asked.append(clock())
        return {}

    source = SimpleNamespace(assigned=frozenset, generation=lambda: 1, committed_offsets=committed_offsets)
    for pause_s, names in (0, "ab"), (5, "b"), (5, "b"), (1, "ab"):
        clock.now_s += pause_s
        batch_fences = {partition: fence for name in names for partition, fence in fences[name].items()}
        ownership.announce(batch_fences, dict.fromkeys(batch_fences, 0))
        check_if_due(ownership, source)
    assert asked == [100, 110, 111]


@pytest.mark.parametrize("fails", ["nothing", "batch", "finish"])
def test_after_a_failure_the_next_batch_is_compared_although_an_idle_turn_has_compared_since(fails):
    asked, partition, index = [], Partition("a", 0), MemoryIndex()
    index.open({})
    fences = {partition: index.fence(partition, 1, 0)}
    ownership = PartitionOwnership({"a": SimpleNamespace(name="a", index=index)}, monotonic=ManualClock())
    source = SimpleNamespace(
        assigned=frozenset, generation=lambda: 1, committed_offsets=lambda **_: asked.append(1) or {}
    )
    ownership.announce(fences, {partition: 0})
    check_if_due(ownership, source)
    if fails == "batch":
        ownership.forget_fences()
    elif fails == "finish":
        index.fence(partition, 2, 0)  # another process has taken the partition over
        ownership.finish({partition: 1}, fences, {})
    check_if_due(ownership, source)
    asked.clear()
    ownership.announce({partition: index.fence(partition, 2, 0)}, {partition: 1})
    check_if_due(ownership, source)
    assert bool(asked) is (fails != "nothing")


def test_a_mark_behind_the_commit_is_raised_unless_the_partition_ends_before_the_commit():
    marks = {}
    for end in (None, 9, 8):
        index, partition = MemoryIndex(), Partition("a", 0)
        index.open({})
        index.fence(partition, 1, 7, state=BrokerState("id"))
        committed_offset = CommittedOffset(9, topic_id="id")
        source = SimpleNamespace(
            assigned=lambda: frozenset([Partition("a", 0)]),
            generation=lambda: 1,
            committed_offsets=lambda **_: {Partition("a", 0): committed_offset},  # noqa: B023  called in this pass
            committed_offset=lambda _: committed_offset,  # noqa: B023
            end=lambda _, end=end: end,
            confirm=lambda: None,
        )
        ownership = PartitionOwnership({"a": SimpleNamespace(name="a", index=index)})
        assert ownership.check_for_losses(source) == []
        marks[end] = index.partition_states([partition])[partition].high_water_mark
    assert marks == {None: 9, 9: 9, 8: 7}


def test_the_attempt_after_one_of_a_partition_without_a_commit_is_later():
    index, partition = MemoryIndex(), Partition("a", 0)
    index.open({})
    earlier = f"{2**43:013d}.{7:010d}.{1:017d}"  # of a process with a clock that was ahead
    index.announce(earlier, [index.fence(partition, 1, 0)], {partition: 0})
    ownership = PartitionOwnership({"a": SimpleNamespace(name="a", index=index, fingerprint={})})
    source = SimpleNamespace(
        committed_offset=lambda _: None, committed_offsets=lambda **_: {}, end=lambda _: 1, confirm=lambda: None
    )
    batch = Batch((Record(Position("a", 0, 0), 0, None, b""),), generation=2)
    assert ownership.announce(ownership.take_over(batch, source), batch.starts) > earlier


def test_a_partition_that_was_revoked_is_compared_when_it_returns():
    asked, counts, one = [], [], frozenset([Partition("a", 0)])
    both = one | {Partition("a", 1)}
    source = SimpleNamespace(
        generation=lambda: 1,
        committed_offsets=lambda *, stable: asked.append(stable) or {},
    )
    ownership = PartitionOwnership({}, monotonic=ManualClock())
    for partitions in (both, one, both, both):
        source.assigned = lambda partitions=partitions: partitions
        check_if_due(ownership, source)
        counts.append(len(asked))
    assert counts == [1, 1, 2, 2]


def test_an_idle_daemon_notices_in_a_new_generation_that_its_index_is_gone():
    world = World(BEFORE).run()
    world.server.go_back(None, restarts=False)
    world.broker.rebalance(GROUP)
    since_s = CLOCK.now_s

    def turns_for_some_seconds() -> None:
        while CLOCK.now_s - since_s < 5:
            world.turn(world.daemons[0])

    with pytest.raises(IndexLost, match="the index is gone"):
        turns_for_some_seconds()


# A batch asks once more if it has partitions without a commit, which two batches have of one record each.
@pytest.mark.parametrize(("batch_size", "later"), [(1, 3), (9, 2)])
def test_only_the_comparison_after_an_assignment_waits_for_open_transactions(monkeypatch, batch_size, later):
    asked, committed_offsets = [], MemorySource.committed_offsets

    def recorded(source, *, stable=True):
        asked.append(stable)
        return committed_offsets(source, stable=stable)

    monkeypatch.setattr(MemorySource, "committed_offsets", recorded)
    World(BEFORE, batch_size=batch_size).run()
    assert asked == [True, *[False] * later]


@pytest.mark.parametrize("copy", [None, "copy"])
def test_a_loss_that_is_accepted_is_logged_once_also_for_partitions_without_records(copy):
    world = World(BEFORE, on_index_lost="continue").run()
    world.server.save("copy")
    world.send(Sent("d", OTHER_TEXT, 1)).run()
    world.stop_all()
    world.server.go_back(copy)
    world.turn(world.start("later"))
    assert world.index._announced[Partition(INPUT, 1)].start == 2  # a later gap begins behind the accepted records
    world.start_later(on_index_lost="fail")
    assert world.send(Sent("e", OTHER_TEXT, 0)).run().done


#: Batches of two records leave a committed attempt of partition 0 in the index, from which a gap is counted.
IN_TWO_BATCHES = [*BEFORE, Sent("y", "grove heath inlet", 0), Sent("z", "fjord ember delta", 0)]


def kinds(daemon: Daemon) -> dict[str, float]:
    """How many rebuilds a daemon has counted, by their kinds."""
    counts = {kind: daemon.metric("index_rebuilds_total", kind=kind, profile="articles") for kind in REBUILD_KINDS}
    return {kind: count for kind, count in counts.items() if count}


@pytest.mark.parametrize("kind", ["lost", "gap"])
def test_a_loss_that_is_made_good_leaves_its_kind_in_a_counter(kind):
    world = World(IN_TWO_BATCHES, on_index_lost="rebuild", batch_size=2).run()
    world.server.save("copy")
    world.send(Sent("d", OTHER_TEXT, 1)).run()
    assert kinds(world.daemons[0]) == {}
    world.server.go_back(None if kind == "lost" else "copy")
    with capture_logs() as events:
        world.send(Sent("e", OTHER_TEXT, 0)).run()
    assert kinds(world.daemons[0]) == {kind: 1}
    assert [event["kind"] for event in events if event["event"] == "index_rebuilt"] == [kind]


def test_a_gap_that_begins_more_than_half_a_lifetime_ago_counts_as_a_loss():
    counted = []
    for age_ms in (500, 501):
        world = World(IN_TWO_BATCHES, on_index_lost="rebuild", batch_size=2, kept_ms=1_000).run()
        world.server.save("copy")
        world.send(Sent("d", OTHER_TEXT, 1)).run()
        world.server.go_back("copy")
        committed_offsets = {partition: world.broker.committed_offset(GROUP, partition) for partition in world.ends}
        world.now_ms = find_losses(world.index, committed_offsets)[0].gap.since_ms + age_ms
        world.send(Sent("e", OTHER_TEXT, 0)).run()
        counted.append(kinds(world.daemons[0]))
    assert counted == [{"gap": 1}, {"lost": 1}]


def build(world: World) -> None:
    """Build the index of daemons that start now, as a command does."""
    builder = Daemon(world, "command").rebuilder
    builder.begin("articles")
    committed_offsets = {partition: world.broker.committed_offset(GROUP, partition) for partition in world.ends}
    builder.rebuild("articles", committed_offsets, 0, tick=lambda: None)


def a_switch(on_index_lost: str, set_by_hand: Mapping[Partition, int] | None = None) -> tuple[World, Daemon]:
    """A daemon on an index that was prepared beside the one of another daemon, which committed more since.

    ``set_by_hand`` has offsets that an operator set before the preparation.
    """
    world = World(BEFORE, partitions=3).run()
    if set_by_hand:
        world.stop_all()
        world.broker.commit(GROUP, set_by_hand)
        world.start("old")
    world.prefix = "prepared"
    build(world)
    world.send(Sent("d", OTHER_TEXT, 0), Sent("e", OTHER_TEXT, 1)).run()
    return world, world.start_later(on_index_lost=on_index_lost)


@pytest.mark.parametrize("interrupted", [False, True])
@pytest.mark.parametrize("set_by_hand", [{}, {Partition(INPUT, 0): 2}, {Partition(INPUT, 2): 0}])
def test_a_switch_to_a_prepared_index_is_counted_as_such_and_never_shown_as_a_loss(set_by_hand, interrupted):
    world, new = a_switch("rebuild", set_by_hand)
    shown = set()

    def act(world, moment):
        shown.add(moment.daemon.metric("index_lost_timestamp_seconds"))
        if interrupted and moment.effect == "announce" and len(world.everyone) < 4:
            raise Killed

    world.plan = lambda _number: act
    world.send(Sent("f", OTHER_TEXT, 0)).run()
    assert shown == {0}
    (last,) = world.daemons
    assert kinds(last) == {"switch": 1}
    assert (last is new) is not interrupted


def test_an_index_is_prepared_again_after_a_switch_that_was_given_up():
    world, new = a_switch("rebuild")
    world.plan = once("insert_entries", killed)  # the new daemon has fenced the prepared index
    world.turn_until(new, lambda: new not in world.daemons)
    committed_offsets = {partition: world.broker.committed_offset(GROUP, partition) for partition in world.ends}
    builder = Daemon(world, "command").rebuilder
    builder.begin("articles", lambda: find_losses(world.index, committed_offsets))
    assert builder.rebuild("articles", committed_offsets, 0, tick=lambda: None) == (2, "switch")
    assert find_losses(world.index, committed_offsets) == []


def test_a_switch_whose_records_are_not_replayed_is_shown_as_a_loss():
    world, new = a_switch("continue")
    world.send(Sent("f", OTHER_TEXT, 0)).run()
    assert new.metric("index_lost_timestamp_seconds") > 0
    assert kinds(new) == {}


def test_an_index_that_went_back_after_a_switch_has_a_gap():
    world, new = a_switch("rebuild")
    world.send(Sent("f", OTHER_TEXT, 0)).run()
    world.server.save("copy")
    world.send(Sent("g", OTHER_TEXT, 0)).run()
    world.server.go_back("copy")
    world.send(Sent("h", OTHER_TEXT, 0)).run()
    assert kinds(new) == {"switch": 1, "gap": 1}


def test_an_index_that_went_back_to_the_end_of_a_rebuild_in_place_has_a_gap():
    world = World(BEFORE, on_index_lost="rebuild").run()
    world.stop_all()
    build(world)
    world.server.save("copy")
    world.start("b")
    world.send(Sent("g", OTHER_TEXT, 0)).run()
    world.server.go_back("copy")
    world.send(Sent("h", OTHER_TEXT, 0)).run()
    assert kinds(world.daemons[0]) == {"gap": 1}


def test_a_document_that_was_deleted_and_inserted_again_is_not_in_its_former_cluster_after_a_rebuild():
    world = World([Sent("x", TEXT, 0), Sent("y", TEXT, 0)], on_index_lost="rebuild", batch_size=1).run()
    for document in ("y", "x"):
        world.send(Sent(document, "", 0, op="delete")).run()
    world.send(Sent("y", TEXT, 0)).run()
    world.server.go_back(None)
    world.start_later()
    world.send(Sent("z", TEXT, 0)).run()
    (*_, alert) = [decode_alert(record.value) for record in world.broker.records(DUPLICATES)]
    assert (alert.document.id, alert.cluster_id, alert.cluster_size) == ("z", "y", 2)


@pytest.mark.parametrize(
    "records",
    [
        [Sent("y", TEXT, 0), Sent("y", OTHER_TEXT, 0)],
        [Sent("y", TEXT, 0), Sent("w", OTHER_TEXT, 0), Sent("y", OTHER_TEXT, 0), Sent("y", TEXT, 0)],
        [Sent("y", "amber birch", 0), Sent("y", "cedar delta ember", 0, op="append"), Sent("y", "amber birch", 0)],
    ],
    ids=["once", "and back", "and back to the text before an append"],
)
def test_a_document_that_has_left_its_cluster_is_not_in_it_after_a_rebuild(records):
    world = World([Sent("x", TEXT, 0), *records], on_index_lost="rebuild", batch_size=1).run()
    assert decode_alert(world.broker.records(DUPLICATES)[0].value).cluster_id == "x"
    world.server.go_back(None)
    world.start_later()
    world.send(Sent("z", "inlet fjord", 0)).run()
    number = document_number("articles", "y")
    assert world.index.get_entries([number])[number].cluster == number


@pytest.mark.parametrize("is_committed", [True, False])
def test_an_index_that_is_new_after_the_loss_of_another_one_is_not_shown_as_lost(is_committed):
    """A write has noticed the loss of the index ``a``; partitions of ``b`` are assigned after the loss was accepted."""
    losses = [Loss(Partition("a", 0), CommittedOffset(1), "lost")] if is_committed else []
    shown, assigned = [], {Partition("a", 0)}

    def open_index(_fingerprint, *, create):
        return Opening(is_created=True) if create else None

    index = SimpleNamespace(open=open_index, count_connections=lambda: 0)
    pipelines = {n: SimpleNamespace(name=n, index=index, fingerprint={}, silent_until_ms=None) for n in "ab"}
    ownership = SimpleNamespace(
        is_check_due=always, check_for_losses=lambda _source: tuple(losses), accept_losses=lambda *_: losses.clear()
    )
    source = SimpleNamespace(generation=lambda: 1, assigned=lambda: assigned)
    rebuilder = rebuild.Rebuilder(pipelines.get, None, DUPLICATES)
    statistics = SimpleNamespace(index_lost=shown.append)
    recovery = Recovery(pipelines, ownership, "continue", rebuilder, statistics, tick=lambda: None)
    recovery.report_loss(IndexLost("gone"))
    assert recovery.recover_or_create(source) == is_committed
    assert set(shown) == {"a"}
    shown.clear()
    assigned.add(Partition("b", 0))
    assert not recovery.recover_or_create(source)
    assert shown == []


def test_an_empty_store_is_left_as_it_is_by_a_daemon_that_ends():
    world = World(BEFORE).run()
    world.server.go_back(None)
    world.start_later()
    with pytest.raises(IndexLost):
        world.turn(world.daemons[0])
    assert world.index.open({"bands": 6}, create=False) is None


# Rebuilds


def alerts_of(world: World) -> list[tuple]:
    """Return the alerts in an order of their own, without the moment."""
    alerts = [decode_alert(record.value) for record in world.broker.records(DUPLICATES)]
    return sorted((each.document.id, each.document.position, each.cluster_id, each.matches) for each in alerts)


def test_a_rebuild_claims_the_pairs_of_its_profile_among_records_of_other_programs_and_profiles():
    world = World(on_index_lost="rebuild")
    for value in (None, b"no alert", b"{}"):
        world.broker.produce(DUPLICATES, value)
    world.send(*BEFORE).run()
    (alert,) = world.broker.records(DUPLICATES)[3:]
    pair = decode_alert(alert.value).matches[0].pair
    foreign = alert.value.replace(b'"profile":"articles"', b'"profile":"reviews"')
    world.broker.produce(DUPLICATES, foreign.replace(pair.encode(), pair[::-1].encode()))
    world.broker.produce(DUPLICATES, alert.value.replace(pair.encode(), b"zz" * 16))
    world.broker.produce(DUPLICATES, b'{"x":' + b"[" * 2_000)
    world.server.go_back(None)
    world.start_later()
    world.send(Sent("d", "heath grove fjord", 0)).run()
    assert world.index.count_claims() == 1


def test_a_rebuild_does_not_hold_the_claims_of_all_alerts_at_once(monkeypatch):
    monkeypatch.setattr(rebuild_seeds, "_FULL", 1)
    world = World([Sent(name, TEXT, 0) for name in "abcde"], on_index_lost="rebuild").run()
    world.server.go_back(None)
    world.start_later()
    world.trace.clear()
    world.send(Sent("z", OTHER_TEXT, 0)).run()
    # The history returns the four alerts in two batches.
    assert [moment.effect for moment in world.trace].count("claim_pairs") == 2


def test_a_daemon_that_is_asked_to_stop_gives_up_the_index_that_it_begins():
    world = World(BEFORE, on_index_lost="rebuild").run()
    world.server.go_back(None)
    daemon = world.start_later()

    def stop(_world, _moment) -> None:
        daemon.stop.stopping = True

    world.plan = once("clear", stop)
    world.turn_until(daemon, lambda: daemon.stop.stopping)
    assert world.index.held_by() is None
    assert not daemon.rebuilder.has_begun("articles")
    assert (daemon.metric("store_errors_total"), daemon.loop.readiness.problem()) == (0, "waiting for the index")


def test_a_daemon_that_is_asked_to_stop_while_it_joins_anew_gives_up_the_index_that_it_has_begun():
    world = World(BEFORE, on_index_lost="rebuild").run()
    world.server.go_back(None)
    daemon = world.start_later()
    world.turn_until(daemon, lambda: daemon.rebuilder.has_begun("articles"))
    assert world.index.held_by() is not None
    daemon.stop.stopping = True
    daemon.loop.run()
    assert world.index.held_by() is None


def test_a_daemon_ends_when_its_index_was_built_anew_with_other_parameters_and_goes_on_with_the_same():
    world = World(BEFORE).run()
    world.index._fingerprint = {**FINGERPRINT, "rebuilt_s": 1.5}
    world.daemons[0].leave_group()
    world.send(Sent("d", OTHER_TEXT, 0)).run()
    world.index._fingerprint = {"bands": 5}
    world.daemons[0].leave_group()
    with pytest.raises(IndexMismatch, match="bands is 5 in the index and 6 in the settings"):
        world.turn(world.daemons[0])


class StagingOfSeveral:
    """Two indexes that are built by one rebuilder, while time passes at every step."""

    def __init__(self, monkeypatch):
        self.now_s = 0.0
        self.kept_at: dict[str, list[float]] = {"a": [], "b": []}
        self.world = World(BEFORE).run()
        self.link = Link()
        self.world.stop_all()
        self.committed_offsets = {partition: CommittedOffset(end) for partition, end in self.world.ends.items()}
        self.committed_offsets[Partition("of another profile", 0)] = CommittedOffset(7)
        monkeypatch.setattr(rebuild, "time", self)
        self.rebuilder = rebuild.Rebuilder(self.open_target, MemoryHistory(self.world.broker, 1), DUPLICATES)

    def monotonic(self) -> float:
        return self.now_s

    def step(self) -> None:
        self.now_s += 20

    def open_target(self, name):
        store = Connection(self.world.server, name, name, lambda _effect: "", self.link, in_staging=True)
        staging = store.staging()
        extend_lease = staging.extend_lease

        def note_and_extend():
            self.kept_at[name].append(self.now_s)
            extend_lease()

        staging.extend_lease = note_and_extend
        pipeline = a_pipeline(name, self.world.make_detector, store)
        return RebuildTarget(staging, pipeline, [INPUT], None, None)


def test_an_index_that_waits_to_be_built_stays_reserved_while_another_one_is_begun_and_built(monkeypatch):
    several, asked_at = StagingOfSeveral(monkeypatch), []
    monkeypatch.setattr(Connection, "ping", lambda _: asked_at.append(several.now_s), raising=False)
    several.rebuilder.begin("b")
    several.rebuilder.begin("a", tick=several.step)
    begun_at = several.now_s
    assert several.rebuilder.rebuild("a", several.committed_offsets, 1, several.step) == (len(BEFORE), "lost")
    assert not several.rebuilder.has_begun("a")
    assert sum(at > begun_at for at in several.kept_at["a"]) >= len(BEFORE)  # for each batch, of one record
    kept_at = [*several.kept_at["b"], several.now_s]
    assert max(later - earlier for earlier, later in itertools.pairwise(kept_at)) <= 40
    # So that no server closes an idle connection.
    assert max(later - earlier for earlier, later in itertools.pairwise([*asked_at, several.now_s])) <= 40
    assert several.now_s > begun_at + 60 > 60
    assert several.world.server.index("a")._high_water_marks == several.world.ends  # and not of the other topic


def test_the_records_of_a_gap_are_not_read_whose_topic_was_deleted_after_the_rebuild_began(monkeypatch):
    several = StagingOfSeveral(monkeypatch)
    loss = Loss(Partition("deleted", 0), CommittedOffset(1), "gone back", Gap(0, 0))
    several.rebuilder.begin("a", lambda: [loss])
    assert several.rebuilder.rebuild("a", several.committed_offsets, 1, several.step) == (0, "gap")


def test_of_two_rebuilds_of_which_one_could_not_begin_none_runs_before_the_group_is_joined_anew():
    """The rebuild of ``a`` has begun; another process rebuilds ``b`` and completes it before the next turn."""
    names = ["a", "b"]
    begun = set()

    class Rebuilds:
        has_begun = begun.__contains__
        abandon = begun.clear

        def begin(self, name, losses, _tick):
            assert {loss.partition.topic for loss in losses()} == {name}
            if name == "b":
                names.remove("b")
                raise StoreUnavailable("rebuilt by another process")
            return None if name in begun or begun.add(name) else "lost"

    recovery = a_recovery(Rebuilds(), lambda: [a_loss(name) for name in names], names="ab")
    with pytest.raises(StoreUnavailable):
        recovery.recover_or_create(MEMBER)
    with pytest.raises(Rejoin):
        recovery.recover_or_create(MEMBER)


def test_an_index_that_another_process_rebuilds_is_waited_for_also_with_the_policy_fail():
    rebuilder = SimpleNamespace(has_begun=lambda _name: False)
    with pytest.raises(IndexBusy):
        a_recovery(rebuilder, lambda: [a_loss()], "fail", open_index=being_rebuilt).recover_or_create(MEMBER)


def test_the_time_of_a_loss_is_that_of_its_first_look_and_each_loss_has_its_own():
    found, shown = [[a_loss()], [a_loss()], [], [a_loss()]], []
    rebuilder = SimpleNamespace(has_begun=lambda _name: False, abandon=lambda: None)
    lost = {"index_lost": lambda name: shown.append((len(found), name))}
    recovery = a_recovery(rebuilder, lambda: found.pop(0), "continue", open_index=being_rebuilt, **lost)
    while found:
        with contextlib.suppress(IndexBusy):
            recovery.recover_or_create(MEMBER)
    assert shown == [(3, "a"), (0, "a")]


def test_a_batch_with_a_partition_whose_index_is_not_open_is_refused():
    opened = SimpleNamespace(open=lambda *_, **__: Opening(False), count_connections=lambda: 0)
    pipelines = {n: SimpleNamespace(name=n, index=opened, fingerprint={}, silent_until_ms=None) for n in "ab"}
    rebuilder = SimpleNamespace(has_begun="b".__eq__)
    recovery = Recovery(pipelines, SimpleNamespace(), "fail", rebuilder, SimpleNamespace(), tick=lambda: None)
    recovery.open()
    records = {n: Record(Position(n, 0, 3), 0, None, b"", ()) for n in "ab"}
    recovery.refuse_revoked(Batch((records["a"],)))
    with pytest.raises(BatchRefused):
        recovery.refuse_revoked(Batch((records["a"], records["b"])))


def test_a_daemon_without_partitions_shows_an_index_as_complete_after_a_comparison_alone():
    due, shown = iter([False, True, True]), []
    rebuilder = SimpleNamespace(has_begun=lambda _name: False, abandon=lambda: shown.append("abandoned"))
    recovery = a_recovery(rebuilder, list, index_complete=lambda *of: shown.append(of))
    recovery._ownership.is_check_due = lambda _source: next(due)
    assert not recovery.recover_or_create(MEMBER)
    assert shown == []
    assert not recovery.recover_or_create(MEMBER)
    recovery.confirm_index(MEMBER)
    assert shown == ["abandoned", ("a", None)] * 2


@pytest.mark.parametrize("is_created", [True, False])
def test_a_loss_that_a_write_has_found_is_shown_as_soon_as_the_index_is_created_anew(is_created):
    shown = []
    rebuilder = SimpleNamespace(has_begun=lambda _name: False)
    opened = Opening(is_created=is_created)
    recovery = a_recovery(rebuilder, list, index_lost=shown.append, open_index=lambda *_, **__: opened)
    recovery.report_loss(IndexLost("gone"))
    recovery.open()
    assert shown == ["a"] * is_created  # an index that exists is compared first


def test_an_index_with_a_loss_beside_the_gap_of_a_switch_is_shown_as_lost():
    losses, shown = [a_loss(gap=Gap(0, 0), is_switch=True), a_loss(number=1)], []
    rebuilder = SimpleNamespace(has_begun=lambda _name: False, begin=lambda *_: "lost")
    for of_recovery, expected in (losses, ["a"]), (losses[:1], []):
        recovery = a_recovery(rebuilder, lambda of_recovery=of_recovery: of_recovery, index_lost=shown.append)
        with pytest.raises(Rejoin):
            recovery.recover_or_create(MEMBER)
        assert shown == expected
        shown.clear()


def test_the_command_keeps_an_index_with_gaps_and_replaces_one_with_an_old_gap_or_more_or_no_losses(monkeypatch):
    monkeypatch.setattr(clock, "now_ms", lambda: 5_000_000)
    profile = read_profile({"retention": "1h", "retention_slack": "0s"}, {"retention", "retention_slack"})
    gap, old_gap = (Loss(Partition("a", 0), CommittedOffset(1), "gone back", Gap(0, 3_200_000 - age)) for age in (0, 1))
    losses = ([gap], [old_gap], [gap, Loss(Partition("a", 1), CommittedOffset(1), "lost")], [])
    fillable = [index_building.are_fillable(losses_of_index, profile) for losses_of_index in losses]
    assert fillable == [True, False, False, False]


def patch_commands(monkeypatch, patches):
    """Replace names in the modules of the commands that use them."""
    for name, patch in patches.items():
        modules = [module for module in (commands, index_building) if hasattr(module, name)]
        assert modules, name
        for module in modules:
            monkeypatch.setattr(module, name, patch)


def test_the_command_asks_before_it_replaces_an_index_and_replaces_none_unasked_whose_gap_grows_too_old(monkeypatch):
    profile = read_profile({"retention": "1h", "retention_slack": "0s"}, {"retention", "retention_slack"})
    gap = Loss(Partition("b", 0), CommittedOffset(1), "gone back", Gap(0, 3_200_000))
    now, asked, begun = [5_000_000], [], []

    def confirm(question, **_):
        asked.append(question)
        now[0] += 1

    def begin(name, find_losses):
        begun.append((name, find_losses and find_losses()))

    backend = SimpleNamespace(address="memory", require_usable=list)
    backend.inspector = lambda _name: SimpleNamespace(fingerprint=dict)
    told = []
    patches = {
        "load_settings": lambda *_: SimpleNamespace(
            profiles=dict.fromkeys("ab", profile), kafka=SimpleNamespace(group_id="g")
        ),
        "tell": lambda text, **_: told.append(text),
        **dict.fromkeys(("kafka_options", "read_committed_offsets"), lambda _: {}),
        "connect_backend": lambda _settings: contextlib.nullcontext(backend),
        "losses_by_profile": lambda *_: {"a": [], "b": [gap]},
        "confirm": confirm,
        "rebuilder": lambda *_: SimpleNamespace(begin=begin, abandon=lambda: begun.append("abandoned")),
        **dict.fromkeys(("await_no_members", "require_confirmable"), lambda *_, **__: None),
    }
    monkeypatch.setattr(clock, "now_ms", lambda: now[0])
    patch_commands(monkeypatch, patches)
    with pytest.raises(StreamdedupError, match="the gap of b is too old by now: run the command again"):
        commands.rebuild()
    assert asked == ["Replace the index of a at memory?"]
    assert told[0].startswith("The group g has no committed offsets in the topics of a: the new index will be empty")
    assert begun == [("a", None), "abandoned"]


@pytest.mark.parametrize("error", [None, StoreUnavailable("away")])
def test_an_index_is_dropped_under_a_lease_which_is_given_up_also_after_an_error(error):
    calls = []

    def clear():
        calls.append("clear")
        if error is not None:
            raise error
        return 7

    staging = SimpleNamespace(
        take_lease=lambda **_: calls.append("take"), clear=clear, abandon=lambda: calls.append("abandon")
    )
    with contextlib.nullcontext() if error is None else pytest.raises(StoreUnavailable):
        assert delete_index(staging) == 7
    assert calls == ["take", "clear", "abandon"]


@pytest.mark.parametrize(("kind", "done"), [("lost", "rebuilt"), ("gap", "complete again")])
def test_the_command_says_whether_the_whole_index_was_rebuilt_also_where_a_gap_was_given_up(monkeypatch, kind, done):
    told = []
    patches = {
        "load_settings": lambda *_: SimpleNamespace(profiles={"a": None}),
        **dict.fromkeys(("kafka_options", "read_committed_offsets"), lambda _: {}),
        "connect_backend": lambda _settings: contextlib.nullcontext(SimpleNamespace(require_usable=list)),
        "losses_by_profile": lambda *_: {"a": []},
        "are_fillable": lambda *_: True,
        "rebuild_indexes": lambda *_: {"a": Rebuilt(3, kind)},
        "await_no_members": lambda *_, **__: None,
        "tell": told.append,
    }
    patch_commands(monkeypatch, patches)
    commands.rebuild()
    assert told == [f"a: {done} from 3 records"]


def patched_commands(monkeypatch, **patches):
    """Put other parts behind the commands for an index; return the settings, with two profiles."""
    profiles = {"p": SimpleNamespace(topics=["a", "b"]), "q": SimpleNamespace(topics=["c"])}
    kafka = SimpleNamespace(group_id="g")
    settings = SimpleNamespace(profiles=profiles, service=SimpleNamespace(on_index_lost="rebuild"), kafka=kafka)
    silent = dict.fromkeys(
        ("require_confirmable", "refuse_members", "confirm", "members_of_index"), lambda *_, **__: ()
    )
    always = {"load_settings": lambda *_: settings, "kafka_options": lambda _settings: kafka}
    patch_commands(monkeypatch, {**silent, **always, **patches})
    return settings


@pytest.mark.parametrize("rounds_s", [[5], [90, 5], [90, 73], [90, 71, 60], [6, 4.9]])
def test_a_preparation_ends_with_a_short_round_or_one_hardly_shorter_than_the_round_before(monkeypatch, rounds_s):
    time, left_s = ManualClock(), [*rounds_s, "a round too many"]
    settings = patched_commands(
        monkeypatch,
        time=SimpleNamespace(monotonic=time),
        read_committed_offsets=lambda _options: {},
        describe_group=lambda _options: SimpleNamespace(missing_topics=frozenset()),
        rebuilder=lambda *_: SimpleNamespace(begin=lambda *_, **__: time.sleep(left_s.pop(0))),
    )
    backend = SimpleNamespace(index=lambda _name: None)
    assert index_building.prepare_indexes(settings, ["p"], backend, None) == pytest.approx(rounds_s[-1])
    assert len(left_s) == 1


@pytest.mark.parametrize(
    ("fits", "gap", "refusal"),
    [
        (True, Gap(0, 0), "has no committed offsets"),
        (True, None, "other parameters or offsets at here"),
        (False, Gap(0, 0), "other parameters or offsets at here"),
    ],
)
def test_no_index_is_prepared_over_one_with_other_parameters_or_offsets(monkeypatch, fits, gap, refusal):
    backend = SimpleNamespace(require_usable=list, where=lambda _name: "here")
    backend.inspector = lambda _name: SimpleNamespace(fingerprint=dict)
    losses = [Loss(Partition("a", 0), CommittedOffset(1), "lost", gap)]
    patched_commands(
        monkeypatch,
        connect_backend=lambda _settings: contextlib.nullcontext(backend),
        losses_by_profile=lambda *_: {"p": losses},
        fits=lambda *_: fits,
        read_committed_offsets=lambda _options: {},
    )
    with pytest.raises(SettingsError, match=refusal):
        commands.prepare(profile=["p"])


def test_all_partitions_of_all_topics_are_unfenced(monkeypatch):
    unfenced = []
    backend = SimpleNamespace(index=lambda name: SimpleNamespace(unfence=lambda part: unfenced.append((name, *part))))
    patched_commands(
        monkeypatch,
        connect_backend=lambda _settings: contextlib.nullcontext(backend),
        require_topics=lambda _options: {"a": 1, "b": 2, "c": 1},
    )
    commands.unfence(yes=True)
    assert unfenced == [("p", "a", 0), ("p", "b", 0), ("p", "b", 1), ("q", "c", 0)]


def test_no_partition_is_unfenced_where_a_daemon_started_while_the_user_was_asked(monkeypatch):
    members = []

    def refuse_members(*_arguments):
        if members:
            raise StreamdedupError("daemons are running")

    patched_commands(
        monkeypatch,
        require_topics=lambda _options: {"a": 1, "b": 2, "c": 1},
        confirm=lambda _question, **_options: members.append("daemon"),
        refuse_members=refuse_members,
        connect_backend=lambda _settings: pytest.fail("the index is used"),
    )
    with pytest.raises(StreamdedupError, match="daemons are running"):
        commands.unfence()


def test_a_rebuild_of_an_index_without_losses_gives_up_the_lease_and_deletes_nothing():
    calls = []
    staging = SimpleNamespace(take_lease=lambda: calls.append("take"), abandon=lambda: calls.append("abandon"))
    alerts, pipeline = SimpleNamespace(ping=lambda: None), SimpleNamespace(index=MemoryIndex())
    target = SimpleNamespace(staging=staging, pipeline=pipeline, alert_reader=alerts, lifetime_ms=None)
    rebuilder = rebuild.Rebuilder(lambda _name: target, None, "duplicates")
    assert not rebuilder.begin("articles", list)
    assert (calls, rebuilder.has_begun("articles")) == (["take", "abandon"], False)


def test_a_registry_that_is_away_ends_a_rebuild_before_anything_is_deleted():
    def ping():
        raise RegistryUnavailable("away")

    staging = SimpleNamespace()  # no call works
    target = SimpleNamespace(staging=staging, alert_reader=SimpleNamespace(ping=ping))
    rebuilder = rebuild.Rebuilder(lambda _name: target, None, "duplicates")
    with pytest.raises(RegistryUnavailable):
        rebuilder.begin("articles")
    assert not rebuilder.has_begun("articles")


def test_a_rebuild_keeps_the_membership_and_after_it_failed_the_others_that_have_begun_begin_again(monkeypatch):
    """Their losses may have grown."""
    begun = set()

    def begin(name, *_):
        begun.add(name)
        return "gap"

    def rebuild_one(_name, _offsets, _generation, step, **_):
        step()
        raise StoreUnavailable("made to fail")

    rebuilder = SimpleNamespace(begin=begin, has_begun=begun.__contains__, abandon=begun.clear, rebuild=rebuild_one)
    # By this clock each step is due to keep the membership.
    monkeypatch.setattr(rebuild, "time", SimpleNamespace(monotonic=itertools.count(step=1_000).__next__))
    kept, are_stable = [], []
    source = SimpleNamespace(**vars(MEMBER), keep_membership=kept.append)
    source.committed_offsets = lambda *, stable=True: are_stable.append(stable) or {}
    recovery = a_recovery(rebuilder, lambda: [a_loss(name) for name in "ab"], names="ab")
    with pytest.raises(Rejoin):
        recovery.recover_or_create(source)
    rebuilder.begin = lambda *_: None
    with pytest.raises(StoreUnavailable):
        recovery.recover_or_create(source)
    assert not begun
    assert len(kept) == 1
    assert are_stable == [True], "an open transaction may commit later offsets than the rebuild reads to"


def test_an_index_whose_rebuild_another_daemon_has_completed_is_used_and_not_shown_as_lost_any_more():
    world = World(BEFORE, on_index_lost="rebuild").run()
    world.server.go_back(None)
    slow = world.start_later()
    world.turn_until(slow, lambda: slow.rebuilder.has_begun("articles"))
    assert slow.metric("index_lost_timestamp_seconds") > 0
    world.index.lease = "", 0  # the daemon is away for longer than the lease
    slow.leave_group()
    other = world.start("other")
    world.turn_until(other, lambda: world.index._fingerprint is not None)
    other.stop.stopping = True
    other.loop.run()
    world.daemons.remove(other)
    assert world.send(Sent("late", TEXT)).run().pairs() == [("a", "b"), ("a", "late"), ("b", "late")]
    assert (slow.metric("index_lost_timestamp_seconds"), kinds(slow)) == (0, {})


def test_a_rebuild_ends_as_soon_as_a_connection_to_the_store_was_lost(monkeypatch):
    several = StagingOfSeveral(monkeypatch)
    several.rebuilder.begin("a")
    progress = []

    def lose(_what, done, _total):
        progress.append(done)
        several.link.count += 1

    with pytest.raises(StoreUnavailable, match="was lost"):
        several.rebuilder.rebuild("a", several.committed_offsets, 1, several.step, lose)
    assert progress == [0]


def test_a_rebuild_is_refused_if_a_connection_was_lost_since_the_deletion_of_the_index_began(monkeypatch):
    """A part of the deletion may be undone."""
    several = StagingOfSeveral(monkeypatch)

    def lose():
        several.link.count += 1

    several.rebuilder.begin("a", tick=lose)
    with pytest.raises(StoreUnavailable, match="was lost"):
        several.rebuilder.rebuild("a", several.committed_offsets, 1, several.step)
    assert not several.world.server.index("a")._high_water_marks


def test_the_deletion_may_be_the_first_to_need_a_connection_to_each_server(monkeypatch):
    several = StagingOfSeveral(monkeypatch)

    def connect(*_):
        several.link.count = 3

    monkeypatch.setattr(Connection, "ping", connect, raising=False)
    several.rebuilder.begin("a", tick=connect)
    assert several.rebuilder.rebuild("a", several.committed_offsets, 1, several.step).kind == "lost"


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_connection_that_is_lost_behind_the_last_record_is_noticed_before_anything_is_announced_or_completed(
    monkeypatch, is_committed
):
    several = StagingOfSeveral(monkeypatch)
    several.rebuilder.begin("a")
    attempt_id = f"{0:013d}.{1:010d}.{1:017d}"
    committed_offsets = {
        partition: CommittedOffset(end.offset, attempt_id) for partition, end in several.committed_offsets.items()
    }
    steps = []

    def lose_at_the_end(what, _done, _total):
        steps.append(what)
        several.link.count += steps.count(DUPLICATES) == 2

    with pytest.raises(StoreUnavailable, match="was lost"):
        several.rebuilder.rebuild("a", committed_offsets if is_committed else {}, 1, several.step, lose_at_the_end)
    assert steps[-2:] == [DUPLICATES] * 2
    index = several.world.server.index("a")
    assert not index._announced
    assert index._fingerprint is None


def test_losses_are_looked_for_under_the_lease(monkeypatch):
    several = StagingOfSeveral(monkeypatch)
    holders = []

    def find_losses():
        holders.append(several.world.server.index("a").held_by())
        return []

    assert not several.rebuilder.begin("a", find_losses)
    assert holders == ["a"]


def test_a_rebuild_that_another_process_has_taken_over_is_left_alone(monkeypatch):
    several = StagingOfSeveral(monkeypatch)
    several.rebuilder.begin("a")
    target = several.rebuilder._begun["a"].target
    target.staging.abandon()
    with pytest.raises(BatchRefused, match="another process"):
        several.rebuilder.rebuild("a", {Partition(INPUT, 0): CommittedOffset(1)}, 1, lambda: None)
    assert not several.world.server.index("a")._high_water_marks


def test_a_rebuild_without_commits_that_is_taken_over_while_alerts_are_read_claims_nothing(monkeypatch):
    several = StagingOfSeveral(monkeypatch)
    several.kept_at["articles"] = []  # the profile of the alerts
    several.rebuilder.begin("articles")
    staging = several.rebuilder._begun["articles"].target.staging
    with pytest.raises(BatchRefused, match="another process"):
        several.rebuilder.rebuild("articles", {}, 1, lambda: None, lambda *_: staging.abandon())
    assert not several.world.server.index("articles")._claims.all_keys()


def test_all_rebuilds_that_have_begun_are_given_up(monkeypatch):
    several = StagingOfSeveral(monkeypatch)
    for name in ("a", "b"):
        several.rebuilder.begin(name)
    several.rebuilder.abandon()
    assert not any(several.rebuilder.has_begun(name) for name in ("a", "b"))


def test_a_gap_reaches_back_to_the_last_known_commit_and_not_to_an_announcement():
    index = MemoryIndex()
    index.open({})
    ids = [f"{1:013d}.{at:010d}.{at * 1_000_000:017d}" for at in range(5)]
    lost, other = Partition("articles", 0), Partition("articles", 1)
    index.announce(ids[1], [index.fence(lost, 1, 0)], {lost: 0})
    committed_offsets = {lost: CommittedOffset(9, ids[3])}
    assert [loss.gap for loss in find_losses(index, committed_offsets)] == [None]  # the index knows of no commit
    index.announce(ids[2], [replace(index.fence(lost, 1, 3), committed_id=ids[1])], {lost: 3})
    index.announce(ids[0], [index.fence(other, 1, 0)], {other: 0}, committed_id=ids[0])
    gap = Gap(3, 1_000)
    assert [loss.gap for loss in find_losses(index, committed_offsets)] == [gap]
    # A batch in progress of another partition, which is written after the index has gone back.
    index.announce(ids[4], [index.fence(other, 1, 0, ids[0])], {other: 0})
    assert [loss.gap for loss in find_losses(index, committed_offsets | {other: CommittedOffset(0, "")})] == [gap]
    new = Partition("articles", 2)
    assert [
        find_losses(index, {lost: committed_offsets[lost], new: CommittedOffset(5, known)})[1].gap
        for known in (ids[3], "")
    ] == [Gap(0, 1_000), None]
    # An offset that is not behind the start of the attempt was set back since.
    assert [find_losses(index, {lost: CommittedOffset(end, ids[3])})[0].gap for end in (2, 3, 4)] == [None, None, gap]
    # A copy from before a complete rebuild lacks claims that the rebuild restored.
    assert find_losses(index, {lost: CommittedOffset(9, f"{2:013d}{ids[3][13:]}")})[0].gap is None


def test_an_index_whose_slots_know_different_lineages_of_one_partition_of_several_has_no_gap():
    """A slot has gone back to a time before a loss of the first partition was accepted."""
    old, new = (f"{lineage:013d}.{1:010d}.{1_000_000:017d}" for lineage in (1, 2))
    first, second = Partition(INPUT, 0), Partition(INPUT, 1)
    committed_offsets = dict.fromkeys([first, second], CommittedOffset(9, new))
    gaps = []
    for latest in (old, new):
        states = {
            first: PartitionState(9, attempts=(AnnouncedAttempt(old, 3, old), AnnouncedAttempt(latest, 3, old))),
            second: PartitionState(9, attempts=(AnnouncedAttempt(new, 3),)),
        }
        gaps += [loss.gap for loss in losses_between(committed_offsets, states)]
    assert gaps == [Gap(3, 1_000), None]


def test_a_gap_begins_where_the_slots_begin_that_do_not_know_the_commit_and_at_0_where_the_mark_is_gone():
    """A slot has gone back with the fence of another daemon, which has announced a batch there since."""
    known, committed, stale = (f"{1:013d}.{at:010d}.{at * 1_000_000:017d}" for at in (1, 2, 3))
    partition = Partition(INPUT, 0)
    attempts = (
        AnnouncedAttempt(committed, 7, known),
        AnnouncedAttempt(stale, 3, known),
        AnnouncedAttempt(stale, 5, known),
    )
    for mark, incarnation, slots, gaps in (
        (9, 0, attempts, [Gap(3, 1_000)]),
        (9, 0, attempts[:1], []),
        (None, 0, attempts[:1], [Gap(0, 1_000)]),
        (9, 1, attempts, [Gap(0, 1_000)]),
    ):
        states = {partition: PartitionState(mark, incarnation, attempts=slots)}
        losses = losses_between({partition: CommittedOffset(9, committed, incarnation=incarnation)}, states)
        assert [loss.gap for loss in losses] == gaps


@pytest.mark.parametrize(
    ("loses", "is_gap"),
    [
        ("compact", False),
        ("compact before", True),
        ("truncate", False),
        ("truncate before", True),
        ("abort a transaction", True),
    ],
)
def test_a_gap_without_some_of_its_records_is_rebuilt_as_a_whole(loses, is_gap):
    """The tombstone of a document in the index may be among them."""
    world = World([Sent("x", TEXT, 0), Sent("y", OTHER_TEXT, 0)], on_index_lost="rebuild", batch_size=1).run()
    world.server.save("copy")
    more = "fjord grove heath inlet jetty"
    partition = Partition(INPUT, 0)
    world.send(Sent("x", "", 0, op="delete"))
    if loses == "abort a transaction":
        aborted = world.broker.begin("producer", world.broker.register("producer"))
        world.broker.append(Message(INPUT, None, b"aborted"), aborted, 0)
        world.broker.end("producer", "aborted")
    world.send(Sent("m", more, 0), Sent("n", more[6:], 0), Sent("u", "", 0, code="unreadable")).run()
    world.server.go_back("copy")
    begins = find_losses(world.index, {partition: world.broker.committed_offset(GROUP, partition)})[0].gap.start
    if loses.startswith("compact"):
        world.broker.compact(partition, *range(begins) if loses == "compact before" else (0, 2))
    elif loses.startswith("truncate"):
        world.broker.truncate(partition, begins if loses == "truncate before" else 3)
    world.start_later()
    with capture_logs() as logs:
        world.send(Sent("z", TEXT, 1)).run()
    assert [log["event"] for log in logs if "gap" in log["event"]] == ([] if is_gap else ["gap_given_up"])
    assert [log["event"] for log in logs].count("index_rebuild_begun") == 1
    assert [log["kind"] for log in logs if log["event"] == "index_rebuilt"] == ["gap" if is_gap else "lost"]
    assert all("x" not in pair for pair in world.pairs())


@pytest.mark.parametrize(
    ("age_h", "partition", "window_h", "kind"),
    [(1, 1, 1.5, "gap"), (2, 1, 1.5, "lost"), (2, 0, 1.5, "gap"), (2, 1, None, "gap"), (None, 1, 1.5, "gap")],
)
def test_a_gap_from_offset_0_is_filled_unless_it_has_records_that_daemons_may_have_skipped(
    age_h, partition, window_h, kind
):
    now_ms = clock.now_ms()
    before = [Sent("a", TEXT, 0, time_ms=now_ms), Sent("b", OTHER_TEXT, 0, time_ms=now_ms)]
    world = World(before, on_index_lost="rebuild", batch_size=1, now_ms=now_ms)
    open_target = world.open_target

    def open_target_with_window(owner, name):
        target = open_target(owner, name)
        max_age_ms = None if window_h is None else round(window_h * HOUR_MS)
        return replace(target, pipeline=replace(target.pipeline, max_start_age_ms=max_age_ms))

    world.open_target = open_target_with_window
    world.run().server.save("copy")
    time_ms = -1 if age_h is None else now_ms - age_h * HOUR_MS
    world.send(Sent("c", TEXT, partition, time_ms=time_ms), Sent("d", TEXT, 1, time_ms=now_ms)).run()
    world.server.go_back("copy")
    later = world.start_later()
    world.send(Sent("e", TEXT, 0, time_ms=now_ms)).run()
    assert kinds(later) == {kind: 1}


@pytest.mark.parametrize("kind", ["lost", "gap"])
def test_a_batch_that_is_too_large_for_the_memory_is_replayed_in_parts(monkeypatch, kind):
    world = World(IN_TWO_BATCHES, partitions=1, on_index_lost="rebuild").run()
    world.server.save("copy")
    sizes, more = [], [Sent(f"m{at}", f"{TEXT} {at}", 0) for at in range(6)]
    world.send(*more, Sent("huge", "knoll", 0)).run()
    world.server.go_back(None if kind == "lost" else "copy")

    class Short(Detector):
        def prepare(self, documents):
            sizes.append(len(documents))
            if len(documents) > 1:
                raise MemoryError
            return super().prepare(documents)

    decode = Decoder.decode

    def decode_unless_huge(decoder, position, time_ms, key, value, headers=()):
        if b"huge" in value:
            raise MemoryError
        return decode(decoder, position, time_ms, key, value, headers)

    monkeypatch.setattr(Decoder, "decode", decode_unless_huge)
    later = world.start_later(make_detector=Short)
    with capture_logs() as events:
        world.send(Sent("d", OTHER_TEXT, 0)).run()
    assert kinds(later) == {kind: 1}
    assert max(sizes) > 1
    assert [event["codes"] for event in events if event["event"] == "index_rebuild_skipped"] == ["1 too_large"]
    names = [sent.id for sent in [*IN_TWO_BATCHES, *more]]
    assert len(world.index.get_entries([document_number("articles", name) for name in names])) == len(names)


@pytest.mark.parametrize("recreated", [False, True])
def test_a_gap_is_filled_beside_a_match_of_a_batch_in_progress_with_a_document_that_the_gap_does_not_replace(recreated):
    world = World([Sent("q", "knoll lagoon jetty inlet", 0)], on_index_lost="rebuild", batch_size=1).run()
    if recreated:
        world.recreate(Sent("r", "tulip umber valley willow", 0))
        world.run()
    world.send(Sent("x", TEXT, 0)).run()

    def save_and_kill(world, _moment):
        world.server.save("copy")
        raise Killed

    world.plan = once("announce", save_and_kill)
    world.send(Sent("y", TEXT, 1))
    world.turn_until(world.daemons[0], lambda: len(world.everyone) == 2)  # killed and restarted
    world.send(Sent("m", "fjord grove heath inlet jetty", 0))
    world.turn_until(
        world.daemons[0],
        lambda: world.broker.has_committed(GROUP, {Partition(INPUT, 0): world.ends[Partition(INPUT, 0)]}),
    )
    world.server.go_back("copy")
    later = world.start_later()
    world.run()
    assert kinds(later) == {"gap": 1}
    assert world.pairs() == [("x", "y")]


def a_pipeline_with_scopes(name, make_detector, index):
    """Return the pipeline of a profile whose documents all have the default scope."""
    scopes = {"scope_field": "tenant", "default_scope": "all"}
    options = replace(turns.OPTIONS, **scopes)
    return replace(a_pipeline(name, make_detector, index), decoder=Decoder(**scopes), detector=Detector(options, index))


def test_before_a_gap_is_filled_batches_in_progress_without_a_commit_are_refused_and_their_matches_found():
    index, partition = MemoryIndex(), Partition("articles", 1)
    index.open(FINGERPRINT)
    in_progress = index.fence(partition, 1, 0)
    index.save_pending_matches([(in_progress.position_at(3), pending_of([b"pair"]))], [in_progress])
    history = SimpleNamespace(progress=lambda *_: {partition: None, Partition("articles", 2): None})
    run = a_run(index, gaps={}, history=history)
    fences = run._fence_uncommitted({})
    with pytest.raises(BatchRefused):
        index.finish({}, [], [in_progress])
    number = document_number("articles", "m")  # the match of `pending_of`
    assert [run._are_matched(numbers, fences) for numbers in ({number}, {number + 1})] == [True, False]


def test_the_lease_of_the_running_rebuild_is_extended_at_every_step(monkeypatch):
    several = StagingOfSeveral(monkeypatch)
    several.rebuilder.begin("a", tick=several.step)
    assert several.rebuilder.rebuild("a", several.committed_offsets, 1, several.step) == (len(BEFORE), "lost")
    kept_at = [*several.kept_at["a"], several.now_s]
    assert max(later - earlier for earlier, later in itertools.pairwise(kept_at)) <= 20


def test_a_rebuild_keeps_the_membership_once_an_interval(monkeypatch):
    clock, kept_at = ManualClock(), []
    monkeypatch.setattr(rebuild, "time", SimpleNamespace(monotonic=clock))
    source = SimpleNamespace(keep_membership=lambda _timeout_s: kept_at.append(clock()))
    tick = rebuild.keeping_membership(source, lambda: None)
    for _ in range(10):
        clock.now_s += 0.75
        tick()
    assert [later - earlier for earlier, later in itertools.pairwise(kept_at)] == [1.5] * 4


def test_fences_progress_and_incarnations_are_steps_of_a_rebuild(monkeypatch):
    world, steps = World(BEFORE).run(), []
    index = MemoryIndex()
    index.open(FINGERPRINT)
    committed_offsets = {partition: CommittedOffset(end) for partition, end in world.ends.items()}

    def count_of(step):
        steps.clear()
        step()
        return len(steps)

    run = a_run(
        index, committed_offsets, history=MemoryHistory(world.broker), tick=lambda: steps.append(1), lifetime_ms=1_000
    )
    fences = run._fence_committed()
    seeds = Seeds(run._pipeline, list(fences.values()), None)
    seeds._incarnations = dict.fromkeys(range(3), (0, "00"))
    monkeypatch.setattr(entry_chunks, "_REQUEST_ENTRIES", 1)
    partitions = len(committed_offsets)
    assert count_of(run._fence_committed) == partitions
    assert count_of(lambda: run._window(now_ms=2_000)) == partitions
    assert count_of(lambda: run._are_matched({1}, list(fences.values()))) == partitions
    assert count_of(lambda: run._fence_uncommitted({})) == 2 * partitions
    assert count_of(lambda: seeds.restore_incarnations(run._tick)) == 3 + partitions


def test_a_rebuild_announces_its_lineage_also_where_an_operator_has_set_the_offset():
    index, partition = MemoryIndex(), Partition("articles", 0)
    index.open({})
    run = a_run(index, {partition: CommittedOffset(9)})
    run._announce(run._fence_committed(), 6_000)
    assert lineage_of(index.partition_states([partition])[partition].least_announced) == 6_000


def test_a_commit_of_another_program_in_an_unused_index_is_no_switch():
    """The index is as ``index prepare`` leaves it; it has never seen the second partition."""
    ids = (f"{lineage:013d}.{at:010d}.{at * 1_000_000:017d}" for lineage, at in ((5, 1), (4, 1), (4, 2)))
    renewed, known, later = ids
    first, second = Partition(INPUT, 0), Partition(INPUT, 1)
    states = {first: PartitionState(9, attempts=(AnnouncedAttempt(renewed, 3, known),)), second: PartitionState(None)}
    for metadata, is_switch in ((later, True), ("", False)):
        committed_offsets = {first: CommittedOffset(9, later), second: CommittedOffset(9, metadata)}
        assert [loss.is_switch for loss in losses_between(committed_offsets, states)] == [True, is_switch]


@pytest.mark.parametrize("gap", [None, Gap(3, 1)])
def test_attempts_after_an_accepted_loss_are_later_than_the_committed_one(gap):
    index, partition = MemoryIndex(), Partition(INPUT, 0)
    index.open({})
    ownership = PartitionOwnership({INPUT: SimpleNamespace(name="articles", index=index)})
    committed_offset = CommittedOffset(9, f"{2**43:013d}.{7:010d}.{1:017d}")
    ownership.accept_losses([Loss(partition, committed_offset, "gone", gap)], generation=1)
    state = index.partition_states([partition])[partition]
    assert committed_offset.metadata == state.committed_id < state.least_announced
    # Of an index that is lost as a whole another copy may be in use.
    assert (lineage_of(state.least_announced) > lineage_of(committed_offset.metadata)) is (gap is None)
    assert find_losses(index, {partition: committed_offset}) == []


def test_alerts_are_read_from_the_earliest_record_of_all_polls_of_a_gap(monkeypatch):
    index, partition = MemoryIndex(), Partition(INPUT, 0)
    index.open(FINGERPRINT)
    run = a_run(index, gaps={partition: Gap(0, 50)})
    polls = [
        Batch((Record(Position(INPUT, 0, at), time_ms, None, b""),)) for at, time_ms in enumerate((30, -1, 20, 40))
    ]
    monkeypatch.setattr(run, "_gap_batches", lambda: iter(polls))
    monkeypatch.setattr(run, "_positions", lambda batch: {batch.records[0].position.offset: batch.records[0].position})
    stored = SimpleNamespace(position=Position(INPUT, 0, 9))
    monkeypatch.setattr(index, "get_entries", lambda numbers: dict.fromkeys(numbers, stored))
    matched = []
    monkeypatch.setattr(run, "_fence_uncommitted", lambda _fences: [])
    monkeypatch.setattr(run, "_are_matched", lambda numbers, _fences: matched.append(set(numbers)))
    assert run._survey_gaps({}, 100)
    assert run._alerts_ms == 20
    assert matched == [{0, 1, 2, 3}]


@pytest.mark.parametrize("is_given_up", [False, True])
def test_alerts_are_read_from_an_hour_before_a_gap_or_all_if_it_is_given_up_and_count_for_one_lifetime(
    monkeypatch, is_given_up
):
    hour_ms, seeds, since = 3_600_000, [], []
    staging, index = SimpleNamespace(clear=lambda _tick: None), MemoryIndex()
    target = RebuildTarget(staging, SimpleNamespace(name="articles", index=index), [INPUT], 1_000, 4_000)
    begun = BegunRebuild(target, {Partition(INPUT, 0): Gap(0, 5 * hour_ms)}, 0, "gap")
    run = RebuildRun(begun, None, {}, 2, lambda: None, lambda *_: None)
    monkeypatch.setattr(run, "_batches", lambda _topics, since_ms, ends: since.append(since_ms) or ())
    restored = SimpleNamespace(restore_incarnations=lambda _tick: None)
    monkeypatch.setattr(rebuild_run, "Seeds", lambda *arguments: seeds.append(arguments) or restored)
    monkeypatch.setattr(run, "_write", lambda *_: None)
    if is_given_up:
        run._give_up_gaps()
    run._seed("duplicates", [])
    assert since == [None if is_given_up else 4 * hour_ms]
    assert seeds == [(target.pipeline, [], 1_000)]


def test_an_index_that_goes_back_again_while_a_gap_is_filled_does_not_count_as_filled():
    index, partition = MemoryIndex(), Partition("articles", 0)
    index.open(FINGERPRINT)
    ids = [f"{1:013d}.{at:010d}.{at * 1_000_000:017d}" for at in range(4)]
    index.announce(ids[1], [index.fence(partition, 1, 0)], {partition: 0}, committed_id=ids[1])
    earlier = index._announced.copy()
    index.announce(ids[2], [index.fence(partition, 1, 3)], {partition: 3})
    run = a_run(index, {partition: CommittedOffset(9, ids[3])}, gaps={partition: Gap(3, 1)})
    fences = run._fence_committed()
    index._announced |= earlier
    with pytest.raises(IndexLost, match="earlier time"):
        run._announce(fences, 0)


def test_after_a_gap_is_filled_nothing_is_announced_in_partitions_without_a_gap():
    """Another daemon may have announced, and commit after the rebuild has read the committed offsets."""
    index, partitions = MemoryIndex(), [Partition(INPUT, number) for number in range(2)]
    index.open(FINGERPRINT)
    ids = [f"{1:013d}.{at:010d}.{at * 1_000_000:017d}" for at in range(3)]
    for partition in partitions:
        index.announce(ids[1], [index.fence(partition, 1, 0)], {partition: 0}, committed_id=ids[1])
    before = index.partition_states(partitions)
    committed_offsets = dict(zip(partitions, [CommittedOffset(9, ids[2]), CommittedOffset(3, ids[1])], strict=True))
    run = a_run(index, committed_offsets, gaps={partitions[0]: Gap(3, 1)})
    run._announce(run._fence_committed(), 0)
    after = index.partition_states(partitions)
    assert [after[partition].attempts == before[partition].attempts for partition in partitions] == [False, True]
    assert find_losses(index, committed_offsets) == []


def test_a_rebuilt_index_with_scopes_knows_the_cluster_of_a_document_that_was_continued(monkeypatch):
    monkeypatch.setattr(turns, "a_pipeline", a_pipeline_with_scopes)
    world = World([Sent("x", TEXT, 0), Sent("y", TEXT, 0)], on_index_lost="rebuild", batch_size=1).run()
    world.send(Sent("y", "knoll", 0, op="append")).run()
    number = document_number("articles", "y")
    cluster = world.index.get_entries([number])[number].cluster
    world.server.go_back(None)
    world.start_later()
    world.send(Sent("z", OTHER_TEXT, 0)).run()
    assert world.index.get_entries([number])[number].cluster == cluster != number


CONTINUED = [Sent("y", "amber birch", 0), Sent("y", "cedar delta ember", 0, op="append")]
FURTHER, CHANGED = Sent("y", "fjord", 0, op="append"), Sent("x", OTHER_TEXT, 0)


def assert_rebuilt_with_y_in_the_cluster_of_x(world):
    """Lose the index, and compare the cluster of y before with that after the rebuild."""
    number = document_number("articles", "y")
    cluster = world.index.get_entries([number])[number].cluster
    world.server.go_back(None)
    world.start_later()
    world.send(Sent("z", "tulip umber valley", 0)).run()
    assert world.index.get_entries([number])[number].cluster == cluster == document_number("articles", "x")


@pytest.mark.parametrize(
    ("records", "recreated"),
    [
        (CONTINUED, False),
        (CONTINUED, True),
        ([*CONTINUED, FURTHER], False),
        ([*CONTINUED, FURTHER], True),
        ([*CONTINUED, CHANGED], False),
        ([Sent("y", TEXT, 0), FURTHER, CHANGED], True),
    ],
)
def test_a_rebuilt_index_knows_the_cluster_that_a_document_joined_when_it_was_continued(records, recreated):
    world = World([Sent("q", "knoll lagoon jetty inlet", 0)], on_index_lost="rebuild", batch_size=1).run()
    if recreated:
        world.recreate()
    world.send(Sent("x", TEXT, 0), *records).run()
    assert_rebuilt_with_y_in_the_cluster_of_x(world)


def test_an_alert_whose_match_has_changed_since_hides_no_earlier_alert_of_the_cluster():
    first, last = "amber birch cedar", "grove heath inlet"
    whole = f"{first} delta ember fjord {last}"
    parts = [Sent("y", whole.removesuffix(last), 0), Sent("w", whole.removeprefix(first), 0)]
    world = World([Sent("x", whole, 0), *parts], on_index_lost="rebuild", batch_size=1).run()
    world.send(Sent("y", last, 0, op="append")).run()
    assert [(name, cluster, matches[0].id) for name, _, cluster, matches in alerts_of(world)] == [
        ("w", "x", "x"),
        ("y", "x", "x"),
        ("y", "x", "w"),
    ]
    world.send(Sent("w", OTHER_TEXT, 0), Sent("y", "knoll", 0, op="append")).run()
    assert_rebuilt_with_y_in_the_cluster_of_x(world)


def test_an_append_that_was_alerted_after_a_further_one_takes_no_document_out_of_its_cluster():
    first, last = "amber birch cedar", "grove heath inlet"
    whole = f"{first} delta ember fjord {last}"
    parts = [Sent("y", whole.removesuffix(last), 0), Sent("w", whole.removeprefix(first), 0)]
    world = World([Sent("x", whole, 0), *parts], on_index_lost="rebuild").run()
    world.plan = once("announce", killed)
    world.send(Sent("y", last, 0, op="append"), Sent("y", "knoll", 0, op="append")).run()
    assert [(name, cluster) for name, _, cluster, _ in alerts_of(world)] == [("w", "x"), ("y", "x"), ("y", "y")]
    assert_rebuilt_with_y_in_the_cluster_of_x(world)


def test_a_pair_of_a_continued_document_shows_no_cluster_in_another_scope():
    index, position = MemoryIndex(), Position(INPUT, 0, 7)
    index.open(FINGERPRINT)
    fences = [index.fence(Partition(INPUT, 0), 1, 0)]
    contents = [structs.replace(content_of(), first_digest=bytes(16), scope=scope * 8) for scope in (b"a", b"a", b"b")]
    x, y, z = (
        IndexEntry(number, name, b"%16d" % number, position, 0, number, content)
        for name, content in zip("xyz", contents, strict=True)
        if (number := document_number("articles", name))
    )
    index.insert_entries([x, y, z], fences)
    seeds = Seeds(SimpleNamespace(name="articles", index=index), fences, None)
    for name, entry in ("y", y), ("z", z):
        match = a_match("x", position, pair=pair_key(pair_side(entry), pair_side(x)).hex())
        seeds.add(an_alert(a_document(name, Position(INPUT, 0, 1)), match, cluster_id="x"))
    seeds.write()
    assert [index.get_entries([e.number])[e.number].cluster for e in (x, y, z)] == [x.number, x.number, z.number]


def test_entries_of_long_documents_are_not_held_at_once(monkeypatch):
    index, positions = MemoryIndex(), [Position(INPUT, 0, offset) for offset in range(3)]
    index.open(FINGERPRINT)
    fences = [index.fence(Partition(INPUT, 0), 1, 0)]
    content = content_of(hashes_count=entry_chunks.BUDGET_BYTES // 4)
    numbers = [document_number("articles", name) for name in "xyz"]
    rows = zip(numbers, "xyz", positions, strict=True)
    index.insert_entries([IndexEntry(n, name, b"1" * 16, at, 0, n, content) for n, name, at in rows], fences)
    read, counts = index.read_entries, []

    def read_entries(*arguments):
        entries = read(*arguments)
        counts.append(len(entries))
        return entries

    monkeypatch.setattr(index, "read_entries", read_entries)
    monkeypatch.setattr(index, "get_entries", None)
    seeds = Seeds(SimpleNamespace(name="articles", index=index), fences, None)
    for name, at in ("y", 1), ("z", 2):
        document = structs.replace(a_document(name, positions[at]), incarnation="ab" * 8)
        seeds.add(an_alert(document, a_match("x", positions[0]), cluster_id="x"))
    monkeypatch.setattr(rebuild_seeds, "_FULL", 2)
    assert seeds.is_full
    seeds.write()
    assert not seeds.is_full
    seeds.restore_incarnations(lambda: None)
    assert counts == [1] * 5
    stored = read(numbers[1:2], 1)[numbers[1]]
    assert (stored.content.incarnation, stored.content.sketch.count) == (b"\xab" * 8, content.sketch.count)
    assert stored.cluster == numbers[0]
