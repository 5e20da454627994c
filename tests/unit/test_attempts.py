"""Attempt ids ascend whatever happens to clocks and consumer groups."""

import random
import time

import pytest

from streamdedup.daemon.attempts import (
    AttemptIds,
    attempt_id_of,
    attempt_ms,
    is_renewed,
    lineage_of,
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
    first.begin_lineage(7_000)
    observed = [first.next(), first.next(), first.next()]
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    for attempt_id in ("", *observed, observed[0]):
        second.observe(attempt_id)
    following = second.next()
    assert following > max(observed)
    assert (lineage_of(following), attempt_ms(following)) == (7_000, 1_000)


@pytest.mark.parametrize(
    ("now_ms", "least", "greatest"), [(2, 10, 1_009), (6_000, 6_000, 6_000), (10**18, 2**43, 2**43)]
)
def test_a_lineage_is_later_than_those_before_although_the_clock_is_set_back(now_ms, least, greatest):
    lineages = set()
    for _ in range(20):
        ids = AttemptIds()
        ids.observe("0000000000009.0000000003.00000000000000001")
        ids.begin_lineage(now_ms)
        attempt_id = ids.next()
        assert attempt_id_of(CommittedOffset(7, attempt_id)) == attempt_id
        lineages.add(lineage_of(attempt_id))
    assert least <= min(lineages) <= max(lineages) <= greatest
    assert len(lineages) > 1 or least == greatest, "two indexes whose clocks are behind have the same lineage"


def test_a_lineage_is_later_than_the_one_before_whatever_its_random_part(monkeypatch):
    monkeypatch.setattr(random, "randrange", lambda _count: 0)
    ids = AttemptIds()
    for lineage in range(1, 4):
        ids.begin_lineage(0)
        assert lineage_of(ids.next()) == lineage


def test_the_first_attempt_in_an_index_begins_a_lineage():
    earlier = AttemptIds().next()
    assert 0 < lineage_of(earlier) <= time.time_ns() // 1_000_000


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_renewed_id_follows_all_others_and_has_the_time_of_the_committed_attempt_if_any(is_committed):
    committed_id = AttemptIds().next() if is_committed else ""
    ids = AttemptIds()
    before = ids.next()
    renewed = ids.renewed(committed_id)
    assert before < renewed < ids.next()
    assert attempt_id_of(CommittedOffset(7, renewed)) == renewed
    assert attempt_ms(renewed) == attempt_ms(committed_id)
    assert is_renewed(renewed, committed_id)
    assert not is_renewed(ids.next(), committed_id)


@pytest.mark.parametrize("metadata", ["", "consumer-1", "1.2.3", "0000000000001.0000000001.00000000000000001 "])
def test_metadata_of_another_program_is_no_attempt_id(metadata):
    assert attempt_id_of(CommittedOffset(7, metadata)) == ""
    assert attempt_id_of(None) == ""
