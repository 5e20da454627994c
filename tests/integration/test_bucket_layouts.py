"""The two layouts of buckets in Redis: the same members from both, where each bucket is stored, and for how long."""

import itertools
import time

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamdedup.index.memory import MemoryIndex
from streamdedup.index.redis.keys import Keys
from streamdedup.index.redis.reader import RedisIndexReader
from streamdedup.index.redis.reading import RedisIndexOptions
from streamdedup.index.redis.servers import OneServer
from streamdedup.index.redis.store import RedisIndex
from streamdedup.index.values import SHOWN_OF_FULL
from streamdedup.position import Partition
from tests.buckets import members_in_pages, members_in_set

BANDS = 2
NAMESPACE = "sd:layouts"
FINGERPRINT = {"bands": BANDS}
PARTITION = Partition("articles", 0)
KEYS = Keys(NAMESPACE, BANDS)
#: Lifetime so long that no page generation ends while a test runs: 20 years, of which the third began in 2010.
LIFETIME_MS = 20 * 365 * 86_400_000
#: What `lua/_pages.lua` says: pages at least, buckets a page at most in the mean, members on a page at most.
FEWEST, FULL, MOST_IN_PAGE = 256, 64, 8
#: What `lua/_sets.lua` says: members of an earlier part at least.
PART = 16


def generation() -> int:
    return time.time_ns() // 1_000_000 // LIFETIME_MS


def rows_of(band_keys) -> np.ndarray:
    """Return rows in which each document has one key in every band."""
    return np.array([[key] * BANDS for key in band_keys], dtype=np.uint32)


class Lab:
    """An index in one layout, and a view of its keys."""

    def __init__(self, client, layout, lifetime_ms=LIFETIME_MS, **limits) -> None:
        self.client, self.layout, self.server = client, layout, OneServer(client)
        place = {"namespace": NAMESPACE, "bands": BANDS, "bucket_layout": layout}
        self.store = RedisIndex(self.server, RedisIndexOptions(lifetime_ms=lifetime_ms, **place, **limits))
        self.store.open(FINGERPRINT)
        self.fence = self.store.fence(PARTITION, 1, 0)

    def insert(self, numbers, band_keys):
        """Insert documents; ``band_keys`` has one key per document, used in every band."""
        return self.store.insert_and_look_up(list(numbers), rows_of(band_keys), [self.fence])

    def remove(self, numbers, band_keys):
        self.store.remove_from_buckets(list(numbers), rows_of(band_keys), [self.fence])

    def bucket_keys(self, slot=0) -> list[bytes]:
        return sorted(self.client.scan_iter(KEYS.buckets_prefix(slot) + b"*", count=10_000))

    def members(self, band_key, number=None) -> set[int]:
        """Members of a bucket, the same in every band."""
        at = generation() if number is None else number
        if self.layout == "sets":
            found = [members_in_set(self.server, KEYS, slot, band_key) for slot in range(BANDS)]
        else:
            found = [members_in_pages(self.server, KEYS, slot, band_key, at) for slot in range(BANDS)]
        assert found[0] == found[1]
        return found[0]

    def pages_and_buckets(self) -> tuple[int, int]:
        pages, buckets = self.client.get(KEYS.buckets_prefix(0) + b"%d" % generation()).split()
        return int(pages), int(buckets)

    def shift(self, by: int) -> None:
        """Make the present page generation one that is ``by`` lifetimes later; below 0: earlier."""
        for slot in range(BANDS):
            prefix = KEYS.buckets_prefix(slot)
            parts = [key[len(prefix) :].partition(b":") for key in self.client.scan_iter(prefix + b"*", count=10_000)]
            # The generation whose place is taken moves first.
            for number, separator, rest in sorted(parts, key=lambda part: int(part[0]), reverse=by > 0):
                to = b"%d" % (int(number) + by)
                self.client.rename(prefix + number + separator + rest, prefix + to + separator + rest)


@pytest.fixture(params=["sets", "packed"])
def layout(request) -> str:
    return request.param


@pytest.fixture
def lab(redis_client, layout) -> Lab:
    return Lab(redis_client, layout)


@pytest.fixture
def packed(redis_client) -> Lab:
    return Lab(redis_client, "packed")


def documents(count, first=1):
    return list(range(first, first + count))


class TestBothLayouts:
    @pytest.mark.parametrize("key", [0, 1, 2**31 - 1, 2**31, 2**32 - 1, 0x0D0A3A3D, 0x31323334])
    def test_the_greatest_numbers_and_all_keys_are_whole(self, lab, key):
        numbers = [-(2**63), -1, 0, 1, 2**63 - 1]
        lab.insert(numbers, [key] * 5)
        assert lab.members(key) == set(numbers)
        assert lab.insert([7], [key]).candidates == [dict.fromkeys(numbers, BANDS)]

    def test_the_same_bytes_at_another_place_are_not_the_document(self, lab):
        # The bytes of 2 ** 32 are found in the middle of 1 followed by 0.
        lab.insert([1, 0], [7, 7])
        lab.remove([2**32], [7])
        assert lab.members(7) == {0, 1}
        assert lab.insert([2**32], [7]).candidates == [{0: BANDS, 1: BANDS}]
        # The bytes of 0 are found first in the middle of these two.
        lab.insert([2**56, 0], [8, 8])
        lab.remove([0], [8])
        assert lab.members(8) == {2**56}

    @pytest.mark.parametrize("cap", [1, 2, MOST_IN_PAGE, MOST_IN_PAGE + 1, 3 * MOST_IN_PAGE])
    def test_a_full_bucket_takes_no_more_returns_some_and_is_not_kept_alive(self, redis_client, layout, cap):
        lab = Lab(redis_client, layout, bucket_cap=cap)
        lab.insert(documents(cap), [7] * cap)
        for key in lab.bucket_keys():
            lab.client.pexpire(key, 60_000)
        hits = lab.insert(documents(20, 100), [7] * 20)
        assert hits.full == dict.fromkeys(range(20), BANDS)
        assert hits.near_capacity == frozenset()
        assert {sum(met.values()) for met in hits.candidates} == {BANDS * min(cap, SHOWN_OF_FULL)}
        assert lab.members(7) == set(documents(cap))
        generations = {KEYS.buckets_prefix(0) + b"%d" % generation()}
        assert all(lab.client.pttl(key) <= 60_000 for key in set(lab.bucket_keys()) - generations)

    def test_a_full_bucket_shows_each_of_its_members_to_some_document(self, redis_client, layout):
        members = documents(3 * PART)
        lab = Lab(redis_client, layout, bucket_cap=len(members))
        lab.insert(members, [7] * len(members))
        hits = lab.insert(documents(500, 100), [7] * 500)
        # Of a bucket in two parts those of the later part, which expire last.
        assert set().union(*hits.candidates) == set(members[PART if layout == "sets" else 0 :])

    def test_every_key_has_a_time_to_live_of_at_least_a_lifetime(self, lab):
        rng = np.random.default_rng(1)
        for first in range(1, 8_001, 1_000):
            lab.insert(documents(1_000, first), [*rng.integers(0, 2**32, 900), *[7] * 100])
        expiries = [lab.client.pttl(key) for key in lab.bucket_keys()]
        assert min(expiries) > LIFETIME_MS - 60_000
        assert max(expiries) <= (LIFETIME_MS if lab.layout == "sets" else 2 * LIFETIME_MS)

    def test_most_insertions_take_two_commands(self, lab):
        lab.insert([1], [7])
        lab.client.config_resetstat()
        count = 4_000
        lab.insert(documents(count, 2), np.random.default_rng(1).choice(2**32, count, replace=False))
        calls = sum(each["calls"] for each in lab.client.info("commandstats").values())
        # A new page takes some more.
        assert calls < 2.2 * BANDS * count


class TestSets:
    def test_a_bucket_is_a_set_that_an_operator_can_read(self, redis_client):
        Lab(redis_client, "sets").insert([5, -9], [0x01020304] * 2)
        assert redis_client.smembers(b"{sd:layouts:0}b\x01\x02\x03\x04") == {b"5", b"-9"}
        assert redis_client.object("encoding", b"{sd:layouts:0}b\x01\x02\x03\x04") == b"intset"

    def test_every_insertion_extends_the_life_of_a_bucket(self, redis_client):
        lab = Lab(redis_client, "sets")
        lab.insert([1], [7])
        (key,) = lab.bucket_keys()
        lab.client.pexpire(key, 60_000)
        lab.insert([1], [7])
        assert lab.client.pttl(key) > LIFETIME_MS - 60_000

    def test_an_insertion_with_a_shorter_lifetime_shortens_no_life(self, redis_client):
        lab = Lab(redis_client, "sets")
        lab.insert([1, *documents(PART + 1)], [8, *[7] * (PART + 1)])  # a bucket of one part and a bucket of two
        Lab(redis_client, "sets", lifetime_ms=60_000).insert([2, 1, 50], [8, 8, 7])
        assert [lab.client.scard(key) for key in lab.bucket_keys()] == [2, PART, 2]
        assert min(lab.client.pttl(key) for key in lab.bucket_keys()) > LIFETIME_MS - 60_000

    def test_only_an_insertion_with_the_longer_lifetime_parts_a_bucket(self, redis_client):
        lab = Lab(redis_client, "sets")
        lab.insert(documents(PART), [7] * PART)
        for lifetime_ms, parts in ((60_000, [PART + 1]), (LIFETIME_MS, [1, PART + 1])):
            Lab(redis_client, "sets", lifetime_ms=lifetime_ms).insert([50 + len(parts)], [7])
            assert [lab.client.scard(key) for key in lab.bucket_keys()] == parts
            assert min(lab.client.pttl(key) for key in lab.bucket_keys()) > LIFETIME_MS - 60_000


class TestParts:
    """A bucket in two parts, of which the earlier one takes no further members."""

    @pytest.fixture
    def sets(self, redis_client) -> Lab:
        lab = Lab(redis_client, "sets")
        lab.insert(documents(PART), [7] * PART)
        return lab

    @pytest.fixture
    def parted(self, sets) -> Lab:
        sets.insert([50], [7])
        return sets

    def parts(self, lab) -> list[int]:
        """Numbers of members in the parts of the only bucket, the later part first."""
        return [lab.client.scard(key) for key in lab.bucket_keys()]

    def expire(self, lab) -> None:
        """Let the earlier part of each bucket expire; the later part was changed later."""
        for slot in range(BANDS):
            assert lab.client.unlink(KEYS.buckets_prefix(slot) + b"\0\0\0\7:") == 1
            for key in lab.bucket_keys(slot):
                lab.client.pexpire(key, LIFETIME_MS // 2)

    def test_a_smaller_bucket_is_whole(self, sets):
        assert self.parts(sets) == [PART]

    def test_both_parts_live_for_a_lifetime_from_the_insertion_that_parts_the_bucket(self, sets):
        (key,) = sets.bucket_keys()
        sets.client.pexpire(key, 60_000)
        assert sets.insert([50], [7]).candidates == [dict.fromkeys(documents(PART), BANDS)]
        assert self.parts(sets) == [1, PART]
        later, earlier = (sets.client.pexpiretime(key) for key in sets.bucket_keys())
        assert later == earlier
        assert sets.client.pttl(key) > LIFETIME_MS - 60_000

    def test_documents_that_come_for_ever_find_no_expired_numbers_and_no_full_bucket(self, redis_client):
        for cap in (4, 4 * PART):
            redis_client.flushdb()
            sets = Lab(redis_client, "sets", bucket_cap=cap)
            sets.insert(documents(cap // 2 + 1), [7] * (cap // 2 + 1))
            for first in range(100, 2_000, 100):  # each round is a lifetime, in which half of a full bucket comes
                self.expire(sets)
                hits = sets.insert(documents(cap // 2, first), [7] * (cap // 2))
                assert not hits.full

    def test_no_second_part_is_renamed_while_the_earlier_one_lives(self, parted):
        parted.insert(documents(3 * PART, 100), [7] * 3 * PART)
        assert self.parts(parted) == [3 * PART + 1, PART]
        self.expire(parted)
        parted.insert([51], [7])
        assert self.parts(parted) == [1, 3 * PART + 1]

    def test_a_document_inserted_again_moves_to_the_later_part(self, parted):
        others = dict.fromkeys({50, *documents(PART)} - {3}, BANDS)
        assert parted.insert([3], [7]).candidates == [others]
        assert self.parts(parted) == [2, PART - 1]
        self.expire(parted)
        assert parted.insert([60], [7]).candidates == [{50: BANDS, 3: BANDS}]

    def test_a_member_of_the_earlier_part_is_not_refused_by_a_full_bucket(self, redis_client):
        sets = Lab(redis_client, "sets", bucket_cap=2 * PART)
        sets.insert(documents(2 * PART), [7] * 2 * PART)
        hits = sets.insert([3, 99, 3], [7] * 3)
        assert hits.full == {1: BANDS}
        assert hits.candidates[2] == dict.fromkeys(set(documents(2 * PART)) - {3}, BANDS)

    def test_the_only_member_of_a_full_bucket_may_come_again(self, redis_client):
        sets = Lab(redis_client, "sets", bucket_cap=1)
        assert sets.insert([1, 1, 2], [7] * 3).full == {2: BANDS}
        assert self.parts(sets) == [1]

    def test_the_earlier_part_is_the_bucket_when_the_later_one_is_empty(self, parted):
        parted.remove([50], [7])
        assert self.parts(parted) == [PART]
        assert parted.insert([51], [7]).candidates == [dict.fromkeys(documents(PART), BANDS)]

    def test_a_look_up_reads_both_parts(self, parted):
        reader = RedisIndexReader(parted.server, parted.store.options)
        assert reader.look_up([3], rows_of([7])).candidates == [dict.fromkeys({50, *documents(PART)} - {3}, BANDS)]


class TestPages:
    def test_many_buckets_share_few_small_hashes(self, packed):
        keys = np.random.default_rng(1).integers(0, 2**32, 20_000)
        packed.insert(documents(len(keys)), keys)
        pages = [key for key in packed.bucket_keys() if b":" in key.removeprefix(KEYS.buckets_prefix(0))]
        assert len(pages) == packed.pages_and_buckets()[0] == -(-len(set(keys.tolist())) // FULL)
        assert {packed.client.object("encoding", key) for key in pages} == {b"listpack"}
        assert sum(packed.client.hlen(key) for key in pages) == len(set(keys.tolist())) == packed.pages_and_buckets()[1]

    def test_a_large_bucket_leaves_its_page_small(self, packed):
        packed.insert(documents(50), [7] * 50)
        packed.insert(documents(50, 100), [7 + FEWEST] * 50)
        page = KEYS.buckets_prefix(0) + b"%d:7" % generation()
        assert packed.client.object("encoding", page) == b"listpack"
        assert packed.client.hvals(page) == [b"", b""]
        assert (packed.members(7), packed.members(7 + FEWEST)) == (set(documents(50)), set(documents(50, 100)))

    def test_documents_that_share_a_page_and_not_the_band_key_are_not_returned(self, packed):
        same_page = [7 + 2**20 * at for at in range(400)]
        assert packed.insert(documents(400), same_page).candidates == [{}] * 400
        assert packed.insert([1000], [7 + 2**20]).candidates == [{2: BANDS}]

    def test_pages_are_added_as_buckets_come_and_expire_and_every_bucket_is_found_and_removed(self, packed):
        rng = np.random.default_rng(2)
        keys = rng.choice(2**32, 30_000, replace=False)
        for low in range(0, len(keys), 10_000):
            part = keys[low : low + 10_000]
            packed.insert(documents(len(part), 1 + low), part)
        pages, buckets = packed.pages_and_buckets()
        assert buckets == len(keys)
        assert pages == -(-len(keys) // FULL) > FEWEST
        assert min(packed.client.pttl(key) for key in packed.bucket_keys()) > LIFETIME_MS - 60_000
        some = rng.choice(len(keys), 500, replace=False)
        hits = packed.insert(documents(500, 10**6), keys[some])
        assert [set(met) for met in hits.candidates] == [{place + 1} for place in some.tolist()]
        assert max(packed.client.hlen(key) for key in packed.bucket_keys()[1:]) < 512
        packed.remove(documents(500, 10**6), keys[some])
        packed.remove(documents(len(keys)), keys)
        assert packed.bucket_keys() == [KEYS.buckets_prefix(0) + b"%d" % generation()]

    def test_documents_that_are_replaced_for_ever_add_no_pages(self, packed):
        for _ in range(3):
            packed.insert(documents(20), [7] * 10 + [8] * 10)
            packed.remove(documents(20), [7] * 10 + [8] * 10)
            assert packed.pages_and_buckets() == (FEWEST, 0)
            assert packed.bucket_keys() == [KEYS.buckets_prefix(0) + b"%d" % generation()]

    def test_a_page_that_was_emptied_begins_with_a_time_to_live_again(self, packed):
        packed.insert([1], [7])
        packed.remove([1], [7])
        packed.insert([2], [7])
        assert all(packed.client.pttl(key) > LIFETIME_MS for key in packed.bucket_keys())


def shortest_call_us(lab) -> float:
    """Return how long the server takes for a call whose documents all meet full buckets: the shortest of twenty."""
    rng = np.random.default_rng(4)
    lab.insert(rng.integers(2**62, size=700).tolist(), [7] * 700)

    def used_us() -> int:
        return int(lab.client.info("commandstats")["cmdstat_evalsha"]["usec"])

    taken = []
    for _ in range(20):
        numbers, before = rng.integers(2**62, size=500).tolist(), used_us()
        assert len(lab.insert(numbers, [7] * 500).full) == 500
        taken.append(used_us() - before)
    return min(taken)


def test_a_storm_of_copies_does_not_occupy_the_server(redis_client):
    calls = []
    for layout in ("sets", "packed"):
        redis_client.flushdb()
        calls.append(shortest_call_us(Lab(redis_client, layout, bucket_cap=500)))
    # Twice as long, usually; 15 times as long with a loop over all members for each document.
    assert calls[1] < 6 * calls[0]


class TestGenerations:
    def test_members_are_found_for_one_generation_more(self, packed):
        packed.insert([1, 2], [7, 8])
        packed.shift(-1)
        reader = RedisIndexReader(packed.server, packed.store.options)
        assert reader.look_up([3], rows_of([7])).candidates == [{1: BANDS}]
        assert packed.insert([3], [7]).candidates == [{1: BANDS}]
        assert reader.look_up([4], rows_of([7])).candidates == [{1: BANDS, 3: BANDS}]
        packed.shift(-1)
        assert packed.insert([4, 5], [7, 8]).candidates == [{3: BANDS}, {}]

    @pytest.mark.parametrize("count", [1, 2 * MOST_IN_PAGE])
    def test_a_page_that_begins_with_a_bucket_of_the_generation_before_expires(self, packed, count):
        packed.insert([100], [7])
        packed.shift(-1)
        packed.insert(documents(count), [7] * count)
        assert all(packed.client.pttl(key) > 0 for key in packed.bucket_keys())

    def test_a_document_inserted_again_lives_on_and_is_returned_once(self, packed):
        for _ in range(4):
            packed.insert([1], [7])
            assert packed.insert([2], [7]).candidates == [{1: BANDS}]
            assert packed.members(7) == {1, 2}
            packed.shift(-1)
        assert packed.insert([3], [7]).candidates == [{1: BANDS, 2: BANDS}]

    def test_a_removed_document_leaves_every_generation(self, packed):
        packed.insert(documents(20), [7] * 20)
        packed.shift(-1)
        packed.insert(documents(3), [7] * 3)
        packed.remove([2, 5], [7, 7])
        assert packed.insert([99], [7]).candidates == [dict.fromkeys(set(documents(20)) - {2, 5}, BANDS)]

    def test_members_of_both_generations_count_towards_the_cap(self, redis_client):
        packed = Lab(redis_client, "packed", bucket_cap=4)
        packed.insert([1, 2, 3], [7] * 3)
        packed.shift(-1)
        packed.insert([3, 4], [7] * 2)
        hits = packed.insert([5, 1], [7, 7])
        assert (hits.full, hits.near_capacity) == ({0: BANDS}, {1})
        assert hits.candidates[1] == {2: BANDS, 3: BANDS, 4: BANDS}

    def test_what_was_written_before_the_clock_went_back_is_found(self, packed):
        packed.insert([1], [7])
        packed.shift(1)
        assert packed.insert([2], [7]).candidates == [{1: BANDS}]
        packed.remove([1], [7])
        assert packed.members(7, generation() + 1) == set()

    def test_a_generation_begins_with_the_pages_that_the_one_before_needed(self, packed):
        packed.insert([1], [7])
        packed.client.set(KEYS.buckets_prefix(0) + b"%d" % (generation() - 1), "1024 100000", keepttl=True)
        packed.client.unlink(KEYS.buckets_prefix(0) + b"%d" % generation())
        packed.insert([2], [8])
        assert packed.pages_and_buckets() == (-(-100_000 // FULL), 1)


ACTIONS = st.sampled_from(["insert", "insert", "insert", "remove", "shift"])
STEPS = st.lists(st.tuples(ACTIONS, st.integers(1, 24), st.sampled_from([7, 7, 7, 7 + FEWEST, 8])), max_size=60)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS, st.sampled_from([None, 1, 3, 8, 9, 12]), st.integers(1, 7))
def test_both_layouts_do_as_the_index_in_memory(redis_client, steps, cap, batch):
    labs = []
    for layout in ("sets", "packed"):
        redis_client.flushdb()
        lab = Lab(redis_client, layout, bucket_cap=cap)
        labs.append(run_beside_memory(lab, steps, cap, batch))
    assert labs[0] == labs[1]


def run_beside_memory(lab, steps, cap, batch):
    """Do the same in the index in memory; return what the buckets showed where none was full."""
    memory = MemoryIndex(bucket_cap=cap)
    memory.open(FINGERPRINT)
    fence = memory.fence(PARTITION, 1, 0)
    shown, shifted = [], False
    for low in range(0, len(steps), batch):
        for action, group in itertools.groupby(steps[low : low + batch], key=lambda step: step[0]):
            if action == "shift":
                if lab.layout == "packed" and not shifted:
                    lab.shift(-1)  # members are found for one generation more
                    shifted = True
                continue
            pairs = [(number, key) for _, number, key in group]
            numbers, band_keys = [number for number, _ in pairs], [key for _, key in pairs]
            rows = rows_of(band_keys)
            if action == "remove":
                lab.remove(numbers, band_keys)
                memory.remove_from_buckets(numbers, rows, [fence])
                continue
            ours, theirs = lab.insert(numbers, band_keys), memory.insert_and_look_up(numbers, rows, [fence])
            assert (ours.full, ours.near_capacity) == (theirs.full, theirs.near_capacity)
            for place, (met, expected) in enumerate(zip(ours.candidates, theirs.candidates, strict=True)):
                # Which members of a full bucket are returned is open, but not how many.
                assert sum(met.values()) == sum(expected.values())
                assert place in ours.full or met == expected
            shown.append([met for place, met in enumerate(ours.candidates) if place not in ours.full])
    return shown
