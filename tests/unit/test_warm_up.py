"""An index that is filled from a backlog: ``index_silently_until``."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from streamdedup.detection.detector import Detector
from streamdedup.settings.kinds import format_moment, parse_moment
from tests.turns import DEAD_LETTERS, OPTIONS, Sent, World

TEXT = "amber birch cedar delta ember"


def silent_until_1_s(options, store):
    return Detector(replace(options, silent_until_ms=1_000), store)


@pytest.mark.parametrize("late_first", [False, True])
def test_documents_before_the_time_are_pairs_with_later_ones_only_whichever_is_read_first(late_first):
    world = World([], make_detector=silent_until_1_s, partitions=2)
    old = [Sent("a", TEXT, 0, time_ms=10), Sent("b", TEXT, 0, time_ms=999)]
    new = [Sent("c", TEXT, 1, time_ms=1_000), Sent("d", TEXT, 1, time_ms=2_000)]
    for part in (new, old) if late_first else (old, new):
        world.send(*part)
        world.run()
    assert world.pairs() == [("a", "c"), ("a", "d"), ("b", "c"), ("b", "d"), ("c", "d")]
    assert world.total("documents_silent_total") == 2


def test_a_bad_record_of_the_backlog_is_counted_and_not_published_and_one_without_a_time_is():
    world = World([], make_detector=silent_until_1_s, silent_until_ms=1_000)
    world.send(*(Sent("x", "", 0, code="not_json", time_ms=time_ms) for time_ms in (10, 1_000, -1)))
    world.send(Sent("x", "", 0, code="unreadable", time_ms=10))  # nobody can read its time
    world.run()
    assert [offset for _, offset, _ in world.dead_letters()] == [1, 2, 3]
    assert len(world.broker.records(DEAD_LETTERS)) == 3
    assert world.total("dead_letters_silent_total") == 1
    assert OPTIONS.silent_until_ms is None


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("2026-05-01T06:00:00Z", "2026-05-01T06:00:00Z"),
        ("2026-05-01T08:00:00.250+02:00", "2026-05-01T06:00:00.250Z"),
        (datetime(2026, 5, 1, 6, tzinfo=UTC), "2026-05-01T06:00:00Z"),
    ],
)
def test_a_time_is_read_with_its_zone_and_written_in_utc(text, written):
    time_ms = parse_moment(text)
    assert format_moment(time_ms) == written
    assert parse_moment(written) == time_ms
