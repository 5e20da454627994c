"""What a daemon shows while it waits: its lag, the end offset less the committed offset, and why it waits."""

import itertools
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from structlog.testing import capture_logs

from streamdedup import clock as wall_clock
from streamdedup.daemon import statistics as statistics_module
from streamdedup.daemon.lags import REFRESH_S, Lags
from streamdedup.daemon.metrics import Awaited, Metrics
from streamdedup.daemon.read_ahead import JOINING_POLL_S
from streamdedup.daemon.readiness import JOINING_S, SPARE_S
from streamdedup.errors import BrokerMisconfigured, BrokerUnavailable, Rejoin, StoreMisconfigured, StoreUnavailable
from streamdedup.kafka.protocols import Batch, SourceStats
from streamdedup.position import Partition
from tests.simulation.server import NUMBERED
from tests.support.clock import ManualClock
from tests.turns import CLOCK, GROUP, INPUT, Daemon, Moment, Sent, World, batch_refused, once, store_fails

TEXT = "amber birch cedar delta ember fjord grove"


def documents(count: int, partition: int = 0, first: int = 0) -> list[Sent]:
    return [Sent(f"p{partition}d{number}", f"{TEXT} {number}", partition) for number in range(first, first + count)]


def lags(daemon: Daemon) -> dict[str, float]:
    """The shown lag of each partition."""
    samples = next(iter(daemon.metrics.lag_records.collect())).samples
    return {sample.labels["partition"]: sample.value for sample in samples}


def writes_fail(world: World, moment: Moment) -> None:
    """Fail as a store that answers reads and refuses writes."""
    if moment.effect in NUMBERED:
        store_fails(world, moment)


def counted_requests(daemon: Daemon) -> list[float]:
    """Times of the requests for ends that a daemon's present source receives from now on."""
    times: list[float] = []
    request, source = daemon.source.request_ends, daemon.source

    def request_ends() -> None:
        times.append(CLOCK.now_s)
        request()

    source.request_ends = request_ends
    return times


@pytest.fixture
def world() -> World:
    """One daemon at work, which has committed three documents of partition 0, in batches of four at most."""
    return World(documents(3)).run()


@pytest.fixture
def daemon(world) -> Daemon:
    return world.daemons[0]


def away(world: World, daemon: Daemon, *sent: list[Sent]) -> list[dict[str, float]]:
    """Let records arrive step by step, the first before the store goes away; return the lag after each step."""
    first, *later = sent
    world.send(*first)
    seen: list[dict[str, float]] = []

    def step() -> None:
        seen.append(lags(daemon))
        if later:
            world.send(*later.pop(0))
        CLOCK.now_s += REFRESH_S

    world.plan = lambda _number: store_fails if len(seen) < len(sent) else None
    world.outages = [step] * len(sent)
    world.turn(daemon)
    return seen


def test_the_records_of_a_batch_in_progress_are_part_of_the_lag_until_their_commit(world, daemon):
    during = []
    world.send(*documents(6, first=3))
    world.plan = lambda _number: lambda _world, moment: during.append((moment.effect, lags(daemon)["0"]))
    world.turn(daemon)
    by_effect = dict(during)
    assert [by_effect[effect] for effect in ("poll", "claim_pairs", "commit")] == [0, 6, 6]
    assert lags(daemon) == {"0": 2, "1": 0}
    world.plan = lambda _number: None
    world.turn(daemon)
    assert lags(daemon) == {"0": 0, "1": 0}


def test_the_records_of_a_batch_ahead_are_part_of_the_lag(world, daemon):
    world.send(*documents(12, first=3))
    world.turn(daemon)
    assert daemon.loop._read_ahead.batch_ahead() is not None
    assert lags(daemon)["0"] == 8


def test_while_the_store_is_away_the_lag_follows_the_ends_from_the_committed_offsets(world, daemon):
    sent = documents(2, first=3), documents(4, first=5), documents(10, partition=1), documents(1, first=9)
    assert away(world, daemon, *sent) == [
        {"0": 2, "1": 0},
        {"0": 6, "1": 0},
        {"0": 6, "1": 10},
        {"0": 7, "1": 10},
    ]


def test_an_answer_to_a_fetch_from_before_the_wait_hides_no_records(world, daemon):
    away(world, daemon, documents(1, first=3), documents(8, first=4), [])
    source, partition = daemon.source, Partition(INPUT, 0)
    earlier = 5  # the end in the answer that the client reads at last
    source.end = lambda _partition: earlier
    source.stats = lambda: SourceStats(1, {partition: earlier - 3})
    daemon.loop._statistics.lags.observe(source, None)
    assert lags(daemon)["0"] == 9
    daemon.loop._statistics.clients_closed()
    daemon.loop._statistics.lags.observe(source, None)
    assert lags(daemon)["0"] == 2


def test_a_rebalance_just_before_the_clients_are_closed_is_counted(world, daemon):
    counted = daemon.metric("rebalances_total")
    world.broker.rebalance(GROUP)
    daemon.source.keep_membership(0)
    world.broker.poll_failures.append(BrokerUnavailable("made to fail"))
    world.turn(daemon)
    assert daemon.metric("partitions_assigned") == 0
    assert daemon.metric("rebalances_total") == counted + 1


def test_the_end_of_a_partition_that_is_revoked_after_its_lag_was_read_may_be_unknown(world, daemon):
    source, partition = daemon.source, Partition(INPUT, 0)
    source.end, source.stats = lambda _partition: None, lambda: SourceStats(1, {partition: 2})
    daemon.loop._statistics.lags.observe(source, None)
    assert lags(daemon)["0"] == 2


def test_after_a_commit_the_ends_of_the_wait_count_no_more(world, daemon):
    away(world, daemon, documents(1, first=3), documents(8, first=4), [])
    for _ in range(4):
        world.turn(daemon)
    source = daemon.source
    source.end, source.stats = lambda _partition: 2, lambda: SourceStats(1, {Partition(INPUT, 0): 0})
    daemon.loop._statistics.lags.observe(source, None)
    assert lags(daemon)["0"] == 0


def test_kafka_is_asked_for_ends_at_intervals_while_the_daemon_waits_and_never_while_it_works(world, daemon):
    world.send(*documents(40, first=3))
    asked = counted_requests(daemon)
    fetched = daemon.source._fetch

    def fetch(limit):
        daemon.source.__dict__.pop("request_ends", None)  # a fetch brings the ends without a request
        return fetched(limit)

    daemon.source._fetch = fetch
    world.run()
    assert asked == []
    asked = counted_requests(daemon)
    daemon.source._fetch = fetched
    daemon.loop.readiness.halted = "for the test"
    began_at = CLOCK.now_s
    while CLOCK.now_s < began_at + 4 * REFRESH_S:
        world.turn(daemon)
    assert len(asked) == 4
    assert all(later - earlier >= REFRESH_S for earlier, later in itertools.pairwise(asked))


def test_a_halted_daemon_shows_what_comes_in():
    world = World([Sent("x", "", 0, "not_json")] * 12, dead_letter_limit=5, batch_size=20)
    daemon = world.daemons[0]
    world.turn(daemon)
    assert daemon.metric("halted") == 1
    CLOCK.now_s += REFRESH_S
    world.turn(daemon)
    assert lags(daemon)["0"] == 12
    world.send(*documents(3, first=3))
    CLOCK.now_s += REFRESH_S
    world.turn(daemon)
    assert lags(daemon)["0"] == 15
    # The partition was another daemon's for a while, and comes back.
    daemon.source.seek({Partition(INPUT, 0): 11})
    CLOCK.now_s += REFRESH_S
    world.turn(daemon)
    assert lags(daemon)["0"] == 4


def test_a_halted_daemon_shows_its_partitions_and_the_size_of_the_index(world, daemon):
    daemon.loop.readiness.halted = "for the test"
    assert daemon.metric("partitions_assigned") == 2
    world.turn(world.start("b"))
    (index,) = daemon.loop._statistics._indexes.values()

    def failing(error: Exception) -> Callable[[], int]:
        def count_documents() -> int:
            raise error

        return count_documents

    # A daemon that ended would publish further dead letters when it is started again.
    errors = StoreUnavailable("made to fail"), StoreMisconfigured("made to fail")
    for count_documents in (lambda: 42, *map(failing, errors)):
        index.count_documents = count_documents
        CLOCK.now_s += 10
        world.turn(daemon)
        assert daemon.metric("partitions_assigned") == 1
        assert daemon.metric("index_documents") == 42
    assert daemon.loop.readiness.awaited is None


def test_a_daemon_that_rebuilds_its_index_shows_what_comes_in(world):
    world.server.go_back(None)
    daemon, seen = world.start_later(on_index_lost="rebuild"), []
    world.send(*documents(2, first=3))

    def arrive(_world, moment) -> None:
        if moment.effect == "complete":
            world.send(*documents(5, first=5))
            CLOCK.now_s += REFRESH_S
            daemon.loop._rebuild_step()
            seen.append((daemon.loop.readiness.awaited, lags(daemon)["0"]))

    world.plan = lambda _number: arrive
    world.run()
    assert seen == [("the index", 7)]


def test_a_rebuild_asks_the_source_for_its_numbers_at_intervals_and_not_for_each_record(world, daemon):
    world.turn(daemon)
    stats, asked_at = daemon.source.stats, []
    daemon.source.stats = lambda: asked_at.append(CLOCK.now_s) or stats()
    CLOCK.now_s += REFRESH_S
    for _ in range(2 * 10):
        daemon.loop._rebuild_step()
        CLOCK.now_s += REFRESH_S / 10
    assert len(set(asked_at)) == 2


def test_a_fetch_that_takes_longer_than_a_poll_for_partitions_does_not_end_the_wait_for_the_store(world, daemon):
    poll = daemon.source.poll

    def slow(timeout_s, *limit):
        return poll(timeout_s, *limit) if timeout_s > JOINING_POLL_S else Batch()

    daemon.source.poll = slow
    world.plan = lambda _number: writes_fail
    world.send(*documents(2, first=3))
    with capture_logs() as logged:
        for _ in range(6):
            world.turn(daemon)
    assert [line["event"] for line in logged if line["event"] in {"waiting", "at_work"}] == ["waiting"]
    assert daemon.loop.readiness.awaited is Awaited.STORE
    world.plan = lambda _number: None
    world.run()
    assert daemon.loop.readiness.awaited is None


def test_without_kafka_the_last_lags_stay_and_their_time_with_them(world, daemon, monkeypatch):
    now_s = [1_000.0]
    monkeypatch.setattr(wall_clock, "now_ms", lambda: now_s[0] * 1000)
    world.send(*documents(6, first=3))
    world.turn(daemon)
    before = lags(daemon)
    assert before["0"] == 2
    now_s[0] = 2_000.0
    world.broker.away = True
    asked = counted_requests(daemon)
    for _ in range(3):
        CLOCK.now_s += REFRESH_S
        world.turn(daemon)
        assert lags(daemon) == before
    assert asked == [], "a request would wait for an answer"
    assert daemon.metric("lag_timestamp_seconds") == 1_000.0
    world.broker.away = False
    world.turn(daemon)
    assert daemon.metric("lag_timestamp_seconds") == 2_000.0


@pytest.mark.parametrize("error", [Rejoin("made to fail"), StoreUnavailable("made to fail")])
def test_new_clients_that_have_not_joined_yet_leave_the_last_lags(world, daemon, error):
    world.send(*documents(9, first=3))
    world.turn(daemon)
    before = lags(daemon)
    daemon.loop._close_clients()
    source, _ = daemon.loop._open_clients()
    daemon.loop._statistics.lags.observe(source, None)
    assert lags(daemon) == before
    world.broker.away = True
    daemon.loop._wait(Awaited.STORE, error)  # without an answer to the request for ends
    assert lags(daemon) == before


def test_a_daemon_that_comes_back_as_a_spare_shows_no_lags(world, daemon, monkeypatch):
    world.send(*documents(9, first=3))
    world.turn(daemon)
    daemon.loop._close_clients()
    source, _ = daemon.loop._open_clients()
    monkeypatch.setattr(source.inner, "generation", lambda: 2)  # a member without partitions
    daemon.loop._statistics.lags.observe(source, None)
    assert lags(daemon) == {}


def test_a_partition_that_another_daemon_has_taken_is_not_shown_until_it_returns(world, daemon):
    world.send(*documents(9, first=3))
    world.turn(daemon)
    assert lags(daemon).keys() == {"0", "1"}
    other = world.start("b")
    world.run()
    assert len(lags(daemon)) == 1
    other.leave_group()
    world.daemons.remove(other)
    world.turn_until(daemon, lambda: lags(daemon) == {"0": 0, "1": 0})


def test_each_try_of_a_wait_for_the_store_is_a_step_for_the_watchdog(world, daemon):
    steps = []
    daemon.loop._tick = lambda: steps.append(CLOCK.now_s)
    away(world, daemon, documents(1, first=3), [], [], [])
    assert len(set(steps)) == 4


def test_the_lag_of_a_partition_begins_with_the_batch_in_progress_of_this_partition():
    shown, first, second, other = Lags(Metrics(), CLOCK), *(Partition(INPUT, number) for number in range(3))
    source = SimpleNamespace(
        stats=lambda: SourceStats(1, {first: 80, second: 0, other: 1}),
        assigned=lambda: {first, second, other},
        end=lambda _: 100,
        generation=lambda: 1,
    )
    shown.observe(source, SimpleNamespace(starts={first: 5, second: 90}))
    assert shown.shown == {first: 95, second: 10, other: 1}


def test_each_turn_and_each_step_of_a_rebuild_is_a_step_for_the_watchdog(daemon):
    steps = []
    daemon.loop._tick = lambda: steps.append("step")
    daemon.loop._rebuild_step()
    assert steps == ["step"]
    steps.clear()

    def turn():
        steps.append("turn")
        daemon.stop.stopping = len(steps) == 6

    daemon.loop._turn = turn
    daemon.loop.run()
    assert steps == ["step", "turn"] * 3


@pytest.mark.parametrize("error", [BrokerUnavailable("no leader"), BrokerMisconfigured("no right")])
def test_ends_that_cannot_be_read_are_asked_for_once_an_interval(error):
    clock = ManualClock()
    shown, asked_at = Lags(Metrics(), clock), []

    def request_ends():
        asked_at.append(clock())
        raise error

    for _ in range(4):
        shown.refresh(SimpleNamespace(request_ends=request_ends))
        clock.now_s += REFRESH_S / 2
    assert [later - earlier for earlier, later in itertools.pairwise(asked_at)] == [REFRESH_S]


def test_the_summary_has_the_lag_also_while_the_daemon_waits(world, daemon, monkeypatch):
    monkeypatch.setattr(statistics_module, "_SUMMARY_S", 0.0)
    with capture_logs() as logged:
        away(world, daemon, documents(1, first=3), documents(8, first=4), [])
        world.run()
    summaries = [line for line in logged if line["event"] == "summary"]
    assert 9 in [line["lag"] for line in summaries]
    assert sum(line.get("records", 0) for line in summaries) == 12  # each since the last summary


def test_the_time_of_a_slow_store_is_that_of_the_stage_index(world, daemon, monkeypatch):
    def pass_time(*_):
        CLOCK.now_s += 5

    monkeypatch.setattr(statistics_module, "time", SimpleNamespace(perf_counter=CLOCK))
    prepare_s = daemon.metric("batch_seconds_sum", stage="prepare")
    world.send(*documents(1, first=3))
    world.plan = once("insert_entries", pass_time)
    world.turn(daemon)
    assert daemon.metric("batch_seconds_sum", stage="prepare") == prepare_s
    assert daemon.metric("batch_seconds_sum", stage="index") >= 5


# A rebalance that takes long, because the broker waits for a member


def hold_join(world: World, daemon: Daemon) -> Callable[[], None]:
    """Hold the answer to the join of a daemon, as the broker does until all members have joined; return the release."""
    source = daemon.source

    def poll(timeout_s: float, *_limit: int) -> Batch:
        world.time_passes(timeout_s)
        return Batch()

    source.poll, source.generation = poll, lambda: None

    def release() -> None:
        del source.poll, source.generation

    return release


def test_a_daemon_at_work_waits_for_partitions_while_a_rebalance_lasts_and_its_lag_grows_old(
    world, daemon, monkeypatch
):
    monkeypatch.setattr(wall_clock, "now_ms", lambda: round(1000 * CLOCK.now_s))
    world.turn(daemon)
    release, lags_at_s = hold_join(world, daemon), daemon.metric("lag_timestamp_seconds")
    began_at_s, seen = CLOCK.now_s, []
    with capture_logs() as logged:
        while CLOCK.now_s < began_at_s + JOINING_S + 2 * REFRESH_S:
            seen.append((CLOCK.now_s - began_at_s >= JOINING_S, daemon.loop.readiness.problem()))
            world.send(*documents(1, first=3 + len(seen)))
            world.turn(daemon)
        assert set(seen) == {(False, None), (True, "waiting for partitions")}
        assert (daemon.metric("ready"), daemon.metric("waiting", what="partitions")) == (0, 1)
        assert (lags(daemon)["0"], daemon.metric("lag_timestamp_seconds")) == (0, lags_at_s)
        release()
        world.run()
        assert daemon.metric("lag_timestamp_seconds") > began_at_s
    assert daemon.loop.readiness.problem() is None
    assert [line["event"] for line in logged if line["event"] in {"waiting", "at_work"}] == ["waiting", "at_work"]


def test_ordinary_rebalances_after_long_batches_begin_no_wait(world, daemon):
    releases, seen = [], []

    def rebalance_at_last(_world, _moment) -> None:
        CLOCK.now_s += 2 * JOINING_S
        releases.append(hold_join(world, daemon))

    for number in range(5):
        world.send(*documents(1, first=3 + number))
        world.plan = once("finish", rebalance_at_last)
        for _ in range(4):
            world.turn(daemon)
            seen.append(daemon.metric("ready"))
        releases.pop()()
    assert set(seen) == {1}


def test_a_daemon_whose_batch_was_refused_waits_until_the_group_has_rebalanced(world, daemon):
    world.send(*documents(2, first=3))
    world.plan = once("claim_pairs", batch_refused)
    with capture_logs() as logged:
        world.turn(daemon)
        release = hold_join(world, daemon)
        for _ in range(20):
            world.turn(daemon)
        assert daemon.loop.readiness.awaited is Awaited.PARTITIONS
        assert "at_work" not in [line["event"] for line in logged]
        release()
        world.run()
    assert daemon.loop.readiness.awaited is None


def test_a_member_that_is_assigned_nothing_becomes_ready_as_a_spare_without_a_rebalance_that_it_hears_of(world, daemon):
    daemon.loop._close_clients()
    daemon.loop.readiness.set_awaited(Awaited.KAFKA)
    source, _ = daemon.loop._open_clients()
    source.inner.assigned, source.inner.stats, source.inner.generation = frozenset, SourceStats, lambda: None
    for _ in range(20):  # beside a daemon in a long batch
        daemon.loop._record_success(source, Batch())
        assert daemon.metric("ready") == 0
        began_at_s = CLOCK.now_s
        CLOCK.now_s += 1
    source.inner.generation = lambda: 1
    for _ in range(20):
        daemon.loop._record_success(source, Batch())
        assert daemon.metric("ready") == (CLOCK.now_s - began_at_s >= SPARE_S)
        CLOCK.now_s += 1
