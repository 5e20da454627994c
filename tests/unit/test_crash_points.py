"""Points at which tests end the daemon: which there are, and that they are passed where they say."""

import inspect

import pytest

from streamdedup.errors import IndexLost
from streamdedup.index.contract import Index
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.values import Fence
from streamdedup.position import Partition
from tests.crash_points import INDEX_STEPS, Observed

#: Methods of a store that take no batch to its commit: they count, look for losses, or serve an operator.
INDEX_NO_STEPS = {
    "ping", "stats", "count_claims", "count_documents", "close", "encode_entries", "unfence", "partition_states",
    "count_connections",
}  # fmt: skip


def test_every_call_to_the_store_is_a_step():
    methods = {name for name, _ in inspect.getmembers(Index, inspect.isfunction) if not name.startswith("_")}
    assert set(INDEX_STEPS) | INDEX_NO_STEPS == methods


def test_an_observed_index_does_the_same_and_tells_of_its_steps_of_which_one_that_fails_has_no_end():
    passed, inner = [], MemoryIndex()
    index = Observed(inner, INDEX_STEPS, passed.append)
    index.open({"a": 1})
    fence = index.fence(Partition("t", 0), 1, 7)
    assert inner.partition_states([Partition("t", 0)])[Partition("t", 0)].high_water_mark == fence.high_water_mark == 7
    index.ping()
    with pytest.raises(IndexLost):
        Observed(MemoryIndex(), INDEX_STEPS, passed.append).insert_entries([], [Fence(Partition("t", 0), 1, 0)])
    assert passed == ["before_open", "after_open", "before_fence", "after_fence", "before_insert_entries"]
