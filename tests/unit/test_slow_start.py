"""How the batch size begins at one record, grows, and begins again; and the cure that the log names."""

import pytest
import structlog

from streamdedup.daemon.slow_start import SlowStart


def grown(batch_records: int) -> SlowStart:
    """Return a slow start after a batch of the configured size."""
    slow_start = SlowStart(batch_records)
    while not slow_start.may_read_ahead:
        slow_start.grow(0)
    return slow_start


@pytest.mark.parametrize(
    ("batch_records", "limits"),
    [
        (1, [1, 1]),
        (2, [1, 2, 2]),
        (5, [1, 2, 4, 5, 5]),
        (2000, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2000, 2000]),
    ],
)
def test_batches_begin_at_one_record_and_double_with_each_commit(batch_records, limits):
    slow_start, seen = SlowStart(batch_records), []
    for _ in limits:
        seen.append((slow_start.limit, slow_start.may_read_ahead))
        slow_start.grow(0)
    # The batch ahead is the last doubling.
    assert seen == [*((limit, False) for limit in limits[:-1]), (batch_records, True)]


def test_from_the_second_undone_batch_before_a_full_one_on_the_log_warns_and_names_the_cure():
    slow_start = grown(4)
    with structlog.testing.capture_logs() as logs:
        slow_start.restart(4)
        slow_start.grow(0)
        slow_start.restart(2)
        slow_start.restart(1)
        while not slow_start.may_read_ahead:
            slow_start.grow(0)
        slow_start.restart(4)
    assert [(entry["log_level"], entry["records"], entry["count"]) for entry in logs] == [
        ("info", 4, 1),
        ("warning", 2, 2),
        ("warning", 1, 3),
        ("info", 4, 1),
    ]
    assert {entry["event"] for entry in logs} == {"batch_outlasted"}
    assert all("set a smaller kafka.batch_records" in entry["reason"] for entry in logs)


def test_the_log_names_the_cure_once_where_an_earlier_process_ended_in_a_batch():
    slow_start = SlowStart(500)
    with structlog.testing.capture_logs() as logs:
        for replayed_count in (0, 2, 4):
            slow_start.grow(replayed_count)
    assert [(entry["event"], entry["documents"]) for entry in logs] == [("batch_repeated", 2)]
    assert "set a smaller kafka.batch_records" in logs[0]["reason"]


def test_documents_of_a_batch_that_this_process_has_undone_name_no_other_process():
    slow_start = SlowStart(500)
    slow_start.restart(1)
    full = grown(500)
    with structlog.testing.capture_logs() as logs:
        slow_start.grow(1)
        full.grow(1)
    assert logs == []
