"""Two polls in one: records that the broker holds while the client returns those of a cycle before."""

from types import SimpleNamespace

import pytest
import structlog
from kafka.errors import CorruptRecordError, GroupAuthorizationFailedError, NotLeaderForPartitionError
from kafka.structs import TopicPartition

from streamdedup.kafka.fresh_poll import ENOUGH_BYTES, FreshPoll
from streamdedup.kafka.repeats import RepeatLimit

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Consumer:
    """A consumer as far as ``FreshPoll`` uses it: what each poll brings is said beforehand.

    A step is what a poll returns, an exception, or a function that changes the assignment and returns records.
    """

    def __init__(self, *steps: object, fetched: bool = True) -> None:
        self._steps = list(steps)
        self._subscription = SimpleNamespace(assignment={A: object(), B: object()})
        self._fetcher = SimpleNamespace(
            close=lambda: self.calls.append("forget"),
            _completed_fetches=[object()] if fetched else [],
            _next_partition_records=None,
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
    return [SimpleNamespace(offset=offset, value=b"x" * size) for offset in range(first, first + count)]


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


@pytest.mark.parametrize("back", [False, True])
def test_records_of_a_partition_that_was_taken_away_between_the_polls_are_dropped(back):
    def rebalance():
        consumer.lose(A, back=back)
        return {A: records(0, 2), B: records(9, 1)} if back else {B: records(9, 1)}

    consumer = Consumer({A: records(0, 5), B: records(7, 2)}, rebalance)
    expected = {A: [0, 1], B: [7, 8, 9]} if back else {B: [7, 8, 9]}
    assert offsets(fresh(consumer).poll(0.5, 100)) == expected


@pytest.mark.parametrize("error", [CorruptRecordError("crc"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no")])
def test_a_second_poll_that_meets_an_unreadable_record_leaves_it_to_the_next_and_loses_nothing(error):
    consumer = Consumer({A: records(0, 5)}, error, error)
    poll = fresh(consumer)
    assert offsets(poll.poll(0.5, 100)) == {A: [0, 1, 2, 3, 4]}
    assert consumer.calls[-1] == "forget"
    with pytest.raises(type(error)):
        poll.poll(0.5, 100)


def test_a_second_poll_that_fails_for_a_moment_loses_nothing():
    consumer = Consumer({A: records(0, 5)}, NotLeaderForPartitionError("moved"))
    assert offsets(fresh(consumer).poll(0.5, 100)) == {A: [0, 1, 2, 3, 4]}


def test_a_second_poll_that_ends_the_consumer_rewinds_the_records_of_the_first():
    def fail():
        consumer.lose(B)
        raise GroupAuthorizationFailedError("no")

    consumer = Consumer({A: records(3, 5), B: records(7, 1)}, fail)
    with pytest.raises(GroupAuthorizationFailedError):
        fresh(consumer).poll(0.5, 100)
    assert [call for call in consumer.calls if call[0] == "seek"] == [("seek", A, 3)]
