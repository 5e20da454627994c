"""Where buckets stand in Redis: on which shelf, in which layer, and for how long."""

import time
from dataclasses import replace

import numpy as np
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamdedup.position import Partition
from streamdedup.store.base import SHOWN_OF_FULL
from streamdedup.store.memory import MemoryBucketStore
from streamdedup.store.redis import RedisBucketStore
from streamdedup.store.redis_keys import Keys
from streamdedup.store.redis_servers import OneServer
from tests.shelves import FEWEST, era_of, members_of, read_layers, write_layers
from tests.thoroughness import examples

BANDS = 2
NAMESPACE = "sd:shelves"
FINGERPRINT = {"bands": BANDS}
PARTITION = Partition("articles", 0)
KEYS = Keys(NAMESPACE, BANDS)
HOUR_MS = 3_600_000
#: What `lua/_layers.lua` says: members for each shelf when another is added, and layers at most.
FULL, MOST_LAYERS = 16, 16
#: What `lua/enter_buckets.lua` says: members of a bucket that are read before they are counted.
FEW = 8


class Lab:
    """An index, and a look behind it.

    Attributes:
        server: The server that it is on.
        store: The index.
    """

    def __init__(self, client: redis.Redis, lifetime_ms: int | None = HOUR_MS, **options: int) -> None:
        self.client = client
        self.server = OneServer(client)
        self.store = RedisBucketStore(self.server, namespace=NAMESPACE, bands=BANDS, lifetime_ms=lifetime_ms, **options)
        self.store.open(FINGERPRINT)
        self.fence = self.store.fence(PARTITION, 1, 0)

    def enter(self, numbers, band_keys):
        """Let documents enter buckets; ``band_keys`` are those of all bands alike."""
        rows = np.array([[key] * BANDS for key in band_keys], dtype=np.uint32)
        return self.store.enter_buckets(list(numbers), rows, [self.fence])

    def leave(self, numbers, band_keys):
        rows = np.array([[key] * BANDS for key in band_keys], dtype=np.uint32)
        self.store.leave_buckets(list(numbers), rows, [self.fence])

    def members(self, band_key):
        (met,) = {frozenset(members_of(self.server, KEYS, slot, band_key)) for slot in range(BANDS)}
        return set(met)

    def layers(self):
        return read_layers(self.server, KEYS, 0).each

    def era(self) -> int:
        return read_layers(self.server, KEYS, 0).era

    def change(self, change):
        """Put other layers in the place of those of each slot."""
        for slot in range(BANDS):
            write_layers(self.server, KEYS, slot, change(read_layers(self.server, KEYS, slot)))

    def change_first(self, **values):
        """Change values of the first layer."""
        self.change(lambda layers: replace(layers, each=[replace(layers.each[0], **values), *layers.each[1:]]))

    def shelves(self, slots=1) -> list[bytes]:
        """Keys of all shelves of the first slots."""
        prefixes = [KEYS.shelves(slot) for slot in range(slots)]
        return [key for prefix in prefixes for key in self.client.scan_iter(prefix + b"*", count=10_000)]

    def on_shelf(self, key) -> list[bytes]:
        return self.client.zrange(key, 0, -1)


@pytest.fixture
def lab(redis_client) -> Lab:
    return Lab(redis_client)


def documents(count, first=1):
    return list(range(first, first + count))


class TestTogether:
    def test_many_buckets_share_few_sorted_sets_that_are_kept_as_lists(self, lab):
        keys = np.random.default_rng(1).integers(0, 2**32, 20_000)
        lab.enter(documents(len(keys)), keys)
        shelves = lab.shelves()
        assert len(shelves) < len(keys) / 10
        assert {lab.client.object("encoding", key) for key in shelves} == {b"listpack"}
        assert sum(lab.client.zcard(key) for key in shelves) == len(keys) == lab.layers()[0].members_count

    def test_whoever_shares_a_shelf_and_not_the_band_key_is_not_met(self, lab):
        same_shelf = [7 + 2**20 * at for at in range(400)]
        assert lab.enter(documents(400), same_shelf).candidates == [{}] * 400
        assert len(lab.shelves()) == 1
        assert lab.enter([1000], [7 + 2**20]).candidates == [{2: BANDS}]

    @pytest.mark.parametrize("key", [0, 1, 2**31 - 1, 2**31, 2**32 - 1])
    def test_the_greatest_numbers_and_keys_are_whole(self, lab, key):
        numbers = [-(2**63), -1, 0, 1, 2**63 - 1]
        lab.enter(numbers, [key] * 5)
        assert lab.members(key) == set(numbers)
        assert lab.enter([7], [key]).candidates == [dict.fromkeys(numbers, BANDS)]

    def test_a_large_bucket_shows_all_its_members(self, lab):
        for count in range(1, 3 * FEW):
            (met,) = lab.enter([count], [7]).candidates
            assert met == dict.fromkeys(range(1, count), BANDS)
        assert lab.members(7) == set(range(1, 3 * FEW))

    def test_who_leaves_a_large_one_is_met_no_more(self, lab):
        numbers = documents(200)
        lab.enter(numbers, [7] * 200)
        lab.leave([4], [7])
        assert lab.enter([5], [7]).candidates == [dict.fromkeys(set(numbers) - {4, 5}, BANDS)]
        lab.leave(numbers, [7] * 200)
        assert lab.shelves() == []
        assert lab.layers()[0].members_count == 0
        assert lab.enter([300], [7]).candidates == [{}]

    def test_a_document_may_be_in_two_buckets_of_one_shelf_and_leaves_one(self, lab):
        lab.enter([1, 1], [7, 7 + 2**20])
        lab.leave([1], [7])
        assert lab.enter([2, 2], [7, 7 + 2**20]).candidates == [{}, {1: BANDS}]

    @pytest.mark.parametrize("cap", [2, FEW, FEW + 1, 3 * FEW])
    def test_a_full_one_is_not_kept_alive(self, redis_client, cap):
        lab = Lab(redis_client, bucket_cap=cap)
        lab.enter(documents(cap), [7] * cap)
        for key in lab.shelves():
            lab.client.pexpire(key, 60_000)
        hits = lab.enter(documents(20, 100), [7] * 20)
        assert hits.full == set(range(20))
        assert {len(met) for met in hits.candidates} == {SHOWN_OF_FULL}
        assert all(lab.client.pttl(key) <= 60_000 for key in lab.shelves())


class TestGrowth:
    def test_shelves_are_added_as_documents_come_and_all_are_found_and_leave(self, lab):
        rng = np.random.default_rng(2)
        keys = rng.integers(0, 2**32, 60_000)
        for low in range(0, len(keys), 5_000):
            lab.enter(documents(5_000, 1 + low), keys[low : low + 5_000])
        (layer,) = lab.layers()
        assert layer.shelves == pytest.approx(len(keys) / FULL, rel=0.01)
        assert layer.members_count == len(keys)
        some = rng.choice(len(keys), 500, replace=False)
        hits = lab.enter(documents(500, 10**6), keys[some])
        assert all(place + 1 in met for place, met in zip(some.tolist(), hits.candidates, strict=True))
        lab.leave(documents(len(keys)), keys)
        assert lab.layers()[0].members_count == 500

    def test_no_call_adds_more_than_some(self, lab):
        lab.enter([1], [7])
        lab.change_first(members_count=10**6)
        for shelves in (FEWEST + 3, FEWEST + 6):
            lab.enter([2], [7])
            assert lab.layers()[0].shelves == shelves

    def test_one_with_more_members_than_a_command_takes_is_parted(self, lab):
        numbers = documents(3_000)
        lab.enter(numbers, [7] * 1_500 + [7 + FEWEST] * 1_500)
        lab.change_first(members_count=10**6)
        while lab.layers()[0].shelves <= FEWEST + 7:
            lab.enter([1], [7])
        assert lab.members(7) == set(numbers[:1_500])
        assert lab.members(7 + FEWEST) == set(numbers[1_500:])
        assert sorted(lab.client.zcard(key) for key in lab.shelves()) == [1_500, 1_500]
        assert all(lab.client.pttl(key) > HOUR_MS for key in lab.shelves())


class TestLayers:
    def test_who_enters_again_stands_in_the_last_one_only(self, redis_client):
        lab = Lab(redis_client)
        lab.enter(documents(20), [7] * 20)
        longer = Lab(redis_client, lifetime_ms=2 * HOUR_MS)
        assert longer.enter([3, 40], [7, 7]).candidates == [
            dict.fromkeys(set(documents(20)) - {3}, BANDS), dict.fromkeys(documents(20), BANDS)
        ]  # fmt: skip
        first, last = longer.layers()
        assert (first.lifetime_ms, last.lifetime_ms) == (HOUR_MS, 2 * HOUR_MS)
        assert last.members_count == 2
        assert longer.members(7) == {*documents(20), 40}

    def test_a_shorter_lifetime_waits_for_the_next_era(self, redis_client):
        Lab(redis_client, lifetime_ms=2 * HOUR_MS).enter([1], [7])
        lab = Lab(redis_client)
        assert lab.enter([2], [7]).candidates == [{1: BANDS}]
        assert [layer.lifetime_ms for layer in lab.layers()] == [2 * HOUR_MS]
        pass_eras(lab)
        assert lab.enter([3], [7]).candidates == [{1: BANDS, 2: BANDS}]
        assert [layer.lifetime_ms for layer in lab.layers()] == [2 * HOUR_MS, HOUR_MS]

    @pytest.mark.parametrize("lifetimes_ms", [(HOUR_MS, 2 * HOUR_MS), (None, HOUR_MS)])
    def test_daemons_with_different_lifetimes_do_not_begin_them_without_end(self, redis_client, lifetimes_ms):
        one, other = (Lab(redis_client, lifetime_ms=lifetime_ms) for lifetime_ms in lifetimes_ms)
        for number in range(1, 100, 2):
            # Each sets a fence of its own, as after a rebalance.
            one.fence = one.store.fence(PARTITION, number, 0)
            one.enter([number], [7])
            other.fence = other.store.fence(PARTITION, number + 1, 0)
            (met,) = other.enter([number + 1], [7]).candidates
            assert set(met) == set(range(1, number + 1))
        assert len(one.layers()) <= MOST_LAYERS

    @pytest.mark.parametrize(("before", "after"), [(None, HOUR_MS), (HOUR_MS, None)])
    def test_nothing_is_forgotten_when_documents_live_for_ever_from_now_on_or_no_more(
        self, redis_client, before, after
    ):
        Lab(redis_client, lifetime_ms=before).enter([1], [7])
        lab = Lab(redis_client, lifetime_ms=after)
        assert lab.enter([2], [7]).candidates == [{1: BANDS}]
        first, last = lab.layers()
        assert (first.last_ms == 0, last.last_ms) == (before is None, 0)
        for_ever = [lab.client.pttl(key) == -1 for key in sorted(lab.shelves())]
        assert for_ever == [before is None, after is None]
        assert lab.client.pttl(KEYS.layers(0)) == -1

    def test_one_whose_time_is_over_is_looked_into_no_more_but_may_be_left(self, redis_client):
        Lab(redis_client).enter([1, 2], [7, 7])
        lab = Lab(redis_client, lifetime_ms=2 * HOUR_MS)
        lab.enter([3], [7])
        lab.change_first(last_ms=time.time_ns() // 10**6 - 1)
        assert lab.enter([4], [7]).candidates == [{3: BANDS}]
        lab.leave([1, 3], [7, 7])
        assert lab.members(7) == {2, 4}
        lab.change_first(last_ms=time.time_ns() // 10**6 - HOUR_MS)
        lab.enter([5], [7])
        assert [layer.number for layer in lab.layers()] == [2]

    @pytest.mark.parametrize("beneath", [False, True])
    def test_one_with_far_too_many_shelves_is_followed_by_one_with_fewer_in_the_next_era(self, redis_client, beneath):
        if beneath:
            Lab(redis_client, lifetime_ms=None).enter([9], [9])
        lab = Lab(redis_client)
        lab.enter([1], [7])
        lab.change(lambda layers: replace(
            layers, swept_count=16 * FEWEST, each=[*layers.each[:-1], replace(layers.each[-1], shelves=16 * FEWEST)]
        ))  # fmt: skip
        lab.enter([2], [8])
        assert lab.layers()[-1].shelves == 16 * FEWEST
        pass_eras(lab)
        lab.enter([3], [9])
        assert [layer.shelves for layer in lab.layers()[-2:]] == [16 * FEWEST, 4 * FEWEST]

    def test_one_that_was_not_swept_is_followed_by_one_with_fewer_shelves(self, lab):
        lab.enter([1], [7])
        # Enough members for so many shelves, but no era in which so many documents came.
        lab.change_first(shelves=8 * FEWEST, members_count=10**5, begun=lab.era() - 2)
        lab.enter([2], [8])
        pass_eras(lab)
        lab.enter([3], [9])
        assert len(lab.layers()) == 1, "nothing was there to be swept"
        pass_eras(lab)
        lab.enter([4], [10])
        assert [layer.shelves for layer in lab.layers()] == [8 * FEWEST, 2 * FEWEST]


def go_back(lab, eras):
    """Let the index be one that was last written to some eras ago, and no member tell."""
    lab.change(
        lambda layers: replace(
            layers,
            era=layers.era - eras,
            each=[replace(layer, begun=max(layer.begun - eras, 0)) for layer in layers.each],
        )
    )


def pass_eras(lab, eras=1):
    """Let all that was done have been done some eras ago."""
    go_back(lab, eras)
    for shelf in lab.shelves(BANDS):
        held = lab.client.zrange(shelf, 0, -1, withscores=True)
        lab.client.unlink(shelf)
        lab.client.zadd(shelf, {b"%d" % ((era_of(each) - eras) % 4) + each[1:]: score for each, score in held})
        lab.client.pexpire(shelf, 2 * HOUR_MS)


class TestEras:
    def test_a_member_stays_for_two_eras_more_and_is_swept_in_the_next(self, lab):
        keys = list(range(0, 3 * FEWEST, 2))
        lab.enter(documents(len(keys)), keys)
        for count in (len(keys), len(keys), 0):
            pass_eras(lab)
            lab.enter([10**6], [10**9])
            assert sum(bool(lab.members(key)) for key in keys) == count
        assert lab.members(10**9) == {10**6}
        assert lab.layers()[0].members_count == 1

    def test_who_enters_again_in_a_later_era_stands_there_once_and_lives_on(self, lab):
        for _ in range(5):
            lab.enter([1], [7])
            (member,) = lab.on_shelf(lab.shelves()[0])
            assert era_of(member) == lab.era() % 4
            assert [layer.members_count for layer in lab.layers()] == [1]
            pass_eras(lab)

    def test_many_shelves_are_swept_some_at_each_call(self, lab):
        keys = np.random.default_rng(3).integers(0, 2**32, 3 * FEWEST * FULL)
        lab.enter(documents(len(keys), 2), keys)
        calls = -(-lab.layers()[0].shelves // FEWEST)
        left = []
        for _ in range(3):
            pass_eras(lab)
            for _ in range(calls):
                lab.enter([1], [7])
                left.append(lab.layers()[0].members_count)
        before, during = left[: 2 * calls], left[2 * calls :]
        assert set(before) == {len(keys) + 1}
        assert during == sorted(set(during), reverse=True)
        assert during[-1] == 1
        assert len(lab.layers()) == 1

    def test_after_an_era_without_a_call_documents_enter_another_layer(self, lab):
        lab.enter([1], [7])
        pass_eras(lab, 2)
        assert lab.enter([2], [7]).candidates == [{1: BANDS}]
        assert [(layer.number, layer.shelves, layer.members_count) for layer in lab.layers()] == [
            (1, FEWEST, 1), (2, FEWEST, 1)
        ]  # fmt: skip

    def test_a_clock_that_goes_back_a_little_begins_no_earlier_era(self, lab):
        lab.enter([1], [7])
        go_back(lab, -1)
        era = lab.era()
        lab.enter([2], [8])
        assert lab.era() == era
        (member,) = lab.on_shelf(next(key for key in lab.shelves() if key.endswith(b":8")))
        assert era_of(member) == era % 4

    def test_a_clock_that_was_far_ahead_is_not_waited_for(self, lab):
        lab.enter([1], [7])
        era = lab.era()
        go_back(lab, -1000)
        assert lab.enter([2], [7]).candidates == [{1: BANDS}]
        assert lab.era() == era
        assert len(lab.layers()) == 2

    def test_a_clock_that_went_back_and_is_right_again_costs_nothing(self, lab):
        lab.enter([1], [7])
        ahead_ms = 3 * HOUR_MS // 2
        # What was written an hour and a half ahead is now looked at by a clock that is behind.
        lab.change(lambda layers: replace(layers, latest_ms=layers.latest_ms + ahead_ms, era=layers.era + 3))
        lab.enter([2], [7])
        first, _ = lab.layers()
        assert first.last_ms >= time.time_ns() // 10**6 + ahead_ms + HOUR_MS - 60_000
        assert lab.client.pttl(KEYS.layers(0)) >= ahead_ms + 2 * HOUR_MS - 60_000

    def test_shelves_that_nobody_enters_go_when_they_would_have_been_swept(self, lab):
        lab.enter([1], [7])
        (shelf,) = lab.shelves()
        assert HOUR_MS < lab.client.pttl(shelf) <= 2 * HOUR_MS
        assert lab.client.pexpiretime(shelf) <= lab.client.pexpiretime(KEYS.layers(0))


NUMBERS, PLACES = st.integers(1, 24), st.sampled_from([7, 7, 7, 7 + FEWEST, 8])
STEPS = st.lists(st.tuples(st.sampled_from(["enter", "enter", "enter", "leave"]), NUMBERS, PLACES), max_size=60)


@settings(deadline=None, max_examples=examples(150), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.sampled_from([None, 3, 8, 9, 12]), st.integers(1, 7))
def test_buckets_are_those_of_the_index_in_memory(redis_client, steps, cap, batch):
    redis_client.flushdb()
    lab = Lab(redis_client, bucket_cap=cap)
    memory = MemoryBucketStore(bucket_cap=cap)
    memory.open(FINGERPRINT)
    fence = memory.fence(PARTITION, 1, 0)
    for low in range(0, len(steps), batch):
        for action in ("enter", "leave"):
            part = [(number, key) for step, number, key in steps[low : low + batch] if step == action]
            if not part:
                continue
            numbers, band_keys = [number for number, _ in part], [key for _, key in part]
            rows = np.array([[key] * BANDS for key in band_keys], dtype=np.uint32)
            if action == "leave":
                lab.leave(numbers, band_keys)
                memory.leave_buckets(numbers, rows, [fence])
                continue
            ours, theirs = lab.enter(numbers, band_keys), memory.enter_buckets(numbers, rows, [fence])
            assert (ours.full, ours.crowded, ours.full_buckets_count) == (
                theirs.full, theirs.crowded, theirs.full_buckets_count
            )  # fmt: skip
            for place, (met, as_known) in enumerate(zip(ours.candidates, theirs.candidates, strict=True)):
                # Which members of a full bucket are shown is left open, but not how many.
                assert sum(met.values()) == sum(as_known.values())
                assert place in ours.full or met == as_known
