"""The fence of the real store: two processes to which one generation has given the same partition."""

import pytest

from streamdedup.errors import BatchRefused, IndexLost
from streamdedup.index.redis.connection import connect
from streamdedup.index.redis.reading import RedisIndexOptions
from streamdedup.index.redis.store import RedisIndex
from streamdedup.index.values import AnnouncedAttempt, PartitionState
from streamdedup.position import Partition, Position

PARTITION = Partition("articles", 0)
#: A pair, and the position that claims it.
CLAIM = [(b"p" * 16, Position(*PARTITION, 3))]


@pytest.fixture
def processes(redis_client, redis_url):
    """The store as each of two processes has it."""
    with connect(redis_url) as one, connect(redis_url) as other:
        stores = [
            RedisIndex(servers, RedisIndexOptions(namespace="sd:articles", bands=4, lifetime_ms=3_600_000))
            for servers in (one, other)
        ]
        for store in stores:
            store.open({})
        yield stores


def test_under_one_generation_the_last_to_take_over_writes_and_the_other_is_refused(processes):
    old, new = processes
    old_fence = old.fence(PARTITION, 7, 0)
    new_fence = new.fence(PARTITION, 7, 0)
    for write in (lambda: old.claim_pairs(CLAIM, [old_fence]), lambda: old.finish({PARTITION: 5}, [], [old_fence])):
        with pytest.raises(BatchRefused, match="another process with our place in the group"):
            write()
    assert new.claim_pairs(CLAIM, [new_fence]) == [True]
    again = old.fence(PARTITION, 7, 0)
    with pytest.raises(BatchRefused, match="another process"):
        new.claim_pairs(CLAIM, [new_fence])
    assert old.claim_pairs(CLAIM, [again]) == [True]


def test_a_later_generation_is_told_by_its_number(processes):
    old, new = processes
    fence = old.fence(PARTITION, 7, 0)
    new.fence(PARTITION, 10, 0)
    for write in (lambda: old.claim_pairs(CLAIM, [fence]), lambda: old.fence(PARTITION, 9, 0)):
        with pytest.raises(BatchRefused, match="fenced by generation 10, the batch has "):
            write()


@pytest.mark.parametrize("slot", range(4))
def test_an_index_of_which_one_slot_has_gone_back_knows_no_later_attempt_of_the_partition(
    processes, redis_client, slot
):
    store, _ = processes
    other = Partition("articles", 1)
    attempts = [f"{0:013d}.{number:010d}.{number:017d}" for number in range(4)]
    fences = {partition: store.fence(partition, 1, 0) for partition in (PARTITION, other)}
    for start, attempt_id in enumerate(attempts):
        store.announce(attempt_id, [fences[PARTITION]], {PARTITION: start}, committed_id=attempt_id)
        if start == 1:
            key = f"{{sd:articles:{slot}}}aarticles:0"
            earlier = redis_client.get(key)
    store.announce(attempts[2], [fences[other]], {other: 7})
    redis_client.set(key, earlier)
    states = store.partition_states([other, PARTITION, Partition("articles", 2)])
    state = states[PARTITION]
    assert set(state.attempts) == {AnnouncedAttempt(attempts[at], at, attempts[at]) for at in (1, 3)}
    assert (state.least_announced, state.latest_announced, state.committed_id) == (
        attempts[1],
        attempts[3],
        attempts[1],
    )
    assert states[other] == PartitionState(0, attempts=(AnnouncedAttempt(attempts[2], 7),))
    assert states[Partition("articles", 2)] == PartitionState(None)
    assert store.partition_states([]) == {}
    with pytest.raises(IndexLost, match="gone back"):
        store.fence(PARTITION, 1, 0, attempts[3])
