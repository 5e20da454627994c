"""One suite for every ``Index``: what the contract says, shown on each implementation."""

import contextlib
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, ClassVar

import fakeredis
import numpy as np
import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from streamdedup import clock
from streamdedup.errors import BatchRefused, IndexBusy, IndexLost, IndexMismatch, StoreMisconfigured, StoreUnavailable
from streamdedup.index.contract import Index
from streamdedup.index.documents import (
    RETURNING_STATES,
    IndexEntry,
    InsertResult,
    InsertState,
    PendingMatches,
    deletion_marker,
)
from streamdedup.index.memory import MemoryIndex
from streamdedup.index.redis import fenced as fenced_module
from streamdedup.index.redis import pairs
from streamdedup.index.redis import staging as staging_module
from streamdedup.index.redis.connection import connect, connect_cluster
from streamdedup.index.redis.reader import RedisIndexReader
from streamdedup.index.redis.reading import RedisIndexOptions
from streamdedup.index.redis.servers import OneServer, Servers
from streamdedup.index.redis.staging import LEASE_MS, RedisStagingIndex
from streamdedup.index.redis.store import RedisIndex
from streamdedup.index.values import (
    CLUSTER_SIZE_CAP,
    COPIES_CAP,
    PUBLISHED,
    SHOWN_OF_FULL,
    AnnouncedAttempt,
    BrokerState,
    ClusterCounts,
    Fence,
    FoundNearCapacity,
    Opening,
    PartitionState,
)
from streamdedup.position import Partition, Position
from tests import redis_sets
from tests.entries import an_entry, content_of, encode_entry, pending_of
from tests.servers import wait_until
from tests.thoroughness import examples
from tests.versions import CASES

BANDS = 3
PARTITION = Partition("articles", 0)
OTHER_PARTITION = Partition("articles", 1)
START = Position(*PARTITION, 0)
FINGERPRINT = {"version": 1, "bands": BANDS, "unicode": "15.0"}
MakeStore = Callable[..., Index]

_namespaces = itertools.count()


def redis_store(servers: redis.Redis | Servers, **options: Any) -> RedisIndex:
    servers = OneServer(servers) if isinstance(servers, redis.Redis) else servers
    place = RedisIndexOptions(
        **{"namespace": f"contract:{next(_namespaces)}", "bands": BANDS, "lifetime_ms": LONG_MS} | options
    )
    return RedisIndex(servers, place)


def with_lifetime(store: RedisIndex, lifetime_ms: int) -> RedisIndex:
    """Return the same index with another lifetime, as of a daemon with another retention."""
    return RedisIndex(store._servers, replace(store.options, lifetime_ms=lifetime_ms))


#: Where the suite runs: in `make test` the least that reaches each form of each operation.
PLACES = ["memory", "server", "server-packed-sharded", "cluster-sharded"]
MORE_PLACES = ["fakeredis", "cluster", "cluster-packed"]


@pytest.fixture(params=[*PLACES, *(pytest.param(place, marks=pytest.mark.long) for place in MORE_PLACES)])
def make_store(request: pytest.FixtureRequest) -> Iterator[MakeStore]:
    place, *forms = request.param.split("-")
    if place == "memory":
        yield lambda **options: MemoryIndex(**{k: v for k, v in options.items() if k != "shards"})
        return
    if place == "cluster":
        cluster = request.getfixturevalue("cluster_of_redis")
        servers = connect_cluster(cluster.addresses[:1])
    elif place == "fakeredis":
        servers = OneServer(fakeredis.FakeRedis(version=(7, 0)))
    else:
        servers = OneServer(request.getfixturevalue("redis_client"))
    given = {"shards": 4} if "sharded" in forms else {}
    given |= {"bucket_layout": "packed"} if "packed" in forms else {}
    with servers:
        yield lambda **options: redis_store(servers, **given, **options)


@pytest.fixture
def store(make_store: MakeStore) -> Index:
    store = make_store()
    store.open(FINGERPRINT)
    return store


@pytest.fixture
def fence(store: Index) -> Fence:
    return store.fence(PARTITION, 1, 0)


def begin(staging: RedisStagingIndex) -> None:
    """Begin to build an index that is lost."""
    staging.take_lease()
    staging.clear()


def keys(*rows: tuple[int, ...]) -> np.ndarray:
    return np.array(rows, dtype=np.uint32).reshape(len(rows), BANDS)


def fenced(store: Index) -> tuple[Index, Fence]:
    store.open(FINGERPRINT)
    return store, store.fence(PARTITION, 1, 0)


def insert(store: Index, fence: Fence, *records: IndexEntry) -> list[InsertState]:
    return [result.state for result in store.insert_entries(records, [fence])]


class TestOpen:
    def test_the_first_daemon_creates_the_index_and_the_next_finds_it(self, make_store):
        store = make_store()
        assert store.open(FINGERPRINT) == Opening(is_created=True)
        assert store.open(FINGERPRINT) == Opening(is_created=False)

    def test_other_parameters_are_refused_and_named(self, store):
        with pytest.raises(IndexMismatch, match="bands is 3 in the index and 4 in the settings"):
            store.open({**FINGERPRINT, "bands": 4})

    def test_another_unicode_version_is_told_and_not_refused(self, store):
        told = ("unicode is '15.0' in the index and '16.0' in the settings",)
        assert store.open({**FINGERPRINT, "unicode": "16.0"}) == Opening(is_created=False, advisories=told)


class TestFence:
    def test_the_first_fence_of_a_partition_finds_no_high_water_mark(self, store):
        assert store.partition_states([PARTITION]) == {PARTITION: PartitionState(None)}
        assert store.partition_states([]) == {}
        assert store.fence(PARTITION, 3, 40) == Fence(PARTITION, 3, 40)
        assert store.partition_states([PARTITION])[PARTITION].high_water_mark == 40

    def test_the_high_water_mark_is_raised_to_what_is_committed_and_never_lowered(self, store):
        store.fence(PARTITION, 1, 40)
        assert store.fence(PARTITION, 2, 30).high_water_mark == 40
        fence = store.fence(PARTITION, 2, 50)
        assert fence.high_water_mark == 50
        for offset in (60, 55):
            store.finish({PARTITION: offset}, [], [fence])
        assert store.fence(PARTITION, 2, 0).high_water_mark == 60

    def test_a_lower_generation_cannot_take_a_partition_back(self, store):
        store.fence(PARTITION, 5, 0)
        with pytest.raises(BatchRefused, match="generation 5, the batch has 4"):
            store.fence(PARTITION, 4, 0)

    WRITES: ClassVar = {
        "insert": lambda store, fences: store.insert_entries([an_entry()], fences),
        "look up": lambda store, fences: store.insert_and_look_up([7], keys((1, 2, 3)), fences),
        "insert copies": lambda store, fences: store.insert_copies([(1, b"a" * 16)], fences),
        "save": lambda store, fences: store.save_pending_matches([(START, pending_of([b"k" * 16]))], fences),
        "claim": lambda store, fences: store.claim_pairs([(b"k" * 16, START)], fences),
        "cluster": lambda store, fences: store.set_clusters([(7, START, 8)], fences),
        "leave": lambda store, fences: store.leave_clusters([(7, 8)], fences),
        "replace": lambda store, fences: store.replace_entries([an_entry()], fences),
        "remove": lambda store, fences: store.remove_from_buckets([1], keys((1, 2, 3)), fences),
        "remove copies": lambda store, fences: store.remove_copies([(1, b"a" * 16)], fences),
        "announce": lambda store, fences: store.announce(EARLIER, fences, {PARTITION: 0}),
        "finish": lambda store, fences: store.finish({PARTITION: 1}, [], fences),
    }

    @pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
    def test_every_write_below_the_fence_is_refused(self, store, fence, write):
        write(store, [fence])
        newer = store.fence(PARTITION, 2, 0)
        with pytest.raises(BatchRefused):
            write(store, [fence])
        write(store, [newer])

    def test_one_partition_of_another_owner_refuses_the_whole_batch(self, store, fence):
        theirs = store.fence(OTHER_PARTITION, 1, 0)
        store.fence(OTHER_PARTITION, 2, 0)
        with pytest.raises(BatchRefused):
            store.insert_entries([an_entry()], [fence, theirs])
        assert store.get_entries([7]) == {}

    def test_a_partition_that_is_not_fenced_is_refused(self, store):
        with pytest.raises(BatchRefused, match="not fenced"):
            store.insert_entries([an_entry()], [Fence(PARTITION, 1, 0)])

    def test_an_operator_can_clear_the_fence_of_a_deleted_group(self, store):
        store.fence(PARTITION, 50, 0)
        store.unfence(PARTITION)
        assert store.fence(PARTITION, 1, 0).generation == 1


class TestEntries:
    def test_versions_have_the_states_of_the_table_and_replace_each_other_accordingly(self, store, fence):
        found, kept, expected = {}, {}, {}
        for number, (case, (stored, new, state)) in enumerate(CASES.items()):
            old, entry = (
                each and structs.replace(each.entry(), number=number, cluster=number) for each in (stored, new)
            )
            if old is not None:
                store.replace_entries([old], [fence])
            (found[case],) = store.insert_entries([entry], [fence])
            store.replace_entries([entry], [fence])
            kept[case] = store.get_entries([number])[number]
            is_replaced = state in (InsertState.CREATED, InsertState.REPLACED)
            expected[case] = entry if is_replaced else old
            assert found[case] == InsertResult(state, old if state in RETURNING_STATES else None), case
        assert kept == expected
        assert {result.state for result in found.values()} == set(InsertState)

    def test_an_entry_is_returned_as_it_was_inserted(self, store, fence):
        record = an_entry(-(2**63), offset=2**40, time_ms=1_700_000_000_123)
        assert insert(store, fence, record) == [InsertState.CREATED]
        assert store.get_entries([record.number, 99]) == {record.number: record}

    def test_many_records_keep_their_order_and_versions_within_one_call(self, store, fence):
        records = [an_entry(n, offset=n) for n in range(50)] + [an_entry(3, offset=60, content=b"b")]
        results = store.insert_entries(records, [fence])
        assert [r.state for r in results] == [InsertState.CREATED] * 50 + [InsertState.REPLACED]
        assert results[-1].previous == records[3]


class TestReadingEntries:
    @pytest.mark.parametrize("limit_bytes", [1, 100, 10**6])
    def test_read_again_until_all_are_read_the_entries_are_those_that_exist(self, store, fence, limit_bytes):
        records = [an_entry(n, offset=n, content=b"%d" % n) for n in range(40)]
        insert(store, fence, *records)
        pending, read = list(range(-5, 45)), {}
        while pending:
            part = store.read_entries(pending, limit_bytes)
            assert part, "at least one is read"
            assert part.keys() <= set(pending)
            read |= part
            pending = [number for number in pending if number not in part]
        assert read == dict.fromkeys(range(-5, 45)) | {record.number: record for record in records}

    def test_no_more_is_read_than_the_limit_and_one_entry_for_each_part(self, store, fence):
        heavy = [structs.replace(an_entry(n, offset=n), content=content_of(hashes_count=2_500)) for n in range(60)]
        insert(store, fence, *heavy)
        parts = 1 if isinstance(store, MemoryIndex) else 4 * BANDS
        few, most = store.read_entries(range(60), 50_000), store.read_entries(range(60), 10**9)
        assert 0 < len(few) <= 5 + parts
        assert len(most) == 60
        assert store.read_entries([], 1) == {}
        first_bytes = heavy[0].content.size_bytes if parts == 1 else len(encode_entry(heavy[0]))
        one_part = [0, 4 * BANDS, 8 * BANDS]
        assert [len(store.read_entries(one_part, first_bytes + more)) for more in (0, 1)] == [1, 2]

    def test_a_marker_of_a_deletion_is_read_too(self, store, fence):
        marker = deletion_marker(7, Position(*PARTITION, 5), 50)
        store.replace_entries([marker], [fence])
        assert store.read_entries([7], 1) == store.get_entries([7]) == {7: marker}
        assert store.get_entries([7])[7].deleted


class TestBuckets:
    def test_a_later_document_finds_the_earlier_once_for_each_shared_band(self, store, fence):
        store.insert_and_look_up([1], keys((1, 2, 3)), [fence])
        assert store.insert_and_look_up([-5], keys((1, 2, 9)), [fence]).candidates == [{1: 2}]

    def test_documents_of_one_call_find_each_other_in_order(self, store, fence):
        hits = store.insert_and_look_up([1, 2, 3], keys((1, 2, 3), (1, 5, 6), (7, 5, 3)), [fence])
        assert hits.candidates == [{}, {1: 1}, {1: 1, 2: 1}]

    def test_keys_over_the_whole_range_are_distinct(self, store, fence):
        top = 2**32 - 1
        store.insert_and_look_up([1], keys((0, top, 256)), [fence])
        assert store.insert_and_look_up([2], keys((top, 0, 1)), [fence]).candidates == [{}]
        assert store.insert_and_look_up([3], keys((0, top, 256)), [fence]).candidates == [{1: 3}]

    def test_a_full_bucket_takes_no_more_but_shows_its_members(self, make_store):
        store, fence = fenced(make_store(bucket_cap=2))
        hits = store.insert_and_look_up([1, 2, 3], keys((1, 10, 20), (1, 11, 21), (1, 12, 22)), [fence])
        assert hits.full == {2: 1}
        assert store.insert_and_look_up([4], keys((1, 13, 23)), [fence]).candidates == [{1: 1, 2: 1}]
        assert store.insert_and_look_up([2], keys((1, 11, 21)), [fence]).full == {}

    def test_the_full_buckets_of_a_document_are_counted_over_all_bands(self, make_store):
        store, fence = fenced(make_store(bucket_cap=2))
        store.insert_and_look_up([1, 2], keys((1, 2, 3), (1, 2, 3)), [fence])
        for _ in range(2):  # a repeated call finds the same
            hits = store.insert_and_look_up([3, 4, 5, 1], keys((1, 2, 3), (1, 2, 9), (7, 8, 9), (1, 2, 3)), [fence])
            assert hits.full == {0: BANDS, 1: BANDS - 1}

    def test_documents_with_full_and_half_full_buckets_are_named(self, make_store):
        store, fence = fenced(make_store(bucket_cap=4))
        rows = [(1, 10, 20), (1, 11, 21), (1, 12, 22), (1, 13, 23), (1, 14, 24), (1, 10, 25)]
        hits = store.insert_and_look_up([1, 2, 3, 4, 5, 6], keys(*rows), [fence])
        assert (hits.full, hits.near_capacity) == ({4: 1, 5: 1}, {2, 3})
        again = store.insert_and_look_up([1, 9], keys((1, 10, 20), (9, 9, 9)), [fence])
        assert (again.full, again.near_capacity) == ({}, {0})

    def test_a_full_bucket_shows_only_some_of_its_members(self, make_store):
        store, fence = fenced(make_store(bucket_cap=30))
        numbers = list(range(30))
        store.insert_and_look_up(numbers, keys(*[(1, 100 + number, 200 + number) for number in numbers]), [fence])
        (found,) = store.insert_and_look_up([77], keys((1, 1, 1)), [fence]).candidates
        assert len(found) == SHOWN_OF_FULL
        assert found.keys() <= set(numbers)
        (found,) = store.insert_and_look_up([5], keys((1, 105, 205)), [fence]).candidates
        assert found.keys() == set(numbers) - {5}, "a member finds all others, as at its insertion"


class TestLeaving:
    def test_a_removed_document_is_not_found(self, store, fence):
        store.insert_and_look_up([1, 2, 3], keys((1, 2, 3), (1, 2, 9), (8, 2, 3)), [fence])
        store.remove_from_buckets([1, 77], keys((1, 2, 3), (5, 5, 5)), [fence])
        assert store.insert_and_look_up([4], keys((1, 2, 3)), [fence]).candidates == [{2: 2, 3: 2}]

    def test_a_document_removed_from_a_large_bucket_is_not_found_and_can_be_inserted_again(self, store, fence):
        numbers = list(range(1, 31))
        store.insert_and_look_up(numbers, keys(*[(1, 2, 3)] * 30), [fence])
        store.remove_from_buckets(numbers[5:25], keys(*[(1, 2, 3)] * 20), [fence])
        rest = [*numbers[:5], *numbers[25:]]
        assert store.insert_and_look_up([7], keys((1, 2, 3)), [fence]).candidates == [dict.fromkeys(rest, BANDS)]
        store.remove_from_buckets([*rest, 7], keys(*[(1, 2, 3)] * 11), [fence])
        assert store.insert_and_look_up([8, 9], keys(*[(1, 2, 3)] * 2), [fence]).candidates == [{}, {8: BANDS}]

    def test_a_removed_exact_copy_is_not_found(self, store, fence):
        store.insert_copies([(1, b"a" * 16), (2, b"a" * 16)], [fence])
        store.remove_copies([(1, b"a" * 16), (9, b"z" * 16)], [fence])
        assert store.insert_copies([(3, b"a" * 16)], [fence]) == [[2]]


def test_connections_to_a_cluster_are_counted_and_an_error_of_one_master_is_raised(cluster_of_redis):
    with connect_cluster(cluster_of_redis.addresses[:1]) as servers:
        address, *_ = servers.ask_masters("PING")
        assert servers.connections.count > 0
        with pytest.raises(StoreMisconfigured):
            servers.ask_master(address, "NO-SUCH-COMMAND")


def test_the_fields_of_pending_matches_fill_the_calls_that_save_them(cluster_servers, monkeypatch):
    store, fence = fenced(redis_store(cluster_servers))
    calls, run = [], store._run
    monkeypatch.setattr(pairs, "_FULL_CALL", 2)
    monkeypatch.setattr(store, "_run", lambda made: calls.extend(made) or run(made))
    pending = [(Position(*PARTITION, offset), pending_of([b"k" * 16, b"l" * 16])) for offset in range(3)]
    store.save_pending_matches(pending, [fence])
    assert len(calls) == 3


def test_an_entry_is_not_replaced_where_the_removals_before_were_forgotten(cluster_servers, monkeypatch):
    store, fence = fenced(redis_store(cluster_servers))
    run, slot = store._run, 1
    number_key = store._keys.fenced_call_keys(slot, [], store._writer, slot)[-1]

    def run_and_fail_over(calls):
        replies = run(calls)
        cluster_servers.ask(number_key, "UNLINK", number_key)
        return replies

    monkeypatch.setattr(store, "_run", run_and_fail_over)
    with pytest.raises(StoreUnavailable, match="has forgotten a write"):
        store.replace_entries([an_entry(slot)], [fence])


def test_a_write_that_arrives_after_a_later_one_is_refused(redis_client):
    store, fence = fenced(redis_store(redis_client))
    sent: list[list[Any]] = []
    send = store._servers.send_raw
    store._servers.send_raw = lambda commands: (sent.append(list(commands)), send(commands))[1]
    store.insert_and_look_up([1], keys((1, 2, 3)), [fence])
    store.remove_from_buckets([1], keys((1, 2, 3)), [fence])
    (removal,) = sent[1:]
    assert all(not isinstance(reply, Exception) for reply in send(removal)), "repeated at once it does no harm"
    store.insert_and_look_up([1], keys((1, 2, 3)), [fence])
    assert all(str(reply).startswith("LATE") for reply in send(removal))
    assert store.insert_and_look_up([2], keys((1, 2, 3)), [fence]).candidates == [{1: 3}]


class TestCopies:
    def test_each_finds_the_earlier_documents_of_its_content(self, store, fence):
        a, b = b"a" * 16, b"b" * 16
        assert store.insert_copies([(1, a), (2, b), (-3, a)], [fence]) == [[], [], [1]]
        assert store.insert_copies([(4, a)], [fence]) == [[-3, 1]]

    def test_a_repeated_insertion_changes_nothing(self, store, fence):
        assert store.insert_copies([(1, b"a" * 16)] * 3, [fence]) == [[], [], []]

    def test_of_many_copies_the_latest_are_kept_and_come_first(self, store, fence):
        numbers = [37 * at % 101 for at in range(101)]
        for number in numbers:
            (copies,) = store.insert_copies([(number, b"a" * 16)], [fence])
        assert copies == numbers[-2 : -2 - COPIES_CAP : -1]

    def test_a_bucket_of_copies_lives_for_a_lifetime(self, redis_client):
        store, fence = fenced(redis_store(redis_client, lifetime_ms=LONG_MS))
        store.insert_copies([(1, b"a" * 16)], [fence])
        (key,) = redis_client.keys("*}d*")
        assert LONG_MS - 60_000 < redis_client.pttl(key) <= LONG_MS
        redis_client.pexpire(key, LONG_MS // 2)
        store.insert_copies([(2, b"a" * 16)], [fence])
        assert redis_client.pttl(key) > LONG_MS - 60_000

    def test_a_shorter_lifetime_shortens_no_life_of_a_bucket_of_copies(self, redis_client):
        long = redis_store(redis_client, lifetime_ms=LONG_MS)
        for number, index in enumerate([long, with_lifetime(long, 60_000)]):
            store, fence = fenced(index)
            store.insert_copies([(number, b"a" * 16)], [fence])
        (key,) = redis_client.keys("*}d*")
        assert redis_client.pttl(key) > LONG_MS - 60_000

    def test_those_met_in_a_crowd_are_inserted_before_and_only_the_others_are_answered(self, store, fence):
        a, b, c = b"a" * 16, b"b" * 16, b"c" * 16
        found = FoundNearCapacity([(1, a), (2, b), (3, c)], store.copy_removals())
        first, second = store.insert_copies([(4, a), (5, a)], [fence], found)
        assert (first, sorted(second)) == ([1], [1, 4])
        assert store.insert_copies([(6, b), (7, c)], [fence]) == [[2], [3]]

    def test_a_document_removed_since_it_was_found_is_not_inserted(self, store, fence):
        a, b = bytes(range(16)), bytes(range(1, 17))
        found = FoundNearCapacity([(1, a), (2, b)], store.copy_removals())
        store.remove_copies([(1, a)], [fence])
        assert store.insert_copies([(3, a), (4, b)], [fence], found) == [[], [2]]
        assert store.insert_copies([(5, a)], [fence]) == [[3]]

    def test_a_document_found_after_a_removal_is_inserted(self, store, fence):
        a = b"a" * 16
        store.remove_copies([(1, a)], [fence])
        assert store.insert_copies([(3, a)], [fence], FoundNearCapacity([(2, a)], store.copy_removals())) == [[2]]

    def test_removals_of_other_contents_are_counted_and_refuse_no_document(self, store, fence):
        found = FoundNearCapacity([(1, b"a" * 16)], store.copy_removals())
        before = sum(found.removals.values())
        for letter in b"bcdefgh":
            store.remove_copies([(9, bytes([letter]) * 16)], [fence])
        assert sum(store.copy_removals().values()) == before + 7
        assert store.insert_copies([(2, b"a" * 16)], [fence], found) == [[1]]


class TestPairs:
    def test_pending_matches_are_joined_with_those_saved_before(self, store, fence):
        position = Position(*PARTITION, 3)
        first, second = b"1" * 16, b"2" * 16
        one, two = pending_of([first], "x"), pending_of([first, second], "y")
        assert store.save_pending_matches([(position, one)], [fence]) == [one]
        both = PendingMatches({**two.matches, **one.matches})
        assert store.save_pending_matches([(position, two)], [fence]) == [both]
        assert store.save_pending_matches([(position, PendingMatches())], [fence]) == [both]

    def test_digest_and_missing_document_are_saved_along_and_what_was_saved_first_is_kept(self, store, fence):
        first, second = Position(*PARTITION, 3), Position(*PARTITION, 4)
        matches = pending_of([b"1" * 16]).matches
        pending = [(first, PendingMatches(matches, b"d" * 16)), (second, PendingMatches(document_missing=True))]
        saved = [new for _, new in pending]
        assert store.save_pending_matches(pending, [fence]) == saved
        later = [(first, PendingMatches(matches, b"e" * 16)), (second, PendingMatches())]
        assert store.save_pending_matches(later, [fence]) == saved

    def test_pending_matches_left_by_a_daemon_that_died_are_deleted_by_the_next_fence(self, store, fence):
        committed = [Position(*PARTITION, offset) for offset in (0, 3)]
        uncommitted = [Position(*PARTITION, 4), Position(*OTHER_PARTITION, 0)]
        found, nothing = pending_of([b"1" * 16]), PendingMatches()
        fences = [fence, store.fence(OTHER_PARTITION, 1, 0)]
        store.save_pending_matches([(position, found) for position in committed + uncommitted], fences)
        fences[0] = store.fence(PARTITION, 2, 4)
        asked = [(position, nothing) for position in committed + uncommitted]
        assert store.save_pending_matches(asked, fences) == [nothing, nothing, found, found]

    def test_pending_matches_of_a_clearing_that_failed_are_deleted_by_the_next_fence(self, redis_client, monkeypatch):
        store, fence = fenced(redis_store(redis_client))
        store.save_pending_matches([(START, pending_of([b"1" * 16]))], [fence])
        with monkeypatch.context() as patch:
            patch.setattr(store, "_unlink", lambda _: {}["the connection is lost"])
            with pytest.raises(KeyError):
                store.finish({PARTITION: 1}, [START], [fence])
        fence = store.fence(PARTITION, 1, 1)
        assert store.save_pending_matches([(START, PendingMatches())], [fence]) == [PendingMatches()]

    def test_a_fence_far_ahead_deletes_pending_matches_of_the_last_records_only(self, redis_client, monkeypatch):
        monkeypatch.setattr("streamdedup.index.redis.partitions._CLEARED_RECORDS", 2)
        store, fence = fenced(redis_store(redis_client))
        positions = [Position(*PARTITION, offset) for offset in range(4)]
        found, nothing = pending_of([b"1" * 16]), PendingMatches()
        store.save_pending_matches([(position, found) for position in positions], [fence])
        fence = store.fence(PARTITION, 1, 4)
        asked = [(position, nothing) for position in positions]
        assert store.save_pending_matches(asked, [fence]) == [found, found, nothing, nothing]

    def test_a_pair_belongs_to_the_position_that_asked_first(self, store, fence):
        first, second = Position(*PARTITION, 1), Position(*OTHER_PARTITION, 1)
        pair, other = b"p" * 16, b"q" * 16
        assert store.claim_pairs([(pair, first), (pair, second), (other, second)], [fence]) == [True, False, True]
        assert store.claim_pairs([(pair, first), (pair, second)], [fence]) == [True, False]
        asked = [(pair, PUBLISHED), (pair, first), (pair, second), (pair, PUBLISHED)]
        assert store.claim_pairs(asked, [fence]) == [True, False, False, True]

    def test_thousands_of_pairs_of_one_call_are_saved_and_claimed_in_their_order(self, store, fence):
        pairs = [n.to_bytes(16, "little") for n in range(5000)]
        many, few = Position(*PARTITION, 1), Position(*PARTITION, 2)
        saved = store.save_pending_matches([(many, pending_of(pairs)), (few, pending_of(pairs[:1]))], [fence])
        assert [len(found.matches) for found in saved] == [5000, 1]
        claims = [(pair, many) for pair in pairs] + [(pairs[0], few), (pairs[-1], few)]
        assert store.claim_pairs(claims, [fence]) == [True] * 5000 + [False, False]

    def test_a_cluster_is_set_on_the_version_meant_only(self, store, fence):
        recreated = Position(*PARTITION, 1, incarnation=1)
        in_recreated_topic = structs.replace(an_entry(3, offset=1), position=recreated)
        insert(store, fence, an_entry(1, offset=1), an_entry(2, offset=2), in_recreated_topic)
        of_another_partition = Position(*OTHER_PARTITION, 1)
        clusters = [(1, Position(*PARTITION, 1), -9), (2, Position(*PARTITION, 1), -9), (1, of_another_partition, -8)]
        clusters += [(3, recreated, -9), (3, Position(*PARTITION, 1), -8)]
        store.set_clusters(clusters, [fence, store.fence(OTHER_PARTITION, 1, 0)])
        records = store.get_entries([1, 2, 3])
        assert [records[number].cluster for number in (1, 2, 3)] == [-9, 2, -9]

    def test_a_cluster_keeps_the_time_to_live_and_costs_no_second_time_the_memory(self, redis_client):
        store, fence = fenced(redis_store(redis_client, lifetime_ms=LONG_MS))
        insert(store, fence, structs.replace(an_entry(1, offset=1), content=content_of(hashes_count=200)))
        (key,) = redis_client.keys("*}r*")
        redis_client.pexpire(key, 60_000)
        before = redis_client.memory_usage(key)
        for cluster in (-9, 8):
            store.set_clusters([(1, Position(*PARTITION, 1), cluster)], [fence])
            assert store.get_entries([1])[1].cluster == cluster
            assert 0 < redis_client.pttl(key) <= 60_000
            assert redis_client.memory_usage(key) < 1.3 * before


class TestClusterSizes:
    def join(self, store, fence, *numbers, cluster=-9):
        clusters = [(number, Position(*PARTITION, number), cluster) for number in numbers]
        return [counts.size for counts in store.set_clusters(clusters, [fence])]

    def test_another_version_than_the_stored_one_is_not_counted(self, store, fence):
        insert(store, fence, an_entry(1, offset=5), an_entry(2, offset=2))
        assert self.join(store, fence, 1, 2, 3) == [2, 2, 2]

    def test_a_document_that_joins_none_has_the_size_of_its_own_cluster(self, store, fence):
        insert(store, fence, *(an_entry(number, offset=number) for number in (1, 2, 3)))
        assert self.join(store, fence, 1, cluster=1) == [1]
        self.join(store, fence, 2, 3, cluster=1)
        assert self.join(store, fence, 1, cluster=1) == [3]
        assert store.get_entries([1]) == {1: an_entry(1, offset=1)}

    def test_a_set_expires_with_the_entry_of_the_last_document_that_joined(self, make_store):
        store, fence = fenced(make_store(lifetime_ms=2_000))
        insert(store, fence, an_entry(1, offset=1), an_entry(2, offset=2))
        assert self.join(store, fence, 1, 2) == [3, 3]
        store.leave_clusters([(2, -9)], [fence])
        wait_until(lambda: self.join(store, fence, -9, cluster=-9) == [1] and not store.get_entries([1]))

    def test_to_join_again_renews_and_never_shortens_the_time_to_live_of_a_set(self, redis_client):
        store, fence = fenced(redis_store(redis_client, lifetime_ms=LONG_MS))
        insert(store, fence, an_entry(1, offset=1))
        self.join(store, fence, 1)
        (key,) = redis_client.keys("*}g*")
        redis_client.pexpire(key, 60_000)
        self.join(store, fence, 1)
        assert LONG_MS - 60_000 < redis_client.pttl(key) <= LONG_MS
        self.join(*fenced(with_lifetime(store, 60_000)), 1)
        assert redis_client.pttl(key) > LONG_MS - 60_000


class TestClusterSources:
    def insert(self, store, fence, **sources):
        """Insert documents, named by their record times as ``t7``, which are also their offsets and numbers."""
        for name, source in sources.items():
            number = int(name[1:])
            content = structs.replace(content_of(), source=source and source.encode().ljust(8, b"."))
            entry = an_entry(number, offset=number, time_ms=number)
            insert(store, fence, structs.replace(entry, content=content))

    def join(self, store, fence, *numbers, cluster=9):
        clusters = [(number, Position(*PARTITION, number), cluster) for number in numbers]
        return store.set_clusters(clusters, [fence])[-1]

    def test_the_first_document_and_those_that_joined_are_counted_once_by_source(self, store, fence):
        self.insert(store, fence, t9="a", t7="b", t8="a", t5=None, t6="c")
        assert self.join(store, fence, 9) == ClusterCounts(1, 1, 9, 9, 9)
        assert self.join(store, fence, 7) == ClusterCounts(2, 2, 7, 7, 9)
        for _ in range(2):
            assert self.join(store, fence, 8, 5) == ClusterCounts(4, 2, 5, 5, 9)
        assert self.join(store, fence, 6) == ClusterCounts(5, 3, 5, 5, 9)
        assert self.join(store, fence, 9) == ClusterCounts(5, 3, 5, 5, 9)

    def test_a_document_that_leaves_takes_its_source_and_its_time_along(self, store, fence):
        self.insert(store, fence, t9="a", t7="b", t8="b", t10="c", t1="c")
        for _ in range(2):  # a repeated call adds no document twice
            self.join(store, fence, 7, 8, 10)
        store.leave_clusters([(7, 9), (7, 9), (6, 9)], [fence])
        assert self.join(store, fence, 9) == ClusterCounts(3, 3, 8, 8, 10)
        self.join(store, fence, 10, cluster=1)
        assert self.join(store, fence, 9) == ClusterCounts(2, 2, 8, 8, 9)
        assert self.join(store, fence, 1, cluster=1) == ClusterCounts(2, 1, 1, 1, 10)
        store.leave_clusters([(8, 9)], [fence])
        assert self.join(store, fence, 9) == ClusterCounts(1, 1, 9, 9, 9)

    def test_a_document_that_expired_and_comes_again_joins_with_its_new_time_and_source(self, store, fence):
        self.insert(store, fence, t9="a", t7="b", t8="c")
        self.join(store, fence, 7, 8)
        # As after the expiry of the entry: the new one names no cluster, and the set has the earlier version.
        again = an_entry(7, offset=20, content=b"b", time_ms=20)
        content = structs.replace(again.content, source=b"a".ljust(8, b"."))
        store.replace_entries([structs.replace(again, content=content)], [fence])
        for _ in range(2):
            joined = store.set_clusters([(7, Position(*PARTITION, 20), 9)], [fence])
            assert joined == [ClusterCounts(3, 2, 8, 8, 20)]

    def test_a_move_that_failed_halfway_leaves_nothing_in_the_cluster_before(self, redis_client, monkeypatch):
        store, fence = fenced(redis_store(redis_client))
        self.insert(store, fence, t8="a", t9="b", t10="c")
        self.join(store, fence, 10)
        with monkeypatch.context() as patch:
            patch.setattr(store, "_change_cluster_sets", lambda *_: {}["the connection is lost"])
            with pytest.raises(KeyError):
                self.join(store, fence, 10, cluster=8)
        assert self.join(store, fence, 10, cluster=8) == ClusterCounts(2, 2, 8, 8, 10)
        assert store.get_entries([10])[10].cluster == 8
        assert self.join(store, fence, 9) == ClusterCounts(1, 1, 9, 9, 9)

    def test_a_first_document_that_was_replaced_counts_with_its_new_version(self, store, fence):
        self.insert(store, fence, t9="a", t10="b")
        self.join(store, fence, 10)
        store.leave_clusters([(9, 9)], [fence])
        version = an_entry(9, offset=20, content=b"b", time_ms=20)
        sourced = structs.replace(version.content, source=b"b".ljust(8, b"."))
        store.replace_entries([structs.replace(version, content=sourced)], [fence])
        assert store.set_clusters([(9, Position(*PARTITION, 20), 9)], [fence]) == [ClusterCounts(2, 1, 10, 10, 20)]
        store.replace_entries([deletion_marker(9, Position(*PARTITION, 30), 30)], [fence])
        assert self.join(store, fence, 10) == ClusterCounts(2, 1, 10, 10, 10)

    def test_a_first_document_that_was_continued_and_joins_another_cluster_keeps_its_record(self, store, fence):
        self.insert(store, fence, t9="a", t10="b")
        self.join(store, fence, 10)
        version = an_entry(9, offset=20, content=b"b", time_ms=20)
        store.replace_entries([structs.replace(version, content=content_of())], [fence])
        assert store.set_clusters([(9, Position(*PARTITION, 20), 8)], [fence]) == [ClusterCounts(2, 0, 9, 20, 20)]
        assert self.join(store, fence, 10) == ClusterCounts(2, 2, 9, 9, 10)

    def test_a_time_that_needs_more_than_six_bytes_is_the_nearest_that_does_not(self, store, fence):
        times = {1: 0, 2: 2**48, 3: 2**47, 4: 2**47 - 1, 5: -(2**47), 6: -(2**47) - 1, 7: -(2**63)}
        insert(store, fence, *(an_entry(number, offset=number, time_ms=time_ms) for number, time_ms in times.items()))
        earliest_and_latest = [self.join(store, fence, number, cluster=8)[2:] for number in times]
        late, early = 2**47 - 1, -(2**47)
        assert earliest_and_latest == [(1, 0, 0), *[(1, 0, late)] * 3, *[(5, early, late)] * 3]

    def test_of_equal_times_the_smallest_partition_and_then_the_smallest_offset_is_first(self, store, fence):
        other = store.fence(OTHER_PARTITION, 1, 0)
        places = {
            5: (PARTITION, 0),
            1: (OTHER_PARTITION, 3),
            2: (PARTITION, 301),
            3: (PARTITION, 300),
            4: (OTHER_PARTITION, 2),
        }
        for number, (partition, offset) in places.items():
            time_ms = 1 if number == 5 else -5
            insert(store, fence, an_entry(number, offset=offset, partition=partition, time_ms=time_ms))
        clusters = [(number, Position(*partition, offset), 8) for number, (partition, offset) in places.items()]
        counts = [store.set_clusters([each], [fence, other])[0] for each in clusters]
        assert [each.earliest for each in counts] == [5, 1, 2, 3, 3]
        store.leave_clusters([(3, 8), (2, 8)], [fence])
        assert store.set_clusters(clusters[4:], [fence, other]) == [ClusterCounts(4, 0, 4, -5, 1)]

    def test_of_equal_places_in_two_topics_the_document_that_joined_first_is_first(self, store, fence):
        reviews = Partition("reviews", 0)
        fences = [fence, store.fence(reviews, 1, 0)]
        for number, partition in ((1, reviews), (2, PARTITION)):
            insert(store, fence, an_entry(number, offset=3, partition=partition))
            (counts,) = store.set_clusters([(number, Position(*partition, 3), 8)], fences)
            assert counts.earliest == 1

    def test_a_full_cluster_keeps_its_documents_and_forgets_the_source_of_one_that_leaves(self, store, fence):
        numbers = range(1, CLUSTER_SIZE_CAP + 2)
        contents = [structs.replace(content_of(), source=b"%05dxyz" % min(number, 900)) for number in numbers]
        insert(
            store,
            fence,
            *(
                structs.replace(an_entry(number, offset=number, time_ms=number), content=content)
                for number, content in zip(numbers, contents, strict=True)
            ),
        )
        for joining in (numbers[1:], (5,)):  # a repeated call takes nothing away
            assert self.join(store, fence, *joining, cluster=1) == ClusterCounts(1000, 900, 1, 1, 1000)
        # Also a repeated removal: 101 documents have the source of 950.
        store.leave_clusters([(2, 1), *[(950, 1)] * 101, (3, 1), (3, 1)], [fence])
        assert self.join(store, fence, 1, cluster=1) == ClusterCounts(1000, 898, 1, 1, 1000)

    def test_a_clustered_document_needs_at_most_thirty_two_bytes_more_and_another_eight(self, redis_client):
        store, fence = fenced(redis_store(redis_client, lifetime_ms=LONG_MS))
        for clusters, size in ((100, 2), (100, 3), (20, 10), (1, 600)):
            for cluster in range(clusters):
                first = 10_000 * size + 1_000 * cluster
                members = range(first, first + size)
                insert(store, fence, *(an_entry(number, offset=number) for number in members))
                self.join(store, fence, *members[1:], cluster=first)
            more_bytes = 0
            for key in redis_client.keys("*}g*"):
                more_bytes += redis_client.memory_usage(key)
                redis_client.delete(key)
                redis_client.sadd(key, *range(2**62, 2**62 + size - 1))  # the least that counts documents once
                more_bytes -= redis_client.memory_usage(key)
                redis_client.delete(key)
            assert more_bytes / (clusters * size) <= 32 - 8  # reached by clusters of two, with jemalloc


class TestCount:
    def test_documents_are_counted_once_each_within_two_percent(self, store, fence):
        assert store.count_documents() == 0
        draw = np.random.default_rng(5)
        numbers = draw.integers(-(2**63), 2**63, 3000).tolist()
        for at in (*range(0, 3000, 500), 0):
            batch = numbers[at : at + 500]
            insert(store, fence, *(an_entry(number, offset=offset) for offset, number in enumerate(batch, start=at)))
            store.insert_and_look_up(batch, draw.integers(0, 2**32, (500, BANDS), dtype=np.uint32), [fence])
        assert abs(store.count_documents() - 3000) <= 60

    @pytest.mark.parametrize("seconds", [0, 1, 39, 40, 100])
    def test_a_document_counts_from_its_entry_to_its_end_and_an_eighth_longer_at_most(
        self, redis_client, seconds, monkeypatch
    ):
        now = [1_700_000_003_000.0]
        monkeypatch.setattr(clock, "now_ms", lambda: now[0])
        store, fence = fenced(redis_store(redis_client, lifetime_ms=40_000))
        store.insert_and_look_up([1, 2], keys((1, 2, 3), (4, 5, 6)), [fence])
        now[0] += seconds * 1000
        store.insert_and_look_up([2, 3], keys((4, 5, 6), (7, 8, 9)), [fence])
        assert store.count_documents() == (3 if seconds <= 40 else 2)

    def test_what_counts_documents_expires_with_them(self, redis_client):
        store, fence = fenced(redis_store(redis_client, lifetime_ms=40_000))
        store.insert_and_look_up([1], keys((1, 2, 3)), [fence])
        (key,) = redis_client.keys("*}h*")
        assert 40_000 < redis_client.pttl(key) <= 45_000


class TestDropping:
    def test_a_rebuild_that_ends_between_two_reads_is_no_interrupted_deletion(self, redis_client):
        store = redis_store(redis_client)
        store.open(FINGERPRINT)
        lease, mark = store._keys.staging, store._keys.dropping
        redis_client.mset({lease: b"a process", mark: b"1"})
        send = store._servers.send_raw

        def send_and_end_the_rebuild(commands):
            replies = send(commands)
            redis_client.delete(lease, mark)
            return replies

        store._servers.send_raw = send_and_end_the_rebuild
        with pytest.raises(IndexBusy, match="being rebuilt"):
            store.open(FINGERPRINT)
        assert not store.open(FINGERPRINT).is_created


class TestExpiry:
    def test_a_replaced_entry_lives_for_a_lifetime_and_a_marker_for_four(self, redis_client):
        store, fence = fenced(redis_store(redis_client, lifetime_ms=40_000))
        store.replace_entries([an_entry(8), deletion_marker(7, Position(*PARTITION, 5), 50)], [fence])
        for number, lifetimes in ((8, 1), (7, 4)):
            expected_ms = lifetimes * 40_000
            assert expected_ms - 10_000 < redis_client.pttl(store._keys.entry(number)) <= expected_ms

    def test_a_fence_lives_for_seven_days(self, redis_client):
        fenced(redis_store(redis_client))
        assert {round(redis_client.pttl(key) / 86_400_000, 1) for key in redis_client.keys("*}farticles*")} == {7}

    def test_all_keys_of_a_document_expire_after_its_lifetime(self, redis_client):
        store, fence = fenced(redis_store(redis_client, lifetime_ms=60))
        insert(store, fence, an_entry())
        store.insert_and_look_up([7], keys((1, 2, 3)), [fence])
        store.save_pending_matches([(START, pending_of([b"k" * 16]))], [fence])
        store.claim_pairs([(b"k" * 16, START)], [fence])
        assert redis_client.dbsize() > BANDS + 3
        # Not expired: the fingerprint, the high-water mark, a fence and the number of the last call in each slot.
        wait_until(lambda: redis_client.dbsize() == 2 * BANDS + 2, what="keys to expire")
        assert store.get_entries([7]) == {}

    def test_a_cluster_prolongs_no_entry_in_memory(self):
        now = [0.0]
        store, fence = fenced(MemoryIndex(lifetime_ms=60, now_ms=lambda: now[0]))
        insert(store, fence, an_entry())
        now[0] = 59
        store.set_clusters([(7, START, 8)], [fence])
        assert store.get_entries([7])[7].cluster == 8
        now[0] = 61
        assert store.get_entries([7]) == {}


#: A lifetime after which nothing expires in a test.
LONG_MS = 10**9
PAIRS = (b"p" * 16, b"q" * 16)

_NUMBERS = st.integers(1, 6)
_OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), _NUMBERS, st.integers(0, 9), st.sampled_from([b"a", b"b"]), st.booleans()),
        st.tuples(st.just("look up"), _NUMBERS, st.tuples(*[st.integers(0, 2)] * BANDS)),
        st.tuples(st.just("save"), st.integers(0, 3), st.sets(st.sampled_from(PAIRS))),
        st.tuples(st.just("claim"), st.sampled_from(PAIRS), st.integers(0, 3)),
        st.tuples(st.just("cluster"), _NUMBERS, st.integers(0, 9), _NUMBERS),
        st.tuples(st.just("leave"), _NUMBERS, _NUMBERS),
        st.tuples(st.just("replace"), _NUMBERS, st.integers(0, 9), st.sampled_from([b"a", b"b"])),
        st.tuples(st.just("delete"), _NUMBERS, st.integers(0, 9)),
        st.tuples(st.just("remove"), _NUMBERS, st.tuples(*[st.integers(0, 2)] * BANDS)),
    ),
    max_size=30,
)


def _apply(store: Index, fence: Fence, operation: tuple) -> object:
    match operation:
        case ("insert", number, offset, content, other):
            partition = OTHER_PARTITION if other else PARTITION
            record = an_entry(number, offset=offset, content=content, partition=partition, time_ms=offset * 10)
            source = (None, b"a" * 8, b"b" * 8)[(number + offset) % 3]
            record = structs.replace(record, content=structs.replace(record.content, source=source))
            return store.insert_entries([record], [fence])
        case ("look up", number, row):
            return store.insert_and_look_up([number], keys(row), [fence])
        case ("save", offset, pairs):
            return store.save_pending_matches([(Position(*PARTITION, offset), pending_of(pairs, str(offset)))], [fence])
        case ("claim", pair, offset):
            return store.claim_pairs([(pair, Position(*PARTITION, offset))], [fence])
        case ("cluster", number, offset, cluster):
            return store.set_clusters([(number, Position(*PARTITION, offset), cluster)], [fence])
        case ("leave", number, cluster):
            return store.leave_clusters([(number, cluster)], [fence])
        case ("replace", number, offset, content):
            return store.replace_entries([an_entry(number, offset=offset, content=content)], [fence])
        case ("delete", number, offset):
            marker = deletion_marker(number, Position(*PARTITION, offset), offset * 10)
            return store.replace_entries([marker], [fence])
        case ("remove", number, row):
            return store.remove_from_buckets([number], keys(row), [fence])
    raise AssertionError(operation)


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(operations=_OPERATIONS, cap=st.sampled_from([None, 2]))
def test_redis_does_what_memory_does_on_any_sequence(redis_client, cluster_servers, operations, cap):
    stores: list[Index] = [
        MemoryIndex(bucket_cap=cap, lifetime_ms=LONG_MS),
        redis_store(redis_client, bucket_cap=cap, lifetime_ms=LONG_MS),
        redis_store(cluster_servers, bucket_cap=cap, lifetime_ms=LONG_MS),
    ]
    outcomes = []
    readers = [
        stores[0],
        RedisIndexReader(OneServer(redis_client), stores[1].options),
        RedisIndexReader(cluster_servers, stores[2].options),
    ]
    for store, reader in zip(stores, readers, strict=True):
        store.open(FINGERPRINT)
        fence = store.fence(PARTITION, 1, 0)
        outcomes.append([_apply(store, fence, operation) for operation in operations])
        outcomes[-1].append(store.get_entries(range(10)))
        clusters = [reader.read_cluster(number) for number in range(10)]
        outcomes[-1].append([(counts, sorted(numbers)) for counts, numbers in clusters])
        outcomes[-1].append(store.claim_pairs([(pair, Position(*PARTITION, 99)) for pair in PAIRS], [fence]))
    assert outcomes[0] == outcomes[1] == outcomes[2]


TOPIC_ID, NEXT_TOPIC_ID = "5f2d", "9c41"


class TestIncarnations:
    def test_a_topic_of_another_id_is_the_next_incarnation_and_its_mark_begins_anew(self, store):
        store.fence(PARTITION, 1, 100, state=BrokerState(TOPIC_ID, 100))
        fence = Fence(PARTITION, 2, 0, incarnation=1, is_recreated=True)
        assert store.fence(PARTITION, 2, 0, state=BrokerState(NEXT_TOPIC_ID, 500)) == fence
        assert store.partition_states([PARTITION]) == {PARTITION: PartitionState(0, 1, NEXT_TOPIC_ID)}

    def test_a_partition_that_was_never_seen_counts_on_from_the_committed_incarnation(self, store):
        state = BrokerState(TOPIC_ID, incarnation=3)
        assert store.fence(PARTITION, 1, 5, state=state).incarnation == 3
        assert store.fence(PARTITION, 1, 5, state=BrokerState(TOPIC_ID, incarnation=7)).incarnation == 3
        assert store.fence(PARTITION, 1, 0, state=BrokerState(NEXT_TOPIC_ID)).incarnation == 4

    def test_a_caller_that_has_lost_the_partition_before_its_fence_changes_no_mark(self, store):
        store.fence(PARTITION, 1, 100, state=BrokerState(TOPIC_ID, 100))
        before = store.partition_states([PARTITION])

        def replaced():
            with pytest.raises(BatchRefused):  # the fence is set
                store.fence(PARTITION, 1, 0)
            raise BatchRefused("another process has the membership")

        for state in (BrokerState(TOPIC_ID, 30), BrokerState(NEXT_TOPIC_ID, 500), BrokerState(TOPIC_ID, 200)):
            with pytest.raises(BatchRefused, match="another process has the membership"):
                store.fence(PARTITION, 2, 150, state=state, confirm=replaced)
            assert store.partition_states([PARTITION]) == before

    def test_who_polled_before_the_topic_was_deleted_is_refused(self, store):
        for topic_id in (TOPIC_ID, NEXT_TOPIC_ID, "77aa"):
            current = store.fence(PARTITION, 1, 0, state=BrokerState(topic_id))
        for topic_id in (TOPIC_ID, NEXT_TOPIC_ID):
            with pytest.raises(BatchRefused):
                store.fence(PARTITION, 1, 0, state=BrokerState(topic_id))
        again = store.fence(PARTITION, 2, 0, state=BrokerState("77aa"))
        assert (again.incarnation, again.is_recreated) == (current.incarnation, False) == (2, False)

    def test_a_refused_incarnation_fences_earlier_generations_all_the_same(self, store):
        store.fence(PARTITION, 1, 0, state=BrokerState(TOPIC_ID))
        earlier = store.fence(PARTITION, 1, 0, state=BrokerState(NEXT_TOPIC_ID))
        with pytest.raises(BatchRefused):
            store.fence(PARTITION, 2, 0, state=BrokerState(TOPIC_ID))
        with pytest.raises(BatchRefused):
            store.announce(EARLIER, [earlier], {PARTITION: 0})

    def test_a_mark_is_raised_within_its_incarnation(self, store):
        store.fence(PARTITION, 1, 100, state=BrokerState(TOPIC_ID))
        fence = store.fence(PARTITION, 2, 0, state=BrokerState(NEXT_TOPIC_ID))
        store.finish({PARTITION: 7}, [], [fence])
        fence = store.fence(PARTITION, 3, 2, state=BrokerState(NEXT_TOPIC_ID))
        assert (fence.high_water_mark, fence.incarnation, fence.is_recreated) == (7, 1, False)

    def test_an_id_that_was_not_known_is_taken_up(self, store):
        store.fence(PARTITION, 1, 100)
        assert store.fence(PARTITION, 1, 0, state=BrokerState(TOPIC_ID)).high_water_mark == 100
        assert store.fence(PARTITION, 1, 0).high_water_mark == 100
        assert store.fence(PARTITION, 1, 0, state=BrokerState(NEXT_TOPIC_ID)).high_water_mark == 0

    @pytest.mark.parametrize(("topic_id", "next_id"), [("", ""), (TOPIC_ID, TOPIC_ID), ("", TOPIC_ID)])
    def test_a_partition_that_ends_below_its_mark_is_the_next_incarnation(self, store, topic_id, next_id):
        store.fence(PARTITION, 1, 100, state=BrokerState(topic_id, 100))
        states = [BrokerState(topic_id, 100), BrokerState(next_id, 99), BrokerState(topic_id, 30)]
        fences = [store.fence(PARTITION, 1, 10, state=state) for state in states]
        assert [(fence.high_water_mark, fence.incarnation) for fence in fences] == [(100, 0), (10, 1), (10, 1)]

    def test_an_empty_partition_ends_below_its_mark(self, store):
        store.fence(PARTITION, 1, 100, state=BrokerState("", 100))
        fence = store.fence(PARTITION, 1, 0, state=BrokerState("", 0))
        assert (fence.high_water_mark, fence.incarnation) == (0, 1)

    def test_each_partition_has_incarnations_of_its_own(self, store):
        for partition in (PARTITION, OTHER_PARTITION):
            store.fence(partition, 1, 100, state=BrokerState(TOPIC_ID))
        # Created again with one partition; the other is added later.
        assert store.fence(PARTITION, 2, 0, state=BrokerState(NEXT_TOPIC_ID)).high_water_mark == 0
        assert store.partition_states([OTHER_PARTITION])[OTHER_PARTITION].high_water_mark == 100
        assert store.fence(OTHER_PARTITION, 3, 0, state=BrokerState(NEXT_TOPIC_ID)).high_water_mark == 0

    def test_its_records_follow_the_order_of_another_partition(self, store):
        fence = store.fence(PARTITION, 1, 100, state=BrokerState(TOPIC_ID))
        insert(store, fence, an_entry(offset=90, content=b"a", time_ms=10))
        fence = store.fence(PARTITION, 1, 0, state=BrokerState(NEXT_TOPIC_ID))
        again, earlier, later = (
            structs.replace(an_entry(offset=90, content=content, time_ms=time_ms), position=fence.position_at(offset))
            for offset, content, time_ms in ((90, b"a", 10), (3, b"b", 9), (4, b"b", 11))
        )
        states = [InsertState.REDELIVERED, InsertState.SUPERSEDED, InsertState.REPLACED]
        assert insert(store, fence, again, earlier, later) == states
        store.replace_entries([later], [fence])
        assert store.get_entries([7]) == {7: later}

    def test_a_claim_does_not_belong_to_the_same_offset_of_the_next_incarnation(self, store):
        old = store.fence(PARTITION, 1, 0, state=BrokerState(TOPIC_ID))
        assert store.claim_pairs([(PAIRS[0], old.position_at(5))], [old]) == [True]
        new = store.fence(PARTITION, 1, 0, state=BrokerState(NEXT_TOPIC_ID))
        assert store.claim_pairs([(pair, new.position_at(5)) for pair in PAIRS], [new]) == [False, True]

    def test_pending_matches_of_the_incarnation_before_are_deleted_and_its_own_after_the_commit(self, store):
        old = store.fence(PARTITION, 1, 0, state=BrokerState(TOPIC_ID))
        store.save_pending_matches([(old.position_at(5), pending_of([PAIRS[0]], "old"))], [old])
        new = store.fence(PARTITION, 1, 0, state=BrokerState(NEXT_TOPIC_ID))
        found = pending_of([PAIRS[1]], "new")
        assert store.save_pending_matches([(new.position_at(5), found)], [new]) == [found]
        assert store.save_pending_matches([(old.position_at(5), PendingMatches())], [new]) == [PendingMatches()]
        store.finish({PARTITION: 6}, [new.position_at(5)], [new])
        assert store.save_pending_matches([(new.position_at(5), PendingMatches())], [new]) == [PendingMatches()]


EARLIER, LATER = (f"{0:013d}.{sequence:010d}.{sequence:017d}" for sequence in (1, 2))


class TestAnnouncements:
    def test_what_is_announced_is_known_of_its_partitions_only(self, store):
        store.announce(EARLIER, [store.fence(PARTITION, 1, 7)], {PARTITION: 0})
        assert store.partition_states([PARTITION, OTHER_PARTITION]) == {
            PARTITION: PartitionState(7, attempts=(AnnouncedAttempt(EARLIER, 0),)),
            OTHER_PARTITION: PartitionState(None),
        }

    def test_a_rebuild_announces_an_attempt_of_its_own_beside_the_committed_one(self, store):
        store.announce(LATER, [store.fence(PARTITION, 1, 0)], {PARTITION: 0}, committed_id=EARLIER)
        state = store.partition_states([PARTITION])[PARTITION]
        assert (state.least_announced, state.committed_id) == (LATER, EARLIER)

    @pytest.mark.parametrize("ids", [[(3, 1), (2, 1), (4, 1)], [(1, 3), (1, 2), (1, 4)]])
    def test_a_later_attempt_hides_no_commit_that_the_index_lacks(self, store, ids):
        """As where an index is left for another one before the commit, or has gone back with its fences."""
        attempt, lacking, following = (f"{lineage:013d}.{sequence:010d}{EARLIER[24:]}" for lineage, sequence in ids)
        store.announce(attempt, [store.fence(PARTITION, 1, 0)], {PARTITION: 0}, committed_id=EARLIER)
        for known in ("", EARLIER, attempt):
            assert store.fence(PARTITION, 1, 0, known).committed_id == known
        fence = store.fence(PARTITION, 1, 0)
        with pytest.raises(IndexLost, match="gone back"):
            store.fence(PARTITION, 1, 0, lacking)
        with pytest.raises(IndexLost, match="gone back"):
            store.announce(following, [replace(fence, committed_id=lacking)], {PARTITION: 0})
        store.announce(following, [replace(fence, committed_id=EARLIER)], {PARTITION: 0})

    def test_an_earlier_attempt_is_not_announced_after_a_later_one(self, store):
        fence = store.fence(PARTITION, 1, 0)
        store.announce(LATER, [fence], {PARTITION: 0})
        assert store.partition_states([PARTITION])[PARTITION].committed_id == fence.committed_id
        with pytest.raises(BatchRefused, match="a later attempt at a batch"):
            store.announce(EARLIER, [fence], {PARTITION: 0})
        assert store.partition_states([PARTITION])[PARTITION].least_announced == LATER

    def test_an_announcement_beside_another_commit_may_be_repeated(self, store):
        store.announce(EARLIER, [store.fence(PARTITION, 1, 0)], {PARTITION: 0})
        fence = store.fence(PARTITION, 1, 0, EARLIER)
        for _ in range(2):
            store.announce(LATER, [fence], {PARTITION: 9}, committed_id="")
        assert store.partition_states([PARTITION])[PARTITION].attempts == (AnnouncedAttempt(LATER, 9),)

    def test_a_partition_is_taken_over_if_what_is_committed_was_announced(self, store):
        store.announce(EARLIER, [store.fence(PARTITION, 1, 0)], {PARTITION: 0})
        assert store.fence(PARTITION, 2, 5, EARLIER) == Fence(PARTITION, 2, 5, EARLIER)
        with pytest.raises(IndexLost, match="gone back"):
            store.fence(PARTITION, 3, 5, LATER)
        with pytest.raises(BatchRefused):  # the fence is set
            store.fence(PARTITION, 2, 5, EARLIER)

    @pytest.mark.parametrize("lacking", [0, 1])
    def test_nothing_is_announced_where_what_is_committed_is_not_known(self, store, lacking):
        fences = [store.fence(partition, 1, 0) for partition in (PARTITION, OTHER_PARTITION)]
        fences[lacking] = replace(fences[lacking], committed_id=EARLIER)
        with pytest.raises(IndexLost, match="gone back"):
            store.announce(LATER, fences, {PARTITION: 0, OTHER_PARTITION: 0})
        partition = fences[lacking].partition
        assert store.partition_states([partition])[partition].least_announced == ""

    def test_unfencing_keeps_the_announced_attempt(self, store):
        store.announce(LATER, [store.fence(PARTITION, 9, 0)], {PARTITION: 0})
        store.unfence(PARTITION)
        assert store.fence(PARTITION, 1, 0, LATER).committed_id == LATER


@contextlib.contextmanager
def forgotten_by(client: redis.Redis) -> Iterator[None]:
    """Let the server forget what is written in the context."""
    before = {key: client.dump(key) for key in client.scan_iter()}
    yield
    client.flushdb()
    for key, value in before.items():
        client.restore(key, 0, value)


class TestStaging:
    PLACE = RedisIndexOptions(namespace="sd:articles", bands=BANDS, lifetime_ms=LONG_MS)

    @pytest.fixture
    def store(self, redis_url, redis_client):
        with connect(redis_url) as servers:
            store = RedisIndex(servers, self.PLACE)
            store.open(FINGERPRINT)
            yield store

    @pytest.fixture
    def staging_indexes(self, redis_url, store):
        with connect(redis_url) as first, connect(redis_url) as second:
            stores = [RedisIndex(servers, self.PLACE, in_staging=True) for servers in (first, second)]
            yield [RedisStagingIndex(store._servers, store) for store in stores]

    @pytest.fixture
    def staging(self, staging_indexes):
        return staging_indexes[0]

    def test_there_is_no_index_until_the_staging_index_is_complete(self, store, staging):
        old = store.fence(PARTITION, 1, 3)
        begin(staging)
        assert store.partition_states([PARTITION]) == {PARTITION: PartitionState(None)}
        for refused in (lambda: store.fence(PARTITION, 2, 3), lambda: store.insert_entries([an_entry()], [old])):
            with pytest.raises(IndexLost):
                refused()
        with pytest.raises(IndexBusy, match="is being rebuilt"):
            store.open(FINGERPRINT)
        fence = staging.store.fence(PARTITION, 2, 3)
        staging.store.insert_entries([an_entry()], [fence])
        staging.store.announce(LATER, [fence], {PARTITION: 3})
        staging.complete(FINGERPRINT)
        assert store.open(FINGERPRINT) == Opening(is_created=False)
        assert store.fence(PARTITION, 3, 3, LATER) == Fence(PARTITION, 3, 3, LATER)
        assert list(store.get_entries([an_entry().number])) == [an_entry().number]

    def test_a_fence_that_was_set_while_the_index_went_is_refused(self, store, staging, monkeypatch):
        set_fences = store._set_fences
        monkeypatch.setattr(store, "_set_fences", lambda *fence: (begin(staging), set_fences(*fence))[1])
        with pytest.raises(IndexLost):
            store.fence(PARTITION, 1, 7)
        assert staging.store.partition_states([PARTITION])[PARTITION].high_water_mark is None

    def test_only_one_is_built_at_a_time_and_a_complete_index_stays(self, store, staging_indexes):
        staging, other = staging_indexes
        store.insert_entries([an_entry()], [store.fence(PARTITION, 1, 0)])
        staging.take_lease()
        staging.take_lease()
        with pytest.raises(IndexBusy, match="by another process"):
            other.take_lease()
        staging.abandon()
        assert list(store.get_entries([an_entry().number])) == [an_entry().number]
        begin(other)
        other.store.insert_entries([an_entry(8)], [other.store.fence(PARTITION, 2, 0)])
        staging.abandon()
        for late in (staging.extend_lease, staging.clear, lambda: staging.complete(FINGERPRINT)):
            with pytest.raises(BatchRefused):
                late()
        other.complete(FINGERPRINT)
        assert list(store.get_entries([an_entry().number, 8])) == [8]

    def test_while_the_old_index_is_deleted_it_is_being_rebuilt(self, store, staging, redis_client):
        store.insert_entries([an_entry()], [store.fence(PARTITION, 1, 0)])
        refusals = []

        def look():
            for create in (False, True):
                with pytest.raises(IndexBusy, match="is being rebuilt"):
                    store.open(FINGERPRINT, create=create)
                refusals.append(create)
            assert redis_client.pttl(lease) > LEASE_MS // 2

        lease = staging._keys.staging
        for extend in (staging.take_lease, staging.extend_lease):
            extend()
            assert LEASE_MS // 2 < redis_client.pttl(lease) <= LEASE_MS
        redis_client.pexpire(lease, LEASE_MS // 2)
        keys_count = redis_client.dbsize() - 1  # without the lease
        assert staging.clear(look) == keys_count
        assert refusals

    def test_each_scan_of_a_deletion_is_a_step_also_where_it_finds_no_key(self, staging, redis_client):
        redis_client.mset({f"foreign{number}": 1 for number in range(5_000)})
        steps = []
        staging.take_lease()
        staging.clear(lambda: steps.append(1))
        assert len(steps) >= 10

    def test_one_that_was_interrupted_while_the_old_index_was_deleted_can_be_begun_again_at_once(
        self, store, staging_indexes
    ):
        staging, other = staging_indexes
        store.insert_entries([an_entry()], [store.fence(PARTITION, 1, 0)])

        def interrupt():
            raise StoreUnavailable("interrupted")

        staging.take_lease()
        with pytest.raises(StoreUnavailable, match="interrupted"):
            staging.clear(interrupt)
        staging.abandon()
        assert store.open(FINGERPRINT, create=False) is None
        with pytest.raises(IndexMismatch, match="did not end"):
            store.open(FINGERPRINT)
        begin(other)
        other.complete(FINGERPRINT)
        assert store.open(FINGERPRINT, create=False) == Opening(is_created=False)

    @pytest.mark.parametrize("moment", ["before the first key", "between two keys", "before the end"])
    def test_a_process_that_has_lost_its_lease_deletes_nothing_of_the_next_index(
        self, store, staging_indexes, redis_client, monkeypatch, moment
    ):
        staging, other = staging_indexes
        store.insert_entries([an_entry()], [store.fence(PARTITION, 1, 0)])

        def take_over():
            redis_client.delete(staging._keys.staging)  # the lease has expired
            begin(other)
            other.store.insert_entries([an_entry(8)], [other.store.fence(PARTITION, 2, 0)])
            other.complete(FINGERPRINT)

        def scanned_then_frozen(*place, scan=staging_module.scan_keys):
            monkeypatch.undo()
            keys = list(scan(*place))
            if moment == "between two keys":
                take_over()
            yield from keys
            if moment == "before the end":
                take_over()

        monkeypatch.setattr(staging_module, "scan_keys", scanned_then_frozen)
        staging.take_lease()
        if moment == "before the first key":
            take_over()
        with pytest.raises(BatchRefused, match="taken over"):
            staging.clear()
        assert store.open(FINGERPRINT) == Opening(is_created=False)
        assert list(store.get_entries([an_entry(8).number])) == [an_entry(8).number]

    def test_on_a_cluster_a_process_that_loses_its_lease_in_a_scan_deletes_nothing(
        self, cluster_servers, cluster_of_redis, monkeypatch
    ):
        keys_of_the_next = set()
        staging, other = (
            RedisStagingIndex(cluster_servers, RedisIndex(cluster_servers, self.PLACE, in_staging=True))
            for _ in range(2)
        )
        store, fence = fenced(RedisIndex(cluster_servers, self.PLACE))
        store.insert_entries([an_entry()], [fence])

        def scanned_then_frozen(*place, scan=staging_module.scan_keys):
            monkeypatch.undo()
            keys = [page for page in scan(*place) if page]
            cluster_servers.ask(staging._keys.staging, "UNLINK", staging._keys.staging)  # the lease has expired
            begin(other)
            other.store.insert_entries([an_entry()], [other.store.fence(PARTITION, 2, 0)])
            other.complete(FINGERPRINT)
            keys_of_the_next.update(cluster_of_redis.all_keys())
            yield from keys

        monkeypatch.setattr(staging_module, "scan_keys", scanned_then_frozen)
        staging.take_lease()
        with pytest.raises(BatchRefused, match="taken over"):
            staging.clear()
        assert set(cluster_of_redis.all_keys()) == keys_of_the_next > set()

    def test_on_a_cluster_a_process_that_has_lost_its_lease_deletes_nothing(self, cluster_servers):
        RedisIndex(cluster_servers, self.PLACE).open(FINGERPRINT)
        first, second = (
            RedisStagingIndex(cluster_servers, RedisIndex(cluster_servers, self.PLACE, in_staging=True))
            for _ in range(2)
        )
        second.take_lease()
        with pytest.raises(BatchRefused, match="taken over"):
            first.clear()
        second.abandon()
        assert RedisIndex(cluster_servers, self.PLACE).open(FINGERPRINT, create=False) == Opening(is_created=False)

    def test_a_user_without_the_right_to_scan_is_refused_before_the_first_deletion(self, own_redis):
        server, client = own_redis
        redis_sets.let_in(client, "streamdedup", *redis_sets.acl_line("daemon"), "-scan")
        with connect(server.url, security={"username": "streamdedup", "password": "secret"}) as servers:
            store = RedisIndex(servers, self.PLACE)
            store.open(FINGERPRINT)
            staging = RedisStagingIndex(servers, RedisIndex(servers, self.PLACE, in_staging=True))
            staging.take_lease()
            with pytest.raises(StoreMisconfigured, match="scan"):
                staging.clear()
            staging.abandon()
            assert store.open(FINGERPRINT) == Opening(is_created=False)

    def test_the_gap_of_an_index_that_has_gone_back_is_filled_in_the_index_itself(self, store, staging, redis_client):
        store.insert_entries([an_entry()], [store.fence(PARTITION, 1, 0)])
        store.announce(EARLIER, [store.fence(PARTITION, 1, 0)], {PARTITION: 5})
        staging.take_lease()
        fence = staging.store.fence(PARTITION, 2, 9, EARLIER)
        # Until the committed attempt is announced, the gap shows, and no other process takes the partition over.
        state = store.partition_states([PARTITION])[PARTITION]
        assert state.attempts == (AnnouncedAttempt(EARLIER, 5),)
        with pytest.raises(IndexLost, match="gone back"):
            store.fence(PARTITION, 2, 9, LATER)
        fence = staging.store.fence(PARTITION, 3, 9, EARLIER)
        staging.store.insert_entries([an_entry(8, offset=6)], [fence])
        staging.store.announce(LATER, [fence], {PARTITION: 9}, committed_id=LATER)
        staging.complete(FINGERPRINT)
        assert store.fence(PARTITION, 4, 9, LATER) == Fence(PARTITION, 4, 9, LATER)
        assert len(store.get_entries([an_entry().number, an_entry(8).number])) == 2
        state = store.partition_states([PARTITION])[PARTITION]
        assert state.attempts == (AnnouncedAttempt(LATER, 9, LATER),)

    def test_the_deleted_keys_are_told_during_the_deletion(self, store, staging):
        told_counts = []
        staging = RedisStagingIndex(staging.store._servers, staging.store, told_counts.append)
        store.insert_entries([an_entry()], [store.fence(PARTITION, 1, 0)])
        staging.take_lease()
        staging.clear()
        assert sum(told_counts) > 0

    def test_an_index_in_which_a_gap_was_being_filled_can_be_cleared(self, staging):
        staging.take_lease()
        staging.store.fence(PARTITION, 1, 0)
        staging.clear()
        assert staging.store.fence(PARTITION, 1, 0) == Fence(PARTITION, 1, 0)

    def test_completion_may_be_repeated_until_another_process_has_the_lease(self, store, staging_indexes):
        staging, other = staging_indexes
        begin(staging)
        staging.complete(FINGERPRINT)
        staging.complete(FINGERPRINT)
        with pytest.raises(BatchRefused):
            staging.complete({**FINGERPRINT, "other": 1})
        assert store.open(FINGERPRINT) == Opening(is_created=False)
        other.take_lease()
        with pytest.raises(BatchRefused):
            staging.complete(FINGERPRINT)

    def test_a_server_that_went_back_does_not_look_as_if_it_had_not(self, store, staging, redis_client):
        store.announce(EARLIER, [store.fence(PARTITION, 1, 0)], {PARTITION: 0})
        with forgotten_by(redis_client):
            begin(staging)
            fence = staging.store.fence(PARTITION, 2, 3)
            assert staging.store.partition_states([PARTITION])[PARTITION].least_announced < EARLIER
        with pytest.raises((BatchRefused, IndexLost, StoreUnavailable)):
            staging.store.announce(LATER, [fence], {PARTITION: 3})
        assert store.partition_states([PARTITION])[PARTITION].least_announced == EARLIER

    def test_a_write_that_the_server_forgot_is_noticed_by_the_next(self, store, redis_client):
        fence = store.fence(PARTITION, 1, 0)
        with forgotten_by(redis_client):
            store.announce(EARLIER, [fence], {PARTITION: 0})
        with pytest.raises(StoreUnavailable, match="has forgotten a write"):
            store.announce(EARLIER, [fence], {PARTITION: 0})
        store.announce(EARLIER, [fence], {PARTITION: 0})

    def test_the_writes_to_an_index_that_is_gone_are_not_missed_in_the_next_one(self, redis_client):
        store, _ = fenced(redis_store(redis_client))
        redis_client.flushdb()
        assert store.partition_states([PARTITION]) == {PARTITION: PartitionState(None)}
        store.open(FINGERPRINT)
        store.announce(EARLIER, [store.fence(PARTITION, 1, 0)], {PARTITION: 0})

    def test_a_first_write_that_the_server_forgot_is_noticed(self, store, redis_client):
        fence = store.fence(PARTITION, 1, 0)
        redis_client.delete(*redis_client.keys("*}o*"))
        with pytest.raises(StoreUnavailable, match="has forgotten a write"):
            store.announce(EARLIER, [fence], {PARTITION: 0})

    def test_a_number_that_has_expired_is_no_forgotten_write(self, store, redis_client, monkeypatch):
        fence, later_s = store.fence(PARTITION, 1, 0), time.monotonic() + 3000
        (number,) = redis_client.keys("*}o*")
        assert redis_client.ttl(number) > 3000
        redis_client.delete(number)
        monkeypatch.setattr(fenced_module.time, "monotonic", lambda: later_s)
        store.announce(EARLIER, [fence], {PARTITION: 0})

    def test_a_write_that_never_reached_the_server_is_no_forgotten_one(self, store, monkeypatch):
        fence = store.fence(PARTITION, 1, 0)
        with monkeypatch.context() as patch:
            patch.setattr(store._servers, "send_raw", lambda _: {}["the connection is lost"])
            with pytest.raises(KeyError):
                store.announce(EARLIER, [fence], {PARTITION: 0})
        store.announce(EARLIER, [fence], {PARTITION: 0})

    def test_after_a_forgotten_write_no_slot_takes_a_step_that_relies_on_it(self, store, redis_client):
        fence, pairs = store.fence(PARTITION, 1, 9), [bytes([at]) * 16 for at in range(100)]
        first, second = Position(*PARTITION, 3), Position(*PARTITION, 4)
        with forgotten_by(redis_client):
            store.save_pending_matches([(first, PendingMatches(document_missing=True))], [fence])
        with pytest.raises(StoreUnavailable, match="has forgotten a write"):
            store.claim_pairs([(pair, first) for pair in pairs], [fence])
        assert store.claim_pairs([(pair, second) for pair in pairs], [fence]) == [True] * 100
