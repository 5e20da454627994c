"""Whether an idle consumer notices that Kafka is away, and takes nothing else for it."""

import contextlib
from types import SimpleNamespace

import pytest
from kafka.errors import KafkaConnectionError
from kafka.future import Future
from kafka.structs import MemberState

from streamdedup.errors import BrokerSilent, BrokerUnavailable
from streamdedup.kafka import KafkaOptions
from streamdedup.kafka.silence import SilenceWatch

OPTIONS = KafkaOptions(bootstrap_servers=("one:9092", "two:9092"), group_id="g", topics=("t",), transactional_id="x")
#: Time of a poll that brings nothing, in seconds.
POLL_S = 0.5


class Member:
    """A consumer as far as the watch looks at it, on a clock of its own."""

    def __init__(self, state: MemberState = MemberState.STABLE) -> None:
        self.now_s = 1000.0
        self.state = state
        self.alive = True
        self.questions_count = 0
        self._heartbeat = SimpleNamespace(last_receive=self.now_s, last_reset=self.now_s)
        self._coordinator = SimpleNamespace(heartbeat=self._heartbeat)
        self._client = SimpleNamespace(cluster=SimpleNamespace(request_update=self._ask))
        self._asked: list[Future] = []
        self.watch = SilenceWatch(self, OPTIONS, lambda: self.now_s)

    def group_metadata(self) -> SimpleNamespace:
        return SimpleNamespace(state=self.state)

    def _ask(self) -> Future:
        self.questions_count += 1
        self._asked.append(Future())
        return self._asked[-1]

    def pass_time(self, seconds: float) -> None:
        """Let time pass in which Kafka, if it is alive, answers everything."""
        self.now_s += seconds
        if self.alive:
            self._heartbeat.last_receive = self.now_s - self.now_s % OPTIONS.heartbeat_interval_s
            for question in self._asked:
                question.success(None)
            self._asked.clear()

    def refuse(self) -> None:
        """Refuse what was asked, as an address at which nobody listens does."""
        for question in self._asked:
            question.failure(KafkaConnectionError("refused"))
        self._asked.clear()

    def poll(self, seconds: float, step_s: float = POLL_S) -> None:
        """Poll for so long without getting anything."""
        for _ in range(round(seconds / step_s)):
            self.pass_time(step_s)
            self.watch.look()

    def silent_after(self) -> float:
        """Poll until silence is noticed; return how long that took, in seconds."""
        begun = self.now_s
        with pytest.raises(BrokerSilent, match="one:9092,two:9092"):
            self.poll(60)
        return self.now_s - begun


@pytest.fixture(params=[MemberState.STABLE, MemberState.REBALANCING, MemberState.UNJOINED])
def member(request) -> Member:
    return Member(request.param)


def test_silence_is_noticed_within_ten_seconds_and_an_answer_ends_it(member):
    member.poll(30)
    member.alive = False
    assert 5 < member.silent_after() < 10
    with pytest.raises(BrokerSilent):
        member.poll(POLL_S)
    member.alive = True
    member.poll(30)


def test_an_idle_healthy_member_is_never_taken_for_cut_off(member):
    member.poll(600)


def test_a_member_of_the_group_asks_nothing_for_it():
    member = Member()
    member.poll(600)
    assert member.questions_count == 0


def test_refusals_count_as_silence_too():
    member = Member(MemberState.UNJOINED)
    member.alive = False

    def poll_in_vain() -> None:
        for _ in range(100):
            member.refuse()
            member.poll(POLL_S)

    begun = member.now_s
    with pytest.raises(BrokerSilent):
        poll_in_vain()
    assert member.now_s - begun < 7
    member.alive = True
    member.poll(30)


def test_a_rebalance_that_begins_in_silence_does_not_end_it():
    member = Member()
    member.alive = False
    member.silent_after()
    member.state = MemberState.REBALANCING
    with pytest.raises(BrokerSilent):
        member.poll(POLL_S)


def test_a_process_that_was_frozen_or_busy_hears_what_has_come_meanwhile(member):
    member.poll(5)
    member.alive = False
    member.poll(120, step_s=120)
    member.alive = True
    member.poll(10)


def test_records_that_come_are_an_answer():
    member = Member()
    member.alive = False
    for _ in range(60):
        member.poll(3)
        member.watch.heard()


def test_after_five_minutes_new_clients_are_asked_for():
    member = Member()
    member.alive = False

    def wait_as_the_loop_does() -> None:
        for _ in range(200):
            with contextlib.suppress(BrokerSilent):
                member.poll(POLL_S)
            member.pass_time(2.0)

    begun = member.now_s
    with pytest.raises(BrokerUnavailable, match="5 minutes") as caught:
        wait_as_the_loop_does()
    assert not isinstance(caught.value, BrokerSilent)
    assert 300 < member.now_s - begun < 315
