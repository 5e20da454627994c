"""The loop over broker and index in memory: no pair is lost or doubled under any fault.

``simulation.world`` holds the world in which the daemons are stepped. The tests under "rules" switch one rule of
``index.contract`` off and show that the same world then sees pairs lost or doubled: it would notice.
"""

import copy
import itertools
import logging
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest
import structlog
from hypothesis import example, given, settings
from hypothesis import strategies as st

from streamdedup import errors
from streamdedup.daemon import health
from streamdedup.daemon.breaker import BreakerOptions
from streamdedup.daemon.read_ahead import JOINING_POLL_S, POLL_S
from streamdedup.daemon.slow_start import SlowStart
from streamdedup.detection.candidates import BucketHits
from streamdedup.detection.detector import Detector
from streamdedup.detection.model import DetectionResult
from streamdedup.errors import BrokerUnavailable, GroupHasOtherIndex
from streamdedup.index.memory import MemoryIndex
from streamdedup.position import Partition
from streamdedup.wire import Decoder, content_digest
from streamdedup.wire.dead_letters import read_headers
from tests.floods import a_story, decoys
from tests.simulation.world import (
    CLOCK,
    DEAD_LETTERS,
    DUPLICATES,
    FINGERPRINT,
    GROUP,
    INPUT,
    STORE_METHODS,
    WORDS,
    Act,
    Daemon,
    Killed,
    Moment,
    Sent,
    World,
    a_random_run,
    a_text,
    batch_refused,
    broker_fails,
    frozen,
    killed,
    rebalanced,
    slow,
    some_records,
    store_fails,
)
from tests.thoroughness import examples

TEXT = "amber birch cedar delta ember fjord grove"
OTHER_TEXT = "heath inlet jetty knoll lagoon amber"
TWINS = (Sent("x", TEXT, 0), Sent("y", TEXT, 1))
RECORDS = some_records(3, 6)


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


def plan_once(effect: str, act: Act, *, after: bool = False):
    """Return an ``act`` for every moment that acts at the first one of ``effect``."""
    done = []

    def at(world: World, moment: Moment) -> None:
        if not done and (moment.effect, moment.after) == (effect, after):
            done.append(moment)
            act(world, moment)

    return lambda _number: at


# Without a fault


@pytest.mark.parametrize("names", ["a", "ab", "abc"])
@pytest.mark.parametrize("batch_size", [1, 3, 500])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_subscriber_sees_every_expected_pair_once_and_all_poison_is_a_dead_letter(names, batch_size, seed):
    world = World(some_records(seed, 30, partitions=3), partitions=3, names=names, batch_size=batch_size).run()
    assert world.wrong() == []
    assert len(world.published()) > 10
    assert len(world.dead_letters()) == 3
    assert sum(daemon.metric("records_total") for daemon in world.everyone) == len(world.records)


def test_a_record_that_kafka_cannot_parse_becomes_a_dead_letter_of_its_place_alone():
    world = World([Sent("a", TEXT), Sent("x", "", code="unreadable"), Sent("b", TEXT)], partitions=1).run()
    assert world.dead_letters() == [("0", 1, "unreadable")]
    assert world.wrong() == []


def test_an_append_to_an_unknown_document_becomes_a_dead_letter():
    never, gone = Sent("a", TEXT, op="append", code="unknown_document"), Sent("b", TEXT)
    deleted = [gone, Sent("b", "", op="delete"), Sent("b", TEXT, op="append", code="unknown_document")]
    assert World([never, *deleted], partitions=1, batch_size=1).run().wrong() == []
    assert World([never, *deleted], partitions=1).run().wrong() == []


@pytest.mark.parametrize("batch_size", [1, 500])
def test_a_document_inserted_again_after_a_deletion_is_alerted_again_and_once(batch_size):
    other, far = "knoll lagoon jetty inlet heath", "ember fjord amber cedar grove"
    records = [
        Sent("a", TEXT), Sent("b", TEXT), Sent("a", "", op="delete"),
        Sent("a", TEXT), Sent("a", other), Sent("a", TEXT), Sent("a", far, op="append"), Sent("a", TEXT),
    ]  # fmt: skip
    published = World(records, partitions=1, batch_size=batch_size).run().published()
    digest = content_digest(TEXT).hex()
    assert published == {(("a", digest), ("b", digest)): 2}


@pytest.mark.parametrize("names", ["a", "ab"])
@pytest.mark.parametrize("batch_size", [1, 4, 500])
def test_documents_with_appends_changes_and_deletions_are_compared_in_their_present_state(names, batch_size):
    for seed in range(8):
        world = World(some_records(seed, 14, changes=0.3, ends=0.5), names=names, batch_size=batch_size).run()
        assert world.wrong() == []


@pytest.mark.parametrize(
    "seeds", [range(30), pytest.param(range(30, 300), marks=pytest.mark.long)], ids=["few", "many"]
)
def test_no_schedule_of_faults_harms_documents_with_appends_changes_and_deletions(seeds):
    for seed in seeds:
        assert a_random_run(seed, ends=0.5).wrong() == [], seed


def test_at_any_failure_an_append_to_no_document_stays_one_when_the_document_is_in_the_same_batch():
    records = [
        Sent("a", TEXT, op="append", code="unknown_document"),
        Sent("a", TEXT),
        Sent("b", TEXT, op="append", code="unknown_document"),
        Sent("b", "", op="delete"),
        Sent("c", TEXT),
    ]
    moments = len(World(records, partitions=1).run().trace)
    for number in range(moments):
        for act in (killed, store_fails):
            world = World(records, partitions=1, plan={number: act}.get).run()
            assert world.wrong() == [], (number, act)


# Dead letters without end


def test_a_topic_that_turns_bad_halts_the_daemon_which_keeps_its_partitions():
    good = [Sent(f"g{number}", a_text(random.Random(number))) for number in range(6)]
    bad = [Sent("x", "", code="not_json") for _ in range(20)]
    world = World([*good, *bad], partitions=1, batch_size=4, breaker=BreakerOptions(limit=8, last_records=10))
    (daemon,) = world.daemons
    for _ in range(30):
        world.turn(daemon)
    # Two bad ones came with the last good ones, four more make six, and with the next batch it would be ten.
    assert len(world.dead_letters()) == 6
    assert world.broker.committed(GROUP) == {Partition(INPUT, 0): 12}
    problem = daemon.loop.readiness.problem()
    assert problem.startswith("halted: 10 of the last 10 records of articles would be dead letters")
    assert "4 not_json" in problem
    assert daemon.metric("halted") == 1
    assert daemon.metric("ready") == 0
    world.start("b")
    for _ in range(10):
        world.turn(daemon)
    assert daemon.source.assigned(), "the partitions stay with the daemon that has halted"


def test_a_daemon_that_has_halted_keeps_on_through_an_outage_of_kafka_and_goes_on_after_a_restart():
    bad = [Sent("x", "", code="not_json") for _ in range(12)]
    world = World(bad, partitions=1, batch_size=4, breaker=BreakerOptions(limit=6, last_records=10))
    (daemon,) = world.daemons
    for _ in range(5):
        world.turn(daemon)
    assert daemon.metric("halted") == 1
    world.plan = plan_once("open_clients", broker_fails)
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
    assert world.wrong() == []


class FailsAt(Detector):
    """Cannot prepare a text with a certain word in it."""

    def prepare(self, documents):
        if any("fjord" in document.text for document in documents):
            raise ZeroDivisionError("text: amber birch fjord")
        return super().prepare(documents)


def test_a_document_that_cannot_be_prepared_is_a_dead_letter_and_the_others_go_on():
    records = [Sent("a", OTHER_TEXT), Sent("x", TEXT, code="internal"), Sent("b", OTHER_TEXT)]
    world = World(records, partitions=1, make_detector=FailsAt).run()
    assert world.wrong() == []
    assert len(world.published()) == 1
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
    assert [mistake for mistake in world.wrong() if not mistake.startswith("dead letters")] == []


# One fault at every moment


#: Event and names of the daemons.
EVENTS = {
    "the store fails": (store_fails, "a"),
    "the batch is refused": (batch_refused, "a"),
    "kafka fails": (broker_fails, "a"),
    "the process is killed": (killed, "a"),
    "one of two processes is killed": (killed, "ab"),
    "the group rebalances": (rebalanced, "ab"),
    "the other overtakes": (slow(6), "ab"),
    "the session ends and another takes over": (frozen(8), "ab"),
    "the session ends and somebody new takes over": (frozen(8), "a"),
}


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)], ids=["some", "every"])
@pytest.mark.parametrize(("act", "names"), EVENTS.values(), ids=EVENTS)
def test_one_event_at_any_moment_loses_and_doubles_nothing(act, names, step):
    moments = len(World(RECORDS, names=names).run().trace)
    assert moments > 40
    wrong = {}
    for number in range(0, moments, step):
        world = World(RECORDS, names=names, plan={number: act}.get).run()
        if world.wrong():
            wrong[str(world.trace[number])] = world.wrong()
    assert wrong == {}


@pytest.mark.parametrize("step", [3, pytest.param(1, marks=pytest.mark.long)], ids=["some", "every"])
@pytest.mark.parametrize("act", [killed, broker_fails, rebalanced])
def test_at_least_once_nothing_is_lost_and_only_messages_without_their_commit_are_doubled(act, step):
    moments = len(World(RECORDS, exactly_once=False).run().trace)
    for number in range(0, moments, step):
        world = World(RECORDS, exactly_once=False, plan={number: act}.get).run()
        moment = world.trace[number]
        between = (moment.effect, moment.after) == ("commit", False)
        doubled = [text for text in world.wrong() if text.startswith(("doubled", "dead letters"))]
        assert world.wrong() == doubled, str(moment)
        # A commit that is refused because the group moved on comes after the sending, too.
        assert not doubled or between or act is rebalanced, str(moment)


@settings(max_examples=examples(100))
@given(seed=st.integers(0, 10**9))
@example(seed=3692).via("a text that is replaced and comes back within what is read again")
@example(seed=4643).via("a partition that goes between the first poll and the first look")
def test_no_schedule_of_faults_loses_or_doubles_a_pair(seed):
    assert a_random_run(seed).wrong() == []


def test_a_rebalance_brings_nothing_back_that_another_has_committed_meanwhile():
    """Daemon a is frozen, loses its partition and gets it back, and rewinds its batch below the committed offset."""

    def go_and_come_back(world: World, moment: Moment) -> None:
        a, b = world.daemons
        ours, partition = world.broker.groups[GROUP], Partition(INPUT, 0)
        a_number, b_number = a.source._member, b.source._member
        for owner in (b_number, a_number):
            world.broker.rebalance(GROUP)
            ours.owners = {partition: owner}
            for daemon in (a, b):
                owns = daemon.source._member == owner
                daemon.source._positions = {partition: ours.committed.get(partition, 0)} if owns else {}
            if owner == b_number:
                world.turn(b)
        raise errors.StoreUnavailable("made to fail")

    records = [Sent("a", TEXT), Sent("b", TEXT), Sent("x", "", code="not_json")]
    world = World(records, partitions=1, names=("a", "b"))
    first = next(d for d in world.daemons if d.source.assigned())
    world.daemons.sort(key=lambda daemon: daemon is not first)
    world.plan = plan_once("insert_entries", go_and_come_back)
    world.run()
    for daemon in world.daemons:
        world.turn(daemon)
    assert world.wrong() == []
    assert len(world.published()) == 1


@pytest.mark.parametrize(
    ("effect", "act"), [("insert_copies", store_fails), ("announce", store_fails), ("publish", broker_fails)]
)
def test_a_document_that_full_buckets_hide_is_counted_once_for_its_committed_record(effect, act):
    story = a_story()
    records = [Sent(document_id, text) for document_id, text in decoys(story, 120, 85)]
    records += [Sent("story", story), Sent("story", story)]
    world = World(records, batch_size=500, make_index=lambda _world: MemoryIndex(bucket_cap=5))
    world.plan = plan_once(effect, act)
    (daemon,) = world.run().daemons
    assert not world.published()
    assert daemon.metric("documents_replayed_total") == 121
    assert daemon.metric("documents_hidden_total", profile="articles") == 1


# Offsets, index, fencing


def test_offsets_set_back_are_indexed_again_in_silence():
    world = World([r for r in RECORDS if r.code is None]).run()
    before = world.published()
    world.stop_all()
    world.broker.commit(GROUP, dict.fromkeys(world.ends, 0))
    later = world.start("later")
    world.run()
    assert world.published() == before
    assert later.metric("documents_silent_total") == later.metric("documents_indexed_total") > 0
    assert world.wrong() == []


class Flushable(MemoryIndex):
    """A store whose server can lose everything."""

    def flush(self) -> None:
        self.__init__()


def a_world_with_a_lost_index(**options) -> World:
    world = World([Sent("a", TEXT), Sent("b", TEXT)], partitions=1, make_index=lambda _w: Flushable(), **options).run()
    world.index.flush()
    world.send(Sent("c", TEXT))
    return world


def test_an_index_lost_under_a_running_daemon_ends_it_with_advice():
    world = a_world_with_a_lost_index()
    with pytest.raises(errors.IndexLost, match=r"the index is gone\. Build it anew .*on_index_lost"):
        world.run()


def test_an_index_that_another_daemon_has_created_again_is_still_a_lost_one():
    world = a_world_with_a_lost_index()
    world.index.open(FINGERPRINT)
    world.broker.rebalance(GROUP)
    with pytest.raises(errors.IndexLost, match="offset 2 of articles:0 is committed"):
        world.run()


def test_a_lost_index_ends_the_daemon_with_advice_each_time_that_a_supervisor_starts_it_again():
    world = a_world_with_a_lost_index()
    for _ in range(3):
        world.stop_all()
        world.start("later")
        with pytest.raises(errors.IndexLost, match=r"offset 2 of articles:0 is committed, but .* Build it anew"):
            world.run()


@pytest.mark.parametrize("stopped", [False, True])
def test_going_on_without_the_index_is_possible_when_asked_for(stopped):
    world = a_world_with_a_lost_index(on_index_lost="continue")
    if stopped:
        world.stop_all()
        world.start("later")
    world.send(Sent("d", TEXT)).run()
    assert sorted((a[0], b[0]) for a, b in world.published()) == [("a", "b"), ("c", "d")]


def test_two_daemons_that_start_at_once_take_no_commit_of_the_other_for_a_lost_index():
    for number in range(30):
        World(TWINS, names=("a", "b"), joined=False, plan={number: frozen(6)}.get).run()


def test_another_index_ends_the_daemon(world):
    world.index._fingerprint = {**FINGERPRINT, "bands": 7}
    world.daemons = [Daemon(world, "later")]
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
    recovered = daemon.loop._recovery.recovered

    def refuse(*_):
        raise errors.BatchRefused("another process rebuilds the index")

    for _ in range(2):
        monkeypatch.setattr(daemon.loop._recovery, "recovered", refuse)
        daemon.loop._turn()
        assert daemon.loop.readiness.problem() == "waiting for partitions"
        monkeypatch.setattr(daemon.loop._recovery, "recovered", recovered)
        daemon.loop._turn()
        assert daemon.loop.readiness.problem() is None
        CLOCK.now_s += 3_600


def test_a_fence_of_a_later_generation_that_stays_ends_the_daemon_with_advice(world):
    world.index._fences = dict.fromkeys(world.ends, 10**6)
    with pytest.raises(errors.StaleFence, match="streamdedup index unfence"):
        world.run()


def test_refusals_of_two_rebalances_far_apart_are_no_stale_fence(world, daemon):
    world.plan = plan_once("fence", batch_refused)
    world.turn(daemon)
    daemon.leave_group()
    CLOCK.now_s += 3_600
    world.plan = plan_once("fence", batch_refused)
    assert world.run().wrong() == []
    assert daemon.metric("batches_refused_total") == 2


def test_a_fenced_producer_is_rebuilt_once_and_reports_a_twin_within_a_minute(world, daemon):
    world.broker.register("a")
    world.turn(daemon)
    assert daemon.loop.readiness.problem() == "waiting for Kafka"
    world.turn(daemon)
    assert world.run().wrong() == []
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
        while len(world.dead_letters()) <= number:
            world.turn(daemon)
    assert world.dead_letters() == [("0", number, "not_json") for number in range(1, 4)]


@pytest.mark.parametrize("failure", ["fenced", "publication", "connection"])
def test_a_daemon_whose_membership_another_process_holds_ends_instead_of_evicting_it(world, daemon, failure):
    world.turn(daemon)
    if failure == "fenced":
        world.broker.register("a")
    elif failure == "connection":
        world.index.connections = 1

    def act(_world: World, moment: Moment) -> None:
        if failure == "publication" and moment.effect == "publish":
            raise errors.BrokerUnavailable("made to fail")
        if moment.effect == "confirm":
            raise errors.BrokerMisconfigured("another live member has our place")

    world.broker.produce(INPUT, b"{", partition=0)
    world.plan = lambda _number: act
    with pytest.raises(errors.BrokerMisconfigured, match="has our place"):
        world.turn(daemon)


def test_a_membership_that_cannot_be_confirmed_is_given_up(world, daemon):
    world.plan = plan_once("confirm", broker_fails)
    world.broker.register("a")
    assert world.run().wrong() == []
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
    assert daemon.metric("store_errors_total") == 1
    assert world.broker.groups[GROUP].generation == generation
    assert world.wrong() == []


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
    assert world.wrong() == []


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
    monkeypatch.setattr(health, "log", log)
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
    assert world.wrong() == []


@pytest.mark.parametrize("effect", ["publish", "committed"])
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


def raising(error: Exception) -> Act:
    def act(_world: World, _moment: Moment) -> None:
        raise error

    return act


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


def test_a_process_begins_at_one_record_and_doubles_with_each_commit():
    sizes: list[int] = []
    make_detector = detector_that_fails(lambda _count: False, sizes, Killed)
    world = World(documents(100), partitions=1, batch_size=16, grown=False, make_detector=make_detector)
    world.run()
    assert sizes == [1, 2, 4, 8, 16, 16, 16, 16, 16, 5]
    assert world.daemons[0].metric("batch_seconds_count", stage="ahead") == 3
    assert world.wrong() == []


@pytest.mark.parametrize("error", [Killed, MemoryError])
@pytest.mark.parametrize(("most", "committed"), [(1, 1), (3, 3), (9, 15)])
def test_where_memory_is_short_for_good_each_process_commits_the_smaller_batches(most, committed, error):
    sizes: list[int] = []
    make_detector = detector_that_fails(lambda count: count > most, sizes, error)
    world = World(documents(90), partitions=1, batch_size=16, grown=False, make_detector=make_detector)
    restarted_after_memory_errors(world)
    world.run()
    assert world.wrong() == []
    assert 0 < sum(size > most for size in sizes) <= 90 / committed


def test_the_slow_start_learns_of_documents_that_a_killed_process_had_inserted(monkeypatch):
    world = World(documents(6), partitions=1, batch_size=4)
    world.plan = plan_once("announce", killed)
    replayed: list[int] = []
    monkeypatch.setattr(SlowStart, "committed", lambda _self, count: replayed.append(count))
    world.grown = False
    world.run()
    assert replayed == [1, 1, 1, 1, 0, 0]
    assert world.wrong() == []


@pytest.mark.parametrize("exactly_once", [True, False])
@pytest.mark.parametrize("most", [1, 2, 7])
def test_a_batch_that_outlasts_its_membership_is_read_again_in_smaller_batches(most, exactly_once):
    """The group goes on without a member whose batch has more than so many records."""
    sizes: list[int] = []

    def outlasts(_world: World, moment: Moment) -> None:
        if (moment.effect, moment.after) == ("announce", True) and sizes[-1] > most:
            moment.daemon.leave_group()

    make = detector_that_fails(lambda _count: False, sizes, Killed)
    world = World(documents(60), partitions=1, batch_size=8, grown=False, exactly_once=exactly_once, make_detector=make)
    world.plan = lambda _number: outlasts
    world.run()
    grows = [size for size in (1, 2, 4, 8) if size <= 2 * most]
    assert sizes[: 2 * len(grows)] == 2 * grows
    assert len(world.everyone) == 1
    assert world.wrong() == []


@pytest.mark.parametrize(
    ("effect", "act", "after", "records"),
    [
        ("claim_pairs", store_fails, False, None),
        ("announce", store_fails, True, None),
        ("committed", broker_fails, False, None),
        ("publish", broker_fails, False, None),
        ("announce", raising(errors.Rejoin("made to fail")), False, None),
        ("announce", batch_refused, False, 4),
        ("poll_ahead", rebalanced, False, 4),
        ("insert_entries", rebalanced, False, 4),
        ("announce", rebalanced, True, 4),
        ("publish", raising(errors.ProducerFenced("made to fail")), False, 4),
    ],
)
def test_only_a_batch_undone_for_time_or_membership_is_followed_by_one_record(effect, act, after, records):
    world = World(documents(20), partitions=1, batch_size=4)
    world.plan = plan_once(effect, act, after=after)
    (daemon,) = world.daemons
    undone: list[int] = []
    restart = daemon.loop._slow_start.restart

    def restarted(count: int) -> None:
        undone.append(count)
        restart(count)

    daemon.loop._slow_start.restart = restarted
    world.turn(daemon)
    assert undone == ([] if records is None else [records])
    assert daemon.loop._slow_start.limit() == (4 if records is None else 1)
    world.run()
    assert world.wrong() == []


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
    assert world.wrong() == []


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


def test_asked_to_stop_the_daemon_leaves_the_group_and_aborts_nothing_committed(world, daemon):
    world.run().stop_all()
    assert world.broker.groups[GROUP].members == []
    assert len(world.broker.records(DUPLICATES)) == 1
    assert daemon.metric("rebuilds_total") == 1


def test_a_wait_for_the_store_ends_with_a_request_to_stop(world, daemon):
    world.plan = lambda _number: store_fails
    world.outages = [lambda: None, lambda: None, lambda: setattr(daemon.stop, "stopping", True)]
    daemon.loop.run()
    assert world.broker.groups[GROUP].members == []


# Rules: without any one of them the same world notices


class WithoutFence(MemoryIndex):
    def fence(self, partition, *state):
        self._fences[partition] = 0
        return super().fence(partition, *state)

    def _check_fences(self, fences):
        pass


class WithoutClaim(MemoryIndex):
    def claim_pairs(self, claims, fences, met=()):
        return [True] * len(claims)


class WithoutPartners(MemoryIndex):
    def save_pending_matches(self, pending, fences):
        return [new for _, new in pending]


class WithoutMark(MemoryIndex):
    def fence(self, *state):
        return replace(super().fence(*state), high_water_mark=0)


class ReadBeforeAdd(MemoryIndex):
    """Reads the buckets, and adds to them a moment later."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._world = world

    def insert_and_look_up(self, numbers, band_keys, fences):
        before = copy.deepcopy(self._buckets._entries)
        hits = super().insert_and_look_up(numbers, band_keys, fences)
        self._buckets._entries = before
        self._world.moment(Moment(self._world.active[-1], "insert_and_look_up", after=False))
        super().insert_and_look_up(numbers, band_keys, fences)
        return hits


class BucketsBeforeEntry(Detector):
    """Inserts documents in buckets before their entries."""

    def index(self, prepared, fences):
        numbers = [entry.number for entry in prepared.entries]
        self._found = self._store.insert_and_look_up(numbers, prepared.band_keys, list(fences.values()))
        return super().index(prepared, fences)

    def _look_up(self, batch, fences):
        hits = {row: BucketHits(self._found.candidates[row]) for row in batch.looked_up}
        return {row: hit for row, hit in hits.items() if hit.candidates}, DetectionResult()


def pause_and_failure(number: int, pause: Act, effect: str | None):
    """Return a plan: a pause at one moment, and the store fails at the next call named ``effect`` that follows."""
    left = [effect]

    def fail(world: World, moment: Moment) -> None:
        if (moment.effect, moment.after) == (left[0], False):
            left[0] = None
            store_fails(world, moment)

    return lambda n: pause if n == number else fail if n > number else None


def pauses(records: tuple[Sent, ...], pause: Act, *, failing: bool = False, **options) -> Iterator[World]:
    """Run with ``pause`` at each moment, and if so wanted with each call to the store failing once after it."""
    for number in range(40):
        for effect in STORE_METHODS if failing else [None]:
            plan_of_both = pause_and_failure(number, pause, effect)
            yield World(records, names=("a", "b"), batch_size=1, plan=plan_of_both, **options).run()


def fates(**options) -> Iterator[World]:
    return (a_random_run(seed, **options) for seed in range(20))


RETURNING = (Sent("y", TEXT, 1), Sent("x", TEXT, 0), Sent("y", OTHER_TEXT, 1), Sent("y", TEXT, 1))
#: Rule -> the schedules to search, the world without the rule, and the expected mistake.
RULES = {
    "fence": (partial(pauses, TWINS, frozen(2), failing=True), {"make_index": lambda _w: WithoutFence()}, "lost"),
    "claim": (fates, {"make_index": lambda _w: WithoutClaim()}, "doubled"),
    "record first": (partial(pauses, TWINS, slow(2)), {"make_detector": BucketsBeforeEntry}, "lost"),
    "partners saved": (
        partial(pauses, RETURNING, slow(1), failing=True),
        {"make_index": lambda _w: WithoutPartners()},
        "lost",
    ),
    "mark": (fates, {"make_index": lambda _w: WithoutMark()}, "doubled"),
    "add before read": (partial(pauses, TWINS, slow(2)), {"make_index": ReadBeforeAdd}, "lost"),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_switched_off_is_noticed_and_switched_on_the_same_schedules_do_no_harm(rule):
    schedules, without, harm = RULES[rule]
    searched = 0
    for world in schedules(**without):
        searched += 1
        if any(text.startswith(harm) for text in world.wrong()):
            break
    else:
        pytest.fail(f"none of {searched} schedules shows that something is {harm}")
    for _, world in zip(range(searched), schedules(), strict=False):
        assert world.wrong() == []
