"""The dead-letter breaker: how many dead letters pass, and when it opens."""

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamdedup.daemon.batch import FailedRecord
from streamdedup.daemon.breaker import DeadLetterBreaker
from streamdedup.errors import DeadLetterBurst, DecodeError
from streamdedup.kafka.protocols import Batch, Record, UnreadableRecord
from streamdedup.position import Position
from streamdedup.wire.dead_letters import Failure, Stage


def a_batch(flags: list[bool], *, start: int = 0, topic: str = "articles") -> tuple[Batch, list[FailedRecord]]:
    """Return a batch in which the records flagged true have failed."""
    records = tuple(Record(Position(topic, 0, start + at), 0, None, b"") for at in range(len(flags)))
    error = DecodeError("not_json", "not JSON")
    return Batch(records), [
        FailedRecord(r, Failure.of(error, Stage.DECODE)) for r, bad in zip(records, flags, strict=True) if bad
    ]


def passed(flags: list[bool], sizes: list[int], limit: int | None, last_records: int) -> int:
    """Return how many records are committed before the breaker opens."""
    breaker = DeadLetterBreaker(limit, last_records)
    start = 0
    for size in sizes:
        batch = a_batch(flags[start : start + size], start=start)
        try:
            breaker.check(*batch)
        except DeadLetterBurst:
            return start
        breaker.remember(*batch)
        start += size
    return start


@given(
    st.lists(st.booleans(), min_size=1, max_size=60),
    st.lists(st.integers(1, 15), min_size=1, max_size=20),
    st.integers(1, 8),
    st.integers(0, 8),
)
@example([False] * 4 + [True] * 4 + [False] * 8, [16], 3, 3).via("too many in the middle of a batch")
@example([False] * 4 + [True] * 4 + [False] * 8, [16], 4, 2).via("as many as allowed in the middle of a batch")
@example([True] * 4 + [False] * 6 + [True] * 4, [14], 3, 3).via("too many at the beginning of a batch")
@example([True] * 4 + [False] * 6 + [True] * 4, [14], 4, 2).via("dead letters that have left the window")
@example([at % 20 == 0 for at in range(2_000)], [100] * 20, 60, 940).via("a lone dead letter now and then")
@example([at % 20 == 0 for at in range(200)], [10] * 20, 3, 37).via("batches without dead letters count as well")
def test_it_opens_before_the_first_batch_with_which_a_stretch_of_the_window_has_too_many(flags, sizes, limit, more):
    last_records, expected = limit + more, 0
    for size in sizes:
        end = min(expected + size, len(flags))
        ends = range(expected + 1, end + 1)
        if any(sum(flags[max(0, at - last_records) : at]) > limit for at in ends):
            break
        expected += size
    assert passed(flags, sizes, limit, last_records) == expected


def test_the_example_is_a_record_of_the_topic_that_has_too_many():
    bad, other = a_batch([True] * 3, start=7), a_batch([True], topic="reviews")
    batch = Batch((*other[0].records, *bad[0].records))
    with pytest.raises(DeadLetterBurst, match=r"3 not_json in this batch; articles:0:7: not JSON\)"):
        DeadLetterBreaker(2, 10).check(batch, [*other[1], *bad[1]])


def test_unreadable_records_of_earlier_batches_count():
    breaker = DeadLetterBreaker(1, 10)
    for offset in range(2):
        position = Position("articles", 0, offset)
        batch = Batch(unreadable=(UnreadableRecord(position, "damaged"),))
        failure = Failure.of(DecodeError("unreadable", "damaged"), Stage.READ)
        failed = [FailedRecord(Record(position, -1, None, None), failure)]
        with pytest.raises(DeadLetterBurst) if offset else contextlib.nullcontext():
            breaker.check(batch, failed)
        breaker.remember(batch, failed)


def test_without_a_limit_any_number_passes():
    assert passed([True] * 500, [50] * 10, None, 10) == 500


def test_a_batch_that_is_undone_and_read_again_counts_once():
    breaker = DeadLetterBreaker(5, 10)
    for _ in range(4):
        breaker.check(*a_batch([True] * 3))


def test_one_bad_topic_is_counted_apart_from_a_good_one():
    breaker = DeadLetterBreaker(5, 10)
    for start in range(0, 40, 4):
        batch = a_batch([False] * 4, start=start, topic="reviews")
        breaker.check(*batch)
        breaker.remember(*batch)
    with pytest.raises(DeadLetterBurst, match="6 of the last 10 records of articles would be dead letters") as caught:
        breaker.check(*a_batch([True] * 6))
    assert "6 not_json" in str(caught.value)
    assert "articles:0:0: not JSON" in str(caught.value)
    assert 'service.dead_letter_limit = "none"' in str(caught.value)
