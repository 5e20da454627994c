"""Attempt ids ascend whatever happens to clocks and consumer groups."""

import time
from types import SimpleNamespace

import pytest

from streamdedup.daemon.attempts import (
    AttemptIds,
    attempt_ms,
    committed_attempt,
    in_lineage,
    lineage_of,
    new_lineage,
)
from streamdedup.daemon.losses import find_losses
from streamdedup.daemon.partitions import PartitionOwnership
from streamdedup.index.memory import MemoryIndex
from streamdedup.kafka.protocols import Batch, CommittedOffset, Record
from streamdedup.position import Partition, Position

PARTITION = Partition("articles", 0)


def test_ids_of_a_process_ascend_and_are_read_from_committed_metadata():
    ids = AttemptIds()
    made = [ids.next() for _ in range(3)]
    assert made == sorted(set(made))
    assert all(committed_attempt(CommittedOffset(7, attempt_id)) == attempt_id for attempt_id in made)


def test_an_id_follows_every_observed_id_although_the_clock_is_set_back(monkeypatch):
    first, second = AttemptIds(), AttemptIds()
    monkeypatch.setattr(time, "time_ns", lambda: 2_000_000_000)
    observed = [first.next(), in_lineage(first.next(), 7), first.next()]
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000)
    for attempt_id in ("", *observed):
        second.observe(attempt_id)
    following = second.next()
    assert following > max(observed)
    assert (lineage_of(following), attempt_ms(following)) == (7, 1_000)


def test_a_lineage_is_later_than_those_before_although_the_clock_is_set_back():
    ids = [in_lineage(AttemptIds().next(), lineage) for lineage in (5, 9)]
    assert new_lineage(ids, now_ms=2_000) == 10
    assert new_lineage([*ids, ""], now_ms=60_000) == 60
    assert new_lineage([], now_ms=60_000) == 60
    assert committed_attempt(CommittedOffset(7, in_lineage(ids[0], new_lineage(ids, now_ms=10**18))))


@pytest.mark.parametrize("metadata", ["", "consumer-1", "1.2.3", "0000000001.0000000001.00000000000000001 "])
def test_metadata_of_another_program_is_no_attempt_id(metadata):
    assert committed_attempt(CommittedOffset(7, metadata)) == ""
    assert committed_attempt(None) == ""


def a_life(index: MemoryIndex, offset: int, committed: CommittedOffset | None) -> str:
    """Announce one batch as a process that has just started; return the attempt id."""
    pipeline = SimpleNamespace(name="articles", index=index, fingerprint={})
    source = SimpleNamespace(committed=lambda _partition: committed, end=lambda _partition: None, confirm=lambda: None)
    ownership = PartitionOwnership({"articles": pipeline}, "g")
    record = Record(Position(*PARTITION, offset), 0, None, b"{}")
    fences = ownership.take_over(Batch((record,), generation=5), source)
    return ownership.announce(fences, {PARTITION: offset})


@pytest.mark.parametrize("clocks_s", [(1_000, 990), (990, 1_000)])
def test_the_loss_of_a_batch_is_noticed_whichever_way_the_clock_was_set(monkeypatch, clocks_s):
    index = MemoryIndex()
    index.open({})
    monkeypatch.setattr(time, "time_ns", lambda: clocks_s[0] * 1_000_000_000)
    first = a_life(index, 0, None)
    before = dict(index._announced)
    monkeypatch.setattr(time, "time_ns", lambda: clocks_s[1] * 1_000_000_000)
    second = a_life(index, 10, CommittedOffset(10, first))
    assert find_losses(index, {PARTITION: CommittedOffset(20, second)}) == []
    index._announced = before
    assert len(find_losses(index, {PARTITION: CommittedOffset(20, second)})) == 1


def test_an_id_follows_an_attempt_that_was_announced_and_not_committed(monkeypatch):
    index = MemoryIndex()
    index.open({})
    uncommitted = a_life(index, 0, None)
    monkeypatch.setattr(time, "time_ns", lambda: 1_000)
    assert a_life(index, 0, None) > uncommitted
