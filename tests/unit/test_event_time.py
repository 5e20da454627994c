"""Event time: where a watermark is, and for how long it is held when times go back."""

import pytest

from streamdedup.daemon.backlog_expiry import EventTime

SLACK_MS, LIFETIME_MS = 100, 1_000
LIFETIME_S = LIFETIME_MS / 1000


def follow(event_time: EventTime, *batches: list[int], now_s: float = 0.0) -> list[int]:
    """Take batches through; return how far each went back."""
    back = []
    for times in batches:
        back.append(event_time.check(times, now_s))
        event_time.advance(times, now_s)
    return back


@pytest.fixture
def event_time():
    return EventTime(5_000, SLACK_MS, LIFETIME_MS)


def test_a_watermark_is_the_earliest_time_of_the_last_batch_and_does_not_go_back_within_the_slack(event_time):
    assert follow(event_time, [5_010, 5_300, 5_250], [5_400]) == [0, 0]
    assert event_time.watermark_ms == 5_400
    assert follow(event_time, [5_300, 5_500]) == [0]
    assert event_time.watermark_ms == 5_400


def test_order_is_that_of_all_batches_and_within_one(event_time):
    # The latest record counts, not the earliest of the last batch.
    assert follow(event_time, [5_000, 5_300], [5_199]) == [0, 101]
    assert follow(EventTime(0, SLACK_MS, LIFETIME_MS), [0, 300, 250, 150]) == [150]


def test_a_record_that_goes_back_sets_the_watermark_to_its_time_and_holds_it_there(event_time):
    assert follow(event_time, [5_500, 3_000, 5_600]) == [2_500]
    assert not event_time.in_order
    assert follow(event_time, [5_700], [6_500]) == [0, 0]
    assert event_time.watermark_ms == 3_000


def test_a_batch_that_is_not_committed_yet_may_be_checked_again(event_time):
    assert event_time.check([3_000, 3_100], 0.0) == 2_000
    assert event_time.check([3_000, 3_100], 0.0) == 2_000
    assert follow(event_time, [3_000, 3_100], [3_200]) == [2_000, 0]


def test_it_ends_a_lifetime_beyond_the_latest_time_of_all(event_time):
    follow(event_time, [6_000], [3_000])
    assert not event_time.advance([6_999], 0.0)
    assert event_time.watermark_ms == 3_000
    assert event_time.advance([7_000], 0.0)
    assert event_time.in_order
    assert event_time.watermark_ms == 7_000


def test_it_ends_a_lifetime_on_the_clock_later_where_times_never_come_so_far(event_time):
    """As after one record of a wrong time far in the future."""
    follow(event_time, [10**12], [5_100], [5_200], now_s=7.0)
    assert not event_time.in_order
    assert not event_time.advance([5_300], 7.0 + 0.99 * LIFETIME_S)
    assert event_time.advance([5_400], 7.0 + LIFETIME_S)
    assert event_time.watermark_ms == 5_400


def test_as_long_as_times_go_back_again_and_again_it_does_not_end(event_time):
    """As where two archives are read at once."""
    for turn in range(50):
        (back_ms,) = follow(event_time, [9_000 + turn, 1_000 + turn], now_s=turn * LIFETIME_S / 2)
        assert back_ms == 8_000
        assert not event_time.in_order
        assert event_time.watermark_ms == 1_000


def test_disorder_without_a_lifetime_never_ends():
    event_time = EventTime(5_000, SLACK_MS, None)
    follow(event_time, [3_000], [10**15], now_s=10.0**9)
    assert event_time.watermark_ms == 3_000
