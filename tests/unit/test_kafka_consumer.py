"""Parts of the source without a broker: the second poll, the watch for silence, the watch over a static member."""

import contextlib
from types import SimpleNamespace

import pytest
import structlog
from kafka import errors as kafka_errors
from kafka.errors import GroupAuthorizationFailedError, KafkaConnectionError, NotLeaderForPartitionError
from kafka.future import Future
from kafka.structs import MemberState, TopicPartition

from streamdedup.errors import BrokerMisconfigured, BrokerSilent, BrokerUnavailable, CodecMissing, StreamdedupError
from streamdedup.kafka.batch_limits import HEADER_BYTES
from streamdedup.kafka.fresh_poll import ENOUGH_BYTES, FreshPoll
from streamdedup.kafka.options import KafkaOptions
from streamdedup.kafka.unreadable import UnreadableRange, unpack
from streamdedup.kafka.watches import SilenceWatch, StaticMembershipWatch
from streamdedup.position import Position
from streamdedup.repeats import RepeatLimit

# The second poll

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Consumer:
    """A consumer as ``FreshPoll`` uses it, with the result of each poll given in advance.

    A step is the result of a poll, an exception, or a function that changes the assignment and returns records.
    """

    def __init__(self, *steps: object, fetched: bool = True) -> None:
        self._steps = list(steps)
        self._subscription = SimpleNamespace(assignment={A: object(), B: object()})
        self._fetcher = SimpleNamespace(
            _completed_fetches=[object()] if fetched else [], _next_partition_records=None, fetched_records=None
        )
        self.calls: list[object] = []

    def poll(self, timeout_ms: int, max_records: int) -> object:
        self.calls.append((timeout_ms, max_records))
        step = self._steps.pop(0)
        if isinstance(step, Exception):
            raise step
        return step() if callable(step) else step

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.calls.append(("seek", partition, offset))

    def lose(self, partition: TopicPartition, *, back: bool = False) -> None:
        """Take a partition away, and give it back at once if asked to."""
        del self._subscription.assignment[partition]
        if back:
            self._subscription.assignment[partition] = object()


def records(first: int, count: int, size: int = 1) -> list[SimpleNamespace]:
    return [SimpleNamespace(offset=offset, value=b"x" * size, headers=[]) for offset in range(first, first + count)]


def fresh(consumer: Consumer) -> FreshPoll:
    return FreshPoll(consumer, RepeatLimit(structlog.get_logger("test")))


def offsets(polled):
    return {partition: [record.offset for record in found] for partition, found in polled.items() if found}


def test_records_that_were_waiting_are_followed_by_those_of_a_second_poll():
    consumer = Consumer({A: records(0, 3), B: records(7, 1)}, {A: records(3, 2)})
    assert offsets(fresh(consumer).poll(0.5, 100)) == {A: [0, 1, 2, 3, 4], B: [7]}


def test_both_polls_together_return_no_more_than_the_limit():
    consumer = Consumer({A: records(0, 4)}, {A: records(4, 3)})
    fresh(consumer).poll(0.5, 7)
    assert [most for _, most in consumer.calls] == [7, 3]


def test_a_full_poll_is_not_followed_by_another():
    consumer = Consumer({A: records(0, 7)})
    assert offsets(fresh(consumer).poll(0.5, 7)) == {A: list(range(7))}


def test_records_that_were_waited_for_are_not_followed_by_another_poll():
    consumer = Consumer({A: records(0, 9)}, fetched=False)
    assert offsets(fresh(consumer).poll(0.5, 100)) == {A: list(range(9))}
    assert [timeout_ms for timeout_ms, _ in consumer.calls] == [500]


def test_while_few_records_come_nothing_is_waited_for_beside_them():
    consumer = Consumer({A: records(0, 1)}, {A: records(1, 2)}, {A: records(3, 2)}, {A: records(5, 1)})
    poll = fresh(consumer)
    assert offsets(poll.poll(0.5, 100)) == {A: [0]}
    assert offsets(poll.poll(0.5, 100)) == {A: [1, 2]}
    assert offsets(poll.poll(0.5, 100)) == {A: [3, 4, 5]}


def test_many_bytes_are_not_followed_by_another_poll():
    large = records(0, 8, ENOUGH_BYTES // 8)
    assert offsets(fresh(Consumer({A: large})).poll(0.5, 100)) == {A: list(range(8))}
    assert offsets(fresh(Consumer({A: large[:7]}, {A: records(7, 1)})).poll(0.5, 100)) == {A: list(range(8))}
    with_headers = [SimpleNamespace(offset=0, value=None, headers=[("", None)] * (ENOUGH_BYTES // HEADER_BYTES + 1))]
    assert offsets(fresh(Consumer({A: with_headers})).poll(0.5, 100)) == {A: [0]}


def test_a_range_that_cannot_be_read_is_followed_by_the_records_of_a_second_poll():
    unreadable = UnreadableRange("t", 0, offset=0, last=4, reason="damaged")
    consumer = Consumer({A: [unreadable, *records(5, 3)]}, {A: records(8, 1)})
    assert offsets(fresh(consumer).poll(0.5, 100)) == {A: [0, 5, 6, 7, 8]}


@pytest.mark.parametrize("back", [False, True])
def test_records_of_a_partition_that_was_taken_away_between_the_polls_are_dropped(back):
    def rebalance():
        consumer.lose(A, back=back)
        return {A: records(0, 2), B: records(9, 1)} if back else {B: records(9, 1)}

    consumer = Consumer({A: records(0, 5), B: records(7, 2)}, rebalance)
    expected = {A: [0, 1], B: [7, 8, 9]} if back else {B: [7, 8, 9]}
    assert offsets(fresh(consumer).poll(0.5, 100)) == expected


def test_a_second_poll_that_fails_for_a_moment_loses_nothing():
    consumer = Consumer({A: records(0, 5)}, NotLeaderForPartitionError("moved"))
    assert offsets(fresh(consumer).poll(0.5, 100)) == {A: [0, 1, 2, 3, 4]}


@pytest.mark.parametrize("error", [GroupAuthorizationFailedError("no"), CodecMissing("no library")])
def test_a_second_poll_that_ends_the_consumer_rewinds_the_records_of_the_first(error):
    def fail():
        consumer.lose(B)
        raise error

    consumer = Consumer({A: records(3, 5), B: records(7, 1)}, fail)
    with pytest.raises(type(error)):
        fresh(consumer).poll(0.5, 100)
    assert [call for call in consumer.calls if call[0] == "seek"] == [("seek", A, 3)]


# Unreadable records


def test_each_offset_of_an_unreadable_range_is_reported_beside_the_records():
    record = SimpleNamespace(topic="t", partition=0, offset=7, timestamp=0, key=None, value=b"v", headers=[])
    polled = {A: [UnreadableRange("t", 0, 4, 6, "damaged"), record], B: [UnreadableRange("t", 1, 2, 2, "damaged")]}
    readable, unreadable = unpack(polled, has_unreadable=True)
    assert [record.position for record in readable] == [Position("t", 0, 7)]
    expected = [Position("t", 0, 4), Position("t", 0, 5), Position("t", 0, 6), Position("t", 1, 2)]
    assert [entry.position for entry in unreadable] == expected


# Silence

GROUP_OPTIONS = KafkaOptions(bootstrap_servers="one:9092,two:9092", group_id="g", topics=("t",), transactional_id="x")
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
        self.watch = SilenceWatch(self, GROUP_OPTIONS, lambda: self.now_s)

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
            if self.state == MemberState.STABLE:  # the client sends no heartbeats while it joins
                self._heartbeat.last_receive = self.now_s - self.now_s % GROUP_OPTIONS.heartbeat_interval_s
            for question in self._asked:
                question.success(None)
            self._asked.clear()

    def refuse(self) -> None:
        """Refuse all requests, as an address without a listener does."""
        for question in self._asked:
            question.failure(KafkaConnectionError("refused"))
        self._asked.clear()

    def poll(self, seconds: float, step_s: float = POLL_S) -> None:
        """Poll for so long without getting anything."""
        for _ in range(round(seconds / step_s)):
            self.pass_time(step_s)
            self.watch.check()

    def silent_after(self) -> float:
        """Poll until silence is noticed; return how long that took, in seconds."""
        begun = self.now_s
        with pytest.raises(BrokerSilent, match="one:9092,two:9092"):
            self.poll(60)
        return self.now_s - begun


@pytest.fixture(params=[MemberState.STABLE, MemberState.REBALANCING, MemberState.UNJOINED])
def member(request) -> Member:
    return Member(request.param)


def test_silence_is_detected_within_ten_seconds_and_an_answer_ends_it(member):
    member.poll(30)
    member.alive = False
    assert 5 < member.silent_after() < 10
    with pytest.raises(BrokerSilent):
        member.poll(POLL_S)
    member.alive = True
    member.poll(30)


def test_an_idle_healthy_member_is_never_taken_for_cut_off_and_asks_nothing_while_it_is_in_the_group(member):
    member.poll(600)
    assert bool(member.questions_count) == (member.state != MemberState.STABLE)


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


def test_a_process_that_was_frozen_or_busy_reads_the_answers_that_have_arrived(member):
    member.poll(5)
    member.alive = False
    member.poll(120, step_s=120)
    member.alive = True
    member.poll(10)


@pytest.mark.parametrize(("state", "seconds"), [(MemberState.STABLE, 3), (MemberState.REBALANCING, 5.5)])
def test_records_that_come_are_an_answer(state, seconds):
    """Also to the request for metadata, so that the next request has the full time for its answer."""
    member = Member(state)
    member.alive = False
    for _ in range(60):
        member.poll(seconds)
        member.watch.reset()


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


# A static member

STATIC_OPTIONS = KafkaOptions(
    bootstrap_servers="h:1", group_id="g", topics=("t",), delivery="at-least-once", group_instance_id="a"
)


def consumer_that_hears(error):
    """A consumer whose heartbeat is answered by an error, or by none."""

    def handle(_response, _sent_at):
        if error is not None:
            raise error

    return SimpleNamespace(_coordinator=SimpleNamespace(_handle_heartbeat_response=handle))


def test_a_membership_taken_over_by_another_process_is_detected_with_the_next_heartbeat():
    consumer = consumer_that_hears(kafka_errors.FencedInstanceIdError(("g", "a")))
    watch = StaticMembershipWatch(consumer, STATIC_OPTIONS)
    watch.check()
    with pytest.raises(kafka_errors.FencedInstanceIdError):  # the client, too, goes on as it would
        consumer._coordinator._handle_heartbeat_response("answer", 0.0)
    for _ in range(2):
        with pytest.raises(BrokerMisconfigured, match=r"kafka\.group_instance_id; give each its own"):
            watch.check()


@pytest.mark.parametrize("error", [None, kafka_errors.RebalanceInProgressError(), kafka_errors.UnknownMemberIdError()])
def test_any_other_answer_is_left_to_the_client(error):
    consumer = consumer_that_hears(error)
    watch = StaticMembershipWatch(consumer, STATIC_OPTIONS)
    with pytest.raises(type(error)) if error else contextlib.nullcontext():
        consumer._coordinator._handle_heartbeat_response("answer", 0.0)
    watch.check()


def test_a_dynamic_membership_is_confirmed_without_a_request():
    StaticMembershipWatch(SimpleNamespace(), GROUP_OPTIONS).confirm()


@pytest.mark.parametrize("error", [kafka_errors.FencedInstanceIdError(("g", "a")), kafka_errors.UnknownMemberIdError()])
def test_a_static_membership_is_confirmed_by_no_error_but_a_rebalance(error):
    answers = [None, kafka_errors.RebalanceInProgressError(), error]

    def run(_request):
        if answer := answers.pop(0):
            raise answer

    consumer = consumer_that_hears(None)
    consumer._coordinator._net = SimpleNamespace(run=run)
    consumer._coordinator._send_heartbeat_request = None
    watch = StaticMembershipWatch(consumer, STATIC_OPTIONS)
    for _ in range(2):
        watch.confirm()
    with pytest.raises(StreamdedupError):
        watch.confirm()
