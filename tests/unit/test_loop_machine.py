"""The loop as a state machine: hypothesis chooses records, steps of daemons and faults.

The world is that of ``loop_world``: the real loop and detector over the broker in memory, which models the traps of the
real one, and the index in memory. Where ``test_loop`` draws whole runs by seed, here every step depends on the ones
before, so that a story that loses or doubles a pair comes out in its fewest steps.
"""

import logging
import random
from collections.abc import Callable, Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    precondition,
    rule,
    run_state_machine_as_test,
)
from loop_world import (
    DUPLICATES,
    GROUP,
    Act,
    Daemon,
    Sent,
    World,
    a_text,
    batch_refused,
    broker_fails,
    edited,
    frozen,
    killed,
    rebalanced,
    slow,
    store_fails,
)

from streamdedup.daemon import batch_limits
from streamdedup.daemon.breaker import BreakerOptions
from streamdedup.index.memory import MemoryIndex

PARTITIONS = 2
#: Largest number of daemons: one more than there are partitions.
MOST_DAEMONS = 3
#: Texts that documents have: some resemble each other, and two are the same.
_RNG = random.Random(11)
_FIRST, _OTHER = a_text(_RNG), a_text(_RNG)
TEXTS = [_FIRST, _FIRST, edited(_RNG, _FIRST), edited(_RNG, _FIRST), _OTHER, edited(_RNG, _OTHER), " "]
ADDITIONS = [a_text(_RNG, 3), "…"]
#: Ids, each in one partition.
IDS = [f"d{number}" for number in range(5)]
POISON = ("not_json", "null_without_key", "unreadable")

ACTS: dict[str, Act] = {
    "the store fails": store_fails,
    "the batch is refused": batch_refused,
    "kafka fails": broker_fails,
    "the process is killed": killed,
    "the group rebalances": rebalanced,
    "others overtake": slow(3),
    "the session ends and others take over": frozen(4),
}


@pytest.fixture(autouse=True, scope="module")
def _no_log() -> Iterator[None]:
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    with pytest.MonkeyPatch.context() as patch:
        # Runs are short, and takeovers frequent: else next to nothing would be read ahead.
        patch.setattr(batch_limits, "CAREFUL_BATCHES", 1)
        yield
    structlog.reset_defaults()


class LoopMachine(RuleBasedStateMachine):
    """A topic, daemons that join, work, fail and leave, and a reader of their output."""

    make_index: Callable[[World], MemoryIndex] = staticmethod(lambda _world: MemoryIndex())
    sent = Bundle("sent")
    published_count = 0

    @initialize(batch_size=st.sampled_from([1, 2, 4]), daemons=st.integers(1, 2))
    def begin(self, batch_size: int, daemons: int) -> None:
        self.world = World(
            [],
            partitions=PARTITIONS,
            names=["a", "b"][:daemons],
            batch_size=batch_size,
            make_index=self.make_index,
            breaker=BreakerOptions(limit=None),
        )
        self.placed: set[str] = set()

    # Input

    def _send(self, *records: Sent) -> None:
        world = self.world
        world.records = [*world.records, *records]
        for record in records:
            position = world.produce(record)
            world.positions.append(position)
            world.ends[position.of] = position.offset + 1

    @rule(
        target=sent, documents=st.lists(st.tuples(st.sampled_from(IDS), st.sampled_from(TEXTS)), min_size=1, max_size=4)
    )
    def documents_are_inserted_or_changed(self, documents):
        records = [Sent(identity, text, IDS.index(identity)) for identity, text in documents]
        self.placed.update(record.id for record in records)
        self._send(*records)
        return multiple(*records)

    @rule(record=sent)
    def a_document_is_sent_again(self, record):
        """As by a producer that retries, or as a return to an earlier text."""
        self.placed.add(record.id)
        self._send(record)

    @precondition(lambda self: self.placed)
    @rule(data=st.data(), addition=st.sampled_from(ADDITIONS))
    def a_document_is_appended_to(self, data, addition):
        identity = data.draw(st.sampled_from(sorted(self.placed)))
        self._send(Sent(identity, addition, IDS.index(identity), op="append"))

    @rule(identity=st.sampled_from(IDS))
    def a_document_is_deleted(self, identity):
        self.placed.discard(identity)
        self._send(Sent(identity, "", IDS.index(identity), op="delete"))

    @rule(code=st.sampled_from(POISON), partition=st.integers(0, PARTITIONS - 1))
    def a_record_comes_that_is_no_document(self, code, partition):
        self._send(Sent("x", None if code == "null_without_key" else "", partition, code))

    # Steps

    def _daemon(self, number: int) -> Daemon:
        return self.world.daemons[number % len(self.world.daemons)]

    @rule(number=st.integers(0, MOST_DAEMONS - 1), turns=st.integers(1, 3))
    def a_daemon_works(self, number, turns):
        for _ in range(turns):
            self.world.turn(self._daemon(number))

    @rule(
        number=st.integers(0, MOST_DAEMONS - 1),
        act=st.sampled_from(sorted(ACTS)),
        after=st.integers(0, 30),
        lasting=st.booleans(),
    )
    def a_daemon_works_and_something_happens(self, number, act, after, lasting):
        """At the next moment but so many; and if it lasts, at the next one too."""
        at = len(self.world.trace) + after
        self.world.plan = lambda moment: ACTS[act] if moment in (at, at + lasting) else None
        self.world.turn(self._daemon(number))
        self.world.plan = lambda _moment: None

    @precondition(lambda self: len(self.world.daemons) < MOST_DAEMONS)
    @rule()
    def a_daemon_joins(self):
        self.world.turn(self.world.start(f"joined{len(self.world.everyone)}"))

    @precondition(lambda self: len(self.world.daemons) > 1)
    @rule(number=st.integers(0, MOST_DAEMONS - 1))
    def a_daemon_is_stopped(self, number):
        daemon = self._daemon(number)
        daemon.stop.stopping = True
        daemon.loop.run()
        self.world.daemons.remove(daemon)

    @rule(number=st.integers(0, MOST_DAEMONS - 1))
    def a_daemon_is_restarted(self, number):
        daemon = self._daemon(number)
        daemon.leave_group()
        self.world.restart(daemon)

    # Faults

    @rule()
    def the_group_rebalances(self):
        self.world.broker.rebalance(GROUP)

    @rule(point=st.sampled_from(["before commit", "after commit"]))
    def the_next_publication_fails(self, point):
        self.world.broker.publish_failures.append(point)

    @rule(turns=st.integers(1, 3))
    def kafka_is_away_for_a_while(self, turns):
        self.world.broker.away = True
        for number in range(turns):
            self.world.turn(self._daemon(number))
        self.world.broker.away = False

    @rule()
    def transactions_time_out(self):
        self.world.broker.time_out_transactions()

    @rule(data=st.data())
    def an_operator_stops_all_and_sets_offsets_back(self, data):
        """As an operator may when the index knows all commits: the published pairs stay the same."""
        self.everything_is_worked_through()
        self.world.stop_all()
        if self.world.index._high_water_marks == self.world.broker.committed(GROUP) and not self._poisoned():
            offsets = {p: data.draw(st.integers(0, end)) for p, end in self.world.ends.items()}
            self.world.broker.commit(GROUP, offsets)
        self.world.turn(self.world.start(f"later{len(self.world.everyone)}"))

    def _poisoned(self) -> bool:
        return any(record.code is not None for record in self.world.records)

    # Invariants

    @rule()
    def everything_is_worked_through(self):
        self.world.run()
        assert self.world.wrong() == []

    @invariant()
    def nothing_is_doubled_or_invented(self):
        published = len(self.world.broker.records(DUPLICATES)) if hasattr(self, "world") else 0
        if published > self.published_count:
            self.published_count = published
            assert [text for text in self.world.wrong() if text.startswith(("doubled", "invented"))] == []

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.everything_is_worked_through()


#: Few examples in every run of the tests.
QUICK = settings(max_examples=20, stateful_step_count=25, suppress_health_check=[HealthCheck.too_slow])


def test_no_story_loses_or_doubles_a_pair():
    run_state_machine_as_test(LoopMachine, settings=QUICK)


@pytest.mark.long
def test_no_longer_story_does_either():
    run_state_machine_as_test(LoopMachine, settings=settings(QUICK, max_examples=80, stateful_step_count=40))


class WithoutClaim(MemoryIndex):
    def claim_pairs(self, claims, fences, met=()):
        return [True] * len(claims)


class WithoutClaims(LoopMachine):
    make_index = staticmethod(lambda _world: WithoutClaim())


def a_story(machine: LoopMachine, after: int) -> None:
    """Run one schedule: a daemon is killed at some moment, the other continues, and a successor starts."""
    machine.begin(batch_size=1, daemons=2)
    machine.documents_are_inserted_or_changed([(IDS[0], TEXTS[0]), (IDS[1], TEXTS[1])])
    machine.a_daemon_works_and_something_happens(1, "the process is killed", after, lasting=False)
    machine.a_daemon_works(0, turns=3)
    machine.teardown()


def test_the_machine_notices_a_loop_without_claims():
    found = []
    for after in range(16):
        a_story(LoopMachine(), after)
        try:
            a_story(WithoutClaims(), after)
        except AssertionError as error:
            found.append(str(error))
    assert any("doubled" in text for text in found)
