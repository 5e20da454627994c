"""How the batch size is halved after a process that ended in the middle of a batch, and how it grows again."""

import pytest
import structlog

from streamdedup.daemon.batch_limits import BatchLimits
from streamdedup.position import Partition

PARTITION, OTHER = Partition("articles", 0), Partition("articles", 1)


def began(offset: int, noted: str = "", process: str = "p") -> tuple[BatchLimits, str]:
    limits = BatchLimits(500, process)
    return limits, limits.begin(PARTITION, offset, noted)


def test_each_process_that_ends_at_the_same_offset_leaves_half_to_the_next():
    noted, seen = "", []
    for number in range(12):
        limits, noted = began(70, noted, f"p{number}")
        seen.append(limits.limit())
    assert seen == [500, 250, 125, 62, 31, 15, 7, 3, 1, 1, 1, 1]


def test_behind_a_process_that_committed_something_the_first_batch_is_half_as_large():
    _, noted = began(70)
    limits, _ = began(50_000, noted, "q")
    assert limits.limit() == 250


@pytest.mark.parametrize(("progress", "limit"), [(0, 31), (1, 62), (499, 62), (500, 125), (1000, 250), (10_000, 250)])
def test_a_process_that_committed_something_leaves_the_batch_size_that_it_had_then(progress, limit):
    limits, _ = began(70 + progress, "70 3 p", "q")
    assert limits.limit() == limit


def test_the_same_process_halves_nothing_when_it_takes_a_partition_over_again():
    limits, noted = began(70)
    for offset in (70, 71, 70):
        noted = limits.begin(PARTITION, offset, noted)
        assert limits.limit() == 500


def test_it_goes_on_with_the_batch_size_that_it_has():
    limits, noted = began(0, "0 1 p", "q")
    assert limits.limit() == 125
    limits.committed(500)
    assert limits.begin(PARTITION, 500, noted) == "500 1 q"
    assert limits.limit() == 250


def test_after_as_many_records_as_a_whole_batch_has_it_doubles():
    limits, _ = began(0, "0 1 p", "q")
    seen = []
    for count in (125, 374, 1, 499, 1, 500):
        limits.committed(count)
        seen.append(limits.limit())
    assert seen == [125, 125, 250, 250, 500, 500]


def test_a_partition_with_few_records_does_not_keep_batches_small():
    """Records of all partitions count."""
    limits = BatchLimits(500, "q")
    limits.begin(PARTITION, 0, "0 0 p")
    limits.begin(OTHER, 9, "")
    limits.committed(500)  # one of them of the first partition
    assert limits.limit() == 500


def test_of_several_partitions_the_smallest_batch_size_counts():
    limits = BatchLimits(500, "q")
    for partition, noted in ((PARTITION, "0 0 p"), (OTHER, "0 2 p"), (Partition("articles", 2), "0 1 p")):
        limits.begin(partition, 0, noted)
    assert limits.limit() == 62


@pytest.mark.parametrize("noted", ["", "x", "1", "1 x q", "-1 2 q"])
def test_a_note_of_another_form_halves_nothing(noted):
    assert began(1, noted)[0].limit() == 500


@pytest.mark.parametrize(("offset", "records"), [(70, [250]), (71, [])])
def test_the_log_tells_of_a_process_that_committed_nothing(offset, records):
    with structlog.testing.capture_logs() as logs:
        began(offset, "70 0 p", "q")
    assert [entry["records"] for entry in logs if entry["event"] == "batches_halved"] == records


@pytest.mark.parametrize("batch_records", [1, 2, 3, 1000])
def test_a_batch_has_at_least_one_record(batch_records):
    limits = BatchLimits(batch_records, "q")
    limits.begin(PARTITION, 0, "0 60 p")
    assert limits.limit() == 1
    for _ in range(batch_records.bit_length() - 1):
        limits.committed(batch_records)
    assert limits.limit() == batch_records
