"""An index that is gone or has gone back in time: detected, accepted by policy, or rebuilt."""

import copy
import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from streamdedup.daemon import rebuild
from streamdedup.daemon.attempts import committed_attempt
from streamdedup.daemon.losses import Gap, Loss, find_losses, gaps
from streamdedup.daemon.metrics import REBUILD_KINDS
from streamdedup.daemon.read_ahead import POLL_S
from streamdedup.daemon.recovery import Recovery
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import document_number
from streamdedup.errors import BatchRefused, IndexLost, IndexMismatch, Rejoin, StoreUnavailable
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.values import Opening
from streamdedup.kafka.protocols import Batch, CommittedOffset, Message
from streamdedup.position import Partition
from streamdedup.wire import Decoder, decode_alert
from tests.simulation import world as loop_world
from tests.simulation.staging import MemoryStagingIndex, become, emptied
from tests.simulation.transport import MemoryHistory, MemorySource
from tests.simulation.world import (
    CLOCK,
    DUPLICATES,
    FENCED_METHODS,
    GROUP,
    INPUT,
    Daemon,
    Killed,
    Moment,
    Sent,
    World,
    a_pipeline,
    killed,
)

TEXT = "amber birch cedar delta ember"
OTHER_TEXT = "knoll lagoon amber jetty inlet"
BEFORE = [Sent("a", TEXT, 0), Sent("b", TEXT, 1), Sent("c", OTHER_TEXT, 0)]


def snapshot(world: World) -> dict:
    """Content of a backup of the index."""
    return copy.deepcopy(world.index.__dict__)


def go_back(world: World, kept: dict) -> None:
    """Restore a backup."""
    world.index.__dict__.update(copy.deepcopy(kept) | {"connections": world.index.connections + 1})


def put_back(world: World, kept: dict) -> None:
    """Restore a backup under running daemons, whose connections stay."""
    world.index.__dict__.update(copy.deepcopy(kept))


def flush(world: World) -> None:
    world.index.__init__()


def a_world_that_went_back() -> World:
    """All records but one are in the backup that was restored while no daemon was running."""
    world = World(BEFORE).run()
    kept = snapshot(world)
    world.send(Sent("d", OTHER_TEXT, 1)).run()
    world.stop_all()
    go_back(world, kept)
    return world


def test_an_index_from_before_the_last_commit_is_noticed_at_the_start_and_ends_the_daemon_with_advice():
    world = a_world_that_went_back()
    world.start("later")
    with pytest.raises(IndexLost, match=r"offset 2 of articles:1 .* has gone back to an earlier time\. Build it anew"):
        world.turn(world.daemons[0])


def test_the_owner_of_any_partition_notices_it():
    world = a_world_that_went_back()
    world.start("one")
    world.start("two")
    for daemon in world.daemons:
        with pytest.raises(IndexLost, match="articles:1"):
            world.turn(daemon)


def test_it_is_noticed_by_a_daemon_at_work_before_its_next_partition():
    world = World(BEFORE, names=("a", "b"))
    world.run()
    kept = snapshot(world)
    world.send(Sent("d", OTHER_TEXT, 1)).run()
    go_back(world, kept)
    world.broker.rebalance(GROUP)
    world.send(Sent("e", OTHER_TEXT, 1), Sent("f", OTHER_TEXT, 0))
    with pytest.raises(IndexLost, match="has gone back"):
        world.run()


def test_it_is_noticed_under_a_batch_before_that_is_published():
    """The server forgets all of a batch but its end: without a look at the connection nothing would tell."""
    for number in range(40):
        world = World(BEFORE).run()
        world.send(Sent("d", OTHER_TEXT, 1), Sent("e", TEXT, 0))
        kept = snapshot(world)
        at = number + len(world.trace)
        world.plan = {at: lambda world, _moment, kept=kept: go_back(world, kept)}.get
        try:
            world.run()
            world.send(Sent("f", OTHER_TEXT, 0), Sent("g", TEXT, 1)).run()
        except IndexLost:
            continue  # it had been committed by then
        assert world.wrong() == [], f"gone back at moment {number}: {world.trace[at]}"


def test_a_neighbours_batch_from_before_is_refused_or_noticed():
    for number in range(60):
        world = World(BEFORE, names=("a", "b"), on_index_lost="rebuild").run()
        kept = snapshot(world)
        world.send(Sent("d", OTHER_TEXT, 1), Sent("e", OTHER_TEXT, 0), Sent("f", TEXT, 1), Sent("g", TEXT, 0))
        at = number + len(world.trace)

        def act(world: World, _moment: Moment, kept=kept) -> None:
            go_back(world, kept)
            world.others_work(4)

        world.plan = {at: act}.get
        assert world.run().wrong() == [], f"gone back at moment {number}: {world.trace[at]}"


class PutBack:
    """Puts the keys back at one moment; then refuses the next call of each daemon whose calls the copy lacks (rule 10).

    The index in memory numbers no calls, as an index in Redis does.
    """

    def __init__(self, world: World) -> None:
        self._kept = snapshot(world)
        self._called: set[str] = set()
        self.at: int | None = None

    def __call__(self, number: int) -> Callable[[World, Moment], None]:
        return partial(self._act, number)

    def _act(self, number: int, world: World, moment: Moment) -> None:
        if number == self.at:
            put_back(world, self._kept)
        if moment.effect not in FENCED_METHODS:
            return
        if self.at is None or number < self.at:
            self._called.add(moment.daemon.name)
        elif not moment.after and moment.daemon.name in self._called:
            self._called.discard(moment.daemon.name)
            raise StoreUnavailable("the store has forgotten a write that it had acknowledged")


def test_keys_put_back_under_running_daemons_are_noticed_before_the_next_batch_is_published():
    """Also by a daemon whose last call is older than the copy, and in the middle of a batch."""
    for number in range(90):
        world = World(BEFORE, names=("a", "b"), on_index_lost="rebuild").run()
        world.plan = copied = PutBack(world)
        world.send(Sent("d", OTHER_TEXT, 0), Sent("e", TEXT, 0)).run()
        CLOCK.now_s += 10
        world.send(Sent("f", OTHER_TEXT, 1), Sent("g", TEXT, 1))
        copied.at = number + len(world.trace)
        world.run().send(Sent("h", OTHER_TEXT, 0), Sent("i", TEXT, 1)).run()
        assert world.wrong() == [], f"put back at moment {number}: {world.trace[copied.at]}"
    assert len(world.trace) > copied.at


def test_a_busy_daemon_compares_the_attempts_only_after_a_pause():
    world = World(BEFORE, batch_size=1).run()
    asked = []
    for pause_s in (0.0, 1.0, 10.0, 0.0):
        CLOCK.now_s += pause_s
        world.trace.clear()
        world.send(Sent(f"d{len(asked)}", OTHER_TEXT, 0)).run()
        asked.append(any(moment.effect == "all_committed" for moment in world.trace))
    assert asked == [False, False, True, False]


def test_keys_put_back_are_noticed_by_an_idle_daemon_within_ten_seconds():
    world = World(BEFORE).run()
    kept = snapshot(world)
    world.send(Sent("d", OTHER_TEXT, 1)).run()
    (daemon,) = world.daemons
    put_back(world, kept)
    since_s = CLOCK.now_s

    def turns_for_a_minute() -> None:
        while CLOCK.now_s - since_s < 60:
            world.turn(daemon)

    with pytest.raises(IndexLost, match=r"offset 2 of articles:1 .* has gone back to an earlier time"):
        turns_for_a_minute()
    assert 0 < CLOCK.now_s - since_s <= 10 + 2 * POLL_S


def test_only_the_comparison_after_an_assignment_waits_for_open_transactions(monkeypatch):
    asked, all_committed = [], MemorySource.all_committed

    def recorded(source, *, stable=True):
        asked.append(stable)
        return all_committed(source, stable=stable)

    monkeypatch.setattr(MemorySource, "all_committed", recorded)
    World(BEFORE, batch_size=1).run()
    assert asked == [True, False]


def test_an_idle_daemon_asks_for_the_committed_offsets_six_times_a_minute():
    world = World(BEFORE).run()
    (daemon,) = world.daemons
    world.turn(daemon)
    world.trace.clear()
    since_s = CLOCK.now_s
    while CLOCK.now_s - since_s < 60:
        world.turn(daemon)
    assert 5 <= sum(moment.effect == "all_committed" and moment.after for moment in world.trace) <= 6


def test_a_mark_that_a_crash_left_behind_is_no_loss():
    def dies_before_finish(world: World, moment: Moment) -> None:
        if (moment.effect, moment.after) == ("finish", False) and not world.outages:
            world.outages.append(lambda: None)
            raise Killed

    world = World(BEFORE, plan=lambda _number: dies_before_finish).run()
    assert world.wrong() == []
    assert world.broker.committed(GROUP) == world.ends


def test_offsets_set_by_an_operator_prove_nothing_about_the_index():
    world = World(BEFORE).run()
    world.stop_all()
    world.broker.commit(GROUP, dict.fromkeys(world.ends, 1))
    world.start("later")
    assert world.run().wrong() == []


def test_the_first_offset_set_by_hand_in_a_partition_of_which_nothing_ever_came_is_no_loss():
    world = World(BEFORE, partitions=3).run()
    world.stop_all()
    world.broker.commit(GROUP, {Partition(INPUT, 2): 0})
    world.start("later")
    assert world.send(Sent("d", OTHER_TEXT, 2)).run().wrong() == []


@pytest.mark.parametrize("lose", [flush, lambda world: go_back(world, world.kept)], ids=["flushed", "gone back"])
def test_a_loss_that_is_accepted_is_logged_once_also_for_partitions_without_records(lose):
    world = World(BEFORE, on_index_lost="continue").run()
    world.kept = snapshot(world)
    world.send(Sent("d", OTHER_TEXT, 1)).run()
    world.stop_all()
    lose(world)
    idle = world.start("later")
    world.turn(idle)
    world.stop_all()
    world.on_index_lost = "fail"
    world.start("plain")
    assert world.send(Sent("e", OTHER_TEXT, 0)).run().done


def test_a_loss_is_shown_until_the_index_is_rebuilt():
    world = World(BEFORE).run()
    assert world.daemons[0].metric("index_lost_timestamp_seconds") == 0
    world.stop_all()
    flush(world)
    world.on_index_lost = "continue"
    without = world.start("without")
    world.send(Sent("d", OTHER_TEXT, 0)).run()
    for _ in range(3):
        world.turn(without)
    assert without.metric("index_lost_timestamp_seconds", profile="articles") > 0
    world.stop_all()
    flush(world)
    world.on_index_lost = "rebuild"
    anew = world.start("anew")
    shown = set()
    world.plan = lambda _number: lambda *_: shown.add(anew.metric("index_lost_timestamp_seconds") > 0)
    world.send(Sent("e", OTHER_TEXT, 0)).run()
    assert shown == {False, True}
    assert anew.metric("index_lost_timestamp_seconds") == 0


#: Batches of two records leave a committed attempt of partition 0 in the index, from which a gap is counted.
IN_TWO_BATCHES = [*BEFORE, Sent("y", "grove heath inlet", 0), Sent("z", "fjord ember delta", 0)]


def kinds(daemon: Daemon) -> dict[str, float]:
    """How many rebuilds a daemon has counted, by their kinds."""
    counts = {kind: daemon.metric("index_rebuilds_total", kind=kind, profile="articles") for kind in REBUILD_KINDS}
    return {kind: count for kind, count in counts.items() if count}


@pytest.mark.parametrize("kind", ["lost", "gap"])
def test_a_loss_that_is_made_good_leaves_its_kind_in_a_counter(kind):
    world = World(IN_TWO_BATCHES, on_index_lost="rebuild", batch_size=2).run()
    kept = snapshot(world)
    world.send(Sent("d", OTHER_TEXT, 1)).run()
    assert kinds(world.daemons[0]) == {}
    if kind == "lost":
        flush(world)
    else:
        go_back(world, kept)
    with capture_logs() as events:
        world.send(Sent("e", OTHER_TEXT, 0)).run()
    assert kinds(world.daemons[0]) == {kind: 1}
    assert [event["kind"] for event in events if event["event"] == "index_rebuilt"] == [kind]


def test_a_gap_too_long_to_be_filled_counts_as_a_loss():
    counted = []
    for now_ms in (0, 10**15):
        world = World(IN_TWO_BATCHES, on_index_lost="rebuild", batch_size=2, kept_ms=1_000).run()
        kept = snapshot(world)
        world.send(Sent("d", OTHER_TEXT, 1)).run()
        go_back(world, kept)
        world.now_ms = now_ms
        world.send(Sent("e", OTHER_TEXT, 0)).run()
        counted.append(kinds(world.daemons[0]))
    assert counted == [{"gap": 1}, {"lost": 1}]


def a_switch(on_index_lost: str) -> tuple[World, Daemon]:
    """A daemon on an index that was prepared beside the one of another daemon, which committed more since."""
    world = World(BEFORE).run()
    world.index = MemoryIndex()
    builder = Daemon(world, "prepare").rebuilder
    builder.begin("articles")
    committed = {partition: world.broker.committed_offset(GROUP, partition) for partition in world.ends}
    builder.rebuild("articles", committed, 0, tick=lambda: None)
    world.send(Sent("d", OTHER_TEXT, 0), Sent("e", OTHER_TEXT, 1)).run()
    world.stop_all()
    world.on_index_lost = on_index_lost
    return world, world.start("new")


@pytest.mark.parametrize("interrupted", [False, True])
def test_a_switch_to_a_prepared_index_is_counted_as_such_and_never_shown_as_a_loss(interrupted):
    world, new = a_switch("rebuild")
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
    assert world.wrong() == []


def test_a_switch_whose_records_are_not_replayed_is_shown_as_a_loss():
    world, new = a_switch("continue")
    world.send(Sent("f", OTHER_TEXT, 0)).run()
    assert new.metric("index_lost_timestamp_seconds") > 0
    assert kinds(new) == {}


def test_an_index_that_went_back_after_a_switch_has_a_gap():
    world, new = a_switch("rebuild")
    world.send(Sent("f", OTHER_TEXT, 0)).run()
    kept = snapshot(world)
    world.send(Sent("g", OTHER_TEXT, 0)).run()
    go_back(world, kept)
    world.send(Sent("h", OTHER_TEXT, 0)).run()
    assert kinds(new) == {"switch": 1, "gap": 1}


def test_records_that_a_rebuild_cannot_read_are_counted_in_the_log():
    unread = [Sent("x", TEXT, 0, code="not_json"), Sent("y", TEXT, 1, code="not_json")]
    world = World([*BEFORE, *unread], on_index_lost="rebuild").run()
    flush(world)
    world.send(Sent("d", OTHER_TEXT, 1))
    with capture_logs() as events:
        world.run()
    (line,) = [event for event in events if event["event"] == "index_rebuild_skipped"]
    assert (line["profile"], line["codes"]) == ("articles", "2 not_json")


def test_a_loss_is_shown_although_nothing_is_committed_yet():
    shown = []
    for moment in range(40):
        world = World(BEFORE, on_index_lost="continue")
        early = []

        def lose(*_, world=world, early=early):
            early.append(not world.broker.groups[GROUP].committed)
            flush(world)

        world.plan = {moment: lose}.get
        world.run()
        if any(early):
            shown.append(world.daemons[0].metric("index_lost_timestamp_seconds", profile="articles") > 0)
    assert len(shown) > 20
    assert all(shown)


def test_an_index_that_is_new_after_the_loss_of_another_one_is_not_shown_as_lost():
    """A write has noticed the loss of the index ``a``; partitions of ``b`` are assigned after the loss was accepted."""
    losses = [Loss(Partition("a", 0), CommittedOffset(1), "lost")]
    shown, assigned = [], {Partition("a", 0)}

    def open_index(_fingerprint, *, create):
        return Opening(created=True) if create else None

    index = SimpleNamespace(open=open_index, connections_count=lambda: 0)
    pipelines = {n: SimpleNamespace(name=n, index=index, fingerprint={}, silent_until_ms=None) for n in "ab"}
    ownership = SimpleNamespace(losses=lambda _source: tuple(losses), accept_losses=lambda *_: losses.clear())
    source = SimpleNamespace(generation=lambda: 1, assigned=lambda: assigned)
    recovery = Recovery(pipelines, ownership, "continue", None, lambda name, lost: shown.append((name, lost)))
    recovery.index_lost(IndexLost("gone"))
    assert recovery.recovered(source, Batch())
    assert set(shown) == {("a", True)}
    shown.clear()
    assigned.add(Partition("b", 0))
    assert not recovery.recovered(source, Batch())
    assert shown == []


def test_a_loss_that_another_daemon_has_made_good_is_not_shown_any_more():
    world = World(BEFORE, names=("a", "b"), on_index_lost="rebuild").run()
    flush(world)
    world.send(Sent("d", OTHER_TEXT, 0), Sent("e", OTHER_TEXT, 1))
    seen = set()
    world.plan = lambda _number: (
        lambda *_: seen.update(daemon.name for daemon in world.daemons if daemon.metric("index_lost_timestamp_seconds"))
    )
    world.run()
    assert seen
    assert [daemon.metric("index_lost_timestamp_seconds") for daemon in world.daemons] == [0, 0]


def test_an_empty_store_is_left_as_it_is_by_a_daemon_that_ends():
    world = World(BEFORE).run()
    world.stop_all()
    flush(world)
    world.start("later")
    with pytest.raises(IndexLost):
        world.turn(world.daemons[0])
    assert world.index.open({"bands": 6}, create=False) is None


# Rebuilds

CORPUS = [
    Sent("a", TEXT, 0),
    Sent("b", TEXT, 1),
    Sent("c", OTHER_TEXT, 0),
    Sent("gone", TEXT, 1),
    Sent("gone", "", 1, op="delete"),
    Sent("long", "amber birch cedar", 0),
    Sent("long", "delta ember fjord grove", 0, op="append"),
    Sent("c", "quite another text of words", 0),
]
LATER = [
    Sent("d", OTHER_TEXT, 1),
    Sent("c", OTHER_TEXT, 0),  # a return to its first text
    Sent("b", TEXT, 1),  # sent again
    Sent("e", TEXT, 0),
    Sent("twin", "amber birch cedar delta ember fjord grove", 1),
]


def alerts(world: World) -> list[tuple]:
    """Alerts in an order of their own, without the moment."""
    found = [decode_alert(record.value) for record in world.broker.records(DUPLICATES)]
    return sorted((a.document.id, a.document.position, a.cluster_id, a.document.digest, a.matches) for a in found)


def a_world_that_loses_its_index(lose, *, names=("a",), at_work: bool = False) -> World:
    world = World(CORPUS, names=names, on_index_lost="rebuild").run()
    if not at_work:
        world.stop_all()
    lose(world)
    for name in names if not at_work else ():
        world.start(name)
    world.send(*LATER)
    return world


def not_lost(_world: World) -> None:
    """The index stays."""


@pytest.mark.parametrize("at_work", [False, True], ids=["at the start", "at work"])
@pytest.mark.parametrize("names", [("a",), ("a", "b")], ids=["one", "two"])
def test_a_rebuilt_index_is_like_one_that_was_never_lost(names, at_work):
    never_lost = a_world_that_loses_its_index(not_lost, names=("a",)).run()
    rebuilt = a_world_that_loses_its_index(flush, names=names, at_work=at_work).run()
    assert rebuilt.wrong() == []
    assert rebuilt.published() == never_lost.published()
    if len(names) == 1:
        assert alerts(rebuilt) == alerts(never_lost)


def test_a_batch_in_flight_when_the_index_goes_is_alerted_once():
    for number in range(60):
        world = a_world_that_loses_its_index(not_lost)
        lost = []

        def act(world: World, _moment: Moment, lost=lost) -> None:
            if not lost:
                lost.append(True)
                flush(world)

        first = number + len(world.trace)
        world.plan = lambda n, first=first, act=act: act if n >= first else None
        assert world.run().wrong() == [], f"the index goes at moment {number}: {world.trace[-1]}"


@pytest.mark.parametrize("is_gap", [False, True], ids=["flushed", "gone back"])
@pytest.mark.parametrize("in_flight", ["0", "b"], ids=["the first match", "the second match"])
def test_a_document_in_flight_is_known_to_have_been_alerted_as_any_match_of_another_one(in_flight, is_gap):
    """Its partner "c" is committed, with an alert that names "a" as well."""
    world = World([Sent("a", TEXT, 0)], names=("one", "two"), on_index_lost="rebuild").run()
    committed = []

    def loses_index_and_process(world: World, moment: Moment) -> None:
        if committed or (moment.effect, moment.after) != ("publish", False):
            return
        committed.append(in_flight)
        kept = snapshot(world)
        world.send(Sent("c", TEXT, 0))
        world.others_work(4)
        (alert,) = (decode_alert(record.value) for record in world.broker.records(DUPLICATES))
        assert [match.id for match in alert.matches] == sorted(["a", in_flight])
        if is_gap:
            go_back(world, kept)
        else:
            flush(world)
        raise Killed

    world.plan = lambda _number: loses_index_and_process
    world.send(Sent(in_flight, TEXT, 1)).run()
    assert committed
    assert world.wrong() == []


@pytest.mark.parametrize("names", [("a",), ("a", "b")], ids=["one", "two"])
def test_a_rebuild_that_is_cut_short_anywhere_is_done_again(names):
    for number in range(0, 80, 3):
        world = a_world_that_loses_its_index(flush, names=names)
        world.plan = {number + len(world.trace): killed}.get
        staging_expires_with_its_process(world)
        assert world.run().wrong() == [], f"killed at moment {number}"


def test_a_daemon_that_is_asked_to_stop_gives_up_the_index_that_it_begins():
    world = a_world_that_loses_its_index(flush)
    (daemon,) = world.daemons

    def stop(_world: World, moment: Moment) -> None:
        daemon.stop.stopping |= moment.effect == "clear"

    world.plan = lambda _number: stop
    while not daemon.stop.stopping:
        daemon.loop._turn()
    assert world.index.builder is None
    assert not daemon.rebuilder.has_begun("articles")


class DraftsOfSeveral:
    """Two indexes that are built by one rebuilder, while time passes at every step."""

    def __init__(self, monkeypatch):
        self.now_s = 0.0
        self.kept_at: dict[str, list[float]] = {"a": [], "b": []}
        self.world = World(BEFORE).run()
        self.world.stop_all()
        self.committed = {partition: CommittedOffset(end) for partition, end in self.world.ends.items()}
        monkeypatch.setattr(rebuild, "time", self)
        self.rebuilder = rebuild.Rebuilder(self.open_target, MemoryHistory(self.world.broker, 1), DUPLICATES)

    def monotonic(self) -> float:
        return self.now_s

    def step(self) -> None:
        self.now_s += 20

    def open_target(self, name):
        staging = MemoryStagingIndex(MemoryIndex())
        extend_lease = staging.extend_lease

        def note_and_extend():
            self.kept_at[name].append(self.now_s)
            extend_lease()

        staging.extend_lease = note_and_extend
        pipeline = a_pipeline(name, self.world.make_detector, staging.store)
        return rebuild.RebuildTarget(staging, pipeline, [INPUT], None, None)


def test_an_index_that_waits_to_be_built_stays_reserved_while_another_one_is_begun_and_built(monkeypatch):
    several = DraftsOfSeveral(monkeypatch)
    several.rebuilder.begin("b")
    several.rebuilder.begin("a", tick=several.step)
    begun_at = several.now_s
    assert several.kept_at["b"] == [begun_at]
    assert several.rebuilder.rebuild("a", several.committed, 1, several.step) == len(BEFORE)
    kept_at = [begun_at, *several.kept_at["b"][1:], several.now_s]
    assert max(later - earlier for earlier, later in itertools.pairwise(kept_at)) <= 40
    assert several.now_s > begun_at + 60


def test_of_two_rebuilds_of_which_one_could_not_begin_none_runs_before_the_group_is_joined_anew():
    """The rebuild of ``a`` has begun; another process rebuilds ``b`` and completes it before the next turn."""
    lost = ["a", "b"]
    begun = set()

    class Rebuilds:
        has_begun = begun.__contains__
        kind = staticmethod(lambda _name: "lost")
        abandon = begun.clear

        def begin(self, name, _is_lost, _tick):
            if name == "b":
                lost.remove("b")
                raise StoreUnavailable("rebuilt by another process")
            return name not in begun and not begun.add(name)

    index = SimpleNamespace(open=lambda *_, **__: None, connections_count=lambda: 0)
    pipelines = {n: SimpleNamespace(name=n, index=index, fingerprint={}) for n in lost}
    ownership = SimpleNamespace(losses=lambda _: [Loss(Partition(n, 0), CommittedOffset(1), "lost") for n in lost])
    source = SimpleNamespace(generation=lambda: 1, assigned=frozenset)
    recovery = Recovery(pipelines, ownership, "rebuild", Rebuilds())
    with pytest.raises(StoreUnavailable):
        recovery.recovered(source, Batch())
    with pytest.raises(Rejoin):
        recovery.recovered(source, Batch())


def test_an_index_whose_rebuild_another_daemon_has_completed_is_used():
    records = [Sent(f"d{at}", TEXT, at % 2) for at in range(4)]
    world = World(records, partitions=2, names="a", on_index_lost="rebuild").run()
    become(world.index, emptied(world.index))
    world.daemons[0].leave_group()
    slow = world.restart(world.daemons[0])
    while not slow.rebuilder.has_begun("articles"):
        world.turn(slow)
    # The daemon is away for longer than its rebuild is reserved.
    world.index.builder = None
    slow.leave_group()
    other = world.start("b")
    while world.index._fingerprint is None or world.index.builder is not None:
        world.turn(other)
    other.stop.stopping = True
    other.loop.run()
    world.daemons.remove(other)
    late = world.produce(Sent("late", TEXT, 0))
    world.ends[late.topic_partition] = late.offset + 1
    world.run()
    met = [{document for document, _ in pair} - {"late"} for pair in world.published() if "late" in dict(pair)]
    assert sorted(met, key=min) == [{sent.id} for sent in records]


OTHER_PARAMETERS = {"bands": 5}


def built_anew(world: World, parameters: dict) -> None:
    """Freeze the daemon, and let another process, a member of the group for a while, rebuild the index."""
    world.daemons[0].leave_group()
    flush(world)
    world.index.open(parameters)
    for partition in world.broker.committed(GROUP):
        committed = world.broker.committed_offset(GROUP, partition)
        fence = world.index.fence(partition, world.broker.groups[GROUP].generation, committed.offset)
        attempt_id = committed_attempt(committed)
        world.index.announce(attempt_id, [fence], {partition: committed.offset}, committed=True)


def test_a_daemon_whose_index_is_built_anew_with_other_parameters_ends_and_publishes_nothing_more():
    endings = []
    for moment in itertools.count():
        world = World(BEFORE, names="a").run()
        published = []

        def change(*_, world=world, published=published):
            built_anew(world, OTHER_PARAMETERS)
            published.append(len(world.broker.records(DUPLICATES)))

        world.plan = {len(world.trace) + moment: change}.get
        world.send(Sent("d", OTHER_TEXT, 0), Sent("e", TEXT, 1))
        try:
            world.run()
            endings.append("done")  # and idle; the next batch ends the daemon
        except IndexMismatch as error:
            endings.append(str(error))
        if not published:
            break
        assert published == [len(world.broker.records(DUPLICATES))]
    refusals = [ending for ending in endings if "bands is 5 in the index and 6 in the settings" in ending]
    assert len(refusals) > 15


def test_a_daemon_writes_nothing_to_an_index_that_was_built_anew_with_other_parameters_before_its_first_batch():
    entries = []
    for moment in itertools.count():
        world = World([], names="a")
        changed = []

        def change(*_, world=world, changed=changed):
            changed.append(True)
            built_anew(world, OTHER_PARAMETERS)

        world.plan = {len(world.trace) + moment: change}.get
        try:
            world.send(Sent("d", OTHER_TEXT, 0)).run()
        except IndexMismatch:
            entries.append(world.index.get_entries([document_number("articles", "d")]))
        if not changed:
            break
    assert len(entries) > 5
    assert entries.count({}) == len(entries)


def test_a_daemon_without_records_ends_too_when_its_index_was_built_anew_with_other_parameters():
    world = World(BEFORE, names="a").run()
    built_anew(world, OTHER_PARAMETERS)
    with pytest.raises(IndexMismatch):
        world.turn(world.daemons[0])


def test_a_daemon_goes_on_with_an_index_that_was_built_anew_with_its_parameters():
    world = World(BEFORE, names="a").run()
    built_anew(world, {**world.index._fingerprint, "rebuilt_s": 1.5})
    assert world.send(Sent("d", OTHER_TEXT, 0)).run().done


def test_a_rebuild_ends_as_soon_as_a_connection_to_the_store_was_lost(monkeypatch):
    several = DraftsOfSeveral(monkeypatch)
    several.rebuilder.begin("a")
    store = several.rebuilder._begun["a"].target.pipeline.index
    progress = []

    def lose(_what, done, _total):
        progress.append(done)
        store.connections = len(progress)

    with pytest.raises(StoreUnavailable, match="was lost"):
        several.rebuilder.rebuild("a", several.committed, 1, several.step, lose)
    assert progress == [0]


def test_a_rebuild_that_another_process_has_taken_over_is_left_alone(monkeypatch):
    several = DraftsOfSeveral(monkeypatch)
    several.rebuilder.begin("a")
    target = several.rebuilder._begun["a"].target
    target.staging.abandon()
    with pytest.raises(BatchRefused, match="another process"):
        several.rebuilder.rebuild("a", {Partition(INPUT, 0): CommittedOffset(1)}, 1, several.step)
    assert target.pipeline.index.partition_states([Partition(INPUT, 0)])[Partition(INPUT, 0)].high_water_mark is None


def staging_expires_with_its_process(world: World) -> None:
    restart = world.restart

    def restarted(daemon):
        world.index.builder = None
        return restart(daemon)

    world.restart = restarted


def test_a_gap_reaches_back_to_the_last_known_commit_and_not_to_an_announcement():
    index = MemoryIndex()
    index.open({})
    ids = [f"{0:010d}.{at:010d}.{at * 1_000_000:017d}" for at in range(1, 5)]
    lost, other = Partition("articles", 0), Partition("articles", 1)
    index.announce(ids[0], [index.fence(lost, 1, 0)], {lost: 0})
    index.announce(ids[1], [replace(index.fence(lost, 1, 3), attempt_id=ids[0])], {lost: 3})
    committed = {lost: CommittedOffset(9, ids[2])}
    gap = Gap(3, 1_000)
    assert [loss.gap for loss in find_losses(index, committed)] == [gap]
    # A batch in progress of another partition, which is written after the index has gone back.
    index.announce(ids[3], [index.fence(other, 1, 0)], {other: 0})
    assert [loss.gap for loss in find_losses(index, committed | {other: CommittedOffset(0, "")})] == [gap]
    new = Partition("articles", 2)
    assert [
        find_losses(index, {lost: committed[lost], new: CommittedOffset(5, known)})[1].gap for known in (ids[2], "")
    ] == [Gap(0, 1_000), None]


def losses_of(world: World) -> list[Loss]:
    return find_losses(
        world.index, {partition: world.broker.committed_offset(GROUP, partition) for partition in world.ends}
    )


def test_a_copy_from_before_the_group_was_deleted_is_noticed():
    world = World(BEFORE, on_index_lost="rebuild", batch_size=1, joined=False)
    world.broker.groups[GROUP].generation = 50
    world.run()
    kept = snapshot(world)
    world.stop_all()
    del world.broker.groups[GROUP]
    for partition in world.ends:
        world.index.unfence(partition)
    world.start("later")
    world.send(Sent("d", OTHER_TEXT, 0), Sent("e", TEXT, 1)).run()
    world.stop_all()
    go_back(world, kept)
    assert len(losses_of(world)) == 2
    world.start("again")
    assert world.send(Sent("f", TEXT, 1)).run().wrong() == []


def test_a_copy_from_before_a_complete_rebuild_is_rebuilt_as_a_whole():
    world = World(BEFORE, on_index_lost="rebuild", batch_size=1).run()
    kept = snapshot(world)
    flush(world)
    world.send(Sent("d", OTHER_TEXT, 0), Sent("new", TEXT, 2)).run()
    world.stop_all()
    go_back(world, kept)
    assert gaps(losses_of(world)) is None
    world.start("again")
    world.send(Sent("e", TEXT, 1)).run()
    assert world.wrong() == []
    assert gaps(losses_of(world)) == {}


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
    kept = snapshot(world)
    more = "fjord grove heath inlet jetty"
    partition = Partition(INPUT, 0)
    world.send(Sent("x", "", 0, op="delete"))
    if loses == "abort a transaction":
        aborted = world.broker.begin("producer", world.broker.register("producer"))
        world.broker.append(Message(INPUT, None, b"aborted"), aborted, 0)
        world.broker.end("producer", "aborted")
    world.send(Sent("m", more, 0), Sent("n", more[6:], 0)).run()
    world.stop_all()
    go_back(world, kept)
    begins = find_losses(world.index, {partition: world.broker.committed_offset(GROUP, partition)})[0].gap.start
    if loses.startswith("compact"):
        world.broker.compact(partition, *range(begins) if loses == "compact before" else (0, 2))
    elif loses.startswith("truncate"):
        world.broker.truncate(partition, begins if loses == "truncate before" else 3)
    world.start("later")
    with capture_logs() as logs:
        world.send(Sent("z", TEXT, 1)).run()
    assert [log["event"] for log in logs if "gap" in log["event"]] == [] if is_gap else ["gap_given_up"]
    assert "x" not in {document for pair in world.published() for document, _ in pair}


def a_pipeline_with_scopes(name, make_detector, index):
    """Return the pipeline of a profile whose documents all have the default scope."""
    scopes = {"scope_field": "tenant", "default_scope": "all"}
    options = replace(loop_world.OPTIONS, **scopes)
    return replace(a_pipeline(name, make_detector, index), decoder=Decoder(**scopes), detector=Detector(options, index))


@pytest.mark.parametrize("has_scopes", [False, True])
def test_a_new_index_with_scopes_knows_the_pairs_that_were_published_before(monkeypatch, has_scopes):
    if has_scopes:
        monkeypatch.setattr(loop_world, "a_pipeline", a_pipeline_with_scopes)
    world = World([Sent("x", TEXT, 0), Sent("y", TEXT, 1)], on_index_lost="rebuild").run()
    world.stop_all()
    flush(world)
    monkeypatch.setattr(loop_world, "a_pipeline", a_pipeline_with_scopes)
    world.start("later")
    world.send(Sent("x", "knoll", 0, op="append"), Sent("y", "knoll", 1, op="append"), Sent("z", TEXT, 0)).run()
    pairs = Counter(frozenset(document for document, _ in pair) for pair in world.published().elements())
    assert pairs == {frozenset("xy"): 1, frozenset("xz"): 1, frozenset("yz"): 1}


def test_a_rebuilt_index_with_scopes_knows_the_cluster_of_a_document_that_was_continued(monkeypatch):
    monkeypatch.setattr(loop_world, "a_pipeline", a_pipeline_with_scopes)
    world = World([Sent("x", TEXT, 0), Sent("y", TEXT, 0)], on_index_lost="rebuild", batch_size=1).run()
    world.send(Sent("y", "knoll", 0, op="append")).run()
    number = document_number("articles", "y")
    cluster = world.index.get_entries([number])[number].cluster
    world.stop_all()
    flush(world)
    world.start("later")
    world.send(Sent("z", OTHER_TEXT, 0)).run()
    assert world.index.get_entries([number])[number].cluster == cluster != number


def test_a_gap_that_is_cut_short_stays_a_gap():
    world = World([BEFORE[0], BEFORE[2]], partitions=2, on_index_lost="rebuild", batch_size=1).run()
    kept = snapshot(world)
    world.send(Sent("b", TEXT, 1), Sent("d", OTHER_TEXT, 0)).run()
    world.stop_all()
    go_back(world, kept)
    gap = gaps(losses_of(world))
    assert gap is not None
    assert len(gap) == 2
    staging_expires_with_its_process(world)
    killed_at = []

    def die(world: World, moment: Moment) -> None:
        if moment.effect == "insert_entries" and not killed_at:
            killed_at.append(gaps(losses_of(world)))
            killed(world, moment)

    world.plan = lambda _number: die
    world.start("later")
    with capture_logs() as events:
        world.send(Sent("e", TEXT, 1)).run()
    assert killed_at == [gap]
    assert [event["gap"] for event in events if event["event"] == "index_rebuild_begun"] == [True, True]
    assert world.wrong() == []
