"""The loop over broker and index in memory: dead letters, errors that end the daemon, readiness and slow start.

That no fault loses or doubles a pair is shown by the simulation.
"""

import itertools
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import pytest
import structlog

from streamdedup import clock as wall_clock
from streamdedup import errors
from streamdedup.daemon import batch as stages
from streamdedup.daemon import readiness
from streamdedup.daemon.read_ahead import JOINING_POLL_S, POLL_S
from streamdedup.daemon.slow_start import SlowStart
from streamdedup.detection.detector import Detector
from streamdedup.errors import BrokerSilent, BrokerUnavailable, GroupHasOtherIndex, RegistryUnavailable
from streamdedup.position import Partition
from streamdedup.wire import Decoder, decode_alert
from streamdedup.wire.dead_letters import read_headers
from tests.floods import a_story, decoys
from tests.simulation.transport import MemorySink
from tests.turns import (
    CLOCK,
    DEAD_LETTERS,
    DUPLICATES,
    FINGERPRINT,
    GROUP,
    INPUT,
    WORDS,
    Daemon,
    Killed,
    Moment,
    Sent,
    World,
    a_text,
    batch_refused,
    broker_fails,
    killed,
    once,
    raising,
    rebalanced,
    store_fails,
)

TEXT = "amber birch cedar delta ember fjord grove"
OTHER_TEXT = "heath inlet jetty knoll lagoon amber"
TWINS = (Sent("x", TEXT, 0), Sent("y", TEXT, 1))


@pytest.fixture
def world() -> World:
    """One daemon, and two documents of one text in two partitions."""
    return World(TWINS)


@pytest.fixture
def daemon(world) -> Daemon:
    return world.daemons[0]


@pytest.fixture(autouse=True, scope="module")
def _no_log() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


@pytest.mark.parametrize("batch_size", [1, 3, 500])
def test_each_record_is_counted_once_and_alerts_have_the_copied_header_of_their_record(batch_size):
    bad = [Sent("x", None, code="null_without_key"), Sent("x", "", code="not_json"), Sent("x", "", code="unreadable")]
    known = [Sent("a", TEXT), Sent("b", TEXT, op="append", code="unknown_document"), Sent("a", "", op="delete")]
    world = World([*bad, *known, Sent("c", TEXT), Sent("d", TEXT)], partitions=1, batch_size=batch_size).run()
    codes = ["null_without_key", "not_json", "unreadable"]
    letters = [*enumerate(codes), (4, "unknown_document")]
    assert world.dead_letters() == [("0", offset, code) for offset, code in letters]
    # The time of the record, 0, and without one the present.
    assert [letter.timestamp_ms > 0 for letter in world.broker.records(DEAD_LETTERS)] == [False, False, True, False]
    # With the id of its topic, an unreadable record is not confused with that of a topic that is created again.
    topic_ids = [read_headers(letter.headers).get("topic-id") for letter in world.broker.records(DEAD_LETTERS)]
    assert topic_ids == [None, None, "1", None]
    assert world.pairs() == [("c", "d")]
    parts = ["documents_indexed_total", "documents_deleted_total", "skipped_total", "dead_letters_total"]
    assert [world.total(name) for name in ("records_total", *parts)] == [8, 3, 1, 0, 4]
    (alert,) = world.broker.records(DUPLICATES)
    assert alert.headers == (("traceparent", b"articles:0:7"),)


def test_at_least_once_messages_without_their_commit_alone_are_doubled():
    for number in range(len(World(TWINS, exactly_once=False).run().trace)):
        for act in (killed, broker_fails):
            world = World(TWINS, exactly_once=False, plan={number: act}.get).run()
            effect = world.trace[number].effect
            assert world.pairs() == [("x", "y")] * (2 if effect == "commit" else 1), (effect, act)


# Dead letters without end


def test_a_topic_that_turns_bad_halts_the_daemon_which_keeps_its_partitions():
    good = [Sent(f"g{number}", a_text(random.Random(number))) for number in range(6)]
    bad = [Sent("x", "", code="not_json") for _ in range(20)]
    world = World([*good, *bad], partitions=1, batch_size=4, dead_letter_limit=8)
    (daemon,) = world.daemons
    for _ in range(30):
        world.turn(daemon)
    # Two bad ones came with the last good ones, four more make six, and with the next batch it would be ten.
    assert len(world.dead_letters()) == 6
    assert world.broker.offsets_of(GROUP) == {Partition(INPUT, 0): 12}
    problem = daemon.loop.readiness.problem()
    assert problem.startswith("halted: 10 of the last 1000 records of articles would be dead letters")
    assert "4 not_json" in problem
    assert daemon.metric("halted") == 1
    assert daemon.metric("ready") == 0
    world.start("b")
    for _ in range(10):
        world.turn(daemon)
    assert daemon.source.assigned(), "the partitions stay with the daemon that has halted"


def test_a_batch_with_too_many_records_that_cannot_be_decoded_writes_nothing():
    records = [Sent("a", "amber birch cedar"), *[Sent("x", "", code="not_json")] * 3]
    world = World(records, partitions=1, dead_letter_limit=2)
    (daemon,) = world.daemons
    world.turn(daemon)
    assert daemon.metric("halted") == 1
    assert world.index.count_documents() == 0


def test_a_daemon_that_has_halted_keeps_on_through_an_outage_of_kafka_and_goes_on_after_a_restart():
    bad = [Sent("x", "", code="not_json") for _ in range(12)]
    world = World(bad, partitions=1, batch_size=4, dead_letter_limit=6)
    (daemon,) = world.daemons
    for _ in range(5):
        world.turn(daemon)
    assert daemon.metric("halted") == 1
    world.plan = once("open_clients", broker_fails)
    daemon.leave_group()
    daemon.loop._close_clients()
    for _ in range(10):
        world.turn(daemon)
    assert daemon.loop.readiness.problem().startswith("halted")
    assert len(world.dead_letters()) == 4
    daemon.leave_group()
    for _ in range(2):
        daemon = world.restart(daemon)
        for _ in range(5):
            world.turn(daemon)
        daemon.leave_group()
    assert len(world.dead_letters()) == 12


def test_records_whose_dead_letters_exist_do_not_halt_a_daemon_that_reads_them_again():
    bad = [Sent("x", "", code="not_json")] * 4
    world = World(bad, partitions=1, batch_size=10, dead_letter_limit=5).run()
    world.daemons[0].leave_group()
    daemon = world.restart(world.daemons[0])
    world.broker.commit(GROUP, {Partition(INPUT, 0): 0})
    world.send(*bad[:2]).run()
    assert daemon.metric("halted") == 0
    assert len(world.dead_letters()) == 6


@pytest.mark.parametrize("is_memory_short", [False, True])
def test_a_document_that_cannot_be_prepared_is_a_dead_letter_and_the_others_go_on(is_memory_short):
    """Also where the memory is short for a moment, while the documents are prepared one by one."""
    shortages = [MemoryError()] * is_memory_short

    class Failing(Detector):
        def prepare(self, documents):
            if any("fjord" in document.text for document in documents):
                raise ZeroDivisionError("text: amber birch fjord")
            if shortages:
                raise shortages.pop()
            return super().prepare(documents)

    records = [Sent("a", OTHER_TEXT), Sent("x", TEXT, code="internal"), Sent("b", OTHER_TEXT)]
    world = World(records, partitions=1, make_detector=Failing)
    restarted_after_memory_errors(world)
    assert world.run().pairs() == [("a", "b")]
    assert shortages == []
    (letter,) = world.broker.records(DEAD_LETTERS)
    headers = read_headers(letter.headers)
    assert headers["error.class"] == "ZeroDivisionError"
    assert "fjord" not in headers["error.message"]


def test_a_defect_that_no_single_document_triggers_ends_the_daemon():
    make_detector = detector_that_fails(lambda count: count > 1, [], ZeroDivisionError)
    world = World([Sent("a", OTHER_TEXT), Sent("b", OTHER_TEXT)], partitions=1, make_detector=make_detector)
    with pytest.raises(ZeroDivisionError):
        world.run()
    assert world.dead_letters() == []


def test_too_little_memory_for_several_records_is_no_records_fault():
    make_detector = detector_that_fails(lambda count: count > 0, [], MemoryError)
    world = World([Sent("a", OTHER_TEXT), Sent("b", OTHER_TEXT)], partitions=1, make_detector=make_detector)
    with pytest.raises(MemoryError):
        world.run()
    assert world.dead_letters() == []


@pytest.mark.parametrize("stage", ["decode", "prepare"])
def test_a_record_that_is_too_large_for_the_memory_alone_becomes_a_dead_letter(monkeypatch, stage):
    if stage == "decode":
        decode = Decoder.decode

        def fails_at_offset_2(decoder, position, *rest):
            if position.offset == 2:
                raise MemoryError
            return decode(decoder, position, *rest)

        monkeypatch.setattr(Decoder, "decode", fails_at_offset_2)

    class Failing(Detector):
        def prepare(self, documents):
            if stage == "prepare" and any(document.position.offset == 2 for document in documents):
                raise MemoryError
            return super().prepare(documents)

    world = World(documents(8), partitions=1, batch_size=4, grown=False, make_detector=Failing)
    restarted_after_memory_errors(world)
    world.run()
    assert world.dead_letters() == [("0", 2, "too_large")]


def test_a_version_that_is_too_large_for_the_memory_leaves_the_stored_version():
    class Failing(Detector):
        def prepare(self, documents):
            if any(document.position.offset == 1 for document in documents):
                raise MemoryError
            return super().prepare(documents)

    records = [Sent("a", OTHER_TEXT), Sent("a", TEXT), Sent("b", OTHER_TEXT)]
    world = World(records, partitions=1, grown=False, make_detector=Failing)
    restarted_after_memory_errors(world)
    assert world.run().pairs() == [("a", "b")]


def test_times_in_the_future_are_counted():
    future_ms = wall_clock.now_ms() + 10**9
    (daemon,) = World([Sent("a", TEXT, time_ms=future_ms), Sent("b", OTHER_TEXT)], partitions=1).run().daemons
    assert daemon.metric("future_times_total") == 1


@pytest.mark.parametrize(
    ("effect", "act"), [("insert_copies", store_fails), ("announce", store_fails), ("publish", broker_fails)]
)
def test_a_document_that_full_buckets_hide_is_counted_once_for_its_committed_record(effect, act):
    story = a_story()
    records = [Sent(document_id, text) for document_id, text in decoys(story, 120, 85)]
    records += [Sent("story", story), Sent("story", story)]
    world = World(records, batch_size=500, index_options={"bucket_cap": 5})
    world.plan = once(effect, act)
    (daemon,) = world.run().daemons
    assert not world.pairs()
    assert daemon.metric("documents_replayed_total") == 121
    assert daemon.metric("documents_hidden_total", profile="articles") == 1


# Offsets, index, fencing


def test_two_daemons_that_start_at_once_take_no_commit_of_the_other_for_a_lost_index():
    for number in range(30):

        def freezes(world: World, moment: Moment) -> None:
            moment.daemon.leave_group()
            for daemon in [daemon for daemon in world.daemons if daemon is not moment.daemon] * 6:
                world.turn(daemon)

        World(TWINS, names=("a", "b"), joined=False, plan={number: freezes}.get).run()


def test_another_index_ends_the_daemon(world):
    world.index._fingerprint = {**FINGERPRINT, "bands": 7}
    world.start_later()
    with pytest.raises(errors.IndexMismatch, match="bands"):
        world.run()


def test_a_daemon_without_records_is_ready_after_a_short_poll_and_polls_longer_from_then_on():
    world = World([], joined=False)
    (daemon,) = world.daemons
    for timeout_s in (JOINING_POLL_S, POLL_S):
        before_s = CLOCK.now_s
        world.turn(daemon)
        assert daemon.loop.readiness.problem() is None
        assert CLOCK.now_s - before_s == pytest.approx(timeout_s)


def test_two_refusals_of_an_idle_daemon_hours_apart_are_no_stale_fence(world, daemon, monkeypatch):
    world.run()
    recover_or_create = daemon.loop._recovery.recover_or_create

    def refuse(*_):
        raise errors.BatchRefused("another process rebuilds the index")

    for _ in range(2):
        monkeypatch.setattr(daemon.loop._recovery, "recover_or_create", refuse)
        daemon.loop._turn()
        assert daemon.loop.readiness.problem() == "waiting for partitions"
        monkeypatch.setattr(daemon.loop._recovery, "recover_or_create", recover_or_create)
        daemon.loop._turn()
        assert daemon.loop.readiness.problem() is None
        CLOCK.now_s += 3_600


def test_a_batch_of_a_partition_that_was_revoked_after_the_poll_is_refused(world, daemon, monkeypatch):
    recovery = daemon.loop._recovery
    recovery._opened.clear()
    monkeypatch.setattr(recovery, "open", lambda: None)
    monkeypatch.setattr(recovery, "recover_or_create", lambda _source: False)
    world.turn(daemon)
    assert daemon.loop.readiness.problem() == "waiting for partitions"
    assert "fence" not in {moment.effect for moment in world.trace}


def test_partitions_that_stay_with_a_daemon_in_a_rebalance_are_fenced_again(world, daemon):
    world.run()
    world.broker.rebalance(GROUP)
    world.send(Sent("z", TEXT, 0), Sent("w", TEXT, 1)).run()
    assert set(world.index._fences.values()) == {world.broker.groups[GROUP].generation}


def test_a_fence_of_a_later_generation_that_stays_ends_the_daemon_with_advice(world):
    world.index._fences = dict.fromkeys(world.ends, 10**6)
    with pytest.raises(errors.StaleFence, match="streamdedup index unfence"):
        world.run()


@pytest.mark.parametrize("pause_s", [40, 3_600])
def test_refusals_of_several_rebalances_are_no_stale_fence(world, daemon, pause_s):
    for _ in range(3):
        world.plan = once("fence", batch_refused)
        world.turn(daemon)
        daemon.leave_group()
        CLOCK.now_s += pause_s
    assert world.run().pairs() == [("x", "y")]
    assert daemon.metric("batches_refused_total") == 3


def test_refusals_with_successful_batches_between_them_are_no_stale_fence(world, daemon):
    for number in range(3):
        world.send(Sent(f"z{number}", OTHER_TEXT))
        world.plan = once("announce", batch_refused)
        world.turn(daemon)
        world.run()
        CLOCK.now_s += 40
    assert daemon.metric("batches_refused_total") == 3


def test_a_fenced_producer_is_rebuilt_once_and_reports_a_twin_within_a_minute(world, daemon):
    world.broker.register("a")
    world.turn(daemon)
    assert daemon.loop.readiness.problem() == "waiting for Kafka"
    world.turn(daemon)
    assert world.run().pairs() == [("x", "y")]
    world.broker.register("a")
    world.broker.produce(INPUT, b"{}", partition=0)
    CLOCK.now_s += 30
    with pytest.raises(errors.ProducerFenced, match="another producer took over a"):
        world.turn(daemon)


def test_a_producer_fenced_again_much_later_is_rebuilt_again(world, daemon):
    for number in range(3):
        world.broker.produce(INPUT, b"{", partition=0)
        world.broker.register("a")
        CLOCK.now_s += 61
        world.turn_until(daemon, lambda number=number: len(world.dead_letters()) > number)
    assert world.dead_letters() == [("0", number, "not_json") for number in range(1, 4)]
    world.broker.produce(INPUT, b"{", partition=0)
    world.broker.register("a")
    with pytest.raises(errors.ProducerFenced):  # within a minute of the last time, not of the first
        world.turn(daemon)


@pytest.mark.parametrize("failure", ["fenced", "publication", "connection", "both servers"])
def test_a_daemon_whose_membership_another_process_holds_ends_instead_of_evicting_it(world, daemon, failure):
    world.turn(daemon)
    if failure == "fenced":
        world.broker.register("a")
    elif failure == "connection":
        world.server.epoch += 1

    def act(_world: World, moment: Moment) -> None:
        if failure == "publication" and moment.effect == "publish":
            raise errors.BrokerUnavailable("made to fail")
        if failure == "both servers" and moment.effect == "insert_entries":
            daemon.source._broken = "made to fail"
            raise errors.StoreUnavailable("made to fail")
        if moment.effect == "confirm":
            raise errors.BrokerMisconfigured("another live member has our place")

    world.send(Sent("z", TEXT, 0))
    world.plan = lambda _number: act
    with pytest.raises(errors.BrokerMisconfigured, match="has our place"):
        world.turn(daemon)


@pytest.mark.parametrize("failure", ["fenced", "publication"])
def test_a_membership_that_cannot_be_confirmed_is_given_up(world, daemon, failure):
    if failure == "fenced":
        world.broker.register("a")
    publications, failed = [], []

    def act(_world: World, moment: Moment) -> None:
        is_failed_publication = moment.effect == "publish" and failure == "publication" and not publications
        is_question_after_it = moment.effect == "confirm" and publications and "confirm" not in failed
        publications.extend(["publish"] * (moment.effect == "publish"))
        if is_failed_publication or is_question_after_it:
            failed.append(moment.effect)
            raise BrokerUnavailable("made to fail")

    world.plan = lambda _number: act
    assert world.run().pairs() == [("x", "y")]
    assert failed[-1] == "confirm"
    assert daemon.loop.readiness.problem() is None


# Servers that are away


def test_while_the_store_is_away_the_daemon_reports_it_keeps_its_membership_and_then_continues(world, daemon):
    assert (daemon.loop.readiness.problem(), daemon.metric("ready")) == (None, 1)
    generation, seen = world.broker.groups[GROUP].generation, []
    world.plan = lambda _number: store_fails if len(seen) < 5 else None
    world.outages = [lambda: seen.append((daemon.loop.readiness.problem(), daemon.metric("ready")))] * 5
    world.run()
    assert seen == [("waiting for the store", 0)] * 5
    assert (daemon.loop.readiness.problem(), daemon.metric("ready")) == (None, 1)
    assert daemon.metric("store_errors_total") == 5
    assert world.broker.groups[GROUP].generation == generation
    assert world.pairs() == [("x", "y")]


def test_while_the_schema_registry_is_away_the_daemon_reports_it_keeps_its_membership_and_then_continues(
    world, daemon, monkeypatch
):
    decode, failures = Decoder.decode, [errors.RegistryUnavailable("away")] * 3
    generation, seen = world.broker.groups[GROUP].generation, []

    def away(*arguments):
        if failures:
            raise failures.pop()
        return decode(*arguments)

    monkeypatch.setattr(Decoder, "decode", away)
    for _ in range(3):
        world.turn(daemon)
        seen.append((daemon.loop.readiness.problem(), daemon.metric("ready")))
    assert seen == [("waiting for the schema registry", 0)] * 3
    world.run()
    assert (daemon.loop.readiness.problem(), daemon.metric("ready")) == (None, 1)
    assert world.broker.groups[GROUP].generation == generation
    assert world.dead_letters() == []
    assert world.pairs() == [("x", "y")]


def test_the_awaited_servers_at_the_start_are_named_one_by_one():
    world = World(TWINS, joined=False)
    (daemon,) = world.daemons
    said = []
    world.plan = lambda _number: lambda _world, moment: said.append((moment.effect, daemon.loop.readiness.problem()))
    world.turn(daemon)
    assert ("open", "waiting for the store") in said
    assert ("open_clients", "waiting for Kafka") in said
    assert ("poll", "waiting for Kafka") in said
    assert daemon.loop.readiness.problem() is None


def test_waiting_is_logged_once_for_each_outage_also_for_one_at_the_start(monkeypatch):
    told: list[str] = []
    log = SimpleNamespace(info=lambda *_, **__: None, warning=lambda event, **fields: told.append(fields["what"]))
    monkeypatch.setattr(readiness, "log", log)
    world = World(TWINS, joined=False)
    (daemon,) = world.daemons
    for number in range(2):
        world.broker.produce(INPUT, b'{"id": "z%d", "text": "amber"}' % number, partition=0)
        world.plan = lambda _number: store_fails
        world.outages = [lambda: None, lambda: setattr(world, "plan", lambda _number: None)]
        world.turn(daemon)
        world.turn(daemon)
        assert daemon.loop.readiness.problem() is None
    assert told == ["the store", "the store"]


def test_while_kafka_is_away_the_daemon_reports_it_and_then_continues(world, daemon):
    world.broker.publish_failures = ["before commit"]
    world.turn(daemon)
    world.broker.away = True
    seen = []

    def come_back() -> None:
        seen.append((daemon.loop.readiness.problem(), daemon.metric("ready")))
        world.broker.away = len(seen) < 4

    world.outages = [come_back] * 4
    world.run()
    assert seen == [("waiting for Kafka", 0)] * 4
    assert (daemon.loop.readiness.problem(), daemon.metric("ready")) == (None, 1)
    assert daemon.metric("broker_errors_total") == 5
    assert world.pairs() == [("x", "y")]


@pytest.mark.parametrize("effect", ["publish", "committed_offset"])
def test_while_kafka_does_not_answer_a_request_of_a_batch_the_daemon_reports_it(world, daemon, effect):
    seen = []

    def time_passes(_world: World, moment: Moment) -> None:
        if not seen and moment.effect == effect:
            CLOCK.now_s += 9
            waiting = daemon.metric("waiting", what="kafka")
            seen.append((daemon.loop.readiness.problem(), daemon.metric("ready"), waiting))

    world.plan = lambda _number: time_passes
    world.run()
    assert seen == [("waiting for Kafka", 0, 1)]
    assert (daemon.loop.readiness.problem(), daemon.metric("ready")) == (None, 1)


@pytest.mark.parametrize("effect", ["insert_entries", "insert_and_look_up", "fence"])
def test_a_long_step_that_asks_nothing_of_kafka_is_no_wait_for_it(world, daemon, effect):
    seen = []

    def time_passes(_world: World, moment: Moment) -> None:
        if moment.effect == effect:
            CLOCK.now_s += 60
            seen.append(daemon.loop.readiness.problem())

    world.plan = lambda _number: time_passes
    world.run()
    assert seen
    assert set(seen) == {None}


def test_from_a_failed_publish_to_new_clients_the_daemon_is_not_ready(world, daemon):
    world.broker.publish_failures = ["before commit"]
    seen = []
    close = daemon.loop._close_clients

    def noting() -> None:
        seen.append(daemon.loop.readiness.problem())
        close()

    daemon.loop._close_clients = noting
    world.run()
    assert seen == ["waiting for Kafka"]


def detector_that_fails(fails: Callable[[int], bool], sizes: list[int], error: type[BaseException]) -> type[Detector]:
    """Return a detector whose process ends at some batches.

    Args:
        fails: Whether the process ends, by the number of documents.
        sizes: Number of documents of each batch, extended at each.
        error: Ends the process.
    """

    class Failing(Detector):
        def prepare(self, documents):
            sizes.append(len(documents))
            if fails(len(documents)):
                raise error("out of memory")
            return super().prepare(documents)

    return Failing


def restarted_after_memory_errors(world: World) -> None:
    """Let a supervisor restart daemons that a ``MemoryError`` ended."""
    turn = world.turn

    def supervised(daemon: Daemon) -> None:
        try:
            turn(daemon)
        except MemoryError:
            daemon.leave_group()
            world.restart(daemon)

    world.turn = supervised


def documents(count: int) -> list[Sent]:
    """Return different documents of one partition."""
    return [Sent(f"d{at}", f"{WORDS[at % 12]} {at} alone and {at} once more") for at in range(count)]


@pytest.mark.parametrize("error", [Killed, MemoryError])
@pytest.mark.parametrize(("most", "committed"), [(1, 1), (3, 3), (9, 15)])
def test_where_memory_is_short_for_good_each_process_commits_the_smaller_batches(most, committed, error):
    sizes: list[int] = []
    make_detector = detector_that_fails(lambda count: count > most, sizes, error)
    world = World(documents(90), partitions=1, batch_size=16, grown=False, make_detector=make_detector)
    restarted_after_memory_errors(world)
    world.run()
    assert world.pairs() == []
    assert 0 < sum(size > most for size in sizes) <= 90 / committed


def test_the_slow_start_learns_of_documents_that_a_killed_process_had_inserted(monkeypatch):
    world = World(documents(6), partitions=1, batch_size=4)
    world.plan = once("announce", killed)
    replayed: list[int] = []
    monkeypatch.setattr(SlowStart, "grow", lambda _self, count: replayed.append(count))
    world.grown = False
    world.run()
    assert replayed == [1, 1, 1, 1, 0, 0]
    assert world.pairs() == []


def test_documents_whose_offsets_were_set_back_are_not_those_of_an_attempt_that_was_not_committed():
    world = World(documents(6), partitions=1, grown=False).run()
    world.stop_all()
    world.broker.commit(GROUP, {Partition(INPUT, 0): 0})
    daemon = world.start("later")
    with structlog.testing.capture_logs() as logs:
        world.turn_until(daemon, lambda: world.done)
    assert (daemon.metric("documents_indexed_total"), daemon.metric("documents_replayed_total")) == (6, 0)
    assert "batch_repeated" not in [entry["event"] for entry in logs]


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("most", [1, 2, 7])
def test_a_batch_that_outlasts_its_membership_is_read_again_in_smaller_batches(most, exactly_once):
    """The group goes on without a member whose batch has more than so many records."""
    sizes: list[int] = []

    def outlasts(_world: World, moment: Moment) -> None:
        if moment.effect == "publish" and sizes[-1] > most:
            moment.daemon.leave_group()

    make = detector_that_fails(lambda _count: False, sizes, Killed)
    world = World(documents(60), partitions=1, batch_size=8, grown=False, exactly_once=exactly_once, make_detector=make)
    world.plan = lambda _number: outlasts
    world.run()
    grows = [size for size in (1, 2, 4, 8) if size <= 2 * most]
    assert sizes[: 2 * len(grows)] == 2 * grows
    assert len(world.everyone) == 1
    assert world.pairs() == []


@pytest.mark.parametrize(
    ("effect", "act", "records"),
    [
        ("claim_pairs", store_fails, None),
        ("publish", raising(errors.StoreUnavailable("made to fail")), None),
        ("committed_offset", broker_fails, None),
        ("publish", broker_fails, 4),
        ("announce", raising(errors.Rejoin("made to fail")), None),
        ("announce", batch_refused, 4),
        ("poll_ahead", rebalanced, 4),
        ("insert_entries", rebalanced, 4),
        ("publish", rebalanced, 4),
        ("publish", raising(errors.ProducerFenced("made to fail")), 4),
    ],
)
def test_only_a_batch_undone_for_time_membership_or_publishing_is_followed_by_one_record(effect, act, records):
    world = World(documents(20), partitions=1, batch_size=4)
    world.plan = once(effect, act)
    (daemon,) = world.daemons
    undone: list[int] = []
    restart = daemon.loop._slow_start.restart

    def restarted(count: int) -> None:
        undone.append(count)
        restart(count)

    daemon.loop._slow_start.restart = restarted
    world.turn(daemon)
    assert undone == ([] if records is None else [records])
    assert daemon.loop._slow_start.limit == (4 if records is None else 1)
    world.run()
    assert world.pairs() == []


def test_a_committed_batch_is_not_undone_where_the_store_fails_behind_the_commit():
    """The connection stays, as where Redis has no memory left."""
    world = World([Sent("x", TEXT), Sent("y", TEXT)], partitions=1)
    world.plan = once("finish", raising(errors.StoreUnavailable("made to fail")))
    assert world.run().pairs() == [("x", "y")]
    assert world.total("store_errors_total") == 0


def test_an_idle_daemon_raises_the_marks_that_were_missed_of_its_own_partitions():
    text = "amber birch cedar delta ember"
    world = World([Sent("x", text, 0), Sent("y", text, 1)], names=("a", "b")).run()
    marks = dict(world.index._high_water_marks)
    world.index._high_water_marks.update(dict.fromkeys(marks, 0))
    for fenced_by in ["a", "b"], []:
        CLOCK.now_s += 30
        world.trace.clear()
        world.run()
        assert [moment.daemon.name for moment in world.trace if moment.effect == "fence"] == fenced_by
        assert world.index._high_water_marks == marks


def test_an_offset_that_was_set_ahead_by_hand_raises_no_mark_before_a_batch(world):
    world.run().stop_all()
    world.send(Sent("z", TEXT, 0))
    for offset in (2, 1):  # ahead, and back
        world.broker.commit(GROUP, {Partition(INPUT, 0): offset})
        later = world.start("later")
        for _ in range(3):
            world.turn(later)
        world.stop_all()
    assert world.pairs() == [("x", "y"), ("x", "z"), ("y", "z")]


def test_a_mark_that_was_missed_is_not_raised_beyond_the_end_of_a_topic_that_has_lost_its_end(world, daemon):
    world.run()
    marks = dict(world.index._high_water_marks)
    committed_offsets = world.broker.groups[GROUP].committed_offsets
    committed_offsets |= {each: replace(offset, offset=offset.offset + 5) for each, offset in committed_offsets.items()}
    CLOCK.now_s += 30
    world.turn(daemon)
    assert world.index._high_water_marks == marks


def test_an_idle_daemon_reports_that_kafka_is_away_and_keeps_its_clients(world, daemon):
    world.run()
    generation = world.broker.groups[GROUP].generation
    world.broker.away = True
    for _ in range(3):
        world.turn(daemon)
        assert (daemon.loop.readiness.problem(), daemon.metric("ready")) == ("waiting for Kafka", 0)
    world.broker.away = False
    world.turn(daemon)
    assert (daemon.loop.readiness.problem(), daemon.metric("ready")) == (None, 1)
    assert daemon.metric("rebuilds_total") == 0
    assert world.broker.groups[GROUP].generation == generation


@pytest.mark.parametrize(
    ("error", "count"), [(BrokerSilent("away"), 1), (BrokerUnavailable("away"), 1), (RegistryUnavailable("away"), 0)]
)
def test_failures_of_kafka_are_counted_and_not_those_of_the_registry(world, daemon, error, count):
    world.broker.poll_failures.append(error)
    world.turn(daemon)
    assert daemon.metric("broker_errors_total") == count


def test_a_daemon_waits_for_the_group_while_members_have_another_index(world, daemon):
    shown, tries = set(), []

    def other_index(_world, moment):
        if moment.effect == "open_clients":
            tries.append(daemon.loop.readiness.problem())
            raise GroupHasOtherIndex("old at 10.0.0.7")

    world.broker.poll_failures.append(BrokerUnavailable("made to fail"))
    world.turn(daemon)
    failures = daemon.metric("broker_errors_total")
    world.plan = lambda _number: other_index
    for _ in range(4):
        world.turn(daemon)
        shown.add((daemon.loop.readiness.problem(), daemon.metric("waiting", what="group")))
    assert shown == {("waiting for the group", 1)}
    assert tries[1:] == ["waiting for the group"] * 3
    assert daemon.metric("broker_errors_total") == failures
    world.plan = lambda _number: lambda *_: shown.add(daemon.loop.readiness.problem())
    world.run()
    assert daemon.loop.readiness.problem() is None
    assert world.pairs() == [("x", "y")]


def test_a_daemon_without_partitions_is_ready():
    world = World(TWINS, partitions=1, names=("a", "b")).run()
    problems = [daemon.loop.readiness.problem() for daemon in world.daemons]
    assert problems == [None, None]


def test_delays_grow_up_to_a_limit_and_start_again_after_success(world, daemon):
    times: list[float] = []
    world.plan = lambda _number: store_fails if len(times) < 10 else None
    for number in range(2):
        world.broker.produce(INPUT, b'{"id": "z%d", "text": "amber"}' % number, partition=0)
        times[:] = [CLOCK.now_s]
        world.outages = [lambda: times.append(CLOCK.now_s)] * 9
        world.turn(daemon)
        world.outages = []
        waits = [later - earlier for earlier, later in itertools.pairwise(times)]
        assert 0.05 <= waits[0] <= 0.1
        assert all(1.0 <= wait <= 2.0 for wait in waits[-4:])
        world.turn(daemon)
        assert daemon.loop.readiness.problem() is None


def test_the_sink_whose_transaction_may_be_open_is_closed_before_the_membership_ends(world, monkeypatch):
    had_members = []
    monkeypatch.setattr(MemorySink, "close", lambda _sink: had_members.append(any(world.broker.groups[GROUP].members)))
    world.run().stop_all()
    assert had_members == [True]


def test_a_wait_for_the_store_ends_with_a_request_to_stop(world, daemon):
    world.plan = lambda _number: store_fails
    world.outages = [lambda: None, lambda: None, lambda: setattr(daemon.stop, "stopping", True)]
    daemon.loop.run()
    assert world.broker.groups[GROUP].members == []


def test_the_alerts_of_the_chunks_of_a_batch_have_the_order_of_their_documents(world, monkeypatch):
    monkeypatch.setattr(stages, "CHUNK_DOCUMENTS", 1)
    world.send(*(Sent(name, TEXT, 0) for name in "abc"))
    world.run()
    alerts = [decode_alert(record.value) for record in world.broker.records(DUPLICATES)]
    assert [alert.document.id for alert in alerts] == ["a", "b", "c", "y"]
