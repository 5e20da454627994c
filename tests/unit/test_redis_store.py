"""The memory of the fullest master, by which the daemon warns."""

from streamdedup.index.redis.store import _fullest
from streamdedup.index.values import StoreStats


def test_the_fullest_master_uses_most_of_its_limit():
    unlimited = {"used_memory": 900, "maxmemory": 0}
    roomy = {"used_memory": 500, "maxmemory": 1_000}
    full = {"used_memory": 50, "maxmemory": 60}
    assert _fullest([unlimited, roomy, full]) == StoreStats(50, 60)
    assert _fullest([unlimited, unlimited | {"used_memory": 901}]) == StoreStats(901, None)
