"""Attempt ids ascend whatever happens to clocks and consumer groups."""

import time

import pytest

from streamdedup.daemon.attempts import (
    AttemptIds,
    attempt_id_of,
    attempt_ms,
    in_lineage,
    lineage_of,
    new_lineage,
)
from streamdedup.kafka.protocols import CommittedOffset


def test_ids_of_a_process_ascend_and_are_read_from_committed_metadata():
    ids = AttemptIds()
    made = [ids.next() for _ in range(3)]
    assert made == sorted(set(made))
    assert all(attempt_id_of(CommittedOffset(7, attempt_id)) == attempt_id for attempt_id in made)


def test_an_id_follows_every_observed_id_although_the_clock_is_set_back(monkeypatch):
    first, second = AttemptIds(), AttemptIds()
    monkeypatch.setattr(time, "time_ns", lambda: 2_000_000_000)
    observed = [first.next(), in_lineage(first.next(), 7), first.next()]
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    for attempt_id in ("", *observed, observed[0]):
        second.observe(attempt_id)
    following = second.next()
    assert following > max(observed)
    assert (lineage_of(following), attempt_ms(following)) == (7, 1_000)


def test_a_lineage_is_later_than_those_before_although_the_clock_is_set_back():
    ids = [in_lineage(AttemptIds().next(), lineage) for lineage in (5, 9)]
    assert new_lineage(ids, now_ms=2_000) == 10
    assert new_lineage([*ids, ""], now_ms=60_000) == 60
    assert new_lineage([], now_ms=60_000) == 60
    assert attempt_id_of(CommittedOffset(7, in_lineage(ids[0], new_lineage(ids, now_ms=10**18))))


@pytest.mark.parametrize("metadata", ["", "consumer-1", "1.2.3", "0000000001.0000000001.00000000000000001 "])
def test_metadata_of_another_program_is_no_attempt_id(metadata):
    assert attempt_id_of(CommittedOffset(7, metadata)) == ""
    assert attempt_id_of(None) == ""
